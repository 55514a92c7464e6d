//! RE2's syntax, read once and written again as a canonical expression of the `regex` crate, whose own syntax differs in
//! many places. The caller's text is never passed through: what RE2 refuses is refused here, what it means is spelled out.
//!
//! Source: the syntax page of RE2 (<https://github.com/google/re2/wiki/Syntax>) and the behaviour of its parser under its
//! default options. A haystack is one line, so `^`, `\A` and `$`, `\z` mean its ends whatever the flags say, and only
//! where a match begins and ends is wanted, so no group captures.
//!
//! One pass, no recursion: groups are kept on a stack of their own, and every atom is written so that an operator can be
//! put right behind it.

mod class;
mod escape;
mod unicode;

use std::fmt::Write as _;

use escape::Escape;

/// Groups within each other, as RE2 bounds them.
const DEPTH_MAX: usize = 1_000;
/// Count in one repetition, and product of those within each other, as RE2 bounds them.
const REPEAT_MAX: u32 = 1_000;

/// What the translation is to be run over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haystack {
    /// One line without its end.
    Line,
    /// Many lines, to find those that may match: every line that matches alone is found, and perhaps more. A line may end
    /// in CR LF, so its end is also before a CR.
    Buffer,
    /// The same without word boundaries, so that more lines may match.
    Loose,
}

/// A translated pattern.
#[derive(Debug, Clone)]
pub(crate) struct Translation {
    /// In the syntax of the `regex` crate.
    pub(crate) text: String,
    /// Deepest groups within each other.
    pub(crate) depth: usize,
}

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Byte in the pattern.
    pub(crate) position: usize,
    /// What is wrong there.
    pub(crate) message: String,
}

impl Refusal {
    fn new(position: usize, message: impl Into<String>) -> Self {
        Self { position, message: message.into() }
    }
}

/// The flags `imsU`; `m` and `s` are read but mean nothing within a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flags {
    fold_case: bool,
    swap_greed: bool,
}

/// Translates an RE2 pattern.
///
/// # Errors
/// Everything that RE2 refuses, and besides `\C` and a newline, which no line holds.
pub(crate) fn translate(pattern: &str, fold_case: bool, haystack: Haystack) -> Result<Translation, Refusal> {
    let mut writer = Writer {
        rest: Rest { pattern, place: 0 },
        haystack,
        out: String::with_capacity(pattern.len() * 2),
        flags: Flags { fold_case, swap_greed: false },
        groups: Vec::new(),
        depth: 0,
        atom: None,
        weight: 1,
    };
    writer.run()?;
    Ok(Translation { text: writer.out, depth: writer.depth })
}

/// What of the pattern is still to be read.
#[derive(Debug, Clone, Copy)]
struct Rest<'a> {
    pattern: &'a str,
    place: usize,
}

impl<'a> Rest<'a> {
    fn text(&self) -> &'a str {
        &self.pattern[self.place..]
    }

    fn peek(&self) -> Option<char> {
        self.text().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.place += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, expect: &str) -> bool {
        let found = self.text().starts_with(expect);
        if found {
            self.place += expect.len();
        }
        found
    }
}

/// The last thing written, which an operator behind it would repeat.
#[derive(Debug, Clone, Copy)]
struct Atom {
    /// Where it begins in the output.
    start: usize,
    /// The largest product of repetition counts in it.
    weight: u32,
    /// Whether an operator is written behind it.
    is_repeated: bool,
    /// Whether that operator was the last thing read.
    is_fresh: bool,
}

/// An open group.
#[derive(Debug)]
struct Group {
    /// Its `(` in the pattern.
    position: usize,
    /// Where it begins in the output.
    start: usize,
    /// To go back to behind it.
    flags: Flags,
    /// Of what came before it in the group around it.
    weight: u32,
}

struct Writer<'a> {
    rest: Rest<'a>,
    haystack: Haystack,
    out: String,
    flags: Flags,
    groups: Vec<Group>,
    depth: usize,
    /// Nothing at the start of a group or of an alternative.
    atom: Option<Atom>,
    /// The largest of all atoms in this group so far.
    weight: u32,
}

