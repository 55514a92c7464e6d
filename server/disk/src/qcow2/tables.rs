//! Where a layer says that its clusters lie: two levels of tables, read as they are needed.
//!
//! Source: QEMU's `docs/interop/qcow2.rst` ("Cluster mapping").

use std::{
    fs::File,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::bytes::{Copies, corrupt, read_padded};

const ENTRY_BYTES: u64 = 8;
const SECTOR_BYTES: u64 = 512;
/// The bits of an entry that say where a table or a cluster lies.
const PLACE_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;
const COMPRESSED: u64 = 1 << 62;
/// It reads as zeros; only from the third version on.
const ZEROS: u64 = 1;
/// Bytes of a layer's tables that are read at once.
const HELD_BYTES: u64 = 4_096;
/// How many such are held of each layer.
const HELD_COUNT: usize = 8;

/// What the header says of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables {
    /// 9 to 21.
    pub(super) cluster_bits: u32,
    /// Of the table of the first level.
    pub(super) place: u64,
    pub(super) entry_count: u64,
    /// Length of the disk, as this layer has it.
    pub(super) disk_bytes: u64,
    pub(super) version: u32,
}

/// What a layer says of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: the layer below is asked.
    Below,
    Zeros,
    /// It lies there.
    Plain(u64),
    /// It lies there, so many bytes at the most.
    Compressed {
        place: u64,
        byte_count: usize,
    },
}

/// Some of a file, as it was when it was read.
type Block = (u64, Box<[u8]>);

/// Parts of one layer's tables.
#[derive(Default)]
pub(super) struct Words {
    held: [Mutex<Option<Block>>; HELD_COUNT],
    held_count: AtomicUsize,
}

impl Words {
    /// The eight bytes at a place that is a multiple of eight; what is beyond the file's end reads as zeros.
    fn get(&self, file: &File, place: u64, copies: Copies) -> io::Result<u64> {
        let (start, within) = (place - place % HELD_BYTES, (place % HELD_BYTES) as usize);
        let word = |bytes: &[u8]| bytes[within..].iter().take(8).fold(0, |word, &byte| word << 8 | u64::from(byte));
        let slot =
            || self.held[(start / HELD_BYTES) as usize % HELD_COUNT].lock().unwrap_or_else(PoisonError::into_inner);
        if copies == Copies::Held
            && let Some((_, bytes)) = slot().as_ref().filter(|(held, _)| *held == start)
        {
            return Ok(word(bytes));
        }
        // No lock is held meanwhile.
        let mut bytes = vec![0; HELD_BYTES as usize].into_boxed_slice();
        read_padded(file, start, &mut bytes)?;
        let found = word(&bytes);
        if copies == Copies::Held && slot().replace((start, bytes)).is_none() {
            self.held_count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Bytes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_count.load(Ordering::Relaxed) * HELD_BYTES as usize
    }
}

impl Tables {
    /// Bytes from the beginning of the cluster that a place of the disk lies in.
    pub(super) fn within(&self, offset: u64) -> u64 {
        offset & ((1 << self.cluster_bits) - 1)
    }

    /// Bytes to the end of that cluster.
    pub(super) fn left(&self, offset: u64) -> u64 {
        (1 << self.cluster_bits) - self.within(offset)
    }

    /// What the tables say of the cluster that a place of the disk lies in.
    ///
    /// # Errors
    /// `InvalidData` for what no sound image says.
    pub(super) fn find(&self, words: &Words, file: &File, offset: u64, copies: Copies) -> io::Result<Found> {
        let per_table_bits = self.cluster_bits - ENTRY_BYTES.ilog2();
        let cluster = offset >> self.cluster_bits;
        let (first, second) = (cluster >> per_table_bits, cluster & ((1 << per_table_bits) - 1));
        if first >= self.entry_count {
            return Err(corrupt("a place that no table speaks of"));
        }
        // Its end was found to have 64 bits when the header was read.
        let table = words.get(file, self.place + first * ENTRY_BYTES, copies)? & PLACE_MASK;
        if table == 0 {
            return Ok(Found::Below);
        }
        if self.within(table) != 0 {
            return Err(corrupt("a table that begins inside a cluster"));
        }
        self.judge(words.get(file, table + second * ENTRY_BYTES, copies)?)
    }

    fn judge(&self, entry: u64) -> io::Result<Found> {
        if entry & COMPRESSED == 0 {
            let place = entry & PLACE_MASK;
            return match (entry & ZEROS != 0, place) {
                (true, _) if self.version < 3 => Err(corrupt("a cluster of zeros in the second version")),
                (true, _) => Ok(Found::Zeros),
                (false, 0) => Ok(Found::Below),
                (false, _) if self.within(place) != 0 => Err(corrupt("a cluster that begins inside another")),
                (false, _) => Ok(Found::Plain(place)),
            };
        }
        // Below the two highest bits: how many sectors it touches beyond the first, then where it begins, to the byte.
        let place_bits = 62 - (self.cluster_bits - 8);
        let place = entry & ((1 << place_bits) - 1);
        let sector_count = ((entry & (COMPRESSED - 1)) >> place_bits) + 1;
        // At most 2^13 sectors, so 4 MiB.
        let byte_count = sector_count * SECTOR_BYTES - place % SECTOR_BYTES;
        Ok(Found::Compressed { place, byte_count: byte_count as usize })
    }

