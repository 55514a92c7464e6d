//! Where a pattern may match, by bytes that stand side by side in every match: three of them are looked for in a block of
//! the text at once.
//!
//! A pattern such as `[A-Z]{3,}_[0-9]{4}` has no literal that is worth looking for, and an engine goes over every byte of the
//! text, or stops at every `_`. But each match holds three capitals, a `_` and four digits in a row, and where the rarest
//! three of those can stand is told by comparing bytes with bounds, without a branch, many at a time. What is found here is
//! a candidate; the expression over its line has the last word.
//!
//! What a match holds comes from the parsed expression, conservatively: what is not understood, or may be of more than one
//! length, ends a run.

use memchr::memchr_iter;
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// Places of a run that are looked at in every block.
const PROBE_COUNT: usize = 3;
/// Starts of a run that are looked at together.
const BLOCK_BYTES: usize = 64;
/// Longest run that is looked for.
const RUN_LENGTH_MAX: usize = 16;
/// Parts and bytes of an expression that are looked at; what a larger one holds behind them is not known.
const PART_COUNT_MAX: usize = 4_096;
/// Groups within each other that are looked into.
const DEPTH_MAX: usize = 200;
/// Bytes in a row, each of which is only one, that an engine looks for faster than is done here.
const LITERAL_BYTES: usize = 3;
/// The bit of the case of an ASCII letter.
const CASE_BIT: u8 = 0x20;
/// How often probes may meet by chance, in places of a billion, so that looking for them is worth while.
const CHANCE_MAX: u64 = 2_000_000;
/// How much likelier a byte is where another of the same kind stands nearby.
const SAME_KIND_FACTOR: u64 = 8;

/// Which bytes may stand at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    /// A line feed stands in no line.
    fn add(&mut self, byte: u8) {
        if byte != b'\n' {
            self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
    }

    fn holds(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }

    fn join(self, other: Self) -> Self {
        Self(std::array::from_fn(|part| self.0[part] | other.0[part]))
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|&byte| self.holds(byte))
    }

    fn is_one(&self) -> bool {
        self.0.iter().map(|part| part.count_ones()).sum::<u32>() == 1
    }

    /// Of a class whose members are one byte each.
    fn of(class: &Class) -> Option<Self> {
        let mut set = Self::default();
        match class {
            Class::Unicode(class) => {
                for range in class.iter() {
                    let (start, end) = (u8::try_from(range.start()).ok()?, u8::try_from(range.end()).ok()?);
                    if end > 0x7f {
                        return None;
                    }
                    (start..=end).for_each(|byte| set.add(byte));
                }
            }
            Class::Bytes(class) => {
                class.iter().flat_map(|range| range.start()..=range.end()).for_each(|byte| set.add(byte));
            }
        }
        Some(set)
    }
}

/// A byte within bounds, at a place of the run: every byte of the set there, and perhaps more.
#[derive(Debug, Clone, Copy)]
struct Probe {
    place: usize,
    /// Bits that are set before the byte is compared.
    fold: u8,
    low: u8,
    /// How far the highest is above the lowest.
    span: u8,
}

impl Probe {
    /// The closest bounds around the bytes of a set, with their cases apart or as one, and how many of a thousand bytes
    /// they take.
    fn new(place: usize, set: &ByteSet) -> (Self, u64) {
        let around = |fold: u8| {
            let low = set.bytes().map(|byte| byte | fold).min().unwrap_or(0);
            let high = set.bytes().map(|byte| byte | fold).max().unwrap_or(0);
            let probe = Self { place, fold, low, span: high - low };
            (probe, (0..=u8::MAX).filter(|&byte| probe.takes(byte)).map(share).sum::<u64>().min(1_000))
        };
        let (apart, as_one) = (around(0), around(CASE_BIT));
        if as_one.1 < apart.1 { as_one } else { apart }
    }

    fn takes(&self, byte: u8) -> bool {
        (byte | self.fold).wrapping_sub(self.low) <= self.span
    }
}

/// About how many of a thousand bytes of source code or prose are this one.
fn share(byte: u8) -> u64 {
    match byte {
        b' ' => 200,
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b'l' => 40,
        b'a'..=b'z' | b'_' => 20,
        b'(' | b')' | b',' | b'.' | b':' | b';' | b'"' | b'/' | b'\t' => 12,
        b'0'..=b'9' => 4,
        b'A'..=b'Z' => 2,
        b'!'..=b'~' => 5,
        _ => 1,
    }
}

/// Bytes that stand side by side in every match.
#[derive(Debug, Clone)]
pub(super) struct Window {
    run: Vec<ByteSet>,
    probes: [Probe; PROBE_COUNT],
}

