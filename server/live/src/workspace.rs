//! One directory workspace: how it is opened and recovered, and what every change of it has in common: the key that makes
//! it happen once, and its end. What each verb does is in the file of its name.

use std::{
    fmt, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{Key, MakeDirectoryPlan, MovePlan, PlaceDone, RemoveDone, RemovePlan, WritePlan},
    patch::{PatchDone, PatchPlan},
    path::TreePath,
};
use rustix::{
    fs::{self, Mode, OFlags},
    io::Errno,
};

pub use crate::write::{StagedWrite, WriteBegin};
use crate::{
    displaced::{Displaced, LateWriteListener, Leftovers},
    errno::fault,
    error::OpenError,
    fail::{Rule, Steps},
    ledger::{Claim, Claimed, Ledger, Ticket},
    limits::LiveLimits,
    lingering::Haste,
    lock::Locks,
    record::Answer,
    recover,
    state::{Found, MaybeState, State},
    tree::{Identity, LiveTree, open_beneath},
};

/// Times that a change begins again because what it had read was changed under it, before it gives up as `BusyWriter`.
pub(crate) const ATTEMPT_COUNT_MAX: u32 = 20;

/// A directory workspace that is open. Shared by all calls; every method blocks.
pub struct Workspace {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) tree: LiveTree,
    pub(crate) limits: LiveLimits,
    pub(crate) locks: Locks,
    changing: Result<Changing, Closed>,
    /// Where the root was when it was opened, and what it was.
    root_path: PathBuf,
    root: Identity,
}

/// Why a workspace can only be read.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The system refuses its state directory.
    Refused(Errno),
    /// The journal is not to be trusted: which keys were done, nobody knows.
    Damaged {
        /// Of the state directory.
        state: PathBuf,
        why: String,
    },
}

impl Closed {
    fn fault(&self, path: &TreePath) -> Fault {
        match self {
            Self::Refused(errno) => fault(path, *errno),
            Self::Damaged { .. } => Fault::Io { path: path.clone(), source: io::Error::other(self.to_string()) },
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(errno) => write!(formatter, "its state directory is refused: {errno}"),
            Self::Damaged { state, why } => write!(
                formatter,
                "the journal in {} cannot be read ({why}), so files can be read and not changed; copy its journal files \
                 away, delete them there, then suspend and resume the workspace: idempotency keys of before are then \
                 unknown",
                state.display()
            ),
        }
    }
}

/// Whether what the system says of the state directory leaves the files readable: it is full, or not ours to write.
pub(crate) fn only_readable(errno: Errno) -> bool {
    matches!(errno, Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOSPC | Errno::DQUOT)
}

/// What a workspace that can be changed has beside its tree.
pub(crate) struct Changing {
    pub(crate) state: Arc<State>,
    pub(crate) ledger: Ledger,
    leftovers: Leftovers,
}

/// What a workspace counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Changes whose intent was written to the journal.
    pub intents: u64,
    /// Flushes of the journal.
    pub journal_flushes: u64,
    /// Displaced files that a process wrote to after that, or still may: see [`LateWrite`](crate::LateWrite).
    pub late_writes: u64,
}

/// How a change ended well.
pub(crate) struct Finished {
    pub(crate) answer: Answer,
    pub(crate) record: Recording,
    /// What is to be deleted.
    pub(crate) displaced: Option<Displaced>,
}

/// When the answer must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recording {
    /// With some later flush: a recovery would find the answer again.
    Lazy,
    /// Before the caller hears of it: a recovery could not tell.
    AtOnce,
    /// Before the caller hears of it; and nothing was changed, so that a failure is just one.
    Unchanged,
}