    /// How many bytes lie together from `place` on, where `offset` of the disk lies: at most `wanted`, or to the cluster's end.
    pub(super) fn run(
        &self,
        words: &Words,
        file: &File,
        (offset, place): (u64, u64),
        wanted: u64,
        copies: Copies,
    ) -> u64 {
        let mut run = self.left(offset);
        while run < wanted && offset + run < self.disk_bytes {
            // What is wrong with a neighbour is told when it is asked for itself.
            match self.find(words, file, offset + run, copies) {
                Ok(Found::Plain(next)) if next == place + run => run += 1 << self.cluster_bits,
                _ => break,
            }
        }
        run.min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::FileExt as _};

    use super::*;

    fn tables(cluster_bits: u32, version: u32) -> Tables {
        Tables { cluster_bits, place: 512, entry_count: 3, disk_bytes: 1 << 40, version }
    }

    #[test]
    fn entries_say_what_the_format_says() {
        let judge = |cluster_bits, entry| tables(cluster_bits, 3).judge(entry).map_err(|error| error.kind());
        let compressed = |place, byte_count| Ok(Found::Compressed { place, byte_count });
        assert_eq!(judge(16, 0), Ok(Found::Below));
        assert_eq!(judge(16, 1 << 63), Ok(Found::Below));
        assert_eq!(judge(16, 1), Ok(Found::Zeros));
        assert_eq!(judge(16, 0x5_0001), Ok(Found::Zeros));
        assert_eq!(judge(16, 1 << 63 | 0x5_0000), Ok(Found::Plain(0x5_0000)));
        assert_eq!(judge(16, 0x5_0200), Err(io::ErrorKind::InvalidData));
        assert_eq!(tables(16, 2).judge(1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Clusters of 64 KiB: 54 bits for the place, 8 for the sectors.
        assert_eq!(judge(16, COMPRESSED | 0x5_0000), compressed(0x5_0000, 512));
        assert_eq!(judge(16, COMPRESSED | 3 << 54 | 0x5_0010), compressed(0x5_0010, 4 * 512 - 16));
        assert_eq!(judge(9, COMPRESSED | 1 << 61 | 7), compressed(7, 1_017));
        assert_eq!(judge(21, u64::MAX), compressed((1 << 49) - 1, (4 << 20) - 511));
    }

    #[test]
    fn entries_are_looked_up_and_looked_up_again() {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; 2_048];
        let mut put = |at: usize, entry: u64| bytes[at..at + 8].copy_from_slice(&entry.to_be_bytes());
        put(512, 1_024 | 1 << 63);
        put(520, 1 << 20);
        put(528, 1_024 + 8);
        put(1_032, COMPRESSED | 0x600);
        put(1_040, 0x800);
        put(1_048, 0xA00);
        put(1_056, 0xE00);
        file.write_all(&bytes).unwrap();
        let (tables, words) = (tables(9, 3), Words::default());
        let find = |offset, copies| tables.find(&words, &file, offset, copies).map_err(|error| error.kind());
        let held = |offset| find(offset, Copies::Held);
        assert_eq!(held(0), Ok(Found::Below));
        assert_eq!(held(512), Ok(Found::Compressed { place: 0x600, byte_count: 512 }));
        assert_eq!(held(1_024 + 17), Ok(Found::Plain(0x800)));
        // 64 entries of 512 bytes each: a table beyond the file's end, one that begins inside a cluster, and none.
        assert_eq!(held(64 * 512), Ok(Found::Below));
        assert_eq!(held(2 * 64 * 512), Ok(Found::Below));
        assert_eq!(held(3 * 64 * 512), Err(io::ErrorKind::InvalidData));
        assert_eq!(held(u64::MAX), Err(io::ErrorKind::InvalidData));
        assert_eq!(tables.within(1_024 + 17), 17);
        let run = |offset, place, wanted| tables.run(&words, &file, (offset, place), wanted, Copies::Held);
        assert_eq!([100, 495, 600, 5_000].map(|wanted| run(1_024 + 17, 0x811, wanted)), [100, 495, 600, 1_007]);
        let last = Tables { disk_bytes: 1_024 + 512, ..tables };
        assert_eq!(last.run(&words, &file, (1_024, 0x800), 5_000, Copies::Held), 512);
        assert_eq!(words.held_bytes(), 4_096);
        file.write_all_at(&0xC00_u64.to_be_bytes(), 1_040).unwrap();
        assert_eq!(held(1_024), Ok(Found::Plain(0x800)));
        assert_eq!(find(1_024, Copies::Fresh), Ok(Found::Plain(0xC00)));
    }
}
