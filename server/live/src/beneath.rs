//! Opening one name in a held directory, by openat2(2): never a symbolic or magic link, and never out of the directory.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{self, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// openat2(2) answers `EAGAIN` while it cannot rule out a race with a rename or mount elsewhere.
const OPEN_ATTEMPTS_MAX: u32 = 64;

/// Opens one name beneath `parent`, and nothing else.
pub(crate) fn open_beneath(parent: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_resolved(parent, name, flags, ResolveFlags::NO_XDEV)
}

/// As [`open_beneath`], into whatever is mounted there.
pub(crate) fn open_across(parent: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_resolved(parent, name, flags, ResolveFlags::empty())
}

fn open_resolved(parent: impl AsFd, name: &[u8], flags: OFlags, bound: ResolveFlags) -> Result<OwnedFd, Errno> {
    let mut resolve = bound | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Any other single name is beneath by what it is, and the kernel's own look at it is a ninth of opening and closing it.
    if name == b".." || name.contains(&b'/') {
        resolve |= ResolveFlags::BENEATH;
    }
    let mut last = Errno::AGAIN;
    for _ in 0..OPEN_ATTEMPTS_MAX {
        match fs::openat2(&parent, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
            other => return other,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_name_leads_out() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("root/d/e")).unwrap();
        std::fs::write(place.path().join("outside"), "x").unwrap();
        std::fs::write(place.path().join("root/d/f"), "x").unwrap();
        symlink("../outside", place.path().join("root/l")).unwrap();
        symlink("d", place.path().join("root/ld")).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let root = fs::open(place.path().join("root"), flags | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let check = |name: &str, expect: Result<(), Errno>| {
            for flags in [OFlags::RDONLY, OFlags::RDONLY | OFlags::NOFOLLOW] {
                let seen = open_beneath(&root, name.as_bytes(), flags).map(drop);
                assert_eq!(seen, expect, "{name}");
                assert_eq!(open_across(&root, name.as_bytes(), flags).map(drop), expect, "{name}");
            }
        };
        check("d", Ok(()));
        check(".", Ok(()));
        check("d/f", Ok(()));
        check("d/e/../f", Ok(()));
        for name in ["..", "../outside", "../root", "d/../..", "d/../../outside", "/", "/outside", "./.."] {
            check(name, Err(Errno::XDEV));
        }
        for name in ["l", "ld", "ld/f"] {
            check(name, Err(Errno::LOOP));
        }
        check("", Err(Errno::NOENT));
        check("none", Err(Errno::NOENT));
    }
}
