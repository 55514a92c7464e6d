//! An index as bytes: written once, read whole, trusted only if its checksum holds and every number in it makes sense.
//!
//! ```text
//! magic and version, 8 bytes │ lengths │ root │ names │ directories │ files │ filters │ CRC-32C of all before, 4 bytes
//! ```
//! Numbers are little-endian.

use super::{Content, Directory, File, Index, Name};
use crate::path::TreePath;

const MAGIC: &[u8; 8] = b"dmIndex1";
const CLOSED: u8 = 1;

impl Index {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::try_from(self.memory_bytes()).unwrap_or_default() + 4_096);
        out.extend_from_slice(MAGIC);
        out.push(u8::from(self.machine_root));
        out.extend_from_slice(&self.text_bytes.to_le_bytes());
        let root = self.root.as_bytes();
        for length in [root.len(), self.names.len(), self.directories.len(), self.files.len(), self.words.len()] {
            out.extend_from_slice(&(length as u64).to_le_bytes());
        }
        out.extend_from_slice(root);
        out.extend_from_slice(&self.names);
        for directory in &self.directories {
            for number in [directory.above, directory.name.start, directory.first, directory.end] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&[directory.name.length, if directory.is_closed { CLOSED } else { 0 }]);
        }
        for file in &self.files {
            let (kind, size_bytes, first, log2) = match file.content {
                Content::Text { size_bytes, first, words_log2 } => (0, size_bytes, first, words_log2),
                Content::Binary { size_bytes } => (1, size_bytes, 0, 0),
                Content::Large { size_bytes } => (2, size_bytes, 0, 0),
                Content::Unknown => (3, 0, 0, 0),
                Content::Special => (4, 0, 0, 0),
                Content::Kernel => (5, 0, 0, 0),
            };
            for number in [file.directory, file.name.start, first] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&size_bytes.to_le_bytes());
            out.extend_from_slice(&[file.name.length, kind, log2]);
        }
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// From bytes; nothing where they are not what [`Index::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return None;
        }
        let mut input = Input(body.strip_prefix(MAGIC)?);
        let machine_root = match input.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let text_bytes = input.u64()?;
        let mut length = || usize::try_from(input.u64()?).ok();
        let lengths = [length()?, length()?, length()?, length()?, length()?];
        let [root, names, directories, files, words] = lengths;
        let root = TreePath::parse(input.take(root)?).ok()?;
        let names = input.take(names)?.to_vec();
        let sound = |name: Name| {
            let end = (name.start as usize).checked_add(usize::from(name.length));
            end.is_some_and(|end| end <= names.len()).then_some(name)
        };
        let mut all = Vec::with_capacity(directories.min(input.0.len()));
        for index in 0..u32::try_from(directories).ok()? {
            let [above, start, first, end] = [input.u32()?, input.u32()?, input.u32()?, input.u32()?];
            let name = sound(Name { start, length: input.byte()? })?;
            let is_closed = input.byte()? == CLOSED;
            // The walk up from any directory ends at the root.
            let is_beneath = above < index || (index, above) == (0, 0);
            if !is_beneath || first > end || end as usize > files {
                return None;
            }
            all.push(Directory { above, name, first, end, is_closed });
        }
        let directories = all;
        let mut all = Vec::with_capacity(files.min(input.0.len()));
        for _ in 0..files {
            let [directory, start, first] = [input.u32()?, input.u32()?, input.u32()?];
            let size_bytes = input.u64()?;
            let name = sound(Name { start, length: input.byte()? })?;
            let (kind, words_log2) = (input.byte()?, input.byte()?);
            let content = match kind {
                0 => {
                    let count = 1_usize.checked_shl(u32::from(words_log2))?;
                    if (first as usize).checked_add(count)? > words {
                        return None;
                    }
                    Content::Text { size_bytes, first, words_log2 }
                }
                1 => Content::Binary { size_bytes },
                2 => Content::Large { size_bytes },
                3 => Content::Unknown,
                4 => Content::Special,
                5 => Content::Kernel,
                _ => return None,
            };
            if directory as usize >= directories.len() {
                return None;
            }
            all.push(File { directory, name, content });
        }
        let files = all;
        let rest = input.take(words.checked_mul(8)?)?;
        let words = rest.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        let is_whole = input.0.is_empty() && !directories.is_empty();
        is_whole.then_some(Self { root, machine_root, text_bytes, names, directories, files, words })
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*taken))
    }

    fn u64(&mut self) -> Option<u64> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*taken))
    }
}
