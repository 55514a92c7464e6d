//! File systems that are mounted beneath a workspace's root and belong to it: how a walk steps into one.
//!
//! The kernel says what is mounted at a name when the name is opened, and nothing here goes by how a mount point is spelled.
//! So a mount point whose directories are renamed, a mount over a mount and a disk that has gone are all what they are at
//! that moment. Whether the mount is served is asked of [`Mounts`] while it is held, so that its number is its own.
//!
//! Nothing is held between two calls: a disk that nobody reads can be unmounted.

use std::{fmt, io};

use dormouse_files::{path::TreePath, tree::TreeError};
use rustix::{
    fs::{self, AtFlags, OFlags, StatxAttributes, StatxFlags},
    io::Errno,
};

use crate::{
    beneath::{open_across, open_beneath},
    errno::tree_error,
    tree::{Identity, LiveDirectory, STATE_NAME},
};

/// The root of a mount that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountRoot {
    /// `stx_mnt_id` of statx(2), the first number of a line of proc_pid_mountinfo(5).
    pub mount: u64,
    /// Of its root directory.
    pub inode: u64,
}

/// Which mounts beneath a workspace's root belong to it.
pub trait Mounts: fmt::Debug + Send + Sync {
    /// Whether this one does.
    ///
    /// # Errors
    /// From the system: it is not known.
    fn serves(&self, root: MountRoot) -> io::Result<bool>;

    /// A mount at or beneath this path of the workspace, served or not.
    ///
    /// # Errors
    /// From the system: it is not known.
    fn any_at(&self, path: &TreePath) -> io::Result<Option<TreePath>>;
}

/// A mount that was stepped into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entered {
    pub(crate) mount: u64,
    /// The agent's own directory at its root, where there is one.
    pub(crate) hidden: Option<Identity>,
}

/// Opens the root of what is mounted at `name`, for reading or where that is denied for searching alone: the flag says which.
///
/// # Errors
/// `Outside` where it is not served.
pub(crate) fn enter(
    mounts: &dyn Mounts,
    parent: &LiveDirectory,
    name: &[u8],
) -> Result<(std::os::fd::OwnedFd, Entered, bool), TreeError> {
    // By its path alone at first: that mounts nothing by itself (autofs), and runs no driver.
    let held = open_across(parent, name, OFlags::PATH | OFlags::NOFOLLOW).map_err(tree_error)?;
    let wanted = StatxFlags::MNT_ID | StatxFlags::INO | StatxFlags::TYPE;
    // What a file server far away says is not needed.
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let statx = fs::statx(&held, "", flags, wanted).map_err(tree_error)?;
    let is_directory = fs::FileType::from_raw_mode(statx.stx_mode.into()).is_dir();
    let is_root = statx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let knows_mount = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::MNT_ID);
    let root = MountRoot { mount: statx.stx_mnt_id, inode: statx.stx_ino };
    if !is_directory || !is_root || !knows_mount || !mounts.serves(root).map_err(TreeError::Io)? {
        return Err(TreeError::Outside);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let (opened, path_only) = match open_beneath(&held, b".", flags) {
        Err(Errno::ACCESS) => (open_beneath(&held, b".", OFlags::PATH | flags), true),
        other => (other, false),
    };
    let opened = opened.map_err(tree_error)?;
    let hidden = state_in(&opened);
    Ok((opened, Entered { mount: root.mount, hidden }, path_only))
}

/// The agent's own directory at the root of a file system, by what it demands of one before it takes it.
pub(crate) fn state_in(root: impl std::os::fd::AsFd) -> Option<Identity> {
    let stat = fs::statat(root, STATE_NAME, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).ok()?;
    let is_directory = fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0;
    (is_directory && is_ours).then(|| Identity::of(&stat))
}
