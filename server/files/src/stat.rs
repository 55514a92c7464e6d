//! Stat: what one file or directory is.

use crate::{budget::Budget, error::Fault, limits::Limits, meta::Meta, path::TreePath, revision::Revision, tree::Tree};

/// A Stat whose shape was found sound.
#[derive(Debug, Clone)]
pub struct StatPlan {
    /// A symbolic link as the last component is described, not followed; those before it are followed inside the workspace.
    pub path: TreePath,
    /// Whether the content's revision is wanted.
    pub include_revision: bool,
}

/// One file or directory, as every verb answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As asked for.
    pub path: TreePath,
    /// What it is.
    pub meta: Meta,
    /// Only of a symbolic link.
    pub link_target: Option<Vec<u8>>,
    /// Only of a regular file, where asked for and within the bound for it.
    pub revision: Option<Revision>,
}

/// Which files get a revision, and how large they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revisions {
    /// None: not asked for, or not this host's to give.
    Never,
    /// Every regular file.
    Always,
    /// Regular files of at most so many bytes.
    UpTo(u64),
}

/// Answers a Stat.
///
/// # Errors
/// `NotFound` (naming the first missing component), `NotDirectory`, `Outside`, `PermissionDenied`, and what the tree says.
pub fn run<T: Tree>(
    tree: &T,
    plan: &StatPlan,
    revisions: Revisions,
    limits: &Limits,
    budget: &dyn Budget,
) -> Result<Entry, Fault> {
    let _ = (tree, plan, revisions, limits, budget);
    Err(Fault::Internal("not built yet"))
}