impl Writer<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        let mut fresh_at = usize::MAX;
        while let Some(next) = self.rest.peek() {
            let position = self.rest.place;
            if let Some(atom) = self.atom.as_mut() {
                atom.is_fresh = fresh_at == position;
            }
            match next {
                '(' => self.open(position)?,
                ')' => self.close(position)?,
                '|' => {
                    self.rest.next();
                    self.out.push('|');
                    self.atom = None;
                }
                '*' | '+' | '?' => {
                    self.rest.next();
                    self.repeat(position, &next.to_string(), 1)?;
                    fresh_at = self.rest.place;
                }
                '{' => match counts(&mut self.rest) {
                    Some((low, high)) => {
                        self.repeat_counted(position, low, high)?;
                        fresh_at = self.rest.place;
                    }
                    None => {
                        self.rest.next();
                        self.literal(position, u32::from('{'))?;
                    }
                },
                '[' => {
                    let class = class::read(&mut self.rest)?;
                    let class = self.folded(&class);
                    self.atom(&class);
                }
                '.' => {
                    self.rest.next();
                    self.atom(r"[^\n]");
                }
                '^' => {
                    self.rest.next();
                    self.line_start();
                }
                '$' => {
                    self.rest.next();
                    self.line_end();
                }
                '\\' => self.escape(position)?,
                _ => {
                    self.rest.next();
                    self.literal(position, u32::from(next))?;
                }
            }
        }
        match self.groups.last() {
            Some(group) => Err(Refusal::new(group.position, "the group that begins here is never closed with )")),
            None => Ok(()),
        }
    }

    fn atom(&mut self, text: &str) {
        self.atom = Some(Atom { start: self.out.len(), weight: 1, is_repeated: false, is_fresh: false });
        self.out.push_str(text);
    }

    /// A class or character under the flag `i`.
    fn folded(&self, text: &str) -> String {
        if self.flags.fold_case { format!("(?i:{text})") } else { text.to_owned() }
    }

    fn literal(&mut self, position: usize, code: u32) -> Result<(), Refusal> {
        if code == u32::from('\n') {
            return Err(Refusal::new(position, "a pattern cannot match across lines, so it cannot hold a newline"));
        }
        match char::from_u32(code) {
            Some(character) => {
                let text = self.folded(&spell(character));
                self.atom(&text);
            }
            None => self.atom(class::NOTHING),
        }
        Ok(())
    }

    fn line_start(&mut self) {
        self.atom(match self.haystack {
            Haystack::Line => r"\A",
            Haystack::Buffer | Haystack::Loose => "(?m:^)",
        });
    }

    fn line_end(&mut self) {
        self.atom(match self.haystack {
            Haystack::Line => r"\z",
            Haystack::Buffer | Haystack::Loose => "(?mR:$)",
        });
    }

    fn escape(&mut self, position: usize) -> Result<(), Refusal> {
        match escape::read(&mut self.rest)? {
            Escape::LineStart => self.line_start(),
            Escape::LineEnd => self.line_end(),
            Escape::WordBoundary | Escape::NotWordBoundary if self.haystack == Haystack::Loose => self.atom("(?:)"),
            Escape::WordBoundary => self.atom(r"(?-u:\b)"),
            Escape::NotWordBoundary => self.atom(r"(?-u:\B)"),
            Escape::Class(class) => {
                let class = self.folded(&format!("[{class}]"));
                self.atom(&class);
            }
            Escape::Code(code) => self.literal(position, code)?,
            Escape::Quote => loop {
                let position = self.rest.place;
                if self.rest.take(r"\E") {
                    break;
                }
                let Some(next) = self.rest.next() else { break };
                self.literal(position, u32::from(next))?;
            },
        }
        Ok(())
    }

    fn open(&mut self, position: usize) -> Result<(), Refusal> {
        let outer = self.flags;
        if !self.group_start(position)? {
            // Flags for the rest of the group around: what is before stays what an operator repeats.
            return Ok(());
        }
        if self.groups.len() >= DEPTH_MAX {
            return Err(Refusal::new(position, "groups lie deeper within each other than 1000"));
        }
        self.groups.push(Group { position, start: self.out.len(), flags: outer, weight: self.weight });
        self.depth = self.depth.max(self.groups.len());
        self.out.push_str("(?:");
        self.atom = None;
        self.weight = 1;
        Ok(())
    }

    /// Reads what follows a `(`; false where it only sets flags.
    fn group_start(&mut self, position: usize) -> Result<bool, Refusal> {
        self.rest.next();
        if !self.rest.take("?") {
            return Ok(true);
        }
        let unknown =
            || Refusal::new(position, "RE2 has no such group; it knows (?:…), (?P<name>…) and the flags imsU");
        if self.rest.text().starts_with("P<") || self.rest.text().starts_with('<') {
            self.rest.take("P");
            self.rest.take("<");
            if self.rest.text().starts_with(['=', '!']) {
                return Err(Refusal::new(position, "RE2 has no look-behind"));
            }
            let name = self.rest.text().split_once('>').map(|(name, _)| name);
            let sound = |name: &&str| !name.is_empty() && name.chars().all(unicode::is_name_character);
            let Some(name) = name.filter(sound) else {
                return Err(Refusal::new(
                    position,
                    "the group's name is not one or more letters, digits and _ before a >",
                ));
            };
            self.rest.place += name.len() + 1;
            return Ok(true);
        }
        if self.rest.text().starts_with(['=', '!']) {
            return Err(Refusal::new(position, "RE2 has no look-ahead"));
        }
        let (mut on, mut named) = (true, false);
        loop {
            match self.rest.next() {
                Some('i') => self.flags.fold_case = on,
                Some('U') => self.flags.swap_greed = on,
                Some('m' | 's') => {}
                Some('-') if on => {
                    (on, named) = (false, false);
                    continue;
                }
                Some(end @ (':' | ')')) if on || named => return Ok(end == ':'),
                _ => return Err(unknown()),
            }
            named = true;
        }
    }

    fn close(&mut self, position: usize) -> Result<(), Refusal> {
        let Some(group) = self.groups.pop() else {
            return Err(Refusal::new(position, "no group is open here for ) to close"));
        };
        self.rest.next();
        self.out.push(')');
        self.flags = group.flags;
        self.atom = Some(Atom { start: group.start, weight: self.weight, is_repeated: false, is_fresh: false });
        self.weight = self.weight.max(group.weight);
        Ok(())
    }

    fn repeat_counted(&mut self, position: usize, low: u32, high: Option<u32>) -> Result<(), Refusal> {
        if low > REPEAT_MAX || high.is_some_and(|high| high > REPEAT_MAX || high < low) {
            return Err(Refusal::new(position, "a repetition counts from 0 to 1000, the lower count first"));
        }
        let operator = match high {
            Some(high) if high == low => format!("{{{low}}}"),
            Some(high) => format!("{{{low},{high}}}"),
            None => format!("{{{low},}}"),
        };
        self.repeat(position, &operator, high.unwrap_or(low).max(1))
    }

    fn repeat(&mut self, position: usize, operator: &str, factor: u32) -> Result<(), Refusal> {
        let lazy = self.rest.take("?");
        let Some(mut atom) = self.atom else {
            return Err(Refusal::new(position, "there is nothing before this operator to repeat"));
        };
        if atom.is_repeated && atom.is_fresh {
            return Err(Refusal::new(
                position,
                "an operator cannot follow another; put a group around what is repeated",
            ));
        }
        atom.weight = atom.weight.saturating_mul(factor);
        if atom.weight > REPEAT_MAX && factor > 1 {
            return Err(Refusal::new(position, "repetitions within each other multiply to more than 1000"));
        }
        if atom.is_repeated {
            self.out.insert_str(atom.start, "(?:");
            self.out.push(')');
        }
        self.out.push_str(operator);
        if lazy != self.flags.swap_greed {
            self.out.push('?');
        }
        self.weight = self.weight.max(atom.weight);
        self.atom = Some(Atom { is_repeated: true, ..atom });
        Ok(())
    }
}

