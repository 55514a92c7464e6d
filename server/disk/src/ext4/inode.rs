//! Inodes: what a file is, without its content.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/inodes.rst`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dormouse_files::{
    meta::{FileType, Meta, Time},
    tree::TreeError,
};

use super::{
    Ext4,
    blocks::Block,
    cache::Cache,
    checksum::crc32c,
    corrupt,
    fields::{join, le16, le32},
    superblock::incompat,
    xattr,
};

/// The root directory's number.
pub(crate) const ROOT: u32 = 2;

/// Bits of `i_flags`.
pub(crate) mod flag {
    pub(crate) const ENCRYPT: u32 = 0x800;
    pub(crate) const INDEX: u32 = 0x1000;
    pub(crate) const EXTENTS: u32 = 0x8_0000;
    pub(crate) const EA_INODE: u32 = 0x20_0000;
    pub(crate) const INLINE_DATA: u32 = 0x1000_0000;
    pub(crate) const CASEFOLD: u32 = 0x4000_0000;
}

/// Bytes of the first form of an inode; what is beyond is described by `i_extra_isize`.
const FIRST_FORM_BYTES: usize = 128;

/// Whether an inode's own checksum is to be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    Asked,
    /// Its bytes were verified by another one.
    Held,
}

/// What holds the bytes of an inode.
enum Holder<'a> {
    Table(&'a [u8]),
    Block(Arc<Block>),
}

impl Holder<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Table(bytes) => bytes,
            Self::Block(block) => block.bytes(),
        }
    }
}

/// Inodes of directories that were read and checked, by their numbers.
pub(crate) struct Inodes(Cache<Arc<Inode>>);

impl Inodes {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Cache::new(bytes_max))
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// An inode that was read and checked.
pub(crate) struct Inode {
    pub(crate) number: u32,
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size_bytes: u64,
    pub(crate) link_count: u32,
    pub(crate) flags: u32,
    pub(crate) modify_time: Time,
    pub(crate) change_time: Time,
    /// `i_block`: extents, block numbers, a short link's target or the first inline bytes.
    pub(crate) map: [u8; 60],
    /// The block of its extended attributes; 0: none.
    pub(crate) xattr_block: u64,
    /// What the checksums of its own blocks start from.
    pub(crate) checksum_seed: u32,
    /// What follows the fixed fields, where it holds attributes; else empty.
    tail: Box<[u8]>,
    /// Where its first block lies, once that was asked for; 0: it was not, or lies nowhere.
    first_block: AtomicU64,
}

impl Inode {
    /// What follows the fixed fields: the attributes that are kept in the inode itself.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.tail.len()
    }

    /// Where a directory's first block lies, found out once: every lookup begins there, and what fast commits say does not
    /// move it.
    pub(crate) fn first_block(
        &self,
        find: impl FnOnce() -> Result<Option<u64>, TreeError>,
    ) -> Result<Option<u64>, TreeError> {
        // A number is all there is to it, so nothing is ordered by it.
        match self.first_block.load(Ordering::Relaxed) {
            0 => {
                let found = find()?;
                self.first_block.store(found.unwrap_or(0), Ordering::Relaxed);
                Ok(found)
            }
            known => Ok(Some(known)),
        }
    }

    pub(crate) fn has(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    pub(crate) fn meta(&self) -> Meta {
        Meta {
            kind: self.kind,
            size_bytes: self.size_bytes,
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            link_count: self.link_count,
            modify_time: self.modify_time,
            change_time: self.change_time,
            inode: u64::from(self.number),
        }
    }

    /// That a name may lead to it.
    fn check_named(&self) -> Result<(), TreeError> {
        if self.link_count == 0 {
            return Err(self.corrupt("named, but unlinked"));
        }
        if self.has(flag::EA_INODE) {
            return Err(self.corrupt("named, but the value of an extended attribute"));
        }
        Ok(())
    }

    /// An error about this inode.
    pub(crate) fn corrupt(&self, what: &str) -> TreeError {
        corrupt(format!("inode {}: {what}", self.number))
    }
}

impl Ext4 {
    /// Reads an inode that a directory names, or the root.
    ///
    /// # Errors
    /// `Corrupt` for a number that no name may lead to, an unused inode, a checksum that does not hold.
    pub(crate) fn named_inode(&self, number: u32) -> Result<Arc<Inode>, TreeError> {
        self.check_number(number)?;
        let inode = self.inode(number)?;
        inode.check_named()?;
        Ok(inode)
    }

    /// The same of an inode that is not kept, and not likely to be.
    pub(crate) fn new_named_inode(&self, number: u32) -> Result<Inode, TreeError> {
        self.check_number(number)?;
        let inode = self.new_inode(number)?;
        inode.check_named()?;
        Ok(inode)
    }

    fn check_number(&self, number: u32) -> Result<(), TreeError> {
        if number != ROOT && number < self.superblock.first_inode {
            return Err(corrupt(format!("a name leads to the reserved inode {number}")));
        }
        Ok(())
    }

