//! Directories as lists of names.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/directory.rst`.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use dormouse_files::{
    meta::FileType,
    tree::{Name, TreeError},
};

use super::{
    Ext4,
    blocks::{Block, Role},
    casefold::Folded,
    checksum::crc32c,
    fields::{entry_bytes, le16, le32, u8_at},
    htree::{self, Answer},
    index::Index,
    inline,
    inode::{Inode, flag},
    journal::Changes,
    superblock::{compat, incompat},
};

/// Bytes before an entry's name.
const HEAD_BYTES: usize = 8;
/// Bytes of the checksum that ends a block of names.
const TAIL_BYTES: usize = 12;

/// Some of a directory's names: a block of them, or a part of inline content.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    bytes: &'a [u8],
    /// Where these bytes are kept, and so what was found out of them.
    index: Option<&'a Index>,
}

impl<'a> Part<'a> {
    pub(super) fn of(block: &'a Block) -> Self {
        Self { bytes: block.bytes(), index: Some(block.index()) }
    }
}

/// What is done with each of them.
type PartPass<'a> = dyn FnMut(Part<'_>) -> Result<ControlFlow<()>, TreeError> + 'a;

/// One name and where it leads.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) inode: u32,
    pub(crate) kind: Option<FileType>,
    pub(crate) name: &'a [u8],
}

