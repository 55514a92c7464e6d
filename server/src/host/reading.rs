//! The two doors of every call on files: [`Host::reading`] and [`Host::writing`]. What they answer depends on the state
//! alone, as the table of the contract says:
//!
//! | state | reads | changes |
//! |---|---|---|
//! | running, quiescing | from the workspace | done; while quiescing WORKSPACE_IN_TRANSITION |
//! | parked, suspended | from the disk, as the seal allows | WORKSPACE_NOT_RUNNING |
//! | resuming | OFFLINE_CHANGED | WORKSPACE_IN_TRANSITION |
//! | quarantined | WORKSPACE_QUARANTINED | WORKSPACE_QUARANTINED |

use std::sync::Arc;

use dormouse_disk::{Consistency, OpenError, Unsealed};
use dormouse_files::{Fault, path::TreePath};
use dormouse_live as live;

use crate::host::{
    Feature, Host,
    error::{Failure, HostFault},
    index::Key,
    lease::Lease,
    place::{Place, Source},
    relay::Link,
    seal::{self, Standing},
    spec::{Disk, Spec},
    state::{Rest, State},
    store::Moment,
    workspace::{ChangeGuard, Held, OpenVolume, Workspace},
};

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
    Guest(Arc<Link>),
    Disk { disk: Box<Disk>, seal: Box<seal::Seal>, rest: Rest, lease: Lease, unsealed: Unsealed },
}

/// A workspace whose files may be changed now. Its guard ends when it is dropped.
pub struct Writing {
    /// What is changed.
    pub files: Writable,
    /// Waited for by Quiesce.
    pub guard: ChangeGuard,
}

/// Files that may be changed.
pub enum Writable {
    /// A directory of this host.
    Directory(Arc<live::Workspace>),
    /// Those of a running machine, by its own agent.
    Guest(Guest),
}

/// The way to a running machine's own agent, and what an answer from there is said to be of.
#[derive(Clone)]
pub struct Guest {
    /// The channel.
    pub link: Arc<Link>,
    /// Of the workspace, when the call began.
    pub generation: i64,
}

impl Host {
    /// Whether and from where the workspace may be read now. Quick: nothing is opened yet.
    ///
    /// # Errors
    /// As the table of states says; see above.
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
                let from = match held.record.spec {
                    Spec::Machine { .. } => From::Guest(self.link(&mut held, workspace)?),
                    Spec::Directory { .. } => {
                        From::Live { directory: open_directory_of(&held, workspace)?, lease: None }
                    }
                };
                held.activity_time = Moment::now();
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
        let mut elsewhere = held.record.spec.mounts_elsewhere();
        let foreign = held.record.seal.iter().flat_map(|seal| &seal.foreign_mount_paths);
        elsewhere.extend(foreign.filter_map(|path| TreePath::parse(path.as_bytes()).ok()));
        drop(held);
        Ok(Reading { workspace: workspace.clone(), generation, from, elsewhere, machine_root })
    }

    /// Whether the workspace may be changed now.
    ///
    /// # Errors
    /// As the table of states says; see above.
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
        let files = match held.record.spec {
            Spec::Machine { .. } => {
                let generation = held.record.generation;
                Writable::Guest(Guest { link: self.link(&mut held, workspace)?, generation })
            }
            Spec::Directory { .. } => Writable::Directory(open_directory_of(&held, workspace)?),
        };
        let guard = workspace.begin_change(&mut held);
        Ok(Writing { files, guard })
    }

    fn link(&self, held: &mut Held, workspace: &Workspace) -> Result<Arc<Link>, HostFault> {
        let unreachable = || HostFault::GuestUnreachable { workspace: workspace.name().to_owned() };
        held.link(self.inner.settings.relay).ok_or_else(unreachable)
    }
}

impl Reading {
    /// The way to the machine's own agent, where that answers; there is no place to be opened then.
    pub fn guest(&self) -> Option<Guest> {
        match &self.from {
            From::Guest(link) => Some(Guest { link: link.clone(), generation: self.generation }),
            From::Live { .. } | From::Disk { .. } => None,
        }
    }

