//! The superblock: what the rest of the file system means.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/super.rst`.

use dormouse_files::tree::TreeError;

use super::{
    checksum::crc32c,
    fields::{join, le16, le32, u8_at},
    hash::Bytes,
};

/// Bytes from the start of the file system.
pub(crate) const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub(crate) const SUPERBLOCK_BYTES: usize = 1024;

/// Features without which the file system cannot be read at all (`s_feature_incompat`).
pub(crate) mod incompat {
    pub(crate) const FILETYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const META_BG: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const BIT64: u32 = 0x80;
    pub(crate) const MMP: u32 = 0x100;
    pub(crate) const FLEX_BG: u32 = 0x200;
    pub(crate) const EA_INODE: u32 = 0x400;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    pub(crate) const LARGEDIR: u32 = 0x4000;
    pub(crate) const INLINE_DATA: u32 = 0x8000;
    pub(crate) const ENCRYPT: u32 = 0x1_0000;
    pub(crate) const CASEFOLD: u32 = 0x2_0000;
    pub(super) const KNOWN: u32 = FILETYPE
        | RECOVER
        | META_BG
        | EXTENTS
        | BIT64
        | MMP
        | FLEX_BG
        | EA_INODE
        | CSUM_SEED
        | LARGEDIR
        | INLINE_DATA
        | ENCRYPT
        | CASEFOLD;
    /// Names of those that are not read here.
    pub(super) const NAMED: [(u32, &str); 3] = [(0x1, "compression"), (0x8, "journal_dev"), (0x1000, "dirdata")];
}

/// Features without which it can still be read (`s_feature_ro_compat`).
pub(crate) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const BIGALLOC: u32 = 0x200;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
}

/// Features that concern only writers (`s_feature_compat`).
pub(crate) mod compat {
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    pub(crate) const DIR_INDEX: u32 = 0x20;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
}

/// What a superblock says, checked.
#[derive(Debug, Clone)]
pub(crate) struct Superblock {
    pub(crate) inode_count: u32,
    pub(crate) block_count: u64,
    pub(crate) first_data_block: u64,
    /// 1,024 to 65,536.
    pub(crate) block_bytes: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) group_count: u64,
    pub(crate) inode_bytes: u32,
    pub(crate) first_inode: u32,
    pub(crate) descriptor_bytes: u32,
    pub(crate) first_meta_group: u32,
    pub(crate) backup_groups: [u32; 2],
    pub(crate) compat: u32,
    pub(crate) incompat: u32,
    pub(crate) ro_compat: u32,
    pub(crate) made_by_linux: bool,
    pub(crate) uuid: [u8; 16],
    pub(crate) journal_inode: u32,
    pub(crate) journal_device: u32,
    pub(crate) hash_seed: [u32; 4],
    /// How directory hashes take bytes above 127 (`s_flags`); nothing where nobody wrote it down.
    pub(crate) hash_bytes: Option<Bytes>,
    pub(crate) checksum_seed: u32,
}

fn corrupt(what: &str) -> TreeError {
    TreeError::Corrupt { what: format!("superblock: {what}") }
}

fn unavailable(what: impl Into<String>) -> TreeError {
    TreeError::Unavailable { what: what.into() }
}

/// Whether the magic number of ext2, ext3 and ext4 is there.
pub(crate) fn is_ext4(bytes: &[u8]) -> bool {
    le16(bytes, 0x38) == 0xEF53
}