impl Window {
    /// Of an expression over one line; nothing where no run of it is rare enough to be looked for, or where it has a
    /// literal that an engine looks for faster.
    pub(super) fn new(hir: &Hir) -> Option<Self> {
        let mut runs = Runs::default();
        runs.gather(hir, DEPTH_MAX);
        runs.close();
        let has_literal = |run: &Vec<ByteSet>| run.windows(LITERAL_BYTES).any(|part| part.iter().all(ByteSet::is_one));
        if runs.closed.iter().any(has_literal) {
            return None;
        }
        let windows = runs.closed.into_iter().filter_map(Self::of);
        let (window, chance) = windows.min_by_key(|&(_, chance)| chance)?;
        (chance <= CHANCE_MAX).then_some(window)
    }

    /// With its rarest places, and in how many places of a billion they meet by chance.
    fn of(run: Vec<ByteSet>) -> Option<(Self, u64)> {
        if run.len() < 2 {
            return None;
        }
        let probes: Vec<(Probe, u64)> = run.iter().enumerate().map(|(place, set)| Probe::new(place, set)).collect();
        let mut chosen: Vec<Probe> = Vec::with_capacity(PROBE_COUNT);
        let mut chance = 1;
        while chosen.len() < PROBE_COUNT.min(run.len()) {
            let left = probes.iter().filter(|(probe, _)| chosen.iter().all(|other| other.place != probe.place));
            let ranked = left.map(|&(probe, share)| {
                let is_like = chosen.iter().any(|other| run[other.place] == run[probe.place]);
                ((share * if is_like { SAME_KIND_FACTOR } else { 1 }).min(1_000), probe)
            });
            let (share, probe) = ranked.min_by_key(|&(share, _)| share)?;
            chosen.push(probe);
            chance *= share;
        }
        if run.len() < PROBE_COUNT {
            chance *= 1_000;
        }
        let probes = std::array::from_fn(|number| chosen[number.min(chosen.len() - 1)]);
        Some((Self { run, probes }, chance))
    }

    /// The first place at which the run stands, and how many places were looked at one by one for that.
    pub(super) fn find(&self, bytes: &[u8]) -> (Option<usize>, usize) {
        let mut looked = 0;
        let Some(start_count) = (bytes.len() + 1).checked_sub(self.run.len()) else { return (None, looked) };
        let Some(last) = start_count.checked_sub(BLOCK_BYTES) else {
            return ((0..start_count).find(|&start| self.is_at(bytes, start)), looked);
        };
        let mut block = 0;
        loop {
            block += self.blocks_to_skip(&bytes[block..], start_count - block) * BLOCK_BYTES;
            // The last one may begin within the one before.
            block = block.min(last);
            let marks = self.marks(&bytes[block..]);
            for place in memchr_iter(1, &marks) {
                looked += 1;
                if self.is_at(bytes, block + place) {
                    return (Some(block + place), looked);
                }
            }
            if block == last {
                return (None, looked);
            }
            block += BLOCK_BYTES;
        }
    }

    fn is_at(&self, bytes: &[u8], start: usize) -> bool {
        self.run.iter().zip(&bytes[start..]).all(|(set, &byte)| set.holds(byte))
    }

    /// How many whole blocks of so many starts are before one in which all probes take their bytes for some start.
    fn blocks_to_skip(&self, bytes: &[u8], start_count: usize) -> usize {
        let [first, second, third] = self.probes;
        let [a, b, c] =
            self.probes.map(|probe| bytes[probe.place..probe.place + start_count].as_chunks::<BLOCK_BYTES>().0);
        let mut blocks = a.iter().zip(b).zip(c);
        let found = blocks.position(|((a, b), c)| {
            (0..BLOCK_BYTES)
                .fold(false, |any, at| any | (first.takes(a[at]) & second.takes(b[at]) & third.takes(c[at])))
        });
        found.unwrap_or(a.len())
    }

    /// 1 for each start of the first block for which all probes take their bytes.
    fn marks(&self, bytes: &[u8]) -> [u8; BLOCK_BYTES] {
        let [first, second, third] = self.probes;
        let [a, b, c] = self.probes.map(|probe| &bytes[probe.place..probe.place + BLOCK_BYTES]);
        std::array::from_fn(|at| u8::from(first.takes(a[at]) & second.takes(b[at]) & third.takes(c[at])))
    }
}

/// The runs of an expression.
#[derive(Default)]
struct Runs {
    /// What every match holds before the place that is looked at, side by side.
    run: Vec<ByteSet>,
    closed: Vec<Vec<ByteSet>>,
    /// Whether bytes that are not known may stand somewhere, or a run was cut.
    is_broken: bool,
    part_count: usize,
}

impl Runs {
    /// What comes next does not follow what was before.
    fn close(&mut self) {
        self.is_broken = true;
        if !self.run.is_empty() {
            self.closed.push(std::mem::take(&mut self.run));
        }
    }

