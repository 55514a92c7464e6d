//! Block groups: where a group's inode table lies.
//!
//! Descriptors are read when they are needed, through the journal's overlay, so no table is sized by the disk. Source:
//! the kernel's `Documentation/filesystems/ext4/group_descr.rst` and `blockgroup.rst` (meta block groups).

use dormouse_files::tree::TreeError;

use super::{
    Ext4,
    blocks::Role,
    checksum::{crc16, crc32c},
    corrupt,
    fields::{join, le16, le32},
    superblock::{Superblock, incompat, ro_compat},
};

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
    /// The first block of a group's inode table.
    pub(crate) fn inode_table(&self, group: u32) -> Result<u64, TreeError> {
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
        Ok(join(le32(descriptor, 0x08), le32(descriptor, 0x28)))
    }
}
