//! Content that is kept in the inode itself: 60 bytes in its block map, the rest in the attribute `system.data`.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/inlinedata.rst`.

use dormouse_files::tree::TreeError;

use super::{Ext4, inode::Inode, xattr};

/// What the attribute holds; empty where the map is enough.
pub(crate) fn rest<'a>(file_system: &Ext4, inode: &'a Inode) -> Result<&'a [u8], TreeError> {
    if !file_system.superblock.has_incompat(super::superblock::incompat::INLINE_DATA) {
        return Err(inode.corrupt("inline data without the feature"));
    }
    xattr::inline_data(inode)
}

/// Fills the buffer from `offset`; the caller has found both inside the file's size.
pub(crate) fn read(file_system: &Ext4, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<(), TreeError> {
    let rest = rest(file_system, inode)?;
    if inode.size_bytes > (inode.map.len() + rest.len()) as u64 {
        return Err(inode.corrupt("inline data shorter than its size"));
    }
    for (place, byte) in (offset as usize..).zip(buffer) {
        *byte = match inode.map.get(place) {
            Some(&held) => held,
            None => rest.get(place - inode.map.len()).copied().unwrap_or(0),
        };
    }
    Ok(())
}
