//! Freezes the file systems of the machine that hold the workspace, and lets them go on: when it is told to, or when the
//! freeze's time is over.
//!
//! The time is kept by a thread of its own that opens no file, writes no log and waits for nobody: everything else in this
//! process may hang on the frozen file system. While it is frozen the workspace is `quiescing`: reads go on, changes are
//! refused instead of hanging.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::libc;

use crate::{
    guest::mounts::{self, Mount},
    host::{state::State, workspace::Workspace},
};

/// Longest freeze.
pub const FREEZE_TIME_MAX: Duration = Duration::from_secs(60);

/// Why nothing is frozen.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Changes under way, or the freeze itself, took longer than the freeze's own time.
    #[error("the file systems were not frozen in time")]
    Late,
    /// Somebody else has frozen it.
    #[error("the file system of {place} is frozen already, by another process")]
    Busy {
        /// Where it is mounted.
        place: String,
    },
    /// The file system knows no freeze.
    #[error("the file system of {place} cannot be frozen")]
    Unsupported {
        /// Where it is mounted.
        place: String,
    },
    /// The system failed.
    #[error("the file systems cannot be frozen")]
    Io(#[source] io::Error),
}

/// Freezes one workspace.
pub struct Freezer {
    root: PathBuf,
    workspace: Arc<Workspace>,
    /// Held by the one Freeze or Thaw that is under way.
    turn: Mutex<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    hold: Mutex<Hold>,
    changed: Condvar,
}

#[derive(Default)]
struct Hold {
    /// What is frozen, its mount point, and by when it goes on.
    frozen: Vec<(File, String)>,
    until: Option<Instant>,
}

impl Shared {
    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything go on; what it was.
    fn release(&self, workspace: &Workspace) -> Vec<String> {
        self.let_go(self.hold(), workspace)
    }

    fn let_go(&self, mut hold: MutexGuard<'_, Hold>, workspace: &Workspace) -> Vec<String> {
        hold.until = None;
        // Under this lock, so that a Freeze that finds nothing frozen says `quiescing` after this.
        workspace.held().record.state = State::Running;
        let frozen = std::mem::take(&mut hold.frozen);
        drop(hold);
        self.changed.notify_all();
        // In the opposite order: a file system on an image that lies in another one goes on after that.
        for (file, _) in frozen.iter().rev() {
            // Thawed already, by an operator: then it goes on as it should.
            let _ = dormouse_freeze::thaw(file);
        }
        frozen.into_iter().map(|(_, place)| place).collect()
    }
}

impl Freezer {
    /// Of this workspace; `root` is absolute and free of links.
    pub fn new(root: &Path, workspace: Arc<Workspace>) -> Self {
        Self { root: root.to_owned(), workspace, turn: Mutex::new(()), shared: Arc::default() }
    }

    /// Whether anything is frozen.
    pub fn is_frozen(&self) -> bool {
        !self.shared.hold().frozen.is_empty()
    }

