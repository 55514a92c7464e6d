//! ext2, ext3 and ext4, read-only.
//!
//! One file for each on-disk idea. All of them read through [`blocks::Blocks`], which lays the replayed journal over the
//! disk, and none of them trusts a number that it has not checked. The facts come from the kernel's
//! `Documentation/filesystems/ext4/`.

pub(crate) mod ahead;
pub(crate) mod blocks;
mod cache;
pub(crate) mod casefold;
pub(crate) mod checksum;
pub(crate) mod directory;
pub(crate) mod extents;
pub(crate) mod fields;
pub(crate) mod group;
pub(crate) mod hash;
pub(crate) mod htree;
pub(crate) mod index;
pub(crate) mod indirect;
pub(crate) mod inline;
pub(crate) mod inode;
pub(crate) mod journal;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod overlay;
pub(crate) mod run;
pub(crate) mod superblock;
pub(crate) mod tree;
pub(crate) mod xattr;

use std::sync::Arc;

use dormouse_files::tree::TreeError;

use self::{
    ahead::Ahead,
    blocks::Blocks,
    group::Tables,
    inode::Inodes,
    journal::Changes,
    names::Names,
    superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock},
};
use crate::{BlockSource, DiskLimits};

/// An ext4 file system that is open.
pub(crate) struct Ext4 {
    pub(crate) superblock: Superblock,
    pub(crate) blocks: Blocks,
    tables: Tables,
    inodes: Inodes,
    names: Names,
    ahead: Ahead,
    pub(crate) limits: DiskLimits,
    /// What fast commits say, asked before the blocks.
    pub(crate) changes: Option<Changes>,
}

impl Ext4 {
    /// `superblock` as it was read from `source`, with nothing of the journal over it.
    pub(crate) fn new(source: Arc<dyn BlockSource>, superblock: Superblock, limits: &DiskLimits) -> Self {
        let blocks = Blocks::new(source, &superblock, limits);
        let tables = Tables::new(&superblock, limits.table_bytes_max);
        let (inodes, names) = (Inodes::new(limits.inode_bytes_max), Names::new(limits.name_bytes_max));
        let ahead = Ahead::new(limits.ahead_bytes_max);
        Self { superblock, blocks, tables, inodes, names, ahead, limits: limits.clone(), changes: None }
    }

    /// Bytes of memory that it holds, which grow while it is read, up to the bounds of its limits.
    pub(crate) fn held_bytes(&self) -> usize {
        let metadata = self.blocks.held_bytes() + self.tables.held_bytes() + self.inodes.held_bytes();
        metadata + self.names.held_bytes() + self.ahead.held_bytes()
    }

    /// Lets go what was read ahead for calls that are over.
    pub(crate) fn forget_content(&self) {
        self.ahead.forget();
        self.blocks.forget_content();
    }

    /// What was found out before the journal was laid over the disk may be older.
    fn forget(&mut self) {
        self.tables = Tables::new(&self.superblock, self.limits.table_bytes_max);
        self.inodes = Inodes::new(self.limits.inode_bytes_max);
        self.names = Names::new(self.limits.name_bytes_max);
    }

    /// Lays the journal over the disk, and takes what it says of the file system itself.
    pub(crate) fn replay(&mut self) -> Result<(), TreeError> {
        let replayed = journal::replay(self)?;
        self.blocks.lay_over(replayed.overlay);
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let within = SUPERBLOCK_OFFSET % u64::from(self.superblock.block_bytes);
        self.blocks.read(self.superblock.own_block(), within, &mut bytes)?;
        let superblock = Superblock::parse(&bytes, self.blocks.disk_bytes())?;
        if superblock.block_bytes != self.superblock.block_bytes {
            return Err(corrupt("journal: another block size"));
        }
        self.superblock = superblock;
        self.blocks.bound(&self.superblock);
        self.forget();
        if let Some(next) = replayed.next {
            self.changes = journal::fast_commits(self, next)?;
            self.forget();
        }
        Ok(())
    }
}

/// A structure that does not hold what it must.
pub(crate) fn corrupt(what: impl Into<String>) -> TreeError {
    TreeError::Corrupt { what: what.into() }
}
