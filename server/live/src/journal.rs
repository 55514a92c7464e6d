//! The journal's bytes: two preallocated files of which one is in use, records with checksums in it, nothing else.
//!
//! ```text
//! journal.0   header { generation 6 } record record record (end)
//! journal.1   header { generation 5 } what was there before
//! ```
//! A record's checksum (CRC-32C, RFC 3720 appendix B.4) covers its file's generation and its place in the row, so what an
//! earlier generation left behind is never taken for a record. The valid header with the highest generation counts. A new
//! generation is written whole and made durable, and only then gets its header; until then the old one counts.
//!
//! It does not know what a record means, and never flushes on its own: many callers share one flush.

use std::{
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    sync::Arc,
};

use rustix::fs::{self, Mode, OFlags};

use crate::{read, record::RECORD_BYTES_MAX};

/// In the state directory.
pub(crate) const FILE_NAMES: [&str; 2] = ["journal.0", "journal.1"];
const MAGIC: &[u8; 8] = b"dormouJ1";
/// The header has a block of its own, so that no torn write of a record can touch it.
const HEADER_BYTES: u64 = 4096;
/// checksum 4, length 4, generation 8, index 8.
const RECORD_HEADER_BYTES: usize = 24;
/// A file's first size; it doubles as needed.
const FILE_BYTES_MIN: u64 = 256 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Why no new generation was begun.
#[derive(Debug)]
pub(crate) enum RestartError {
    /// The records do not fit into the bound.
    Full,
    Io(io::Error),
}

impl From<io::Error> for RestartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Two files, one of them in use.
pub(crate) struct Journal {
    files: [Arc<File>; 2],
    sizes: [u64; 2],
    used: usize,
    generation: u64,
    index: u64,
    tail: u64,
    file_bytes_max: u64,
}

