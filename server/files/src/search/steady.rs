//! A matcher that can be stopped between any two bytes of a line.
//!
//! A pattern may compile to some hundred thousand states, and one step of it may then take milliseconds; the usual
//! matchers run to the end of what they are given. Where what they are given times the states is too much to wait for,
//! this one is used: a lazy automaton, stepped byte by byte, that asks between steps whether to go on.

use std::ops::ControlFlow;

use regex_automata::{
    Anchored, Input, MatchKind,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson,
    util::syntax,
};

/// States that may be visited between two questions whether to go on; a visit takes some nanoseconds.
const VISIT_COUNT_MAX: usize = 4_000_000;
/// Reading backwards takes more states than reading forwards, by the way UTF-8 is built.
const REVERSE_FACTOR: usize = 4;

/// A pattern for one line.
#[derive(Debug)]
pub(super) struct Steady {
    /// Finds where a match ends.
    forward: DFA,
    /// From there, where it begins.
    reverse: DFA,
}

/// What one thread keeps between two lines.
#[derive(Debug)]
pub(super) struct Caches {
    forward: Cache,
    reverse: Cache,
}

/// Why a line was not searched to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// It was told not to go on.
    Told,
    /// The automaton could not go on.
    Failed,
}

impl Steady {
    /// Compiles a pattern in the syntax of the `regex` crate.
    ///
    /// # Errors
    /// Nothing where it is over `program_bytes_max` or does not parse.
    pub(super) fn new(text: &str, program_bytes_max: usize, cache_bytes_max: usize, nest_max: u32) -> Option<Self> {
        let build = |is_reverse: bool| {
            let (kind, bytes_max) = match is_reverse {
                false => (MatchKind::LeftmostFirst, program_bytes_max),
                true => (MatchKind::All, program_bytes_max.saturating_mul(REVERSE_FACTOR)),
            };
            // Where a single state is over the cache's bound, the cache is as large as a few of them.
            let config = DFA::config().match_kind(kind).cache_capacity(cache_bytes_max).skip_cache_capacity_check(true);
            DFA::builder()
                .configure(config)
                .syntax(syntax::Config::new().utf8(false).nest_limit(nest_max))
                .thompson(thompson::Config::new().utf8(false).reverse(is_reverse).nfa_size_limit(Some(bytes_max)))
                .build(text)
                .ok()
        };
        Some(Self { forward: build(false)?, reverse: build(true)? })
    }

    /// How many states it has, forwards.
    pub(super) fn state_count(&self) -> usize {
        self.forward.get_nfa().states().len().max(1)
    }

    /// What a thread needs to use it.
    pub(super) fn caches(&self) -> Caches {
        Caches { forward: self.forward.create_cache(), reverse: self.reverse.create_cache() }
    }

