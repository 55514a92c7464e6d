//! Freezes the file systems of the machine that hold the workspace, and lets them go on: when it is told to, or when the
//! freeze's time is over.
//!
//! The time is kept by a thread of its own that opens no file, writes no log and waits for nobody: everything else in this
//! process may hang on the frozen file system. While it is frozen the workspace is `quiescing`: reads go on, changes are
//! refused instead of hanging.

use std::{
    fs::File,
    io,
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
        let frozen = {
            let mut hold = self.hold();
            hold.until = None;
            // Under this lock, so that a Freeze that finds nothing frozen says `quiescing` after this.
            workspace.held().record.state = State::Running;
            std::mem::take(&mut hold.frozen)
        };
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
        // Before the freeze: what it reads of the disks must not wait for the thaw.
        let mounts = mounts::read(&self.root).map_err(FreezeError::Io)?;
        if !self.extend(until) {
            self.workspace.held().record.state = State::Quiescing;
            let done = self.begin(&mounts, until);
            if let Err(error) = done {
                self.shared.release(&self.workspace);
                return Err(error);
            }
        }
        let hold = self.shared.hold();
        let is_frozen = |mount: &Mount| hold.frozen.iter().any(|(_, device)| *device == mount.device);
        Ok(mounts.into_iter().map(|mount| (mount.clone(), is_frozen(&mount))).collect())
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

    fn begin(&self, mounts: &[Mount], until: Instant) -> Result<(), FreezeError> {
        if !self.workspace.wait_for_changes(until.saturating_duration_since(Instant::now())) {
            return Err(FreezeError::Late);
        }
        self.keep_time(until)?;
        // The last one mounted first, and the root at the end: one may be on an image that lies in another, whose freeze would
        // never let it come to rest.
        for (index, mount) in mounts.iter().enumerate().rev() {
            let is_root = index == 0;
            let is_frozen = self.shared.hold().frozen.iter().any(|(_, device)| *device == mount.device);
            if is_frozen || (!is_root && !mount.is_freezable()) {
                continue;
            }
            match self.freeze_one(mount, until) {
                Err(FreezeError::Unsupported { .. }) if !is_root => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn freeze_one(&self, mount: &Mount, until: Instant) -> Result<(), FreezeError> {
        let place = mount.place.display().to_string();
        let file = File::open(&mount.place).map_err(FreezeError::Io)?;
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
                    drop(hold);
                    shared.release(&workspace);
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
