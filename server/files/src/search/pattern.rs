//! Patterns: literal text, or RE2 translated to a canonical regular expression.
//!
//! A pattern is compiled twice. One expression runs over many lines at once and says where a line lies that may match:
//! every line that matches, and perhaps more. The other runs over one such line alone and has the last word, so that what
//! a line is (without CR LF, without a BOM, its first MiB) is decided in one place.

use std::{ops::ControlFlow, sync::Arc, thread};

use grep_matcher::{LineMatchKind, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind, literal::Extractor},
};

use super::{
    any_case::AnyCase,
    index::Query,
    re2::{self, Haystack, Translation},
    steady::{Caches, Halt, Steady},
    window::Window,
};
use crate::{error::Fault, limits::Limits};

/// Bytes of a compiled expression, as RE2 bounds its own.
const PROGRAM_BYTES_MAX: usize = 10 << 20;
/// Bytes of states that an expression keeps for each thread while it runs.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// Groups within each other up to which a pattern is compiled on the caller's stack.
const SHALLOW_DEPTH_MAX: usize = 50;
/// Stack to compile the deepest pattern on; the compiler calls itself for every group.
const DEEP_STACK_BYTES: usize = 64 << 20;
/// Most bytes searched between two questions whether to go on.
const WINDOW_BYTES_MAX: usize = 128 << 10;
/// Bytes times states up to which a search of them runs to its end; a visit of a state takes some nanoseconds.
const VISIT_COUNT_MAX: usize = 20_000_000;
/// Bytes that are gone over for each place that a window has looked at one by one, so that it is worth looking for.
const BYTES_PER_LOOK_MIN: usize = 64;
/// So many such places are looked at in any case.
const LOOK_COUNT_MIN: usize = 1_000;
/// What a window that is found costs with the match of its line, in such places.
const FOUND_LOOK_COUNT: usize = 16;
/// Longest text that is made up to try a matcher on.
const SAMPLE_BYTES_MAX: usize = 16 << 10;
/// More than the canonical spelling of the deepest pattern nests.
const NEST_MAX: u32 = 100_000;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    kind: Kind,
    /// What a text must hold so that it can match.
    query: Arc<Query>,
}

#[derive(Debug, Clone)]
enum Kind {
    Literal(Box<Finder<'static>>),
    Regex {
        /// Over many lines.
        lines: Box<RegexMatcher>,
        /// Over one line.
        line: Regex,
        /// Over one line, if that may take long.
        steady: Arc<Steady>,
        /// Over many lines, where that is quicker.
        any_case: Option<Box<AnyCase>>,
        /// Over many lines, before the others, for as long as it is worth it.
        window: Option<Box<Window>>,
    },
}

/// How a pattern is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// As it stands.
    Literal,
    /// RE2.
    Regex,
}

/// Whether case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// It does.
    Sensitive,
    /// It does not: simple Unicode case folding.
    Insensitive,
}

impl Pattern {
    /// Compiles a pattern; may take up to 150 ms, so not on an async thread.
    ///
    /// # Errors
    /// `InvalidPattern` with the byte position in field `pattern`.
    pub fn new(text: &str, syntax: Syntax, case: Case, limits: &Limits) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(refuse(0, "the pattern is empty; give the text to look for"));
        }
        if text.len() > limits.pattern_bytes_max {
            let message =
                format!("the pattern has {} bytes, over the limit of {}", text.len(), limits.pattern_bytes_max);
            return Err(refuse(limits.pattern_bytes_max, message));
        }
        match (syntax, case) {
            (Syntax::Literal, case) => {
                if let Some(position) = text.find('\n') {
                    return Err(refuse(position, "a pattern cannot match across lines, so it cannot hold a newline"));
                }
                if case == Case::Sensitive {
                    let kind = Kind::Literal(Box::new(Finder::new(text).into_owned()));
                    return Ok(Self { kind, query: Arc::new(Query::of_literal(text.as_bytes())) });
                }
                let spelt = format!("(?i:{})", re2::spell_all(text));
                compile(&Spellings { loose: spelt.clone(), lines: spelt.clone(), line: spelt }, AnyCase::new(text))
            }
            (Syntax::Regex, case) => {
                let fold_case = case == Case::Insensitive;
                let translate = |haystack| {
                    re2::translate(text, fold_case, haystack)
                        .map_err(|refusal| hint(refusal.position, &refusal.message))
                };
                let Translation { text: line, depth } = translate(Haystack::Line)?;
                let (lines, loose) = (translate(Haystack::Buffer)?.text, translate(Haystack::Loose)?.text);
                let spellings = Spellings { line, lines, loose };
                if depth <= SHALLOW_DEPTH_MAX {
                    return compile(&spellings, None);
                }
                thread::scope(|scope| {
                    let builder = thread::Builder::new().stack_size(DEEP_STACK_BYTES);
                    let thread = builder.spawn_scoped(scope, || compile(&spellings, None));
                    let thread = thread.map_err(|_| Fault::Overloaded { what: "threads" })?;
                    thread.join().unwrap_or(Err(Fault::Internal("the compiler of a pattern failed")))
                })
            }
        }
    }

    /// The first match in one line, given without its end: where it begins and just past where it ends, in bytes.
    pub fn find_in_line(&self, line: &[u8]) -> Option<(usize, usize)> {
        match &self.kind {
            Kind::Literal(finder) => finder.find(line).map(|start| (start, start + finder.needle().len())),
            Kind::Regex { line: regex, .. } => regex.find(line).map(|found| (found.start(), found.end())),
        }
    }
}