impl Workspace {
    /// Opens the directory `root`; `agent_state` is where the agent may keep what belongs to no workspace's file system.
    /// What a crash left unfinished is brought to an end first. Where the state directory is full or not to be written, or its
    /// journal is damaged, it opens for reading, and each change is refused with that reason until it is opened again.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(root: &Path, agent_state: &Path, limits: LiveLimits) -> Result<Self, OpenError> {
        Self::open_at(root, agent_state, limits, Steps::default())
    }

    /// As [`Workspace::open`]; `hook` is asked at each step of a change whether everything stops there.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(any(test, feature = "failpoints"))]
    #[doc(hidden)]
    pub fn open_with_stops(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        hook: crate::fail::StopHook,
    ) -> Result<Self, OpenError> {
        Self::open_at(root, agent_state, limits, Steps::with_hook(hook))
    }

    /// As [`Workspace::open`], with one rule of the commit left out: for negative controls.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(any(test, feature = "failpoints"))]
    #[doc(hidden)]
    pub fn open_without(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        rule: crate::fail::Rule,
    ) -> Result<Self, OpenError> {
        Self::open_at(root, agent_state, limits, Steps::without(rule))
    }

    pub(crate) fn open_at(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        steps: Steps,
    ) -> Result<Self, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = fs::openat(fs::CWD, root, flags, Mode::empty())
            .map_err(|errno| OpenError::Root { root: root.to_owned(), source: errno.into() })?;
        match open_beneath(&held, b".", flags) {
            Ok(_) => {}
            // A filter of system calls answers so too for one that it does not know.
            Err(Errno::NOSYS | Errno::PERM) => return Err(OpenError::Kernel { call: "openat2" }),
            Err(errno) => return Err(OpenError::Root { root: root.to_owned(), source: errno.into() }),
        }
        let root_identity = fs::fstat(&held)
            .map(|stat| Identity::of(&stat))
            .map_err(|errno| OpenError::Root { root: root.to_owned(), source: errno.into() })?;
        let Found { state, hidden } = State::find(root, held.as_fd(), agent_state, steps)?;
        let tree = LiveTree::new(held, hidden);
        let changing = match Changing::open(&tree, state, &limits) {
            Ok(changing) => changing,
            Err((state, source)) => match Errno::from_io_error(&source).filter(|errno| only_readable(*errno)) {
                Some(errno) => Err(Closed::Refused(errno)),
                None if source.kind() == io::ErrorKind::InvalidData => {
                    Err(Closed::Damaged { state, why: source.to_string() })
                }
                None => return Err(OpenError::State { path: state, source }),
            },
        };
        let locks = Locks::default();
        let inner = Inner { tree, limits, locks, changing, root_path: root.to_owned(), root: root_identity };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its files, for reading.
    pub fn tree(&self) -> &LiveTree {
        &self.inner.tree
    }

    /// Whether it is still what its path leads to, and can be changed. Where not, opening it again may help.
    pub fn is_sound(&self) -> bool {
        let is_changeable = |changing: &Changing| !changing.state.has_failed() && !changing.ledger.is_broken();
        self.inner.in_place().is_ok() && self.inner.changing.as_ref().is_ok_and(is_changeable)
    }

    /// From now on `listener` is told of each [`LateWrite`](crate::LateWrite), at first of those before it. The last may come when the
    /// workspace is closed. Only one listens: the one who asked last.
    pub fn on_late_write(&self, listener: LateWriteListener) {
        if let Ok(changing) = &self.inner.changing {
            changing.leftovers.listen(listener);
        }
    }

    /// What it has counted since it was opened.
    pub fn stats(&self) -> Stats {
        let Ok(changing) = &self.inner.changing else { return Stats::default() };
        Stats { late_writes: changing.leftovers.late_count(), ..changing.ledger.stats() }
    }

    /// Why it can be read and not changed, where that is known since it was opened.
    pub fn closed(&self) -> Option<String> {
        self.inner.changing.as_ref().err().map(ToString::to_string)
    }

    /// It will not be opened again: where its state lies in the agent's own directory, that is deleted when the last call on
    /// it has ended, but for what was kept of late writes.
    pub fn forget(&self) {
        if let Ok(changing) = &self.inner.changing {
            changing.state.forget();
        }
    }

    /// Replaces text in a file, or its whole content.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Patch.
    pub fn patch(&self, plan: &PatchPlan, budget: &dyn Budget) -> Result<PatchDone, Fault> {
        self.inner.patch(plan, budget)
    }

    /// Begins a Write: checks everything that can be checked before the data.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Write.
    pub fn write(&self, plan: &WritePlan) -> Result<WriteBegin, Fault> {
        Inner::write(&self.inner, plan)
    }

    /// Removes a file, a link, an empty directory, or with `recursive` a whole one.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Remove.
    pub fn remove(&self, plan: &RemovePlan, budget: &dyn Budget) -> Result<RemoveDone, Fault> {
        self.inner.remove(plan, budget)
    }

    /// Renames a file or directory within the workspace.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Move.
    pub fn rename(&self, plan: &MovePlan, budget: &dyn Budget) -> Result<PlaceDone, Fault> {
        self.inner.rename(plan, budget)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of MakeDirectory.
    pub fn make_directory(&self, plan: &MakeDirectoryPlan) -> Result<PlaceDone, Fault> {
        self.inner.make_directory(plan)
    }
}

impl Changing {
    /// The error names the state directory, too.
    fn open(
        tree: &LiveTree,
        state: MaybeState,
        limits: &LiveLimits,
    ) -> Result<Result<Self, Closed>, (PathBuf, io::Error)> {
        let state = match state {
            Ok(state) => Arc::new(state),
            Err(errno) => return Ok(Err(Closed::Refused(errno))),
        };
        let at_state = |error| (state.path().to_owned(), error);
        let left = recover::left(&state).map_err(at_state)?;
        let ledger = Ledger::open(state.as_ref().as_fd(), &state.steps.disk, limits, |intent| {
            recover::settle(tree, &state, intent)
        })
        .map_err(at_state)?;
        let changing = Self { state, ledger, leftovers: Leftovers::new(limits, left.kept) };
        // Only now: what the journal said of them is settled, and that is durable.
        for name in left.stages {
            changing.leftovers.delete_left(&changing.state, &name);
        }
        Ok(Ok(changing))
    }