    /// The first match in a line.
    pub(super) fn find(
        &self,
        caches: &mut Caches,
        line: &[u8],
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<(usize, usize)>, Halt> {
        let mut pace = Pace { step_count: (VISIT_COUNT_MAX / self.state_count()).max(1), left: 0, go_on };
        let Some(end) = self.find_end(&mut caches.forward, line, &mut pace)? else { return Ok(None) };
        let start = self.find_start(&mut caches.reverse, line, end, &mut pace)?.ok_or(Halt::Failed)?;
        Ok(Some((start, end)))
    }

    fn find_end(&self, cache: &mut Cache, line: &[u8], pace: &mut Pace<'_>) -> Result<Option<usize>, Halt> {
        let dfa = &self.forward;
        let mut found = None;
        let mut state = dfa.start_state_forward(cache, &Input::new(line)).map_err(|_| Halt::Failed)?;
        for (at, &byte) in line.iter().enumerate() {
            pace.step()?;
            state = dfa.next_state(cache, state, byte).map_err(|_| Halt::Failed)?;
            // A match is told one byte late.
            match told(state)? {
                Told::Match => found = Some(at),
                Told::Dead => return Ok(found),
                Told::Nothing => {}
            }
        }
        state = dfa.next_eoi_state(cache, state).map_err(|_| Halt::Failed)?;
        Ok(if told(state)? == Told::Match { Some(line.len()) } else { found })
    }

    fn find_start(
        &self,
        cache: &mut Cache,
        line: &[u8],
        end: usize,
        pace: &mut Pace<'_>,
    ) -> Result<Option<usize>, Halt> {
        let dfa = &self.reverse;
        let input = Input::new(line).range(..end).anchored(Anchored::Yes);
        let mut found = None;
        let mut state = dfa.start_state_reverse(cache, &input).map_err(|_| Halt::Failed)?;
        for (at, &byte) in line[..end].iter().enumerate().rev() {
            pace.step()?;
            state = dfa.next_state(cache, state, byte).map_err(|_| Halt::Failed)?;
            match told(state)? {
                Told::Match => found = Some(at + 1),
                Told::Dead => return Ok(found),
                Told::Nothing => {}
            }
        }
        state = dfa.next_eoi_state(cache, state).map_err(|_| Halt::Failed)?;
        Ok(if told(state)? == Told::Match { Some(0) } else { found })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Match,
    Dead,
    Nothing,
}

fn told(state: LazyStateID) -> Result<Told, Halt> {
    if !state.is_tagged() || state.is_start() {
        Ok(Told::Nothing)
    } else if state.is_match() {
        Ok(Told::Match)
    } else if state.is_dead() {
        Ok(Told::Dead)
    } else if state.is_quit() {
        Err(Halt::Failed)
    } else {
        Ok(Told::Nothing)
    }
}

/// How many steps are left before the next question.
struct Pace<'a> {
    step_count: usize,
    left: usize,
    go_on: &'a mut dyn FnMut() -> ControlFlow<()>,
}

impl Pace<'_> {
    fn step(&mut self) -> Result<(), Halt> {
        if self.left == 0 {
            if (self.go_on)().is_break() {
                return Err(Halt::Told);
            }
            self.left = self.step_count;
        }
        self.left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::bytes::Regex;

    use super::*;

    const PATTERNS: [&str; 12] = [
        "a",
        "ab|a",
        "a|ab",
        "a*",
        "a*?b",
        r"\Ab",
        r"b\z",
        r"\A\z",
        r"(?-u:\b)a+(?-u:\B)",
        "(?i:k)",
        r"[^\n]{2,3}\z",
        "(?:a|b)*K",
    ];

    fn steady(pattern: &str) -> Steady {
        Steady::new(pattern, 1 << 20, 1 << 20, 100).unwrap()
    }

    proptest! {
        #[test]
        fn finds_what_the_regex_crate_finds(
            line in proptest::collection::vec("[ab \u{e9}K\u{212a}]{0,3}", 0..5),
            bad in any::<bool>(),
            place in 0_usize..PATTERNS.len(),
        ) {
            let mut line = line.concat().into_bytes();
            if bad { line.insert(line.len() / 2, 0xff); }
            let expect = Regex::new(PATTERNS[place]).unwrap().find(&line).map(|found| (found.start(), found.end()));
            let steady = steady(PATTERNS[place]);
            let seen = steady.find(&mut steady.caches(), &line, &mut || ControlFlow::Continue(()));
            prop_assert_eq!(seen, Ok(expect), "{}", PATTERNS[place]);
        }
    }

    #[test]
    fn stops_between_two_bytes() {
        // Thousands of states that are all alive at every byte.
        let steady = steady("(?:a?b?c?d?){1000}z");
        assert!(steady.state_count() > 4_000);
        let mut left = 3;
        let seen = steady.find(&mut steady.caches(), &b"abcd".repeat(1 << 18), &mut || {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((seen, left), (Err(Halt::Told), 0));
    }
}
