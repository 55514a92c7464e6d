//! What was read or found out already, kept in memory within a bound of bytes.
//!
//! An open disk is one state of it, so nothing that is kept here goes out of date; what has not been used since its last
//! turn is let go first (second chance). The cache is cut into shards with a lock of their own, so that many threads look
//! at once, and no lock is held while anything is read or worked out. Its size comes from [`crate::DiskLimits`] alone,
//! never from a number on the disk.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

const SHARD_COUNT: usize = 16;
/// What an entry costs beside its value: its place in the map and the rest of its slot, with the room that both keep ahead.
const ENTRY_BYTES: usize = 80;

/// Spreads keys in a way that an image cannot know: its numbers are its own choice.
#[derive(Clone, Copy)]
pub(super) struct Spread(u64);

impl Spread {
    /// With a secret of its own.
    pub(super) fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    /// The hash of bytes behind a number. Whoever knows the secret could find bytes of one hash, and nobody else.
    pub(super) fn hash(self, number: u32, bytes: &[u8]) -> u64 {
        let mut state = fold(self.0 ^ u64::from(number) ^ (bytes.len() as u64) << 32);
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            state = fold(state ^ word.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
        match words.remainder() {
            [] => state,
            rest => fold(state ^ rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))),
        }
    }
}

/// Every bit of the number has a part in every bit of what it becomes.
fn fold(number: u64) -> u64 {
    let product = u128::from(number) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
    product as u64 ^ (product >> 64) as u64
}

impl BuildHasher for Spread {
    type Hasher = Spreader;

    fn build_hasher(&self) -> Spreader {
        Spreader(self.0)
    }
}

pub(super) struct Spreader(u64);

impl Hasher for Spreader {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = fold(key ^ self.0);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Slot<V> {
    key: u64,
    /// Nothing: the slot is free.
    value: Option<V>,
    /// Narrow, since there are many: no value that is kept has 4 GiB.
    bytes: u32,
    used: bool,
}

struct Shard<V> {
    /// Where in `slots` a key is: small, so that it is quick to grow.
    places: HashMap<u64, u32, Spread>,
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
    /// The slot whose turn is next.
    hand: usize,
    bytes: usize,
}

/// Values by their keys.
pub(super) struct Cache<V> {
    shards: Vec<Mutex<Shard<V>>>,
    spread: Spread,
    shard_bytes_max: usize,
    bytes: AtomicUsize,
}

impl<V> Cache<V> {
    /// Holds `bytes_max` bytes; a shard always holds one value, however large.
    pub(super) fn new(bytes_max: usize) -> Self {
        let spread = Spread::new();
        let shard =
            || Shard { places: HashMap::with_hasher(spread), slots: Vec::new(), free: Vec::new(), hand: 0, bytes: 0 };
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::new(shard())).collect(),
            spread,
            shard_bytes_max: bytes_max / SHARD_COUNT,
            bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes that are held now.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, key: u64) -> &Mutex<Shard<V>> {
        // The map's own places come from the low bits and the highest seven.
        let hash = self.spread.hash_one(key);
        &self.shards[(hash >> 40) as usize % SHARD_COUNT]
    }

    /// What `look` takes from the value of a key, if there is one.
    pub(super) fn get<T>(&self, key: u64, look: impl FnOnce(&V) -> Option<T>) -> Option<T> {
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let place = *shard.places.get(&key)?;
        let slot = shard.slots.get_mut(place as usize)?;
        slot.used = true;
        look(slot.value.as_ref()?)
    }

