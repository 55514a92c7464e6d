//! Block numbers of ext2 and ext3: twelve in the inode, then through one, two and three levels of blocks of numbers.
//!
//! A number of 0 is a hole. Source: the kernel's `Documentation/filesystems/ext4/ifork.rst`.

use dormouse_files::tree::TreeError;

use super::{Ext4, fields::le32, inode::Inode, run::Run};

const DIRECT_COUNT: u64 = 12;

/// The run that begins at the file's block `logical`.
pub(crate) fn find(file_system: &Ext4, inode: &Inode, logical: u64) -> Result<Run, TreeError> {
    if logical < DIRECT_COUNT {
        return Ok(run_in(&inode.map[..48], logical as usize, 1));
    }
    let per_block = u64::from(file_system.superblock.block_bytes / 4);
    let mut index = logical - DIRECT_COUNT;
    // Blocks of the file under one number of the level; at most 2^42.
    let mut covered = per_block;
    let mut level = 1;
    while index >= covered {
        index -= covered;
        covered *= per_block;
        level += 1;
        if level > 3 {
            return Ok(Run { physical: None, length: u64::MAX >> 20 });
        }
    }
    let mut number = le32(&inode.map, 44 + level * 4);
    loop {
        if number == 0 {
            return Ok(Run { physical: None, length: covered - index });
        }
        let block = file_system.blocks.metadata(u64::from(number))?;
        covered /= per_block;
        let slot = (index / covered) as usize;
        index %= covered;
        if covered == 1 {
            return Ok(run_in(block.bytes(), slot, 1));
        }
        number = le32(block.bytes(), slot * 4);
    }
}

/// The run that begins at a slot of a block of numbers.
fn run_in(numbers: &[u8], slot: usize, least: u64) -> Run {
    let number = |index: usize| le32(numbers, index * 4);
    let first = number(slot);
    let mut length = least;
    for (ahead, index) in (slot + 1..numbers.len() / 4).enumerate() {
        let expected = if first == 0 { Some(0) } else { first.checked_add(ahead as u32 + 1) };
        if Some(number(index)) != expected {
            break;
        }
        length += 1;
    }
    Run { physical: (first != 0).then_some(u64::from(first)), length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        let numbers: Vec<u8> =
            [5_u32, 6, 7, 0, 0, 9, u32::MAX].iter().flat_map(|number| number.to_le_bytes()).collect();
        let check = |slot, physical, length| assert_eq!(run_in(&numbers, slot, 1), Run { physical, length });
        check(0, Some(5), 3);
        check(1, Some(6), 2);
        check(3, None, 2);
        check(5, Some(9), 1);
        check(6, Some(u64::from(u32::MAX)), 1);
    }
}
