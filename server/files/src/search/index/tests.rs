//! With an index and without, a search answers the same; and an index that was damaged is none.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::{
    super::{
        Aids, Match, SearchEnd, SearchPlan, Unhindered,
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
        run, run_with,
    },
    *,
};
use crate::{
    budget::{Budget, Spent, Unbounded},
    error::Fault,
    limits::Limits,
    list::Stop,
    memory::{Lending, MemoryTree, Trouble},
    meta::FileType,
};

fn globs(include: &[&str], exclude: &[&str]) -> GlobSet {
    let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
    GlobSet::new(&owned(include), &owned(exclude), &Limits::default()).unwrap()
}

fn build_plan(root: &str, closed: GlobSet) -> BuildPlan {
    let root = TreePath::parse(root.as_bytes()).unwrap();
    BuildPlan { root, closed, file_bytes_max: 4_096, machine_root: true, index_bytes_max: 64 << 20 }
}

fn build(tree: &MemoryTree, plan: &BuildPlan) -> Result<Index, NotBuilt> {
    Index::build(tree, plan, &Limits::default(), &Unbounded, &mut || {})
}

fn plan(path: &str, pattern: Pattern, globs: GlobSet) -> SearchPlan {
    SearchPlan {
        path: TreePath::parse(path.as_bytes()).unwrap(),
        pattern,
        globs,
        context_line_count: 1,
        match_count_max: 5_000,
        file_bytes_max: 1 << 20,
        machine_root: true,
    }
}

fn pattern(text: &str, syntax: Syntax, case: Case) -> Option<Pattern> {
    Pattern::new(text, syntax, case, &Limits::default()).ok()
}

/// What a search answers with an index, without, and whether it took the index.
fn both(tree: &MemoryTree, plan: &SearchPlan, index: &Index) -> [(Vec<Match>, Result<SearchEnd, String>, bool); 2] {
    [None, Some(index)].map(|index| {
        let mut found = Vec::new();
        let aids = Aids { index, turns: &Unhindered };
        let mut sink = |one: Match| {
            found.push(one);
            ControlFlow::Continue(())
        };
        let searched = run_with(tree, plan, &Limits::default(), aids, &Unbounded, &mut sink);
        let by_index = searched.as_ref().is_ok_and(|searched| searched.by_index);
        (found, searched.map(|searched| searched.end).map_err(|fault| fault.to_string()), by_index)
    })
}

#[track_caller]
fn check_same(tree: &MemoryTree, plan: &SearchPlan, index: &Index) -> bool {
    let [(found, end, _), (by_index, index_end, is_taken)] = both(tree, plan, index);
    assert_eq!((by_index, index_end), (found, end), "{plan:?}");
    is_taken
}

/// Words that have `k` and `s` in all their cases, and what stands between them.
const WORDS: [&str; 16] = [
    "task",
    "Task",
    "TAS\u{212a}",
    "ta\u{17f}k",
    "mask",
    "authorization",
    "AUTHORIZATION",
    "def run_test",
    " ",
    "\n",
    "\n",
    "\r\n",
    "x",
    "\u{e9}t\u{e9}",
    "\u{c9}T\u{c9}",
    "_2024",
];

