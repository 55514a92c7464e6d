//! What a text must hold so that a pattern can match in it, asked of trigrams: conservative, so that what is not
//! understood asks for nothing.
//!
//! A match is a run of bytes of one line, so every trigram of every text that the pattern can match is in the file. The
//! trigrams come from the parsed expression: bytes that stand side by side in every match make a run, and what may be
//! anything ends it. A letter in any case is the pair of its two cases; `k` and `s` in any case also match U+212A and
//! U+017F (Unicode's CaseFolding.txt), and so end a run.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::filter::{self, fold, place_of};

/// Places asked for at most by one run of bytes: more would hardly rule out more files.
const PLACE_COUNT_MAX: usize = 24;
/// Parts of one query at most; a larger one asks for nothing.
const PART_COUNT_MAX: usize = 512;
/// Groups within each other that are looked into.
const DEPTH_MAX: usize = 200;

/// What a text must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::search) enum Query {
    /// Nothing that is known: every text may match.
    Anything,
    /// The trigrams at all of these places.
    Places(Vec<u32>),
    /// What all of these say.
    All(Vec<Query>),
    /// What one of these says, or more.
    Some(Vec<Query>),
}

impl Query {
    /// Of a text that is looked for as it stands.
    pub(in crate::search) fn of_literal(text: &[u8]) -> Self {
        let mut run = Run::default();
        run.bytes.extend(text.iter().map(|&byte| fold(byte)));
        run.query()
    }

    /// Of an expression.
    pub(in crate::search) fn of_expression(hir: &Hir) -> Self {
        let mut parts = 0;
        let mut run = Run::default();
        gather(hir, &mut run, DEPTH_MAX, &mut parts);
        run.query()
    }

    /// Whether the text of this filter may match.
    pub(super) fn may_match(&self, words: &[u64]) -> bool {
        match self {
            Self::Anything => true,
            Self::Places(places) => places.iter().all(|&place| filter::holds(words, place)),
            Self::All(parts) => parts.iter().all(|part| part.may_match(words)),
            Self::Some(parts) => parts.iter().any(|part| part.may_match(words)),
        }
    }

    /// Whether a text of fewer than three bytes may match.
    pub(super) fn may_be_short(&self) -> bool {
        self.may_match(&[0])
    }
}

/// Bytes that stand side by side in every match, and what is known beside.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    known: Vec<Query>,
}

impl Run {
    /// What comes next may be anything.
    fn close(&mut self) {
        let mut places: Vec<u32> =
            self.bytes.windows(3).map(|three| place_of([three[0], three[1], three[2]])).collect();
        self.bytes.clear();
        places.sort_unstable();
        places.dedup();
        places.truncate(PLACE_COUNT_MAX);
        if !places.is_empty() {
            self.known.push(Query::Places(places));
        }
    }

    fn query(mut self) -> Query {
        self.close();
        match self.known.len() {
            0 => Query::Anything,
            1 => self.known.remove(0),
            _ => Query::All(self.known),
        }
    }
}

fn gather(hir: &Hir, run: &mut Run, depth: usize, parts: &mut usize) {
    *parts += 1;
    if depth == 0 || *parts > PART_COUNT_MAX {
        return run.close();
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => run.bytes.extend(literal.0.iter().map(|&byte| fold(byte))),
        HirKind::Class(class) => match one_byte(class) {
            Some(byte) => run.bytes.push(byte),
            None => run.close(),
        },
        HirKind::Capture(capture) => gather(&capture.sub, run, depth - 1, parts),
        HirKind::Concat(subs) => subs.iter().for_each(|sub| gather(sub, run, depth - 1, parts)),
        HirKind::Repetition(repetition) => {
            // The first of them follows what stands before; where the last one ends is not known.
            if repetition.min > 0 {
                gather(&repetition.sub, run, depth - 1, parts);
            }
            if (repetition.min, repetition.max) != (1, Some(1)) {
                run.close();
            }
        }
        HirKind::Alternation(subs) => {
            run.close();
            let mut choices = Vec::with_capacity(subs.len().min(PART_COUNT_MAX));
            for sub in subs {
                let mut choice = Run::default();
                gather(sub, &mut choice, depth - 1, parts);
                match choice.query() {
                    // One choice that may be anything makes all of them useless.
                    Query::Anything => return,
                    known => choices.push(known),
                }
            }
            run.known.push(Query::Some(choices));
        }
    }
}

