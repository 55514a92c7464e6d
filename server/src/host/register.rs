//! How a workspace becomes known here and is forgotten: by the operator's configuration, whose word is taken, or by a
//! call, which is taken only within what the configuration allows.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{MutexGuard, PoisonError},
};

use dormouse_live as live;

use crate::host::{
    Host,
    allowed::{check_length, check_partitions, resolved},
    error::HostFault,
    seal,
    spec::{Spec, check_name},
    state::{Rest, State},
    store::{Moment, Record, SCHEMA},
    watch::Change,
    workspace::{View, Workspace},
};

/// Most releases that are remembered for their replays.
const RELEASED_COUNT_MAX: usize = 1_024;
/// Most workspaces of one host.
const WORKSPACE_COUNT_MAX: usize = 100_000;
/// Why a workspace of the configuration cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum ConfiguredError {
    /// Its name or spec is wrong.
    #[error("workspace {name}: {what}")]
    Refused {
        /// The name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Its directory cannot be opened.
    #[error("workspace {name}")]
    Directory {
        /// The name.
        name: String,
        /// Why.
        #[source]
        source: live::OpenError,
    },
    /// Its record cannot be kept.
    #[error("the record of workspace {name} cannot be kept")]
    Record {
        /// The name.
        name: String,
        /// From the system.
        #[source]
        source: io::Error,
    },
}

/// A workspace of the configuration, checked as far as that needs no state: its spec with its paths resolved.
///
/// # Errors
/// `Refused`.
pub fn check_configured(name: &str, spec: &Spec) -> Result<Spec, ConfiguredError> {
    let refused = |what: String| ConfiguredError::Refused { name: name.to_owned(), what };
    check_name(name).map_err(refused)?;
    resolved(spec).map_err(|(_, what)| refused(what))
}

impl Host {
    /// Registers a workspace of the configuration. One that is known with the same spec keeps its state and generation;
    /// one whose spec is another now begins anew under the next generation.
    ///
    /// # Errors
    /// See [`ConfiguredError`].
    pub fn register_configured(&self, name: &str, spec: &Spec, state: State) -> Result<(), ConfiguredError> {
        let refused = |what: String| ConfiguredError::Refused { name: name.to_owned(), what };
        let spec = check_configured(name, spec)?;
        let known = self.find(name).ok().map(|workspace| workspace.held().record.clone());
        let generation = match known {
            Some(record) if record.spec == spec => return Ok(()),
            // A token is no part of what a workspace is: one that was changed changes nothing else.
            Some(record) if record.spec.without_token() == spec.without_token() => {
                let record = Record { spec, ..record };
                let kept = self.inner.store.save(&record);
                kept.map_err(|source| ConfiguredError::Record { name: name.to_owned(), source })?;
                if let Ok(workspace) = self.find(name) {
                    workspace.held().record = record;
                }
                return Ok(());
            }
            Some(record) => {
                tracing::warn!(
                    workspace = name,
                    "the configuration gives a known workspace another spec; it begins anew"
                );
                record.generation.saturating_add(1)
            }
            None => 1,
        };
        self.check_images(name, &spec, &self.names()).map_err(|fault| refused(fault.to_string()))?;
        let directory = self
            .open_directory(&spec)
            .map_err(|source| ConfiguredError::Directory { name: name.to_owned(), source })?;
        let record = first_record(name, spec, state, generation);
        self.inner.store.save(&record).map_err(|source| ConfiguredError::Record { name: name.to_owned(), source })?;
        self.insert(Workspace::new(record, directory));
        Ok(())
    }

