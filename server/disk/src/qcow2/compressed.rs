//! Compressed clusters: found and decompressed here, and not by the library that reads the rest.
//!
//! imago 0.2.6 inflates into memory as if it were a ring. A stream that points back before its own beginning is then answered
//! with what that memory held before, which may be anything of this process: whoever writes an image could read it.
//! Here such a stream is an error, as it is for QEMU.
//!
//! Source: QEMU's `docs/interop/qcow2.rst` ("Cluster mapping") and RFC 1951.

use std::{fs::File, io, os::unix::fs::FileExt};

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF},
};

const ENTRY_BYTES: u64 = 8;
const SECTOR_BYTES: u64 = 512;
/// The bits of an entry that say where a table or a cluster lies.
const PLACE_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;
const COMPRESSED: u64 = 1 << 62;
/// It reads as zeros; only from the third version on.
const ZEROS: u64 = 1;

/// Where a layer says that its clusters lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables {
    /// 9 to 21.
    pub(super) cluster_bits: u32,
    /// Of the table of the first level.
    pub(super) place: u64,
    pub(super) entry_count: u64,
}

/// What a layer says of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: the layer below is asked.
    Below,
    /// It lies here, so many bytes at the most.
    Compressed { place: u64, byte_count: usize },
    /// It is not compressed.
    Plain,
}

fn corrupt(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("qcow2: {what}"))
}

impl Tables {
    /// What the layer's own tables say of the cluster at `offset` of the disk.
    pub(super) fn find(&self, file: &File, offset: u64) -> io::Result<Found> {
        let per_table_bits = self.cluster_bits - ENTRY_BYTES.ilog2();
        let cluster = offset >> self.cluster_bits;
        let (first, second) = (cluster >> per_table_bits, cluster & ((1 << per_table_bits) - 1));
        if first >= self.entry_count {
            return Ok(Found::Below);
        }
        let table = entry(file, self.place, first)? & PLACE_MASK;
        if table == 0 {
            return Ok(Found::Below);
        }
        Ok(self.judge(entry(file, table, second)?))
    }

    fn judge(&self, entry: u64) -> Found {
        if entry & COMPRESSED == 0 {
            return if entry & (PLACE_MASK | ZEROS) == 0 { Found::Below } else { Found::Plain };
        }
        // Below the two highest bits: how many sectors it touches beyond the first, then where it begins, to the byte.
        let place_bits = 62 - (self.cluster_bits - 8);
        let place = entry & ((1 << place_bits) - 1);
        let sector_count = ((entry & (COMPRESSED - 1)) >> place_bits) + 1;
        // At most 2^13 sectors, so 4 MiB.
        let byte_count = sector_count * SECTOR_BYTES - place % SECTOR_BYTES;
        Found::Compressed { place, byte_count: byte_count as usize }
    }

    /// Reads a compressed cluster and decompresses all of it.
    pub(super) fn read(&self, file: &File, place: u64, byte_count: usize) -> io::Result<Vec<u8>> {
        let mut held = vec![0; byte_count];
        let mut filled = 0;
        // What is beyond the file's end reads as zeros: the last sector need not be whole.
        while let Some(rest) = held.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, place.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        inflate(&held, 1 << self.cluster_bits)
    }
}

/// The entry of a table, both of them in the file.
fn entry(file: &File, table: u64, index: u64) -> io::Result<u64> {
    let place = index.checked_mul(ENTRY_BYTES).and_then(|within| table.checked_add(within));
    let mut bytes = [0; ENTRY_BYTES as usize];
    file.read_exact_at(&mut bytes, place.ok_or_else(|| corrupt("a table outside its file"))?).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof { corrupt("a table outside its file") } else { error }
    })?;
    Ok(u64::from_be_bytes(bytes))
}

/// A raw deflate stream of exactly so many bytes, or of more, which are left out; what is behind it does not count.
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
    use std::io::Write as _;

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

    #[test]
    fn a_stream_that_points_back_before_its_beginning_is_an_error() {
        // A last block with the fixed code: three bytes from a distance of one, and the end.
        let first = [0x03, 0x02, 0x00];
        // A byte, then 258 bytes at a time from a distance of two.
        for stream in [&first[..], &[0x4B, 0x04, 0x41, 0x00]] {
            for length in [3, 259, 512] {
                assert_eq!(inflate(stream, length).unwrap_err().kind(), io::ErrorKind::InvalidData, "{stream:02x?}");
            }
        }
    }

    #[test]
    fn entries_say_what_the_format_says() {
        let tables = |cluster_bits| Tables { cluster_bits, place: 0, entry_count: 0 };
        let compressed = |place, byte_count| Found::Compressed { place, byte_count };
        assert_eq!(tables(16).judge(0), Found::Below);
        assert_eq!(tables(16).judge(1 << 63), Found::Below);
        assert_eq!(tables(16).judge(1), Found::Plain);
        assert_eq!(tables(16).judge(1 << 63 | 0x50000), Found::Plain);
        // Clusters of 64 KiB: 54 bits for the place, 8 for the sectors.
        assert_eq!(tables(16).judge(COMPRESSED | 0x50000), compressed(0x50000, 512));
        assert_eq!(tables(16).judge(COMPRESSED | 3 << 54 | 0x50010), compressed(0x50010, 4 * 512 - 16));
        assert_eq!(tables(9).judge(COMPRESSED | 1 << 61 | 7), compressed(7, 1_017));
        assert_eq!(tables(21).judge(u64::MAX), compressed((1 << 49) - 1, (4 << 20) - 511));
    }

    #[test]
    fn tables_lie_in_their_file() {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; 2_048];
        bytes[512..520].copy_from_slice(&(1_024_u64 | 1 << 63).to_be_bytes());
        bytes[520..528].copy_from_slice(&4_096_u64.to_be_bytes());
        bytes[1_032..1_040].copy_from_slice(&(COMPRESSED | 0x600).to_be_bytes());
        file.write_all(&bytes).unwrap();
        let tables = Tables { cluster_bits: 9, place: 512, entry_count: 3 };
        let find = |offset| tables.find(&file, offset).map_err(|error| error.kind());
        assert_eq!(find(0), Ok(Found::Below));
        assert_eq!(find(512), Ok(Found::Compressed { place: 0x600, byte_count: 512 }));
        // 64 entries of 512 bytes each.
        assert_eq!(find(64 * 512), Err(io::ErrorKind::InvalidData));
        assert_eq!(find(2 * 64 * 512), Ok(Found::Below));
        assert_eq!(find(u64::MAX), Ok(Found::Below));
        let far = Tables { place: u64::MAX - 3, ..tables };
        assert_eq!(far.find(&file, 64 * 512).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
