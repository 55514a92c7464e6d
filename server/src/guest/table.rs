//! Which of the machine's mounts the workspace holds: every disk that is mounted beneath its root, each once.
//!
//! The kernel tells through the open table when it changes (poll(2), proc_pid_mountinfo(5)), so it is read again only then,
//! and asking costs one system call. What is mounted later is served from the next call on, and what is unmounted is not.

use std::{
    fs::File,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use dormouse_files::path::TreePath;
use dormouse_live::{MountRoot, Mounts};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::guest::mounts::{self, Mount, beneath};

/// The machine's mount table, seen from a workspace's root.
#[derive(Debug)]
pub struct MountTable {
    root: PathBuf,
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    /// As it was when it was last read; nothing where that failed.
    mounts: Option<Vec<Mount>>,
}

impl MountTable {
    /// Of the workspace whose root is this directory, which is absolute and free of links.
    ///
    /// # Errors
    /// From the system; `InvalidData` where the table makes no sense.
    pub fn open(root: &Path) -> io::Result<Self> {
        let file = File::open(mounts::TABLE)?;
        let mounts = Some(mounts::read_from(&file, root)?);
        Ok(Self { root: root.to_owned(), shared: Mutex::new(Shared { file, mounts }) })
    }

    /// Where disks are mounted beneath the root.
    ///
    /// # Errors
    /// From the system.
    pub fn disks(&self) -> io::Result<Vec<TreePath>> {
        self.with(|mounts| {
            let disks = mounts.iter().skip(1).filter(|mount| mount.is_disk());
            disks.map(|mount| mount.path.clone()).collect()
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&[Mount]) -> T) -> io::Result<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // First the question, which takes back the sign of a change, then the table: no change is missed.
        if shared.has_changed()? || shared.mounts.is_none() {
            shared.mounts = None;
            shared.mounts = Some(mounts::read_from(&shared.file, &self.root)?);
        }
        Ok(ask(shared.mounts.as_deref().unwrap_or_default()))
    }
}

impl Shared {
    fn has_changed(&self) -> io::Result<bool> {
        loop {
            let mut asked = [PollFd::new(self.file.as_fd(), PollFlags::POLLPRI)];
            match poll(&mut asked, PollTimeout::ZERO) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => {
                    let signs = PollFlags::POLLERR | PollFlags::POLLPRI;
                    return Ok(asked[0].revents().is_none_or(|found| found.intersects(signs)));
                }
            }
        }
    }
}

/// Whether no mount before it shows any of the same files: one file must not have two paths, nor two journals.
fn is_only(mount: &Mount, mounts: &[Mount]) -> bool {
    let shows =
        |other: &Mount| beneath(&mount.root, &other.root).is_some() || beneath(&other.root, &mount.root).is_some();
    // A part that is not served is in nobody's way; whether a part of a btrfs is, its root directory would have to be asked.
    let counts = |other: &Mount| other.path.is_root() || other.kind == "btrfs" || other.root == b"/";
    let earlier = mounts.iter().take_while(|other| other.id != mount.id);
    !earlier.filter(|other| other.device == mount.device && counts(other)).any(shows)
}

impl Mounts for MountTable {
    fn serves(&self, root: MountRoot) -> io::Result<bool> {
        self.with(|mounts| {
            let mount = mounts.iter().skip(1).find(|mount| mount.id == root.mount);
            mount.is_some_and(|mount| mount.is_disk() && mount.is_whole(root.inode) && is_only(mount, mounts))
        })
    }

    fn any_at(&self, path: &TreePath) -> io::Result<Option<TreePath>> {
        // A mount moves with the directories above it, and no sign tells of that: this is asked seldom, and of the table as it is.
        let mounts = mounts::read_from(&File::open(mounts::TABLE)?, &self.root)?;
        Ok(mounts.into_iter().skip(1).map(|mount| mount.path).find(|mount| mount.is_within(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, path: &str, kind: &str, device: &str, root: &str) -> Mount {
        Mount {
            id,
            path: TreePath::parse(path.as_bytes()).unwrap(),
            place: PathBuf::from(path),
            kind: kind.to_owned(),
            device: device.to_owned(),
            source: Vec::new(),
            uuid: String::new(),
            root: root.as_bytes().to_vec(),
            read_only: false,
        }
    }

    #[test]
    fn each_file_system_is_served_where_it_is_mounted_first() {
        let mounts = [
            mount(1, "/", "ext4", "8:1", "/"),
            mount(2, "/bind", "ext4", "8:1", "/srv"),
            mount(8, "/part", "ext4", "8:2", "/part"),
            mount(3, "/home", "ext4", "8:2", "/"),
            mount(4, "/again", "ext4", "8:2", "/"),
            mount(5, "/var", "btrfs", "0:40", "/@var"),
            mount(6, "/opt", "btrfs", "0:40", "/@opt"),
            mount(7, "/opt2", "btrfs", "0:40", "/@opt"),
            mount(9, "/top", "btrfs", "0:40", "/"),
            mount(10, "/inner", "btrfs", "0:40", "/@opt/inner"),
        ];
        let served: Vec<u64> =
            mounts.iter().skip(1).filter(|mount| is_only(mount, &mounts)).map(|mount| mount.id).collect();
        // The part has one path only, but is refused for being one: its files are in the whole, too.
        assert_eq!(served, [8, 3, 5, 6]);
    }

    #[test]
    fn a_part_of_a_file_system_is_not_served() {
        assert!(mount(1, "/a", "ext4", "8:1", "/").is_whole(2));
        assert!(!mount(1, "/a", "ext4", "8:1", "/sub").is_whole(12));
        assert!(mount(1, "/a", "btrfs", "0:40", "/@a").is_whole(256));
        assert!(!mount(1, "/a", "btrfs", "0:40", "/@a/sub").is_whole(300));
    }

    #[test]
    fn kernel_file_systems_are_mounts_and_no_disks() {
        let table = MountTable::open(Path::new("/")).unwrap();
        let proc = TreePath::parse(b"/proc").unwrap();
        assert_eq!(table.any_at(&proc).unwrap(), Some(proc.clone()));
        assert!(!table.disks().unwrap().contains(&proc));
    }
}