    fn push(&mut self, set: ByteSet) {
        self.part_count += 1;
        self.run.push(set);
        if self.run.len() >= RUN_LENGTH_MAX {
            self.close();
        }
    }

    fn is_over(&self) -> bool {
        self.part_count > PART_COUNT_MAX
    }

    fn gather(&mut self, hir: &Hir, depth: usize) {
        self.part_count += 1;
        if depth == 0 || self.is_over() {
            return self.close();
        }
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => {
                for &byte in &literal.0 {
                    if self.is_over() {
                        return self.close();
                    }
                    let mut set = ByteSet::default();
                    set.add(byte);
                    self.push(set);
                }
            }
            HirKind::Class(class) => match ByteSet::of(class) {
                Some(set) => self.push(set),
                None => self.close(),
            },
            HirKind::Capture(capture) => self.gather(&capture.sub, depth - 1),
            HirKind::Concat(subs) => subs.iter().for_each(|sub| self.gather(sub, depth - 1)),
            HirKind::Repetition(repetition) => self.repeat(repetition, depth - 1),
            HirKind::Alternation(subs) => match self.either(subs, depth - 1) {
                Some(sets) => sets.into_iter().for_each(|set| self.push(set)),
                None => self.close(),
            },
        }
    }

    /// The first repetitions follow what stands before, the last ones precede what comes behind.
    fn repeat(&mut self, repetition: &Repetition, depth: usize) {
        let count = (repetition.min as usize).min(RUN_LENGTH_MAX);
        (0..count).for_each(|_| self.gather(&repetition.sub, depth));
        if repetition.max != u32::try_from(count).ok() {
            self.close();
            (0..count).for_each(|_| self.gather(&repetition.sub, depth));
        }
    }

    /// What may stand at each place of alternatives that are all of one length.
    fn either(&mut self, subs: &[Hir], depth: usize) -> Option<Vec<ByteSet>> {
        let mut joined: Option<Vec<ByteSet>> = None;
        for sub in subs {
            let mut one = Self { part_count: self.part_count, ..Self::default() };
            one.gather(sub, depth);
            self.part_count = one.part_count;
            if one.is_broken {
                return None;
            }
            joined = Some(match joined {
                None => one.run,
                Some(sets) if sets.len() == one.run.len() => {
                    sets.into_iter().zip(one.run).map(|(left, right)| left.join(right)).collect()
                }
                Some(_) => return None,
            });
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::bytes::Regex;
    use regex_syntax::ParserBuilder;

    use super::*;

    fn parse(pattern: &str) -> Hir {
        ParserBuilder::new().utf8(false).nest_limit(5_000).build().parse(pattern).unwrap()
    }

    fn runs(pattern: &str) -> Vec<Vec<ByteSet>> {
        let mut runs = Runs::default();
        runs.gather(&parse(pattern), DEPTH_MAX);
        runs.close();
        runs.closed
    }

    /// Whether a run stands somewhere in a text.
    fn first_of(run: &[ByteSet], text: &[u8]) -> Option<usize> {
        text.windows(run.len()).position(|part| run.iter().zip(part).all(|(set, &byte)| set.holds(byte)))
    }

    /// A run as classes of the first and last byte of each place, or one byte.
    fn show(run: &[ByteSet]) -> String {
        let place = |set: &ByteSet| {
            let (first, last) = (set.bytes().next().unwrap_or(b'!'), set.bytes().last().unwrap_or(b'!'));
            let (first, last) = (first.escape_ascii(), last.escape_ascii());
            if set.is_one() { first.to_string() } else { format!("[{first}-{last}]") }
        };
        run.iter().map(place).collect()
    }

    #[track_caller]
    fn check_runs(pattern: &str, expect: &[&str]) {
        let seen: Vec<String> = runs(pattern).iter().map(|run| show(run)).collect();
        assert_eq!(seen, expect, "{pattern}");
    }

    #[test]
    fn knows_what_stands_side_by_side() {
        check_runs(r"[A-Z]{3,}_[0-9]{2}(?-u:\b)", &["[A-Z][A-Z][A-Z]", "[A-Z][A-Z][A-Z]_[0-9][0-9]"]);
        check_runs("ab?c", &["a", "c"]);
        check_runs("ab{2}c", &["abbc"]);
        check_runs("ab{2,3}c", &["abb", "bbc"]);
        check_runs("a(?:bc)+d", &["abc", "bcd"]);
        check_runs("a(?:bx?){2}c", &["ab", "b", "c"]);
        check_runs("a(?:bc|de)f", &["a[b-d][c-e]f"]);
        check_runs("a(?:b|cd)e", &["a", "e"]);
        check_runs("a(?:b|c?)e", &["a", "e"]);
        check_runs("a.b", &["a", "b"]);
        check_runs("a(?-u:[^b])c", &[r"a[\x00-\xff]c"]);
        check_runs("a\u{e9}", &[r"a\xc3\xa9"]);
        check_runs("a[b\u{e9}]c", &["a", "c"]);
        // U+212A and U+017F, two letters' third case, are longer than one byte.
        check_runs("(?i:ack)", &["[A-a][C-c]"]);
        check_runs("(?i:asc)", &["[A-a]", "[C-c]"]);
        check_runs("a{20}", &[&"a".repeat(16), &"a".repeat(16)]);
        check_runs("x*", &[]);
        check_runs("a|bc", &[]);
        check_runs("", &[]);
    }

    #[test]
    fn is_made_where_it_is_rare_and_an_engine_has_nothing_better() {
        let is_made = |pattern: &str| Window::new(&parse(pattern)).is_some();
        assert!(is_made("[A-Z]{3,}_[0-9]{4}"));
        assert!(is_made("[A-Z]{2}[0-9]{6}"));
        assert!(is_made("(?i:[a-jl-rt-z]{3}_[0-9]{4})"));
        assert!(is_made("_[0-9]"));
        assert!(!is_made("[a-z][0-9]"));
        assert!(!is_made("[A-Z][0-9]Error"));
        assert!(!is_made("[A-Z]_[0-9].*abc"));
        assert!(!is_made("[a-z]{5}"));
        assert!(!is_made("Z"));
        assert!(!is_made("x*"));
    }

    #[test]
    fn looks_for_the_rarest_places() {
        let window = Window::new(&parse("[a-z]{2}[A-Z]{2}_[0-9]{2}")).unwrap();
        assert_eq!(window.probes.map(|probe| probe.place), [4, 5, 2]);
        let folded = Window::new(&parse("(?i:[a-c])_[0-9]")).unwrap();
        let probe = folded.probes.iter().find(|probe| probe.place == 0).unwrap();
        assert_eq!((probe.fold, probe.low, probe.span), (CASE_BIT, b'a', 2));
    }

    #[test]
    fn large_and_deep_expressions_end() {
        let letters = "abcdefghij".repeat(200);
        assert!(runs(&format!("(?:{letters}){{1000}}")).len() <= PART_COUNT_MAX / RUN_LENGTH_MAX + 1);
        assert!(runs(&format!("{}ab{}", "(?:".repeat(900), "){2,}".repeat(900))).len() <= PART_COUNT_MAX);
        let many = (0..2_000).map(|n| format!("[a-c]{n:04}")).collect::<Vec<_>>().join("|");
        check_runs(&many, &["[a-c]"]);
    }

    /// Expressions whose matches are of one length or of many, with bytes, characters, both cases and boundaries.
    fn pattern() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "a",
            "b",
            "_",
            "0",
            "\u{e9}",
            "[ab]",
            "[A-Ca]",
            "[0-9]",
            "[^a]",
            "[b\u{e9}]",
            ".",
            "(?i:b)",
            "(?i:k)",
            "(?-u:[^b])",
            r"(?-u:\b)",
            r"\A",
            r"\z",
            "",
        ]);
        leaf.prop_map(str::to_owned).prop_recursive(4, 24, 4, |inner| {
            let times = prop::sample::select(vec!["?", "*", "+", "{2}", "{2,}", "{1,3}", "{0,2}?", "+?"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..5).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
                (inner, times).prop_map(|(part, times)| format!("(?:{part}){times}")),
            ]
        })
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let part = prop::sample::select(vec![
            &b"a"[..],
            b"b",
            b"B",
            b"_",
            b"0",
            b"9",
            b"k",
            b"\xc3\xa9",
            b"\xe2\x84\xaa",
            b"\xff",
            b"A",
            b" ",
        ]);
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_match_holds_every_run(pattern in pattern(), text in text()) {
            let regex = Regex::new(&pattern).unwrap();
            for found in regex.find_iter(&text) {
                for run in runs(&pattern) {
                    prop_assert!(first_of(&run, found.as_bytes()).is_some(), "{} in {:?}", show(&run), found.as_bytes());
                }
            }
        }

        #[test]
        fn is_where_a_naive_search_finds_it(
            pattern in prop::sample::select(vec!["_0", "[ab]_[0-9]", "[A-C]{3}_[0-9]{2}", "(?i:a)_(?i:b)", "[a_]0[a_]0"]),
            text in prop::collection::vec(prop::sample::select(b"ab_0 AB9\xff".to_vec()), 0..400),
            blanks in 0_usize..200,
        ) {
            let run = runs(pattern).remove(0);
            let (window, _) = Window::of(run.clone()).unwrap();
            let text = [vec![b' '; blanks], text].concat();
            for start in 0..text.len().min(70) {
                prop_assert_eq!(window.find(&text[start..]).0, first_of(&run, &text[start..]));
            }
        }
    }
}
