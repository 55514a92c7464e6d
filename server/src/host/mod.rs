//! Which workspaces are here, in which state, and where their files are now.
//!
//! The two doors of every call on files are in [`reading`]; the transitions are in [`transition`], what they are allowed to
//! do in [`state`]. Everything here blocks for moments (a mutex) or for as long
//! as a disk takes (a record, a seal), so it runs on a lane, never on an async thread, but for the look-ups.

pub mod admit;
pub mod allowed;
pub mod error;
pub mod hooks;
pub mod index;
pub mod lease;
pub mod place;
pub mod reading;
pub mod register;
pub mod relay;
pub mod seal;
pub mod spec;
pub mod state;
pub mod store;
pub mod transition;
pub mod turns;
pub mod volumes;
pub mod watch;
pub mod workspace;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use dormouse_disk::{DiskLimits, Unsealed};
use dormouse_files::limits::Limits;
use dormouse_live as live;

pub use reading::{Guest, Origin, ReadSource, Reading, Walk, Writable, Writing};

use crate::host::{
    admit::Admission,
    error::HostFault,
    hooks::Hooks,
    index::{IndexSettings, Indexes},
    relay::RelaySettings,
    spec::Spec,
    store::{Moment, Store, StoreError},
    turns::Turns,
    volumes::{VolumeSettings, Volumes},
    watch::Watchers,
    workspace::{View, Workspace},
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
    /// Which mounts beneath a directory's root belong to it: none but inside a machine, whose agent serves its mount tree.
    pub mounts: Option<Arc<dyn live::Mounts>>,
    /// Against hostile images.
    pub disk: DiskLimits,
    /// Of the disks that are open.
    pub volumes: VolumeSettings,
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
    /// The way to a running machine's own agent.
    pub relay: RelaySettings,
    /// Calls at once.
    pub calls_max: usize,
    /// Of searches on disks at rest.
    pub index: IndexSettings,
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
    volumes: Volumes,
    turns: Turns,
    indexes: Indexes,
    workspaces: RwLock<BTreeMap<String, Arc<Workspace>>>,
    /// Names that were released, and names that are coming.
    names: Mutex<register::Names>,
    /// Inside a machine: the one workspace, under whatever name the host asks for it.
    alone: OnceLock<Arc<Workspace>>,
    start_time: Moment,
}

impl Host {
    /// A host that knows what its state directory holds, and nothing more yet.
    ///
    /// # Errors
    /// A record that does not parse.
    pub fn start(settings: Settings, store: Store) -> Result<Self, StoreError> {
        let records = store.load()?;
        let turns = Turns::new();
        let indexes = Indexes::new(store.root(), settings.index, settings.limits.clone(), turns.clone());
        indexes.sweep(records.iter().map(|record| record.name.as_str()));
        let inner = Inner {
            admission: Admission::new(settings.calls_max),
            volumes: Volumes::new(settings.volumes.clone()),
            turns,
            indexes,
            settings,
            store,
            watchers: Watchers::default(),
            workspaces: RwLock::default(),
            names: Mutex::default(),
            alone: OnceLock::new(),
            start_time: Moment::now(),
        };
        let host = Self { inner: Arc::new(inner) };
        for record in records {
            let directory = match host.open_directory(&record.spec) {
                Ok(directory) => directory,
                Err(error) => {
                    let error = register::error_text(&error);
                    tracing::error!(workspace = record.name, error, "a workspace's directory cannot be opened");
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

    /// Whose search works now.
    pub fn turns(&self) -> &Turns {
        &self.inner.turns
    }

    /// Of disks at rest.
    pub fn indexes(&self) -> &Indexes {
        &self.inner.indexes
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

    /// From now on every name means the one workspace `name`: the agent inside a machine has no other, and what its host
    /// calls it is the host's business.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn alone(&self, name: &str) -> Result<Arc<Workspace>, HostFault> {
        let workspace = self.find(name)?;
        Ok(self.inner.alone.get_or_init(|| workspace).clone())
    }

    /// The workspace of this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn find(&self, name: &str) -> Result<Arc<Workspace>, HostFault> {
        if let Some(alone) = self.inner.alone.get() {
            return Ok(alone.clone());
        }
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

    /// Says in the log what each directory workspace has counted, once, as on the way down.
    pub fn log_counters(&self) {
        for workspace in self.all() {
            let directory = workspace.held().directory.clone();
            let Some(stats) = directory.map(|directory| directory.stats()).filter(|stats| stats.intents > 0) else {
                continue;
            };
            tracing::info!(
                workspace = workspace.name(),
                intents = stats.intents,
                journal_flushes = stats.journal_flushes,
                late_writes = stats.late_writes,
                "a workspace was changed"
            );
        }
    }

    fn open_directory(&self, spec: &Spec) -> Result<Option<Arc<live::Workspace>>, live::OpenError> {
        let Spec::Directory { root } = spec else { return Ok(None) };
        let (state, limits) = (self.inner.store.root(), self.inner.settings.live.clone());
        let workspace = match &self.inner.settings.mounts {
            None => live::Workspace::open(root, state, limits)?,
            Some(mounts) => live::Workspace::open_across(root, state, limits, Arc::clone(mounts))?,
        };
        if let Some(why) = workspace.closed() {
            tracing::warn!(root = %root.display(), why, "a workspace's files can be read and not changed");
        }
        let root = root.clone();
        workspace.on_late_write(Arc::new(move |late| warn_late_write(&root, late)));
        Ok(Some(Arc::new(workspace)))
    }
}

/// An update of a process in a workspace is not in its file: a person must look where it is.
fn warn_late_write(root: &Path, late: &live::LateWrite) {
    let path = late.path.to_string();
    let root = root.display();
    match &late.kept {
        Some(kept) => tracing::warn!(
            %root,
            path,
            kept = %kept.display(),
            "a process wrote to a file after a change had replaced it, or still has it open; what it wrote is kept"
        ),
        None => tracing::warn!(
            %root,
            path,
            "a process wrote to a file after a change had replaced it; what it wrote was too large to be kept"
        ),
    }
}

/// Default bound on a Quiesce, where the caller names none.
pub const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an Open looks for the machine's own agent, where its caller has no deadline.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
