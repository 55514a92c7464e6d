//! The blocks of the file system: what the journal holds lies over what the disk holds, and metadata is kept in memory.
//!
//! The cache is bounded in bytes and sharded, so that many threads read at once. What a block was verified to be (its
//! checksum, and its structure) is remembered with the copy that was verified, never by its number alone: a block that
//! is read again is verified again.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dormouse_files::tree::TreeError;

use super::{
    corrupt,
    journal::{Copied, MAGIC},
    superblock::Superblock,
};
use crate::{BlockSource, DiskLimits};

const SHARD_COUNT: usize = 16;

/// One block of metadata in memory.
pub(crate) struct Block {
    bytes: Box<[u8]>,
    verified: AtomicU64,
    used: AtomicBool,
}

/// What a block is verified to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    ExtentNode = 1,
    Directory = 2,
    Xattr = 3,
}

impl Block {
    pub(crate) fn new(bytes: Box<[u8]>) -> Self {
        Self { bytes, verified: AtomicU64::new(0), used: AtomicBool::new(false) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
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

/// Spreads block numbers. An image can choose numbers that collide, but a shard holds few, so that costs it little.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (number >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
struct Shard {
    blocks: HashMap<u64, Arc<Block>, BuildHasherDefault<Spread>>,
    order: VecDeque<u64>,
}

/// Every block of one file system.
pub(crate) struct Blocks {
    source: Arc<dyn BlockSource>,
    block_bytes: u32,
    first: u64,
    count: u64,
    overlay: BTreeMap<u64, Copied>,
    shards: Vec<Mutex<Shard>>,
    shard_block_count_max: usize,
}

impl Blocks {
    pub(crate) fn new(source: Arc<dyn BlockSource>, superblock: &Superblock, limits: &DiskLimits) -> Self {
        let shard_bytes = limits.cache_bytes_max / SHARD_COUNT;
        Self {
            source,
            block_bytes: superblock.block_bytes,
            first: superblock.first_data_block,
            count: superblock.block_count,
            overlay: BTreeMap::new(),
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            shard_block_count_max: (shard_bytes / superblock.block_bytes as usize).max(2),
        }
    }

    /// Length in bytes of what holds the file system.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.source.len()
    }

    /// Lays the copies of a replayed journal over the disk.
    pub(crate) fn lay_over(&mut self, overlay: BTreeMap<u64, Copied>) {
        self.overlay = overlay;
        // What was read before may be older.
        self.shards = (0..SHARD_COUNT).map(|_| Mutex::default()).collect();
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
        if !self.contain(number, 1) {
            return Err(corrupt(format!("block {number} lies outside the file system")));
        }
        let shard = &self.shards[(number % SHARD_COUNT as u64) as usize];
        if let Some(block) = shard.lock().unwrap_or_else(PoisonError::into_inner).blocks.get(&number) {
            block.used.store(true, Ordering::Relaxed);
            return Ok(Arc::clone(block));
        }
        // Read without the lock: two threads may read the same block, and one copy is kept.
        let mut bytes = vec![0; self.block_bytes as usize].into_boxed_slice();
        self.read(number, 0, &mut bytes)?;
        let block = Arc::new(Block::new(bytes));
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = shard.blocks.get(&number) {
            return Ok(Arc::clone(there));
        }
        while shard.order.len() >= self.shard_block_count_max {
            // Each turn either removes a block or takes its `used` mark, so there are at most two turns for each.
            let Some(oldest) = shard.order.pop_front() else { break };
            let kept = shard.blocks.get(&oldest).is_some_and(|block| block.used.swap(false, Ordering::Relaxed));
            if kept {
                shard.order.push_back(oldest);
            } else {
                shard.blocks.remove(&oldest);
            }
        }
        shard.order.push_back(number);
        shard.blocks.insert(number, Arc::clone(&block));
        Ok(block)
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

    /// Lends bytes that lie in memory, where nothing of the journal lies over the disk.
    pub(crate) fn lend(&self, number: u64, within: u64, length: usize) -> Option<&[u8]> {
        if !self.overlay.is_empty() {
            return None;
        }
        let place = number.checked_mul(u64::from(self.block_bytes))?.checked_add(within)?;
        self.source.lend(place, length)
    }

    fn read_source(&self, place: u64, buffer: &mut [u8]) -> Result<(), TreeError> {
        self.source.read_at(place, buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => corrupt(format!("the disk ends before byte {place} and what follows it")),
            _ => TreeError::Io(error),
        })
    }
}
