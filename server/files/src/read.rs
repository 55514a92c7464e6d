//! Read: the bytes of a file, or of a range of bytes or lines of it.

use crate::{
    budget::Budget,
    error::Fault,
    limits::Limits,
    path::TreePath,
    revision::Revision,
    stat::{Entry, Revisions},
    tree::Tree,
};

/// A Read whose shape was found sound.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// Symbolic links are followed, the last component too, never out of the workspace.
    pub path: TreePath,
    /// What part of it.
    pub range: Range,
    /// Refused unless the whole file has it.
    pub expected_revision: Option<Revision>,
    /// Refused unless the file has it.
    pub expected_etag: Option<String>,
    /// Whether the whole file's revision is wanted at the end.
    pub include_revision: bool,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// All of it.
    Whole,
    /// Bytes. A negative offset counts from the end; length 0 is to the end.
    Bytes {
        /// In bytes.
        offset: i64,
        /// In bytes, not negative.
        length: u64,
    },
    /// Lines, 1-based and inclusive; end 0 is the last line. `start` is at least 1, and `end` is 0 or at least `start`.
    Lines {
        /// First.
        start: u64,
        /// Last.
        end: u64,
    },
}

/// What a Read pushes.
#[derive(Debug)]
pub enum Piece<'a> {
    /// First, once: everything that could be refused has been checked.
    Header(Box<Entry>),
    /// Then the bytes in order, each piece at most `read_piece_bytes_max` long.
    Data {
        /// Where they begin in the file.
        offset: u64,
        /// The bytes, to be copied or sent before the next push.
        bytes: &'a [u8],
    },
}

/// How a Read ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEnd {
    /// Bytes pushed.
    pub bytes_sent: u64,
    /// CRC-32C (RFC 3720, appendix B.4) of them.
    pub crc32c: u32,
    /// Of the whole file, when asked for and within the bound.
    pub revision: Option<Revision>,
    /// Of the whole file, when lines were asked for.
    pub line_count: Option<u64>,
    /// The file's etag was another one at the end.
    pub changed: bool,
}

/// Answers a Read.
///
/// `bytes_max` bounds what is returned (a disk's `offline_read_bytes_max`); over it is `OfflineBudget` before any byte.
///
/// # Errors
/// Before the header: everything of the path, `NotRegular`, `RevisionMismatch`, `EtagMismatch`, `RangePastEnd`,
/// `LinesPastEnd`, `OfflineBudget`. After it: `DeadlineExceeded`, `OfflineChanged`, `Io`. `Gone` when the sink broke.
pub fn run<T: Tree>(
    tree: &T,
    plan: &ReadPlan,
    revisions: Revisions,
    bytes_max: Option<u64>,
    limits: &Limits,
    budget: &dyn Budget,
    sink: &mut dyn for<'a> FnMut(Piece<'a>) -> std::ops::ControlFlow<()>,
) -> Result<ReadEnd, Fault> {
    let _ = (tree, plan, revisions, bytes_max, limits, budget, sink);
    Err(Fault::Internal("not built yet"))
}
