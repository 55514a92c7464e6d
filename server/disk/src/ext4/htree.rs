//! Hashed directories: a tree of hashes over the blocks of names.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/directory.rst`.

use super::{
    directory::entry_bytes,
    fields::{le16, u8_at},
};

/// Where a block's table of hashes begins: behind `.`, `..` and the tree's description in the root, behind one unused entry
/// elsewhere. Nothing where it is neither.
pub(super) fn hashes_at(bytes: &[u8]) -> Option<usize> {
    let fills = |at: usize, from: usize| entry_bytes(le16(bytes, at), bytes.len()) == bytes.len() - from;
    if fills(4, 0) {
        return Some(8);
    }
    (le16(bytes, 4) == 12 && fills(16, 12) && u8_at(bytes, 29) == 8).then_some(32)
}
