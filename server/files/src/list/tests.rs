//! Listings of trees in memory, and their pages against a sorted model.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::{
    budget::Unbounded,
    memory::{MemoryTree, Trouble},
};

struct Ask {
    depth: usize,
    include: &'static [&'static str],
    exclude: &'static [&'static str],
    count_max: usize,
    start_after: Option<&'static str>,
}

const ALL: Ask = Ask { depth: 64, include: &[], exclude: &[], count_max: 1_000, start_after: None };

fn plan(path: &str, ask: &Ask) -> ListPlan {
    let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
    ListPlan {
        path: TreePath::parse(path.as_bytes()).unwrap(),
        depth: ask.depth,
        globs: GlobSet::new(&owned(ask.include), &owned(ask.exclude), &Limits::default()).unwrap(),
        entry_count_max: ask.count_max,
        include_revision: false,
        start_after: ask.start_after.map(|path| TreePath::parse(path.as_bytes()).unwrap()),
    }
}

fn list(tree: &MemoryTree, plan: &ListPlan) -> Result<(Vec<String>, ListEnd), Fault> {
    let mut seen = Vec::new();
    let end = run(tree, plan, Revisions::Never, &Limits::default(), &Unbounded, &mut |entry: Entry| {
        seen.push(entry.path.to_string());
        ControlFlow::Continue(())
    })?;
    assert_eq!(end.entries_sent, seen.len() as u64);
    assert!(seen.is_sorted());
    Ok((seen, end))
}

#[track_caller]
fn check(tree: &MemoryTree, path: &str, ask: &Ask, expect: &[&str]) -> ListEnd {
    let (seen, end) = list(tree, &plan(path, ask)).unwrap();
    assert_eq!(seen, expect);
    end
}

fn tree() -> MemoryTree {
    MemoryTree::default()
        .file("/a/z", b"")
        .file("/a.b", b"")
        .file("/src/x/y.ts", b"")
        .file("/src/x.py", b"")
        .directory("/src/empty")
        .file("/src.py", b"")
        .file("/build/deep/o", b"")
        .link("/link", "src")
}

#[test]
fn lists_in_the_order_of_whole_paths() {
    check(&tree(), "/", &Ask { depth: 1, ..ALL }, &["/a", "/a.b", "/build", "/link", "/src", "/src.py"]);
    check(
        &tree(),
        "/",
        &Ask { depth: 2, exclude: &["build", "src"], ..ALL },
        &["/a", "/a.b", "/a/z", "/link", "/src.py"],
    );
    check(&tree(), "/link", &Ask { depth: 1, ..ALL }, &["/link/empty", "/link/x", "/link/x.py"]);
    check(&tree(), "/src", &ALL, &["/src/empty", "/src/x", "/src/x.py", "/src/x/y.ts"]);
    assert!(matches!(list(&tree(), &plan("/a.b", &ALL)), Err(Fault::NotDirectory { .. })));
    assert!(matches!(list(&tree(), &plan("/none", &ALL)), Err(Fault::NotFound { .. })));
}

#[test]
fn directories_that_lead_to_an_included_file_come_with_it() {
    check(&tree(), "/", &Ask { include: &["*.py"], ..ALL }, &["/src", "/src.py", "/src/x.py"]);
    check(&tree(), "/", &Ask { include: &["*.ts"], ..ALL }, &["/src", "/src/x", "/src/x/y.ts"]);
    check(&tree(), "/", &Ask { include: &["*.ts"], depth: 2, ..ALL }, &[]);
    check(&tree(), "/", &Ask { include: &["build"], ..ALL }, &["/build", "/build/deep", "/build/deep/o"]);
    check(&tree(), "/", &Ask { include: &["build"], exclude: &["deep/"], ..ALL }, &["/build"]);
    check(&tree(), "/", &Ask { include: &["*.ts"], exclude: &["x"], ..ALL }, &[]);
}