impl Pattern {
    /// What a text must hold so that it can match.
    pub(super) fn query(&self) -> &Query {
        &self.query
    }
}

/// A pattern with what one thread needs to run it.
pub(super) struct Searcher {
    pattern: Pattern,
    caches: Option<Caches>,
    worth: Worth,
}

/// Whether a window is rare in these texts.
#[derive(Debug, Default)]
struct Worth {
    gone_over_bytes: usize,
    /// What was found, in places that were looked at one by one.
    cost: usize,
}

impl Worth {
    fn add(&mut self, gone_over_bytes: usize, cost: usize) {
        self.gone_over_bytes = self.gone_over_bytes.saturating_add(gone_over_bytes);
        self.cost = self.cost.saturating_add(cost);
    }

    fn is_there(&self) -> bool {
        self.cost <= LOOK_COUNT_MIN + self.gone_over_bytes / BYTES_PER_LOOK_MIN
    }
}

impl Searcher {
    pub(super) fn new(pattern: &Pattern) -> Self {
        // A copy, because the threads of one expression wait for each other's states.
        Self { pattern: pattern.clone(), caches: None, worth: Worth::default() }
    }

    /// Most bytes that are given to [`Searcher::candidate`] at once.
    pub(super) fn window_bytes_max(&self) -> usize {
        match &self.pattern.kind {
            Kind::Literal(_) => WINDOW_BYTES_MAX,
            Kind::Regex { steady, .. } => (VISIT_COUNT_MAX / steady.state_count()).clamp(1, WINDOW_BYTES_MAX),
        }
    }

    /// A place in the first line of `lines` that may match; it lies in that line or right behind it. Only whole lines are
    /// given.
    pub(super) fn candidate(&mut self, lines: &[u8]) -> Option<usize> {
        match &self.pattern.kind {
            Kind::Literal(finder) => finder.find(lines),
            Kind::Regex { window: Some(window), .. } if self.worth.is_there() => {
                let (found, looked) = window.find(lines);
                self.worth.add(found.unwrap_or(lines.len()), looked + found.map_or(0, |_| FOUND_LOOK_COUNT));
                found
            }
            Kind::Regex { any_case, lines: matcher, window, .. } => {
                let found = match any_case {
                    Some(any_case) => any_case.find(lines),
                    None => find_line(matcher, lines),
                };
                if window.is_some() {
                    // In time the text pays for what the window cost, and it is looked for again.
                    self.worth.add(found.unwrap_or(lines.len()), 0);
                }
                found
            }
        }
    }