    /// Reads any inode, the reserved ones too.
    pub(crate) fn inode(&self, number: u32) -> Result<Arc<Inode>, TreeError> {
        if let Some(inode) = self.inodes.0.get(u64::from(number), |inode| Some(Arc::clone(inode))) {
            return Ok(inode);
        }
        let inode = Arc::new(self.new_inode(number)?);
        // Of other files the names know; only directories are asked for by their numbers again and again.
        if inode.kind == FileType::Directory {
            self.inodes.0.put(u64::from(number), Arc::clone(&inode), inode.held_bytes());
        }
        Ok(inode)
    }

    fn new_inode(&self, number: u32) -> Result<Inode, TreeError> {
        match self.changes.as_ref().and_then(|changes| changes.inodes.get(&number)) {
            // It was put together from a fast commit, which has a checksum of its own.
            Some(bytes) => self.parse_inode(number, bytes, Sum::Held),
            None => self.inode_in_blocks(number),
        }
    }

    /// An inode as the blocks have it, whatever fast commits say.
    pub(crate) fn inode_in_blocks(&self, number: u32) -> Result<Inode, TreeError> {
        let (holder, start) = self.inode_place(number)?;
        let raw = holder.bytes().get(start..start + self.superblock.inode_bytes as usize);
        let raw = raw.ok_or_else(|| corrupt(format!("inode {number} lies across a block's end")))?;
        self.parse_inode(number, raw, Sum::Asked)
    }

    /// The bytes of an inode, used or not.
    pub(crate) fn inode_bytes(&self, number: u32) -> Result<Vec<u8>, TreeError> {
        let (holder, start) = self.inode_place(number)?;
        let bytes = holder.bytes().get(start..start + self.superblock.inode_bytes as usize);
        Ok(bytes.unwrap_or_default().to_vec())
    }

    fn inode_place(&self, number: u32) -> Result<(Holder<'_>, usize), TreeError> {
        let superblock = &self.superblock;
        if number == 0 || number > superblock.inode_count {
            return Err(corrupt(format!("there is no inode {number}")));
        }
        let (group, index) = ((number - 1) / superblock.inodes_per_group, (number - 1) % superblock.inodes_per_group);
        // At most 2^19 inodes of at most 2^16 bytes.
        let place = u64::from(index) * u64::from(superblock.inode_bytes);
        if let Some(whole) = self.tables.whole(group) {
            return Ok((Holder::Table(whole), place as usize));
        }
        let table = self.inode_table(group)?;
        let size = u64::from(superblock.block_bytes);
        let whole = (u64::from(superblock.inodes_per_group) * u64::from(superblock.inode_bytes)).div_ceil(size);
        let end = table
            .checked_add(whole)
            .ok_or_else(|| corrupt(format!("inode {number}: its table lies outside the file system")))?;
        let block = table + place / size;
        let (holder, start) = self.blocks.metadata_of_run(block, table..end, &|window| {
            self.window_was_read(group, block, table..end, window);
        })?;
        Ok((Holder::Block(holder), start + (place % size) as usize))
    }

    fn parse_inode(&self, number: u32, raw: &[u8], sum: Sum) -> Result<Inode, TreeError> {
        let length = self.superblock.inode_bytes as usize;
        if raw.len() != length {
            return Err(corrupt(format!("inode {number} lies across a block's end")));
        }
        let extra = if length > FIRST_FORM_BYTES { usize::from(le16(raw, 0x80)) } else { 0 };
        if extra > length - FIRST_FORM_BYTES || !extra.is_multiple_of(4) {
            return Err(corrupt(format!("inode {number}: extra size")));
        }
        // The inode's number and its generation.
        let identity = u64::from(number) | u64::from(le32(raw, 0x64)) << 32;
        let checksum_seed = crc32c(self.superblock.checksum_seed, &identity.to_le_bytes());
        let summed = sum == Sum::Asked && self.superblock.summed() && self.superblock.made_by_linux;
        if summed && !sum_holds(checksum_seed, raw, extra) {
            return Err(corrupt(format!("inode {number}: checksum")));
        }
        let mode = u32::from(le16(raw, 0));
        let kind = FileType::from_mode(mode).ok_or_else(|| corrupt(format!("inode {number}: no file type")))?;
        let large = kind == FileType::Regular
            || kind == FileType::Directory && self.superblock.has_incompat(incompat::LARGEDIR);
        let size_bytes = join(le32(raw, 0x04), if large { le32(raw, 0x6C) } else { 0 });
        if size_bytes > i64::MAX as u64 {
            return Err(corrupt(format!("inode {number}: size")));
        }
        let halves = |low, high| u32::from(le16(raw, low)) | u32::from(le16(raw, high)) << 16;
        let time =
            |base, field| time(number, le32(raw, base), if 4 + field - 0x84 <= extra { le32(raw, field) } else { 0 });
        let wide = self.superblock.has_incompat(incompat::BIT64);
        let tail = if length > FIRST_FORM_BYTES { raw.get(FIRST_FORM_BYTES + extra..) } else { None };
        let tail = tail.filter(|tail| le32(tail, 0) == xattr::MAGIC).unwrap_or_default();
        Ok(Inode {
            number,
            kind,
            mode,
            uid: halves(0x02, 0x78),
            gid: halves(0x18, 0x7A),
            size_bytes,
            link_count: u32::from(le16(raw, 0x1A)),
            flags: le32(raw, 0x20),
            change_time: time(0x0C, 0x84)?,
            modify_time: time(0x10, 0x88)?,
            map: raw.get(0x28..0x64).and_then(|field| field.try_into().ok()).unwrap_or([0; 60]),
            xattr_block: join(le32(raw, 0x68), if wide { u32::from(le16(raw, 0x76)) } else { 0 }),
            checksum_seed,
            tail: tail.into(),
            first_block: AtomicU64::new(0),
        })
    }
}

