//! Which workspaces are here, in which state, and where their files are now.
//!
//! [`Host::reading`] and [`Host::writing`] are the two doors of every call on files; the transitions are in
//! [`transition`], what they are allowed to do in [`state`]. Everything here blocks for moments (a mutex) or for as long
//! as a disk takes (a record, a seal), so it runs on a lane, never on an async thread, but for the look-ups.

pub mod admit;
pub mod error;
pub mod hooks;
pub mod lease;
pub mod place;
pub mod register;
pub mod seal;
pub mod spec;
pub mod state;
pub mod store;
pub mod transition;
pub mod watch;
pub mod workspace;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use dormouse_disk::{Consistency, DiskLimits, OpenError, Unsealed, Volume};
use dormouse_files::{limits::Limits, path::TreePath};
use dormouse_live as live;

use crate::host::{
    admit::Admission,
    error::{Failure, HostFault},
    hooks::Hooks,
    lease::Lease,
    place::{Place, Source},
    seal::Standing,
    spec::{Disk, Spec},
    state::{Rest, State},
    store::{Moment, Store, StoreError},
    watch::Watchers,
    workspace::{ChangeGuard, OpenVolume, View, Workspace},
};

/// What an operator can switch off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Search.
    FileSearch,
    /// Patch.
    FilePatch,
    /// Write, Remove, Move, MakeDirectory.
    FileWrite,
    /// Revisions in answers, and `expected_revision`.
    FileRevision,
    /// Reads of a workspace at rest.
    OfflineRead,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::FileSearch, Self::FilePatch, Self::FileWrite, Self::FileRevision, Self::OfflineRead];

    /// As errors and the configuration carry it.
    pub fn name(self) -> &'static str {
        match self {
            Self::FileSearch => "file_search",
            Self::FilePatch => "file_patch",
            Self::FileWrite => "file_write",
            Self::FileRevision => "file_revision",
            Self::OfflineRead => "offline_read",
        }
    }
}

/// Everything that the host is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of the engines.
    pub limits: Limits,
    /// Of a directory's changes.
    pub live: live::LiveLimits,
    /// Against hostile images.
    pub disk: DiskLimits,
    /// Whether a disk whose journal needs recovery may answer.
    pub unsealed: Unsealed,
    /// What is switched off.
    pub disabled: Vec<Feature>,
    /// RegisterWorkspace takes no path outside these.
    pub roots: Vec<PathBuf>,
    /// Nor a socket outside these.
    pub socket_roots: Vec<PathBuf>,
    /// Nor a block device outside these.
    pub device_roots: Vec<PathBuf>,
    /// Nor a TCP port outside this range.
    pub guest_tcp_ports: Option<(u16, u16)>,
    /// Commands around a suspend and a resume.
    pub hooks: Hooks,
    /// Calls at once.
    pub calls_max: usize,
}

/// The workspaces of this host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    store: Store,
    admission: Admission,
    watchers: Watchers,
    workspaces: RwLock<BTreeMap<String, Arc<Workspace>>>,
    /// The generation under which a name was released, so that the replay of a release is known. Bounded.
    released: Mutex<BTreeMap<String, i64>>,
    start_time: Moment,
}

/// What a caller lets the host do for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSource {
    /// The disk for a workspace at rest, else the running workspace.
    Any,
    /// Only the running workspace.
    Workspace,
    /// Only the disk.
    Disk,
}

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Nothing: the running workspace. Else its disk, and how true that is.
    pub disk: Option<Consistency>,
    /// Of the workspace, when the call began.
    pub generation: i64,
}

/// A workspace whose files may be read now.
pub struct Reading {
    workspace: Arc<Workspace>,
    generation: i64,
    from: From,
    elsewhere: Vec<TreePath>,
    machine_root: bool,
}

enum From {
    Live { directory: Arc<live::Workspace>, lease: Option<Lease> },
    Disk { disk: Box<Disk>, seal: Box<seal::Seal>, rest: Rest, lease: Lease, unsealed: Unsealed },
}

/// A workspace whose files may be changed now. Its guard ends when it is dropped.
pub struct Writing {
    /// The directory.
    pub directory: Arc<live::Workspace>,
    /// Waited for by Quiesce.
    pub guard: ChangeGuard,
}

