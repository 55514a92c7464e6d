//! A private clone of a disk image, mapped into memory; and memory in large pages.
//!
//! A mapped file that somebody truncates kills its reader with SIGBUS, and one that somebody writes changes under a shared
//! slice. So only a clone of our own is ever mapped: a file without a name, made here by FICLONE (ioctl_ficlone(2)), which
//! shares the image's blocks and none of its fate. File systems that cannot clone (ext4, tmpfs) answer `EOPNOTSUPP` or
//! `EINVAL`, and their images are read with pread(2) instead.
//!
//! A page of a map that cannot be read from a failing device is a SIGBUS too, so bytes are lent only where their pages
//! were seen in memory within the last millisecond, or were just brought there by a call that answers with an error instead
//! (`MADV_POPULATE_READ` of madvise(2), Linux 5.14); where they are not there and the kernel has none, nothing is lent,
//! and the clone is read with pread(2) as well.
//!
//! This package holds the two unsafe calls that this needs, and their proofs.

mod pages;
mod resident;

use std::{fs::File, io, num::NonZeroU64, os::unix::fs::FileExt, path::Path};

use rustix::fs::{Mode, OFlags};

pub use crate::pages::Pages;
use crate::resident::Windows;

/// The bytes of an image as they were when it was cloned.
pub struct MappedClone {
    map: memmap2::Mmap,
    file: File,
    windows: Windows,
}

impl MappedClone {
    /// Clones `image` into a file without a name in `directory`, which lies on the same file system, and maps it.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL` or `EXDEV` where the file system cannot clone, and what the system says.
    pub fn of(image: &File, directory: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
        let clone = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?);
        rustix::fs::ioctl_ficlone(&clone, image)?;
        // SAFETY: the memory stays valid and unchanged for as long as the map lives. The file has no name and, by O_EXCL,
        // can never be given one (open(2)); its only descriptor is `clone`, which goes into the value that is returned, and that
        // neither hands it out nor ever writes, truncates or punches it. So nobody can truncate it (no SIGBUS) or write it (no
        // shared slice that changes). A process that may open /proc/PID/fd of this one is as trusted as this one. A write to
        // the image does not reach the clone: FICLONE shares blocks copy-on-write.
        #[allow(unsafe_code, reason = "the call that this package is for; proof above")]
        let map = unsafe { memmap2::Mmap::map(&clone)? };
        Ok(Self { map, file: clone, windows: Windows::default() })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Fills the buffer from `offset`, without the map.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end, and what the system says.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Begins to bring bytes into the system's memory (`POSIX_FADV_WILLNEED` of posix_fadvise(2)), without waiting for them.
    pub fn will_need(&self, offset: u64, length: u64) {
        // A device that fails says so when the bytes are read.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(length), rustix::fs::Advice::WillNeed);
    }

    /// Lends bytes of the map whose pages are in memory; nothing where they cannot be brought there, or lie past the
    /// end: then [`MappedClone::read_at`] says why.
    pub fn lend(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let range = start..start.checked_add(length)?;
        let lent = self.map.get(range.clone())?;
        if !self.windows.resident(&self.map, range) {
            self.map.advise_range(memmap2::Advice::PopulateRead, start, length).ok()?;
        }
        Some(lent)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory on a file system that can clone is not always at hand: elsewhere the refusal is what is tested.
    #[test]
    fn a_clone_keeps_the_bytes_or_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("image");
        fs::write(&path, [7; 8_192]).expect("an image");
        let image = File::open(&path).expect("the image opens");
        match MappedClone::of(&image, directory.path()) {
            Ok(clone) => {
                fs::write(&path, b"another").expect("the image changes");
                assert_eq!(clone.lend(0, 8_192), Some(&[7; 8_192][..]));
                assert_eq!(clone.lend(4_095, 2), Some(&[7, 7][..]));
                assert_eq!(clone.lend(8_191, 2), None);
                assert_eq!(clone.lend(u64::MAX, 2), None);
                let mut bytes = [0; 3];
                clone.read_at(8_189, &mut bytes).expect("it reads");
                assert_eq!((clone.len(), bytes), (8_192, [7; 3]));
                assert!(clone.read_at(8_190, &mut bytes).is_err());
            }
            Err(error) => {
                let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
                let refusals = [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::INVAL, rustix::io::Errno::XDEV];
                assert!(code.is_some_and(|code| refusals.contains(&code)), "{error}");
            }
        }
        assert_eq!(fs::read_dir(directory.path()).expect("it lists").count(), 1, "no name is left");
    }
}
