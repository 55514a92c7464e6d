//! Where the names of one block are, for a block that is asked for names again and again.
//!
//! Without it every lookup reads half of the block, a little of each of its cache lines. It holds a byte of each name's
//! hash, so a name is compared with those alone whose byte is the same, in their order in the block.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::directory::Entries;

/// Entries begin at multiples of this.
const PLACE_BYTES: usize = 4;
/// The shortest entry.
const ENTRY_BYTES_MIN: usize = 12;

/// What is known of the names in a block. It is made by the second lookup: to make it costs as much as some lookups.
#[derive(Default)]
pub(crate) struct Index {
    asked: AtomicBool,
    tags: OnceLock<Tags>,
}

struct Tags {
    /// Of each entry, in their order.
    tags: Vec<u8>,
    /// Where each begins, in units of [`PLACE_BYTES`].
    places: Vec<u16>,
    /// Why the entries end there, where they do so too early.
    fault: Option<&'static str>,
}

impl Index {
    /// Most bytes in memory beside its own, of a block with so many bytes: three for each entry.
    pub(super) fn bytes_max(block_bytes: usize) -> usize {
        block_bytes / ENTRY_BYTES_MIN * 3
    }

    /// As [`Entries::find`]; `entries` must be all of the block's, each time.
    pub(super) fn find(&self, entries: Entries<'_>, wanted: &[u8]) -> Result<Option<u32>, &'static str> {
        let tags = match self.tags.get() {
            Some(tags) => tags,
            None if self.asked.swap(true, Ordering::Relaxed) => self.tags.get_or_init(|| Tags::new(entries)),
            None => return entries.find(wanted),
        };
        let tag = tag_of(wanted);
        let same = tags.tags.iter().zip(&tags.places).filter(|(held, _)| **held == tag);
        for (_, &place) in same {
            let entry = entries.from(usize::from(place) * PLACE_BYTES).entry();
            if let Some((head, _)) = entry.transpose()?.filter(|(head, name)| *name == wanted && head.inode != 0) {
                return Ok(Some(head.inode));
            }
        }
        match tags.fault {
            Some(fault) => Err(fault),
            None => Ok(None),
        }
    }
}

impl Tags {
    fn new(mut entries: Entries<'_>) -> Self {
        let whole = entries.left_bytes();
        let (mut tags, mut places, mut fault) = (Vec::new(), Vec::new(), None);
        loop {
            // Blocks have at most 2^16 bytes.
            let place = ((whole - entries.left_bytes()) / PLACE_BYTES) as u16;
            match entries.entry() {
                None => break,
                Some(Ok((_, name))) => {
                    tags.push(tag_of(name));
                    places.push(place);
                }
                Some(Err(what)) => {
                    fault = Some(what);
                    break;
                }
            }
        }
        tags.shrink_to_fit();
        places.shrink_to_fit();
        Self { tags, places, fault }
    }

    /// Bytes in memory beside its own.
    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.tags.capacity() + 2 * self.places.capacity()
    }
}

/// A byte that tells most names of a directory apart, which often begin or end alike.
fn tag_of(name: &[u8]) -> u8 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word: u64, &byte| word << 8 | u64::from(byte));
    let ends = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first).rotate_left(29) ^ u64::from_le_bytes(*last),
        _ => word(name),
    };
    ((ends ^ name.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A block of names; an entry is longer than it needs by `more`.
    fn block(entries: &[(u32, String, u16)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (inode, name, more) in entries {
            let length = (8 + name.len() as u16).next_multiple_of(4) + more;
            bytes.extend(inode.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend([name.len() as u8, 1]);
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len() + usize::from(length) - 8 - name.len(), 0);
        }
        bytes
    }

    proptest! {
        /// Unused entries, names that come twice, and faults of every kind.
        #[test]
        fn finds_what_reading_every_entry_finds(
            entries in proptest::collection::vec((0_u32..12, "[ab]{1,3}|[ab]module_[ab]{1,3}.rs", prop::sample::select(vec![0_u16, 0, 4, 8])), 0..40),
            spoiled in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
            wanted in proptest::collection::vec("[ab]{1,3}|[ab]module_[ab]{1,3}.rs", 1..20),
        ) {
            let mut bytes = block(&entries);
            if let Some((place, byte)) = spoiled.filter(|_| !bytes.is_empty()) {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let index = Index::default();
            for name in wanted.iter().chain(entries.iter().map(|(_, name, _)| name)) {
                let every = Entries::of(&bytes, 10).find(name.as_bytes());
                prop_assert_eq!(index.find(Entries::of(&bytes, 10), name.as_bytes()), every);
            }
            prop_assert!(index.tags.get().is_none_or(|tags| tags.held_bytes() <= Index::bytes_max(bytes.len())));
        }
    }

    #[test]
    fn tags_tell_names_apart_that_begin_or_end_alike() {
        let distinct = |names: &mut dyn Iterator<Item = String>| {
            names.map(|name| tag_of(name.as_bytes())).collect::<std::collections::BTreeSet<u8>>().len()
        };
        // 64 names drawn from 256 tags at random would have 57 of them.
        assert!(distinct(&mut (0..64).map(|index| format!("module_{index:06}.rs"))) > 45);
        assert!(distinct(&mut (0..64).map(|index| format!("{index:06}_of_the_modules.rs"))) > 45);
        assert!(distinct(&mut (0..64).map(|index| format!("{index}.c"))) > 45);
    }
}