impl Superblock {
    /// Reads the 1,024 bytes of a superblock; `disk_bytes` is the length of what holds the file system.
    ///
    /// # Errors
    /// `Unavailable` with the feature's name where one is not known here, `Corrupt` where the numbers cannot be true.
    pub(crate) fn parse(bytes: &[u8], disk_bytes: u64) -> Result<Self, TreeError> {
        if !is_ext4(bytes) {
            return Err(unavailable("unknown_file_system"));
        }
        let dynamic = le32(bytes, 0x4C) >= 1;
        let features = |at| if dynamic { le32(bytes, at) } else { 0 };
        let (compat, incompat, ro_compat) = (features(0x5C), features(0x60), features(0x64));
        // Before anything else is believed: an unknown feature may change the meaning of every other field.
        refuse_unknown(incompat)?;
        if ro_compat & ro_compat::METADATA_CSUM != 0 {
            if u8_at(bytes, 0x175) != 1 {
                return Err(unavailable("checksum_type"));
            }
            let summed = bytes.get(..0x3FC).ok_or_else(|| corrupt("too short"))?;
            if crc32c(!0, summed) != le32(bytes, 0x3FC) {
                return Err(corrupt("checksum"));
            }
        }
        let log_block = le32(bytes, 0x18);
        if log_block > 6 {
            return Err(corrupt("block size"));
        }
        let block_bytes = 1024_u32 << log_block;
        let cluster_shift = match ro_compat & ro_compat::BIGALLOC != 0 {
            true => le32(bytes, 0x1C).checked_sub(log_block).filter(|&shift| shift <= 20),
            false => Some(0),
        };
        let cluster_shift = cluster_shift.ok_or_else(|| corrupt("cluster size"))?;
        let wide = incompat & incompat::BIT64 != 0;
        let block_count = join(le32(bytes, 0x4), if wide { le32(bytes, 0x150) } else { 0 });
        let first_data_block = u64::from(le32(bytes, 0x14));
        let blocks_per_group = le32(bytes, 0x20);
        let inodes_per_group = le32(bytes, 0x28);
        let inode_bytes = if dynamic { u32::from(le16(bytes, 0x58)) } else { 128 };
        let bitmap_bits = block_bytes * 8;
        if blocks_per_group == 0 || u64::from(blocks_per_group) > u64::from(bitmap_bits) << cluster_shift {
            return Err(corrupt("blocks in a group"));
        }
        if inodes_per_group == 0 || inodes_per_group > bitmap_bits {
            return Err(corrupt("inodes in a group"));
        }
        if !inode_bytes.is_power_of_two() || inode_bytes < 128 || inode_bytes > block_bytes {
            return Err(corrupt("inode size"));
        }
        if first_data_block > 1 || first_data_block >= block_count {
            return Err(corrupt("first data block"));
        }
        // The kernel refuses to mount such a file system too.
        if block_count.checked_mul(u64::from(block_bytes)).is_none_or(|needed| needed > disk_bytes) {
            return Err(corrupt("larger than its disk"));
        }
        let descriptor_bytes = if wide { u32::from(le16(bytes, 0xFE)) } else { 32 };
        if wide && (!descriptor_bytes.is_power_of_two() || !(64..=1024).contains(&descriptor_bytes)) {
            return Err(corrupt("group descriptor size"));
        }
        let uuid: [u8; 16] = bytes.get(0x68..0x78).and_then(|field| field.try_into().ok()).unwrap_or_default();
        let checksum_seed = if incompat & incompat::CSUM_SEED != 0 { le32(bytes, 0x270) } else { crc32c(!0, &uuid) };
        Ok(Self {
            inode_count: le32(bytes, 0),
            block_count,
            first_data_block,
            block_bytes,
            blocks_per_group,
            inodes_per_group,
            group_count: (block_count - first_data_block).div_ceil(u64::from(blocks_per_group)),
            inode_bytes,
            first_inode: if dynamic { le32(bytes, 0x54).max(11) } else { 11 },
            descriptor_bytes,
            first_meta_group: le32(bytes, 0x104),
            backup_groups: [le32(bytes, 0x24C), le32(bytes, 0x250)],
            compat,
            incompat,
            ro_compat,
            made_by_linux: le32(bytes, 0x48) == 0,
            uuid,
            journal_inode: le32(bytes, 0xE0),
            journal_device: le32(bytes, 0xE4),
            hash_seed: [le32(bytes, 0xEC), le32(bytes, 0xF0), le32(bytes, 0xF4), le32(bytes, 0xF8)],
            hash_bytes: match le32(bytes, 0x160) & 3 {
                0 => None,
                1 => Some(Bytes::Signed),
                _ => Some(Bytes::Unsigned),
            },
            checksum_seed,
        })
    }

