//! The whole engine over trees in memory: the corner semantics as a table, and a naive grep as a model.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicUsize, Ordering},
};

use proptest::prelude::*;

use super::{
    globs::GlobSet,
    pattern::{Case, Pattern, Syntax},
    *,
};
use crate::{
    budget::{Spent, Unbounded},
    memory::{Lending, MemoryTree, Trouble},
};

fn plan(pattern: &str, syntax: Syntax) -> SearchPlan {
    let limits = Limits::default();
    SearchPlan {
        path: TreePath::root(),
        pattern: Pattern::new(pattern, syntax, Case::Sensitive, &limits).unwrap(),
        globs: globs(&[], &[]),
        context_line_count: 0,
        match_count_max: 5_000,
        file_bytes_max: 1 << 20,
        machine_root: false,
    }
}

fn globs(include: &[&str], exclude: &[&str]) -> GlobSet {
    let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
    GlobSet::new(&owned(include), &owned(exclude), &Limits::default()).unwrap()
}

fn at(path: &str, plan: SearchPlan) -> SearchPlan {
    SearchPlan { path: TreePath::parse(path.as_bytes()).unwrap(), ..plan }
}

fn search_with(tree: &MemoryTree, plan: &SearchPlan, limits: &Limits) -> Result<(Vec<Match>, SearchEnd), Fault> {
    let mut found = Vec::new();
    let end = run(tree, plan, limits, &Unbounded, &mut |one: Match| {
        found.push(one);
        ControlFlow::Continue(())
    })?;
    Ok((found, end))
}

fn search(tree: &MemoryTree, plan: &SearchPlan) -> (Vec<Match>, SearchEnd) {
    search_with(tree, plan, &Limits::default()).unwrap()
}

/// `path:line:column-end:text` of every match.
fn shown(found: &[Match]) -> Vec<String> {
    let text =
        |line: &LineText| String::from_utf8_lossy(&line.bytes).into_owned() + if line.clipped { "…" } else { "" };
    found
        .iter()
        .map(|one| format!("{}:{}:{}-{}:{}", one.path, one.line, one.column, one.end_column, text(&one.text)))
        .collect()
}

/// What a regex finds in one file `/f`, without the path.
#[track_caller]
fn check(content: impl Into<Vec<u8>>, pattern: &str, expect: &[&str]) {
    let (found, end) = search(&MemoryTree::default().file("/f", content), &plan(pattern, Syntax::Regex));
    let seen: Vec<String> = shown(&found).iter().map(|line| line.replacen("/f:", "", 1)).collect();
    assert_eq!(seen, expect, "{pattern}");
    assert_eq!((end.stop, end.files_scanned), (None, 1));
}

#[test]
fn lines_and_columns() {
    check("a foo foo\nb\nfoo", "foo", &["1:3-6:a foo foo", "3:1-4:foo"]);
    check("\u{e9} TODO", "TODO", &["1:4-8:\u{e9} TODO"]);
    check(b"\xff\xe9 TODO".as_slice(), "TODO", &["1:4-8:\u{fffd}\u{fffd} TODO"]);
    check("foo\r\nfoo\rx\nfoo\r\r\n", "foo$", &["1:1-4:foo"]);
    check("foo\r", "foo\\r$", &["1:1-5:foo\r"]);
    check("foo\r\n", "\\r", &[]);
    check("foo\r\r\n", "\\r", &["1:4-5:foo\r"]);
    check("\u{feff}foo\nfoo\n", "^foo", &["1:4-7:\u{feff}foo", "2:1-4:foo"]);
    check("\u{feff}", "x*", &[]);
    check("", "x*", &[]);
    check("\n", "x*", &["1:1-1:"]);
    check("a\nx\n", "x*", &["1:1-1:a", "2:1-2:x"]);
    check("a\n\nb", "^$", &["2:1-1:"]);
    check("a\n\nb\n", "$", &["1:2-2:a", "2:1-1:", "3:2-2:b"]);
    check("a\nb\n", r"\s+", &[]);
    check("a\nb\n", "a[^x]+b", &[]);
    check("a\nb\n", r"a\s*b", &[]);
    check("a\nb", r"\Aa|b\z|(?m)^b$", &["1:1-2:a", "2:1-2:b"]);
    check("fo\u{e9}\nfoo bar", r"\bfo\b", &["1:1-3:fo\u{e9}"]);
    check("K \u{212a}\nk", "(?i)k$", &["1:3-6:K \u{212a}", "2:1-2:k"]);
    check("a(b\naab", r"\Qa(b", &["1:1-4:a(b"]);
}

