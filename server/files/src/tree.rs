//! The one trait between where files are and what is done with them: a directory of this host, and the disk of a
//! suspended workspace, both are a [`Tree`].
//!
//! A tree is blocking and read-only, and it is walked by held directories and single names, as the `*at` system calls
//! are: a name is resolved in a directory that is already held, and never follows a symbolic link. What a path of many
//! names means, and where links lead, is said once, in [`crate::walk`].

use std::{io, ops::ControlFlow};

use crate::meta::{FileType, Meta};

/// Why a tree could not answer. It names no path: whoever walks knows it.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// No such name in that directory.
    #[error("no such file")]
    NotFound,
    /// A directory was wanted, and this is none. A symbolic link says so too: it was not followed.
    #[error("not a directory but a {0}")]
    NotDirectory(FileType),
    /// A regular file was wanted, and this is none. A symbolic link says so too: it was not followed.
    #[error("not a regular file but a {0}")]
    NotRegular(FileType),
    /// The file system refuses the agent.
    #[error("permission denied")]
    PermissionDenied,
    /// It lies behind a mount point, or has left the workspace while it was looked at.
    #[error("outside the workspace")]
    Outside,
    /// It lies on a file system of the workspace that this tree does not hold, or is kept in a form that cannot be read
    /// here, such as encrypted.
    #[error("not readable from here: {what}")]
    Unavailable {
        /// The feature or place in a few words, such as `encrypted`.
        what: String,
    },
    /// What is behind the tree changed since it was opened.
    #[error("changed while it was read")]
    Changed,
    /// The image does not parse, or a checksum does not hold.
    #[error("corrupt: {what}")]
    Corrupt {
        /// The structure and its place, such as `extent tree of inode 12`.
        what: String,
    },
    /// A bound against hostile input was met.
    #[error("over the limit of {limit}: {what}")]
    OverLimit {
        /// What was counted.
        what: &'static str,
        /// Its bound, in its own unit.
        limit: u64,
    },
    /// The system failed.
    #[error("input/output error")]
    Io(#[source] io::Error),
}

/// A name in a directory, as a listing finds it.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a> {
    /// 1 to 255 bytes, without `/` and NUL, never `.` or `..`.
    pub bytes: &'a [u8],
    /// Where the listing itself tells it; else ask [`Tree::stat`].
    pub kind: Option<FileType>,
}

/// Which directory of a tree, while it is held. The same inode number may be on each of its file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Which of the tree's file systems; 0 where it has only one.
    pub file_system: u64,
    /// The inode's number there.
    pub inode: u64,
}

/// A read-only tree of files.
///
/// Every method may be called from many threads at once. `Directory` and `File` are cheap to clone or hold, and what they
/// hold (a descriptor, an inode number) is released by dropping them.
pub trait Tree: Send + Sync {
    /// A directory that is held: a descriptor, or an inode number.
    type Directory: Clone + Send + Sync + 'static;
    /// A regular file that is held open.
    type File: Send + Sync + 'static;

    /// The root of the workspace.
    fn root(&self) -> Result<Self::Directory, TreeError>;

    /// The directory `name` in `parent`.
    ///
    /// # Errors
    /// `NotDirectory(Symlink)` for a symbolic link, even to a directory.
    fn directory(&self, parent: &Self::Directory, name: &[u8]) -> Result<Self::Directory, TreeError>;

    /// What `name` in `parent` is; a symbolic link is described, not followed.
    fn stat(&self, parent: &Self::Directory, name: &[u8]) -> Result<Meta, TreeError>;

    /// What a held directory is.
    fn stat_directory(&self, directory: &Self::Directory) -> Result<Meta, TreeError>;

    /// Which directory a held one is.
    fn identify(&self, directory: &Self::Directory) -> Result<Identity, TreeError> {
        self.stat_directory(directory).map(|meta| Identity { file_system: 0, inode: meta.inode })
    }

    /// All names in a directory, in no order, each once, without `.` and `..`.
    fn names(
        &self,
        directory: &Self::Directory,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError>;

    /// The target of the symbolic link `name` in `parent`: 1 to 4,095 bytes.
    fn link(&self, parent: &Self::Directory, name: &[u8]) -> Result<Vec<u8>, TreeError>;

    /// Opens the regular file `name` in `parent`, and says what it is. Never blocks on a FIFO, never follows a link.
    ///
    /// # Errors
    /// `NotRegular` with the type for everything else.
    fn open(&self, parent: &Self::Directory, name: &[u8]) -> Result<(Self::File, Meta), TreeError>;

    /// What an open file is now; where it differs from what [`Tree::open`] said, it changed in between.
    fn stat_file(&self, file: &Self::File) -> Result<Meta, TreeError>;

    /// Reads into `buffer` from `offset` in bytes: as many as there are up to its length, 0 only at or past the end, and
    /// otherwise never fewer than asked for while the file has more.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError>;

    /// As [`Tree::read_at`], of a file that ended at `end` when it was opened and into a buffer that reaches beyond: bytes
    /// that end exactly there may be taken for all that there is, without a second look for more.
    fn read_rest(&self, file: &Self::File, offset: u64, end: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        let _ = end;
        self.read_at(file, offset, buffer)
    }

    /// Lends bytes that lie in memory, at most `length` of them and at least 1, from `offset`; nothing where the tree does
    /// not map its bytes, or not here: then [`Tree::read_at`] serves.
    fn lend<'a>(&'a self, file: &'a Self::File, offset: u64, length: usize) -> Result<Option<&'a [u8]>, TreeError> {
        let _ = (file, offset, length);
        Ok(None)
    }

    /// Asked after something was read and before it is handed out: an error where what was read may not be what the tree
    /// promised, such as a disk that has been resumed since.
    fn verify(&self) -> Result<(), TreeError> {
        Ok(())
    }
}
