//! Freezes a mounted file system and lets it go on (`FIFREEZE` and `FITHAW`, ioctl_fs(2) and the kernel's `fs/super.c`).
//!
//! Answers for nothing but these two system calls: no safe crate has them. A freeze writes back all that is dirty, empties
//! the journal into its place, and lets every later write wait until the thaw; it needs `CAP_SYS_ADMIN`.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
};

/// Freezes the file system that holds this open file or directory. Blocks until everything is written back.
///
/// # Errors
/// From the system: `EBUSY` where it is frozen already, `EPERM` without the capability, `EOPNOTSUPP` where the file system
/// cannot be frozen.
pub fn freeze(file: &File) -> io::Result<()> {
    control(file.as_raw_fd(), libc::_IOWR::<libc::c_int>(u32::from(b'X'), 119))
}

/// Lets the file system that holds this open file or directory go on.
///
/// # Errors
/// From the system: `EINVAL` where it is not frozen.
pub fn thaw(file: &File) -> io::Result<()> {
    control(file.as_raw_fd(), libc::_IOWR::<libc::c_int>(u32::from(b'X'), 120))
}

fn control(descriptor: RawFd, request: libc::Ioctl) -> io::Result<()> {
    // SAFETY: the descriptor is of a `File` that the caller borrows, so it is open throughout. `FIFREEZE` and `FITHAW`, the
    // only requests passed, read no argument and touch no memory of the process (`ioctl_fsfreeze` and `ioctl_fsthaw` in the
    // kernel's `fs/ioctl.c` take the file alone).
    let result = unsafe { libc::ioctl(descriptor, request, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_frozen_says_so() {
        // procfs has neither the operation nor a disk to write back.
        let file = File::open("/proc/self/status").unwrap();
        let refused = |error: io::Error| error.raw_os_error().unwrap();
        let frozen = refused(freeze(&file).unwrap_err());
        assert!([libc::EOPNOTSUPP, libc::EPERM].contains(&frozen), "{frozen}");
        let thawed = refused(thaw(&file).unwrap_err());
        assert!([libc::EINVAL, libc::EPERM].contains(&thawed), "{thawed}");
    }
}
