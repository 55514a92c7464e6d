//! What a replayed journal lays over the disk: places, never bytes.

use std::collections::BTreeMap;

/// The first four bytes of every block of the journal's own.
pub(crate) const MAGIC: u32 = 0xC03B_3998;

/// Where the last copy of a block lies in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The block of the file system that holds the copy.
    pub(crate) physical: u64,
    /// Its first four bytes were the journal's magic number, and stand as zeros in the log.
    pub(crate) escaped: bool,
}

/// The last copy of every block that the log holds.
pub(crate) type Overlay = BTreeMap<u64, Copied>;