/// Reads `{n}`, `{n,}` or `{n,m}`; nothing, and the `{` is a character, for anything else.
fn counts(rest: &mut Rest<'_>) -> Option<(u32, Option<u32>)> {
    let mut ahead = *rest;
    ahead.take("{");
    let low = count(&mut ahead)?;
    let high = match ahead.next()? {
        '}' => Some(low),
        ',' if ahead.take("}") => None,
        ',' => {
            let high = count(&mut ahead)?;
            if !ahead.take("}") {
                return None;
            }
            Some(high)
        }
        _ => return None,
    };
    *rest = ahead;
    Some((low, high))
}

/// A decimal number without leading zeros, below RE2's bound for one.
fn count(rest: &mut Rest<'_>) -> Option<u32> {
    let digits = rest.text().bytes().take_while(u8::is_ascii_digit).count();
    let text = &rest.text()[..digits];
    if text.is_empty() || text.len() > 9 || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    rest.place += digits;
    text.parse().ok()
}

/// One character in the syntax of the `regex` crate, inside and outside of a class.
fn spell(character: char) -> String {
    let mut text = String::new();
    if character.is_ascii() && !character.is_ascii_alphanumeric() {
        // Writing into a string does not fail.
        let _ = write!(text, "\\x{{{:X}}}", u32::from(character));
    } else {
        text.push(character);
    }
    text
}

