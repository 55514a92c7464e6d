//! A file's bytes, lent or read within the bounds of a search.

use super::scan::{self, BINARY_BYTES};
use crate::{
    meta::Meta,
    tree::{Tree, TreeError},
};

/// A file over this is read in two parts, so that a binary one costs little.
const TWO_PARTS_BYTES: u64 = 64 << 10;
/// The first of them.
const FIRST_PART_BYTES: usize = 16 << 10;
/// Bytes of a line of the processor's cache.
const CACHE_LINE_BYTES: usize = 64;

/// A file's bytes, or why they are not searched.
pub(super) enum Content<'a> {
    Text(&'a [u8]),
    Binary,
    TooLarge,
}

/// Where files are read to, one after another.
///
/// Begins where a line of the processor's cache does: to a place beside that, the kernel may need twice the time to copy.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Where that line begins.
    start: usize,
}

impl Buffer {
    /// Room for so many bytes, the first `filled` of which stay what they are.
    fn room(&mut self, length: usize, filled: usize) -> &mut [u8] {
        let needed = length.saturating_add(CACHE_LINE_BYTES);
        if self.bytes.len() < needed {
            let mut bytes = vec![0; needed.max(self.bytes.len() * 2)];
            let start = bytes.as_ptr().align_offset(CACHE_LINE_BYTES).min(CACHE_LINE_BYTES);
            bytes[start..start + filled].copy_from_slice(self.filled(filled));
            *self = Self { bytes, start };
        }
        &mut self.bytes[self.start..self.start + length]
    }

    fn filled(&self, count: usize) -> &[u8] {
        &self.bytes[self.start..self.start + count]
    }
}

/// Reads a file that was opened, unless it is larger than this or binary.
pub(super) fn read<'a, T: Tree>(
    tree: &'a T,
    file: &'a T::File,
    meta: &Meta,
    size_bytes_max: u64,
    buffer: &'a mut Buffer,
) -> Result<Content<'a>, TreeError> {
    if meta.size_bytes > size_bytes_max {
        return Ok(Content::TooLarge);
    }
    let size = usize::try_from(meta.size_bytes).unwrap_or(usize::MAX);
    if size > 0
        && let Some(lent) = tree.lend(file, 0, size)?
        && lent.len() == size
    {
        return Ok(if scan::is_binary(lent) { Content::Binary } else { Content::Text(lent) });
    }
    // One byte more than it says, so that a file that grows is noticed.
    let mut room = size.saturating_add(1);
    let mut filled = 0;
    if meta.size_bytes > TWO_PARTS_BYTES {
        filled = tree.read_at(file, 0, &mut buffer.room(room, 0)[..FIRST_PART_BYTES])?;
        const { assert!(FIRST_PART_BYTES >= BINARY_BYTES) };
        if scan::is_binary(buffer.filled(filled)) {
            return Ok(Content::Binary);
        }
    }
    loop {
        let rest = &mut buffer.room(room, filled)[filled..];
        let count = tree.read_rest(file, filled as u64, meta.size_bytes, rest)?;
        filled += count.min(room - filled);
        if filled < room {
            break;
        }
        if filled as u64 > size_bytes_max {
            return Ok(Content::TooLarge);
        }
        room = room.saturating_mul(2).min(usize::try_from(size_bytes_max).unwrap_or(usize::MAX).saturating_add(1));
    }
    let bytes = buffer.filled(filled);
    Ok(if scan::is_binary(bytes) { Content::Binary } else { Content::Text(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_its_bytes_and_its_place_while_it_grows() {
        let mut buffer = Buffer::default();
        buffer.room(3, 0).copy_from_slice(b"abc");
        for length in [4, 100, 64 << 10, 1 << 20] {
            assert_eq!(buffer.room(length, 3).len(), length);
            assert_eq!(buffer.filled(3), b"abc");
            assert_eq!(buffer.filled(3).as_ptr().align_offset(CACHE_LINE_BYTES), 0);
        }
        assert_eq!(buffer.room(2, 0), b"ab");
    }
}
