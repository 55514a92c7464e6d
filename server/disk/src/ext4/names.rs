//! Where names were found to lead, and which were found to be missing.
//!
//! A path of many names is looked up again and again along the same directories. What one lookup found, the next one takes
//! from here, within a bound of bytes, and does not walk a hash tree anew.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use super::{cache::Cache, inode::Inode};

/// What is known of a name in a directory.
#[derive(Clone)]
pub(crate) enum Lead {
    /// No such name.
    Nowhere,
    /// To this inode.
    Inode(Arc<Inode>),
    /// To a directory that may be entered from there: its number.
    Entered(u32),
}

struct Known {
    directory: u32,
    name: Box<[u8]>,
    lead: Lead,
}

/// Names of all directories.
pub(crate) struct Names {
    known: Cache<Known>,
    hashes: RandomState,
}

impl Names {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { known: Cache::new(bytes_max), hashes: RandomState::new() }
    }

    /// Two names of one hash take each other's place: the hash is keyed, so nobody can look for such names.
    fn key(&self, directory: u32, name: &[u8]) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_u32(directory);
        hasher.write(name);
        hasher.finish()
    }

    pub(crate) fn get(&self, directory: u32, name: &[u8]) -> Option<Lead> {
        let same = |known: &Known| known.directory == directory && *known.name == *name;
        self.known.get(self.key(directory, name), |known| same(known).then(|| known.lead.clone()))
    }

    /// Names that no directory can hold are not kept: they are as long as a caller likes.
    pub(crate) fn put(&self, directory: u32, name: &[u8], lead: Lead) {
        if name.len() <= 255 {
            // The inode is counted in full, though others may hold it too.
            let inode_bytes = if let Lead::Inode(inode) = &lead { inode.held_bytes() } else { 0 };
            let known = Known { directory, name: name.into(), lead };
            self.known.put(self.key(directory, name), known, size_of::<Known>() + name.len() + inode_bytes);
        }
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.known.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_each_directory_has_its_own_lead() {
        let names = Names::new(1 << 20);
        names.put(2, b"a", Lead::Entered(12));
        names.put(3, b"a", Lead::Nowhere);
        names.put(2, b"b", Lead::Entered(13));
        let check = |directory, name: &str, expect| {
            let found = names.get(directory, name.as_bytes()).map(|lead| match lead {
                Lead::Nowhere => 0,
                Lead::Inode(inode) => inode.number,
                Lead::Entered(number) => number,
            });
            assert_eq!(found, expect, "{name}");
        };
        check(2, "a", Some(12));
        check(3, "a", Some(0));
        check(2, "b", Some(13));
        check(3, "b", None);
        names.put(2, b"a", Lead::Nowhere);
        check(2, "a", Some(0));
        names.put(2, &[b'x'; 256], Lead::Nowhere);
        check(2, &"x".repeat(256), None);
    }
}
