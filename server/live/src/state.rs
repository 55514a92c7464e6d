//! The state directory of a workspace: staged and displaced files, the journal, and a lock so that one agent has it.
//!
//! It must lie on the workspace's own file system and mount, since files are exchanged with it. In this order:
//! ```text
//! <dir>/root + <dir>/state     the layout that hides it best: the workspace sees only <dir>/root
//! <agent state>/live/<root>    the agent's own directory, where that is on the same mount and outside the root
//! <root>/.dormouse             hidden, 0700: no verb shows it
//! ```
//! Never follows a symbolic link to it, and never takes one that another user owns or may enter.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use rustix::{
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, StatxFlags},
    io::Errno,
};

use crate::{
    aside,
    error::OpenError,
    fail::Steps,
    inner::only_readable,
    journal::FILE_NAMES,
    tree::{Identity, STATE_NAME},
};

const LOCK_NAME: &str = "lock";
/// `BTRFS_SUPER_MAGIC` (statfs(2)).
const BTRFS_MAGIC: u64 = 0x9123_683e;
/// Staged and displaced files: this and a number. Nothing else in the state directory is ever deleted.
const STAGE_PREFIX: u8 = b's';

/// The state directory, held open.
pub(crate) struct State {
    path: PathBuf,
    directory: OwnedFd,
    lock: File,
    stages: AtomicU64,
    /// Whether this mount has been found unable to exchange two names.
    no_exchange: AtomicBool,
    /// A flush of a new file makes its name durable, too.
    pub(crate) names_with_files: bool,
    /// It is the agent's own to delete, in its own directory.
    is_agents: bool,
    forgotten: AtomicBool,
    /// The disk failed after a change was visible: nothing more is changed before it was opened again and recovered.
    failed: AtomicBool,
    /// Whether the agent may give files away.
    pub(crate) is_root: bool,
    pub(crate) steps: Steps,
}

/// A workspace's state directory, or why there is none: then it can be read and not changed.
pub(crate) type MaybeState = Result<State, Errno>;

