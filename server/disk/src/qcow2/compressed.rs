//! Compressed clusters.
//!
//! Source: QEMU's `docs/interop/qcow2.rst` and RFC 1951.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF},
};

use super::bytes::{corrupt, read_padded};

/// Bytes of clusters that are held for one disk: at least two of the largest.
const HELD_BYTES_MAX: usize = 4 << 20;
/// And never more than so many.
const HELD_COUNT_MAX: usize = 8;

/// Which cluster: its layer, and where it begins on the disk.
type Name = (usize, u64);
type Bytes = Arc<[u8]>;

/// The clusters that were read last: most reads are of a part of one.
#[derive(Default)]
pub(super) struct Clusters(Mutex<Vec<(Name, Bytes)>>);

impl Clusters {
    /// A cluster, from memory where it is there.
    ///
    /// # Errors
    /// As `read`.
    pub(super) fn get(&self, name: Name, read: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Bytes> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = held().iter().find(|(other, _)| *other == name) {
            return Ok(Arc::clone(bytes));
        }
        // No lock is held while a cluster is read.
        let bytes: Bytes = read()?.into();
        let mut held = held();
        let count_max = (HELD_BYTES_MAX / bytes.len().max(1)).clamp(1, HELD_COUNT_MAX);
        while held.len() >= count_max
            || held.iter().map(|(_, other)| other.len()).sum::<usize>() + bytes.len() > HELD_BYTES_MAX
        {
            if held.is_empty() {
                break;
            }
            held.remove(0);
        }
        held.push((name, Arc::clone(&bytes)));
        Ok(bytes)
    }

    /// Lets all of them go.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Bytes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// Reads a compressed cluster, and decompresses all of it: so many bytes.
///
/// # Errors
/// `InvalidData` where it does not decompress.
pub(super) fn read(file: &File, place: u64, held_bytes: usize, byte_count: usize) -> io::Result<Vec<u8>> {
    let mut held = vec![0; held_bytes];
    // The last sector of a file need not be whole.
    read_padded(file, place, &mut held)?;
    inflate(&held, byte_count)
}

/// A raw deflate stream of exactly so many bytes, or of more, which are left out; what is behind it does not count.
///
/// The memory is no ring: a stream that points back before its own beginning is an error, as it is for QEMU, and is never
/// answered with what some memory held before.
fn inflate(held: &[u8], byte_count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; byte_count];
    let mut state = Box::<DecompressorOxide>::default();
    let (status, _, count) = decompress(&mut state, held, &mut bytes, 0, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF);
    match status {
        TINFLStatus::Done | TINFLStatus::HasMoreOutput if count == byte_count => Ok(bytes),
        _ => Err(corrupt("a compressed cluster that does not decompress")),
    }
}

#[cfg(test)]
mod tests {
    use miniz_oxide::deflate::compress_to_vec;

    use super::*;

    #[test]
    fn a_cluster_is_whole_or_an_error() {
        let cluster: Vec<u8> = (0..65_536_u32).map(|at| (at / 7) as u8).collect();
        let stream = compress_to_vec(&cluster, 6);
        let with_more = [&stream[..], &[0xAA; 300]].concat();
        assert!(inflate(&with_more, 65_536).unwrap() == cluster);
        let longer = compress_to_vec(&[&cluster[..], &[1; 9]].concat(), 6);
        assert!(inflate(&longer, 65_536).unwrap() == cluster);
        for bad in [&stream[..stream.len() / 2], &[], &[0xFF; 40], &compress_to_vec(&cluster[1..], 6)] {
            assert_eq!(inflate(bad, 65_536).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    /// `a`, then so many times 258 bytes from so far back, in the fixed code (RFC 1951, section 3.2.6).
    fn repeated(distance_code: u32, count: usize) -> Vec<u8> {
        let mut bits: Vec<u32> = vec![1, 1, 0];
        let mut put = |code: u32, length: u32| bits.extend((0..length).rev().map(|at| code >> at & 1));
        put(0x30 + u32::from(b'a'), 8);
        for _ in 0..count {
            put(0xC5, 8);
            put(distance_code, 5);
        }
        put(0, 7);
        bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8)).collect()
    }

    #[test]
    fn a_stream_that_points_back_before_its_beginning_is_an_error() {
        // From one byte back, and from two, where there is one: in the loop for short and the one for long streams.
        assert!(inflate(&repeated(0, 1), 256).unwrap() == [b'a'; 256]);
        assert!(inflate(&repeated(0, 20), 4_096).unwrap() == [b'a'; 4_096]);
        for (stream, length) in [(repeated(1, 1), 256), (repeated(1, 20), 4_096), (vec![0x03, 0x02, 0x00], 2)] {
            assert_eq!(inflate(&stream, length).unwrap_err().kind(), io::ErrorKind::InvalidData, "{length}");
        }
    }

    #[test]
    fn clusters_are_held_within_a_bound() {
        let clusters = Clusters::default();
        let get = |start, length: usize| clusters.get((0, start), || Ok(vec![start as u8; length])).unwrap();
        for start in 0..20 {
            assert_eq!(get(start, 1_000)[..], vec![start as u8; 1_000]);
            // Not read again.
            assert_eq!(get(start, 7).len(), 1_000);
        }
        assert_eq!(clusters.held_bytes(), HELD_COUNT_MAX * 1_000);
        for start in 30..35 {
            get(start, 2 << 20);
            assert!(clusters.held_bytes() <= HELD_BYTES_MAX);
        }
        assert!(clusters.get((0, 99), || Err(io::ErrorKind::InvalidData.into())).is_err());
        clusters.forget();
        assert_eq!(clusters.held_bytes(), 0);
    }
}
