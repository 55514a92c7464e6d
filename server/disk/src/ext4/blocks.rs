//! The blocks of the file system: what the journal holds lies over what the disk holds, and metadata is kept in memory.
//!
//! What a block was verified to be (its checksum, and its structure) is remembered with the copy that was verified, never
//! by its number alone: a block that is read again is verified again.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use dormouse_files::tree::TreeError;

use super::{
    cache::Cache,
    corrupt,
    index::Index,
    overlay::{Copied, MAGIC, Overlay},
    superblock::Superblock,
};
use crate::{BlockSource, DiskLimits};

/// Bytes that are read at once where neighbours are likely to be asked for next.
const AHEAD_BYTES: usize = 32 << 10;
/// Windows of [`AHEAD_BYTES`] that are read together where all of them are likely to be asked for.
const NEIGHBOUR_COUNT: u64 = 8;
/// Bytes that are said to be needed at once: twice what an inode table usually has, and no more where an image says so.
const TOLD_BYTES_MAX: u64 = 4 << 20;
/// Bytes that one call says will be needed.
const AHEAD_CALL_BYTES: usize = 128 << 10;
/// Tells the key of blocks that were read together from that of the first of them: no block's number has so many bits.
const WINDOW: u64 = 1 << 63;

/// One block of metadata in memory, or some that lie together.
pub(crate) struct Block {
    bytes: Box<[u8]>,
    verified: AtomicU64,
    index: Index,
}

/// What a block is verified to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    ExtentNode = 1,
    Directory = 2,
    Xattr = 3,
    Descriptors = 4,
}

impl Block {
    fn new(bytes: Box<[u8]>) -> Self {
        Self { bytes, verified: AtomicU64::new(0), index: Index::default() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is known of its names, where it holds names.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Runs `verify` once for this copy, this role and this owner.
    pub(crate) fn verify_once(
        &self,
        role: Role,
        owner: u32,
        verify: impl FnOnce(&[u8]) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let key = (role as u64) << 32 | u64::from(owner);
        if self.verified.load(Ordering::Relaxed) == key {
            return Ok(());
        }
        verify(&self.bytes)?;
        // The bytes never change, so nothing is ordered by this store.
        self.verified.store(key, Ordering::Relaxed);
        Ok(())
    }
}

/// Every block of one file system.
pub(crate) struct Blocks {
    source: Arc<dyn BlockSource>,
    block_bytes: u32,
    first: u64,
    count: u64,
    overlay: Overlay,
    cache: Cache<Arc<Block>>,
    cache_bytes_max: usize,
    ahead_block_count: u64,
}

impl Blocks {
    pub(crate) fn new(source: Arc<dyn BlockSource>, superblock: &Superblock, limits: &DiskLimits) -> Self {
        Self {
            source,
            block_bytes: superblock.block_bytes,
            first: superblock.first_data_block,
            count: superblock.block_count,
            overlay: Overlay::new(),
            cache: Cache::new(limits.cache_bytes_max),
            cache_bytes_max: limits.cache_bytes_max,
            // A small cache is not to be filled by what nobody asked for.
            ahead_block_count: (AHEAD_BYTES.min(limits.cache_bytes_max / 256) as u64
                / u64::from(superblock.block_bytes))
            .max(1),
        }
    }

    /// Length in bytes of what holds the file system.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.source.len()
    }

    /// Where the file system ends on it, in bytes.
    pub(crate) fn end_bytes(&self) -> u64 {
        self.count.saturating_mul(u64::from(self.block_bytes))
    }

    /// Lays the copies of a replayed journal over the disk.
    pub(crate) fn lay_over(&mut self, overlay: Overlay) {
        self.overlay = overlay;
        // What was read before may be older.
        self.cache = Cache::new(self.cache_bytes_max);
    }

    /// Bytes in memory: of kept blocks, and about as many as the overlay takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.cache.bytes() + self.overlay.len() * 2 * size_of::<(u64, Copied)>() + self.source.held_bytes()
    }

    /// See [`BlockSource::forget`].
    pub(crate) fn forget_content(&self) {
        self.source.forget();
    }

    /// Takes the bounds of a superblock that was itself found in the journal.
    pub(crate) fn bound(&mut self, superblock: &Superblock) {
        (self.first, self.count) = (superblock.first_data_block, superblock.block_count);
    }

    /// Whether a run of blocks lies inside the file system.
    pub(crate) fn contain(&self, start: u64, length: u64) -> bool {
        start >= self.first.max(1) && start.checked_add(length).is_some_and(|end| end <= self.count)
    }

    /// A block of metadata, from memory where it is there.
    pub(crate) fn metadata(&self, number: u64) -> Result<Arc<Block>, TreeError> {
        match self.kept(number)? {
            Some(block) => Ok(block),
            None => self.read_metadata(number),
        }
    }

    /// A block of a run of which others are likely to be asked for next: they are read along and kept as one. Gives where in
    /// the bytes the block begins; `read` is told of what was read anew.
    pub(crate) fn metadata_of_run(
        &self,
        number: u64,
        run: Range<u64>,
        read: &dyn Fn(&[u8]),
    ) -> Result<(Arc<Block>, usize), TreeError> {
        let size = self.block_bytes as usize;
        let ahead = self.ahead_block_count;
        let window = number - number % ahead;
        let window = window.max(run.start)..window.saturating_add(ahead).min(run.end);
        let count = window.end.saturating_sub(window.start);
        if count < 2 || !window.contains(&number) || !self.contain(window.start, count) {
            return Ok((self.metadata(number)?, 0));
        }
        let within = (number - window.start) as usize * size;
        let key = window.start | WINDOW;
        if let Some(blocks) = self.cache.get(key, |blocks| Some(Arc::clone(blocks))) {
            // Another run may have been said to begin there and to be shorter.
            if blocks.bytes.len() == count as usize * size {
                return Ok((blocks, within));
            }
        }
        let mut bytes = vec![0; count as usize * size].into_boxed_slice();
        match self.read(window.start, 0, &mut bytes) {
            Ok(()) => {
                let blocks = self.keep(key, bytes, 0);
                read(&blocks.bytes);
                Ok((blocks, within))
            }
            // A neighbour that cannot be read is not this block's fault.
            Err(_) => Ok((self.metadata(number)?, 0)),
        }
    }

