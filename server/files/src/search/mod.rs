//! Search: the lines that match a pattern, in path order.
//!
//! ```text
//! pattern (re2: RE2 → canonical regex)   globs (gitignore-style)
//!          └──────────┬────────────────────────┘
//!      plan (which work is next, threads, path order, early stop)
//!        └─ file (open; list into work)   content (read within bounds)   held (which directories are open)
//!             └─ scan (bytes → matches and context; steady where a pattern is slow)   size (encoded bytes) ──► sink
//!                  └─ any_case, window (where a pattern may match, found many bytes at a time)
//! ```
//! A tree that is known to stand still may have an [`index`]: then `indexed` goes over its files instead of a walk, and opens
//! those that may match. No map of a live file, no `.gitignore`; symbolic links are never followed beneath the path that is
//! searched.

mod any_case;
mod content;
mod file;
pub mod globs;
mod held;
pub mod index;
mod indexed;
mod known;
pub mod pattern;
mod plan;
mod re2;
mod scan;
mod size;
mod steady;
mod window;

use std::sync::atomic::AtomicBool;

use self::{
    file::{Outcome, Scratch, Search, Step},
    held::HeldCount,
    index::Index,
    indexed::Indexed,
    plan::Schedule,
};
use crate::{
    budget::{Budget, Sink},
    error::Fault,
    limits::Limits,
    list::Stop,
    meta::FileType,
    path::TreePath,
    tree::Tree,
    walk::{self, LastLink, Node},
};

/// A Search whose shape was found sound.
#[derive(Debug, Clone)]
pub struct SearchPlan {
    /// A directory, or one file; symbolic links before the last component are followed inside the workspace.
    pub path: TreePath,
    /// What to look for.
    pub pattern: pattern::Pattern,
    /// Which files, relative to `path`; do not apply to `path` itself.
    pub globs: globs::GlobSet,
    /// Lines before and after each match.
    pub context_line_count: usize,
    /// At least 1.
    pub match_count_max: usize,
    /// Larger files are skipped.
    pub file_bytes_max: u64,
    /// Whether the workspace's root is a machine's "/", so that /proc and /sys are skipped by name.
    pub machine_root: bool,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The file.
    pub path: TreePath,
    /// 1-based.
    pub line: u64,
    /// 1-based byte column of the first match on the line.
    pub column: u64,
    /// 1-based byte column just past it.
    pub end_column: u64,
    /// The line.
    pub text: LineText,
    /// Lines before it, in order.
    pub before: Vec<LineText>,
    /// Lines after it, in order.
    pub after: Vec<LineText>,
}

/// A line as it is returned: without its end, at most `line_text_bytes_max` bytes, cut at a character boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineText {
    /// Its true bytes.
    pub bytes: Vec<u8>,
    /// The line is longer.
    pub clipped: bool,
}

/// How a Search ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchEnd {
    /// Why it was stopped, where it was.
    pub stop: Option<Stop>,
    /// Files searched, in path order up to the stop.
    pub files_scanned: u64,
    /// Files that were not searched, though the globs allow them.
    pub skipped: Skipped,
}

/// Counts of files that were not searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// A NUL in the first 8 KiB.
    pub binary: u64,
    /// Over the size asked for.
    pub too_large: u64,
    /// FIFOs, sockets, devices, and /proc and /sys.
    pub special: u64,
    /// Files and directories that could not be read.
    pub unreadable: u64,
}

/// Who may work now, where there are more searches than processors. A turn lasts for one run of files or one directory, so
/// for milliseconds unless the tree is slow.
pub trait Turns: Send + Sync {
    /// Waits for a turn, and gives its number.
    fn take(&self) -> u64;
    /// Gives it back.
    fn give(&self, number: u64);
}

/// Every turn at once.
pub struct Unhindered;

impl Turns for Unhindered {
    fn take(&self) -> u64 {
        0
    }

    fn give(&self, _: u64) {}
}

/// What a search may use besides its tree.
#[derive(Clone, Copy)]
pub struct Aids<'a> {
    /// Of this tree as it is now, or at least of a part of it.
    pub index: Option<&'a Index>,
    /// Asked before each piece of work.
    pub turns: &'a dyn Turns,
}