#[test]
fn a_literal_is_taken_as_it_stands() {
    let tree = MemoryTree::default().file("/f", "a.b(\naxb(\nA.B(\nfoo\r\n");
    assert_eq!(shown(&search(&tree, &plan("a.b(", Syntax::Literal)).0), ["/f:1:1-5:a.b("]);
    assert_eq!(shown(&search(&tree, &plan("foo\r", Syntax::Literal)).0), [""; 0]);
    let fold = Pattern::new("a.b(", Syntax::Literal, Case::Insensitive, &Limits::default()).unwrap();
    let found = search(&tree, &SearchPlan { pattern: fold, ..plan("x", Syntax::Literal) }).0;
    assert_eq!(shown(&found), ["/f:1:1-5:a.b(", "/f:3:1-5:A.B("]);
}

#[test]
fn long_lines_are_clipped_and_searched_in_their_first_mebibyte() {
    let mib = 1 << 20;
    let line = |place: usize| [vec![b'.'; place], b"hit".to_vec(), vec![b'.'; 100], b"\nhit\n".to_vec()].concat();
    for (place, count) in [(10, 2), (mib - 3, 2), (mib - 2, 1), (mib + 10, 1), (70 << 10, 2), (649 << 10, 2)] {
        for pattern in ["hit", "h.t", "[gh]it"] {
            let tree = MemoryTree::default().file("/f", line(place));
            let plan = SearchPlan { file_bytes_max: 64 << 20, ..plan(pattern, Syntax::Regex) };
            let (found, _) = search(&tree, &plan);
            assert_eq!(found.len(), count, "{place} {pattern}");
            assert_eq!(found[count - 1].line, 2);
            if count == 2 {
                assert_eq!((found[0].column, found[0].text.clipped), (place as u64 + 1, place + 103 > 1_000));
            }
        }
    }
    // What a pattern takes for the line's end is where the search of it ends.
    let tree = MemoryTree::default().file("/f", [b"x\n".to_vec(), vec![b'a'; mib + 5], b"\naa\n".to_vec()].concat());
    let plan = SearchPlan { file_bytes_max: 64 << 20, ..plan("a$", Syntax::Regex) };
    let found: Vec<_> = search(&tree, &plan).0.iter().map(|one| (one.line, one.column)).collect();
    assert_eq!(found, [(2, mib as u64), (3, 2)]);
}

#[test]
fn text_is_cut_at_a_character_s_end() {
    let text = |line: &str| {
        let (found, _) = search(&MemoryTree::default().file("/f", line), &plan("^", Syntax::Regex));
        (found[0].text.bytes.len(), found[0].text.clipped)
    };
    assert_eq!(text(&"x".repeat(1_000)), (1_000, false));
    assert_eq!(text(&"x".repeat(1_001)), (1_000, true));
    assert_eq!(text(&format!("{}\u{e9}x", "x".repeat(998))), (1_000, true));
    assert_eq!(text(&format!("{}\u{e9}x", "x".repeat(999))), (999, true));
    assert_eq!(text(&format!("{}\u{1f600}x", "x".repeat(997))), (997, true));
    assert_eq!(text(&format!("{}\u{1f600}x", "x".repeat(996))), (1_000, true));
}

