//! What the fuzz targets assert, apart from the fuzzer: `targets/` gives them bytes that libFuzzer makes, and a test of the
//! suite gives them the seeds beside this file and changes of those, without a nightly compiler.

use std::ops::ControlFlow;

use arbitrary::{Arbitrary, Unstructured};
use dormouse_files::{
    Fault,
    budget::Unbounded,
    limits::Limits,
    memory::{Lending, MemoryTree},
    path::TreePath,
    search::{
        self, Aids, Match, SearchEnd, SearchPlan, Unhindered,
        globs::GlobSet,
        index::{BuildPlan, Index},
        pattern::{Case, Pattern, Syntax},
    },
};

/// What a target does with the fuzzer's bytes.
pub type Body = fn(&[u8]);

/// Every target's name and body.
pub const BODIES: [(&str, Body); 4] = [("globs", globs), ("index", index), ("pattern", pattern), ("search", search)];

fn decode<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}

fn syntax(is_regex: bool) -> Syntax {
    if is_regex { Syntax::Regex } else { Syntax::Literal }
}

fn case(is_any: bool) -> Case {
    if is_any { Case::Insensitive } else { Case::Sensitive }
}

/// Any globs over any path: refused, or a verdict, without a panic.
pub fn globs(bytes: &[u8]) {
    let Some(input) = decode::<(Vec<String>, Vec<String>, Vec<u8>, bool)>(bytes) else { return };
    let (include, exclude, path, is_directory) = input;
    match GlobSet::new(&include, &exclude, &Limits::default()) {
        Ok(set) => {
            set.verdict(&path, is_directory, false);
        }
        Err(Fault::InvalidPattern { field, .. } | Fault::Invalid { field, .. }) => {
            assert!(field.starts_with("include") || field.starts_with("exclude.globs"));
        }
        Err(other) => panic!("{other}"),
    }
}

/// Any pattern over any line: refused with a place inside of it, or a match inside of the line.
pub fn pattern(bytes: &[u8]) {
    let Some((is_regex, any_case, text, line)) = decode::<(bool, bool, &str, &[u8])>(bytes) else { return };
    match Pattern::new(text, syntax(is_regex), case(any_case), &Limits::default()) {
        Ok(pattern) => {
            if let Some((start, end)) = pattern.find_in_line(line) {
                assert!(start <= end && end <= line.len());
            }
        }
        Err(Fault::InvalidPattern { position, .. }) => {
            assert!(position <= text.len() && text.is_char_boundary(position));
        }
        Err(other) => panic!("{other}"),
    }
}

fn plan(pattern: Pattern, context_line_count: usize) -> SearchPlan {
    SearchPlan {
        path: TreePath::root(),
        pattern,
        globs: GlobSet::new(&[], &[], &Limits::default()).expect("no globs are sound"),
        context_line_count,
        match_count_max: usize::MAX,
        file_bytes_max: 1 << 20,
        machine_root: false,
    }
}

/// A pattern over a file's bytes: every line that matches alone, and no other, whatever the bounds.
pub fn search(bytes: &[u8]) {
    let Some(input) = decode::<(&str, bool, bool, u8, u8, u8, bool, &[u8])>(bytes) else { return };
    let (text, is_regex, any_case, context, line_bytes, search_bytes, lends, bytes) = input;
    let limits = Limits {
        line_text_bytes_max: usize::from(line_bytes).max(4),
        line_search_bytes_max: usize::from(search_bytes).max(1),
        search_thread_count: 1,
        ..Limits::default()
    };
    let Ok(pattern) = Pattern::new(text, syntax(is_regex), case(any_case), &limits) else { return };
    let plan = plan(pattern.clone(), usize::from(context % 6));
    let lending = if lends { Lending::UpTo(usize::MAX) } else { Lending::Never };
    let tree = MemoryTree::default().file("/f", bytes).lending(lending);
    let mut seen = Vec::new();
    let end = search::run(&tree, &plan, &limits, &Unbounded, &mut |one: Match| {
        assert!(one.text.bytes.len() <= limits.line_text_bytes_max);
        assert!(one.before.len() <= plan.context_line_count && one.after.len() <= plan.context_line_count);
        seen.push((one.line, one.column, one.end_column));
        ControlFlow::Continue(())
    })
    .expect("a tree in memory does not fail");
    if end.skipped.binary > 0 || end.stop.is_some() {
        return;
    }
    let skew = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut lines: Vec<&[u8]> = bytes[skew..].split(|&byte| byte == b'\n').collect();
    let last = lines.pop().filter(|last| !last.is_empty());
    let lines = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).chain(last);
    let mut expect = Vec::new();
    for (index, line) in lines.enumerate() {
        if let Some((start, end)) = pattern.find_in_line(&line[..line.len().min(limits.line_search_bytes_max)]) {
            let skew = if index == 0 { skew } else { 0 };
            expect.push((index as u64 + 1, (start + skew) as u64 + 1, (end + skew) as u64 + 1));
        }
    }
    assert_eq!(seen, expect);
}

/// Any pattern over any files: the same answer with an index and without; and any bytes as an index: none, or one that a
/// search ends with.
pub fn index(bytes: &[u8]) {
    let Some((text, is_regex, any_case, contents, forged)) = decode::<(&str, bool, bool, Vec<&[u8]>, &[u8])>(bytes)
    else {
        return;
    };
    let limits = Limits { search_thread_count: 1, ..Limits::default() };
    let Ok(pattern) = Pattern::new(text, syntax(is_regex), case(any_case), &limits) else { return };
    let plan = plan(pattern, 1);
    let files = contents.into_iter().take(8).enumerate();
    let tree = files.fold(MemoryTree::default().directory("/d"), |tree, (n, content)| {
        tree.file(format!("/d{}/f{n}", n % 3), content)
    });
    let build = BuildPlan {
        root: TreePath::root(),
        closed: plan.globs.clone(),
        file_bytes_max: 1 << 20,
        machine_root: false,
        index_bytes_max: 1 << 20,
    };
    let made = Index::build(&tree, &build, &limits, &Unbounded, &mut || {}).expect("a sound tree has an index");
    let made = Index::decode(&made.encode()).expect("it comes back from its bytes");
    let ask = |index: Option<&Index>| -> (Vec<Match>, SearchEnd) {
        let mut found = Vec::new();
        let aids = Aids { index, turns: &Unhindered };
        let searched = search::run_with(&tree, &plan, &limits, aids, &Unbounded, &mut |one: Match| {
            found.push(one);
            ControlFlow::Continue(())
        });
        let searched = searched.expect("a tree in memory does not fail");
        assert_eq!(searched.by_index, index.is_some());
        (found, searched.end)
    };
    assert_eq!(ask(Some(&made)), ask(None));
    // The checksum is no secret: what it covers may be anything.
    let forged = [forged, &crc32c::crc32c(forged).to_le_bytes()].concat();
    if let Some(index) = Index::decode(&forged) {
        let aids = Aids { index: Some(&index), turns: &Unhindered };
        let mut sink = |_: Match| ControlFlow::Continue(());
        drop(search::run_with(&tree, &plan, &limits, aids, &Unbounded, &mut sink));
    }
}
