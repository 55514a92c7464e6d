//! A directory of this host as a [`Tree`].
//!
//! Every name is opened (`beneath`) relative to a held directory, beneath it, without following a symbolic or magic
//! link and without crossing a mount, but into one that is a part of the workspace ([`crate::mounts`]). A held descriptor
//! follows its directory wherever that is moved: what the workspace sees must itself be a mount, so that its processes cannot
//! move a directory out of it (`EXDEV`, rename(2)).
//!
//! Never writes, and never shows the agent's own state directory.

use std::{
    fs::File,
    mem::MaybeUninit,
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use dormouse_files::{
    meta::{FileType, Meta, Time},
    tree::{self, Name, Tree, TreeError},
};
use rustix::{
    fs::{self, AtFlags, OFlags, RawDir, Stat},
    io::Errno,
};

use crate::{
    beneath::open_beneath,
    errno::tree_error,
    mounts::{self, Entered, Mounts},
    read,
};

/// The one name at the root that may be the agent's own.
pub(crate) const STATE_NAME: &[u8] = b".dormouse";
/// How often a name is looked at that is a directory and none in turn.
const OPEN_ATTEMPTS_MAX: u32 = 64;
/// Bytes that one getdents64(2) call fills.
const NAMES_BUFFER_BYTES: usize = 32 << 10;
/// Longest target of a symbolic link: `PATH_MAX` without its NUL.
const LINK_BYTES_MAX: usize = 4095;

/// A directory of this host.
#[derive(Clone)]
pub struct LiveTree {
    root: LiveDirectory,
    hidden: Option<Identity>,
    /// Which mounts are stepped into; none at all where there is nothing.
    mounts: Option<Arc<dyn Mounts>>,
}

/// A directory that is held by a descriptor.
#[derive(Clone)]
pub struct LiveDirectory(Arc<Held>);

struct Held {
    descriptor: OwnedFd,
    is_root: bool,
    /// `O_PATH`: only search permission was there.
    path_only: bool,
    /// The mount that was stepped into on the way; nothing on the root's own.
    entered: Option<Entered>,
    /// Whether the descriptor's own position may be elsewhere than at the beginning of the listing.
    listed: AtomicBool,
}

/// A regular file that is held open for reading.
pub struct LiveFile(File);

/// Which inode, on this host, while it is held or locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    #[allow(clippy::unnecessary_cast, reason = "the types of stat(2) differ between architectures")]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }
}

impl AsFd for LiveDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl LiveFile {
    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    pub(crate) fn into_file(self) -> File {
        self.0
    }
}

impl LiveDirectory {
    /// Whether only search permission was there, so that it can be neither listed nor flushed.
    pub(crate) fn is_path_only(&self) -> bool {
        self.0.path_only
    }

    /// The mount beneath the workspace's root that it lies on; nothing for the root's own.
    pub(crate) fn entered_mount(&self) -> Option<u64> {
        self.0.entered.map(|entered| entered.mount)
    }
}

impl LiveTree {
    /// Over a root that is held already; `hidden` is the state directory where it lies in the root.
    pub(crate) fn new(root: OwnedFd, hidden: Option<Identity>) -> Self {
        // Held for long, and some file systems list a descriptor as the directory was when it was opened (btrfs).
        let listed = AtomicBool::new(true);
        let held = Held { descriptor: root, is_root: true, path_only: false, entered: None, listed };
        Self { root: LiveDirectory(Arc::new(held)), hidden, mounts: None }
    }

    /// The same, with the file systems that are mounted beneath its root.
    pub(crate) fn across(&self, mounts: Arc<dyn Mounts>) -> Self {
        Self { mounts: Some(mounts), ..self.clone() }
    }

    pub(crate) fn root_directory(&self) -> &LiveDirectory {
        &self.root
    }

    /// Whether `name` at the root of a file system is the agent's own.
    pub(crate) fn hides(&self, parent: &LiveDirectory, name: &[u8]) -> bool {
        let is_state = parent.0.is_root && name == STATE_NAME;
        is_state
            && match parent.0.entered {
                None => self.hidden.is_some(),
                // The first change may have made it since.
                Some(_) => mounts::state_in(parent).is_some(),
            }
    }

    /// The agent's own directory on the file system of this one.
    fn hidden_in(&self, directory: &LiveDirectory) -> Option<Identity> {
        directory.0.entered.map_or(self.hidden, |entered| entered.hidden)
    }

