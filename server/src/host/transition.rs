//! The transitions: each takes the workspace's turn, is judged by [`state::decide`], does its work, keeps the new record
//! durably, and only then publishes it. A transition that cannot be kept was never made.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use dormouse_disk::Unsealed;

use crate::host::{
    Feature, Host,
    error::HostFault,
    hooks,
    lease::Lease,
    register,
    relay::{
        Link,
        machine::{Frozen, GuestFault},
    },
    seal::{self, Seal},
    spec::{Disk, Guest, Spec},
    state::{self, Decision, LastCall, Rest, State, Transition},
    store::{Moment, Record},
    volumes::Clones,
    watch::Change,
    workspace::{View, Workspace},
};

/// Longest freeze that is asked of a guest.
const FREEZE_TIME_MAX: Duration = Duration::from_secs(60);
/// Time for a Thaw beside a call's own end.
const THAW_TIME: Duration = Duration::from_secs(2);

/// A transition with its arguments.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which one.
    pub transition: Transition,
    /// 0: the current one plus one.
    pub generation: i64,
    /// SHA-256 of all arguments but name and generation, in hex.
    pub arguments: String,
    /// Of a Quiesce, and of the quiesce in a Suspend.
    pub timeout: Duration,
    /// How long an Open, or the open in a Resume, may wait for the machine's own agent.
    pub open_timeout: Duration,
    /// Of a Seal: whether the proof is demanded.
    pub proof: Proof,
    /// Of an Open: the guest's new address.
    pub guest: Option<Guest>,
}

/// Whether a Seal is refused where the proof does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It is.
    Demanded,
    /// It is not: the workspace is at rest all the same, and its reads are what the proof allows.
    AsFound,
}

impl Host {
    /// Does a transition, or answers its replay. Blocks.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`, `StaleGeneration`, `WrongState`, `NotQuiesced`, `QuiesceTimeout`, `DirectoryGone` where a directory
    /// cannot be opened again, `FeatureUnavailable` where a guest
    /// would be needed, `Record` where the record cannot be kept.
    pub fn transition(&self, name: &str, asked: &Asked) -> Result<View, HostFault> {
        // What makes no sense of any workspace is told before this one is looked for.
        if asked.generation < 0 {
            return Err(state::negative_generation());
        }
        let workspace = self.find(name)?;
        let _turn = workspace.turn();
        let record = self.current(&workspace)?;
        let decision = state::decide(
            name,
            record.state,
            record.generation,
            record.last.as_ref(),
            asked.transition,
            &asked.arguments,
            asked.generation,
        )?;
        let generation = match decision {
            Decision::Answer => return Ok(workspace.view()),
            Decision::Begin(generation) | Decision::CarryOn(generation) => generation,
        };
        let step = Step { host: self, workspace: &workspace, asked, generation };
        if matches!(asked.transition, Transition::Open | Transition::Resume) {
            step.check_answerable(&record)?;
        }
        tracing::info!(workspace = name, generation, transition = ?asked.transition, "a transition begins");
        match asked.transition {
            Transition::Quiesce => step.quiesce(Done::Yes)?,
            Transition::Seal(rest) => step.seal(rest)?,
            Transition::Unseal => step.unseal(Done::Yes)?,
            Transition::Open => step.open()?,
            Transition::Suspend(rest) => {
                match record.state {
                    State::Running => step.quiesce(Done::NotYet)?,
                    // Carried on: its freeze may be over by now. A machine that has stopped meanwhile cannot answer.
                    State::Quiescing => step.freeze_again()?,
                    _ => {}
                }
                step.hook(&self.settings().hooks.pause)?;
                step.seal(rest)?;
            }
            Transition::Resume => {
                if !matches!(record.state, State::Resuming | State::Quiescing) {
                    step.unseal(Done::NotYet)?;
                }
                step.hook(&self.settings().hooks.resume)?;
                step.open()?;
            }
        }
        Ok(workspace.view())
    }

