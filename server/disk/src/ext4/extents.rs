//! Extent trees.
//!
//! A tree is walked anew for every run, through cached nodes: so an open file holds nothing but its inode, however
//! fragmented it is, and a walk visits at most five nodes. A node is checked once as a whole: its depth is one less than
//! its parent's, its entries ascend without overlapping, and all of them lie inside the range that the parent gives it.
//! So no two nodes can claim the same part of a file, and no tree can lead back into itself.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/ifork.rst`.

use dormouse_files::tree::TreeError;

use super::{
    Ext4,
    blocks::Role,
    checksum::crc32c,
    fields::{join, le16, le32},
    inode::Inode,
    run::Run,
};

const DEPTH_MAX: u16 = 5;
const ENTRY_BYTES: usize = 12;
/// Block numbers within a file have 32 bits.
const LOGICAL_END: u64 = 1 << 32;
/// Longest extent that was written; what is beyond in the length says that it was not.
const WRITTEN_LENGTH_MAX: u16 = 32_768;

/// A node and the part of the file that it may speak of.
struct Node<'a> {
    bytes: &'a [u8],
    depth: u16,
    from: u64,
    to: u64,
}

struct Extent {
    logical: u64,
    length: u64,
    physical: u64,
    written: bool,
}

impl Node<'_> {
    fn count(&self) -> usize {
        usize::from(le16(self.bytes, 2))
    }

    /// Where the entry's part of the file begins: the same field in both kinds of entry.
    fn start(&self, index: usize) -> u64 {
        u64::from(le32(self.bytes, ENTRY_BYTES * (index + 1)))
    }

    fn child(&self, index: usize) -> u64 {
        let at = ENTRY_BYTES * (index + 1);
        join(le32(self.bytes, at + 4), u32::from(le16(self.bytes, at + 8)))
    }

    fn extent(&self, index: usize) -> Extent {
        let at = ENTRY_BYTES * (index + 1);
        let length = le16(self.bytes, at + 4);
        let written = length <= WRITTEN_LENGTH_MAX;
        Extent {
            logical: self.start(index),
            length: u64::from(if written { length } else { length - WRITTEN_LENGTH_MAX }),
            physical: join(le32(self.bytes, at + 8), u32::from(le16(self.bytes, at + 6))),
            written,
        }
    }

    /// The last entry that begins at or before `logical`.
    fn find(&self, logical: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    /// Whether the first and the last entry lie in the part of the file that the parent gives.
    fn is_within(&self) -> bool {
        let Some(last) = self.count().checked_sub(1) else { return true };
        let end = if self.depth > 0 { self.start(last) + 1 } else { self.start(last) + self.extent(last).length };
        self.start(0) >= self.from && end <= self.to
    }

    fn check(&self, file_system: &Ext4) -> Result<(), &'static str> {
        let (count, room) = (self.count(), usize::from(le16(self.bytes, 4)));
        if le16(self.bytes, 0) != 0xF30A {
            return Err("extent tree: magic");
        }
        if le16(self.bytes, 6) != self.depth {
            return Err("extent tree: depth");
        }
        if count > room || (room + 1) * ENTRY_BYTES > self.bytes.len() {
            return Err("extent tree: entry count");
        }
        let mut free_from = self.from;
        for index in 0..count {
            let start = self.start(index);
            if start < free_from || start >= self.to {
                return Err("extent tree: order");
            }
            free_from = start + 1;
            if self.depth > 0 {
                if !file_system.blocks.contain(self.child(index), 1) {
                    return Err("extent tree: a node outside the file system");
                }
                continue;
            }
            let extent = self.extent(index);
            free_from = start + extent.length;
            if extent.length == 0 || free_from > self.to {
                return Err("extent tree: length");
            }
            if !file_system.blocks.contain(extent.physical, extent.length) {
                return Err("extent tree: content outside the file system");
            }
        }
        Ok(())
    }
}

/// The checksum follows the room for entries.
fn sum_holds(inode: &Inode, bytes: &[u8]) -> bool {
    let end = (usize::from(le16(bytes, 4)) + 1) * ENTRY_BYTES;
    bytes.get(..end).is_some_and(|summed| crc32c(inode.checksum_seed, summed) == le32(bytes, end))
}

/// The run that begins at the file's block `logical`.
pub(crate) fn find(file_system: &Ext4, inode: &Inode, logical: u64) -> Result<Run, TreeError> {
    let root = Node { bytes: &inode.map, depth: le16(&inode.map, 6), from: 0, to: LOGICAL_END };
    if root.depth > DEPTH_MAX {
        return Err(inode.corrupt("extent tree: too deep"));
    }
    root.check(file_system).map_err(|what| inode.corrupt(what))?;
    let mut step = look(&root, logical);
    // Falls by one each turn, from at most five.
    let mut depth = root.depth;
    while let Step::Down { block, from, to } = step {
        depth -= 1;
        let block = file_system.blocks.metadata(block)?;
        let node = Node { bytes: block.bytes(), depth, from, to };
        if le16(node.bytes, 6) != depth {
            return Err(inode.corrupt("extent tree: depth"));
        }
        block.verify_once(Role::ExtentNode, inode.number, |bytes| {
            if file_system.superblock.summed() && !sum_holds(inode, bytes) {
                return Err(inode.corrupt("extent tree: checksum"));
            }
            node.check(file_system).map_err(|what| inode.corrupt(what))
        })?;
        // The node may have been checked on another way to it, which gave it another part of the file.
        if !node.is_within() {
            return Err(inode.corrupt("extent tree: order"));
        }
        step = look(&node, logical);
    }
    match step {
        Step::Found(run) => Ok(run),
        Step::Down { .. } => Err(inode.corrupt("extent tree: depth")),
    }
}

enum Step {
    Found(Run),
    Down { block: u64, from: u64, to: u64 },
}

fn look(node: &Node<'_>, logical: u64) -> Step {
    let hole = |until: u64| Step::Found(Run { physical: None, length: until.saturating_sub(logical).max(1) });
    let next = |index: usize| if index < node.count() { node.start(index) } else { node.to };
    let Some(index) = node.find(logical) else { return hole(next(0)) };
    if node.depth > 0 {
        return Step::Down { block: node.child(index), from: node.start(index), to: next(index + 1) };
    }
    let extent = node.extent(index);
    let into = logical - extent.logical;
    match extent.length.checked_sub(into) {
        None | Some(0) => hole(next(index + 1)),
        Some(length) => {
            Step::Found(Run { physical: extent.written.then(|| extent.physical.saturating_add(into)), length })
        }
    }
}