impl Host {
    /// A host that knows what its state directory holds, and nothing more yet.
    ///
    /// # Errors
    /// A record that does not parse.
    pub fn start(settings: Settings, store: Store) -> Result<Self, StoreError> {
        let records = store.load()?;
        let inner = Inner {
            admission: Admission::new(settings.calls_max),
            settings,
            store,
            watchers: Watchers::default(),
            workspaces: RwLock::default(),
            released: Mutex::default(),
            start_time: Moment::now(),
        };
        let host = Self { inner: Arc::new(inner) };
        for record in records {
            let directory = match host.open_directory(&record.spec) {
                Ok(directory) => directory,
                Err(error) => {
                    tracing::error!(workspace = record.name, %error, "a workspace's directory cannot be opened");
                    None
                }
            };
            host.insert(Workspace::new(record, directory));
        }
        Ok(host)
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Its room for calls on files.
    pub fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// Who watches its workspaces.
    pub fn watchers(&self) -> &Watchers {
        &self.inner.watchers
    }

    /// Since when.
    pub fn start_time(&self) -> Moment {
        self.inner.start_time
    }

    /// Whether a feature is offered.
    pub fn has(&self, feature: Feature) -> bool {
        !self.inner.settings.disabled.contains(&feature)
    }

    /// # Errors
    /// `FeatureUnavailable` where it is switched off.
    pub fn require(&self, feature: Feature) -> Result<(), HostFault> {
        if self.has(feature) {
            return Ok(());
        }
        Err(HostFault::FeatureUnavailable { feature: feature.name().to_owned() })
    }

    fn insert(&self, workspace: Workspace) {
        let mut workspaces = self.inner.workspaces.write().unwrap_or_else(PoisonError::into_inner);
        workspaces.insert(workspace.name().to_owned(), Arc::new(workspace));
    }

    /// The workspace of this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn find(&self, name: &str) -> Result<Arc<Workspace>, HostFault> {
        let workspaces = self.inner.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        workspaces.get(name).cloned().ok_or_else(|| HostFault::NotFound { workspace: name.to_owned() })
    }

    /// The workspace of this name, for a caller that knows it at this generation.
    ///
    /// # Errors
    /// `NotFound`; `StaleGeneration` where the caller knows a newer one: the workspace has moved on elsewhere.
    pub fn find_at(&self, name: &str, known: Option<i64>) -> Result<Arc<Workspace>, HostFault> {
        let workspace = self.find(name)?;
        let generation = workspace.held().record.generation;
        match known {
            Some(known) if known > generation => {
                Err(HostFault::StaleGeneration { workspace: name.to_owned(), generation })
            }
            _ => Ok(workspace),
        }
    }

    /// All workspaces, by name.
    pub fn all(&self) -> Vec<Arc<Workspace>> {
        let workspaces = self.inner.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        workspaces.values().cloned().collect()
    }

