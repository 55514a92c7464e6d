//! Where a stretch of a file lies: what every kind of block map answers with.

/// A run of a file's blocks that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first block's place; nothing where the blocks read as zeros: a hole, or space that was never written.
    pub(crate) physical: Option<u64>,
    /// Blocks from the one that was asked for; at least 1.
    pub(crate) length: u64,
}
