//! A pattern over a file's bytes: every line that matches alone, and no other, whatever the bounds.
#![no_main]

use std::ops::ControlFlow;

use dormouse_files::{
    budget::Unbounded,
    limits::Limits,
    memory::{Lending, MemoryTree},
    path::TreePath,
    search::{
        self, Match, SearchPlan,
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
    },
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, bool, u8, u8, u8, bool, &[u8])| {
    let (text, is_regex, context, line_bytes, search_bytes, lends, bytes) = input;
    let limits = Limits {
        line_text_bytes_max: usize::from(line_bytes).max(4),
        line_search_bytes_max: usize::from(search_bytes).max(1),
        search_thread_count: 1,
        ..Limits::default()
    };
    let syntax = if is_regex { Syntax::Regex } else { Syntax::Literal };
    let Ok(pattern) = Pattern::new(text, syntax, Case::Sensitive, &limits) else { return };
    let plan = SearchPlan {
        path: TreePath::root(),
        pattern: pattern.clone(),
        globs: GlobSet::new(&[], &[], &limits).expect("no globs are sound"),
        context_line_count: usize::from(context % 6),
        match_count_max: usize::MAX,
        file_bytes_max: 1 << 20,
        machine_root: false,
    };
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
});
