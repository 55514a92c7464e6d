//! How soon a search ends: counted in what it still opens once its time is up or its caller has gone.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::{
    globs::GlobSet,
    index::{BuildPlan, Index},
    pattern::{Case, Pattern, Syntax},
    *,
};
use crate::{
    budget::{Spent, Unbounded},
    memory::{MemoryHandle, MemoryTree},
    meta::Meta,
    tree::{Name, TreeError},
};

/// A tree that raises a flag at its n-th look, and counts the looks after.
struct Watched {
    tree: MemoryTree,
    left: AtomicUsize,
    is_over: AtomicBool,
    after: AtomicUsize,
}

impl Watched {
    fn new(tree: MemoryTree, left: usize) -> Self {
        Self { tree, left: left.into(), is_over: AtomicBool::new(false), after: AtomicUsize::new(0) }
    }

    fn look(&self) {
        if self.is_over.load(Ordering::SeqCst) {
            self.after.fetch_add(1, Ordering::SeqCst);
        }
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_err() {
            self.is_over.store(true, Ordering::SeqCst);
        }
    }
}

impl Tree for Watched {
    type Directory = MemoryHandle;
    type File = MemoryHandle;

    fn root(&self) -> Result<MemoryHandle, TreeError> {
        self.tree.root()
    }

    fn directory(&self, parent: &MemoryHandle, name: &[u8]) -> Result<MemoryHandle, TreeError> {
        Tree::directory(&self.tree, parent, name)
    }

    fn stat(&self, parent: &MemoryHandle, name: &[u8]) -> Result<Meta, TreeError> {
        self.tree.stat(parent, name)
    }

    fn stat_directory(&self, directory: &MemoryHandle) -> Result<Meta, TreeError> {
        self.tree.stat_directory(directory)
    }

    fn names(
        &self,
        directory: &MemoryHandle,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        self.look();
        self.tree.names(directory, visit)
    }

    fn link(&self, parent: &MemoryHandle, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        Tree::link(&self.tree, parent, name)
    }

    fn open(&self, parent: &MemoryHandle, name: &[u8]) -> Result<(MemoryHandle, Meta), TreeError> {
        self.look();
        self.tree.open(parent, name)
    }

    fn stat_file(&self, file: &MemoryHandle) -> Result<Meta, TreeError> {
        self.tree.stat_file(file)
    }

    fn read_at(&self, file: &MemoryHandle, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        self.tree.read_at(file, offset, buffer)
    }
}

/// Up once the tree has raised its flag.
struct Until<'a>(&'a Watched, Spent);

impl Budget for Until<'_> {
    fn spent(&self) -> Option<Spent> {
        self.0.is_over.load(Ordering::SeqCst).then_some(self.1)
    }
}

fn forest() -> MemoryTree {
    (0..3_000).fold(MemoryTree::default(), |tree, n| tree.file(format!("/d{:03}/f{n}", n % 150), "hit\nmiss\n"))
}

fn plan() -> SearchPlan {
    let limits = Limits::default();
    SearchPlan {
        path: TreePath::root(),
        pattern: Pattern::new("hit", Syntax::Literal, Case::Sensitive, &limits).unwrap(),
        globs: GlobSet::new(&[], &[], &limits).unwrap(),
        context_line_count: 0,
        match_count_max: 5_000,
        file_bytes_max: 1 << 20,
        machine_root: false,
    }
}

#[track_caller]
fn check(looks: usize, thread_count: usize, spent: Spent, index: Option<&Index>) {
    let watched = Watched::new(forest(), looks);
    let limits = Limits { search_thread_count: thread_count, ..Limits::default() };
    let aids = Aids { index, turns: &Unhindered };
    let mut found = 0;
    let mut sink = |_: Match| {
        found += 1;
        ControlFlow::Continue(())
    };
    let end = run_with(&watched, &plan(), &limits, aids, &Until(&watched, spent), &mut sink);
    match spent {
        Spent::Gone => assert!(matches!(end, Err(Fault::Gone)), "{end:?}"),
        _ => assert_eq!(end.unwrap().end.stop, Some(Stop::Budget)),
    }
    // Each thread is at most at one file or directory, and asks before the next one.
    let after = watched.after.load(Ordering::SeqCst);
    assert!(after <= thread_count, "{after} looks by {thread_count} threads after the end");
    assert!(found <= looks + thread_count);
    assert_eq!(watched.tree.held_count(), 0);
}

#[test]
fn every_thread_stops_at_the_file_it_is_at() {
    let build = BuildPlan {
        root: TreePath::root(),
        closed: plan().globs,
        file_bytes_max: 1 << 20,
        machine_root: false,
        index_bytes_max: 64 << 20,
    };
    let index = Index::build(&forest(), &build, &Limits::default(), &Unbounded, &mut || {}).unwrap();
    for thread_count in [1, 2, 8] {
        for looks in [2, 40, 700, 2_500] {
            for spent in [Spent::Gone, Spent::Time, Spent::Deadline] {
                check(looks, thread_count, spent, None);
                check(looks, thread_count, spent, Some(&index));
            }
        }
    }
}

#[test]
fn a_large_file_is_left_in_the_middle() {
    struct Asked(AtomicUsize);
    impl Budget for Asked {
        fn spent(&self) -> Option<Spent> {
            (self.0.fetch_add(1, Ordering::Relaxed) >= 20).then_some(Spent::Gone)
        }
    }
    // 48 MiB, of which no window is over 128 KiB.
    let tree = MemoryTree::default().file("/f", b"no\n".repeat(16 << 20));
    let asked = Asked(AtomicUsize::new(0));
    let plan = SearchPlan { file_bytes_max: 64 << 20, ..plan() };
    let end = run(&tree, &plan, &Limits::default(), &asked, &mut |_: Match| ControlFlow::Continue(()));
    assert!(matches!(end, Err(Fault::Gone)));
    assert!(asked.0.into_inner() < 40);
}
