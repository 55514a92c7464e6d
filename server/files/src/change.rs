//! The nouns of every change: the key that makes it happen once, and what Write, Remove, Move and MakeDirectory ask and
//! answer. Patch, whose edits are an engine of their own, is in [`crate::patch`].

use std::fmt;

use crate::{
    path::TreePath,
    revision::{Expected, Revision},
    stat::Entry,
};

/// What makes a change happen once: the caller's key, and the hash of the request that came with it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// 1 to 64 printable ASCII characters (0x21 to 0x7e).
    text: String,
    /// SHA-256 over the method and every field but the key.
    request: [u8; 32],
}

impl Key {
    /// From the wire's `idempotency_key`; nothing where it is empty, longer than 64 bytes, or not printable ASCII.
    pub fn new(text: &str, request: [u8; 32]) -> Option<Self> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && (1..=64).contains(&text.len())).then(|| Self { text: text.to_owned(), request })
    }

    /// As the caller gave it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The hash of the request.
    pub fn request(&self) -> &[u8; 32] {
        &self.request
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({})", self.text)
    }
}

/// A Write: the content follows piece by piece.
#[derive(Debug, Clone)]
pub struct WritePlan {
    /// The file.
    pub path: TreePath,
    /// What must be there.
    pub expected: Expected,
    /// Permission bits (0777) of a new file; unset: 0644.
    pub mode: Option<u32>,
    /// Whether missing directories are made, with 0755.
    pub create_parents: bool,
    /// What makes it happen once. Its request hash covers the start message only; the content is compared by its revision.
    pub key: Key,
    /// SHA-256 of all the content to come, where the caller knows it.
    pub content_revision: Option<Revision>,
}

/// What a Write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteDone {
    /// Of the content now.
    pub revision: Revision,
    /// Of the content before; nothing where the file was created.
    pub previous_revision: Option<Revision>,
    /// Bytes written; 0 where the content was there already.
    pub bytes_written: u64,
    /// File and directory are on stable storage.
    pub durable: bool,
    /// The file now.
    pub entry: Entry,
    /// The stored answer of an earlier attempt.
    pub replayed: bool,
}

/// A Remove.
#[derive(Debug, Clone)]
pub struct RemovePlan {
    /// The file, directory or link itself.
    pub path: TreePath,
    /// Of a regular file: what must be there.
    pub expected: Expected,
    /// Whether a directory goes with all it holds.
    pub recursive: bool,
    /// What makes it happen once.
    pub key: Key,
}

/// What a Remove did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveDone {
    /// Of a regular file, where it was cheap or asked for.
    pub previous_revision: Option<Revision>,
    /// The directory is on stable storage.
    pub durable: bool,
    /// The stored answer of an earlier attempt.
    pub replayed: bool,
}

/// A Move.
#[derive(Debug, Clone)]
pub struct MovePlan {
    /// From.
    pub path: TreePath,
    /// To.
    pub new_path: TreePath,
    /// Whether an existing file at the new path is replaced.
    pub replace: bool,
    /// Of a regular file at the old path: what must be there.
    pub expected: Expected,
    /// Whether missing directories of the new path are made, with 0755.
    pub create_parents: bool,
    /// What makes it happen once.
    pub key: Key,
}

/// A MakeDirectory.
#[derive(Debug, Clone)]
pub struct MakeDirectoryPlan {
    /// The directory.
    pub path: TreePath,
    /// Permission bits (0777); unset: 0755.
    pub mode: Option<u32>,
    /// Whether missing parents are made, with 0755.
    pub create_parents: bool,
    /// What makes it happen once.
    pub key: Key,
}

/// What a Move or a MakeDirectory did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceDone {
    /// The file or directory now.
    pub entry: Entry,
    /// All directories concerned are on stable storage.
    pub durable: bool,
    /// The stored answer of an earlier attempt.
    pub replayed: bool,
}