    /// Opens the files. Blocks where a disk is opened for the first time in this rest.
    ///
    /// # Errors
    /// `OfflineUnavailable`, `OfflineChanged`, `Corrupt`, and `Quarantined` from the next call on.
    pub fn open(&self, host: &Host) -> Result<(Place, Origin), HostFault> {
        let origin = |disk| Origin { disk, generation: self.generation };
        match &self.from {
            // Its files are no tree of this host; each verb asks for the guest first.
            From::Guest(_) => Err(HostFault::GuestUnreachable { workspace: self.workspace.name().to_owned() }),
            From::Live { directory, lease } => {
                let consistency = lease.is_some().then_some(Consistency::Exact);
                Ok((Place::new(Source::Live(directory.tree().clone()), lease.clone()), origin(consistency)))
            }
            From::Disk { disk, seal, rest, lease, unsealed } => {
                let name = || self.workspace.name().to_owned();
                let standing = seal::verify(disk, seal, *rest);
                self.note(lease, standing);
                match standing {
                    Standing::Holds => {}
                    Standing::Differs(why) => {
                        return Err(HostFault::OfflineUnavailable { workspace: name(), why: why.to_owned() });
                    }
                    // What was not proved still when it was sealed proves nothing by moving on.
                    Standing::Written(why) if !seal.exact => {
                        return Err(HostFault::OfflineUnavailable { workspace: name(), why: why.to_owned() });
                    }
                    Standing::Written(why) => {
                        host.quarantine(&self.workspace, lease, why);
                        return Err(HostFault::OfflineChanged { workspace: name() });
                    }
                }
                let opened = self.volume(host, disk, *unsealed, lease)?;
                let place = Place::new(Source::Disk(dormouse_disk::Reading::of(opened.volume)), Some(lease.clone()));
                // A clean journal is the whole truth only of a disk that was proved still.
                let consistency = if seal.exact { opened.consistency } else { Consistency::Crash };
                Ok((place, origin(Some(consistency))))
            }
        }
    }

    /// What the control plane is told of the disk until it is asked again, or moves on.
    fn note(&self, lease: &Lease, standing: Standing) {
        let mut held = self.workspace.held();
        if lease.taken_at() == self.workspace.epoch().lease(None).taken_at() {
            held.standing = match standing {
                Standing::Holds => "",
                Standing::Differs(why) | Standing::Written(why) => why,
            };
        }
    }

    fn volume(&self, host: &Host, disk: &Disk, unsealed: Unsealed, lease: &Lease) -> Result<OpenVolume, HostFault> {
        let name = || self.workspace.name().to_owned();
        let opened = host.inner.volumes.open(&self.workspace, disk, unsealed, lease, &host.inner.settings.disk);
        opened.map_err(|error| {
            if !lease.still_mine() {
                return HostFault::OfflineChanged { workspace: name() };
            }
            match error {
                OpenError::Unavailable { what } => HostFault::OfflineUnavailable { workspace: name(), why: what },
                OpenError::Corrupt { what } => {
                    self.log_corrupt(&what);
                    HostFault::Corrupt { workspace: name(), what }
                }
                error @ OpenError::OverlayTooLarge { .. } => {
                    HostFault::OfflineUnavailable { workspace: name(), why: error.to_string() }
                }
                OpenError::Io { source, .. } => HostFault::OfflineUnavailable {
                    workspace: name(),
                    why: format!("the disk cannot be read: {source}"),
                },
            }
        })
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
        !matches!(&self.from, From::Live { lease: None, .. } | From::Guest(_))
    }

    /// What a search index of these files goes by; nothing where they may change, or were not proved still.
    pub fn index_key(&self) -> Option<Key> {
        match &self.from {
            From::Disk { seal, .. } if seal.exact => Some(Key::new(self.workspace.name(), self.generation, seal)),
            _ => None,
        }
    }

    /// Whether the root is a machine's "/".
    pub fn machine_root(&self) -> bool {
        self.machine_root
    }

    /// Whether what was read so far is still what the workspace was put to rest with; always of a running one.
    pub fn still_mine(&self) -> bool {
        match &self.from {
            From::Live { lease: None, .. } | From::Guest(_) => true,
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
        if let Err(moved) = self.check_still() {
            return moved.into();
        }
        if let Failure::Files(Fault::Corrupt { what, .. }) = &failure {
            self.log_corrupt(what);
        }
        failure
    }

    /// Once for each generation: every read of a corrupt disk fails, and a person must look only once.
    fn log_corrupt(&self, what: &str) {
        let told = self.workspace.held().corrupt.replace(self.generation);
        if told != Some(self.generation) {
            tracing::error!(workspace = self.workspace.name(), generation = self.generation, what, "a disk is corrupt");
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

fn open_directory_of(held: &Held, workspace: &Arc<Workspace>) -> Result<Arc<live::Workspace>, HostFault> {
    held.directory.clone().ok_or_else(|| HostFault::DirectoryGone {
        workspace: workspace.name().to_owned(),
        why: "it could not be opened when it was last tried; the log says why, and a resume tries again".to_owned(),
    })
}