    fn hides_inode(&self, parent: &LiveDirectory, stat: &Stat) -> bool {
        self.hidden_in(parent).is_some_and(|hidden| hidden == Identity::of(stat))
    }

    fn enter(&self, parent: &LiveDirectory, name: &[u8]) -> Result<LiveDirectory, TreeError> {
        let Some(mounts) = &self.mounts else { return Err(TreeError::Outside) };
        let (descriptor, entered, path_only) = mounts::enter(&**mounts, parent, name)?;
        let (entered, listed) = (Some(entered), AtomicBool::new(false));
        Ok(LiveDirectory(Arc::new(Held { descriptor, is_root: true, path_only, entered, listed })))
    }

    fn kind_of(&self, parent: &LiveDirectory, name: &[u8]) -> Result<FileType, TreeError> {
        Ok(self.stat(parent, name)?.kind)
    }
}

/// From stat(2); nothing where the type bits are none of the seven.
#[allow(clippy::unnecessary_cast, reason = "the types of stat(2) differ between architectures")]
pub(crate) fn meta_of(stat: &Stat) -> Option<Meta> {
    let mode = stat.st_mode as u32;
    Some(Meta {
        kind: FileType::from_mode(mode)?,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        link_count: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        modify_time: Time { seconds: stat.st_mtime as i64, nanoseconds: stat.st_mtime_nsec as u32 },
        change_time: Time { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as u32 },
        inode: stat.st_ino as u64,
    })
}

fn meta(stat: &Stat) -> Result<Meta, TreeError> {
    meta_of(stat).ok_or_else(|| TreeError::Corrupt { what: format!("type of inode {}", stat.st_ino) })
}

impl Tree for LiveTree {
    type Directory = LiveDirectory;
    type File = LiveFile;

    fn root(&self) -> Result<LiveDirectory, TreeError> {
        Ok(self.root.clone())
    }