    /// Keeps a value of so many bytes, in the place of one that the key had, and lets others go for it.
    pub(super) fn put(&self, key: u64, value: V, value_bytes: usize) {
        let bytes = u32::try_from(value_bytes.saturating_add(ENTRY_BYTES)).unwrap_or(u32::MAX);
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let before = shard.bytes;
        shard.put(Slot { key, value: Some(value), bytes, used: false }, self.shard_bytes_max);
        // Wraps where the shard shrank, and the sum over all shards comes out right.
        self.bytes.fetch_add(shard.bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl<V> Shard<V> {
    fn put(&mut self, mut slot: Slot<V>, bytes_max: usize) {
        let bytes = slot.bytes as usize;
        if let Some(known) = self.places.get(&slot.key).and_then(|&place| self.slots.get_mut(place as usize)) {
            slot.used = true;
            let replaced = std::mem::replace(known, slot);
            self.bytes = self.bytes - replaced.bytes as usize + bytes;
            // It may be larger than the one before.
            self.make_room(bytes_max.max(bytes));
            return;
        }
        self.make_room(bytes_max.saturating_sub(bytes));
        self.bytes += bytes;
        let free = self.free.pop();
        // There are never 2^32 of them: each counts for more bytes than memory has then.
        self.places.insert(slot.key, free.unwrap_or(self.slots.len() as u32));
        match free.and_then(|place| self.slots.get_mut(place as usize)) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
    }

    /// Lets go until no more than this is held.
    fn make_room(&mut self, bytes_max: usize) {
        // Each turn either frees a slot or takes its mark, so two rounds free all.
        for _ in 0..2 * self.slots.len() {
            if self.bytes <= bytes_max {
                return;
            }
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            let slot = &mut self.slots[place];
            if std::mem::take(&mut slot.used) {
                continue;
            }
            if slot.value.take().is_some() {
                self.bytes -= slot.bytes as usize;
                self.places.remove(&slot.key);
                self.free.push(place as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(cache: &Cache<u64>, key: u64) -> Option<u64> {
        cache.get(key, |&value| Some(value))
    }

    fn held_count(cache: &Cache<u64>, keys: std::ops::Range<u64>) -> usize {
        keys.filter(|&key| value(cache, key).is_some()).count()
    }

    #[test]
    fn holds_no_more_than_its_bound() {
        let cache = Cache::new(SHARD_COUNT * 10 * (ENTRY_BYTES + 20));
        for key in 0..10_000 {
            cache.put(key, key * 2, 20);
            assert_eq!(value(&cache, key), Some(key * 2));
            assert!(cache.bytes() <= SHARD_COUNT * 10 * (ENTRY_BYTES + 20));
        }
        let held = held_count(&cache, 0..10_000);
        assert_eq!(cache.bytes(), held * (ENTRY_BYTES + 20));
        assert!(held > SHARD_COUNT * 5);
    }

    #[test]
    fn values_that_grow_stay_within_the_bound() {
        let bound = SHARD_COUNT * 10 * (ENTRY_BYTES + 20);
        let cache = Cache::new(bound);
        for round in 1..8 {
            for key in 0..200 {
                cache.put(key, key, 20 * round);
                assert!(cache.bytes() <= bound);
            }
        }
        let held = held_count(&cache, 0..200);
        assert_eq!(cache.bytes(), held * (ENTRY_BYTES + 140));
    }

    #[test]
    fn a_value_beyond_the_bound_is_held_alone() {
        let cache = Cache::new(0);
        for key in 0..1_000 {
            cache.put(key, key, 1 << 20);
            assert_eq!(value(&cache, key), Some(key));
        }
        assert!(held_count(&cache, 0..1_000) <= SHARD_COUNT);
    }

    #[test]
    fn what_is_used_stays() {
        let cache = Cache::new(SHARD_COUNT * 20 * ENTRY_BYTES);
        cache.put(7, 1, 0);
        for key in 100..10_000 {
            cache.put(key, 0, 0);
            assert_eq!(value(&cache, 7), Some(1));
        }
        cache.put(7, 2, 5);
        assert_eq!(value(&cache, 7), Some(2));
        assert_eq!(cache.get(7, |_| None::<()>), None);
        assert_eq!(value(&cache, 3), None);
    }
}
