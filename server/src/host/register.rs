//! How a workspace becomes known here and is forgotten: by the operator's configuration, whose word is taken, or by a
//! call, which is taken only within what the configuration allows.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{MutexGuard, PoisonError},
};

use dormouse_disk::{DiskLimits, OpenError};
use dormouse_files::path::TreePath;
use dormouse_live as live;

use crate::host::{
    Host,
    error::HostFault,
    seal,
    spec::{DiskPartition, Guest, GuestAddress, Spec, check_name},
    state::{Rest, State},
    store::{Moment, Record, SCHEMA, SPEC_BYTES_MAX},
    watch::Change,
    workspace::{View, Workspace},
};

/// Most releases that are remembered for their replays.
const RELEASED_COUNT_MAX: usize = 1_024;
/// Most workspaces of one host.
const WORKSPACE_COUNT_MAX: usize = 100_000;
/// Most disks of one machine, and most layers of one disk.
const DISK_COUNT_MAX: usize = 64;

/// Longest token of a guest, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;

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

    /// A guest's address that a caller names, checked and resolved as at the registration.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn checked_guest(&self, guest: &Guest) -> Result<Option<Guest>, HostFault> {
        let named = |field: String| field.trim_start_matches("spec.machine.").to_owned();
        let spec = Spec::Machine { guest: Some(guest.clone()), disks: Vec::new() };
        let spec = resolved(&spec).map_err(|(field, what)| HostFault::invalid(named(field), what))?;
        self.check_allowed(&spec).map_err(|fault| match fault {
            HostFault::Invalid { field, message } => HostFault::Invalid { field: named(field), message },
            other => other,
        })?;
        match spec {
            Spec::Machine { guest, .. } => Ok(guest),
            Spec::Directory { .. } => Ok(None),
        }
    }

    /// Whether a caller may name these files: each under one of the configured roots.
    fn check_allowed(&self, spec: &Spec) -> Result<(), HostFault> {
        let settings = self.settings();
        let under = |path: &Path, roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
        match spec {
            Spec::Directory { root } if under(root, &settings.roots) => Ok(()),
            Spec::Directory { .. } => Err(HostFault::invalid("spec.directory.root", outside("directory", "roots"))),
            Spec::Machine { guest, disks } => {
                for (index, disk) in disks.iter().enumerate() {
                    for (layer_index, layer) in disk.layers.iter().enumerate() {
                        let device = fs::metadata(&layer.path).is_ok_and(|meta| meta.file_type().is_block_device());
                        let roots = if device { &settings.device_roots } else { &settings.roots };
                        if !under(&layer.path, roots) {
                            let kind = if device { "device_roots" } else { "roots" };
                            return Err(HostFault::invalid(
                                format!("spec.machine.disks[{index}].layers[{layer_index}].path"),
                                outside("path", kind),
                            ));
                        }
                    }
                }
                match guest.as_ref().map(|guest| &guest.address) {
                    None | Some(GuestAddress::Vsock { .. }) => Ok(()),
                    Some(GuestAddress::HybridVsock { socket, .. } | GuestAddress::Unix(socket)) => {
                        if under(socket, &settings.socket_roots) {
                            return Ok(());
                        }
                        Err(HostFault::invalid("spec.machine.guest", outside("socket", "socket_roots")))
                    }
                    Some(GuestAddress::Tcp(address)) => {
                        let port = address.parse::<SocketAddr>().map(|address| address.port()).unwrap_or_default();
                        match settings.guest_tcp_ports {
                            Some((first, last)) if (first..=last).contains(&port) => Ok(()),
                            _ => {
                                let what = "the port is none of the host's guest_tcp_ports; name one of them, or let the \
                                            host's operator widen that range in its configuration";
                                Err(HostFault::invalid("spec.machine.guest.tcp", what))
                            }
                        }
                    }
                }
            }
        }
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

/// A partition that the disk does not have is a mistake of whoever registers it; that a disk cannot be read otherwise is
/// for its Seal to say.
fn check_partitions(spec: &Spec) -> Result<(), HostFault> {
    let Spec::Machine { disks, .. } = spec else { return Ok(()) };
    for (index, disk) in disks.iter().enumerate() {
        let field = match &disk.partition {
            None => continue,
            Some(DiskPartition::Number(_)) => "partition_number",
            Some(DiskPartition::Guid(_)) => "partition_guid",
        };
        if let Err(OpenError::Unavailable { what }) = dormouse_disk::probe(&disk.to_reader(), &DiskLimits::default())
            && matches!(what.as_str(), "partition" | "partition_guid" | "no_partition_table")
        {
            let what = match what.as_str() {
                "no_partition_table" => "the disk has no partition table; leave the partition unset",
                "partition_guid" => "it is no GUID",
                _ => "the disk has no such partition, or more than one of that type",
            };
            return Err(HostFault::invalid(format!("spec.machine.disks[{index}].{field}"), what));
        }
    }
    Ok(())
}

/// What is wrong with a place, and what to do.
fn outside(what: &str, roots: &str) -> String {
    format!(
        "the {what} lies under none of the host's {roots}, once its links are followed; name one beneath them, or let the \
         host's operator add its parent to {roots} in the configuration"
    )
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

/// A spec whose shape is sound and whose paths are resolved once, links included, to what is kept; else the field and
/// what is wrong with it.
fn resolved(spec: &Spec) -> Result<Spec, (String, String)> {
    let resolve = |path: &Path, field: &str| {
        if !path.is_absolute() {
            return Err((field.to_owned(), format!("{} is not absolute", path.display())));
        }
        fs::canonicalize(path).map_err(|error| (field.to_owned(), format!("{}: {error}", path.display())))
    };
    match spec {
        Spec::Directory { root } => {
            let root = resolve(root, "spec.directory.root")?;
            if !root.is_dir() {
                return Err(("spec.directory.root".to_owned(), format!("{} is not a directory", root.display())));
            }
            Ok(Spec::Directory { root })
        }
        Spec::Machine { guest, disks } => {
            let mut guest = guest.clone();
            let printable = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
            if guest.as_ref().is_some_and(|guest| guest.token.len() > TOKEN_BYTES_MAX || !printable(&guest.token)) {
                let what = format!("a token is at most {TOKEN_BYTES_MAX} printable ASCII characters");
                return Err(("spec.machine.guest.guest_token".to_owned(), what));
            }
            match guest.as_mut().map(|guest| &mut guest.address) {
                Some(GuestAddress::HybridVsock { socket, .. } | GuestAddress::Unix(socket)) => {
                    // The socket comes and goes with its machine; its directory must be there.
                    let field = "spec.machine.guest";
                    let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
                        return Err((field.to_owned(), format!("{} is no socket's path", socket.display())));
                    };
                    *socket = resolve(parent, field)?.join(name);
                }
                Some(GuestAddress::Vsock { cid, .. }) if *cid < 3 => {
                    return Err(("spec.machine.guest.vsock.cid".to_owned(), "a machine's cid is 3 or more".to_owned()));
                }
                Some(GuestAddress::Tcp(address)) => match address.parse::<SocketAddr>() {
                    Ok(address) if address.ip().is_loopback() => {}
                    _ => {
                        let what = format!("{address} is not a loopback address with a port");
                        return Err(("spec.machine.guest.tcp".to_owned(), what));
                    }
                },
                _ => {}
            }
            if disks.len() > DISK_COUNT_MAX {
                return Err(("spec.machine.disks".to_owned(), format!("more than {DISK_COUNT_MAX} disks")));
            }
            let mut disks = disks.clone();
            for (index, disk) in disks.iter_mut().enumerate() {
                let field = format!("spec.machine.disks[{index}]");
                if disk.layers.is_empty() || disk.layers.len() > DISK_COUNT_MAX {
                    return Err((format!("{field}.layers"), format!("a disk has 1 to {DISK_COUNT_MAX} layers")));
                }
                let mount_path = TreePath::parse(disk.mount_path.as_bytes())
                    .map_err(|error| (format!("{field}.mount_path"), error.to_string()))?;
                disk.mount_path = mount_path.to_string();
                for (layer_index, layer) in disk.layers.iter_mut().enumerate() {
                    layer.path = resolve(&layer.path, &format!("{field}.layers[{layer_index}].path"))?;
                }
            }
            Ok(Spec::Machine { guest, disks })
        }
    }
}

/// A spec that its record could not hold would be lost with the next start.
fn check_length(spec: &Spec) -> Result<(), HostFault> {
    let text = serde_json::to_vec_pretty(spec).map_err(|error| HostFault::invalid("spec", error.to_string()))?;
    if text.len() as u64 > SPEC_BYTES_MAX {
        let what = format!("it takes {} bytes to keep, over the limit of {SPEC_BYTES_MAX}", text.len());
        return Err(HostFault::invalid("spec", what));
    }
    Ok(())
}

pub(super) fn error_text(error: &live::OpenError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{
        config::Config,
        host::{
            spec::{Disk, DiskFormat, DiskLayer, FileSystem},
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
