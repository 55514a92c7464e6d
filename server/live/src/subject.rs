//! What is about to lose its name: where Remove and Move begin alike, and how they keep a revision true until the rename.

use std::fs::File;

use dormouse_files::{
    Fault,
    meta::{FileType, Meta},
    path::TreePath,
    revision::{Expected, Revision},
    tree::{Tree, TreeError},
};
use dormouse_lease::{ReadLease, Refused};
use rustix::fs;

use crate::{
    commit::{identity_at, revision_of},
    errno::{fault, io_fault},
    inner::Inner,
    locate::{Place, at_component},
    tree::Identity,
};

/// What a name leads to.
pub(crate) struct Subject {
    pub(crate) meta: Meta,
    pub(crate) identity: Identity,
    /// Of a regular file that was read.
    pub(crate) read: Option<(File, Revision)>,
    /// Its revision is what the caller expects, and must be so at the rename.
    is_guarded: bool,
}

/// A file that has the expected revision, and that nobody can change without being seen.
pub(crate) struct Guard<'a> {
    /// Nothing where none is asked for, or where there are no leases.
    lease: Option<ReadLease<'a>>,
}

/// A lookup's failure, said of the path.
pub(crate) fn failed(inner: &Inner, path: &TreePath, error: TreeError) -> Fault {
    match error {
        // Its directory is inside: what lies behind a mount is the name itself.
        TreeError::Outside => Fault::MountPoint { path: path.clone() },
        error => at_component(&inner.tree, path, path, error, &inner.limits.files),
    }
}

impl Inner {
    /// Looks at a name, and reads the file where a revision is expected, or where it has at most `unasked_bytes_max`.
    ///
    /// # Errors
    /// `NotFound` and what else is wrong with the path; `NotRegular` and `RevisionMismatch` where a revision is expected.
    pub(crate) fn subject(
        &self,
        place: &Place,
        path: &TreePath,
        expected: Expected,
        unasked_bytes_max: Option<u64>,
    ) -> Result<Subject, Fault> {
        let failed = |error| failed(self, path, error);
        let meta = self.tree.stat(&place.parent, &place.name).map_err(failed)?;
        let is_guarded = matches!(expected, Expected::Revision(_));
        if meta.kind != FileType::Regular && is_guarded {
            return Err(Fault::NotRegular { path: path.clone(), kind: meta.kind });
        }
        let is_small = unasked_bytes_max.is_some_and(|bytes| meta.size_bytes <= bytes);
        let read = match meta.kind {
            FileType::Regular if is_guarded || is_small => match self.tree.open(&place.parent, &place.name) {
                Ok((file, meta)) => {
                    let file = file.into_file();
                    let revision = revision_of(&file).map_err(|error| io_fault(path, error))?;
                    Some((file, meta, revision))
                }
                Err(TreeError::PermissionDenied) if !is_guarded => None,
                Err(error) => return Err(failed(error)),
            },
            _ => None,
        };
        if let Expected::Revision(revision) = expected {
            let actual = read.as_ref().map(|(_, _, revision)| *revision);
            if actual != Some(revision) {
                return Err(Fault::RevisionMismatch { path: path.clone(), expected, actual });
            }
        }
        match read {
            Some((file, meta, revision)) => {
                let identity = Identity::of(&fs::fstat(&file).map_err(|errno| fault(path, errno))?);
                Ok(Subject { meta, identity, read: Some((file, revision)), is_guarded })
            }
            None => match identity_at(&place.parent, &place.name).map_err(|errno| fault(path, errno))? {
                Some(identity) => Ok(Subject { meta, identity, read: None, is_guarded }),
                None => Err(failed(TreeError::NotFound)),
            },
        }
    }
}

impl Subject {
    /// The file, where its revision was expected.
    pub(crate) fn guarded(&self) -> Option<&(File, Revision)> {
        self.read.as_ref().filter(|_| self.is_guarded)
    }

    /// Keeps the revision true until the guard is asked; nothing where it is not true any more.
    ///
    /// # Errors
    /// `BusyWriter` where somebody has the file open for writing.
    pub(crate) fn guard(&self, path: &TreePath) -> Result<Option<Guard<'_>>, Fault> {
        let Some((file, revision)) = self.guarded() else { return Ok(Some(Guard { lease: None })) };
        let lease = match ReadLease::take(file) {
            Ok(lease) => Some(lease),
            Err(Refused::Writer) => return Err(Fault::BusyWriter { path: path.clone() }),
            Err(Refused::Unsupported(_)) => None,
        };
        let is_true = revision_of(file).map_err(|error| io_fault(path, error))? == *revision;
        Ok(is_true.then_some(Guard { lease }))
    }
}

impl Guard<'_> {
    /// Whether nobody has changed it, or waits to.
    pub(crate) fn is_whole(&self) -> bool {
        self.lease.as_ref().is_none_or(ReadLease::is_whole)
    }
}
