//! Block groups: where a group's inode table lies.
//!
//! Descriptors are read when they are needed, through the journal's overlay, so no table is sized by the disk. Source:
//! the kernel's `Documentation/filesystems/ext4/group_descr.rst` and `blockgroup.rst` (meta block groups).

use std::{
    cell::Cell,
    cmp::Ordering::{Equal, Greater, Less},
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering},
    },
};

use dormouse_files::tree::TreeError;
use dormouse_map::Pages;

use super::{
    Ext4,
    blocks::Role,
    checksum::{crc16, crc32c},
    corrupt,
    fields::{join, le16, le32},
    inode,
    superblock::{Superblock, incompat, ro_compat},
};

/// Groups whose tables are remembered.
const TABLE_COUNT_MAX: u64 = 1_024;
/// Bits of a word that hold where a table begins. Block numbers are as wide, as extents and descriptors have them.
const TABLE_BITS: u32 = 48;

/// Reads of a table after which all of it is likely to be asked for.
const WINDOW_COUNT_FEW: u16 = 4;

/// Bytes of a table that is read at once: twice what one usually has.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// Directories that are announced for one window and its neighbours: each is a system call, and an image says how many there
/// are.
const ANNOUNCED_COUNT_MAX: usize = 256;

/// How much of a table was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Little,
    /// So much that all of it may be, for the first time.
    FirstMuch,
    Much,
}

/// Where the inode tables of some groups begin: asked for with every inode.
pub(crate) struct Tables {
    /// A table's place below, and above it which of the groups that share the word it is of, counted from 1.
    words: Box<[AtomicU64]>,
    /// How often a window of one of these groups' tables was read.
    reads: Box<[AtomicU16]>,
    /// Tables that were read at once: one at most for the groups that share a word, the first for which it was done.
    whole: Box<[OnceLock<Box<Whole>>]>,
    /// Bytes that are left for them.
    left_bytes: AtomicUsize,
    bytes_max: usize,
}

/// All of a group's inode table.
struct Whole {
    group: u32,
    bytes: Pages,
}

impl Tables {
    /// Tables that are held whole have at most `bytes_max` bytes.
    pub(crate) fn new(superblock: &Superblock, bytes_max: usize) -> Self {
        Self::of(superblock.group_count.clamp(1, TABLE_COUNT_MAX) as usize, bytes_max)
    }

    fn of(count: usize, bytes_max: usize) -> Self {
        Self {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
            reads: (0..count).map(|_| AtomicU16::new(0)).collect(),
            whole: (0..count).map(|_| OnceLock::new()).collect(),
            left_bytes: AtomicUsize::new(bytes_max),
            bytes_max,
        }
    }

    /// All of a group's table, where it was read at once.
    pub(super) fn whole(&self, group: u32) -> Option<&[u8]> {
        let whole = self.whole[group as usize % self.whole.len()].get()?;
        (whole.group == group).then_some(&*whole.bytes)
    }

    /// Reads all of a group's table, if there is room for it.
    fn keep_whole(&self, group: u32, byte_count: usize, read: impl FnOnce(&mut [u8]) -> bool) -> Option<&[u8]> {
        let held_bytes = Pages::held_bytes(byte_count);
        let take = |left: usize| left.checked_sub(held_bytes);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        let whole = Pages::new(byte_count).ok().and_then(|mut bytes| {
            let slot = &self.whole[group as usize % self.whole.len()];
            read(&mut bytes).then(|| slot.set(Box::new(Whole { group, bytes })).ok()).flatten()
        });
        if whole.is_none() {
            self.left_bytes.fetch_add(held_bytes, Ordering::Relaxed);
        }
        self.whole(group)
    }

    /// Counts a read of a window of a group's table.
    fn count(&self, group: u32) -> Asked {
        let reads = &self.reads[group as usize % self.reads.len()];
        // It stops short of its range's end by far more than there are threads.
        let before = match reads.load(Ordering::Relaxed) {
            enough if enough > u16::MAX / 2 => enough,
            _ => reads.fetch_add(1, Ordering::Relaxed),
        };
        match before.saturating_add(1).cmp(&WINDOW_COUNT_FEW) {
            Less => Asked::Little,
            Equal => Asked::FirstMuch,
            Greater => Asked::Much,
        }
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let places = size_of_val(&*self.words) + size_of_val(&*self.reads) + size_of_val(&*self.whole);
        places + self.bytes_max.saturating_sub(self.left_bytes.load(Ordering::Relaxed))
    }