    /// Back to running, where the workspace is still in the quiesce of this generation. Blocks.
    ///
    /// # Errors
    /// `Record` where the record cannot be kept.
    pub fn thaw(&self, name: &str, generation: i64) -> Result<(), HostFault> {
        // Released meanwhile, or moved on by a later call: there is nothing to thaw.
        let Ok(workspace) = self.find(name) else { return Ok(()) };
        let _turn = workspace.turn();
        let Ok(mut record) = self.current(&workspace) else { return Ok(()) };
        if record.state != State::Quiescing || record.generation != generation {
            return Ok(());
        }
        // The guest's own timer does the same; where neither reaches it, its next Open will.
        if let Some(link) = self.link_of(&workspace)
            && let Err(fault) = blocking(link.thaw(THAW_TIME))
        {
            tracing::warn!(workspace = name, ?fault, "the machine could not be thawed from here");
        }
        record.state = State::Running;
        record.frozen = None;
        record.transition_time = Moment::now();
        tracing::warn!(workspace = name, generation, "a quiesce is over its time; the workspace is running again");
        self.publish(&workspace, record)
    }

    /// The way to the machine's own agent, where the workspace has one.
    fn link_of(&self, workspace: &Arc<Workspace>) -> Option<Arc<Link>> {
        let _runtime = runtime()?;
        workspace.held().link(self.settings().relay)
    }

    fn current(&self, workspace: &Arc<Workspace>) -> Result<Record, HostFault> {
        let held = workspace.held();
        if held.released {
            return Err(HostFault::NotFound { workspace: workspace.name().to_owned() });
        }
        Ok(held.record.clone())
    }

    /// Keeps a record durably, then publishes it.
    pub(super) fn publish(&self, workspace: &Arc<Workspace>, record: Record) -> Result<(), HostFault> {
        self.inner
            .store
            .save(&record)
            .map_err(|source| HostFault::Record { workspace: workspace.name().to_owned(), source })?;
        {
            let mut held = workspace.held();
            if !matches!(record.state, State::Running | State::Quiescing) {
                held.link = None;
            }
            held.record = record;
            held.volume = None;
            held.standing = "";
            // Under the same lock as the state, so that no lease is taken of the old state in the new epoch.
            workspace.epoch().advance();
        }
        if workspace.view().seal.is_none() {
            self.inner.indexes.forget(workspace.name());
        }
        self.inner.watchers.tell(workspace.name(), &Change::Now(Box::new(workspace.view())));
        Ok(())
    }

    /// Moves a workspace whose disk was written without an Unseal out of service.
    pub(super) fn quarantine(&self, workspace: &Arc<Workspace>, lease: &Lease, why: &str) {
        let _turn = workspace.turn();
        let Ok(mut record) = self.current(workspace) else { return };
        // A transition that came first has ended the rest that this proof is about.
        if lease.taken_at() != workspace.epoch().lease(None).taken_at() {
            return;
        }
        record.state = State::Quarantined;
        record.note = why.to_owned();
        record.seal = None;
        record.transition_time = Moment::now();
        tracing::error!(workspace = workspace.name(), why, "a workspace is quarantined");
        if let Err(error) = self.publish(workspace, record) {
            tracing::error!(workspace = workspace.name(), %error, "the quarantine could not be recorded");
        }
    }
}

/// Runs what a machine's own agent is asked for to its end, on the lane of the transition.
fn blocking<T>(work: impl Future<Output = Result<T, GuestFault>>) -> Result<T, GuestFault> {
    match runtime() {
        Some(runtime) => runtime.block_on(work),
        None => Err(GuestFault::Unreachable),
    }
}

/// The one that the lane belongs to.
fn runtime() -> Option<tokio::runtime::Handle> {
    tokio::runtime::Handle::try_current().ok()
}

/// Whether a step ends its transition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Yes,
    NotYet,
}

/// One step of a transition, under the workspace's turn.
struct Step<'a> {
    host: &'a Host,
    workspace: &'a Arc<Workspace>,
    asked: &'a Asked,
    generation: i64,
}