    /// Registers a workspace that a caller names. Blocks.
    ///
    /// # Errors
    /// `Invalid`, `AlreadyExists` with another spec, `Overloaded`, `Record`.
    pub fn register(&self, name: &str, spec: &Spec, generation: i64, state: State) -> Result<View, HostFault> {
        check_name(name).map_err(|what| HostFault::invalid("name", what))?;
        if generation < 0 {
            return Err(HostFault::invalid("generation", "the generation is negative; send 0 for the first one"));
        }
        let spec = resolved(spec).map_err(|(field, what)| HostFault::invalid(field, what))?;
        check_length(&spec)?;
        self.check_allowed(&spec)?;
        check_partitions(&spec)?;
        let (generation, place) = {
            let mut names = self.names();
            if let Ok(known) = self.find(name) {
                let view = known.view();
                return match view.spec == spec {
                    true => Ok(view),
                    false => Err(HostFault::AlreadyExists { workspace: name.to_owned() }),
                };
            }
            let last = names.released.get(name).copied();
            if let Some(last) = last
                && generation != 0
                && generation <= last
            {
                return Err(HostFault::StaleGeneration { workspace: name.to_owned(), generation: last });
            }
            if self.count() + names.coming.len() >= WORKSPACE_COUNT_MAX {
                return Err(HostFault::Overloaded { what: "workspaces" });
            }
            self.check_images(name, &spec, &names)?;
            let next = last.map_or(1, |last| last.saturating_add(1));
            (if generation == 0 { next } else { generation }, Coming::take(self, &mut names, name, &spec)?)
        };
        // Without the lock: a disk is sealed and a record written, and neither may hold up another workspace.
        let directory = self
            .open_directory(&spec)
            .map_err(|error| HostFault::invalid("spec.directory.root", error_text(&error)))?;
        let record = first_record(name, spec, state, generation);
        self.inner.store.save(&record).map_err(|source| HostFault::Record { workspace: name.to_owned(), source })?;
        let workspace = Workspace::new(record, directory);
        let view = workspace.view();
        self.insert(workspace);
        drop(place);
        self.names().released.remove(name);
        self.inner.watchers.tell(name, &Change::Now(Box::new(view.clone())));
        Ok(view)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.inner.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a workspace; its files are left alone. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `StaleGeneration`, `Invalid`, `Record`.
    pub fn release(&self, name: &str, generation: i64) -> Result<(), HostFault> {
        if generation < 0 {
            return Err(HostFault::invalid(
                "generation",
                "the generation is negative; send 0 for the current one plus one",
            ));
        }
        let forgotten = |fault| match self.names().released.get(name) {
            Some(&last) if generation == 0 || generation == last => Ok(()),
            Some(&last) if generation < last => {
                Err(HostFault::StaleGeneration { workspace: name.to_owned(), generation: last })
            }
            _ => Err(fault),
        };
        let workspace = match self.find(name) {
            Ok(workspace) => workspace,
            Err(fault) => return forgotten(fault),
        };
        // It may wait for a transition, so no other name waits for it.
        let _turn = workspace.turn();
        let current = {
            let held = workspace.held();
            if held.released {
                drop(held);
                return forgotten(HostFault::NotFound { workspace: name.to_owned() });
            }
            held.record.generation
        };
        if generation != 0 && generation <= current {
            return Err(HostFault::StaleGeneration { workspace: name.to_owned(), generation: current });
        }
        self.inner.store.remove(name).map_err(|source| HostFault::Record { workspace: name.to_owned(), source })?;
        let last = if generation == 0 { current.saturating_add(1) } else { generation };
        let directory = {
            // In one moment: whoever registers the name again finds all of it or nothing.
            let mut names = self.names();
            remember(&mut names.released, name, last);
            self.inner.workspaces.write().unwrap_or_else(PoisonError::into_inner).remove(name);
            let mut held = workspace.held();
            held.released = true;
            held.volume = None;
            workspace.epoch().advance();
            held.directory.take()
        };
        if let Some(directory) = directory {
            directory.forget();
        }
        self.inner.indexes.forget(name);
        let change = Change::Released { name: name.to_owned(), generation: last, time: Moment::now() };
        self.inner.watchers.tell(name, &change);
        tracing::info!(workspace = name, generation = last, "a workspace is released");
        Ok(())
    }

    /// No image that a machine writes may be in two workspaces; images behind it may be shared, as base images are.
    fn check_images(&self, name: &str, spec: &Spec, names: &Names) -> Result<(), HostFault> {
        let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        let Spec::Machine { disks, .. } = spec else { return Ok(()) };
        let written: Vec<_> =
            disks.iter().filter_map(|disk| disk.layers.first()).filter_map(|layer| identity(&layer.path)).collect();
        let known = self.all().into_iter().map(|other| (other.name().to_owned(), other.held().record.spec.clone()));
        let coming = names.coming.iter().map(|(name, spec)| (name.clone(), spec.clone()));
        for (other, spec) in known.chain(coming).filter(|(other, _)| other != name) {
            if spec.layers().filter_map(|layer| identity(&layer.path)).any(|image| written.contains(&image)) {
                return Err(HostFault::invalid(
                    "spec.machine.disks",
                    format!("an image of it belongs to workspace {other}; release that one, or name another image"),
                ));
            }
        }
        Ok(())
    }
}

/// Names beside those of the workspaces that are here.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The generation under which a name was released, so that the replay of a release is known. Bounded.
    released: BTreeMap<String, i64>,
    /// Being registered at this moment.
    coming: BTreeMap<String, Spec>,
}

