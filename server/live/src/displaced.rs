//! What changes displaced: deleted once the journal no longer needs it, unless somebody has written to it since.
//!
//! ```text
//! displaced ──journal durable──► lingers ──► looked at ──┬─ as it was ────────────────► deleted
//!                                                        └─ written to, or still open ─► kept-…, counted, told
//! ```
//! A process may have looked a name up before the exchange, been put to sleep before the kernel counted it as a writer, and
//! go on when the lease is released (open(2) does the two apart, and nothing tells of the first). What it then writes goes
//! to the displaced file. So that file lingers, is looked at once more under a lease of its own, and is kept where it
//! changed: such a loss can happen, but not in silence. What this cannot see is a process that sleeps between the two for
//! longer than the file lingers.
//!
//! Never deletes a file that it could not look at sooner than the journal allows, and never looks at removed directories.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dormouse_files::{path::TreePath, revision::Revision};
use dormouse_lease::{ReadLease, Refused};
use rustix::{
    fs::{self, AtFlags, OFlags},
    io::Errno,
};

use crate::{
    beneath::open_beneath,
    commit::{Stamp, revision_of},
    ledger::{Ticket, now},
    limits::LiveLimits,
    lingering::{Caretaker, Haste, Lingering},
    state::State,
    sweep::Sweeper,
};

/// Up to this size a displaced file is read again whatever its times say: older kernels tell times by the tick, and a write
/// within one would not show.
const READ_AGAIN_BYTES_MAX: u64 = 256 << 10;

/// A process wrote to a file after a change had displaced it, or still may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateWrite {
    /// The path that the process meant.
    pub path: TreePath,
    /// Where what it wrote is; nothing where it was larger than all that is kept, or could not be kept.
    pub kept: Option<PathBuf>,
}

/// Is told of each [`LateWrite`]; must not block.
pub type LateWriteListener = Arc<dyn Fn(&LateWrite) + Send + Sync>;

/// How a displaced file was when nobody could have written to it any more but a late writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settled {
    stamp: Stamp,
    changed: (i64, u64),
    size_bytes: u64,
}

impl Settled {
    #[allow(clippy::unnecessary_cast, reason = "the types of stat(2) differ between architectures")]
    pub(crate) fn of(stat: &fs::Stat) -> Self {
        Self {
            stamp: Stamp::of(stat),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }
}

/// By what a late write to a displaced file is noticed.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) path: TreePath,
    pub(crate) settled: Settled,
    pub(crate) revision: Revision,
}

impl Watched {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.settled.size_bytes
    }
}

/// A name in the state directory that is to go.
#[derive(Debug, Clone)]
pub(crate) struct Displaced {
    pub(crate) name: String,
    /// Nothing for what was to be removed, whoever writes to it.
    pub(crate) watched: Option<Watched>,
}

/// All that was displaced and is still there.
pub(crate) struct Leftovers {
    inner: Arc<Inner>,
    caretaker: Caretaker,
}

/// What the caretaker's thread needs, too.
struct Inner {
    lingering: Lingering,
    sweeper: Sweeper,
    late: Mutex<Late>,
    late_count: AtomicU64,
    limits: LiveLimits,
}

#[derive(Default)]
struct Late {
    /// Names of what is kept, the oldest first.
    kept: VecDeque<String>,
    listener: Option<LateWriteListener>,
    /// What nobody has listened to yet; at most as many as are kept.
    untold: VecDeque<LateWrite>,
}

impl fmt::Debug for Late {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Late").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Leftovers {
    /// `kept` are the names of what earlier runs have kept.
    pub(crate) fn new(limits: &LiveLimits, mut kept: Vec<String>) -> Self {
        // Their names begin with when they were kept, in as many digits for the next 250 years.
        kept.sort();
        let late = Late { kept: kept.into(), ..Late::default() };
        let inner = Inner {
            lingering: Lingering::new(limits),
            sweeper: Sweeper::default(),
            late: Mutex::new(late),
            late_count: AtomicU64::new(0),
            limits: limits.clone(),
        };
        Self { inner: Arc::new(inner), caretaker: Caretaker::default() }
    }

    /// Late writes since the workspace was opened.
    pub(crate) fn late_count(&self) -> u64 {
        self.inner.late_count.load(Ordering::Relaxed)
    }

    /// From now on `listener` is told, at first of what came before it.
    pub(crate) fn listen(&self, listener: LateWriteListener) {
        let untold = {
            let mut late = self.inner.late();
            late.listener = Some(Arc::clone(&listener));
            std::mem::take(&mut late.untold)
        };
        untold.iter().for_each(|late_write| listener(late_write));
    }

    /// To be deleted when the journal is durable up to this ticket.
    pub(crate) fn add(&self, displaced: Displaced, ticket: Ticket) {
        self.inner.lingering.add(displaced, ticket);
    }

    /// Deletes what is to go at once, and sees to it that what lingers goes in time; whether anything was there to go at once.
    pub(crate) fn tidy(&self, state: &Arc<State>, flushed: Ticket, haste: Haste) -> bool {
        let lingering = &self.inner.lingering;
        lingering.flushed(flushed);
        let mut has_any = false;
        while state.steps.may_tidy() {
            let Some(taken) = lingering.take(haste) else { break };
            has_any = true;
            self.inner.end(state, &taken.displaced);
        }
        if haste == Haste::Now {
            return lingering.wait_for_taken() || has_any;
        }
        if lingering.wants_thread() {
            let (inner, state) = (Arc::clone(&self.inner), Arc::clone(state));
            let has_thread = self.caretaker.start(move || {
                while let Some(taken) = inner.lingering.take_in_time(&state) {
                    inner.end(&state, &taken.displaced);
                }
            });
            if !has_thread {
                lingering.has_no_thread();
            }
        }
        has_any
    }

