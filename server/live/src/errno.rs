//! What the system's refusals mean: each errno of errno(3) that a file call can give, as a tree's or a change's failure.

use std::io;

use dormouse_files::{Fault, meta::FileType, path::TreePath, tree::TreeError};
use rustix::io::Errno;

/// A read's failure. Whoever can tell the type of what was met instead of a file or directory does so before.
pub(crate) fn tree_error(errno: Errno) -> TreeError {
    match errno {
        Errno::NOENT | Errno::NAMETOOLONG => TreeError::NotFound,
        Errno::ACCESS | Errno::PERM => TreeError::PermissionDenied,
        Errno::XDEV => TreeError::Outside,
        Errno::LOOP => TreeError::NotDirectory(FileType::Symlink),
        other => TreeError::Io(other.into()),
    }
}

/// A change's failure at `path`. Nothing here is retried: a system that failed once may have dropped what it held.
pub(crate) fn fault(path: &TreePath, errno: Errno) -> Fault {
    let path = path.clone();
    match errno {
        Errno::NOENT => Fault::NotFound { missing: path.clone(), path },
        Errno::NOSPC | Errno::DQUOT => Fault::DiskFull { path },
        Errno::ROFS => Fault::ReadOnly { path },
        Errno::PERM | Errno::ACCESS => Fault::PermissionDenied { path },
        Errno::BUSY => Fault::MountPoint { path },
        Errno::NOTEMPTY => Fault::NotEmpty { path },
        Errno::XDEV => Fault::Outside { path: path.to_string() },
        Errno::LOOP => Fault::Symlink { link: path.clone(), path, resolved: None },
        Errno::NAMETOOLONG => Fault::invalid("path", "a name is longer than this file system takes"),
        Errno::MFILE | Errno::NFILE => Fault::Overloaded { what: "open files" },
        Errno::NOMEM => Fault::Overloaded { what: "memory" },
        other => Fault::Io { path, source: io::Error::from(other) },
    }
}

/// As [`fault`], from the standard library's error.
pub(crate) fn io_fault(path: &TreePath, error: io::Error) -> Fault {
    match Errno::from_io_error(&error) {
        Some(errno) => fault(path, errno),
        None => Fault::Io { path: path.clone(), source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(errno: Errno, expect: &str) {
        let path = TreePath::parse(b"/a").unwrap();
        let debug = format!("{:?}", fault(&path, errno));
        assert!(debug.starts_with(expect), "{debug}");
    }

    #[test]
    fn every_refusal_has_its_reason() {
        check(Errno::NOENT, "NotFound");
        check(Errno::NOSPC, "DiskFull");
        check(Errno::DQUOT, "DiskFull");
        check(Errno::ROFS, "ReadOnly");
        check(Errno::PERM, "PermissionDenied");
        check(Errno::ACCESS, "PermissionDenied");
        check(Errno::BUSY, "MountPoint");
        check(Errno::NOTEMPTY, "NotEmpty");
        check(Errno::XDEV, "Outside");
        check(Errno::LOOP, "Symlink");
        check(Errno::MFILE, "Overloaded");
        check(Errno::IO, "Io");
    }
}