impl Journal {
    /// Opens or makes the files in the state directory, and reads what the last generation says. Nothing can be appended
    /// before [`Journal::restart`].
    pub(crate) fn open(directory: BorrowedFd<'_>, bytes_max: u64) -> io::Result<(Self, Vec<Vec<u8>>)> {
        let open = |name: &str| -> io::Result<File> {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
        };
        let files = [Arc::new(open(FILE_NAMES[0])?), Arc::new(open(FILE_NAMES[1])?)];
        fs::fsync(directory)?;
        let sizes = [files[0].metadata()?.len(), files[1].metadata()?.len()];
        let generations = [read_header(&files[0])?, read_header(&files[1])?];
        let used = usize::from(generations[1] > generations[0]);
        let mut records = Vec::new();
        if let Some(generation) = generations[used] {
            let end = sizes[used].min(bytes_max.max(FILE_BYTES_MIN));
            let mut at = HEADER_BYTES;
            while let Some(record) = read_record(&files[used], at, end, generation, records.len() as u64)? {
                at += (RECORD_HEADER_BYTES + record.len()) as u64;
                records.push(record);
            }
        } else if !is_blank(&files[0])? || !is_blank(&files[1])? {
            // A first header that a crash kept from being written is blank; its few bytes are never torn.
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "neither of the journal's files has a sound header",
            ));
        }
        let journal = Self {
            files,
            sizes,
            used,
            generation: generations[used].unwrap_or(0),
            index: 0,
            // Full until it is restarted: what an earlier run left behind its last record must not be joined to.
            tail: u64::MAX,
            file_bytes_max: (bytes_max / 2).max(FILE_BYTES_MIN),
        };
        Ok((journal, records))
    }

    /// Whether records of so many bytes fit into the file in use.
    pub(crate) fn fits(&self, records_bytes: u64) -> bool {
        self.tail.checked_add(records_bytes).is_some_and(|end| end <= self.sizes[self.used])
    }

    /// Bytes that a record of this length takes.
    pub(crate) fn space_of(record_bytes: usize) -> u64 {
        (RECORD_HEADER_BYTES + record_bytes) as u64
    }

    /// Appends a record that fits. It is durable after a later flush of [`Journal::file`].
    pub(crate) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let bytes = framed(record, self.generation, self.index);
        self.files[self.used].write_all_at(&bytes, self.tail)?;
        self.tail += bytes.len() as u64;
        self.index += 1;
        Ok(())
    }

    /// The file in use, to be flushed.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.files[self.used])
    }

    /// Begins a new generation in the other file with these records, durable when it returns, and room for `room_bytes`
    /// more.
    pub(crate) fn restart(&mut self, records: &[Vec<u8>], room_bytes: u64) -> Result<(), RestartError> {
        let content_bytes: u64 = records.iter().map(|record| Self::space_of(record.len())).sum();
        let least = HEADER_BYTES.saturating_add(content_bytes).saturating_add(room_bytes);
        if least > self.file_bytes_max {
            return Err(RestartError::Full);
        }
        let (next, generation) = (1 - self.used, self.generation + 1);
        let file = Arc::clone(&self.files[next]);
        let wanted = (least * 2).next_power_of_two().clamp(FILE_BYTES_MIN, self.file_bytes_max.max(least));
        if self.sizes[next] < wanted && self.sizes[next] < self.file_bytes_max {
            match extend(&file, self.sizes[next], wanted) {
                Ok(()) => self.sizes[next] = wanted,
                // A full disk is no reason to stop while the records still fit.
                Err(_) if self.sizes[next] >= least => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut tail = HEADER_BYTES;
        for (index, record) in records.iter().enumerate() {
            let bytes = framed(record, generation, index as u64);
            file.write_all_at(&bytes, tail)?;
            tail += bytes.len() as u64;
        }
        // Where the first record to come will be, nothing of an older generation can be valid; zeros end the row early.
        file.sync_data()?;
        file.write_all_at(&header(generation), 0)?;
        file.sync_data()?;
        (self.used, self.generation, self.index, self.tail) = (next, generation, records.len() as u64, tail);
        Ok(())
    }
}

/// Writes zeros, so that the file's blocks are there before they are needed: a full disk then cannot stop a change in its
/// middle, and a flush has no allocation to make durable.
fn extend(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let count = usize::try_from((to - at).min(ZEROS.len() as u64)).unwrap_or(ZEROS.len());
        file.write_all_at(&ZEROS[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

fn header(generation: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn read_header(file: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; 24];
    let count = read::full_at(file, 0, &mut bytes)?;
    let [_, _, _, _, _, _, _, _, generation @ ..] = bytes;
    let generation = u64::from_le_bytes([
        generation[0],
        generation[1],
        generation[2],
        generation[3],
        generation[4],
        generation[5],
        generation[6],
        generation[7],
    ]);
    Ok((count == bytes.len() && bytes == header(generation)).then_some(generation))
}

fn is_blank(file: &File) -> io::Result<bool> {
    let mut bytes = [0; 24];
    read::full_at(file, 0, &mut bytes)?;
    Ok(bytes == [0; 24])
}

fn framed(record: &[u8], generation: u64, index: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.reserve_exact(RECORD_HEADER_BYTES + record.len());
    bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(record);
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn read_record(file: &File, at: u64, end: u64, generation: u64, index: u64) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; RECORD_HEADER_BYTES];
    if at + RECORD_HEADER_BYTES as u64 > end || read::full_at(file, at, &mut head)? < head.len() {
        return Ok(None);
    }
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if length == 0 || length > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let mut record = vec![0; length];
    if read::full_at(file, at + RECORD_HEADER_BYTES as u64, &mut record)? < length {
        return Ok(None);
    }
    let expect = framed(&record, generation, index);
    Ok((expect[..RECORD_HEADER_BYTES] == head).then_some(record))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn directory(path: &std::path::Path) -> File {
        File::open(path).unwrap()
    }

    #[test]
    fn says_again_what_was_appended() {
        let place = tempfile::tempdir().unwrap();
        let held = directory(place.path());
        let (mut journal, records) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        assert!(records.is_empty() && !journal.fits(1));
        journal.restart(&[b"first".to_vec()], 100).unwrap();
        journal.append(b"second").unwrap();
        let (mut again, records) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        assert_eq!(records, [b"first".to_vec(), b"second".to_vec()]);
        again.restart(&records[1..], 0).unwrap();
        let (_, records) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        assert_eq!(records, [b"second"]);
    }

    #[test]
    fn a_torn_record_ends_it_and_nothing_older_is_joined() {
        let place = tempfile::tempdir().unwrap();
        let held = directory(place.path());
        let (mut journal, _) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        journal.restart(&[], 0).unwrap();
        for record in [b"one", b"two", b"thr"] {
            journal.append(record).unwrap();
        }
        let second = HEADER_BYTES + Journal::space_of(3);
        journal.file().write_all_at(b"!", second + RECORD_HEADER_BYTES as u64).unwrap();
        let (mut journal, records) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        assert_eq!(records, [b"one"]);
        // Twice, so that the first file is in use again: its old third record must stay dead.
        journal.restart(&records, 0).unwrap();
        journal.restart(&records, 0).unwrap();
        journal.append(b"new").unwrap();
        let (_, records) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        assert_eq!(records, [b"one", b"new"]);
    }

    #[test]
    fn a_new_generation_without_its_header_does_not_count() {
        let place = tempfile::tempdir().unwrap();
        let held = directory(place.path());
        let (mut journal, _) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        journal.restart(&[b"kept".to_vec()], 0).unwrap();
        let used = journal.used;
        journal.restart(&[b"lost".to_vec()], 0).unwrap();
        journal.files[1 - used].write_all_at(&[0xff; 24], 0).unwrap();
        let (_, records) = Journal::open(held.as_fd(), 1 << 20).unwrap();
        assert_eq!(records, [b"kept"]);
    }

    #[test]
    fn a_bound_is_a_bound() {
        let place = tempfile::tempdir().unwrap();
        let held = directory(place.path());
        let (mut journal, _) = Journal::open(held.as_fd(), 512 << 10).unwrap();
        assert!(matches!(journal.restart(&vec![vec![1; 1000]; 300], 0), Err(RestartError::Full)));
        assert!(matches!(journal.restart(&[], 1 << 20), Err(RestartError::Full)));
        journal.restart(&vec![vec![1; 1000]; 200], 0).unwrap();
        assert!(journal.fits(1000) && !journal.fits(256 << 10));
    }

    #[test]
    fn bytes_that_are_no_header_in_both_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        for name in FILE_NAMES {
            std::fs::write(place.path().join(name), vec![7; 8192]).unwrap();
        }
        assert!(Journal::open(directory(place.path()).as_fd(), 1 << 20).is_err());
    }
}
