//! Fast commits: what changed since the last whole transaction, told as changes of files and not of blocks.
//!
//! They are kept as they are told, and asked before the blocks: [`Changes`] holds inodes, ranges of files and names of
//! directories. So no tree and no directory has to be rebuilt in memory. A fast commit counts only as a whole, up to its tail
//! with the right checksum and the number of the transaction that would have come next.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/journal.rst` (fast commits) and `fs/ext4/fast_commit.c`.

use std::collections::{BTreeMap, HashMap};

use dormouse_files::tree::TreeError;

use super::{
    super::{
        checksum::crc32c,
        fields::{join, le16, le32},
        run::Run,
    },
    Journal, fault, unavailable,
};

mod tag {
    pub(super) const ADD_RANGE: u16 = 1;
    pub(super) const DELETE_RANGE: u16 = 2;
    pub(super) const CREATE: u16 = 3;
    pub(super) const LINK: u16 = 4;
    pub(super) const UNLINK: u16 = 5;
    pub(super) const INODE: u16 = 6;
    pub(super) const PAD: u16 = 7;
    pub(super) const TAIL: u16 = 8;
    pub(super) const HEAD: u16 = 9;
}

const TAG_BYTES: usize = 4;
/// Longest extent that was written; what is beyond in the length says that it was not.
const WRITTEN_LENGTH_MAX: u16 = 32_768;

/// Part of a file whose place is told by a fast commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    length: u64,
    /// Nothing for a hole, and for space that was never written.
    physical: Option<u64>,
}

/// What fast commits say, over what the blocks say.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Whole inodes.
    pub(crate) inodes: HashMap<u32, Box<[u8]>>,
    /// Of each directory the names that came, and those that went.
    pub(crate) names: HashMap<u32, BTreeMap<Vec<u8>, Option<u32>>>,
    /// Directories whose blocks hold nothing yet, and their parents.
    pub(crate) fresh: HashMap<u32, u32>,
    ranges: HashMap<u32, BTreeMap<u64, Range>>,
    count: usize,
}

impl Changes {
    /// What is told of the block `logical` of a file, or else how many blocks from it on nothing is told of.
    pub(crate) fn run(&self, inode: u32, logical: u64) -> Result<Run, u64> {
        let Some(ranges) = self.ranges.get(&inode) else { return Err(u64::MAX) };
        if let Some((start, range)) = ranges.range(..=logical).next_back() {
            let into = logical - start;
            if into < range.length {
                return Ok(Run { physical: range.physical.map(|place| place + into), length: range.length - into });
            }
        }
        Err(ranges.range(logical..).next().map_or(u64::MAX, |(start, _)| start - logical))
    }

    fn set_range(&mut self, inode: u32, start: u64, range: Range) {
        let ranges = self.ranges.entry(inode).or_default();
        let end = start + range.length;
        // What lies behind is cut off, what lies before is cut short.
        let over: Vec<(u64, Range)> = ranges
            .range(..end)
            .rev()
            .take_while(|(from, held)| *from + held.length > start)
            .map(|(from, held)| (*from, *held))
            .collect();
        for (from, held) in over {
            ranges.remove(&from);
            if from < start {
                ranges.insert(from, Range { length: start - from, ..held });
            }
            if from + held.length > end {
                let skip = end - from;
                let physical = held.physical.map(|place| place + skip);
                ranges.insert(end, Range { length: held.length - skip, physical });
            }
        }
        ranges.insert(start, range);
    }
}

/// One tag and its value.
struct Tag<'a> {
    kind: u16,
    value: &'a [u8],
    /// The tag with its value.
    whole: &'a [u8],
}

