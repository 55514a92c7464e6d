//! Memory that lies in large pages where the system has them.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut};

/// A page, and a large one, of the usual architectures.
const PAGE_BYTES: usize = 4 << 10;
const LARGE_BYTES: usize = 2 << 20;

/// Zeroed memory of this process alone. A page of 2 MiB is made at once where 512 of 4 KiB would each be made when they are
/// first touched, which costs as much as what is read into them.
pub struct Pages {
    memory: MmapMut,
    byte_count: usize,
}

impl Pages {
    /// So many bytes.
    ///
    /// # Errors
    /// What mmap(2) says, such as `ENOMEM`.
    pub fn new(byte_count: usize) -> io::Result<Self> {
        let memory = MmapMut::map_anon(Self::held_bytes(byte_count))?;
        // A system without large pages has small ones (madvise(2), `EINVAL`).
        let _ = memory.advise(Advice::HugePage);
        Ok(Self { memory, byte_count })
    }

    /// What so many bytes take: whole large pages, unless more than half of them would be for nothing.
    pub fn held_bytes(byte_count: usize) -> usize {
        let whole = byte_count.next_multiple_of(LARGE_BYTES);
        if whole - byte_count <= byte_count { whole } else { byte_count.next_multiple_of(PAGE_BYTES) }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.byte_count]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.byte_count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_with_zeros_and_keep_what_is_written() {
        let mut pages = Pages::new((2 << 20) + 1).expect("memory");
        assert!(pages.len() == (2 << 20) + 1 && pages.iter().all(|&byte| byte == 0));
        pages[2 << 20] = 7;
        assert_eq!(pages[(2 << 20) - 1..], [0, 7]);
        let held = |bytes| Pages::held_bytes(bytes) >> 10;
        assert_eq!([1 << 10, 1 << 20, (1 << 20) - 1024, (2 << 20) + 1].map(held), [4, 2048, 1024, 4096]);
    }
}
