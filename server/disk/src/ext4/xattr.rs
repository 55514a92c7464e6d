//! Extended attributes: in the inode behind its fixed fields, in a block of their own, and large values in inodes of
//! their own, one deep.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/attributes.rst`.

use dormouse_files::tree::TreeError;

use super::{
    Ext4,
    blocks::Role,
    checksum::crc32c,
    fields::{le16, le32, u8_at},
    inode::{Inode, flag},
};

/// Before the attributes in an inode, and at the start of a block of them.
pub(super) const MAGIC: u32 = 0xEA02_0000;
/// The name index of `system.`.
const SYSTEM: u8 = 7;
/// Bytes before the entries of a block of attributes.
const BLOCK_HEAD_BYTES: usize = 32;
/// Longest value, as in limits.h of Linux.
const VALUE_BYTES_MAX: usize = 65_536;

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
    inode.tail().get(4..).unwrap_or_default()
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

/// The part of a name that its index stands for; nothing for those that are not shown, such as inline data.
fn prefix(index: u8) -> Option<&'static str> {
    Some(match index {
        1 => "user.",
        2 => "system.posix_acl_access",
        3 => "system.posix_acl_default",
        4 => "trusted.",
        6 => "security.",
        _ => return None,
    })
}

/// An access list as getxattr(2) gives it: version 2, every entry with an id. On the disk it is version 1, and only the
/// entries of named users and groups have one.
fn access_list(held: &[u8]) -> Option<Vec<u8>> {
    if held.is_empty() {
        return Some(Vec::new());
    }
    let mut given = 2_u32.to_le_bytes().to_vec();
    let mut left = held.get(4..).filter(|_| le32(held, 0) == 1)?;
    while !left.is_empty() {
        let tag = le16(left, 0);
        let bytes = match tag {
            0x02 | 0x08 => 8,
            0x01 | 0x04 | 0x10 | 0x20 => 4,
            _ => return None,
        };
        let entry = left.get(..bytes)?;
        given.extend(&entry[..4]);
        given.extend(entry.get(4..8).unwrap_or(&[0xFF; 4]));
        left = &left[bytes..];
    }
    Some(given)
}

impl Ext4 {
    /// All the extended attributes of an inode that are shown to a process with every right, sorted by name.
    pub(crate) fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>, TreeError> {
        let mut found = Vec::new();
        let mut left = self.limits.xattr_bytes_max;
        let table = in_inode(inode);
        self.collect(inode, table, 0, table, &mut left, &mut found)?;
        if inode.xattr_block != 0 {
            let block = self.blocks.metadata(inode.xattr_block)?;
            block.verify_once(Role::Xattr, inode.number, |bytes| self.verify_block(inode, bytes))?;
            self.collect(inode, block.bytes(), BLOCK_HEAD_BYTES, block.bytes(), &mut left, &mut found)?;
        }
        found.sort_unstable();
        Ok(found)
    }

    fn verify_block(&self, inode: &Inode, bytes: &[u8]) -> Result<(), TreeError> {
        if le32(bytes, 0) != MAGIC || le32(bytes, 8) != 1 {
            return Err(inode.corrupt("attributes: magic"));
        }
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let seed = crc32c(self.superblock.checksum_seed, &inode.xattr_block.to_le_bytes());
        let sum = crc32c(crc32c(crc32c(seed, part(0, 16)), &[0; 4]), part(20, bytes.len()));
        if self.superblock.summed() && sum != le32(bytes, 16) {
            return Err(inode.corrupt("attributes: checksum"));
        }
        Ok(())
    }

    /// Entries begin at `at` of `table`, and say where in `values` their values lie.
    fn collect(
        &self,
        inode: &Inode,
        table: &[u8],
        mut at: usize,
        values: &[u8],
        left: &mut usize,
        found: &mut Vec<Xattr>,
    ) -> Result<(), TreeError> {
        while let Some((held, next)) = entry(table, at).map_err(|what| inode.corrupt(what))? {
            at = next;
            let Some(prefix) = prefix(held.index) else { continue };
            if held.value_bytes > VALUE_BYTES_MAX {
                return Err(inode.corrupt("attributes: a value that is too long"));
            }
            let limit = self.limits.xattr_bytes_max as u64;
            let taken = held.value_bytes + prefix.len() + held.name.len();
            *left =
                left.checked_sub(taken).ok_or(TreeError::OverLimit { what: "bytes of extended attributes", limit })?;
            let value = self.value(inode, &held, values)?;
            let value = match held.index {
                2 | 3 => access_list(&value).ok_or_else(|| inode.corrupt("attributes: access list"))?,
                _ => value,
            };
            found.push(Xattr { name: [prefix.as_bytes(), held.name].concat(), value });
        }
        Ok(())
    }

    fn value(&self, inode: &Inode, held: &Entry<'_>, values: &[u8]) -> Result<Vec<u8>, TreeError> {
        if held.value_inode == 0 {
            let end = held.value_at + held.value_bytes;
            let value = values.get(held.value_at..end).filter(|_| held.value_bytes > 0);
            return match value {
                Some(value) => Ok(value.to_vec()),
                None if held.value_bytes == 0 => Ok(Vec::new()),
                None => Err(inode.corrupt("attributes: a value past the end")),
            };
        }
        // An inode that holds a value is read for its content only, so it leads nowhere further.
        let holder = self.inode(held.value_inode)?;
        if !holder.has(flag::EA_INODE) || holder.has(flag::INLINE_DATA) || holder.size_bytes != held.value_bytes as u64
        {
            return Err(inode.corrupt("attributes: the inode of a value"));
        }
        let mut value = vec![0; held.value_bytes];
        self.read_inode(&holder, 0, &mut value)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_get_their_ids() {
        let held = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 7, 0, 0, 0, 32, 0, 4, 0];
        let given =
            [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 7, 0, 0, 0, 32, 0, 4, 0, 255, 255, 255, 255];
        assert_eq!(access_list(&held).unwrap(), given);
        assert_eq!(access_list(&held[..18]), None);
        assert_eq!(access_list(&[2, 0, 0, 0]), None);
        assert_eq!(access_list(&[1, 0, 0, 0, 3, 0, 0, 0]), None);
        assert_eq!(access_list(&[]).unwrap(), []);
    }
}