/// A name's place while it is being registered; free again when this is dropped.
struct Coming<'a> {
    host: &'a Host,
    name: String,
}

impl<'a> Coming<'a> {
    fn take(host: &'a Host, names: &mut Names, name: &str, spec: &Spec) -> Result<Self, HostFault> {
        if names.coming.contains_key(name) {
            return Err(HostFault::Overloaded { what: "registrations of one name at once" });
        }
        names.coming.insert(name.to_owned(), spec.clone());
        Ok(Self { host, name: name.to_owned() })
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.host.names().coming.remove(&self.name);
    }
}

fn remember(released: &mut BTreeMap<String, i64>, name: &str, generation: i64) {
    if released.len() >= RELEASED_COUNT_MAX && !released.contains_key(name) {
        released.pop_first();
    }
    released.insert(name.to_owned(), generation);
}

fn first_record(name: &str, spec: Spec, state: State, generation: i64) -> Record {
    let rest = match state {
        State::Suspended => Some(Rest::Suspended),
        State::Parked => Some(Rest::Parked),
        _ => None,
    };
    let found = rest.map(|rest| seal::look_at(&spec, None, rest, generation));
    let (seal, note) = found.map_or((None, String::new()), |found| (found.seal, found.note));
    Record {
        schema: SCHEMA,
        name: name.to_owned(),
        spec,
        state,
        generation,
        last: None,
        seal,
        note,
        transition_time: Moment::now(),
        frozen: None,
    }
}