    fn word(&self, group: u32) -> (&AtomicU64, u64) {
        let count = self.words.len();
        (&self.words[group as usize % count], (group as usize / count) as u64 + 1)
    }

    fn get(&self, group: u32) -> Option<u64> {
        let (word, turn) = self.word(group);
        // A word says all that is needed, so nothing is ordered by it.
        let word = word.load(Ordering::Relaxed);
        (word >> TABLE_BITS == turn).then_some(word & ((1 << TABLE_BITS) - 1))
    }

    fn put(&self, group: u32, table: u64) {
        let (word, turn) = self.word(group);
        // What does not fit is found anew each time.
        if table >> TABLE_BITS == 0 && turn >> (u64::BITS - TABLE_BITS) == 0 {
            word.store(turn << TABLE_BITS | table, Ordering::Relaxed);
        }
    }
}

/// The block that holds the `index`th block of descriptors.
fn descriptor_block(superblock: &Superblock, index: u64) -> u64 {
    let meta = superblock.has_incompat(incompat::META_BG) && index >= u64::from(superblock.first_meta_group);
    if !meta {
        return superblock.own_block() + 1 + index;
    }
    let per_block = u64::from(superblock.block_bytes / superblock.descriptor_bytes);
    let group = index.saturating_mul(per_block);
    let mut skip = u64::from(superblock.has_backup(group));
    if superblock.block_bytes == 1024 && index == 0 && superblock.first_data_block == 0 {
        // The boot block comes before the superblock here.
        skip += 1;
    }
    group
        .saturating_mul(u64::from(superblock.blocks_per_group))
        .saturating_add(superblock.first_data_block)
        .saturating_add(skip)
}

fn checksum(superblock: &Superblock, group: u32, descriptor: &[u8]) -> Option<u16> {
    let (head, tail) = (descriptor.get(..0x1E)?, descriptor.get(0x20..)?);
    if superblock.summed() {
        let sum = crc32c(superblock.checksum_seed, &group.to_le_bytes());
        // Its own field counts as zero.
        let sum = crc32c(crc32c(crc32c(sum, head), &[0; 2]), tail);
        return Some(sum as u16);
    }
    if superblock.has_ro_compat(ro_compat::GDT_CSUM) {
        let sum = crc16(crc16(!0, &superblock.uuid), &group.to_le_bytes());
        return Some(crc16(crc16(sum, head), tail));
    }
    None
}

impl Ext4 {
    /// Is told of a window of a group's inode table that was read for `block`, and reads ahead where much of the table is
    /// asked for: the table itself, into the system's memory at least, and where a device would be waited for block by
    /// block, the window's neighbours and the first blocks of the directories in them.
    pub(super) fn window_was_read(&self, group: u32, block: u64, table: Range<u64>, window: &[u8]) {
        let asked = self.tables.count(group);
        if asked == Asked::FirstMuch {
            if let Some(whole) = self.whole_table(group, &table) {
                if self.blocks.are_fresh() {
                    self.announce_directories(whole, &Cell::new(ANNOUNCED_COUNT_MAX));
                }
                return;
            }
            self.blocks.will_need(table.start, table.end - table.start);
        }
        if asked == Asked::Little || !self.blocks.are_fresh() {
            return;
        }
        let left = Cell::new(ANNOUNCED_COUNT_MAX);
        self.announce_directories(window, &left);
        for neighbour in self.blocks.neighbours(block, &table) {
            let announce = |window: &[u8]| self.announce_directories(window, &left);
            let read = self.blocks.metadata_of_run(neighbour, table.clone(), &announce);
            if read.is_err() {
                // Whoever asks for it is told.
                return;
            }
        }
    }

    fn whole_table(&self, group: u32, table: &Range<u64>) -> Option<&[u8]> {
        let count = table.end.checked_sub(table.start).filter(|&count| self.blocks.contain(table.start, count))?;
        let byte_count = count.checked_mul(u64::from(self.superblock.block_bytes));
        let byte_count = byte_count.filter(|&byte_count| byte_count <= TABLE_BYTES_MAX)?;
        let read = |bytes: &mut [u8]| self.blocks.read(table.start, 0, bytes).is_ok();
        self.tables.keep_whole(group, usize::try_from(byte_count).ok()?, read)
    }