impl Drop for State {
    fn drop(&mut self) {
        // Closing alone would leave it locked while a child that was forked meanwhile has not yet closed its copy (flock(2)).
        let _ = fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// What was found.
pub(crate) struct Found {
    pub(crate) state: MaybeState,
    /// The state directory, where it lies in the root and must be hidden.
    pub(crate) hidden: Option<Identity>,
}

impl AsFd for State {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl State {
    /// Finds or makes it.
    pub(crate) fn find(
        root_path: &Path,
        root: BorrowedFd<'_>,
        agent_state: &Path,
        steps: Steps,
    ) -> Result<Found, OpenError> {
        let beside = root_path
            .file_name()
            .filter(|name| *name == "root")
            .and_then(|_| root_path.parent())
            .map(|parent| parent.join("state"));
        if let Some(path) = beside {
            match fs::openat(fs::CWD, &path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Ok(directory) if same_mount(root, directory.as_fd()) => {
                    let state = Self::adopt(path, directory, steps)?;
                    if let (Ok(state), Some(name)) = (&state, birth_name(root)) {
                        aside::turn_to(state, &name)
                            .map_err(|source| OpenError::State { path: state.path.clone(), source })?;
                    }
                    return Ok(Found { state, hidden: None });
                }
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(refused(path, errno)),
            }
        }
        if let Some((path, directory)) = in_agent_state(root_path, root, agent_state) {
            return Self::adopt(path, directory, steps).map(|state| {
                let state = state.map(|mut state| {
                    state.is_agents = true;
                    state
                });
                Found { state, hidden: None }
            });
        }
        let path = root_path.join(std::str::from_utf8(STATE_NAME).unwrap_or(".dormouse"));
        match make_directory(root, STATE_NAME) {
            Ok(directory) => {
                let stat = fs::fstat(&directory).map_err(|errno| refused(path.clone(), errno))?;
                let hidden = Some(Identity::of(&stat));
                Self::adopt(path, directory, steps).map(|state| Found { state, hidden })
            }
            Err(errno) if only_readable(errno) => Ok(Found { state: Err(errno), hidden: None }),
            Err(errno) => Err(refused(path, errno)),
        }
    }

    fn adopt(path: PathBuf, directory: OwnedFd, steps: Steps) -> Result<MaybeState, OpenError> {
        let adopt = || -> Result<(File, bool), Errno> {
            let stat = fs::fstat(&directory)?;
            let agent = rustix::process::geteuid();
            if stat.st_uid != agent.as_raw() || stat.st_mode & 0o077 != 0 {
                return Err(Errno::PERM);
            }
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = File::from(fs::openat(&directory, LOCK_NAME, flags, Mode::RUSR | Mode::WUSR)?);
            fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            if fs::fstat(&lock)?.st_nlink == 0 {
                // Who had it before has just deleted all of it.
                return Err(Errno::AGAIN);
            }
            fs::fsync(&directory)?;
            Ok((lock, agent.is_root()))
        };
        let names_with_files = fs::fstatfs(&directory).is_ok_and(|stat| stat.f_type as u64 == BTRFS_MAGIC);
        let (lock, is_root) = match adopt() {
            Ok(adopted) => adopted,
            Err(errno @ (Errno::ROFS | Errno::NOSPC | Errno::DQUOT)) => return Ok(Err(errno)),
            Err(errno) => return Err(refused(path, errno)),
        };
        Ok(Ok(Self {
            path,
            directory,
            lock,
            stages: AtomicU64::new(0),
            no_exchange: AtomicBool::new(false),
            names_with_files,
            is_agents: false,
            forgotten: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            is_root,
            steps,
        }))
    }

    /// Displaced files that somebody may still want begin so.
    pub(crate) const KEPT_PREFIX: &str = "kept-";

    /// Where it was found.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A name for something staged or displaced, not used before while this is open.
    pub(crate) fn new_stage(&self) -> String {
        format!("{}{:x}", char::from(STAGE_PREFIX), self.stages.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether a name in the state directory is of something staged or displaced.
    pub(crate) fn is_stage(name: &[u8]) -> bool {
        name.first() == Some(&STAGE_PREFIX)
    }

    /// Begins the names after all that an earlier run may have left, so that what is not deleted yet is never in the way.
    pub(crate) fn stage_after(&self, name: &[u8]) {
        let number = std::str::from_utf8(&name[1..]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        if let Some(next) = number.and_then(|number| number.checked_add(1)) {
            self.stages.fetch_max(next, Ordering::Relaxed);
        }
    }

    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.steps.disk.check()?;
        fs::fsync(&self.directory)
    }

    pub(crate) fn can_exchange(&self) -> bool {
        !self.no_exchange.load(Ordering::Relaxed)
    }

    pub(crate) fn cannot_exchange(&self) {
        self.no_exchange.store(true, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::SeqCst);
    }

    /// Deletes the journal and the directory, where nobody will ask for them any more. What stays is found again by who
    /// opens the same directory anew.
    pub(crate) fn delete_if_forgotten(&self) {
        if !self.is_agents || !self.forgotten.load(Ordering::SeqCst) {
            return;
        }
        // The lock last: whoever comes before that is refused by it, and after that finds that it has no name any more.
        for name in FILE_NAMES.into_iter().chain([LOCK_NAME]) {
            let _ = fs::unlinkat(&self.directory, name, AtFlags::empty());
        }
        // One that still holds what was kept is not empty, and stays.
        let _ = fs::unlinkat(fs::CWD, &self.path, AtFlags::REMOVEDIR);
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }
}

fn refused(path: PathBuf, errno: Errno) -> OpenError {
    let source = match errno {
        Errno::PERM => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it must be a directory of mode 0700 that belongs to the agent's user; a directory named state beside a root \
             named root is taken for it",
        ),
        // The lock is all that is ever waited for here, and it is not waited for.
        Errno::AGAIN => io::Error::new(io::ErrorKind::ResourceBusy, "another workspace or agent has this directory"),
        errno => errno.into(),
    };
    OpenError::State { path, source }
}

/// `<agent state>/live/<birth name of the root>`.
fn in_agent_state(root_path: &Path, root: BorrowedFd<'_>, agent_state: &Path) -> Option<(PathBuf, OwnedFd)> {
    let (root_path, agent_path) = (root_path.canonicalize().ok()?, agent_state.canonicalize().ok()?);
    if agent_path.starts_with(&root_path) {
        return None;
    }
    let agent = fs::openat(fs::CWD, &agent_path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if !same_mount(root, agent.as_fd()) {
        return None;
    }
    let live = make_directory(agent.as_fd(), b"live").ok()?;
    let name = birth_name(root)?;
    let directory = make_directory(live.as_fd(), name.as_bytes()).ok()?;
    Some((agent_path.join("live").join(name), directory))
}

/// A directory's inode and birth: unlike its path, these two stay with it, and unlike its inode alone they are never another's
/// later.
fn birth_name(directory: BorrowedFd<'_>) -> Option<String> {
    let statx = fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME).ok()?;
    Some(format!("{:x}-{:x}.{:x}", statx.stx_ino, statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec))
}

/// Rename and link work only within one mount (`EXDEV`, rename(2)).
fn same_mount(left: BorrowedFd<'_>, right: BorrowedFd<'_>) -> bool {
    let mount = |directory: BorrowedFd<'_>| {
        let statx = fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        let device = fs::fstat(directory).ok()?.st_dev;
        Some((statx.stx_mnt_id, device))
    };
    mount(left).is_some_and(|left| mount(right) == Some(left))
}

/// Opens a directory of the agent's own, made 0700 and durable where it is not there.
fn make_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let made = match fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        // On a read-only file system mkdir says so even where the directory is there.
        Err(errno) => return Err(errno),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = fs::openat(parent, name, flags, Mode::empty())?;
    if made {
        fs::fchmod(&directory, Mode::RWXU)?;
        fs::fsync(&directory)?;
        fs::fsync(parent)?;
    }
    Ok(directory)
}