#[test]
fn each_match_has_its_own_context() {
    let tree = MemoryTree::default().file("/f", "1\nhit 2\nhit 3\r\n4\n5");
    let context = |count| {
        let (found, _) = search(&tree, &SearchPlan { context_line_count: count, ..plan("hit", Syntax::Literal) });
        let lines = |lines: &[LineText]| {
            lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect::<Vec<_>>().join("|")
        };
        found.iter().map(|one| format!("{}<{}", lines(&one.before), lines(&one.after))).collect::<Vec<_>>()
    };
    assert_eq!(context(0), ["<", "<"]);
    assert_eq!(context(1), ["1<hit 3", "hit 2<4"]);
    assert_eq!(context(5), ["1<hit 3|4|5", "1|hit 2<4|5"]);
}

#[test]
fn files_are_searched_in_path_order_and_others_are_counted() {
    let big = [vec![b'x'; 1 << 20], b"!".to_vec()].concat();
    let nul = |place: usize| [vec![b'x'; place], vec![0], b"\nhit".to_vec()].concat();
    let tree = MemoryTree::default()
        .file("/a/z", "hit")
        .file("/a.b", "hit")
        .file("/.git/x", "hit")
        .file("/node_modules/in/x", "hit")
        .file("/big", big)
        .file("/n1", nul(8_191))
        .file("/n2", nul(8_192))
        .file("/denied", "hit")
        .trouble("/denied", Trouble::Denied)
        .file("/closed/x", "hit")
        .trouble("/closed", Trouble::Fails)
        .special("/fifo", FileType::Fifo)
        .special("/skipped.fifo", FileType::Fifo)
        .link("/link", "a")
        .link("/link.file", "a.b")
        .file("/sys/x", "hit")
        .file("/src/sys/x", "hit");
    let ask = SearchPlan { globs: globs(&[], &[".git", "node_modules", "skipped.*"]), ..plan("hit", Syntax::Literal) };
    let paths = |plan: &SearchPlan| {
        let (found, end) = search(&tree, plan);
        (found.iter().map(|one| one.path.to_string()).collect::<Vec<_>>(), end)
    };
    let (found, end) = paths(&ask);
    assert_eq!(found, ["/a.b", "/a/z", "/n2", "/src/sys/x", "/sys/x"]);
    assert_eq!(end.files_scanned, 5);
    assert_eq!(end.skipped, Skipped { binary: 1, too_large: 1, special: 1, unreadable: 2 });
    let machine = SearchPlan { machine_root: true, ..ask.clone() };
    let (found, end) = paths(&machine);
    assert_eq!((found.len(), end.skipped.special), (4, 2));
    assert_eq!(paths(&at("/sys", machine.clone())).1.skipped.special, 1);
    assert_eq!(paths(&at("/sys/x", machine)).0, [""; 0]);
    // The globs say nothing of the path itself, nor of what it lies in.
    assert_eq!(paths(&at("/node_modules/in", ask.clone())).0, ["/node_modules/in/x"]);
    assert_eq!(paths(&at("/.git/x", ask.clone())).0, ["/.git/x"]);
    assert_eq!(paths(&at("/n1", ask.clone())).1.skipped.binary, 1);
    for (path, expect) in [("/link", "symlink /a"), ("/denied", "denied"), ("/none", "missing"), ("/fifo", "fifo")] {
        let fault = search_with(&tree, &at(path, ask.clone()), &Limits::default()).unwrap_err();
        let seen = match fault {
            Fault::Symlink { resolved, .. } => format!("symlink {}", resolved.unwrap()),
            Fault::PermissionDenied { .. } => "denied".to_owned(),
            Fault::NotFound { .. } => "missing".to_owned(),
            Fault::NotRegular { kind, .. } => kind.to_string(),
            other => other.to_string(),
        };
        assert_eq!(seen, expect);
    }
    // A link on the way is followed, and the answer names files as they were asked for.
    let through = MemoryTree::default().file("/d/e/f", "hit").link("/l", "d");
    let (found, _) = search(&through, &at("/l/e", plan("hit", Syntax::Literal)));
    assert_eq!(shown(&found), ["/l/e/f:1:1-4:hit"]);
}