    /// Freezes the file systems for at most so long, and tells the mount table, with what is frozen of it. A second call of a
    /// freeze that holds only begins its time anew. Blocks.
    ///
    /// # Errors
    /// See [`FreezeError`]; nothing is frozen then.
    pub fn freeze(&self, limit: Duration) -> Result<Vec<(Mount, bool)>, FreezeError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + limit.min(FREEZE_TIME_MAX);
        if self.extend(until) {
            return Ok(self.told(mounts::read(&self.root).map_err(FreezeError::Io)?));
        }
        self.workspace.held().record.state = State::Quiescing;
        match self.begin(until) {
            Ok(mounts) => Ok(self.told(mounts)),
            Err(error) => {
                self.shared.release(&self.workspace);
                Err(error)
            }
        }
    }

    /// Each mount, and whether it is frozen.
    fn told(&self, mounts: Vec<Mount>) -> Vec<(Mount, bool)> {
        let hold = self.shared.hold();
        let with = |mount: Mount| {
            let is_frozen = hold.frozen.iter().any(|(_, device)| *device == mount.device);
            (mount, is_frozen)
        };
        mounts.into_iter().map(with).collect()
    }

    /// Gives a freeze that holds this time; whether there is one.
    fn extend(&self, until: Instant) -> bool {
        let mut hold = self.shared.hold();
        let holds = !hold.frozen.is_empty();
        if holds {
            hold.until = Some(until);
            self.shared.changed.notify_all();
        }
        holds
    }

    fn begin(&self, until: Instant) -> Result<Vec<Mount>, FreezeError> {
        if !self.workspace.wait_for_changes(until.saturating_duration_since(Instant::now())) {
            return Err(FreezeError::Late);
        }
        // After the wait, in which disks may come and go, and before the freeze: what it reads of the disks must not wait for
        // the thaw.
        let mounts = mounts::read(&self.root).map_err(FreezeError::Io)?;
        self.keep_time(until)?;
        for index in order(&mounts) {
            match self.freeze_one(&mounts[index], until) {
                Err(FreezeError::Unsupported { .. }) if index > 0 => {}
                // Nobody reaches it by its path any more: it is unmounted, or under another mount.
                Err(FreezeError::Io(error)) if index > 0 && is_covered(&error) => {}
                done => done?,
            }
        }
        Ok(mounts)
    }

    fn freeze_one(&self, mount: &Mount, until: Instant) -> Result<(), FreezeError> {
        let place = mount.place.display().to_string();
        let file = File::open(&mount.place).map_err(FreezeError::Io)?;
        if !mount.is_of(file.metadata().map_err(FreezeError::Io)?.dev()) {
            return Err(FreezeError::Io(io::ErrorKind::NotFound.into()));
        }
        dormouse_freeze::freeze(&file).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => FreezeError::Busy { place: place.clone() },
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => FreezeError::Unsupported { place: place.clone() },
            _ => FreezeError::Io(error),
        })?;
        let mut hold = self.shared.hold();
        hold.frozen.push((file, mount.device.clone()));
        // The time was over while the file system was being frozen: the thread has let go of what there was, and has ended.
        if hold.until != Some(until) {
            return Err(FreezeError::Late);
        }
        Ok(())
    }

    /// Begins the thread that ends the freeze.
    fn keep_time(&self, until: Instant) -> Result<(), FreezeError> {
        self.shared.hold().until = Some(until);
        let (shared, workspace) = (self.shared.clone(), self.workspace.clone());
        let keep = move || {
            let mut hold = shared.hold();
            while let Some(until) = hold.until {
                let Some(left) = until.checked_duration_since(Instant::now()) else {
                    // Under the lock that showed it, so that a Freeze which gives it more time is either before or too late.
                    shared.let_go(hold, &workspace);
                    return;
                };
                hold = shared.changed.wait_timeout(hold, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        thread::Builder::new().name("thaw".to_owned()).spawn(keep).map(drop).map_err(FreezeError::Io)
    }

    /// Lets everything go on; the devices that were frozen. Blocks while a Freeze is under way.
    pub fn thaw(&self) -> Vec<String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.release(&self.workspace)
    }
}

/// Which mounts are frozen, by their places in the table: each file system once. What was mounted first is frozen last, the root
/// at the end, since a later one may be on an image in it, and would not come to rest once that is frozen. A file system of
/// several mounts goes by its first: the others, a bind mount of a part of it say, tell nothing of what lies on it.
fn order(mounts: &[Mount]) -> Vec<usize> {
    let counts = |index: usize| index == 0 || mounts[index].is_freezable();
    let is_first =
        |index: usize| !(0..index).any(|before| counts(before) && mounts[before].device == mounts[index].device);
    (0..mounts.len()).rev().filter(|&index| counts(index) && is_first(index)).collect()
}

fn is_covered(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use dormouse_files::path::TreePath;

    use super::*;

    #[test]
    fn what_was_mounted_first_is_frozen_last() {
        let mount = |path: &str, device: &str, read_only: bool| Mount {
            id: 0,
            path: TreePath::parse(path.as_bytes()).unwrap(),
            place: PathBuf::from(path),
            kind: "ext4".to_owned(),
            device: device.to_owned(),
            source: Vec::new(),
            uuid: String::new(),
            root: b"/".to_vec(),
            read_only,
        };
        let check = |mounts: &[Mount], expect: &[&str]| {
            let found: Vec<_> = order(mounts).into_iter().map(|index| mounts[index].path.to_string()).collect();
            assert_eq!(found, expect);
        };
        let (root, data, image) =
            (mount("/", "8:0", false), mount("/data", "8:16", false), mount("/img", "7:0", false));
        check(&[root.clone(), data.clone(), image.clone()], &["/img", "/data", "/"]);
        // A bind mount of a part of a disk comes last, and moves that disk nowhere; nor does one of the root's.
        let (bound, own) = (mount("/srv/x", "8:16", false), mount("/own", "8:0", false));
        check(&[root.clone(), data, image.clone(), bound, own], &["/img", "/data", "/"]);
        // One that takes no writes does not stand for another that does.
        check(&[root, mount("/ro", "8:16", true), image, mount("/rw", "8:16", false)], &["/rw", "/img", "/"]);
    }
}
