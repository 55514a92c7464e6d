//! Extended attributes: in the inode behind its fixed fields, in a block of their own, and large values in inodes of
//! their own, one deep.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/attributes.rst`.

use dormouse_files::tree::TreeError;

use super::{
    fields::{le16, le32, u8_at},
    inode::Inode,
};

const MAGIC: u32 = 0xEA02_0000;
/// The name index of `system.`.
const SYSTEM: u8 = 7;

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// With its prefix, such as `user.comment`; not always UTF-8.
    pub name: Vec<u8>,
    /// As getxattr(2) gives it.
    pub value: Vec<u8>,
}

/// One attribute as it lies on the disk.
pub(super) struct Entry<'a> {
    pub(super) index: u8,
    pub(super) name: &'a [u8],
    pub(super) value_at: usize,
    pub(super) value_inode: u32,
    pub(super) value_bytes: usize,
}

/// Walks a table of entries that begins at `at`; the second value of an item is where the next entry begins.
pub(super) fn entry(bytes: &[u8], at: usize) -> Result<Option<(Entry<'_>, usize)>, &'static str> {
    // The list ends with four bytes of zeros, or with its holder.
    if at + 4 > bytes.len() || le32(bytes, at) == 0 {
        return Ok(None);
    }
    let name_end = at + 16 + usize::from(u8_at(bytes, at));
    let name = bytes.get(at + 16..name_end).ok_or("attributes: a name past the end")?;
    let entry = Entry {
        index: u8_at(bytes, at + 1),
        name,
        value_at: usize::from(le16(bytes, at + 2)),
        value_inode: le32(bytes, at + 4),
        value_bytes: le32(bytes, at + 8) as usize,
    };
    Ok(Some((entry, name_end.next_multiple_of(4))))
}

/// The entries that lie in the inode itself; empty where there are none.
pub(super) fn in_inode(inode: &Inode) -> &[u8] {
    let tail = inode.tail();
    if le32(tail, 0) == MAGIC { &tail[4..] } else { &[] }
}

/// The value of `system.data`, which must lie in the inode.
pub(super) fn inline_data(inode: &Inode) -> Result<&[u8], TreeError> {
    let table = in_inode(inode);
    let mut at = 0;
    while let Some((entry, next)) = entry(table, at).map_err(|what| inode.corrupt(what))? {
        if entry.index == SYSTEM && entry.name == b"data" {
            let end = entry.value_at.checked_add(entry.value_bytes);
            return end
                .and_then(|end| table.get(entry.value_at..end))
                .filter(|_| entry.value_inode == 0)
                .ok_or_else(|| inode.corrupt("inline data past its inode's end"));
        }
        at = next;
    }
    Ok(&[])
}
