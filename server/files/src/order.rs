//! Path order: the names of a directory as slots, sorted so that a walk that takes them in turn meets every path of the
//! tree in the byte order of whole paths.
//!
//! `/a` < `/a.b` < `/a/z`: a directory itself comes at its name, what it holds at its name and a `/`, and its siblings may
//! lie between.

use std::ops::ControlFlow;

use crate::{
    meta::FileType,
    tree::{Tree, TreeError},
};

/// What comes at a place in path order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The entry itself.
    Entry,
    /// What it holds, if it is a directory.
    Contents,
}

/// Which parts a walk wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Every entry, and the contents of every directory.
    All,
    /// The contents of every directory, and every entry that is none.
    Leaves,
}

/// A place in path order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) part: Part,
    /// Where the listing told it.
    pub(crate) kind: Option<FileType>,
}

/// The slots of one directory, in order, their names in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    start: u32,
    length: u8,
    part: Part,
    kind: Option<FileType>,
}

impl Slots {
    /// Lists a directory. Where the listing does not tell a type, both parts may come, and the caller finds out.
    ///
    /// # Errors
    /// What the tree says, and `OverLimit` for more names than `name_count_max` or more than 4 GiB of them.
    pub(crate) fn of<T: Tree>(
        tree: &T,
        directory: &T::Directory,
        parts: Parts,
        name_count_max: usize,
    ) -> Result<Self, TreeError> {
        let mut slots = Self::default();
        let mut name_count = 0;
        let mut over = false;
        tree.names(directory, &mut |name| {
            name_count += 1;
            let start = u32::try_from(slots.bytes.len());
            let length = u8::try_from(name.bytes.len());
            let (Ok(start), Ok(length)) = (start, length) else {
                over = true;
                return ControlFlow::Break(());
            };
            if name_count > name_count_max {
                over = true;
                return ControlFlow::Break(());
            }
            slots.bytes.extend_from_slice(name.bytes);
            let kind = name.kind;
            if parts == Parts::All || kind != Some(FileType::Directory) {
                slots.places.push(Place { start, length, part: Part::Entry, kind });
            }
            if kind.is_none_or(|kind| kind == FileType::Directory) {
                slots.places.push(Place { start, length, part: Part::Contents, kind });
            }
            ControlFlow::Continue(())
        })?;
        if over {
            return Err(TreeError::OverLimit { what: "names in one directory", limit: name_count_max as u64 });
        }
        let Self { bytes, places } = &mut slots;
        places.sort_unstable_by(|a, b| compare(bytes, a, b));
        Ok(slots)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<Slot<'_>> {
        self.places.get(index).map(|place| Slot {
            name: name_of(&self.bytes, place),
            part: place.part,
            kind: place.kind,
        })
    }
}

fn name_of<'a>(bytes: &'a [u8], place: &Place) -> &'a [u8] {
    let start = place.start as usize;
    &bytes[start..start + usize::from(place.length)]
}

fn compare(bytes: &[u8], a: &Place, b: &Place) -> std::cmp::Ordering {
    let (left, right) = (name_of(bytes, a), name_of(bytes, b));
    let shared = left.len().min(right.len());
    left[..shared].cmp(&right[..shared]).then_with(|| {
        // No name holds `/`, so at most one byte behind the shared part decides.
        let behind = |name: &[u8], part| match name.get(shared) {
            Some(byte) => Some(*byte),
            None if part == Part::Contents => Some(b'/'),
            None => None,
        };
        behind(left, a.part).cmp(&behind(right, b.part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTree;

    #[test]
    fn a_directory_s_contents_come_behind_its_name_and_a_slash() {
        let tree = MemoryTree::default()
            .file("/a/z", b"")
            .file("/a.b", b"")
            .file("/a0", b"")
            .file("/a-", b"")
            .file("/ab/x", b"")
            .file("/A", b"")
            .file("/\u{e9}", b"");
        let root = tree.root().unwrap();
        let slots = Slots::of(&tree, &root, Parts::All, 10).unwrap();
        let seen: Vec<String> = (0..slots.len())
            .filter_map(|index| slots.get(index))
            .map(|slot| {
                let end = if slot.part == Part::Contents { "/" } else { "" };
                format!("{}{end}", String::from_utf8_lossy(slot.name))
            })
            .collect();
        assert_eq!(seen, ["A", "a", "a-", "a.b", "a/", "a0", "ab", "ab/", "\u{e9}"]);
        assert!(matches!(Slots::of(&tree, &root, Parts::All, 6), Err(TreeError::OverLimit { .. })));
    }
}
