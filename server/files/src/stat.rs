//! Stat: what one file or directory is.

use crate::{
    budget::Budget,
    error::Fault,
    limits::Limits,
    meta::{FileType, Meta},
    path::TreePath,
    pieces::Content,
    revision::Revision,
    tree::{Tree, TreeError},
    walk::{self, LastLink, Node},
};

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
    let found = walk::resolve(tree, &plan.path, LastLink::Keep, limits)?;
    let entry = match found.node {
        Node::Held(directory) => {
            let meta = tree.stat_directory(&directory).map_err(|error| Fault::at(&plan.path, error))?;
            Entry { path: plan.path.clone(), meta, link_target: None, revision: None }
        }
        Node::Named { parent, name, meta } => {
            let wanted = if plan.include_revision { revisions } else { Revisions::Never };
            let described = Described { path: plan.path.clone(), parent: &parent, name: &name, meta };
            describe(tree, described, wanted, limits, budget, &mut Vec::new())?
        }
    };
    tree.verify().map_err(|error| Fault::at(&plan.path, error))?;
    Ok(entry)
}

impl Revisions {
    /// Whether a file of this size gets one.
    pub(crate) fn allow(self, size_bytes: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::UpTo(size_bytes_max) => size_bytes <= size_bytes_max,
        }
    }
}

/// A name that was looked at, to become an [`Entry`].
pub(crate) struct Described<'a, D> {
    /// As the answer names it.
    pub(crate) path: TreePath,
    pub(crate) parent: &'a D,
    pub(crate) name: &'a [u8],
    pub(crate) meta: Meta,
}

/// Adds what takes more than a look: a link's target, a regular file's revision.
pub(crate) fn describe<T: Tree>(
    tree: &T,
    described: Described<'_, T::Directory>,
    revisions: Revisions,
    limits: &Limits,
    budget: &dyn Budget,
    buffer: &mut Vec<u8>,
) -> Result<Entry, Fault> {
    let Described { path, parent, name, mut meta } = described;
    let (mut link_target, mut revision) = (None, None);
    match meta.kind {
        FileType::Symlink => {
            link_target = Some(tree.link(parent, name).map_err(|error| Fault::at(&path, error))?);
        }
        FileType::Regular if revisions.allow(meta.size_bytes) => match tree.open(parent, name) {
            Ok((file, _)) => {
                let content = Content { tree, file: &file, path: &path, limits, budget };
                let size_bytes = content.meta()?.size_bytes;
                // It may have grown since it was looked at.
                if revisions.allow(size_bytes) {
                    (meta, revision) = content.revision(buffer)?;
                }
            }
            // Its metadata may be looked at where its content may not.
            Err(TreeError::PermissionDenied | TreeError::Unavailable { .. }) => {}
            Err(error) => return Err(Fault::at(&path, error)),
        },
        _ => {}
    }
    Ok(Entry { path, meta, link_target, revision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::Unbounded,
        memory::{MemoryTree, Trouble},
    };

    fn stat(tree: &MemoryTree, path: &str, revisions: Revisions) -> Result<Entry, Fault> {
        let plan = StatPlan { path: TreePath::parse(path.as_bytes()).unwrap(), include_revision: true };
        run(tree, &plan, revisions, &Limits::default(), &Unbounded)
    }

    #[test]
    fn describes_files_links_and_the_root() {
        let tree = MemoryTree::default().file("/d/f", b"abc").link("/l", "d/f").link("/k", "d");
        let entry = stat(&tree, "/k/f", Revisions::Always).unwrap();
        assert_eq!((entry.path.to_string().as_str(), entry.meta.size_bytes), ("/k/f", 3));
        assert_eq!(entry.revision, Some(Revision::of(b"abc")));
        let link = stat(&tree, "/l", Revisions::Always).unwrap();
        assert_eq!((link.meta.kind, link.link_target, link.revision), (FileType::Symlink, Some(b"d/f".to_vec()), None));
        assert_eq!(stat(&tree, "/", Revisions::Always).unwrap().meta.kind, FileType::Directory);
        assert_eq!(stat(&tree, "/d/f", Revisions::Never).unwrap().revision, None);
        assert_eq!(stat(&tree, "/d/f", Revisions::UpTo(2)).unwrap().revision, None);
        assert!(stat(&tree, "/d/f", Revisions::UpTo(3)).unwrap().revision.is_some());
        assert!(matches!(stat(&tree, "/d/x", Revisions::Never), Err(Fault::NotFound { .. })));
    }

    #[test]
    fn a_file_that_does_not_hold_still_has_no_revision() {
        let tree = MemoryTree::default().file("/f", b"abc").trouble("/f", Trouble::Grows);
        assert_eq!(stat(&tree, "/f", Revisions::Always).unwrap().revision, None);
    }

    #[test]
    fn a_disk_that_moved_on_answers_nothing() {
        let tree = MemoryTree::default().file("/f", b"abc").stale_after(0);
        assert!(matches!(stat(&tree, "/f", Revisions::Never), Err(Fault::OfflineChanged)));
    }
}