pub(super) fn error_text(error: &live::OpenError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf};

    use super::*;
    use crate::{
        config::Config,
        host::{
            spec::{Disk, DiskFormat, DiskLayer, FileSystem, Guest, GuestAddress},
            store::{Store, Volatile},
        },
    };

    /// A host with one root, one root for sockets and ports 20000 to 20999.
    fn host(directory: &Path) -> Host {
        for name in ["root", "sockets", "outside"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        let config = Config {
            roots: vec![directory.join("root")],
            socket_roots: vec![directory.join("sockets")],
            guest_tcp_ports: "20000-20999".to_owned(),
            state_dir: directory.join("agent"),
            ..Config::default()
        };
        let settings = config.check().unwrap().settings;
        Host::start(settings, Store::open(&config.state_dir, Volatile::Taken).unwrap()).unwrap()
    }

    fn machine(layers: &[PathBuf], address: Option<GuestAddress>) -> Spec {
        let layer = |path: &PathBuf| DiskLayer { path: path.clone(), format: DiskFormat::Raw };
        Spec::Machine {
            guest: address.map(|address| Guest { address, token: String::new() }),
            disks: vec![Disk {
                layers: layers.iter().map(layer).collect(),
                partition: None,
                file_system: FileSystem::Ext4,
                mount_path: "/".to_owned(),
                flushes: true,
            }],
        }
    }

    #[track_caller]
    fn check(host: &Host, name: &str, spec: &Spec, expect: Result<(), &str>) {
        let found = host.register(name, spec, 0, State::Running).map(drop).map_err(|fault| match fault {
            HostFault::Invalid { field, .. } => field,
            other => other.to_string(),
        });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn a_caller_names_only_what_the_configuration_allows() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let host = host(directory.path());
        let directory_at = |name: &str| Spec::Directory { root: at(name) };
        fs::create_dir(at("root/good")).unwrap();
        symlink(at("outside"), at("root/link")).unwrap();
        symlink(at("root/good"), at("outside/back")).unwrap();
        for (name, text) in [("root/image", "image"), ("root/other", "other"), ("outside/image", "secret")] {
            fs::write(at(name), text).unwrap();
        }
        let root = Err("spec.directory.root");
        check(&host, "a", &directory_at("outside"), root);
        check(&host, "a", &directory_at("root/link"), root);
        check(&host, "a", &directory_at("root/none"), root);
        check(&host, "a", &directory_at("root/image"), root);
        check(&host, "a", &Spec::Directory { root: "root".into() }, root);
        check(&host, "a/", &directory_at("root/good"), Err("name"));
        check(&host, "a", &directory_at("root/good"), Ok(()));
        check(&host, "a", &directory_at("outside/back"), Ok(()));

        let image = || machine(&[at("root/image")], None);
        check(&host, "m", &machine(&[at("outside/image")], None), Err("spec.machine.disks[0].layers[0].path"));
        let second = Err("spec.machine.disks[0].layers[1].path");
        check(&host, "m", &machine(&[at("root/image"), at("outside/image")], None), second);
        check(&host, "m", &machine(&[], None), Err("spec.machine.disks[0].layers"));
        check(&host, "m", &image(), Ok(()));
        fs::hard_link(at("root/image"), at("root/same")).unwrap();
        check(&host, "n", &machine(&[at("root/same")], None), Err("spec.machine.disks"));

        let guest = |address| machine(&[at("root/other")], Some(address));
        let tcp = |address: &str| guest(GuestAddress::Tcp(address.to_owned()));
        check(&host, "g", &guest(GuestAddress::Unix(at("outside/s"))), Err("spec.machine.guest"));
        check(&host, "g", &guest(GuestAddress::Vsock { cid: 2, port: 1 }), Err("spec.machine.guest.vsock.cid"));
        check(&host, "g", &tcp("127.0.0.1:80"), Err("spec.machine.guest.tcp"));
        check(&host, "g", &tcp("192.0.2.1:20000"), Err("spec.machine.guest.tcp"));
        check(&host, "g", &tcp("127.0.0.1:20000"), Ok(()));
        let socket = GuestAddress::HybridVsock { socket: at("sockets/s"), port: 1 };
        check(&host, "g", &guest(socket), Err("workspace g is registered with another spec; release it first"));
    }

    #[test]
    fn a_directory_that_another_workspace_has_is_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        let spec = Spec::Directory { root: directory.path().join("root") };
        check(&host, "first", &spec, Ok(()));
        match host.register("second", &spec, 0, State::Running) {
            Err(HostFault::Invalid { message, .. }) => {
                assert!(message.contains("another workspace or agent has this directory"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_spec_that_no_record_holds_is_refused_and_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        let image = directory.path().join("root/image");
        fs::write(&image, "image").unwrap();
        // 64 disks of 64 layers are within the counts, and with paths of this host over what a record holds.
        let Spec::Machine { disks, .. } = machine(&vec![image; 64], None) else { panic!("a machine was made") };
        let disk = |index| Disk { mount_path: format!("/{index}{}", "/m".repeat(2000)), ..disks[0].clone() };
        let long = Spec::Machine { guest: None, disks: (0..64).map(disk).collect() };
        check(&host, "m", &long, Err("spec"));
        assert_eq!(fs::read_dir(directory.path().join("agent/workspaces")).unwrap().count(), 0);
    }

    #[test]
    fn a_guests_new_token_changes_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        let image = directory.path().join("root/image");
        fs::write(&image, "image").unwrap();
        let with_token = |token: &str| {
            let address = GuestAddress::Unix(directory.path().join("sockets/s"));
            let mut spec = machine(std::slice::from_ref(&image), Some(address));
            if let Spec::Machine { guest: Some(guest), .. } = &mut spec {
                guest.token = token.to_owned();
            }
            spec
        };
        host.register_configured("m", &with_token("old"), State::Suspended).unwrap();
        let before = host.find("m").unwrap().view();
        host.register_configured("m", &with_token("new"), State::Running).unwrap();
        let after = host.find("m").unwrap().view();
        assert_eq!((after.generation, after.state), (before.generation, State::Suspended));
        assert!(matches!(after.spec, Spec::Machine { guest: Some(Guest { token, .. }), .. } if token == "new"));
    }

    #[test]
    fn a_name_that_is_coming_holds_its_name_and_its_image_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        for name in ["one", "two"] {
            fs::write(directory.path().join("root").join(name), "image").unwrap();
        }
        let spec = |name: &str| resolved(&machine(&[directory.path().join("root").join(name)], None)).unwrap();
        let place = Coming::take(&host, &mut host.names(), "a", &spec("one")).unwrap();
        let busy = "the host is at its limit of registrations of one name at once; nothing was done, try again";
        check(&host, "a", &spec("one"), Err(busy));
        check(&host, "b", &spec("one"), Err("spec.machine.disks"));
        check(&host, "b", &spec("two"), Ok(()));
        drop(place);
        check(&host, "a", &spec("one"), Ok(()));
    }

    #[test]
    fn the_configuration_is_known_again_and_a_new_spec_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        for name in ["one", "two"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let spec = |name: &str| Spec::Directory { root: directory.path().join(name) };
        let generation = || host.find("c").unwrap().view().generation;
        host.register_configured("c", &spec("one"), State::Running).unwrap();
        host.register_configured("c", &spec("one"), State::Running).unwrap();
        assert_eq!(generation(), 1);
        host.register_configured("c", &spec("two"), State::Suspended).unwrap();
        assert_eq!((generation(), host.find("c").unwrap().view().state), (2, State::Suspended));
        assert!(host.register_configured("c", &spec("three"), State::Running).is_err());
    }
}