fn kind(code: u8) -> Option<FileType> {
    Some(match code {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharacterDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

/// The entries of one block, or of inline content, the unused ones too (their inode is 0). Ends at the first fault.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    /// From the next entry on.
    bytes: &'a [u8],
    block_bytes: usize,
    typed: bool,
    inode_count: u32,
}

/// What an entry begins with.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) inode: u32,
    length: u16,
    name_bytes: u8,
    kind: u8,
}

impl Head {
    /// One load for the four fields: a lookup looks at dozens of entries.
    fn new(bytes: [u8; HEAD_BYTES]) -> Self {
        let fields = u64::from_le_bytes(bytes);
        // Names are no longer than 255 bytes, so even where the type is not kept the high byte of the length is not one.
        let (length, name_bytes, kind) = ((fields >> 32) as u16, (fields >> 48) as u8, (fields >> 56) as u8);
        Self { inode: fields as u32, length, name_bytes, kind }
    }
}

impl<'a> Entries<'a> {
    pub(crate) fn new(file_system: &Ext4, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            block_bytes: file_system.superblock.block_bytes as usize,
            typed: file_system.superblock.has_incompat(incompat::FILETYPE),
            inode_count: file_system.superblock.inode_count,
        }
    }

    /// Those of a block of less than 64 KiB, on a file system with so many inodes.
    #[cfg(test)]
    pub(super) fn of(bytes: &'a [u8], inode_count: u32) -> Self {
        Self { bytes, block_bytes: 4_096, typed: true, inode_count }
    }

    /// The entries from a place on where one begins.
    pub(super) fn from(self, place: usize) -> Self {
        Self { bytes: self.bytes.get(place..).unwrap_or_default(), ..self }
    }

    /// Bytes from the next entry on.
    pub(super) fn left_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The next entry's fixed fields and its name.
    #[inline(always)]
    pub(super) fn entry(&mut self) -> Option<Result<(Head, &'a [u8]), &'static str>> {
        // What is left over at the end of inline content may be too short for an entry.
        let head = Head::new(*self.bytes.first_chunk()?);
        let (length, name_end) =
            (entry_bytes(head.length, self.block_bytes), HEAD_BYTES + usize::from(head.name_bytes));
        let fault = if length < HEAD_BYTES + 4 || !length.is_multiple_of(4) || length > self.bytes.len() {
            "directory: entry length"
        } else if name_end > length {
            "directory: name length"
        } else if head.inode > self.inode_count {
            "directory: a name leads past the last inode"
        } else {
            let (entry, rest) = self.bytes.split_at(length);
            self.bytes = rest;
            return Some(Ok((head, &entry[HEAD_BYTES..name_end])));
        };
        self.bytes = &[];
        Some(Err(fault))
    }

    /// Where the first entry in use with this name leads.
    pub(super) fn find(mut self, wanted: &[u8]) -> Result<Option<u32>, &'static str> {
        // Names of one directory often begin alike, so their ends are compared first.
        let end = wanted.last_chunk::<8>();
        while let Some(entry) = self.entry() {
            let (head, name) = entry?;
            if name.len() == wanted.len() && name.last_chunk() == end && name == wanted && head.inode != 0 {
                return Ok(Some(head.inode));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let typed = self.typed;
        let entry = |(head, name): (Head, &'a [u8])| Entry {
            inode: head.inode,
            kind: if typed { kind(head.kind) } else { None },
            name,
        };
        self.entry().map(|next| next.map(entry))
    }
}

/// Whether a name is one that a path can hold.
fn is_sound(name: &[u8]) -> bool {
    (1..=255).contains(&name.len()) && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl Ext4 {
    /// A directory that a name leads to, or the root: an inode that must be one.
    pub(crate) fn directory_inode(&self, number: u32) -> Result<Arc<Inode>, TreeError> {
        let inode = self.named_inode(number)?;
        match inode.kind {
            FileType::Directory => Ok(inode),
            other => Err(TreeError::NotDirectory(other)),
        }
    }

    /// What a directory's `..` leads to.
    pub(crate) fn parent_of(&self, inode: &Inode) -> Result<u32, TreeError> {
        if let Some(&parent) = self.changes.as_ref().and_then(|changes| changes.fresh.get(&inode.number)) {
            return Ok(parent);
        }
        let held;
        let inode = if self.is_told(inode.number) {
            held = self.inode_in_blocks(inode.number)?;
            &held
        } else {
            inode
        };
        if inode.has(flag::INLINE_DATA) {
            return Ok(le32(&inode.map, 0));
        }
        let Some(block) = self.directory_block(inode, 0)? else {
            return Err(inode.corrupt("directory: no first block"));
        };
        let mut entries = Entries::new(self, block.bytes());
        match (entries.next(), entries.next()) {
            (Some(Ok(own)), Some(Ok(parent))) if own.name == b"." && parent.name == b".." => Ok(parent.inode),
            _ => Err(inode.corrupt("directory: does not begin with . and ..")),
        }
    }

    /// One block of a directory, verified; nothing for a hole.
    pub(crate) fn directory_block(&self, inode: &Inode, logical: u64) -> Result<Option<Arc<Block>>, TreeError> {
        let physical = match logical {
            0 => inode.first_block(|| Ok(self.run(inode, 0)?.physical))?,
            _ => self.run(inode, logical)?.physical,
        };
        match physical {
            Some(number) => self.verified_directory_block(inode, logical, number).map(Some),
            None => Ok(None),
        }
    }

    fn verified_directory_block(&self, inode: &Inode, logical: u64, number: u64) -> Result<Arc<Block>, TreeError> {
        let block = self.blocks.metadata(number)?;
        if self.superblock.summed() {
            block.verify_once(Role::Directory, inode.number, |bytes| {
                let indexed = inode.has(flag::INDEX);
                let hashes = indexed && (logical == 0 || entry_bytes(le16(bytes, 4), bytes.len()) == bytes.len());
                let holds = if hashes { hash_sum_holds(inode, bytes) } else { sum_holds(inode, bytes) };
                if holds { Ok(()) } else { Err(inode.corrupt(&format!("directory block {logical}: checksum"))) }
            })?;
        }
        Ok(block)
    }

    /// Whether fast commits say anything of an inode: then its blocks must be read as the blocks describe them, and what
    /// they say laid over that.
    fn is_told(&self, number: u32) -> bool {
        let told = |changes: &Changes| changes.inodes.contains_key(&number) || changes.names.contains_key(&number);
        self.changes.as_ref().is_some_and(told)
    }

    /// Every entry that is in use, `.` and `..` left out.
    pub(crate) fn for_each_name(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let Some(changes) = self.changes.as_ref().filter(|_| self.is_told(inode.number)) else {
            return self.for_each_name_in_blocks(inode, visit);
        };
        let none = BTreeMap::new();
        let told = changes.names.get(&inode.number).unwrap_or(&none);
        let mut flow = ControlFlow::Continue(());
        if !changes.fresh.contains_key(&inode.number) {
            let held = self.inode_in_blocks(inode.number)?;
            self.for_each_name_in_blocks(&held, &mut |entry| {
                if !told.contains_key(entry.name) {
                    flow = visit(entry);
                }
                flow
            })?;
        }
        for (name, number) in told {
            let Some(inode) = *number else { continue };
            if flow.is_break() {
                break;
            }
            if is_sound(name) && !is_dots(name) {
                flow = visit(Entry { inode, kind: None, name });
            }
        }
        Ok(())
    }

    fn for_each_name_in_blocks(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let mut pass = |part: Part<'_>| -> Result<ControlFlow<()>, TreeError> {
            for entry in Entries::new(self, part.bytes) {
                let entry = entry.map_err(|what| inode.corrupt(what))?;
                if entry.inode == 0 || is_dots(entry.name) {
                    continue;
                }
                if !is_sound(entry.name) {
                    return Err(inode.corrupt("directory: a name that no path can hold"));
                }
                if visit(entry).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        if inode.has(flag::ENCRYPT) {
            return Err(TreeError::Unavailable { what: "encrypted".to_owned() });
        }
        self.for_each_part(inode, &mut pass)
    }

    /// Every block of names, or the two parts of inline content.
    fn for_each_part(&self, inode: &Inode, pass: &mut PartPass<'_>) -> Result<(), TreeError> {
        if inode.has(flag::INLINE_DATA) {
            let rest = inline::rest(self, inode)?;
            let inline = |bytes| Part { bytes, index: None };
            if pass(inline(&inode.map[4..]))?.is_continue() {
                let _ = pass(inline(rest))?;
            }
            return Ok(());
        }
        let size = u64::from(self.superblock.block_bytes);
        let count = inode.size_bytes.div_ceil(size);
        let limit = self.limits.directory_bytes_max;
        let mut left = limit / size;
        let mut spend = || {
            left = left.checked_sub(1).ok_or(TreeError::OverLimit { what: "bytes of a directory", limit })?;
            Ok(())
        };
        if count == 1 {
            spend()?;
            if let Some(block) = self.directory_block(inode, 0)? {
                let _ = pass(Part::of(&block))?;
            }
            return Ok(());
        }
        let mut logical = 0;
        while logical < count {
            let run = self.run(inode, logical)?;
            let Some(start) = run.physical else {
                // A hole costs as much as a block, since an image can hold any number of them.
                spend()?;
                logical = logical.saturating_add(run.length);
                continue;
            };
            for index in 0..run.length.min(count - logical) {
                spend()?;
                let block = self.verified_directory_block(inode, logical + index, start + index)?;
                if pass(Part::of(&block))?.is_break() {
                    return Ok(());
                }
            }
            logical += run.length;
        }
        Ok(())
    }

    /// Where a name leads.
    pub(crate) fn lookup(&self, inode: &Inode, name: &[u8]) -> Result<u32, TreeError> {
        if !is_sound(name) || is_dots(name) {
            return Err(TreeError::NotFound);
        }
        if inode.has(flag::ENCRYPT) {
            return Err(TreeError::Unavailable { what: "encrypted".to_owned() });
        }
        if inode.has(flag::CASEFOLD) && self.superblock.has_incompat(incompat::CASEFOLD) {
            return self.lookup_folded(inode, name);
        }
        if let Some(changes) = self.changes.as_ref().filter(|_| self.is_told(inode.number)) {
            let told = changes.names.get(&inode.number).and_then(|names| names.get(name));
            return match told {
                Some(Some(number)) => Ok(*number),
                Some(None) => Err(TreeError::NotFound),
                None if changes.fresh.contains_key(&inode.number) => Err(TreeError::NotFound),
                None => self.lookup_in_blocks(&self.inode_in_blocks(inode.number)?, name),
            };
        }
        self.lookup_in_blocks(inode, name)
    }

    fn lookup_in_blocks(&self, inode: &Inode, name: &[u8]) -> Result<u32, TreeError> {
        if self.is_hashed(inode) {
            match htree::lookup(self, inode, name, name)? {
                Answer::Inode(number) => return Ok(number),
                Answer::Missing => return Err(TreeError::NotFound),
                Answer::Unusable => (),
            }
        }
        self.lookup_linear(inode, name)
    }

    fn is_hashed(&self, inode: &Inode) -> bool {
        let hashed = inode.has(flag::INDEX) && !inode.has(flag::INLINE_DATA);
        hashed && self.superblock.has_compat(compat::DIR_INDEX)
    }

    fn lookup_linear(&self, inode: &Inode, name: &[u8]) -> Result<u32, TreeError> {
        let mut found = None;
        self.for_each_part(inode, &mut |part| {
            found = self.find(inode, part, name)?;
            Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        found.ok_or(TreeError::NotFound)
    }

    /// Where a name leads, if it is in this part.
    pub(super) fn find(&self, inode: &Inode, part: Part<'_>, name: &[u8]) -> Result<Option<u32>, TreeError> {
        let entries = Entries::new(self, part.bytes);
        match part.index {
            Some(index) => index.find(entries, name),
            None => entries.find(name),
        }
        .map_err(|what| inode.corrupt(what))
    }

    /// In a directory that folds case the exact name wins, then one that folds to the same. Its hashes are of folded names, so
    /// one that is found by its hash is found; for any other every name is read, since the tables need not agree.
    fn lookup_folded(&self, inode: &Inode, name: &[u8]) -> Result<u32, TreeError> {
        let wanted = Folded::new(name);
        if self.is_hashed(inode)
            && !self.is_told(inode.number)
            && let Answer::Inode(number) = htree::lookup(self, inode, &wanted.bytes(), name)?
        {
            return Ok(number);
        }
        let (mut exact, mut folded) = (None, None);
        self.for_each_name(inode, &mut |entry| {
            if entry.name == name {
                exact = Some(entry.inode);
                return ControlFlow::Break(());
            }
            if folded.is_none() && wanted.matches(entry.name) {
                folded = Some(entry.inode);
            }
            ControlFlow::Continue(())
        })?;
        exact.or(folded).ok_or(TreeError::NotFound)
    }
}

impl<'a> From<Entry<'a>> for Name<'a> {
    fn from(entry: Entry<'a>) -> Self {
        Name { bytes: entry.name, kind: entry.kind }
    }
}

/// A block of names ends with an entry that holds its checksum.
fn sum_holds(inode: &Inode, bytes: &[u8]) -> bool {
    let Some(end) = bytes.len().checked_sub(TAIL_BYTES) else { return false };
    let (names, tail) = bytes.split_at(end);
    let marked = le32(tail, 0) == 0 && le16(tail, 4) == 12 && u8_at(tail, 6) == 0 && u8_at(tail, 7) == 0xDE;
    marked && crc32c(inode.checksum_seed, names) == le32(tail, 8)
}

/// A block of hashes holds its checksum behind the room for them.
fn hash_sum_holds(inode: &Inode, bytes: &[u8]) -> bool {
    let Some(at) = htree::hashes_at(bytes) else { return false };
    let (room, count) = (usize::from(le16(bytes, at)), usize::from(le16(bytes, at + 2)));
    let tail = at + room * 8;
    let (Some(summed), Some(reserved)) = (bytes.get(..at + count * 8), bytes.get(tail..tail + 4)) else { return false };
    let sum = crc32c(crc32c(crc32c(inode.checksum_seed, summed), reserved), &[0; 4]);
    tail + 8 <= bytes.len() && sum == le32(bytes, tail + 4)
}
