//! Search: the lines that match a pattern, in path order.
//!
//! ```text
//! pattern (RE2 → canonical regex)   globs (gitignore-style)
//!          └──────────┬────────────────────┘
//!      plan (path-ordered walk, threads, early stop) ──► scan (bytes → matches and context) ──► sink
//! ```

pub mod globs;
pub mod pattern;

use crate::{
    budget::{Budget, Sink},
    error::Fault,
    limits::Limits,
    list::Stop,
    path::TreePath,
    tree::Tree,
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

/// Answers a Search, pushing matches in path order and each file's in line order.
///
/// # Errors
/// Before the first match: everything of the path, `Symlink`, `NotRegular`. `Gone` when the sink broke.
pub fn run<T: Tree>(
    tree: &T,
    plan: &SearchPlan,
    limits: &Limits,
    budget: &dyn Budget,
    sink: &mut dyn Sink<Match>,
) -> Result<SearchEnd, Fault> {
    let _ = (tree, plan, limits, budget, sink);
    Err(Fault::Internal("not built yet"))
}