/// A tree with everything that a search counts, from a seed.
fn grown(seed: u64, file_count: u64) -> MemoryTree {
    let mut state = seed;
    let mut next = move |below: u64| {
        // Numbers of Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let names = ["a", "a.b", "b", "c-", "src", ".git", "node_modules", "proc", "sys"];
    let mut tree = MemoryTree::default().directory("/empty").file("/proc/1/status", "task").link("/l", "src");
    for n in 0..file_count {
        let depth = next(4);
        let path: String = (0..depth).map(|_| format!("/{}", names[next(9) as usize])).collect();
        let ending = ["py", "ts", "d"][next(3) as usize];
        let mut content: Vec<u8> = (0..next(120)).flat_map(|_| WORDS[next(16) as usize].as_bytes().to_vec()).collect();
        match next(20) {
            0 => content.insert(content.len() / 2, 0),
            1 => content.resize(content.len() + 5_000, b'y'),
            2 => content.resize(9_000, b'z'),
            3 => content.truncate(2),
            4 => content.splice(0..0, *b"\xef\xbb\xbf").for_each(drop),
            _ => {}
        }
        let path = format!("{path}/f{n}.{ending}");
        tree = match next(30) {
            0 => tree.special(&path, FileType::Fifo),
            1 => tree.file(&path, content).trouble(&path, Trouble::Denied),
            2 => tree.link(&path, "a"),
            _ => tree.file(&path, content),
        };
    }
    tree
}

const PATTERNS: [(&str, Syntax, Case); 24] = {
    use {Case::*, Syntax::*};
    [
        ("task", Literal, Sensitive),
        ("task", Literal, Insensitive),
        ("mask", Literal, Insensitive),
        ("authorization", Literal, Insensitive),
        ("authorization", Literal, Sensitive),
        ("nowhere_to_be_found", Literal, Sensitive),
        ("x", Literal, Sensitive),
        ("\u{e9}t\u{e9}", Literal, Sensitive),
        ("\u{e9}t\u{e9}", Literal, Insensitive),
        ("def run_test", Literal, Sensitive),
        (r"def \w+_test", Regex, Sensitive),
        (r"[A-Z]{3,}_[0-9]{4}\b", Regex, Sensitive),
        ("(?i)TASK|author", Regex, Sensitive),
        ("(task|mask)_2024", Regex, Sensitive),
        ("ta.k", Regex, Insensitive),
        ("^$", Regex, Sensitive),
        ("x*", Regex, Sensitive),
        ("task$", Regex, Sensitive),
        ("^task", Regex, Sensitive),
        (r"(ta)(sk)\b", Regex, Insensitive),
        ("(?:task){2,}", Regex, Sensitive),
        ("yyyy+", Regex, Sensitive),
        (r"\bmask x?task", Regex, Sensitive),
        ("authorizatio[nN]", Regex, Sensitive),
    ]
};

#[test]
fn an_index_changes_no_answer() {
    let tree = grown(11, 250);
    let root = build(&tree, &build_plan("/", globs(&[], &[".git", "node_modules"]))).unwrap();
    let all = build(&tree, &build_plan("/", globs(&[], &[]))).unwrap();
    let part = build(&tree, &build_plan("/src", globs(&[], &[]))).unwrap();
    let lent = grown(11, 250).lending(Lending::UpTo(usize::MAX));
    assert_eq!(build(&lent, &build_plan("/", globs(&[], &[]))).unwrap(), all);
    let sets = [
        globs(&[], &[".git", "node_modules"]),
        globs(&[], &[]),
        globs(&["*.py"], &[".git", "node_modules"]),
        globs(&["src/**/*.ts", "/a"], &["node_modules", ".git", "b/"]),
        globs(&["src"], &["*.d", "node_modules", ".git", "/sys"]),
    ];
    let mut taken = 0;
    for (text, syntax, case) in PATTERNS {
        let pattern = pattern(text, syntax, case).unwrap();
        for set in &sets {
            for path in ["/", "/src", "/l/b", "/src/a.b", "/empty", "/proc", "/sys/a", "/none"] {
                let ask = plan(path, pattern.clone(), set.clone());
                for index in [&root, &all, &part] {
                    taken += usize::from(check_same(&tree, &ask, index));
                }
                for (count_max, bytes_max) in [(1, 1 << 20), (40, 4_096), (5_000, 10)] {
                    if !matches!(path, "/" | "/src") {
                        continue;
                    }
                    let ask = SearchPlan { match_count_max: count_max, file_bytes_max: bytes_max, ..ask.clone() };
                    assert!(check_same(&tree, &ask, &all));
                }
            }
        }
    }
    assert!(taken > PATTERNS.len() * 20, "{taken}");
    assert_eq!(tree.held_count(), 0);
}

#[test]
fn an_index_is_taken_where_it_knows_all_that_is_asked_for() {
    let tree = grown(5, 600);
    let default = [".git", "node_modules"];
    let index = build(&tree, &build_plan("/", globs(&[], &default))).unwrap();
    let taken = |path: &str, set: GlobSet, index: &Index| {
        check_same(&tree, &plan(path, pattern("task", Syntax::Literal, Case::Sensitive).unwrap(), set), index)
    };
    assert!(taken("/", globs(&[], &default), &index));
    assert!(taken("/src", globs(&["*.py"], &default), &index));
    assert!(taken("/l/b", globs(&[], &default), &index));
    assert!(!taken("/", globs(&[], &[]), &index));
    assert!(!taken("/", globs(&[], &[".git"]), &index));
    assert!(!taken("/.git", globs(&[], &default), &index));
    assert!(taken("/empty", globs(&[], &[]), &index));
    let part = build(&tree, &build_plan("/src", globs(&[], &[]))).unwrap();
    assert!(!taken("/", globs(&[], &[]), &part));
    assert!(taken("/src", globs(&[], &default), &part));
    let machine = plan("/", pattern("task", Syntax::Literal, Case::Sensitive).unwrap(), globs(&[], &default));
    assert!(!both(&tree, &SearchPlan { machine_root: false, ..machine }, &index)[1].2);
}

#[test]
fn what_cannot_match_is_not_opened() {
    let line = |n: u32| format!("line {n} of a file that holds number {}\n", n * 31);
    let tree = (0..500_u32).fold(MemoryTree::default(), |tree, n| {
        let text: String = (0..40).map(|k| line(n * 40 + k)).collect();
        tree.file(format!("/d{:02}/f{n}", n % 20), text)
    });
    let index = build(&tree, &build_plan("/", globs(&[], &[]))).unwrap();
    assert_eq!(index.file_count(), 500);
    assert!(index.memory_bytes() < index.text_bytes() / 100 * 15, "{} {}", index.memory_bytes(), index.text_bytes());
    assert!(index.encode().len() as u64 <= index.memory_bytes() + 4_096);
    let opened = |text: &str, case: Case| {
        let before = tree.open_count();
        let ask = plan("/", pattern(text, Syntax::Literal, case).unwrap(), globs(&[], &[]));
        let ask = SearchPlan { match_count_max: usize::MAX, ..ask };
        let aids = Aids { index: Some(&index), turns: &Unhindered };
        let mut sink = |_: Match| ControlFlow::Continue(());
        let searched = run_with(&tree, &ask, &Limits::default(), aids, &Unbounded, &mut sink).unwrap();
        assert_eq!((searched.end.files_scanned, searched.by_index), (500, true));
        tree.open_count() - before
    };
    assert!(opened("zxqj_nowhere", Case::Sensitive) <= 2);
    assert!(opened("ZXQJ_NOWHERE", Case::Insensitive) <= 2);
    assert_eq!(opened("holds number", Case::Sensitive), 500);
}

#[test]
fn a_tree_that_cannot_be_known_has_no_index() {
    let small = || build_plan("/", globs(&[], &[]));
    let denied = MemoryTree::default().file("/a/b", "task").trouble("/a", Trouble::Denied);
    assert!(matches!(build(&denied, &small()), Err(NotBuilt::Directory(_))));
    let looped = MemoryTree::default().file("/a/b/f", "hit").alias("/a/b/c", "/a");
    assert!(matches!(build(&looped, &small()), Err(NotBuilt::Directory(_))));
    let moved = MemoryTree::default().file("/a", "hit").stale_after(0);
    assert!(matches!(build(&moved, &small()), Err(NotBuilt::Ended)));
    let many = (0..200).fold(MemoryTree::default(), |tree, n| tree.file(format!("/{n}"), "hit"));
    assert!(matches!(build(&many, &BuildPlan { index_bytes_max: 2_000, ..small() }), Err(NotBuilt::TooLarge)));
    assert!(build(&many, &small()).is_ok());

    struct Over;
    impl Budget for Over {
        fn spent(&self) -> Option<Spent> {
            Some(Spent::Gone)
        }
    }
    let ended = Index::build(&many, &small(), &Limits::default(), &Over, &mut || {});
    assert!(matches!(ended, Err(NotBuilt::Ended)));
}

#[test]
fn time_that_is_up_ends_a_search_by_an_index() {
    let tree = grown(3, 300);
    let index = build(&tree, &build_plan("/", globs(&[], &[]))).unwrap();
    struct Over(Spent);
    impl Budget for Over {
        fn spent(&self) -> Option<Spent> {
            Some(self.0)
        }
    }
    let ask = plan("/", pattern("task", Syntax::Literal, Case::Sensitive).unwrap(), globs(&[], &[]));
    let aids = Aids { index: Some(&index), turns: &Unhindered };
    let with = |spent| {
        run_with(&tree, &ask, &Limits::default(), aids, &Over(spent), &mut |_: Match| ControlFlow::Continue(()))
    };
    assert_eq!(with(Spent::Time).unwrap().end.stop, Some(Stop::Budget));
    assert!(matches!(with(Spent::Gone), Err(Fault::Gone)));
}

#[test]
fn an_index_comes_back_from_its_bytes_and_a_damaged_one_does_not() {
    let index = build(&grown(9, 60), &build_plan("/", globs(&[], &[".git"]))).unwrap();
    let bytes = index.encode();
    assert_eq!(Index::decode(&bytes).as_ref(), Some(&index));
    for cut in 0..bytes.len() {
        assert_eq!(Index::decode(&bytes[..cut]), None);
    }
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        assert_eq!(Index::decode(&damaged), None, "{place}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Bytes whose checksum holds, as whoever can write the file could make them.
    #[test]
    fn a_forged_index_is_refused_or_harmless(changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6)) {
        let tree = grown(9, 40);
        let mut bytes = build(&tree, &build_plan("/", globs(&[], &[]))).unwrap().encode();
        bytes.truncate(bytes.len() - 4);
        for (place, byte) in changes {
            let length = bytes.len();
            bytes[usize::from(place) % length] = byte;
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        if let Some(index) = Index::decode(&bytes) {
            let ask = plan("/", pattern("task", Syntax::Literal, Case::Sensitive).unwrap(), globs(&["*.py"], &["b"]));
            let aids = Aids { index: Some(&index), turns: &Unhindered };
            let mut sink = |_: Match| ControlFlow::Continue(());
            // Its answer may be anything; that it comes is what counts.
            drop(run_with(&tree, &ask, &Limits::default(), aids, &Unbounded, &mut sink));
        }
    }

    #[test]
    fn a_pattern_that_matches_is_never_ruled_out(
        text in "(\\PC|[tTaAsSkK\u{212a}\u{17f}_ ]{1,6}|task|\\.|\\*|\\+|\\?|\\(|\\)|\\[|\\]|\\||\\{2\\}|\\\\w|\\^|\\$|\\(\\?i\\)){1,8}",
        lines in proptest::collection::vec("([tTaAsSkK\u{212a}\u{17f}_ ]{0,9}|\\PC{0,6}|task){0,4}", 1..5),
        is_regex in any::<bool>(),
        any_case in any::<bool>(),
    ) {
        let syntax = if is_regex { Syntax::Regex } else { Syntax::Literal };
        let case = if any_case { Case::Insensitive } else { Case::Sensitive };
        if let Some(pattern) = pattern(&text, syntax, case) {
            for line in &lines {
                let mut words = Vec::new();
                filter::Maker::new().make(line.as_bytes(), &mut words);
                if pattern.find_in_line(line.as_bytes()).is_some() {
                    prop_assert!(pattern.query().may_match(&words), "{:?} {:?}", text, line);
                    prop_assert!(line.len() >= 3 || pattern.query().may_be_short());
                }
            }
        }
    }

    #[test]
    fn generated_patterns_answer_the_same(
        seed in any::<u64>(),
        text in "([tTaAsSkK\u{212a}\u{17f}]{1,4}|task|mask|x|_|\\.|\\?|\\(ta\\|ma\\)|\\[sk\\]|\\+| ){1,5}",
        is_regex in any::<bool>(),
        any_case in any::<bool>(),
        count_max in 1_usize..60,
        include in proptest::option::of(proptest::sample::select(vec!["*.py", "src", "a/**", "**/b/*.ts"])),
        exclude in proptest::sample::select(vec![".git", "node_modules", "*.d", "src/"]),
    ) {
        let tree = grown(seed, 40);
        let index = build(&tree, &build_plan("/", globs(&[], &[]))).unwrap();
        let syntax = if is_regex { Syntax::Regex } else { Syntax::Literal };
        let case = if any_case { Case::Insensitive } else { Case::Sensitive };
        if let Some(pattern) = pattern(&text, syntax, case) {
            let include: Vec<&str> = include.into_iter().collect();
            let ask = plan("/", pattern, globs(&include, &[exclude]));
            let ask = SearchPlan { match_count_max: count_max, ..ask };
            let [without, with] = both(&tree, &ask, &index);
            prop_assert_eq!((&with.0, &with.1), (&without.0, &without.1));
            prop_assert!(with.2);
            let alone = run(&tree, &ask, &Limits::default(), &Unbounded, &mut |_: Match| ControlFlow::Continue(()));
            prop_assert_eq!(alone.map_err(|fault| fault.to_string()), without.1);
        }
    }
}