    /// Nothing is believed of these inodes: what they say is only read ahead, of so many at the most.
    fn announce_directories(&self, window: &[u8], left: &Cell<usize>) {
        let inodes = window.chunks_exact(self.superblock.inode_bytes as usize);
        for block in inodes.filter_map(inode::directory_start).take(left.get()) {
            left.set(left.get() - 1);
            self.blocks.will_need(block, 1);
        }
    }

    /// The first block of a group's inode table.
    pub(crate) fn inode_table(&self, group: u32) -> Result<u64, TreeError> {
        if let Some(table) = self.tables.get(group) {
            return Ok(table);
        }
        let superblock = &self.superblock;
        if u64::from(group) >= superblock.group_count {
            return Err(corrupt(format!("there is no block group {group}")));
        }
        let bytes = superblock.descriptor_bytes;
        let per_block = superblock.block_bytes / bytes;
        let block = self.blocks.metadata(descriptor_block(superblock, u64::from(group / per_block)))?;
        let at = (group % per_block * bytes) as usize;
        let descriptor = block.bytes().get(at..at + bytes as usize).unwrap_or_default();
        block.verify_once(Role::Descriptors, group, |_| {
            match checksum(superblock, group, descriptor).is_some_and(|sum| sum != le16(descriptor, 0x1E)) {
                true => Err(corrupt(format!("group descriptor {group}: checksum"))),
                false => Ok(()),
            }
        })?;
        // Only descriptors of 64 bytes and more have high halves; of shorter ones the field reads as zero.
        let table = join(le32(descriptor, 0x08), le32(descriptor, 0x28));
        self.tables.put(group, table);
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_one_word_do_not_take_each_other_for_their_own() {
        let tables = Tables::of(4, 0);
        assert_eq!(tables.get(0), None);
        tables.put(3, 17);
        tables.put(0, (1 << 48) - 1);
        assert_eq!([0, 3, 4, 7].map(|group| tables.get(group)), [Some((1 << 48) - 1), Some(17), None, None]);
        tables.put(7, 18);
        assert_eq!([3, 7].map(|group| tables.get(group)), [None, Some(18)]);
        // Neither a table nor a group that has no room in a word is remembered, or taken for another.
        tables.put(7, 1 << 48);
        tables.put(u32::MAX, 19);
        assert_eq!([7, u32::MAX].map(|group| tables.get(group)), [Some(18), None]);
    }

    #[test]
    fn tables_are_held_whole_within_a_bound() {
        let tables = Tables::of(4, 10_000);
        let before = tables.held_bytes();
        let fill = |with: u8| {
            move |bytes: &mut [u8]| {
                bytes.fill(with);
                true
            }
        };
        assert_eq!(tables.keep_whole(1, 10_001, fill(1)), None);
        assert_eq!(tables.keep_whole(1, 60, |_| false), None);
        assert_eq!(tables.keep_whole(1, 60, fill(2)), Some(&[2; 60][..]));
        assert_eq!(tables.keep_whole(2, 6_000, fill(3)), None);
        // Another group of the same word, and the same one again.
        assert_eq!(tables.keep_whole(5, 30, fill(4)), None);
        assert_eq!(tables.keep_whole(1, 30, fill(5)), Some(&[2; 60][..]));
        assert_eq!((tables.whole(1), tables.whole(5)), (Some(&[2; 60][..]), None));
        assert_eq!(tables.held_bytes() - before, 4_096);
    }

    #[test]
    fn much_is_asked_of_a_table_for_the_first_time_once() {
        let tables = Tables::of(4, 0);
        let asked: Vec<Asked> = (0..6).map(|_| tables.count(1)).collect();
        assert_eq!(asked, [Asked::Little, Asked::Little, Asked::Little, Asked::FirstMuch, Asked::Much, Asked::Much]);
        assert_eq!(tables.count(2), Asked::Little);
        assert!((0..100_000).all(|_| tables.count(1) == Asked::Much));
    }
}