/// `/b/!` comes before `/b/!.`, and what it holds behind what `/b/!.` holds.
#[test]
fn a_directory_whose_contents_come_behind_the_first_that_is_included_leads_to_its_own() {
    let tree = MemoryTree::default().file("/b/!./0", b"").file("/b/!/0", b"");
    let all = ["/b", "/b/!", "/b/!.", "/b/!./0", "/b/!/0"];
    check(&tree, "/", &Ask { depth: 3, include: &["*0"], ..ALL }, &all);
}

#[test]
fn met_exactly_is_not_truncated() {
    let end =
        check(&tree(), "/src", &Ask { count_max: 4, ..ALL }, &["/src/empty", "/src/x", "/src/x.py", "/src/x/y.ts"]);
    assert_eq!(end.stop, None);
    let end = check(&tree(), "/src", &Ask { count_max: 3, ..ALL }, &["/src/empty", "/src/x", "/src/x.py"]);
    assert_eq!(end.stop, Some(Stop::Entries));
}

#[test]
fn unreadable_directories_are_counted() {
    let tree = tree().trouble("/src", Trouble::Denied);
    let end = check(
        &tree,
        "/",
        &Ask { depth: 3, exclude: &["build"], ..ALL },
        &["/a", "/a.b", "/a/z", "/link", "/src", "/src.py"],
    );
    assert_eq!(end.unreadable, 1);
    let end = check(&tree, "/", &Ask { include: &["*.ts"], ..ALL }, &[]);
    assert_eq!(end.unreadable, 1);
    assert!(matches!(list(&tree, &plan("/src", &ALL)), Err(Fault::PermissionDenied { .. })));
}

#[test]
fn a_directory_within_itself_ends() {
    let tree = MemoryTree::default().file("/a/b/f", b"").alias("/a/b/c", "/a");
    let end = check(&tree, "/", &ALL, &["/a", "/a/b", "/a/b/c", "/a/b/f"]);
    assert_eq!(end.unreadable, 1);
}

proptest! {
    #[test]
    fn pages_of_a_listing_are_the_sorted_model(
        paths in proptest::collection::btree_set("(/[ab.!0]{1,2}){1,4}", 1..24),
        depth in 1_usize..5,
        page in 1_usize..5,
        hidden in any::<bool>(),
        include in any::<bool>(),
    ) {
        // A path that others run through is a directory.
        let mut tree = MemoryTree::default();
        let mut model = std::collections::BTreeSet::new();
        let sound = |path: &str| path.split('/').all(|name| !matches!(name, "." | ".."));
        let paths: Vec<_> = paths.iter().filter(|path| sound(path)).collect();
        for path in &paths {
            if !paths.iter().any(|other| other.starts_with(&format!("{path}/"))) {
                tree = tree.file(path, b"");
                let path = TreePath::parse(path.as_bytes()).unwrap();
                let wanted = !include || path.components().any(|name| name.ends_with(b"0"));
                let count = path.components().count();
                for cut in 1..=count.min(depth) {
                    let part: Vec<u8> = path.components().take(cut).flat_map(|name| [b"/", name].concat()).collect();
                    let beneath = |place: usize| path.components().take(place).any(|name| name.ends_with(b"0"));
                    // With an include: itself, beneath a match, or on the way to one within the depth.
                    if !include || (wanted && (beneath(cut) || beneath(count.min(depth)))) {
                        model.insert(String::from_utf8(part).unwrap());
                    }
                }
            }
        }
        if paths.is_empty() { return Ok(()); }
        if hidden { tree = tree.kinds_hidden(); }
        let mut ask = plan("/", &Ask { depth, count_max: page, include: if include { &["*0"] } else { &[] }, ..ALL });
        let mut seen = Vec::new();
        loop {
            let (more, end) = list(&tree, &ask).unwrap();
            seen.extend(more);
            if end.stop.is_none() { break; }
            prop_assert_eq!(end.entries_sent, page as u64);
            ask.start_after = seen.last().map(|path| TreePath::parse(path.as_bytes()).unwrap());
        }
        prop_assert_eq!(seen, model.into_iter().collect::<Vec<_>>());
    }
}
