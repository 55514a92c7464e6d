//! An index of a tree that stands still: every directory and file beneath one place in path order, what each file is, and
//! which trigrams each text holds. A search with it neither walks nor opens what cannot match, and answers byte by byte
//! what it would answer without.
//!
//! ```text
//! build: tree ──walk in path order──► Index ──encode──► bytes on a disk ──decode, checked──► Index
//! query: pattern ──► what a text must hold ──► which files are opened (never one too few)
//! ```
//! What an index says is true of the tree that it was made of and of no other: whoever keeps one must know that the tree
//! has not changed since.

mod build;
mod filter;
mod query;
mod stored;

pub use build::{BuildPlan, NotBuilt};
pub(super) use query::Query;

use crate::path::TreePath;

/// The index of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The directory whose contents it holds, without links on the way.
    root: TreePath,
    /// Whether the tree's root is a machine's "/", so that /proc and /sys were not entered.
    machine_root: bool,
    /// Bytes of all texts that have a filter.
    text_bytes: u64,
    names: Vec<u8>,
    /// The root first, and every directory behind the one that it lies in.
    directories: Vec<Directory>,
    /// In path order.
    files: Vec<File>,
    words: Vec<u64>,
}

/// A directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Directory {
    /// The one that it lies in; of the root itself.
    above: u32,
    name: Name,
    /// Its files and those beneath: from this one up to before that one.
    first: u32,
    end: u32,
    /// Nothing beneath is known, because the globs of the build excluded it.
    is_closed: bool,
}

/// A place in `names`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    start: u32,
    length: u8,
}

/// A file, or what stands in the order of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct File {
    directory: u32,
    name: Name,
    content: Content,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// It has no NUL in its first 8 KiB; its filter is `1 << words_log2` words from `first` on.
    Text { size_bytes: u64, first: u32, words_log2: u8 },
    /// It has one.
    Binary { size_bytes: u64 },
    /// Too large to be looked into.
    Large { size_bytes: u64 },
    /// It could not be read, or is none, or is to be looked at for another reason.
    Unknown,
    /// The listing says that it is a FIFO, a socket or a device.
    Special,
    /// A directory in which a machine's kernel shows itself.
    Kernel,
}

/// What a search does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It is opened and searched.
    Open,
    /// It is a text in which the pattern cannot match.
    NoMatch,
    /// It is counted as a binary file.
    Binary,
    /// It is counted as too large.
    TooLarge,
    /// It is counted as special.
    Special,
}

/// A file of an index, as a search goes over them.
pub(super) struct Entry<'a> {
    pub(super) directory: u32,
    pub(super) name: &'a [u8],
    /// It stands for a directory, and globs see it as one.
    pub(super) is_directory: bool,
}

impl Index {
    /// The directory whose contents it holds.
    pub fn root(&self) -> &TreePath {
        &self.root
    }

    /// Bytes of the texts that it was made of.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Files that it knows.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Bytes that it takes in memory; encoded it is no larger.
    pub fn memory_bytes(&self) -> u64 {
        let of = |count: usize, each: usize| (count * each) as u64;
        of(self.names.len(), 1)
            + of(self.directories.len(), size_of::<Directory>())
            + of(self.files.len(), size_of::<File>())
            + of(self.words.len(), size_of::<u64>())
    }

    /// The directory at a true path; nothing where it is not known.
    pub(super) fn find(&self, path: &TreePath, machine_root: bool) -> Option<u32> {
        if machine_root != self.machine_root || !path.is_within(&self.root) {
            return None;
        }
        let depth = self.root.components().count();
        path.components().skip(depth).try_fold(0, |above, name| self.child(above, name))
    }

    /// Directories stand in the order in which a walk meets them, those of one directory not side by side.
    fn child(&self, above: u32, name: &[u8]) -> Option<u32> {
        let behind = self.directories.iter().enumerate().skip(above as usize + 1);
        let found = behind.into_iter().find(|(_, each)| each.above == above && self.name(each.name) == name);
        found.filter(|(_, each)| !each.is_closed).and_then(|(index, _)| u32::try_from(index).ok())
    }

    /// Its files and those beneath.
    pub(super) fn files_of(&self, directory: u32) -> std::ops::Range<u32> {
        let directory = &self.directories[directory as usize];
        directory.first..directory.end
    }

    pub(super) fn directory_count(&self) -> usize {
        self.directories.len()
    }

    /// Directories of which nothing is known.
    pub(super) fn closed(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.directories).filter(|(_, directory)| directory.is_closed).map(|(index, _)| index)
    }

    /// The directory above one, and its name there; of the root itself and no name.
    pub(super) fn above(&self, directory: u32) -> (u32, &[u8]) {
        let directory = &self.directories[directory as usize];
        (directory.above, self.name(directory.name))
    }

    pub(super) fn entry(&self, file: u32) -> Entry<'_> {
        let file = &self.files[file as usize];
        let is_directory = file.content == Content::Kernel;
        Entry { directory: file.directory, name: self.name(file.name), is_directory }
    }

    /// What to do with a file, in the order in which a search without an index finds out.
    pub(super) fn treatment(&self, file: u32, query: &Query, file_bytes_max: u64) -> Treatment {
        match self.files[file as usize].content {
            Content::Unknown => Treatment::Open,
            Content::Special | Content::Kernel => Treatment::Special,
            Content::Text { size_bytes, .. } | Content::Binary { size_bytes } | Content::Large { size_bytes }
                if size_bytes > file_bytes_max =>
            {
                Treatment::TooLarge
            }
            Content::Large { .. } => Treatment::Open,
            Content::Binary { .. } => Treatment::Binary,
            Content::Text { size_bytes, first, words_log2 } => {
                let words = &self.words[first as usize..][..1 << words_log2];
                let may_match = if size_bytes < 3 { query.may_be_short() } else { query.may_match(words) };
                if may_match { Treatment::Open } else { Treatment::NoMatch }
            }
        }
    }

    fn name(&self, name: Name) -> &[u8] {
        &self.names[name.start as usize..][..usize::from(name.length)]
    }
}

#[cfg(test)]
mod tests;
