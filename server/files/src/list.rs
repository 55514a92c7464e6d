//! List: a directory's entries in path order, to a depth.

use crate::{
    budget::{Budget, Sink},
    error::Fault,
    limits::Limits,
    path::TreePath,
    search::globs::GlobSet,
    stat::{Entry, Revisions},
    tree::Tree,
};

/// A List whose shape was found sound.
#[derive(Debug, Clone)]
pub struct ListPlan {
    /// A directory; symbolic links on the way to it are followed inside the workspace.
    pub path: TreePath,
    /// 1 is the directory's own entries.
    pub depth: usize,
    /// Which files, relative to `path`; directories that lead to an included file are listed with it.
    pub globs: GlobSet,
    /// At least 1.
    pub entry_count_max: usize,
    /// Whether each regular file's revision is wanted.
    pub include_revision: bool,
    /// Only entries after this path.
    pub start_after: Option<TreePath>,
}

/// How a List ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListEnd {
    /// Entries pushed.
    pub entries_sent: u64,
    /// Why it was stopped, where it was.
    pub stop: Option<Stop>,
    /// Directories that could not be read.
    pub unreadable: u64,
}

/// Why an answer is not all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The match count asked for was met, and there is more.
    Matches,
    /// Time was up.
    Budget,
    /// The bytes of results were met.
    Bytes,
    /// The entry count asked for was met, and there is more.
    Entries,
}

/// Answers a List, pushing entries in path order.
///
/// # Errors
/// Before the first entry: everything of the path, `NotDirectory`. `Gone` when the sink broke.
pub fn run<T: Tree>(
    tree: &T,
    plan: &ListPlan,
    revisions: Revisions,
    limits: &Limits,
    budget: &dyn Budget,
    sink: &mut dyn Sink<Entry>,
) -> Result<ListEnd, Fault> {
    let _ = (tree, plan, revisions, limits, budget, sink);
    Err(Fault::Internal("not built yet"))
}
