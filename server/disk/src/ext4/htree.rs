//! Hashed directories: a tree of hashes over the blocks of names.
//!
//! The tree is only a way to a name: whatever in it cannot be true makes the lookup fall back to reading every name, as the
//! kernel does. Source: the kernel's `Documentation/filesystems/ext4/directory.rst`.

use std::sync::Arc;

use dormouse_files::tree::TreeError;

use super::{
    Ext4,
    blocks::Block,
    directory::Part,
    fields::{entry_bytes, le16, le32, u8_at},
    hash,
    inode::Inode,
    superblock::incompat,
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

/// What a hashed lookup found out.
pub(super) enum Answer {
    Inode(u32),
    Missing,
    /// The tree cannot be used, which says nothing of the name.
    Unusable,
}

/// A table of hashes, and which of its entries the way goes through.
struct Level {
    block: Arc<Block>,
    at: usize,
    count: usize,
    index: usize,
}

impl Level {
    fn new(block: Arc<Block>, hash: u32) -> Option<Self> {
        let at = hashes_at(block.bytes())?;
        let (room, count) = (usize::from(le16(block.bytes(), at)), usize::from(le16(block.bytes(), at + 2)));
        if count == 0 || count > room || at + room * 8 > block.bytes().len() {
            return None;
        }
        let mut level = Self { block, at, count, index: 0 };
        // The last entry whose hash is not beyond; the first entry has none and stands for 0.
        let (mut low, mut high) = (1, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if level.hash(middle) <= hash { low = middle + 1 } else { high = middle }
        }
        level.index = low - 1;
        Some(level)
    }

    /// The same way through a table that is entered at its beginning.
    fn first(block: Arc<Block>) -> Option<Self> {
        Self::new(block, 0).map(|level| Self { index: 0, ..level })
    }

    fn hash(&self, index: usize) -> u32 {
        le32(self.block.bytes(), self.at + index * 8)
    }

    /// The directory's block that the entry leads to.
    fn child(&self) -> u64 {
        u64::from(le32(self.block.bytes(), self.at + self.index * 8 + 4) & 0x0FFF_FFFF)
    }

    /// Goes on to the next entry, if it continues `hash`.
    fn advance(&mut self, hash: u32) -> Next {
        if self.index + 1 >= self.count {
            return Next::End;
        }
        self.index += 1;
        if self.hash(self.index) & !1 == hash { Next::Continues } else { Next::Beyond }
    }
}

enum Next {
    Continues,
    Beyond,
    End,
}

/// Looks a name up in a directory that says it is hashed; `hashed` is what its hash is of: the name itself, or what it folds to.
pub(super) fn lookup(file_system: &Ext4, inode: &Inode, hashed: &[u8], name: &[u8]) -> Result<Answer, TreeError> {
    let superblock = &file_system.superblock;
    let block_count = inode.size_bytes / u64::from(superblock.block_bytes);
    let Some(root) = file_system.directory_block(inode, 0)? else { return Ok(Answer::Unusable) };
    let bytes = root.bytes();
    let Some((kind, sign)) = hash::Kind::from_version(u8_at(bytes, 28)) else { return Ok(Answer::Unusable) };
    let depth = usize::from(u8_at(bytes, 30));
    let depth_max = if superblock.has_incompat(incompat::LARGEDIR) { 2 } else { 1 };
    if hashes_at(bytes) != Some(32) || depth > depth_max {
        return Ok(Answer::Unusable);
    }
    let sign = match sign.or(superblock.hash_bytes) {
        Some(sign) => sign,
        // Nobody wrote down what kind of machine made it, and only for such names it matters.
        None if !hashed.is_ascii() => return Ok(Answer::Unusable),
        None => hash::Bytes::Signed,
    };
    let hash = hash::of(kind, sign, superblock.hash_seed, hashed);

    let Some(top) = Level::new(root, hash) else { return Ok(Answer::Unusable) };
    let mut levels = vec![top];
    // Every turn reads one block, and a directory has no more than this.
    for _ in 0..file_system.limits.directory_bytes_max / u64::from(superblock.block_bytes) {
        // Down to the block of names; `levels` holds at most three tables.
        while levels.len() <= depth {
            let Some(child) = levels.last().map(Level::child).filter(|&child| child < block_count) else {
                return Ok(Answer::Unusable);
            };
            let Some(block) = file_system.directory_block(inode, child)? else { return Ok(Answer::Unusable) };
            // A table that is reached by going on is entered at its beginning, which continues the hash as well.
            let continued = levels.last().is_some_and(|level| level.index > 0 && level.hash(level.index) > hash);
            let level = if continued { Level::first(block) } else { Level::new(block, hash) };
            let Some(level) = level.filter(|level| level.at == 8) else { return Ok(Answer::Unusable) };
            levels.push(level);
        }
        let Some(leaf) = levels.last().map(Level::child).filter(|&leaf| leaf != 0 && leaf < block_count) else {
            return Ok(Answer::Unusable);
        };
        let Some(block) = file_system.directory_block(inode, leaf)? else { return Ok(Answer::Unusable) };
        if let Some(number) = file_system.find(inode, Part::of(&block), name)? {
            return Ok(Answer::Inode(number));
        }
        // Names of one hash may fill more than one block.
        loop {
            let Some(level) = levels.last_mut() else { return Ok(Answer::Missing) };
            match level.advance(hash) {
                Next::Continues => break,
                Next::Beyond => return Ok(Answer::Missing),
                Next::End => {
                    levels.pop();
                }
            }
        }
    }
    let limit = file_system.limits.directory_bytes_max;
    Err(TreeError::OverLimit { what: "bytes of a directory", limit })
}
