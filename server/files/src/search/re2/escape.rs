//! What follows a backslash.

use super::{Refusal, Rest, unicode};

/// An escape outside of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Escape {
    /// `\A`.
    LineStart,
    /// `\z`.
    LineEnd,
    /// `\b`, of ASCII words.
    WordBoundary,
    /// `\B`.
    NotWordBoundary,
    /// `\d`, `\pN` and the like: what stands between the brackets of a class.
    Class(String),
    /// One code point, perhaps one that is no character.
    Code(u32),
    /// `\Q`: what follows is text up to `\E`.
    Quote,
}

/// Reads an escape outside of a class.
pub(super) fn read(rest: &mut Rest<'_>) -> Result<Escape, Refusal> {
    let position = rest.place;
    for (text, escape) in [
        (r"\A", Escape::LineStart),
        (r"\z", Escape::LineEnd),
        (r"\b", Escape::WordBoundary),
        (r"\B", Escape::NotWordBoundary),
        (r"\Q", Escape::Quote),
    ] {
        if rest.take(text) {
            return Ok(escape);
        }
    }
    if rest.text().starts_with(r"\C") {
        return Err(Refusal::new(position, r"\C, one byte of a character, is not supported"));
    }
    match class(rest)? {
        Some(class) => Ok(Escape::Class(class)),
        None => code(rest).map(Escape::Code),
    }
}

/// Reads an escape that stands for a class, in a class or outside; nothing where none is here.
pub(super) fn class(rest: &mut Rest<'_>) -> Result<Option<String>, Refusal> {
    // Nested brackets, so that under the flag `i` each is folded before it is negated.
    for (text, class) in [
        (r"\d", "0-9"),
        (r"\D", "[^0-9]"),
        (r"\s", r"\t\n\x0C\r\x20"),
        (r"\S", r"[^\t\n\x0C\r\x20]"),
        (r"\w", "0-9A-Za-z_"),
        (r"\W", "[^0-9A-Za-z_]"),
    ] {
        if rest.take(text) {
            return Ok(Some(class.to_owned()));
        }
    }
    let position = rest.place;
    let positive = rest.text().starts_with(r"\p");
    if !positive && !rest.text().starts_with(r"\P") {
        return Ok(None);
    }
    rest.place += 2;
    let unknown = || {
        Refusal::new(
            position,
            "RE2 has no Unicode class of this name; it knows categories such as Lu and scripts such as Greek",
        )
    };
    let name = if rest.take("{") {
        let (name, _) = rest.text().split_once('}').ok_or_else(unknown)?;
        rest.place += name.len() + 1;
        name
    } else {
        let begin = rest.place;
        rest.next().ok_or_else(unknown)?;
        &rest.pattern[begin..rest.place]
    };
    let (negated, name) = match name.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, name),
    };
    let class = unicode::class(name).ok_or_else(unknown)?;
    Ok(Some(if negated == positive { format!("[^{class}]") } else { class }))
}

/// Reads an escape that stands for one code point.
pub(super) fn code(rest: &mut Rest<'_>) -> Result<u32, Refusal> {
    let position = rest.place;
    rest.take(r"\");
    let Some(next) = rest.next() else {
        return Err(Refusal::new(position, r"a \ at the end escapes nothing"));
    };
    let bad = |what: &str| Refusal::new(position, what);
    Ok(match next {
        // One digit other than 0 would be a reference back to a group.
        '1'..='7' if !rest.text().starts_with(|digit: char| digit.is_digit(8)) => {
            return Err(bad("RE2 has no references back to a group"));
        }
        '0'..='7' => {
            let mut code = u32::from(next) - u32::from('0');
            for _ in 0..2 {
                let Some(digit) = rest.peek().and_then(|digit| digit.to_digit(8)) else { break };
                rest.next();
                code = code * 8 + digit;
            }
            code
        }
        'x' => hexadecimal(rest).ok_or_else(|| bad(r"\x takes two hexadecimal digits, or up to 10FFFF in braces"))?,
        'a' => 0x07,
        'f' => 0x0c,
        'n' => 0x0a,
        'r' => 0x0d,
        't' => 0x09,
        'v' => 0x0b,
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => u32::from(other),
        other => return Err(bad(&format!(r"RE2 has no escape \{other}"))),
    })
}

fn hexadecimal(rest: &mut Rest<'_>) -> Option<u32> {
    let digit = |rest: &mut Rest<'_>| rest.next().and_then(|digit| digit.to_digit(16));
    if !rest.take("{") {
        return Some(digit(rest)? * 16 + digit(rest)?);
    }
    let mut code = digit(rest)?;
    while !rest.take("}") {
        code = code * 16 + digit(rest)?;
        if code > u32::from(char::MAX) {
            return None;
        }
    }
    Some(code)
}