    /// Deletes what was displaced by changes whose end is durable; whether there was anything.
    pub(crate) fn tidy(&self, haste: Haste) -> bool {
        self.leftovers.tidy(&self.state, self.ledger.flushed(), haste)
    }

    /// After the change became visible, and the disk failed.
    pub(crate) fn outcome_unknown(&self, path: &TreePath) -> Fault {
        self.state.fail();
        Fault::OutcomeUnknown { path: path.clone() }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let is_clean = !self.state.has_failed() && self.state.steps.may_tidy();
        if is_clean && self.ledger.flush(self.ledger.appended()).is_ok() {
            self.tidy(Haste::Now);
            self.state.delete_if_forgotten();
        }
    }
}

impl Inner {
    /// Refuses where the root's path leads to another directory than the one that is held, or to none: what is changed there
    /// would be durable in a directory that nobody looks at any more.
    pub(crate) fn in_place(&self) -> io::Result<()> {
        match fs::stat(&self.root_path) {
            Ok(stat) if Identity::of(&stat) == self.root => Ok(()),
            Ok(_) => Err(io::Error::other(
                "another directory is at the workspace's path than when it was opened; nothing was done, suspend and \
                 resume the workspace to open that one",
            )),
            Err(errno) => Err(io::Error::other(format!(
                "the workspace's directory is not at its path any more ({errno}); nothing was done, put it back"
            ))),
        }
    }

    /// What is needed for a change of `path`.
    pub(crate) fn changing(&self, path: &TreePath) -> Result<&Changing, Fault> {
        let changing = self.changing.as_ref().map_err(|closed| closed.fault(path))?;
        if changing.state.has_failed() || changing.ledger.is_broken() {
            let source = io::Error::other("the disk failed before; the workspace must be opened again");
            return Err(Fault::Io { path: path.clone(), source });
        }
        Ok(changing)
    }

    /// Makes a change happen once: answers from what is stored, or runs it and stores its answer. The flag says whether the
    /// answer was stored before.
    ///
    /// A key with the same request is answered before the path is looked at: the change itself may have removed it.
    pub(crate) fn once(
        &self,
        path: &TreePath,
        key: &Key,
        budget: &dyn Budget,
        check_path: impl FnOnce() -> Result<(), Fault>,
        change: impl FnOnce(&Changing, &mut Claim<'_>) -> Result<Finished, Fault>,
    ) -> Result<(Answer, bool), Fault> {
        self.in_place().map_err(|source| Fault::Io { path: path.clone(), source })?;
        let changing = match self.changing(path) {
            Ok(changing) => changing,
            // What is wrong with the path is said first.
            Err(fault) => return check_path().and(Err(fault)),
        };
        if let Ok(Some(answer)) = changing.ledger.peek(key) {
            return Ok((answer, true));
        }
        check_path()?;
        let mut claim = match changing.ledger.claim(key, budget)? {
            Claimed::Answered(answer) => return Ok((answer, true)),
            Claimed::Fresh(claim) => claim,
        };
        match change(changing, &mut claim) {
            Ok(finished) => changing.finish(path, claim, finished).map(|answer| (answer, false)),
            Err(fault) => {
                claim.refuse(&fault);
                if matches!(fault, Fault::DiskFull { .. }) {
                    // The next attempt has what lingers, too.
                    changing.tidy(Haste::Now);
                }
                Err(fault)
            }
        }
    }
}

impl Changing {
    /// P7: the answer is stored, and what was displaced goes once that is durable.
    fn finish(&self, path: &TreePath, claim: Claim<'_>, finished: Finished) -> Result<Answer, Fault> {
        let Finished { answer, record, displaced } = finished;
        self.state.steps.pass("P7")?;
        let ticket = match claim.done(answer.clone(), path) {
            Ok(ticket) => ticket,
            Err(fault) if record == Recording::Unchanged => return Err(fault),
            Err(_) => return Err(self.outcome_unknown(path)),
        };
        if let Some(displaced) = displaced {
            if self.state.steps.keeps(Rule::DisplacedStays) {
                self.leftovers.add(displaced, ticket);
            } else {
                self.leftovers.add(Displaced { watched: None, ..displaced }, Ticket::default());
            }
        }
        self.state.steps.pass("P7 done")?;
        if record != Recording::Lazy && self.ledger.flush(ticket).is_err() {
            return Err(self.outcome_unknown(path));
        }
        self.state.steps.pass("P7 durable")?;
        self.tidy(Haste::Linger);
        Ok(answer)
    }
}