    /// As [`Pattern::find_in_line`], but asks between any two bytes whether to go on if that may take long.
    pub(super) fn find(
        &mut self,
        line: &[u8],
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<(usize, usize)>, Halt> {
        match &self.pattern.kind {
            Kind::Regex { steady, .. } if line.len() > VISIT_COUNT_MAX / steady.state_count() => {
                let caches = self.caches.get_or_insert_with(|| steady.caches());
                steady.find(caches, line, go_on)
            }
            _ => Ok(self.pattern.find_in_line(line)),
        }
    }
}

/// One pattern, spelt for what it is run over.
struct Spellings {
    line: String,
    lines: String,
    loose: String,
}

fn compile(spellings: &Spellings, any_case: Option<AnyCase>) -> Result<Pattern, Fault> {
    let line = RegexBuilder::new(&spellings.line)
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .nest_limit(NEST_MAX)
        .build()
        .map_err(|error| explain(&error.to_string()))?;
    let lines = match by_inner_literals(spellings) {
        Some(lines) => lines,
        None => matcher(&spellings.lines).map_err(|error| explain(&error.to_string()))?,
    };
    let steady = Steady::new(&spellings.line, PROGRAM_BYTES_MAX, CACHE_BYTES_MAX, NEST_MAX);
    let steady = Arc::new(steady.ok_or_else(|| explain("size limit"))?);
    let hir = parse(&spellings.line);
    let window = hir.as_ref().filter(|hir| !has_prefix(hir)).and_then(Window::new).map(Box::new);
    let query = Arc::new(hir.map_or(Query::Anything, |hir| Query::of_expression(&hir)));
    let kind = Kind::Regex { lines: Box::new(lines), line, steady, any_case: any_case.map(Box::new), window };
    Ok(Pattern { kind, query })
}

/// As the compiler of `regex` parses it.
fn parse(text: &str) -> Option<Hir> {
    ParserBuilder::new().utf8(false).nest_limit(NEST_MAX).build().parse(text).ok()
}

fn matcher(text: &str) -> Result<RegexMatcher, grep_regex::Error> {
    RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .nest_limit(NEST_MAX)
        .build(text)
}

/// A place in the first of some lines that may match.
fn find_line(matcher: &RegexMatcher, lines: &[u8]) -> Option<usize> {
    match matcher.find_candidate_line(lines).expect("the error of this matcher is never made")? {
        LineMatchKind::Confirmed(place) | LineMatchKind::Candidate(place) => Some(place),
    }
}

/// Whether every match begins with one of some literals, which the engine itself looks for.
fn has_prefix(hir: &Hir) -> bool {
    let mut prefixes = Extractor::new().extract(hir);
    prefixes.optimize_for_prefix_by_preference();
    prefixes.is_finite()
}

/// A matcher that looks for literals that every match holds, and leaves the rest to the look at one line: nothing where
/// there are none, or where matches begin with some, which the engine itself looks for at least as fast.
///
/// `grep-regex` extracts such literals, but not where it takes the engine for fast enough, and wrongly so for patterns
/// like `[A-Z]{3,}_[0-9]{4}` (three times slower without). It always does for a pattern with a Unicode word boundary: so
/// one is added that asks for nothing. Where no literals are found after all, that boundary would be costly: so a text
/// that matches is made up, to see how the matcher finds it.
fn by_inner_literals(spellings: &Spellings) -> Option<RegexMatcher> {
    let hir = parse(&spellings.loose)?;
    if has_prefix(&hir) {
        return None;
    }
    let mut sample = Vec::new();
    make_up(&hir, &mut sample)?;
    let matcher = matcher(&format!(r"(?:{})(?:\b|)", spellings.loose)).ok()?;
    let found = matcher.find_candidate_line(&sample).expect("the error of this matcher is never made");
    matches!(found, Some(LineMatchKind::Candidate(_))).then_some(matcher)
}

/// Writes a text that matches but for its boundaries; nothing where it would be long or there is none.
fn make_up(hir: &Hir, out: &mut Vec<u8>) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(Class::Unicode(class)) => {
            let mut ends = class.iter().flat_map(|range| [range.start(), range.end()]);
            out.extend_from_slice(ends.find(|&end| end != '\n')?.encode_utf8(&mut [0; 4]).as_bytes());
        }
        HirKind::Class(Class::Bytes(class)) => {
            out.push(class.iter().flat_map(|range| [range.start(), range.end()]).find(|&end| end != b'\n')?);
        }
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min {
                make_up(&repetition.sub, out)?;
            }
        }
        HirKind::Capture(capture) => make_up(&capture.sub, out)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| make_up(part, out))?,
        HirKind::Alternation(parts) => make_up(parts.first()?, out)?,
    }
    (out.len() <= SAMPLE_BYTES_MAX).then_some(())
}

/// What the compiler refuses of a translated pattern has no place in the caller's.
fn explain(error: &str) -> Fault {
    if error.contains("not allowed in a regex") {
        return refuse(0, "a pattern cannot match across lines, so it cannot ask for a newline");
    }
    if error.contains("size limit") {
        return refuse(0, "the pattern compiles to more than 10 MiB; use smaller repetitions or classes");
    }
    refuse(0, format!("the pattern does not compile: {error}"))
}

fn refuse(position: usize, message: impl Into<String>) -> Fault {
    Fault::InvalidPattern { field: "pattern".to_owned(), position, message: message.into() }
}