impl Step<'_> {
    fn record(&self) -> Result<Record, HostFault> {
        self.host.current(self.workspace)
    }

    /// The next record: this state, by this call.
    fn publish(&self, mut record: Record, state: State, done: Done) -> Result<(), HostFault> {
        record.state = state;
        record.generation = self.generation;
        record.transition_time = Moment::now();
        record.last = Some(LastCall {
            transition: self.asked.transition,
            arguments: self.asked.arguments.clone(),
            done: done == Done::Yes,
        });
        if matches!(state, State::Running | State::Resuming) {
            record.frozen = None;
        }
        if matches!(state, State::Running | State::Quiescing | State::Resuming) {
            record.seal = None;
            record.note = String::new();
        }
        self.host.publish(self.workspace, record)
    }

    /// Freezes the machine for what is left of the call's time; a directory, and a machine without an agent, have nothing
    /// to freeze.
    fn freeze(&self, until: Instant) -> Result<Option<Frozen>, HostFault> {
        let Some(link) = self.host.link_of(self.workspace) else { return Ok(None) };
        let workspace = || self.workspace.name().to_owned();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HostFault::QuiesceTimeout { workspace: workspace() });
        }
        blocking(link.freeze(left.min(FREEZE_TIME_MAX))).map(Some).map_err(|fault| match fault {
            GuestFault::Unreachable => HostFault::GuestUnreachable { workspace: workspace() },
            GuestFault::Unsupported => HostFault::FeatureUnavailable { feature: "guest_freeze".to_owned() },
            GuestFault::Refused(what) => HostFault::GuestFailed { workspace: workspace(), what },
        })
    }

    /// How long the freeze of this call must last: that of a Suspend until its pause command has ended.
    fn freeze_until(&self) -> Instant {
        let hook = match (self.asked.transition, self.host.settings().hooks.pause.is_empty()) {
            (Transition::Suspend(_), false) => self.host.settings().hooks.timeout,
            _ => Duration::ZERO,
        };
        Instant::now() + self.asked.timeout + hook
    }

    fn freeze_again(&self) -> Result<(), HostFault> {
        match self.freeze(self.freeze_until()) {
            Ok(None) => Ok(()),
            Ok(frozen) => {
                let record = Record { frozen, ..self.record()? };
                self.publish(record, State::Quiescing, Done::NotYet)
            }
            Err(fault) => {
                tracing::info!(workspace = self.workspace.name(), %fault, "the machine is not frozen again");
                Ok(())
            }
        }
    }

    fn quiesce(&self, done: Done) -> Result<(), HostFault> {
        let before = self.record()?;
        let until = self.freeze_until();
        self.publish(before.clone(), State::Quiescing, Done::NotYet)?;
        let rested = match self.workspace.wait_for_changes(self.asked.timeout) {
            true => self.freeze(until),
            false => Err(HostFault::QuiesceTimeout { workspace: self.workspace.name().to_owned() }),
        };
        let frozen = match rested {
            Ok(frozen) => frozen,
            Err(fault) => {
                // An answer may have been lost on its way; a guest that did freeze must not stay so.
                if let Some(link) = self.host.link_of(self.workspace)
                    && let Err(fault) = blocking(link.thaw(THAW_TIME))
                {
                    tracing::info!(workspace = self.workspace.name(), ?fault, "the machine could not be thawed");
                }
                // Back to running under the same generation and as an unfinished call, so that its replay tries again.
                self.publish(before, State::Running, Done::NotYet)?;
                return Err(fault);
            }
        };
        match (done, &frozen) {
            (Done::NotYet, None) => Ok(()),
            _ => self.publish(Record { frozen, ..before }, State::Quiescing, done),
        }
    }

    fn seal(&self, rest: Rest) -> Result<(), HostFault> {
        let mut record = self.record()?;
        let found = seal::look_at(&record.spec, record.frozen.as_ref(), rest, self.generation);
        let exact = found.seal.as_ref().is_some_and(|seal| seal.exact);
        if self.asked.proof == Proof::Demanded && !exact {
            return Err(HostFault::NotQuiesced { workspace: self.workspace.name().to_owned(), what: found.what });
        }
        record.seal = found.seal;
        record.note = found.note;
        let disk = record.spec.root_disk().cloned();
        let seal = record.seal.clone().filter(|seal| seal.exact);
        self.publish(record, rest.state(), Done::Yes)?;
        if let (Some(disk), Some(seal)) = (disk, seal) {
            self.clone_disk(&disk, seal);
        }
        Ok(())
    }

    /// Opens the sealed disk at once where reads come from a clone, so that the clone is of this moment. Where that fails,
    /// reads try again, and tell their callers why.
    fn clone_disk(&self, disk: &Disk, seal: Seal) {
        let host = &self.host.inner;
        if host.volumes.clones() == Clones::Never || !self.host.has(Feature::OfflineRead) {
            return;
        }
        let lease = self.workspace.epoch().lease(Some((disk.clone(), seal)));
        let opened = host.volumes.open(self.workspace, disk, Unsealed::Never, &lease, &host.settings.disk);
        if let Err(error) = opened {
            tracing::debug!(workspace = self.workspace.name(), %error, "the sealed disk could not be opened at once");
        }
    }

    /// A machine without an agent could be said to run, and would answer nothing until it sleeps again.
    fn check_answerable(&self, record: &Record) -> Result<(), HostFault> {
        match (&record.spec, &self.asked.guest) {
            (Spec::Machine { guest: None, .. }, None) => Err(HostFault::invalid(
                "spec.machine.guest",
                format!(
                    "workspace {} has no address of an agent inside its machine, so nothing could answer for it once it \
                     runs; give an Open the guest's address, or release the workspace and register it with one",
                    self.workspace.name()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The fence: it waits for no reader.
    fn unseal(&self, done: Done) -> Result<(), HostFault> {
        self.publish(self.record()?, State::Resuming, done)
    }

    fn open(&self) -> Result<(), HostFault> {
        let mut record = self.record()?;
        let mut address = match &record.spec {
            Spec::Machine { guest, .. } => guest.clone(),
            Spec::Directory { .. } => None,
        };
        if let Some(asked) = &self.asked.guest {
            match &mut record.spec {
                Spec::Machine { guest, .. } => {
                    // A caller that only knows the new address need not know the token, which is never shown.
                    let token = address.as_ref().map(|known| known.token.clone()).filter(|_| asked.token.is_empty());
                    let asked = Guest { token: token.unwrap_or_else(|| asked.token.clone()), ..asked.clone() };
                    *guest = self.host.checked_guest(&asked)?;
                    address = guest.clone();
                }
                Spec::Directory { .. } => {
                    return Err(HostFault::invalid("guest", "a directory workspace has no guest; leave it unset"));
                }
            }
        }
        if let Some(guest) = address {
            let workspace = || self.workspace.name().to_owned();
            // A channel of before may belong to a machine that is gone.
            if runtime().is_none() {
                return Err(HostFault::GuestUnreachable { workspace: workspace() });
            }
            let link = Arc::new(Link::new(&guest, self.host.settings().relay));
            let until = tokio::time::Instant::now() + self.asked.open_timeout;
            blocking(link.open(until)).map_err(|fault| match fault {
                GuestFault::Unreachable | GuestFault::Unsupported => {
                    HostFault::GuestUnreachable { workspace: workspace() }
                }
                GuestFault::Refused(what) => HostFault::GuestFailed { workspace: workspace(), what },
            })?;
            self.publish(record, State::Running, Done::Yes)?;
            self.workspace.held().link = Some(link);
            return Ok(());
        }
        self.reopen(&record)?;
        self.publish(record, State::Running, Done::Yes)
    }

    /// Opens a directory anew where it could not be opened before, where another one is at its path by now, or where it
    /// could not be changed any more.
    fn reopen(&self, record: &Record) -> Result<(), HostFault> {
        let Spec::Directory { .. } = record.spec else { return Ok(()) };
        let known = self.workspace.held().directory.clone();
        if known.as_ref().is_some_and(|directory| directory.is_sound()) {
            return Ok(());
        }
        // The old one goes first: both may have the same state directory, which is locked. Nobody holds it but the calls
        // that are under way; where one of them still does, the next attempt finds it gone.
        self.workspace.held().directory = None;
        drop(known);
        let opened = self.host.open_directory(&record.spec).map_err(|error| {
            let why = format!("{}; put it right, then call again", register::error_text(&error));
            tracing::error!(workspace = self.workspace.name(), why, "a workspace's directory cannot be opened");
            HostFault::DirectoryGone { workspace: self.workspace.name().to_owned(), why }
        })?;
        self.workspace.held().directory = opened;
        Ok(())
    }

    fn hook(&self, argv: &[String]) -> Result<(), HostFault> {
        let record = self.record()?;
        let timeout = self.host.settings().hooks.timeout;
        hooks::run(argv, self.workspace.name(), &record.spec, timeout).map_err(|error| {
            tracing::error!(workspace = self.workspace.name(), %error, "a hook failed");
            let source = io::Error::new(error.kind(), format!("the host's command failed: {error}"));
            HostFault::Hook { workspace: self.workspace.name().to_owned(), source }
        })
    }
}