    /// Deletes what a crash left, but for what somebody has open for writing.
    pub(crate) fn delete_left(&self, state: &Arc<State>, name: &str) {
        // Which path it had is not known any more; the state directory's own stands for it.
        if is_open_for_writing(state, name) {
            let bytes = fs::statat(state.as_ref(), name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| size_of(&stat));
            self.inner.keep_as_late(state, name, TreePath::root(), bytes);
        } else {
            self.inner.sweeper.delete(state, name);
        }
    }

    /// Whether something is being deleted in the background.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.inner.sweeper.is_running()
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.inner.lingering.stop();
        self.caretaker.join();
    }
}

impl Inner {
    /// Deletes a file that nobody has written to, and keeps any other.
    fn end(&self, state: &Arc<State>, displaced: &Displaced) {
        match &displaced.watched {
            Some(watched) if was_written_to(state, &displaced.name, watched) => {
                self.keep(state, &displaced.name, watched);
            }
            _ => self.sweeper.delete(state, &displaced.name),
        }
    }

    fn keep(&self, state: &Arc<State>, name: &str, watched: &Watched) {
        let bytes = fs::statat(state.as_ref(), name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| size_of(&stat));
        self.keep_as_late(state, name, watched.path.clone(), bytes);
    }

    fn keep_as_late(&self, state: &Arc<State>, name: &str, path: TreePath, bytes: u64) {
        self.late_count.fetch_add(1, Ordering::Relaxed);
        let mut late = self.late();
        let kept = if bytes > self.limits.kept_bytes_max || self.limits.kept_count_max == 0 {
            self.sweeper.delete(state, name);
            None
        } else {
            self.make_room(state, &mut late, bytes);
            keep(state, name).ok().flatten()
        };
        late.kept.extend(kept.clone());
        let late_write = LateWrite { path, kept: kept.map(|name| state.path().join(name)) };
        let Some(listener) = late.listener.clone() else {
            if late.untold.len() >= self.limits.kept_count_max.max(1) {
                late.untold.pop_front();
            }
            late.untold.push_back(late_write);
            return;
        };
        drop(late);
        listener(&late_write);
    }

    /// The oldest go first.
    fn make_room(&self, state: &Arc<State>, late: &mut Late, bytes: u64) {
        let sizes: Vec<u64> = late
            .kept
            .iter()
            .map(|name| fs::statat(state.as_ref(), name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| size_of(&stat)))
            .collect();
        let mut total = sizes.iter().fold(bytes, |total, size| total.saturating_add(*size));
        for size in sizes {
            if late.kept.len() < self.limits.kept_count_max && total <= self.limits.kept_bytes_max {
                return;
            }
            if let Some(oldest) = late.kept.pop_front() {
                self.sweeper.delete(state, &oldest);
            }
            total = total.saturating_sub(size);
        }
    }

    fn late(&self) -> MutexGuard<'_, Late> {
        // Each change of it is one step, so a panic elsewhere leaves it whole.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a displaced file a name under which nothing deletes it but newer ones like it; durable when it returns.
///
/// # Errors
/// What the system says; nothing where it is gone.
pub(crate) fn keep(state: &State, name: &str) -> Result<Option<String>, Errno> {
    let kept = format!("{}{}-{name}", State::KEPT_PREFIX, now());
    match fs::renameat(state, name, state, kept.as_str()) {
        Ok(()) => state.sync().map(|()| Some(kept)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn was_written_to(state: &State, name: &str, watched: &Watched) -> bool {
    let settled = |stat: &fs::Stat| Settled::of(stat) == watched.settled;
    // It was a regular file when it was displaced, and this directory is the agent's.
    let Some(file) = open_left(state, name) else {
        // Whoever may not read it any more cannot look closer. One that is gone has been dealt with.
        let stat = fs::statat(state, name, AtFlags::SYMLINK_NOFOLLOW);
        return stat.is_ok_and(|stat| !settled(&stat));
    };
    let lease = match ReadLease::take(&file) {
        Ok(lease) => Some(lease),
        Err(Refused::Writer) => return true,
        Err(Refused::Unsupported(_)) => None,
    };
    let Ok(stat) = fs::fstat(&file) else { return true };
    if stat.st_nlink > 1 {
        // It has another name, under which whatever is written to it stays.
        return false;
    }
    let is_as_it_was = if settled(&stat) && size_of(&stat) > READ_AGAIN_BYTES_MAX {
        true
    } else {
        // Times alone may have been changed.
        revision_of(&file).is_ok_and(|revision| revision == watched.revision)
    };
    !is_as_it_was || lease.is_some_and(|lease| !lease.is_whole())
}

fn open_left(state: &State, name: &str) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    open_beneath(state, name.as_bytes(), flags).ok().map(File::from)
}

/// Of whatever was removed: a device or a pipe is not to be opened.
fn is_open_for_writing(state: &State, name: &str) -> bool {
    let is_regular = |stat: &fs::Stat| fs::FileType::from_raw_mode(stat.st_mode).is_file();
    fs::statat(state, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| is_regular(&stat))
        && open_left(state, name).is_some_and(|file| matches!(ReadLease::take(&file), Err(Refused::Writer)))
}

fn size_of(stat: &fs::Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
