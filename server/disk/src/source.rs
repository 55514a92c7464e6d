//! Where a disk's bytes come from: a raw file, a block device, a part of one, or memory.
//!
//! Sources only read. They take no lock, because a reader must never delay a resume, and they map no file but a private
//! clone, because a file that is truncated under a map kills the process.

use std::{
    ffi::{CString, OsStr},
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    sync::Arc,
};

use dormouse_files::meta::Time;
use dormouse_map::MappedClone;
use nix::{
    fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise},
    sys::{
        stat::{FileStat, SFlag, fstat, stat},
        statvfs::{fstatvfs, statvfs},
    },
};

/// What tells whether a layer may have been written since: a writer moves at least one of these, except on a block device.
/// The device number is left out, because it changes with a reboot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerStamp {
    /// The inode's number.
    pub inode: u64,
    /// Length in bytes; of a block device its capacity.
    pub size_bytes: u64,
    /// Last change of the content.
    pub modify_time: Time,
    /// Last change of the inode: also moved by a hard link or a chmod.
    pub change_time: Time,
    /// The identity of the file system that holds it, as statvfs(3) says it.
    pub file_system_id: u64,
}

/// Bytes that can be read at any place, by many threads at once.
pub trait BlockSource: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the buffer from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` where the source ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Lends bytes that lie in memory; nothing where they do not.
    fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let _ = (offset, length);
        None
    }

    /// Says that these bytes will be asked for soon, so that a device can begin to bring them into the system's memory. Takes
    /// none of this process, does not wait for them, and may do nothing.
    fn will_need(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Whether none of its bytes are in the system's memory before they are read here, as those of a file that was just made.
    fn is_fresh(&self) -> bool {
        false
    }

    /// Fills the buffer from what the layers hold now. It differs from [`BlockSource::read_at`] where that reads a private
    /// copy.
    ///
    /// # Errors
    /// As [`BlockSource::read_at`].
    fn read_layers_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buffer)
    }

    /// Bytes of memory that it holds of what it has read.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Lets go what it has decoded for calls that are over.
    fn forget(&self) {}

    /// What the layers look like now, in the order of the record.
    ///
    /// # Errors
    /// What the system says, such as `NotFound` for a layer that was removed.
    fn stamp(&self) -> io::Result<Vec<LayerStamp>>;

    /// Whether a writer moves the stamp. On a block device it need not, so there the superblock must be asked as well.
    fn stamp_tells(&self) -> bool {
        true
    }
}

/// A file or block device that is open, and what tells whether its path still leads to it as it was.
pub(crate) struct LayerFile {
    pub(crate) file: File,
    /// As the system takes it: it is asked for with every answer.
    path: CString,
    device: u64,
    is_device: bool,
    opened: LayerStamp,
}

impl LayerFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open_layer(path)?;
        let status = fstat(&file)?;
        let file_system_id = fstatvfs(&file)?.filesystem_id();
        let opened = stamp_of(&status, &file, file_system_id)?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self { file, path, device: status.st_dev, is_device: is_device(&status), opened })
    }

    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.to_bytes()))
    }

    /// Whether it is a block device, on which a writer need not move the stamp.
    pub(crate) fn is_device(&self) -> bool {
        self.is_device
    }

    /// The stamp of the file that is held, from before its first byte was read; whatever its path leads to by now.
    pub(crate) fn opened(&self) -> &LayerStamp {
        &self.opened
    }

    /// The stamp of what the path leads to now: by path, so that a layer that was replaced or removed is noticed.
    pub(crate) fn stamp(&self) -> io::Result<LayerStamp> {
        let status = stat(self.path.as_c_str())?;
        // No other file system has this one's device number while a file of it is held open.
        let file_system_id = match status.st_dev == self.device {
            true => self.opened.file_system_id,
            false => statvfs(self.path.as_c_str())?.filesystem_id(),
        };
        stamp_of(&status, &self.file, file_system_id)
    }
}

fn is_device(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFBLK
}

fn stamp_of(status: &FileStat, file: &File, file_system_id: u64) -> io::Result<LayerStamp> {
    // Never negative: it is a length.
    let size_bytes = if is_device(status) { length_of(file)? } else { status.st_size as u64 };
    Ok(LayerStamp {
        inode: status.st_ino,
        size_bytes,
        modify_time: time(status.st_mtime, status.st_mtime_nsec),
        change_time: time(status.st_ctime, status.st_ctime_nsec),
        file_system_id,
    })
}

/// A file or block device whose bytes are the disk's.
pub(crate) struct RawFile {
    layer: LayerFile,
    length: u64,
}

impl RawFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let layer = LayerFile::open(path)?;
        let length = layer.opened().size_bytes;
        Ok(Self { layer, length })
    }

    /// See [`LayerFile::opened`].
    pub(crate) fn opened(&self) -> Vec<LayerStamp> {
        vec![self.layer.opened().clone()]
    }
}

/// A private clone of a file, which is read in its place; the file itself still tells whether it has changed.
pub(crate) struct ClonedFile {
    clone: MappedClone,
    original: RawFile,
}

impl ClonedFile {
    /// Clones a file next to where it lies.
    ///
    /// The stamp of the file must be taken before: taken after, it could be that of a write that the clone lacks.
    ///
    /// # Errors
    /// Gives the file back with what the system says, where it cannot be cloned.
    pub(crate) fn of(original: RawFile) -> Result<Self, (RawFile, io::Error)> {
        if original.layer.is_device() {
            return Err((original, io::Error::new(io::ErrorKind::Unsupported, "a block device has no clone")));
        }
        let directory = original.layer.path().parent().unwrap_or(Path::new("/"));
        match MappedClone::of(&original.layer.file, directory) {
            Ok(clone) => Ok(Self { clone, original }),
            Err(error) => Err((original, error)),
        }
    }
}

impl BlockSource for ClonedFile {
    fn len(&self) -> u64 {
        self.clone.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.clone.read_at(offset, buffer)
    }

    fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.clone.lend(offset, length)
    }

    fn will_need(&self, offset: u64, length: u64) {
        self.clone.will_need(offset, length);
    }

    fn is_fresh(&self) -> bool {
        true
    }

    fn read_layers_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.original.read_at(offset, buffer)
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        self.original.stamp()
    }
}

/// Opens a file or block device for reading, and nothing else; never waits for somebody at the other end of a FIFO.
///
/// # Errors
/// `InvalidInput` for what is neither a regular file nor a block device; else what the system says.
pub fn open_layer(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK a FIFO in the image's place would hang the caller.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"));
    }
    Ok(file)
}

/// By seeking, since stat(2) says 0 of a block device.
fn length_of(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

impl BlockSource for RawFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.layer.file.read_exact_at(buffer, offset)
    }

    fn will_need(&self, offset: u64, length: u64) {
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
        // A file system that cannot is no worse than before, and a device that fails says so when it is read.
        let _ = posix_fadvise(&self.layer.file, offset, length, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        Ok(vec![self.layer.stamp()?])
    }

    fn stamp_tells(&self) -> bool {
        !self.layer.is_device()
    }
}

fn time(seconds: i64, nanoseconds: i64) -> Time {
    Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

/// A disk that lies in memory, for fuzzing and tests.
pub struct MemorySource {
    bytes: Vec<u8>,
}

impl MemorySource {
    /// The whole disk.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}

impl BlockSource for MemorySource {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let lent = self.lend(offset, buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(lent);
        Ok(())
    }

    fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        Ok(Vec::new())
    }
}

/// A part of another source.
pub(crate) struct Part {
    whole: Arc<dyn BlockSource>,
    start: u64,
    length: u64,
}

impl Part {
    /// Nothing where the part does not lie inside the whole.
    pub(crate) fn new(whole: Arc<dyn BlockSource>, start: u64, length: u64) -> Option<Self> {
        let end = start.checked_add(length)?;
        (end <= whole.len()).then_some(Self { whole, start, length })
    }

    fn place(&self, offset: u64, length: usize) -> Option<u64> {
        let end = offset.checked_add(length as u64)?;
        // Cannot overflow: start + length was checked when the part was made.
        (end <= self.length).then(|| self.start + offset)
    }
}

impl BlockSource for Part {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let place = self.place(offset, buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.whole.read_at(place, buffer)
    }

    fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.whole.lend(self.place(offset, length)?, length)
    }

    fn will_need(&self, offset: u64, length: u64) {
        let length = length.min(self.length.saturating_sub(offset));
        if length > 0 {
            // Cannot overflow: start + length was checked when the part was made.
            self.whole.will_need(self.start + offset, length);
        }
    }

    fn is_fresh(&self) -> bool {
        self.whole.is_fresh()
    }

    fn read_layers_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let place = self.place(offset, buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.whole.read_layers_at(place, buffer)
    }

    fn held_bytes(&self) -> usize {
        self.whole.held_bytes()
    }

    fn forget(&self) {
        self.whole.forget();
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        self.whole.stamp()
    }

    fn stamp_tells(&self) -> bool {
        self.whole.stamp_tells()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_where_it_ends() {
        let whole: Arc<dyn BlockSource> = Arc::new(MemorySource::new((0..100).collect()));
        assert!(Part::new(Arc::clone(&whole), 90, 11).is_none());
        assert!(Part::new(Arc::clone(&whole), u64::MAX, 2).is_none());
        let part = Part::new(whole, 10, 20).unwrap();
        let mut buffer = [0; 5];
        part.read_at(15, &mut buffer).unwrap();
        assert_eq!(buffer, [25, 26, 27, 28, 29]);
        assert_eq!(part.read_at(16, &mut buffer).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(part.read_at(u64::MAX, &mut buffer).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(part.lend(0, 2), Some(&[10, 11][..]));
    }

    #[test]
    fn a_part_asks_for_nothing_outside_itself() {
        #[derive(Default)]
        struct Asked(std::sync::Mutex<Vec<(u64, u64)>>);
        impl BlockSource for Asked {
            fn len(&self) -> u64 {
                100
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Ok(())
            }
            fn will_need(&self, offset: u64, length: u64) {
                self.0.lock().unwrap().push((offset, length));
            }
            fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
                Ok(Vec::new())
            }
        }
        let asked = Arc::new(Asked::default());
        let part = Part::new(Arc::clone(&asked) as Arc<dyn BlockSource>, 10, 20).unwrap();
        for (offset, length) in [(0, 5), (15, 5), (15, 6), (19, u64::MAX), (20, 1), (u64::MAX, 1), (3, 0)] {
            part.will_need(offset, length);
        }
        assert_eq!(*asked.0.lock().unwrap(), [(10, 5), (25, 5), (25, 5), (29, 1)]);
    }

    #[test]
    fn a_directory_or_fifo_is_no_disk() {
        let place = tempfile::tempdir().unwrap();
        assert!(RawFile::open(place.path()).is_err());
        let fifo = place.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(RawFile::open(&fifo).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_stamp_sees_a_replaced_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk");
        std::fs::write(&path, b"one").unwrap();
        let raw = RawFile::open(&path).unwrap();
        let before = raw.stamp().unwrap();
        assert_eq!(before, raw.stamp().unwrap());
        std::fs::write(place.path().join("other"), b"two").unwrap();
        std::fs::rename(place.path().join("other"), &path).unwrap();
        assert_ne!(before, raw.stamp().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(raw.stamp().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
