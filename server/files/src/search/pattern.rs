//! Patterns: literal text, or RE2 translated to a canonical regular expression.
//!
//! A pattern is compiled twice. One expression runs over many lines at once and says where a line lies that may match:
//! every line that matches, and perhaps more. The other runs over one such line alone and has the last word, so that what
//! a line is (without CR LF, without a BOM, its first MiB) is decided in one place.

use std::thread;

use grep_matcher::{LineMatchKind, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

use super::re2::{self, Haystack, Translation};
use crate::{error::Fault, limits::Limits};

/// Bytes of a compiled expression, as RE2 bounds its own.
const PROGRAM_BYTES_MAX: usize = 10 << 20;
/// Bytes of states that an expression keeps for each thread while it runs.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// Groups within each other up to which a pattern is compiled on the caller's stack.
const SHALLOW_DEPTH_MAX: usize = 50;
/// Stack to compile the deepest pattern on; the compiler calls itself for every group.
const DEEP_STACK_BYTES: usize = 256 << 20;
/// More than the canonical spelling of the deepest pattern nests.
const NEST_MAX: u32 = 100_000;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Literal(Finder<'static>),
    Regex {
        /// Over many lines.
        lines: Box<RegexMatcher>,
        /// Over one line.
        line: Regex,
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
                    return Ok(Self(Kind::Literal(Finder::new(text).into_owned())));
                }
                let text = format!("(?i:{})", re2::spell_all(text));
                let spelt = Translation { text, depth: 0, has_word_look: false };
                compile(&spelt, &spelt)
            }
            (Syntax::Regex, case) => {
                let fold_case = case == Case::Insensitive;
                let translate = |haystack| {
                    re2::translate(text, fold_case, haystack)
                        .map_err(|refusal| hint(refusal.position, &refusal.message))
                };
                let (lines, line) = (translate(Haystack::Buffer)?, translate(Haystack::Line)?);
                if lines.depth <= SHALLOW_DEPTH_MAX {
                    return compile(&lines, &line);
                }
                thread::scope(|scope| {
                    let builder = thread::Builder::new().stack_size(DEEP_STACK_BYTES);
                    let thread = builder.spawn_scoped(scope, || compile(&lines, &line));
                    let thread = thread.map_err(|_| Fault::Overloaded { what: "threads" })?;
                    thread.join().unwrap_or(Err(Fault::Internal("the compiler of a pattern failed")))
                })
            }
        }
    }

    /// A place in the first line of `lines` that may match; it lies in that line or right behind it. Only whole lines are
    /// given.
    pub(super) fn candidate(&self, lines: &[u8]) -> Option<usize> {
        match &self.0 {
            Kind::Literal(finder) => finder.find(lines),
            Kind::Regex { lines: matcher, .. } => {
                let found = matcher.find_candidate_line(lines).expect("the error of this matcher is never made");
                found.map(|found| match found {
                    LineMatchKind::Confirmed(place) | LineMatchKind::Candidate(place) => place,
                })
            }
        }
    }

    /// The first match in one line, given without its end: where it begins and just past where it ends, in bytes.
    pub fn find_in_line(&self, line: &[u8]) -> Option<(usize, usize)> {
        match &self.0 {
            Kind::Literal(finder) => finder.find(line).map(|start| (start, start + finder.needle().len())),
            Kind::Regex { line: regex, .. } => regex.find(line).map(|found| (found.start(), found.end())),
        }
    }
}

fn compile(lines: &Translation, line: &Translation) -> Result<Pattern, Fault> {
    let lines = RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .nest_limit(NEST_MAX)
        .build(&lines.text)
        .map_err(|error| explain(&error.to_string()))?;
    let line = RegexBuilder::new(&line.text)
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .nest_limit(NEST_MAX)
        .build()
        .map_err(|error| explain(&error.to_string()))?;
    Ok(Pattern(Kind::Regex { lines: Box::new(lines), line }))
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
