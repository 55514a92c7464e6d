//! Read leases on open files (fcntl(2), "Leases"): while one is held, nobody has the file open for writing, and whoever
//! wants to open it so waits.
//!
//! Answers for nothing but these system calls, and may hold unsafe code for them: no safe crate has
//! `F_SETLEASE`. Without a lease, a process that writes a file in place loses what it writes while the file is exchanged;
//! with it, none of its writes was lost in any run of the race test.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
};

/// Which signal tells of a wanted lease (fcntl(2)); the number is that of `asm-generic/fcntl.h`, which libc's bindings lack.
const F_SETSIG: libc::c_int = 10;

/// A read lease on a file; released when dropped.
#[derive(Debug)]
pub struct ReadLease<'a> {
    file: &'a File,
}

/// Why there is no lease.
#[derive(Debug)]
pub enum Refused {
    /// Somebody has the file open for writing (`EAGAIN`).
    Writer,
    /// The agent does not own the file and lacks `CAP_LEASE`, or the file system has no leases.
    Unsupported(io::Error),
}

impl<'a> ReadLease<'a> {
    /// Takes a lease on a file that is open for reading only.
    ///
    /// When somebody wants to open the file for writing, the kernel signals the holder; here it is told to send `SIGURG`,
    /// which by default does nothing, since `SIGIO` by default ends the process (signal(7)).
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take(file: &'a File) -> Result<Self, Refused> {
        let descriptor = file.as_raw_fd();
        control(descriptor, F_SETSIG, libc::SIGURG).map_err(Refused::Unsupported)?;
        match control(descriptor, libc::F_SETLEASE, libc::F_RDLCK) {
            Ok(_) => Ok(Self { file }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Refused::Writer),
            Err(error) => Err(Refused::Unsupported(error)),
        }
    }

    /// Whether nobody has asked to open the file for writing since the lease was taken. Whoever has is still waiting.
    pub fn is_whole(&self) -> bool {
        control(self.file.as_raw_fd(), libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_RDLCK)
    }
}

impl Drop for ReadLease<'_> {
    fn drop(&mut self) {
        // Closing the file would release it too; a failure leaves nothing to be done.
        let _ = control(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(descriptor: RawFd, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is of a `File` that the caller borrows, so it is open throughout. `F_SETSIG`, `F_SETLEASE` and
    // `F_GETLEASE`, the only commands passed, take an int or nothing and touch no memory of the process (fcntl(2)).
    let result = unsafe { libc::fcntl(descriptor, command, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_writer_keeps_the_lease_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(matches!(ReadLease::take(&reader), Err(Refused::Writer)));
        drop(writer);
        assert!(ReadLease::take(&reader).unwrap().is_whole());
    }

    #[test]
    fn a_waiting_writer_breaks_the_lease_and_nobody_dies() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let reader = File::open(&path).unwrap();
        let lease = ReadLease::take(&reader).unwrap();
        let opener = std::thread::spawn(move || OpenOptions::new().write(true).open(path).is_ok());
        while lease.is_whole() {
            std::thread::yield_now();
        }
        assert!(!opener.is_finished());
        drop(lease);
        assert!(opener.join().unwrap());
    }
}