    /// Workspaces after this name, by name.
    pub fn after(&self, name: &str) -> impl Iterator<Item = View> + use<> {
        let later: Vec<Arc<Workspace>> = {
            let workspaces = self.inner.workspaces.read().unwrap_or_else(PoisonError::into_inner);
            let bounds = (std::ops::Bound::Excluded(name), std::ops::Bound::Unbounded);
            workspaces.range::<str, _>(bounds).map(|(_, workspace)| workspace.clone()).collect()
        };
        later.into_iter().map(|workspace| workspace.view())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.inner.workspaces.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn open_directory(&self, spec: &Spec) -> Result<Option<Arc<live::Workspace>>, live::OpenError> {
        let Spec::Directory { root } = spec else { return Ok(None) };
        live::Workspace::open(root, self.inner.store.root(), self.inner.settings.live.clone())
            .map(|workspace| Some(Arc::new(workspace)))
    }

    /// Whether and from where the workspace may be read now. Quick: nothing is opened yet.
    ///
    /// # Errors
    /// As the table of states says; see the module [`state`].
    pub fn reading(&self, workspace: &Arc<Workspace>, source: ReadSource) -> Result<Reading, HostFault> {
        let name = || workspace.name().to_owned();
        let mut held = workspace.held();
        if held.released {
            return Err(HostFault::NotFound { workspace: name() });
        }
        let state = held.record.state;
        let generation = held.record.generation;
        let rest = match state {
            State::Running | State::Quiescing => {
                if source == ReadSource::Disk {
                    let wanted = "suspended|parked".to_owned();
                    return Err(HostFault::WrongState { workspace: name(), state, wanted });
                }
                if matches!(held.record.spec, Spec::Machine { .. }) {
                    return Err(HostFault::GuestUnreachable { workspace: name() });
                }
                let directory = open_directory_of(&held, workspace)?;
                held.activity_time = Moment::now();
                let from = From::Live { directory, lease: None };
                let workspace = workspace.clone();
                return Ok(Reading { workspace, generation, from, elsewhere: Vec::new(), machine_root: false });
            }
            State::Resuming => return Err(HostFault::OfflineChanged { workspace: name() }),
            State::Quarantined => {
                return Err(HostFault::Quarantined { workspace: name(), note: held.record.note.clone() });
            }
            State::Suspended => Rest::Suspended,
            State::Parked => Rest::Parked,
        };
        if source == ReadSource::Workspace {
            return Err(HostFault::NotRunning { workspace: name(), state });
        }
        let unavailable = |why: String| HostFault::OfflineUnavailable { workspace: name(), why };
        if !self.has(Feature::OfflineRead) {
            return Err(unavailable("reads of a sleeping workspace are switched off on this host".to_owned()));
        }
        let (from, machine_root) = match &held.record.spec {
            Spec::Directory { .. } => {
                let directory = open_directory_of(&held, workspace)?;
                (From::Live { directory, lease: Some(workspace.epoch().lease(None)) }, false)
            }
            spec @ Spec::Machine { .. } => {
                let (Some(disk), Some(seal)) = (spec.root_disk(), &held.record.seal) else {
                    return Err(unavailable(held.record.note.clone()));
                };
                let unsealed = match (seal.exact, self.inner.settings.unsealed) {
                    (true, _) => Unsealed::Never,
                    (false, Unsealed::Crash) => Unsealed::Crash,
                    (false, Unsealed::Never) => return Err(unavailable(held.record.note.clone())),
                };
                let lease = workspace.epoch().lease(Some((disk.clone(), seal.clone())));
                let (disk, seal) = (Box::new(disk.clone()), Box::new(seal.clone()));
                (From::Disk { disk, seal, rest, lease, unsealed }, true)
            }
        };
        let elsewhere = held.record.spec.mounts_elsewhere();
        drop(held);
        Ok(Reading { workspace: workspace.clone(), generation, from, elsewhere, machine_root })
    }

    /// Whether the workspace may be changed now.
    ///
    /// # Errors
    /// As the table of states says; see the module [`state`].
    pub fn writing(&self, workspace: &Arc<Workspace>) -> Result<Writing, HostFault> {
        let name = || workspace.name().to_owned();
        let mut held = workspace.held();
        if held.released {
            return Err(HostFault::NotFound { workspace: name() });
        }
        let state = held.record.state;
        match state {
            State::Running => {}
            State::Quiescing | State::Resuming => return Err(HostFault::InTransition { workspace: name(), state }),
            State::Suspended | State::Parked => return Err(HostFault::NotRunning { workspace: name(), state }),
            State::Quarantined => {
                return Err(HostFault::Quarantined { workspace: name(), note: held.record.note.clone() });
            }
        }
        if matches!(held.record.spec, Spec::Machine { .. }) {
            return Err(HostFault::GuestUnreachable { workspace: name() });
        }
        let directory = open_directory_of(&held, workspace)?;
        let guard = workspace.begin_change(&mut held);
        Ok(Writing { directory, guard })
    }
}

fn open_directory_of(held: &workspace::Held, workspace: &Arc<Workspace>) -> Result<Arc<live::Workspace>, HostFault> {
    held.directory.clone().ok_or_else(|| HostFault::Record {
        workspace: workspace.name().to_owned(),
        source: std::io::Error::other("its directory could not be opened when the agent began"),
    })
}

impl Reading {
    /// Opens the files. Blocks where a disk is opened for the first time in this rest.
    ///
    /// # Errors
    /// `OfflineUnavailable`, `OfflineChanged`, `Corrupt`, and `Quarantined` from the next call on.
    pub fn open(&self, host: &Host) -> Result<(Place, Origin), HostFault> {
        let origin = |disk| Origin { disk, generation: self.generation };
        match &self.from {
            From::Live { directory, lease } => {
                let consistency = lease.is_some().then_some(Consistency::Exact);
                Ok((Place::new(Source::Live(directory.tree().clone()), lease.clone()), origin(consistency)))
            }
            From::Disk { disk, seal, rest, lease, unsealed } => {
                let name = || self.workspace.name().to_owned();
                match seal::verify(disk, seal, *rest) {
                    Standing::Holds => {}
                    Standing::Differs(why) => {
                        return Err(HostFault::OfflineUnavailable { workspace: name(), why: why.to_owned() });
                    }
                    Standing::Written(why) => {
                        host.quarantine(&self.workspace, lease, why);
                        return Err(HostFault::OfflineChanged { workspace: name() });
                    }
                }
                let opened = self.volume(disk, *unsealed, lease, &host.inner.settings.disk)?;
                let place = Place::new(Source::Disk(opened.volume), Some(lease.clone()));
                Ok((place, origin(Some(opened.consistency))))
            }
        }
    }