    pub(crate) fn has_compat(&self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    pub(crate) fn has_incompat(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    pub(crate) fn has_ro_compat(&self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// Whether metadata carries CRC-32C.
    pub(crate) fn summed(&self) -> bool {
        self.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    /// The block that holds the superblock: not the first data block where 1k blocks come with bigalloc.
    pub(crate) fn own_block(&self) -> u64 {
        SUPERBLOCK_OFFSET / u64::from(self.block_bytes)
    }

    /// Whether a group begins with a copy of the superblock.
    pub(crate) fn has_backup(&self, group: u64) -> bool {
        if group == 0 {
            return true;
        }
        if self.has_compat(compat::SPARSE_SUPER2) {
            return self.backup_groups.iter().any(|&backup| u64::from(backup) == group);
        }
        !self.has_ro_compat(ro_compat::SPARSE_SUPER)
            || group == 1
            || [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }
}

fn is_power_of(mut number: u64, base: u64) -> bool {
    while number.is_multiple_of(base) && number > 1 {
        number /= base;
    }
    number == 1
}

fn refuse_unknown(incompat: u32) -> Result<(), TreeError> {
    let unknown = incompat & !incompat::KNOWN;
    if unknown == 0 {
        return Ok(());
    }
    let name = incompat::NAMED.iter().find(|(bit, _)| unknown & bit != 0);
    Err(unavailable(match name {
        Some((_, name)) => (*name).to_owned(),
        None => format!("incompat_feature_{unknown:#x}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put32(bytes: &mut [u8], at: usize, value: u32) {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// 1k blocks, 8,192 of them, one group.
    fn plain() -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        for (at, value) in [(0, 2048), (4, 8192), (0x14, 1), (0x20, 8192), (0x28, 2048), (0x4C, 1), (0x58, 256)] {
            put32(&mut bytes, at, value);
        }
        bytes[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
        bytes
    }

    fn check(change: impl FnOnce(&mut Vec<u8>), expect: &str) {
        let mut bytes = plain();
        change(&mut bytes);
        let said = match Superblock::parse(&bytes, 8 << 20) {
            Ok(read) => format!("{} groups", read.group_count),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expect);
    }

    #[test]
    fn what_cannot_be_true_is_refused() {
        check(|_| (), "1 groups");
        check(|bytes| bytes[0x38] = 0, "not readable from here: unknown_file_system");
        check(|bytes| put32(bytes, 0x60, 0x1000), "not readable from here: dirdata");
        check(|bytes| put32(bytes, 0x60, 0x8), "not readable from here: journal_dev");
        check(|bytes| put32(bytes, 0x60, 0x4000_0000), "not readable from here: incompat_feature_0x40000000");
        check(|bytes| put32(bytes, 0x18, 7), "corrupt: superblock: block size");
        check(|bytes| put32(bytes, 0x18, u32::MAX), "corrupt: superblock: block size");
        check(|bytes| put32(bytes, 0x20, 0), "corrupt: superblock: blocks in a group");
        check(|bytes| put32(bytes, 0x28, 0), "corrupt: superblock: inodes in a group");
        check(|bytes| put32(bytes, 0x58, 129), "corrupt: superblock: inode size");
        check(|bytes| put32(bytes, 0x58, 2048), "corrupt: superblock: inode size");
        check(|bytes| put32(bytes, 0x14, 9000), "corrupt: superblock: first data block");
        check(|bytes| put32(bytes, 4, 8193), "corrupt: superblock: larger than its disk");
        check(|bytes| put32(bytes, 0x60, 0x80), "corrupt: superblock: group descriptor size");
        check(|bytes| put32(bytes, 0x64, 0x400), "not readable from here: checksum_type");
        check(
            |bytes| {
                put32(bytes, 0x64, 0x400);
                bytes[0x175] = 1;
            },
            "corrupt: superblock: checksum",
        );
    }

    #[test]
    fn backups_lie_in_powers_of_3_5_and_7() {
        let mut bytes = plain();
        put32(&mut bytes, 0x64, 1);
        let read = Superblock::parse(&bytes, 8 << 20).unwrap();
        let with: Vec<u64> = (0..130).filter(|&group| read.has_backup(group)).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }
}
