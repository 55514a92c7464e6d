//! What a file carries beside its content: owner, mode, access control list and extended attributes (xattr(7)), given to a
//! staged file before it is put into place.
//!
//! The owner comes before the mode, since fchown(2) clears set-id bits; extended attributes come last.

use std::os::fd::AsFd;

use rustix::{
    fs::{self, Gid, Mode, Stat, Uid, XattrFlags},
    io::Errno,
};

/// Bytes of all names of a file's extended attributes, and of one value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX` of limits.h).
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// What they nearly always fit into.
const ATTRIBUTE_BYTES_MIN: usize = 512;
/// What new files and directories in a directory begin with (acl(5)).
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// New content has no right to the old one's capabilities, and hashes of the old content do not hold for the new one.
const DROPPED: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];
/// Set-user-id, set-group-id, sticky and permission bits.
const MODE_BITS: u32 = 0o7777;

/// Makes `staged` carry what `old` does.
///
/// # Errors
/// Whatever cannot be copied refuses the change: a file that silently lost its owner or list would be another file.
pub(crate) fn copy(staged: impl AsFd, old: impl AsFd) -> Result<(), Errno> {
    let (from, to) = (fs::fstat(&old)?, fs::fstat(&staged)?);
    give(&staged, &to, from.st_uid, from.st_gid)?;
    let names = names(&old)?;
    let listed: Vec<&[u8]> = names.split(|byte| *byte == 0).filter(|name| is_kept(name)).collect();
    if !listed.contains(&ACCESS_LIST) {
        remove_access_list(&staged)?;
    }
    fs::fchmod(&staged, Mode::from_raw_mode(from.st_mode & MODE_BITS))?;
    for name in listed {
        // It may have been removed since it was listed.
        if let Some(value) = value(&old, name)? {
            fs::fsetxattr(&staged, name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// The default list of a directory, where it has one.
pub(crate) fn default_list(directory: impl AsFd) -> Result<Option<Vec<u8>>, Errno> {
    value(directory, DEFAULT_LIST)
}

/// Gives a new directory, which was not made in its future parent, what it would have inherited there. Its mode comes after.
pub(crate) fn inherit(directory: impl AsFd, default_list: &[u8]) -> Result<(), Errno> {
    fs::fsetxattr(&directory, DEFAULT_LIST, default_list, XattrFlags::empty())?;
    fs::fsetxattr(&directory, ACCESS_LIST, default_list, XattrFlags::empty())
}

fn value(file: impl AsFd, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    match filled(|value| fs::fgetxattr(&file, name, value)) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes `staged` a new file or directory with this mode in a directory; as root it belongs to the directory's owner.
pub(crate) fn found(staged: impl AsFd, mode: u32, parent: &Stat, is_root: bool) -> Result<(), Errno> {
    let stat = fs::fstat(&staged)?;
    let inherits_group = parent.st_mode & 0o2000 != 0;
    let (uid, gid) = match (is_root, inherits_group) {
        (true, _) => (parent.st_uid, parent.st_gid),
        (false, true) => (stat.st_uid, parent.st_gid),
        (false, false) => (stat.st_uid, stat.st_gid),
    };
    give(&staged, &stat, uid, gid)?;
    let is_directory = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory;
    // A directory in a directory with the set-group-id bit has it too (inode(7)).
    let inherited = if is_directory && inherits_group { 0o2000 } else { 0 };
    fs::fchmod(&staged, Mode::from_raw_mode(mode | inherited))
}

fn give(file: impl AsFd, stat: &Stat, uid: u32, gid: u32) -> Result<(), Errno> {
    if (stat.st_uid, stat.st_gid) == (uid, gid) {
        return Ok(());
    }
    let uid = (stat.st_uid != uid).then(|| Uid::from_raw(uid));
    let gid = (stat.st_gid != gid).then(|| Gid::from_raw(gid));
    fs::fchown(file, uid, gid)
}

fn names(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    match filled(|list| fs::flistxattr(&file, list)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
        other => other,
    }
}

/// What a call fills a buffer with: a small one, and the largest that there may be only where that does not do.
fn filled(mut fill: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; ATTRIBUTE_BYTES_MIN];
    let length = match fill(&mut bytes) {
        Err(Errno::RANGE) => {
            bytes = vec![0; ATTRIBUTE_BYTES_MAX];
            fill(&mut bytes)?
        }
        other => other?,
    };
    bytes.truncate(length);
    Ok(bytes)
}

fn is_kept(name: &[u8]) -> bool {
    if name.is_empty() || DROPPED.contains(&name) || name.starts_with(b"trusted.overlay.") {
        return false;
    }
    name == ACCESS_LIST || !name.starts_with(b"system.")
}

fn remove_access_list(staged: impl AsFd) -> Result<(), Errno> {
    match fs::fremovexattr(staged, ACCESS_LIST) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_copy_carries_mode_and_attributes() {
        let place = tempfile::tempdir().unwrap();
        let open =
            |name: &str| File::options().create_new(true).read(true).write(true).open(place.path().join(name)).unwrap();
        let (old, new) = (open("old"), open("new"));
        old.set_permissions(std::fs::Permissions::from_mode(0o4711)).unwrap();
        // A file system without user attributes still carries the rest.
        let has_attributes = fs::fsetxattr(&old, "user.note", b"kept", XattrFlags::empty()).is_ok();
        copy(&new, &old).unwrap();
        assert_eq!(fs::fstat(&new).unwrap().st_mode & MODE_BITS, 0o4711);
        if has_attributes {
            assert_eq!(value(&new, b"user.note").unwrap().unwrap(), b"kept");
        }
    }

    #[test]
    fn long_attributes_and_long_lists_of_them_are_carried_whole() {
        let place = tempfile::tempdir().unwrap();
        let open =
            |name: &str| File::options().create_new(true).read(true).write(true).open(place.path().join(name)).unwrap();
        let (old, new) = (open("old"), open("new"));
        let long = vec![7; 2 * ATTRIBUTE_BYTES_MIN];
        if fs::fsetxattr(&old, "user.long", &long, XattrFlags::empty()).is_err() {
            return; // A file system without user attributes.
        }
        for letter in ["a", "b", "c"] {
            fs::fsetxattr(&old, format!("user.{}", letter.repeat(200)), letter.as_bytes(), XattrFlags::empty())
                .unwrap();
        }
        assert!(names(&old).unwrap().len() > ATTRIBUTE_BYTES_MIN);
        copy(&new, &old).unwrap();
        assert_eq!(names(&new).unwrap().len(), names(&old).unwrap().len());
        assert_eq!(value(&new, b"user.long").unwrap().unwrap(), long);
        assert_eq!(value(&new, format!("user.{}", "c".repeat(200)).as_bytes()).unwrap().unwrap(), b"c");
    }

    #[test]
    fn capabilities_and_hashes_of_the_old_content_are_dropped() {
        for (name, kept) in [
            (b"user.x".as_slice(), true),
            (b"security.selinux", true),
            (b"system.posix_acl_access", true),
            (b"security.capability", false),
            (b"security.ima", false),
            (b"system.nfs4_acl", false),
            (b"", false),
        ] {
            assert_eq!(is_kept(name), kept);
        }
    }
}