impl Journal<'_> {
    /// What the fast commits behind the transaction before `next` say; nothing where there are none.
    pub(super) fn fast_commits(&self, next: u32) -> Result<Option<Changes>, TreeError> {
        let count = self.count_tags(next)?;
        if count == 0 {
            return Ok(None);
        }
        let mut changes = Changes::default();
        let mut left = count;
        self.for_each_tag(|_, tag| {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            changes.count += 1;
            if changes.count > self.file_system.limits.fast_commit_count_max {
                let limit = self.file_system.limits.fast_commit_count_max as u64;
                return Err(TreeError::OverLimit { what: "changes of fast commits", limit });
            }
            self.apply(&mut changes, tag.ok_or_else(|| fault("a fast commit's tag"))?)?;
            Ok(true)
        })?;
        Ok(Some(changes))
    }

    /// Walks the tags of the area, whether they are true or not; a tag that cannot be one is shown as nothing.
    fn for_each_tag(
        &self,
        mut visit: impl FnMut(bool, Option<Tag<'_>>) -> Result<bool, TreeError>,
    ) -> Result<(), TreeError> {
        let mut bytes = vec![0; self.file_system.superblock.block_bytes as usize];
        for block in self.fast_first..self.fast_last {
            self.read(block, &mut bytes)?;
            let mut at = 0;
            while at + TAG_BYTES <= bytes.len() {
                let (kind, length) = (le16(&bytes, at), usize::from(le16(&bytes, at + 2)));
                let end = at + TAG_BYTES + length;
                let value = bytes.get(at + TAG_BYTES..end).filter(|_| self.length_is_sound(kind, length));
                let tag = value.map(|value| Tag { kind, value, whole: &bytes[at..end] });
                let first = block == self.fast_first && at == 0;
                if !visit(first, tag)? {
                    return Ok(());
                }
                at = end;
            }
        }
        Ok(())
    }

    fn length_is_sound(&self, kind: u16, length: usize) -> bool {
        match kind {
            tag::ADD_RANGE => length == 16,
            tag::DELETE_RANGE => length == 12,
            tag::CREATE | tag::LINK | tag::UNLINK => (9..=8 + 255).contains(&length),
            tag::INODE => (4 + 128..=4 + self.file_system.superblock.inode_bytes as usize).contains(&length),
            tag::PAD => true,
            tag::TAIL => length >= 8,
            tag::HEAD => length == 8,
            _ => false,
        }
    }

    /// How many tags belong to complete fast commits.
    fn count_tags(&self, next: u32) -> Result<usize, TreeError> {
        let (mut complete, mut seen, mut sum) = (0, 0, 0);
        self.for_each_tag(|first, tag| {
            let head = tag.as_ref().is_some_and(|tag| tag.kind == tag::HEAD);
            if first && !head {
                return Ok(false);
            }
            let Some(tag) = tag else {
                // After a complete one this is the end; before, the area holds no sense.
                return if complete > 0 { Ok(false) } else { Err(fault("a fast commit's tag")) };
            };
            match tag.kind {
                tag::HEAD => {
                    if le32(tag.value, 0) != 0 {
                        return Err(unavailable("fast_commit_feature"));
                    }
                    if le32(tag.value, 4) != next {
                        return Ok(false);
                    }
                }
                tag::TAIL => {
                    seen += 1;
                    sum = crc32c(sum, tag.whole.get(..TAG_BYTES + 4).unwrap_or_default());
                    let holds = le32(tag.value, 0) == next && le32(tag.value, 4) == sum;
                    sum = 0;
                    if holds {
                        complete = seen;
                        return Ok(true);
                    }
                    return if complete > 0 { Ok(false) } else { Err(fault("a fast commit's checksum")) };
                }
                _ => (),
            }
            seen += 1;
            sum = crc32c(sum, tag.whole);
            Ok(true)
        })?;
        Ok(complete)
    }

    fn apply(&self, changes: &mut Changes, tag: Tag<'_>) -> Result<(), TreeError> {
        let value = tag.value;
        match tag.kind {
            tag::ADD_RANGE => {
                let held = le16(value, 8);
                let written = held <= WRITTEN_LENGTH_MAX;
                let length = u64::from(if written { held } else { held - WRITTEN_LENGTH_MAX });
                let physical = join(le32(value, 12), u32::from(le16(value, 10)));
                if length == 0 || !self.file_system.blocks.contain(physical, length) {
                    return Err(fault("a fast commit's range"));
                }
                let range = Range { length, physical: written.then_some(physical) };
                changes.set_range(le32(value, 0), u64::from(le32(value, 4)), range);
            }
            tag::DELETE_RANGE => {
                let length = u64::from(le32(value, 8));
                if length > 0 {
                    changes.set_range(le32(value, 0), u64::from(le32(value, 4)), Range { length, physical: None });
                }
            }
            tag::INODE => self.apply_inode(changes, le32(value, 0), value.get(4..).unwrap_or_default())?,
            tag::CREATE | tag::LINK | tag::UNLINK => self.apply_name(changes, &tag)?,
            _ => (),
        }
        Ok(())
    }

    /// The whole inode as it is now.
    fn inode_bytes(&self, changes: &Changes, number: u32) -> Result<Box<[u8]>, TreeError> {
        match changes.inodes.get(&number) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.file_system.inode_bytes(number).map(Into::into),
        }
    }

    /// All of an inode but where its content lies, which ranges tell.
    fn apply_inode(&self, changes: &mut Changes, number: u32, told: &[u8]) -> Result<(), TreeError> {
        const EXTENTS: u32 = 0x8_0000;
        let mut bytes = self.inode_bytes(changes, number)?;
        let mut put = |from: usize, to: usize| {
            if let (Some(target), Some(source)) = (bytes.get_mut(from..to), told.get(from..to)) {
                target.copy_from_slice(source);
            }
        };
        put(0, 0x28);
        put(0x64, told.len());
        if le32(told, 0x20) & EXTENTS == 0 {
            put(0x28, 0x64);
        } else if le16(&bytes, 0x28) != 0xF30A {
            // The inode was no file before: an empty tree with room for four.
            if let Some(map) = bytes.get_mut(0x28..0x64) {
                map.fill(0);
                map[..6].copy_from_slice(&[0x0A, 0xF3, 0, 0, 4, 0]);
            }
        }
        changes.inodes.insert(number, bytes);
        Ok(())
    }

    fn apply_name(&self, changes: &mut Changes, tag: &Tag<'_>) -> Result<(), TreeError> {
        let (parent, number) = (le32(tag.value, 0), le32(tag.value, 4));
        let name = tag.value.get(8..).unwrap_or_default().to_vec();
        let mut bytes = self.inode_bytes(changes, number)?;
        let links = le16(&bytes, 0x1A);
        let is_directory = le16(&bytes, 0) & 0o170_000 == 0o040_000;
        let names = changes.names.entry(parent).or_default();
        let links = match tag.kind {
            tag::UNLINK => {
                // Another inode may have taken the name in the meantime, as a rename does.
                if names.get(&name).is_none_or(|there| there.is_none_or(|there| there == number)) {
                    names.insert(name, None);
                }
                links.saturating_sub(1)
            }
            tag::CREATE => {
                names.insert(name, Some(number));
                if is_directory {
                    changes.fresh.insert(number, parent);
                    changes.names.insert(number, BTreeMap::new());
                }
                links.max(1)
            }
            _ => {
                names.insert(name, Some(number));
                links.saturating_add(1)
            }
        };
        // The inode itself is told later where it was not created; until then this is its count.
        if let Some(field) = bytes.get_mut(0x1A..0x1C) {
            field.copy_from_slice(&links.to_le_bytes());
        }
        changes.inodes.insert(number, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ranges_cut_earlier_ones() {
        let mut changes = Changes::default();
        let mut set = |start, length, physical| changes.set_range(12, start, Range { length, physical });
        set(10, 10, Some(100));
        set(12, 3, Some(500));
        set(18, 4, None);
        set(0, 2, Some(7));
        let check = |logical, expect: Result<(Option<u64>, u64), u64>| {
            let expect = expect.map(|(physical, length)| Run { physical, length });
            assert_eq!(changes.run(12, logical), expect, "block {logical}");
        };
        check(0, Ok((Some(7), 2)));
        check(2, Err(8));
        check(10, Ok((Some(100), 2)));
        check(13, Ok((Some(501), 2)));
        check(15, Ok((Some(105), 3)));
        check(18, Ok((None, 4)));
        check(22, Err(u64::MAX));
        assert_eq!(changes.run(13, 0), Err(u64::MAX));
    }

    proptest::proptest! {
        #[test]
        fn ranges_are_as_if_each_block_were_told(
            told in proptest::collection::vec((0_u64..60, 1_u64..20, proptest::option::of(100_u64..1000)), 0..20),
        ) {
            let mut changes = Changes::default();
            let mut blocks = [None; 100];
            for (start, length, physical) in told {
                changes.set_range(5, start, Range { length, physical });
                for into in 0..length {
                    blocks[(start + into) as usize] = Some(physical.map(|place| place + into));
                }
            }
            for (logical, block) in blocks.iter().enumerate() {
                match changes.run(5, logical as u64) {
                    Ok(run) => {
                        proptest::prop_assert_eq!(*block, Some(run.physical));
                        for into in 0..run.length {
                            let place = run.physical.map(|place| place + into);
                            proptest::prop_assert_eq!(blocks[logical + into as usize], Some(place));
                        }
                    }
                    Err(untold) => {
                        let untold = untold.min(blocks.len() as u64 - logical as u64) as usize;
                        proptest::prop_assert!(untold > 0);
                        proptest::prop_assert!(blocks[logical..logical + untold].iter().all(Option::is_none));
                    }
                }
            }
        }
    }
}
