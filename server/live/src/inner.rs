//! One file system of a workspace: how it is opened and recovered, and what every change of it has in common: the key that
//! makes it happen once, and its end. What each verb does is in the file of its name.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use dormouse_files::{Fault, budget::Budget, change::Key, path::TreePath};
use rustix::{
    fs::{self, OFlags},
    io::Errno,
};

use crate::{
    beneath::open_beneath,
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
    tree::{Identity, LiveTree},
    workspace::Stats,
};

/// Times that a change begins again because what it had read was changed under it, before it gives up as `BusyWriter`.
pub(crate) const ATTEMPT_COUNT_MAX: u32 = 20;

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
    /// Over a root that is held already; see [`Workspace::open`](crate::Workspace::open).
    pub(crate) fn open(
        root: &Path,
        held: OwnedFd,
        agent_state: &Path,
        limits: LiveLimits,
        steps: Steps,
    ) -> Result<Self, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
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
        Ok(Self { tree, limits, locks, changing, root_path: root.to_owned(), root: root_identity })
    }

    pub(crate) fn root_path(&self) -> &Path {
        &self.root_path
    }

    pub(crate) fn is_sound(&self) -> bool {
        let is_changeable = |changing: &Changing| !changing.state.has_failed() && !changing.ledger.is_broken();
        self.in_place().is_ok() && self.changing.as_ref().is_ok_and(is_changeable)
    }

    pub(crate) fn on_late_write(&self, listener: LateWriteListener) {
        if let Ok(changing) = &self.changing {
            changing.leftovers.listen(listener);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let Ok(changing) = &self.changing else { return Stats::default() };
        Stats { late_writes: changing.leftovers.late_count(), ..changing.ledger.stats() }
    }

    pub(crate) fn closed(&self) -> Option<String> {
        self.changing.as_ref().err().map(ToString::to_string)
    }

    /// See [`Workspace::forget`](crate::Workspace::forget).
    pub(crate) fn forget(&self) {
        if let Ok(changing) = &self.changing {
            changing.state.forget();
        }
    }

    /// Deletes what may go of what was displaced; whether nothing more is being deleted.
    pub(crate) fn has_settled(&self) -> bool {
        let Ok(changing) = &self.changing else { return true };
        if changing.state.has_failed() || changing.ledger.flush(changing.ledger.appended()).is_err() {
            return true;
        }
        changing.tidy(Haste::Now);
        !changing.leftovers.is_sweeping()
    }

    /// Whether a change was done under this key, so that it is answered whatever has become of its path.
    pub(crate) fn has_answer(&self, key: &Key) -> bool {
        self.changing.as_ref().is_ok_and(|changing| matches!(changing.ledger.peek(key), Ok(Some(_))))
    }

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
