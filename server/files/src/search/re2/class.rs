//! Classes in brackets.

use std::fmt::Write as _;

use super::{Refusal, Rest, escape};

/// A class that matches nothing.
pub(super) const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

/// The classes of POSIX that RE2 knows, as they stand between brackets.
const POSIX: [(&str, &str); 14] = [
    ("alnum", "0-9A-Za-z"),
    ("alpha", "A-Za-z"),
    ("ascii", r"\x00-\x7F"),
    ("blank", r"\t\x20"),
    ("cntrl", r"\x00-\x1F\x7F"),
    ("digit", "0-9"),
    ("graph", r"\x21-\x7E"),
    ("lower", "a-z"),
    ("print", r"\x20-\x7E"),
    ("punct", r"\x21-\x2F\x3A-\x40\x5B-\x60\x7B-\x7E"),
    ("space", r"\t\n\x0B\x0C\r\x20"),
    ("upper", "A-Z"),
    ("word", "0-9A-Za-z_"),
    ("xdigit", "0-9A-Fa-f"),
];

/// Reads a class and writes it in the syntax of the `regex` crate: only ranges of escaped characters and classes in
/// brackets of their own, so none of its set operations can be spelt by accident.
pub(super) fn read(rest: &mut Rest<'_>) -> Result<String, Refusal> {
    let position = rest.place;
    let open = || Refusal::new(position, "the class that begins here is never closed with ]");
    rest.take("[");
    let negated = rest.take("^");
    let mut out = String::new();
    let (mut before_gap, mut behind_gap) = (false, false);
    let (mut is_first, mut has_other, mut has_newline) = (true, false, false);
    loop {
        match rest.peek() {
            None => return Err(open()),
            Some(']') if !is_first => break,
            Some(_) => is_first = false,
        }
        if let Some(class) = posix(rest)? {
            out.push_str(&class);
            has_other = true;
            continue;
        }
        if let Some(class) = escape::class(rest)? {
            out.push_str(&class);
            has_other = true;
            continue;
        }
        let begin = rest.place;
        let low = character(rest).ok_or_else(open)??;
        let mut high = low;
        // A - before the ] is a character.
        if rest.text().starts_with('-') && !rest.text().starts_with("-]") && rest.text().len() > 1 {
            rest.take("-");
            high = character(rest).ok_or_else(open)??;
            if high < low {
                return Err(Refusal::new(begin, "the range ends before it begins"));
            }
        }
        let newline = u32::from('\n');
        has_newline |= (low..=high).contains(&newline);
        has_other |= low != newline || high != newline;
        if let Some((low, high)) = without_surrogates(low, high) {
            (before_gap, behind_gap) = (before_gap || high == 0xd7ff, behind_gap || low == 0xe000);
            write_range(&mut out, low, high);
        }
    }
    rest.take("]");
    if before_gap && behind_gap {
        // The `regex` crate negates two ranges that meet at the surrogates as if one character lay between them.
        write_range(&mut out, 0xd7ff, 0xe000);
    }
    if !negated && has_newline && !has_other {
        return Err(Refusal::new(position, "a pattern cannot match across lines, so it cannot ask for a newline"));
    }
    Ok(match (negated, out.is_empty()) {
        (false, true) => NOTHING.to_owned(),
        (true, true) => r"[\x{0}-\x{10FFFF}]".to_owned(),
        (false, false) => format!("[{out}]"),
        (true, false) => format!("[^{out}]"),
    })
}

/// The next character or escape of one; nothing at the pattern's end.
fn character(rest: &mut Rest<'_>) -> Option<Result<u32, Refusal>> {
    match rest.peek()? {
        '\\' => Some(escape::code(rest)),
        _ => rest.next().map(|next| Ok(u32::from(next))),
    }
}

/// Reads `[:name:]`; nothing where none is here.
fn posix(rest: &mut Rest<'_>) -> Result<Option<String>, Refusal> {
    let Some(behind) = rest.text().strip_prefix("[:") else { return Ok(None) };
    let Some((name, _)) = behind.split_once(":]") else { return Ok(None) };
    let (negated, known) = match name.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, name),
    };
    let Some((_, class)) = POSIX.iter().find(|(posix, _)| *posix == known) else {
        return Err(Refusal::new(rest.place, "there is no such class of POSIX, such as [:alpha:]"));
    };
    rest.place += name.len() + 4;
    Ok(Some(if negated { format!("[^{class}]") } else { (*class).to_owned() }))
}

/// A range without the surrogates at its ends, which no UTF-8 holds; nothing where it has no other.
fn without_surrogates(low: u32, high: u32) -> Option<(u32, u32)> {
    let is_surrogate = |code| (0xd800..=0xdfff).contains(&code);
    let low = if is_surrogate(low) { 0xe000 } else { low };
    let high = if is_surrogate(high) { 0xd7ff } else { high };
    (low <= high).then_some((low, high))
}

fn write_range(out: &mut String, low: u32, high: u32) {
    // Writing into a string does not fail.
    let _ = write!(out, "\\x{{{low:X}}}-\\x{{{high:X}}}");
}