/// A text in the syntax of the `regex` crate that matches exactly itself.
pub(crate) fn spell_all(text: &str) -> String {
    text.chars().map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written over one line, or where and why it is refused.
    #[track_caller]
    fn check(pattern: &str, expect: &str) {
        let seen = match translate(pattern, false, Haystack::Line) {
            Ok(translation) => translation.text,
            Err(refusal) => format!("{}: {}", refusal.position, refusal.message),
        };
        if let Some(expect) = expect.strip_suffix('…') {
            assert!(seen.starts_with(expect), "{pattern}: {seen}");
        } else {
            assert_eq!(seen, expect, "{pattern}");
        }
    }

    #[test]
    fn spells_what_differs() {
        for (pattern, expect) in [
            (r"\d\w\s", r"[0-9][0-9A-Za-z_][\t\n\x0C\r\x20]"),
            (r"\D\W", "[[^0-9]][[^0-9A-Za-z_]]"),
            (r"\b\B", r"(?-u:\b)(?-u:\B)"),
            (r"\Qa.b\Ec", r"a\x{2E}bc"),
            (r"\Qa.", r"a\x{2E}"),
            (r"\0\012x", r"0: …"),
            (r"\0\101\1234", r"\x{0}AS4"),
            (r"\p{^Greek}\PN\pN", r"[[^\p{Greek}]][[^\p{N}]][\p{N}]"),
            (r"\p{Cs}", r"[[^\x{0}-\x{10FFFF}]]"),
            ("a{", r"a\x{7B}"),
            ("a{,3}", r"a\x{7B}\x{2C}3\x{7D}"),
            ("a{ 2 }", r"a\x{7B}\x{20}2\x{20}\x{7D}"),
            ("a{2}b{2,}c{2,3}?", "a{2}b{2,}c{2,3}?"),
            ("[[a]", r"[\x{5B}-\x{5B}\x{61}-\x{61}]"),
            ("[a&&b]", r"[\x{61}-\x{61}\x{26}-\x{26}\x{26}-\x{26}\x{62}-\x{62}]"),
            (r"[\d-z]", r"[0-9\x{2D}-\x{2D}\x{7A}-\x{7A}]"),
            ("[[:alpha:]x]", r"[A-Za-z\x{78}-\x{78}]"),
            (r"\<\>", r"\x{3C}\x{3E}"),
            (r"\b{start}", r"(?-u:\b)\x{7B}start\x{7D}"),
            ("(?i)a(?-i)b", "(?i:a)b"),
            ("(a(?i)b)c", "(?:a(?i:b))c"),
            ("(?i:a)b", "(?:(?i:a))b"),
            ("(?U)a+b+?", "a+?b+"),
            ("(?P<n>a)|(?<m>b)()", "(?:a)|(?:b)(?:)"),
            ("^a$", r"\Aa\z"),
            ("(?m)^a$", r"\Aa\z"),
            ("(?s).", r"[^\n]"),
            ("a*(?i)*", "(?:a*)*"),
            (r"\x{D800}", class::NOTHING),
        ] {
            check(pattern, if expect == "0: …" { r"2: a pattern cannot match across lines…" } else { expect });
        }
    }

    #[test]
    fn says_where_and_why_it_refuses() {
        for (pattern, expect) in [
            ("f(", "1: the group…"),
            ("a(b(c)", "1: the group…"),
            ("a)", "1: no group…"),
            ("a[bc", "1: the class…"),
            ("[]", "0: the class…"),
            ("*a", "0: there is nothing…"),
            ("a|*", "2: there is nothing…"),
            ("a**", "2: an operator…"),
            ("a{2}{3}", "4: an operator…"),
            ("a???", "3: an operator…"),
            ("a{1001}", "1: a repetition…"),
            ("a{3,2}", "1: a repetition…"),
            ("(a{32}){32}", "7: repetitions…"),
            (r"a\1", "1: RE2 has no references…"),
            (r"\8", r"0: RE2 has no escape \8"),
            (r"\u0041", r"0: RE2 has no escape \u"),
            (r"\Z", r"0: RE2 has no escape \Z"),
            (r"ab\", r"2: a \ at the end…"),
            (r"\C", r"0: \C…"),
            (r"\x4", r"0: \x takes…"),
            (r"\p{greek}", "0: RE2 has no Unicode class…"),
            (r"[\p{sc=Greek}]", "1: RE2 has no Unicode class…"),
            ("[[:foo:]]", "1: there is no such class…"),
            ("[a--b]", "1: the range…"),
            ("(?x)a", "0: RE2 has no such group…"),
            ("(?=a)", "0: RE2 has no look-ahead"),
            ("(?<!a)", "0: RE2 has no look-behind"),
            ("(?P<>a)", "0: the group's name…"),
            ("a\nb", "1: a pattern cannot match across lines…"),
            ("\u{e9}(", "2: the group…"),
        ] {
            check(pattern, expect);
        }
    }
}
