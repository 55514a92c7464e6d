//! Patch: replaces text in a file, or its whole content.
//!
//! ```text
//! PatchPlan ──► apply (bytes, edits) ──► new bytes and how many replacements
//!                  └─ a miss ──► explain: the nearest line, where it diverges, and why
//! ```
//! Pure: which bytes become which. Making that durable, atomic and once is `dormouse-live`'s work.

pub mod apply;
pub mod explain;

use bytes::Bytes;

use crate::{
    change::Key,
    path::TreePath,
    revision::{Expected, Revision},
    stat::Entry,
};

/// One replacement of text by text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Must occur exactly once, unless `replace_all`. Never empty.
    pub old_text: String,
    /// Lands as it is.
    pub new_text: String,
    /// Whether every occurrence is replaced, left to right, without overlap.
    pub replace_all: bool,
}

/// What a Patch changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// 1 to 100 edits, in order, all or none.
    Edits(Vec<Edit>),
    /// The whole new content; creates the file if it is missing.
    Content(Bytes),
}

/// A Patch whose shape was found sound.
#[derive(Debug, Clone)]
pub struct PatchPlan {
    /// The file.
    pub path: TreePath,
    /// What to do with it.
    pub change: Change,
    /// What must be there. `Absent` comes with `Content` only.
    pub expected: Expected,
    /// Permission bits (0777) of a new file; unset: 0644.
    pub mode: Option<u32>,
    /// Whether missing directories are made, with 0755.
    pub create_parents: bool,
    /// What makes it happen once.
    pub key: Key,
    /// Check everything, change nothing; the key is neither read nor stored.
    pub validate_only: bool,
}

/// What a Patch did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchDone {
    /// Of the content now.
    pub revision: Revision,
    /// Of the content before; nothing where the file was created.
    pub previous_revision: Option<Revision>,
    /// Bytes written; 0 where the content was there already.
    pub bytes_written: u64,
    /// File and directory are on stable storage.
    pub durable: bool,
    /// Places in which an old text was replaced.
    pub replacements: u32,
    /// The file now.
    pub entry: Entry,
    /// The stored answer of an earlier attempt.
    pub replayed: bool,
    /// A process kept the replaced file open for writing.
    pub replaced_open_file: bool,
}