fn hint(position: usize, message: &str) -> Fault {
    refuse(
        position,
        format!(
            "{message} (byte {position}); to look for this text as it stands, use a literal pattern instead of a regex"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(text: &str, syntax: Syntax) -> Result<Pattern, Fault> {
        Pattern::new(text, syntax, Case::Sensitive, &Limits::default())
    }

    /// The position and what the message holds.
    #[track_caller]
    fn check(text: &str, syntax: Syntax, position: usize, message: &str) {
        match new(text, syntax) {
            Err(Fault::InvalidPattern { field, position: seen, message: said }) => {
                assert_eq!((field.as_str(), seen), ("pattern", position), "{text}: {said}");
                assert!(said.contains(message), "{text}: {said}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn refuses_what_cannot_be_meant() {
        check("", Syntax::Literal, 0, "empty");
        check("", Syntax::Regex, 0, "empty");
        check("a\nb", Syntax::Literal, 1, "across lines");
        check("a\nb", Syntax::Regex, 1, "across lines");
        check(r"a\n", Syntax::Regex, 1, "across lines");
        check(r"a[\n]", Syntax::Regex, 1, "across lines");
        check(r"\x0a", Syntax::Regex, 0, "across lines");
        check(r"[^\x00-\x09\x0b-\x{10ffff}]", Syntax::Regex, 0, "across lines");
        check(&"x".repeat(4_097), Syntax::Literal, 4_096, "4096");
        check("f(", Syntax::Regex, 1, "literal");
        check("a.b)", Syntax::Regex, 3, "literal");
        check(r"(?:[\pL\pM\pN\pS]{100}){10}", Syntax::Regex, 0, "10 MiB");
        check(&format!("{}a{}", "(".repeat(1_001), ")".repeat(1_001)), Syntax::Regex, 1_000, "1000");
        assert!(new("f(", Syntax::Literal).is_ok());
        assert!(new(r"[^\n]+", Syntax::Regex).is_ok());
        assert!(new(&"x".repeat(4_096), Syntax::Literal).is_ok());
    }

    #[test]
    fn case_is_folded_as_unicode_folds_it() {
        let find = |text: &str, syntax, line: &str| {
            let pattern = Pattern::new(text, syntax, Case::Insensitive, &Limits::default()).unwrap();
            pattern.find_in_line(line.as_bytes())
        };
        assert_eq!(find("todo", Syntax::Literal, "a TODO"), Some((2, 6)));
        assert_eq!(find("\u{e9}(", Syntax::Literal, "\u{c9}("), Some((0, 3)));
        assert_eq!(find("k", Syntax::Literal, "\u{212a}"), Some((0, 3)));
        assert_eq!(find("t.d[o]", Syntax::Regex, "TODO"), Some((0, 4)));
        assert_eq!(find("(?-i)todo", Syntax::Regex, "TODO"), None);
    }

    #[test]
    fn the_deepest_pattern_compiles_on_a_small_stack() {
        let nested = |open: &str, close: &str, count: usize| format!("{}b{}", open.repeat(count), close.repeat(count));
        let patterns =
            [nested("(", ")", 1_000), nested("(a|", ")", 1_000), nested("(", "c)*", 680), nested("(x", "|y)", 800)];
        let small = thread::Builder::new().stack_size(256 << 10);
        let thread = small.spawn(move || patterns.iter().filter(|text| new(text, Syntax::Regex).is_ok()).count());
        assert_eq!(thread.unwrap().join().unwrap(), 4);
    }

    #[test]
    fn looks_for_inner_literals_where_the_engine_has_no_prefix() {
        let is_by_literals = |text: &str| {
            let spell = |haystack| re2::translate(text, false, haystack).unwrap().text;
            let spellings = Spellings {
                line: spell(Haystack::Line),
                lines: spell(Haystack::Buffer),
                loose: spell(Haystack::Loose),
            };
            by_inner_literals(&spellings).is_some()
        };
        assert!(is_by_literals(r"[A-Z]{3,}_[0-9]{4}\b"));
        assert!(is_by_literals(r"\b\w+Error\b"));
        assert!(!is_by_literals(r"def \w+_test"));
        assert!(!is_by_literals(r"\b[a-z]+\b"));
        assert!(!is_by_literals(r"x*"));
    }

    #[test]
    fn a_window_that_is_found_everywhere_is_given_up_until_it_is_rare() {
        let is_worth = |text: &[u8]| {
            let pattern = new("[A-Z]_[0-9]+x", Syntax::Regex).unwrap();
            assert!(matches!(&pattern.kind, Kind::Regex { window: Some(_), .. }));
            let mut searcher = Searcher::new(&pattern);
            let mut at = 0;
            while let Some(place) = searcher.candidate(&text[at..]) {
                at += place + 1;
            }
            searcher.worth.is_there()
        };
        assert!(is_worth(&[&b"let one = two;\n".repeat(200), &b"A_0\n"[..]].concat().repeat(10)));
        let dense = b"A_0\n".repeat(1_000);
        assert!(!is_worth(&dense));
        // And looked for again where it turns out to be rare after all.
        assert!(is_worth(&[&dense[..], &b"let one = two;\n".repeat(1_000)].concat()));
    }
}