/// A search that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searched {
    /// How it ended.
    pub end: SearchEnd,
    /// Where it began, without links on the way; nothing where that is no directory.
    pub root: Option<TreePath>,
    /// Whether an index told which files there are.
    pub by_index: bool,
}

/// As [`run_with`], without aids.
///
/// # Errors
/// As there.
pub fn run<T: Tree>(
    tree: &T,
    plan: &SearchPlan,
    limits: &Limits,
    budget: &dyn Budget,
    sink: &mut dyn Sink<Match>,
) -> Result<SearchEnd, Fault> {
    let aids = Aids { index: None, turns: &Unhindered };
    run_with(tree, plan, limits, aids, budget, sink).map(|searched| searched.end)
}

/// Answers a Search, pushing matches in path order and each file's in line order.
///
/// Blocks, and works with `search_thread_count` threads: the caller's, which alone pushes, and others that end before this
/// returns, a fraction of a second after the budget is spent or the sink broke. The answer is the same for every number of
/// threads, with and without an index, and every run over the same files, unless the budget cut it short: then it is the
/// beginning of that answer.
///
/// # Errors
/// Before the first match: everything of the path, `Symlink`, `NotRegular`. `Gone` when the sink broke.
pub fn run_with<T: Tree>(
    tree: &T,
    plan: &SearchPlan,
    limits: &Limits,
    aids: Aids<'_>,
    budget: &dyn Budget,
    sink: &mut dyn Sink<Match>,
) -> Result<Searched, Fault> {
    let found = walk::resolve(tree, &plan.path, LastLink::Keep, limits)?;
    let search = |root, root_path, indexed| Search {
        tree,
        plan,
        limits,
        budget,
        root,
        root_path,
        held_count: HeldCount::default(),
        is_over: AtomicBool::new(false),
        indexed,
        turns: aids.turns,
    };
    let mut scratch = Scratch::new(plan);
    let fault = |error| Fault::at(&plan.path, error);
    let place = found.path();
    let (root, first_file) = match found.node {
        Node::Held(directory) => (directory, None),
        Node::Named { parent, name, meta } => match meta.kind {
            FileType::Directory => (tree.directory(&parent, &name).map_err(fault)?, None),
            FileType::Symlink => return Err(refuse_link(tree, plan, limits)),
            _ => {
                let opened = tree.open(&parent, &name).map_err(fault)?;
                (parent, Some(opened))
            }
        },
    };
    let at = first_file.is_none().then(|| place.clone());
    let indexed = at.as_ref().zip(aids.index).and_then(|(at, index)| Indexed::new(index, plan, at));
    let by_index = indexed.is_some();
    let search = search(root, place, indexed);
    let (first, thread_count) = match first_file {
        _ if search.is_kernel(&search.root_path) => {
            let skipped = Skipped { special: 1, ..Skipped::default() };
            (Outcome { steps: vec![Step { skipped, ..Step::default() }], ..Outcome::new() }, 1)
        }
        None => (search.begin(&mut scratch)?, limits.search_thread_count.max(1)),
        Some((file, meta)) => {
            // What could not be read of it is no file that was skipped on the way.
            let (mut outcome, mut step) = (Outcome::new(), Step::default());
            search
                .scan_file(&file, &meta, &|| Some(plan.path.clone()), &mut scratch, &mut step, &mut outcome)
                .map_err(fault)?;
            outcome.steps.push(step);
            (outcome, 1)
        }
    };
    let end = Schedule::new(&search, first).run(thread_count, &mut scratch, sink)?;
    tree.verify().map_err(fault)?;
    Ok(Searched { end, root: at, by_index })
}

/// The refusal of a search at a link, which says where to search instead.
fn refuse_link<T: Tree>(tree: &T, plan: &SearchPlan, limits: &Limits) -> Fault {
    let resolved = walk::resolve(tree, &plan.path, LastLink::Follow, limits).ok().map(|found| found.path());
    Fault::Symlink { path: plan.path.clone(), link: plan.path.clone(), resolved }
}

impl Skipped {
    fn add(&mut self, other: Self) {
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.special += other.special;
        self.unreadable += other.unreadable;
    }
}

#[cfg(test)]
mod ending;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