#[test]
fn met_exactly_is_not_truncated() {
    let tree = MemoryTree::default().file("/a", "hit\nhit\n").file("/b", "no").file("/c", "hit").file("/d", "no");
    let stopped = |count: usize| {
        let (found, end) = search(&tree, &SearchPlan { match_count_max: count, ..plan("hit", Syntax::Literal) });
        assert_eq!(found.len(), count.min(3));
        (end.stop, end.files_scanned)
    };
    assert_eq!(stopped(1), (Some(Stop::Matches), 1));
    assert_eq!(stopped(2), (Some(Stop::Matches), 1));
    assert_eq!(stopped(3), (None, 4));
    assert_eq!(stopped(4), (None, 4));
}

#[test]
fn results_are_cut_at_whole_matches() {
    let tree = MemoryTree::default().file("/a", "hit\n".repeat(10)).file("/b", "hit\n".repeat(10));
    let (all, _) = search(&tree, &plan("hit", Syntax::Literal));
    let one = size::encoded_bytes(&all[0]);
    for (bytes, count, files) in [(one * 7 + one - 1, 7, 1), (one * 10, 10, 1), (one * 11, 11, 2)] {
        let limits = Limits { search_result_bytes_max: bytes, ..Limits::default() };
        let (found, end) = search_with(&tree, &plan("hit", Syntax::Literal), &limits).unwrap();
        assert_eq!((found.len(), end.stop, end.files_scanned), (count, Some(Stop::Bytes), files));
    }
}

#[test]
fn an_early_stop_opens_few_files() {
    let tree = (0..1_000).fold(MemoryTree::default(), |tree, n| tree.file(format!("/d{:02}/f{n}", n % 50), "hit\n"));
    let (found, end) = search(&tree, &SearchPlan { match_count_max: 20, ..plan("hit", Syntax::Literal) });
    assert_eq!((found.len(), end.files_scanned), (20, 20));
    assert!(tree.open_count() < 150, "{}", tree.open_count());
}

/// Time that is up after so many questions.
struct Questions(AtomicUsize, Spent);

impl Budget for Questions {
    fn spent(&self) -> Option<Spent> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.is_err().then_some(self.1)
    }
}