    fn directory(&self, parent: &LiveDirectory, name: &[u8]) -> Result<LiveDirectory, TreeError> {
        if self.hides(parent, name) {
            return Err(TreeError::NotFound);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut attempts = 0..OPEN_ATTEMPTS_MAX;
        let (descriptor, path_only) = loop {
            let (opened, path_only) = match open_beneath(parent, name, flags) {
                Err(Errno::ACCESS) => (open_beneath(parent, name, OFlags::PATH | flags), true),
                other => (other, false),
            };
            match opened {
                Ok(descriptor) => break (descriptor, path_only),
                Err(Errno::LOOP) => return Err(TreeError::NotDirectory(FileType::Symlink)),
                Err(Errno::XDEV) => return self.enter(parent, name),
                Err(Errno::NOTDIR) => match self.kind_of(parent, name)? {
                    // It has become one since.
                    FileType::Directory if attempts.next().is_some() => {}
                    // It turns into something else and back as often as it is looked at.
                    FileType::Directory => return Err(TreeError::Changed),
                    kind => return Err(TreeError::NotDirectory(kind)),
                },
                Err(errno) => return Err(tree_error(errno)),
            }
        };
        if self.hidden_in(parent).is_some() && self.hides_inode(parent, &fs::fstat(&descriptor).map_err(tree_error)?) {
            return Err(TreeError::NotFound);
        }
        let (entered, listed) = (parent.0.entered, AtomicBool::new(false));
        Ok(LiveDirectory(Arc::new(Held { descriptor, is_root: false, path_only, entered, listed })))
    }

    fn stat(&self, parent: &LiveDirectory, name: &[u8]) -> Result<Meta, TreeError> {
        if self.hides(parent, name) {
            return Err(TreeError::NotFound);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = fs::statat(parent, name, flags).map_err(tree_error)?;
        if self.hides_inode(parent, &stat) {
            return Err(TreeError::NotFound);
        }
        meta(&stat)
    }

    fn stat_directory(&self, directory: &LiveDirectory) -> Result<Meta, TreeError> {
        meta(&fs::fstat(directory).map_err(tree_error)?)
    }

    fn identify(&self, directory: &LiveDirectory) -> Result<tree::Identity, TreeError> {
        let Identity { device, inode } = Identity::of(&fs::fstat(directory).map_err(tree_error)?);
        Ok(tree::Identity { file_system: device, inode })
    }

    fn names(
        &self,
        directory: &LiveDirectory,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        if directory.0.path_only {
            return Err(TreeError::PermissionDenied);
        }
        // The position of a listing belongs to an open file description, and the held one is shared: it serves the first
        // listing, and each other opens its own.
        let own = match directory.0.listed.swap(true, Ordering::Relaxed) {
            false => None,
            true => Some(open_beneath(directory, b".", OFlags::RDONLY | OFlags::DIRECTORY).map_err(tree_error)?),
        };
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); NAMES_BUFFER_BYTES];
        let hidden_here = self.hidden_in(directory);
        let listed = own.as_ref().map_or(directory.as_fd(), AsFd::as_fd);
        let mut listing = RawDir::new(listed, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(tree_error)?;
            let bytes = entry.file_name().to_bytes();
            // Subvolumes of a btrfs, which are no mounts, number their inodes alike.
            let hidden = hidden_here.is_some_and(|hidden| {
                hidden.inode == entry.ino()
                    && fs::fstat(directory).is_ok_and(|stat| Identity::of(&stat).device == hidden.device)
            });
            if bytes == b"." || bytes == b".." || hidden || self.hides(directory, bytes) {
                continue;
            }
            if visit(Name { bytes, kind: kind_of_listing(entry.file_type()) }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn link(&self, parent: &LiveDirectory, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        let target = match fs::readlinkat(parent, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            // It was a link when it was looked at, and is none now (readlink(2)).
            Err(Errno::INVAL) => return Err(TreeError::Changed),
            Err(errno) => return Err(tree_error(errno)),
        };
        match target.len() {
            1..=LINK_BYTES_MAX => Ok(target),
            _ => Err(TreeError::Corrupt { what: "length of a symbolic link's target".to_owned() }),
        }
    }

    fn open(&self, parent: &LiveDirectory, name: &[u8]) -> Result<(LiveFile, Meta), TreeError> {
        if self.hides(parent, name) {
            return Err(TreeError::NotFound);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match open_beneath(parent, name, flags) {
            Ok(descriptor) => File::from(descriptor),
            Err(Errno::LOOP) => return Err(TreeError::NotRegular(FileType::Symlink)),
            // A socket, or a device without a driver (open(2)); what the agent may not read still has a type.
            Err(errno @ (Errno::NXIO | Errno::NODEV | Errno::ACCESS | Errno::PERM)) => {
                return Err(match self.kind_of(parent, name)? {
                    FileType::Regular => tree_error(errno),
                    kind => TreeError::NotRegular(kind),
                });
            }
            Err(errno) => return Err(tree_error(errno)),
        };
        let stat = fs::fstat(&file).map_err(tree_error)?;
        if self.hides_inode(parent, &stat) {
            return Err(TreeError::NotFound);
        }
        match meta(&stat)? {
            meta @ Meta { kind: FileType::Regular, .. } => Ok((LiveFile(file), meta)),
            Meta { kind, .. } => Err(TreeError::NotRegular(kind)),
        }
    }

    fn stat_file(&self, file: &LiveFile) -> Result<Meta, TreeError> {
        meta(&fs::fstat(&file.0).map_err(tree_error)?)
    }

    fn read_at(&self, file: &LiveFile, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        read::full_at(&file.0, offset, buffer).map_err(TreeError::Io)
    }

    fn read_rest(&self, file: &LiveFile, offset: u64, end: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        read::rest_at(&file.0, offset, end, buffer).map_err(TreeError::Io)
    }
}

fn kind_of_listing(kind: fs::FileType) -> Option<FileType> {
    Some(match kind {
        fs::FileType::RegularFile => FileType::Regular,
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::CharacterDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        fs::FileType::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use rustix::fs::Mode;

    use super::*;

    fn tree(root: &std::path::Path, hidden: bool) -> LiveTree {
        let descriptor = fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let hidden = hidden.then(|| Identity::of(&fs::stat(root.join(".dormouse")).unwrap()));
        LiveTree::new(descriptor, hidden)
    }

    #[track_caller]
    fn check<T>(found: Result<T, TreeError>, expect: &str) {
        let debug = match found {
            Ok(_) => "Ok".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        assert!(debug.starts_with(expect), "{debug} is not {expect}");
    }

    #[test]
    fn opens_files_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("f"), "0123456789").unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        symlink("f", root.path().join("l")).unwrap();
        symlink("d", root.path().join("ld")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.path().join("p"), fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(root.path().join("s")).unwrap();
        let tree = tree(root.path(), false);
        let top = tree.root().unwrap();
        check(tree.open(&top, b"f"), "Ok");
        check(tree.open(&top, b"d"), "NotRegular(Directory)");
        check(tree.open(&top, b"l"), "NotRegular(Symlink)");
        check(tree.open(&top, b"p"), "NotRegular(Fifo)");
        check(tree.open(&top, b"s"), "NotRegular(Socket)");
        check(tree.open(&top, b"none"), "NotFound");
        check(tree.directory(&top, b"d"), "Ok");
        check(tree.directory(&top, b"f"), "NotDirectory(Regular)");
        check(tree.directory(&top, b"ld"), "NotDirectory(Symlink)");
        check(tree.directory(&top, b"p"), "NotDirectory(Fifo)");
        assert_eq!(tree.link(&top, b"l").unwrap(), b"f");
        let (file, meta) = tree.open(&top, b"f").unwrap();
        assert_eq!((meta.kind, meta.size_bytes), (FileType::Regular, 10));
        let mut buffer = [0; 8];
        assert_eq!(tree.read_at(&file, 4, &mut buffer).unwrap(), 6);
        assert_eq!(&buffer[..6], b"456789");
        assert_eq!(tree.read_at(&file, 99, &mut buffer).unwrap(), 0);
        let mut names = Vec::new();
        tree.names(&top, &mut |name| {
            names.push((name.bytes.to_vec(), name.kind));
            ControlFlow::Continue(())
        })
        .unwrap();
        names.sort_by(|left, right| left.0.cmp(&right.0));
        let kinds: Vec<_> = names.iter().map(|(name, kind)| (name.as_slice(), *kind)).collect();
        use FileType::{Directory, Fifo, Regular, Socket, Symlink};
        assert_eq!(
            kinds,
            [
                (b"d".as_slice(), Some(Directory)),
                (b"f", Some(Regular)),
                (b"l", Some(Symlink)),
                (b"ld", Some(Symlink)),
                (b"p", Some(Fifo)),
                (b"s", Some(Socket))
            ]
        );
    }

    #[test]
    fn a_directory_is_listed_each_time_from_its_beginning() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        for number in 0..2_000 {
            std::fs::write(root.path().join(format!("d/file with a rather long name {number}")), "").unwrap();
        }
        let tree = tree(root.path(), false);
        let top = tree.root().unwrap();
        let count = |directory: &LiveDirectory, at_most: usize| {
            let mut count = 0;
            let mut visit = |_: Name<'_>| {
                count += 1;
                if count == at_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            tree.names(directory, &mut visit).unwrap();
            count
        };
        let directory = tree.directory(&top, b"d").unwrap();
        // The first is broken off, and shares its descriptor with nobody.
        assert_eq!(count(&directory, 1_000), 1_000);
        assert_eq!(count(&directory.clone(), usize::MAX), 2_000);
        assert_eq!(count(&directory, usize::MAX), 2_000);
        assert_eq!(count(&tree.directory(&top, b"d").unwrap(), usize::MAX), 2_000);
        assert!(top.0.listed.load(Ordering::Relaxed), "the root's own descriptor lists nothing");
        let shared = tree.directory(&top, b"d").unwrap();
        std::thread::scope(|scope| {
            let listings: Vec<_> = (0..4).map(|_| scope.spawn(|| count(&shared, usize::MAX))).collect();
            assert!(listings.into_iter().all(|listing| listing.join().unwrap() == 2_000));
        });
        assert_eq!(count(&top, usize::MAX), 1);
        std::fs::write(root.path().join("new"), "").unwrap();
        assert_eq!(count(&top, usize::MAX), 2);
    }

    #[test]
    fn the_state_directory_is_hidden_by_name_and_by_inode() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join(".dormouse")).unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::create_dir(root.path().join("d/.dormouse")).unwrap();
        let hidden = tree(root.path(), true);
        let top = hidden.root().unwrap();
        check(hidden.directory(&top, b".dormouse"), "NotFound");
        check(hidden.stat(&top, b".dormouse"), "NotFound");
        check(hidden.open(&top, b".dormouse"), "NotFound");
        let below = hidden.directory(&top, b"d").unwrap();
        check(hidden.directory(&below, b".dormouse"), "Ok");
        std::fs::rename(root.path().join(".dormouse"), root.path().join("moved")).unwrap();
        check(hidden.directory(&top, b"moved"), "NotFound");
        check(hidden.stat(&top, b"moved"), "NotFound");
        let mut names = Vec::new();
        hidden
            .names(&top, &mut |name| {
                names.push(name.bytes.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(names, [b"d"]);
    }
}