/// Where a directory's first block may lie, from an inode that was not checked; nothing of other files, and where a look at
/// the inode alone does not tell.
pub(super) fn directory_start(raw: &[u8]) -> Option<u64> {
    let (mode, flags, map) = (le16(raw, 0), le32(raw, 0x20), raw.get(0x28..0x64)?);
    if FileType::from_mode(u32::from(mode)) != Some(FileType::Directory) || flags & flag::INLINE_DATA != 0 {
        return None;
    }
    if flags & flag::EXTENTS == 0 {
        return Some(u64::from(le32(map, 0)));
    }
    // One level, and at least one extent.
    let leaf = le16(map, 0) == 0xF30A && le16(map, 2) > 0 && le16(map, 6) == 0;
    leaf.then(|| join(le32(map, 20), u32::from(le16(map, 18))))
}

/// Seconds are signed; two bits of the extra field carry them to the year 2446, the other thirty are nanoseconds.
fn time(number: u32, base: u32, extra: u32) -> Result<Time, TreeError> {
    let nanoseconds = extra >> 2;
    if nanoseconds > 999_999_999 {
        return Err(corrupt(format!("inode {number}: nanoseconds")));
    }
    Ok(Time { seconds: i64::from(base as i32) + (i64::from(extra & 3) << 32), nanoseconds })
}

/// The checksum's two halves count as zero; the high one is there only where the extra fields reach it.
fn sum_holds(seed: u32, raw: &[u8], extra: usize) -> bool {
    let wide = raw.len() > FIRST_FORM_BYTES && extra >= 4;
    // One pass over a copy, which for inodes of the usual size is much quicker than a sum in five pieces.
    let mut held = [0; 256];
    let mut heap;
    let summed = match held.get_mut(..raw.len()) {
        Some(held) => held,
        None => {
            heap = vec![0; raw.len()];
            &mut heap[..]
        }
    };
    summed.copy_from_slice(raw);
    for (at, counts) in [(0x7C, true), (0x82, wide)] {
        if let Some(half) = summed.get_mut(at..at + 2).filter(|_| counts) {
            half.fill(0);
        }
    }
    let sum = crc32c(seed, summed);
    if wide {
        return sum == u32::from(le16(raw, 0x7C)) | u32::from(le16(raw, 0x82)) << 16;
    }
    sum as u16 == le16(raw, 0x7C)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_tells_where_a_directory_begins() {
        let check = |mode: u16, flags: u32, map: &[u8], expect| {
            let mut raw = [0; 128];
            raw[..2].copy_from_slice(&mode.to_le_bytes());
            raw[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
            raw[0x28..0x28 + map.len()].copy_from_slice(map);
            assert_eq!(directory_start(&raw), expect, "{mode:o} {flags:x} {map:?}");
        };
        let mut leaf = [0x0A, 0xF3, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 7, 0, 0, 0];
        check(0o40755, flag::EXTENTS, &leaf, Some(7 | 2 << 32));
        check(0o100644, flag::EXTENTS, &leaf, None);
        check(0, flag::EXTENTS, &leaf, None);
        check(0o40755, flag::EXTENTS | flag::INLINE_DATA, &leaf, None);
        check(0o40755, 0, &[9], Some(9));
        leaf[6] = 1;
        check(0o40755, flag::EXTENTS, &leaf, None);
        leaf[6] = 0;
        leaf[2] = 0;
        check(0o40755, flag::EXTENTS, &leaf, None);
        assert_eq!(directory_start(&[0xED, 0x41]), None);
    }

    #[test]
    fn times_reach_from_1901_to_2446() {
        let check = |base: u32, extra: u32, seconds: i64, nanoseconds: u32| {
            assert_eq!(time(12, base, extra).unwrap(), Time { seconds, nanoseconds });
        };
        check(0, 0, 0, 0);
        check(0x8000_0000, 0, -2_147_483_648, 0);
        check(u32::MAX, 999_999_999 << 2, -1, 999_999_999);
        check(0x8000_0000, 1, 2_147_483_648, 0);
        check(0x7FFF_FFFF, 3, 15_032_385_535, 0);
        assert!(time(12, 0, 1_000_000_000 << 2).is_err());
    }
}