    /// A block of each window around one that lies in a run, its own among them.
    pub(crate) fn neighbours(&self, number: u64, run: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let (ahead, run) = (self.ahead_block_count, run.clone());
        let first = number - number % (ahead * NEIGHBOUR_COUNT);
        (0..NEIGHBOUR_COUNT)
            .map(move |index| first.saturating_add(index * ahead).max(run.start))
            .filter(move |&block| block < run.end)
    }

    /// Says that a run of blocks is likely to be asked for, if it lies inside the file system, and as far as it has no more
    /// than [`TOLD_BYTES_MAX`]; see [`BlockSource::will_need`].
    pub(crate) fn will_need(&self, start: u64, count: u64) {
        let size = u64::from(self.block_bytes);
        if self.contain(start, count)
            && let (Some(offset), Some(length)) = (start.checked_mul(size), count.checked_mul(size))
        {
            let length = length.min(TOLD_BYTES_MAX);
            // Of one call the kernel takes no more than a device's read-ahead, which is 128 KiB where nobody changed it.
            for begin in (0..length).step_by(AHEAD_CALL_BYTES) {
                self.source.will_need(offset + begin, (length - begin).min(AHEAD_CALL_BYTES as u64));
            }
        }
    }

    /// See [`BlockSource::is_fresh`].
    pub(crate) fn are_fresh(&self) -> bool {
        self.source.is_fresh()
    }

    fn kept(&self, number: u64) -> Result<Option<Arc<Block>>, TreeError> {
        if !self.contain(number, 1) {
            return Err(corrupt(format!("block {number} lies outside the file system")));
        }
        Ok(self.cache.get(number, |block| Some(Arc::clone(block))))
    }

    /// Two threads may read the same block: the later copy is kept.
    fn read_metadata(&self, number: u64) -> Result<Arc<Block>, TreeError> {
        let mut bytes = vec![0; self.block_bytes as usize].into_boxed_slice();
        self.read(number, 0, &mut bytes)?;
        // It may be a block of names, and get an index later.
        let more = Index::bytes_max(bytes.len());
        Ok(self.keep(number, bytes, more))
    }

    /// Keeps a block, and counts it with as many bytes more.
    fn keep(&self, key: u64, bytes: Box<[u8]>, more: usize) -> Arc<Block> {
        let value_bytes = bytes.len() + size_of::<Block>() + more;
        let block = Arc::new(Block::new(bytes));
        self.cache.put(key, Arc::clone(&block), value_bytes);
        block
    }

    /// Fills the buffer from `within` bytes after the start of block `number`, past any number of blocks, all of which the
    /// caller has found inside the file system.
    pub(crate) fn read(&self, number: u64, within: u64, buffer: &mut [u8]) -> Result<(), TreeError> {
        let size = u64::from(self.block_bytes);
        let place = number
            .checked_mul(size)
            .and_then(|start| start.checked_add(within))
            .ok_or_else(|| corrupt(format!("block {number} lies outside the file system")))?;
        if self.overlay.is_empty() {
            return self.read_source(place, buffer);
        }
        let (first, last) = (place / size, (place + buffer.len() as u64).div_ceil(size));
        let one = last - first == 1;
        if !(one && self.overlay.contains_key(&first)) {
            self.read_source(place, buffer)?;
        }
        for (&over, copied) in self.overlay.range(first..last) {
            let start = over * size;
            let from = place.saturating_sub(start);
            let to = start.saturating_sub(place) as usize;
            let target = buffer.get_mut(to..).unwrap_or_default();
            let length = target.len().min((size - from) as usize);
            self.read_copy(*copied, from, &mut target[..length])?;
        }
        Ok(())
    }

    fn read_copy(&self, copied: Copied, from: u64, target: &mut [u8]) -> Result<(), TreeError> {
        self.read_source(copied.physical * u64::from(self.block_bytes) + from, target)?;
        if copied.escaped {
            let magic = MAGIC.to_be_bytes();
            for (byte, magic) in target.iter_mut().zip(magic.iter().skip(from as usize)) {
                *byte = *magic;
            }
        }
        Ok(())
    }

    /// Lends bytes that lie in memory, where nothing of the journal lies over these blocks.
    pub(crate) fn lend(&self, number: u64, within: u64, length: usize) -> Option<&[u8]> {
        let size = u64::from(self.block_bytes);
        let place = number.checked_mul(size)?.checked_add(within)?;
        let blocks = place / size..place.checked_add(length as u64)?.div_ceil(size);
        if self.overlay.range(blocks).next().is_some() {
            return None;
        }
        self.source.lend(place, length)
    }

    fn read_source(&self, place: u64, buffer: &mut [u8]) -> Result<(), TreeError> {
        self.source.read_at(place, buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => corrupt(format!("the disk ends before byte {place} and what follows it")),
            // A layer's own format does not hold.
            io::ErrorKind::InvalidData => corrupt(error.to_string()),
            _ => TreeError::Io(error),
        })
    }
}