    /// The disk, from the workspace where another call of this rest has opened it.
    fn volume(
        &self,
        disk: &Disk,
        unsealed: Unsealed,
        lease: &Lease,
        limits: &DiskLimits,
    ) -> Result<OpenVolume, HostFault> {
        let epoch = lease.taken_at();
        let known = self.workspace.held().volume.clone();
        if let Some(known) = known.filter(|known| known.epoch == epoch) {
            return Ok(known);
        }
        let name = || self.workspace.name().to_owned();
        // Two first readers may both open it; one of the two is kept. No lock is held while a disk is read.
        let volume = Volume::open(&disk.to_reader(), unsealed, limits).map_err(|error| {
            if !lease.still_mine() {
                return HostFault::OfflineChanged { workspace: name() };
            }
            match error {
                OpenError::Unavailable { what } => HostFault::OfflineUnavailable { workspace: name(), why: what },
                OpenError::Corrupt { what } => HostFault::Corrupt { workspace: name(), what },
                error @ OpenError::OverlayTooLarge { .. } => {
                    HostFault::OfflineUnavailable { workspace: name(), why: error.to_string() }
                }
                OpenError::Io { source, .. } => HostFault::OfflineUnavailable {
                    workspace: name(),
                    why: format!("the disk cannot be read: {source}"),
                },
            }
        })?;
        let opened = OpenVolume { epoch, consistency: volume.consistency(), volume: Arc::new(volume) };
        let mut held = self.workspace.held();
        if lease.still_mine() {
            held.volume = Some(opened.clone());
        }
        Ok(opened)
    }

    /// Refuses a path that the disk does not hold: under a mount point of another file system, or, for a walk, above one.
    ///
    /// # Errors
    /// `OfflineUnavailable`.
    pub fn check_path(&self, path: &TreePath, walk: Walk) -> Result<(), HostFault> {
        let inside = |mount: &&TreePath| path.is_within(mount) || (walk == Walk::Down && mount.is_within(path));
        match self.elsewhere.iter().find(inside) {
            Some(mount) => Err(HostFault::OfflineUnavailable {
                workspace: self.workspace.name().to_owned(),
                why: format!("{mount} is on another file system of the workspace"),
            }),
            None => Ok(()),
        }
    }

    /// Whether the answer comes from a disk, whose bounds then hold.
    pub fn is_offline(&self) -> bool {
        !matches!(&self.from, From::Live { lease: None, .. })
    }

    /// Whether the root is a machine's "/".
    pub fn machine_root(&self) -> bool {
        self.machine_root
    }

    /// Whether what was read so far is still what the workspace was put to rest with; always of a running one.
    pub fn still_mine(&self) -> bool {
        match &self.from {
            From::Live { lease: None, .. } => true,
            From::Live { lease: Some(lease), .. } | From::Disk { lease, .. } => lease.still_mine(),
        }
    }

    /// As [`Reading::still_mine`], as a refusal.
    ///
    /// # Errors
    /// `OfflineChanged`.
    pub fn check_still(&self) -> Result<(), HostFault> {
        match self.still_mine() {
            true => Ok(()),
            false => Err(HostFault::OfflineChanged { workspace: self.workspace.name().to_owned() }),
        }
    }

    /// What to tell of a failure: one that comes from a disk that has moved says so and nothing else.
    pub fn told(&self, failure: Failure) -> Failure {
        match self.check_still() {
            Ok(()) => failure,
            Err(moved) => moved.into(),
        }
    }
}

/// Whether a call looks at one path, or at all that lies under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// At one.
    No,
    /// At all.
    Down,
}

/// Default bound on a Quiesce, where the caller names none.
pub const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);
