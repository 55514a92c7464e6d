//! One workspace as the host holds it: its record, its open files, and who is changing it.
//!
//! Everything that changes is behind one mutex that is held for moments only. A transition holds the workspace's turn,
//! computes the next record, keeps it durably, and only then publishes it here.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dormouse_disk::{Consistency, Volume};
use dormouse_live as live;

use crate::host::{
    lease::Epoch,
    relay::{Link, RelaySettings},
    seal::Seal,
    spec::{Guest, Spec},
    state::State,
    store::{Moment, Record},
};

/// One workspace of this host.
pub struct Workspace {
    name: String,
    /// Held by the one transition that is under way.
    turn: Mutex<()>,
    held: Mutex<Held>,
    /// Told when a change ends.
    change_ended: Condvar,
    epoch: Epoch,
    /// Told when the workspace quiesces: Writes whose data is still arriving end.
    cut: tokio::sync::watch::Sender<u64>,
}

/// What the mutex holds.
pub struct Held {
    /// As it is on disk.
    pub record: Record,
    /// The directory, where it is one and could be opened.
    pub directory: Option<Arc<live::Workspace>>,
    /// The disk, opened by the first read of this rest.
    pub volume: Option<OpenVolume>,
    /// The generation whose disk the log calls corrupt: once is enough for a person to look.
    pub corrupt: Option<i64>,
    /// The way to the running machine's own agent, opened by the first call.
    pub link: Option<Arc<Link>>,
    /// Why the disk, whose seal the record holds, could not answer when it was last asked.
    pub standing: &'static str,
    /// Of the last call that the running workspace answered, or the last change.
    pub activity_time: Moment,
    /// Changes under way.
    changes: usize,
    /// Released: nothing is answered any more.
    pub released: bool,
}

/// A disk that is open.
#[derive(Clone)]
pub struct OpenVolume {
    /// The epoch in which it was opened.
    pub epoch: u64,
    /// The disk.
    pub volume: Arc<Volume>,
    /// How true it is.
    pub consistency: Consistency,
}

/// A workspace as callers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub spec: Spec,
    /// Where it is in its life.
    pub state: State,
    /// Of its last transition.
    pub generation: i64,
    /// The proof of its disk, while at rest.
    pub seal: Option<Seal>,
    /// Of its last transition.
    pub transition_time: Moment,
    /// Why it is quarantined, or why its disk cannot answer.
    pub note: String,
    /// Of the last call that the running workspace answered; none since the agent began where it is zero.
    pub activity_time: Moment,
}

/// A change under way; Quiesce waits until it is dropped.
pub struct ChangeGuard {
    workspace: Arc<Workspace>,
    cut: tokio::sync::watch::Receiver<u64>,
}

impl Workspace {
    /// From its record, with its directory where it has one.
    pub fn new(record: Record, directory: Option<Arc<live::Workspace>>) -> Self {
        Self {
            name: record.name.clone(),
            turn: Mutex::new(()),
            held: Mutex::new(Held {
                record,
                directory,
                volume: None,
                corrupt: None,
                link: None,
                standing: "",
                activity_time: Moment::default(),
                changes: 0,
                released: false,
            }),
            change_ended: Condvar::new(),
            epoch: Epoch::default(),
            cut: tokio::sync::watch::Sender::new(0),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts its transitions.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Everything that changes, for a moment.
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of a transition; blocks while another one is under way.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As callers see it now.
    pub fn view(&self) -> View {
        let held = self.held();
        let Record { name, spec, state, generation, seal, mut note, transition_time, .. } = held.record.clone();
        if note.is_empty() {
            held.standing.clone_into(&mut note);
        }
        View { name, spec, state, generation, seal, note, transition_time, activity_time: held.activity_time }
    }

    /// A change begins: `held` shows that it may, and is given back inside.
    pub fn begin_change(self: &Arc<Self>, held: &mut Held) -> ChangeGuard {
        held.changes += 1;
        held.activity_time = Moment::now();
        ChangeGuard { workspace: self.clone(), cut: self.cut.subscribe() }
    }

    /// Staged Writes end, and this waits until no change is under way, or the time is over. Returns whether none is.
    pub fn wait_for_changes(&self, timeout: Duration) -> bool {
        self.cut.send_modify(|count| *count += 1);
        let until = Instant::now() + timeout;
        let mut held = self.held();
        while held.changes > 0 {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            held = self.change_ended.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Held {
    /// The way to the machine's own agent, where it has one. Must be called within a tokio runtime.
    pub fn link(&mut self, settings: RelaySettings) -> Option<Arc<Link>> {
        let guest: Option<&Guest> = match &self.record.spec {
            Spec::Machine { guest, .. } => guest.as_ref(),
            Spec::Directory { .. } => None,
        };
        let guest = guest?;
        if self.link.as_ref().is_none_or(|link| link.guest() != guest) {
            self.link = Some(Arc::new(Link::new(guest, settings)));
        }
        self.link.clone()
    }
}

/// Tells when the workspace quiesces.
pub struct Cut(tokio::sync::watch::Receiver<u64>);

impl Cut {
    /// Ends when the workspace quiesces after the change began.
    pub async fn cut(&mut self) {
        // Without a sender the workspace is gone, and with it whatever could be changed.
        let _ = self.0.changed().await;
    }
}

impl ChangeGuard {
    /// As [`ChangeGuard::cut`], apart from the guard.
    pub fn watch(&self) -> Cut {
        Cut(self.cut.clone())
    }

    /// Ends when the workspace quiesces, so that a Write whose data is still arriving can be cut off.
    pub async fn cut(&mut self) {
        // The sender lives in the workspace that the guard holds.
        let _ = self.cut.changed().await;
    }
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        let mut held = self.workspace.held();
        held.changes = held.changes.saturating_sub(1);
        held.activity_time = Moment::now();
        self.workspace.change_ended.notify_all();
    }
}