/// The folded byte that a class of characters stands for, where it is one.
fn one_byte(class: &Class) -> Option<u8> {
    let mut one = None;
    let mut add = |byte: u8| {
        let byte = fold(byte);
        let is_same = one.is_none_or(|known| known == byte);
        one = Some(byte);
        is_same
    };
    let is_one = match class {
        Class::Unicode(class) => class.iter().all(|range| {
            let (start, end) = (u32::from(range.start()), u32::from(range.end()));
            end < 0x80 && end - start < 2 && (start..=end).all(|byte| add(byte as u8))
        }),
        Class::Bytes(class) => {
            class.iter().all(|range| range.end() - range.start() < 2 && (range.start()..=range.end()).all(&mut add))
        }
    };
    one.filter(|_| is_one)
}

#[cfg(test)]
mod tests {
    use regex_syntax::ParserBuilder;

    use super::*;

    /// The query in words, with the runs that are asked for.
    fn query(pattern: &str) -> Query {
        Query::of_expression(&ParserBuilder::new().utf8(false).nest_limit(1_000).build().parse(pattern).unwrap())
    }

    fn run(text: &str) -> Query {
        Query::of_literal(text.as_bytes())
    }

    #[track_caller]
    fn check(pattern: &str, expect: Query) {
        assert_eq!(query(pattern), expect, "{pattern}");
    }

    #[test]
    fn asks_for_what_every_match_holds() {
        let all = |parts: &[&str]| Query::All(parts.iter().map(|part| run(part)).collect());
        check("foobar", run("foobar"));
        check("FooBar", run("foobar"));
        check("fo", Query::Anything);
        check("(?i:author)", run("author"));
        check(r"def \w+_test", all(&["def ", "_test"]));
        check(r"[A-Z]{3,}_[0-9]{4}\b", Query::Anything);
        check(r"\bfoo\b bar$", run("foo bar"));
        check("(fo)(ob)ar", run("foobar"));
        check("foo.bar", all(&["foo", "bar"]));
        check("foob?ar!", all(&["foo", "ar!"]));
        check("foob+ar!", all(&["foob", "ar!"]));
        check("(abc){2,3}def", all(&["abc", "def"]));
        check("fo[o]b[rR]", run("foobr"));
        check("\u{e9}t\u{e9}", run("\u{e9}t\u{e9}"));
        check("x(abc|def)y", Query::Some(vec![run("abc"), run("def")]));
        check("foo(a|)bar", all(&["foo", "bar"]));
        check("(abc|.)*", Query::Anything);
        check("abc|.", Query::Anything);
        check("", Query::Anything);
    }

    #[test]
    fn letters_with_a_third_case_end_a_run() {
        check("(?i:mask)", Query::Anything);
        check("(?i:task ore)", run(" ore"));
        check("(?i:fooskbar)", Query::All(vec![run("foo"), run("bar")]));
        check("(?i:\u{e9}abc)", run("abc"));
    }

    #[test]
    fn large_and_deep_expressions_ask_for_less_and_end() {
        let many = (0..2_000).map(|n| format!("word{n}")).collect::<Vec<_>>().join("|x");
        assert_eq!(query(&format!("({many})")), Query::Anything);
        assert!(matches!(query(&format!("start{}", "(a.b)".repeat(400))), Query::Places(_)));
        let deep = format!("{}abc{}", "(x|".repeat(240), ")".repeat(240));
        assert_eq!(query(&deep), Query::Anything);
        let Query::Places(places) = run(&"abcdefghijklmnopqrstuvwxyz".repeat(100)) else { panic!("a run") };
        assert!(places.len() <= PLACE_COUNT_MAX);
    }
}