#[test]
fn time_that_is_up_leaves_a_prefix() {
    let tree = (0..300).fold(MemoryTree::default(), |tree, n| tree.file(format!("/d/{n:03}"), "hit\n"));
    let plan = plan("hit", Syntax::Literal);
    let (all, _) = search(&tree, &plan);
    for questions in [0, 1, 7, 50, 200, 500] {
        let mut found = Vec::new();
        let end =
            run(&tree, &plan, &Limits::default(), &Questions(questions.into(), Spent::Time), &mut |one: Match| {
                found.push(one);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(end.stop, Some(Stop::Budget), "{questions}");
        assert_eq!(found, all[..found.len()]);
        let gone = run(&tree, &plan, &Limits::default(), &Questions(questions.into(), Spent::Gone), &mut |_: Match| {
            ControlFlow::Continue(())
        });
        assert!(matches!(gone, Err(Fault::Gone)));
    }
    let broken = run(&tree, &plan, &Limits::default(), &Unbounded, &mut |_: Match| ControlFlow::Break(()));
    assert!(matches!(broken, Err(Fault::Gone)));
    assert_eq!(tree.held_count(), 0);
}

#[test]
fn a_disk_that_moved_on_is_told() {
    let tree = MemoryTree::default().file("/a", "hit\nhit").stale_after(1);
    let fault = search_with(&tree, &plan("hit", Syntax::Literal), &Limits::default()).unwrap_err();
    assert!(matches!(fault, Fault::OfflineChanged));
}

#[test]
fn hostile_trees_end_and_hold_little() {
    let chain = (0..600).fold(MemoryTree::default(), |tree, n| tree.file(format!("{}/z", "/d".repeat(n + 1)), "hit"));
    let limits = Limits { walk_depth_max: 500, ..Limits::default() };
    let (found, end) = search_with(&chain, &plan("hit", Syntax::Literal), &limits).unwrap();
    assert_eq!((found.len(), end.files_scanned, end.skipped.unreadable), (500, 500, 1));
    assert!(chain.held_max() < 200, "{}", chain.held_max());
    assert_eq!(chain.held_count(), 0);
    let looped = MemoryTree::default().file("/a/b/f", "hit").alias("/a/b/c", "/a");
    let (found, end) = search(&looped, &plan("hit", Syntax::Literal));
    assert_eq!((found.len(), end.skipped.unreadable), (1, 1));
    let grows = MemoryTree::default().file("/f", "hit\nhit").trouble("/f", Trouble::Grows);
    // What has grown onto it are NULs.
    assert_eq!(search(&grows, &plan("hit", Syntax::Literal)).1.skipped.binary, 1);
}

/// A small generated tree: files in nested directories, lines of few letters.
fn grown(seed: u64, file_count: u64) -> MemoryTree {
    let mut state = seed;
    let mut next = move |below: u64| {
        // Numbers of Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..file_count).fold(MemoryTree::default(), |tree, n| {
        let depth = next(4);
        let path: String = (0..depth).map(|_| format!("/{}", ["a", "a.b", "b", "c-"][next(4) as usize])).collect();
        let content: String = (0..next(60)).map(|_| ["hit ", "x", "\n", "\n", "\r\n", "y"][next(6) as usize]).collect();
        tree.file(format!("{path}/f{n}"), content)
    })
}

#[test]
fn every_run_is_the_same_whatever_the_threads() {
    let tree = grown(7, 1_000);
    for count_max in [1, 37, 5_000] {
        let plan = SearchPlan { match_count_max: count_max, context_line_count: 1, ..plan("h[ij]t", Syntax::Regex) };
        let with = |thread_count, buffer| Limits {
            search_thread_count: thread_count,
            search_buffer_bytes_max: buffer,
            ..Limits::default()
        };
        let first = search_with(&tree, &plan, &with(1, 1 << 20)).unwrap();
        assert_eq!(first.0.len(), count_max.min(first.0.len()));
        assert!(first.0.is_sorted_by_key(|one| (one.path.clone(), one.line)));
        for round in 0..50 {
            for thread_count in [2, 3, 8] {
                let buffer = if round % 2 == 0 { 8 << 20 } else { 1_000 };
                assert_eq!(search_with(&tree, &plan, &with(thread_count, buffer)).unwrap(), first);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn a_search_is_a_naive_grep(
        content in proptest::collection::vec("[ab \u{e9}K\u{212a}_1]{0,6}(\r?\n|\r)?", 0..14),
        bom in any::<bool>(),
        tail in proptest::option::of(proptest::sample::select(vec![b"\xff".to_vec(), b"a\xe2\x84".to_vec()])),
        place in 0_usize..PATTERNS.len(),
        cap in 1_usize..12,
        lend in any::<bool>(),
    ) {
        let (pattern, model) = PATTERNS[place];
        let mut bytes = if bom { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
        bytes.extend(content.concat().into_bytes());
        bytes.extend(tail.unwrap_or_default());
        let model = regex::bytes::Regex::new(model).unwrap();
        let body = bytes.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(&bytes);
        let mut expect = Vec::new();
        let mut lines: Vec<&[u8]> = body.split(|&byte| byte == b'\n').collect();
        let last = lines.pop().unwrap_or_default();
        let lines = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        for (index, line) in lines.chain((!last.is_empty()).then_some(last)).enumerate() {
            let skew = if bom && index == 0 { 3 } else { 0 };
            if let Some(found) = model.find(&line[..line.len().min(cap)]) {
                expect.push((index as u64 + 1, found.start() as u64 + skew + 1, found.end() as u64 + skew + 1));
            }
        }
        let lending = if lend { Lending::UpTo(usize::MAX) } else { Lending::Never };
        let tree = MemoryTree::default().file("/f", bytes).lending(lending);
        let limits = Limits { line_search_bytes_max: cap, ..Limits::default() };
        let (found, _) = search_with(&tree, &plan(pattern, Syntax::Regex), &limits).unwrap();
        let seen: Vec<_> = found.iter().map(|one| (one.line, one.column, one.end_column)).collect();
        prop_assert_eq!(seen, expect, "{}", pattern);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn a_search_of_a_tree_is_a_search_of_its_files_in_order(
        paths in proptest::collection::btree_set("(/[ab.!]{1,2}){1,4}", 1..30),
        include in proptest::option::of(proptest::sample::select(vec!["a*", "/a", "a/", "*.a", "b/**", "{ab,ba}"])),
        exclude in proptest::option::of(proptest::sample::select(vec!["b", "a/b", "/ab/", "*!"])),
        count_max in 1_usize..12,
        thread_count in 1_usize..4,
        hidden in any::<bool>(),
    ) {
        let sound = |path: &&String| path.split('/').all(|name| !matches!(name, "." | ".."));
        let paths: Vec<String> = paths.iter().filter(sound).cloned().collect();
        let is_file = |path: &&String| !paths.iter().any(|other| other.starts_with(&format!("{path}/")));
        let files: Vec<&String> = paths.iter().filter(is_file).collect();
        let mut tree = MemoryTree::default().directory("/d");
        for (index, path) in files.iter().enumerate() {
            tree = tree.file(path, if index % 3 == 2 { "no".to_owned() } else { format!("hit\n{index}\nhit") });
        }
        if hidden { tree = tree.kinds_hidden(); }
        let globs = globs(include.as_slice(), exclude.as_slice());
        let is_searched = |path: &str| {
            let mut included = false;
            for (cut, _) in path.match_indices('/').skip(1) {
                match globs.verdict(&path.as_bytes()[1..cut], true, included) {
                    globs::Verdict::Excluded => return false,
                    verdict => included |= verdict == globs::Verdict::Included,
                }
            }
            globs.verdict(&path.as_bytes()[1..], false, included) == globs::Verdict::Included
        };
        let (mut expect, mut scanned, mut stop) = (Vec::new(), 0, None);
        let mut scanned_at_last = 0;
        for (index, path) in files.iter().enumerate().filter(|(_, path)| is_searched(path)) {
            scanned += 1;
            if index % 3 == 2 { continue; }
            for line in [1, 3] {
                if expect.len() == count_max {
                    stop = Some(Stop::Matches);
                } else if stop.is_none() {
                    scanned_at_last = scanned;
                    expect.push(format!("{path}:{line}"));
                }
            }
        }
        let plan = SearchPlan { globs: globs.clone(), match_count_max: count_max, ..plan("hit", Syntax::Literal) };
        let limits = Limits { search_thread_count: thread_count, ..Limits::default() };
        let (found, end) = search_with(&tree, &plan, &limits).unwrap();
        prop_assert_eq!(found.iter().map(|one| format!("{}:{}", one.path, one.line)).collect::<Vec<_>>(), expect);
        prop_assert_eq!((end.stop, end.files_scanned), (stop, if stop.is_some() { scanned_at_last } else { scanned }));
    }
}

/// RE2's, and the same in the syntax of the `regex` crate over one line.
const PATTERNS: [(&str, &str); 22] = [
    ("a", "a"),
    ("ab|b", "ab|b"),
    ("^a", r"\Aa"),
    ("a$", r"a\z"),
    ("^$", r"\A\z"),
    ("$", r"\z"),
    ("x*", "x*"),
    (r"\bK\b", r"(?-u:\b)K(?-u:\b)"),
    (r"\B", r"(?-u:\B)"),
    (r"\w+", "[0-9A-Za-z_]+"),
    (r"\W$", r"[^0-9A-Za-z_]\z"),
    (r"\s+", r"[\t\n\f\r ]+"),
    (r"[^a]+$", r"[^a]+\z"),
    ("(?i)k", "(?i:k)"),
    (".$", r"[^\n]\z"),
    ("(a|b)*K", "(a|b)*K"),
    (r"\r$", r"\r\z"),
    (r"a.b", r"a[^\n]b"),
    (r"[ab]+?[^b]\b", r"[ab]+?[^b](?-u:\b)"),
    (r"_1|\pL\z", r"_1|\pL\z"),
    // Looked for by what stands side by side in each match.
    ("[A-Z]_[0-9]", "[A-Z]_[0-9]"),
    (r"[A-Z]_1\r?$", r"[A-Z]_1\r?\z"),
];
