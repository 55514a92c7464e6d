//! Where names were found to lead, and which were found to be missing.
//!
//! A path of many names is looked up again and again along the same directories. What one lookup found, the next one takes
//! from here, within a bound of bytes, and does not walk a hash tree anew.

use dormouse_files::meta::Meta;

use super::cache::{Cache, Spread};

/// What is known of a name in a directory.
#[derive(Clone, Copy)]
pub(crate) enum Lead {
    /// No such name.
    Nowhere,
    /// To an inode, of which this was found.
    Known(Meta),
    /// To a directory that may be entered from there: its number.
    Entered(u32),
}

struct Known {
    directory: u32,
    name: Short,
    lead: Lead,
}

/// Bytes of a name that are kept in their place; most names are no longer.
const SHORT_BYTES: usize = 22;

/// A name; a short one takes no memory of its own.
enum Short {
    Here { length: u8, bytes: [u8; SHORT_BYTES] },
    Elsewhere(Box<[u8]>),
}

impl Short {
    fn new(name: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match bytes.get_mut(..name.len()) {
            Some(room) => {
                room.copy_from_slice(name);
                Self::Here { length: name.len() as u8, bytes }
            }
            None => Self::Elsewhere(name.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Here { length, bytes } => &bytes[..usize::from(*length)],
            Self::Elsewhere(name) => name,
        }
    }

    /// Bytes in memory beside its own.
    fn held_bytes(&self) -> usize {
        if let Self::Elsewhere(name) = self { name.len() } else { 0 }
    }
}

/// Names of all directories.
pub(crate) struct Names {
    known: Cache<Known>,
    spread: Spread,
}

impl Names {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { known: Cache::new(bytes_max), spread: Spread::new() }
    }

    /// Two names of one hash take each other's place, which costs whoever asks for both of them a lookup.
    fn key(&self, directory: u32, name: &[u8]) -> u64 {
        self.spread.hash(directory, name)
    }

    pub(crate) fn get(&self, directory: u32, name: &[u8]) -> Option<Lead> {
        let same = |known: &Known| known.directory == directory && known.name.bytes() == name;
        self.known.get(self.key(directory, name), |known| same(known).then_some(known.lead))
    }

    /// Names that no directory can hold are not kept: they are as long as a caller likes.
    pub(crate) fn put(&self, directory: u32, name: &[u8], lead: Lead) {
        if name.len() <= 255 {
            let known = Known { directory, name: Short::new(name), lead };
            // It lies in the map itself, which keeps room ahead: between an eighth and more than half of all.
            let bytes = size_of::<Known>() * 3 / 2 + known.name.held_bytes();
            self.known.put(self.key(directory, name), known, bytes);
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
                Lead::Known(meta) => meta.inode as u32,
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
        // Those that are kept in their place, and those that are not.
        for length in [21, 22, 23, 255] {
            let name = "x".repeat(length);
            names.put(2, name.as_bytes(), Lead::Entered(length as u32));
            check(2, &name, Some(length as u32));
            check(2, &name[1..], if length == 22 || length == 23 { Some(length as u32 - 1) } else { None });
        }
        names.put(2, &[b'x'; 256], Lead::Nowhere);
        check(2, &"x".repeat(256), None);
    }
}
