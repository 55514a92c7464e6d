//! HostService's messages to and from our nouns, by hand and fallibly.

use std::path::PathBuf;

use dormouse_proto::host::v1;

use crate::host::{
    error::HostFault,
    seal::{Seal, Stamp},
    spec::{Disk, DiskFormat, DiskLayer, DiskPartition, FileSystem, Guest, GuestAddress, Spec},
    state::State,
    store::Moment,
    workspace::View,
};

/// Longest token of a guest, in bytes: it goes with every call as a header, and headers are short.
const TOKEN_BYTES_MAX: usize = 4096;

/// A moment.
pub fn moment(moment: Moment) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: moment.seconds, nanos: i32::try_from(moment.nanoseconds).unwrap_or_default() }
}

/// A workspace.
pub fn workspace(view: &View) -> v1::Workspace {
    let activity = (view.activity_time != Moment::default()).then(|| moment(view.activity_time));
    v1::Workspace {
        name: view.name.clone(),
        spec: Some(spec_to(&view.spec)),
        state: state(view.state).into(),
        generation: view.generation,
        seal: view.seal.as_ref().map(seal),
        transition_time: Some(moment(view.transition_time)),
        note: view.note.clone(),
        activity_time: activity,
    }
}

fn state(state: State) -> v1::WorkspaceState {
    match state {
        State::Running => v1::WorkspaceState::Running,
        State::Quiescing => v1::WorkspaceState::Quiescing,
        State::Parked => v1::WorkspaceState::Parked,
        State::Suspended => v1::WorkspaceState::Suspended,
        State::Resuming => v1::WorkspaceState::Resuming,
        State::Quarantined => v1::WorkspaceState::Quarantined,
    }
}

/// A state that a caller names.
///
/// # Errors
/// `Invalid` for none, or one of a later version.
pub fn state_from(value: i32) -> Result<State, HostFault> {
    match v1::WorkspaceState::try_from(value) {
        Ok(v1::WorkspaceState::Running) => Ok(State::Running),
        Ok(v1::WorkspaceState::Quiescing) => Ok(State::Quiescing),
        Ok(v1::WorkspaceState::Parked) => Ok(State::Parked),
        Ok(v1::WorkspaceState::Suspended) => Ok(State::Suspended),
        Ok(v1::WorkspaceState::Resuming) => Ok(State::Resuming),
        Ok(v1::WorkspaceState::Quarantined) => Ok(State::Quarantined),
        Ok(v1::WorkspaceState::Unspecified) | Err(_) => {
            Err(HostFault::invalid("states", format!("{value} is no state that this host knows")))
        }
    }
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seal(seal: &Seal) -> v1::Seal {
    let stamp = |stamp: &Stamp| v1::LayerStamp {
        inode: count(stamp.inode),
        size_bytes: count(stamp.size_bytes),
        modify_time: Some(moment(stamp.modify_time)),
        change_time: Some(moment(stamp.change_time)),
        file_system_id: stamp.file_system_id.clone(),
    };
    v1::Seal {
        generation: seal.generation,
        exact: seal.exact,
        layer_stamps: seal.stamps.iter().map(stamp).collect(),
        superblock_sha256: seal.superblock_sha256.clone(),
        seal_time: Some(moment(seal.seal_time)),
        foreign_mount_paths: seal.foreign_mount_paths.clone(),
    }
}

/// A spec as it is shown: without the guest's token. A path that is not UTF-8 came from the host's own configuration.
fn spec_to(spec: &Spec) -> v1::WorkspaceSpec {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let files = match spec {
        Spec::Directory { root } => v1::workspace_spec::Files::Directory(v1::Directory { root: text(root) }),
        Spec::Machine { guest, disks } => {
            let address = |address: &GuestAddress| match address {
                GuestAddress::HybridVsock { socket, port } => {
                    v1::guest::Address::HybridVsock(v1::HybridVsock { socket_path: text(socket), port: *port })
                }
                GuestAddress::Vsock { cid, port } => v1::guest::Address::Vsock(v1::Vsock { cid: *cid, port: *port }),
                GuestAddress::Unix(path) => v1::guest::Address::UnixPath(text(path)),
                GuestAddress::Tcp(address) => v1::guest::Address::Tcp(address.clone()),
            };
            let layer = |layer: &DiskLayer| v1::DiskLayer {
                path: text(&layer.path),
                format: match layer.format {
                    DiskFormat::Raw => v1::DiskFormat::Raw,
                    DiskFormat::Qcow2 => v1::DiskFormat::Qcow2,
                }
                .into(),
            };
            let disk = |disk: &Disk| v1::Disk {
                layers: disk.layers.iter().map(layer).collect(),
                partition: disk.partition.as_ref().map(|partition| match partition {
                    DiskPartition::Number(number) => v1::disk::Partition::PartitionNumber(*number),
                    DiskPartition::Guid(guid) => v1::disk::Partition::PartitionGuid(guid.clone()),
                }),
                file_system: match disk.file_system {
                    FileSystem::Ext4 => v1::FileSystem::Ext4,
                    FileSystem::Xfs => v1::FileSystem::Xfs,
                    FileSystem::Btrfs => v1::FileSystem::Btrfs,
                }
                .into(),
                mount_path: disk.mount_path.clone(),
                flushes: disk.flushes,
            };
            v1::workspace_spec::Files::Machine(v1::Machine {
                guest: guest
                    .as_ref()
                    .map(|guest| v1::Guest { address: Some(address(&guest.address)), guest_token: String::new() }),
                disks: disks.iter().map(disk).collect(),
            })
        }
    };
    v1::WorkspaceSpec { files: Some(files) }
}

/// A spec that a caller names; its paths are resolved and judged later.
///
/// # Errors
/// `Invalid`, naming the field.
pub fn spec(spec: Option<v1::WorkspaceSpec>) -> Result<Spec, HostFault> {
    match spec.and_then(|spec| spec.files) {
        None => Err(HostFault::invalid("spec", "set spec.directory or spec.machine")),
        Some(v1::workspace_spec::Files::Directory(directory)) => Ok(Spec::Directory { root: directory.root.into() }),
        Some(v1::workspace_spec::Files::Machine(machine)) => {
            let guest = machine.guest.map(|found| guest(found, "spec.machine.guest")).transpose()?;
            let disks = machine.disks.into_iter().enumerate().map(|(index, found)| disk(found, index));
            Ok(Spec::Machine { guest, disks: disks.collect::<Result<_, _>>()? })
        }
    }
}

/// A guest's address.
///
/// # Errors
/// `Invalid`, naming the field.
pub fn guest(guest: v1::Guest, field: &str) -> Result<Guest, HostFault> {
    let address = match guest.address {
        None => return Err(HostFault::invalid(field, "set the guest's address")),
        Some(v1::guest::Address::HybridVsock(hybrid)) => {
            GuestAddress::HybridVsock { socket: hybrid.socket_path.into(), port: hybrid.port }
        }
        Some(v1::guest::Address::Vsock(vsock)) => GuestAddress::Vsock { cid: vsock.cid, port: vsock.port },
        Some(v1::guest::Address::UnixPath(path)) => GuestAddress::Unix(path.into()),
        Some(v1::guest::Address::Tcp(address)) => GuestAddress::Tcp(address),
    };
    if guest.guest_token.len() > TOKEN_BYTES_MAX {
        let what = format!("the token has {} bytes, over the limit of {TOKEN_BYTES_MAX}", guest.guest_token.len());
        return Err(HostFault::invalid(format!("{field}.guest_token"), what));
    }
    Ok(Guest { address, token: guest.guest_token })
}

fn disk(disk: v1::Disk, index: usize) -> Result<Disk, HostFault> {
    let invalid = |field: &str, what: &str| HostFault::invalid(format!("spec.machine.disks[{index}].{field}"), what);
    let layer = |layer: v1::DiskLayer| {
        let format = match v1::DiskFormat::try_from(layer.format) {
            Ok(v1::DiskFormat::Raw) => DiskFormat::Raw,
            Ok(v1::DiskFormat::Qcow2) => DiskFormat::Qcow2,
            _ => return Err(invalid("layers", "each layer needs its format, which is never guessed from content")),
        };
        Ok(DiskLayer { path: layer.path.into(), format })
    };
    let partition = match disk.partition {
        None => None,
        Some(v1::disk::Partition::PartitionNumber(0)) => {
            return Err(invalid("partition_number", "partitions are numbered from 1"));
        }
        Some(v1::disk::Partition::PartitionNumber(number)) => Some(DiskPartition::Number(number)),
        Some(v1::disk::Partition::PartitionGuid(guid)) => Some(DiskPartition::Guid(guid)),
    };
    let file_system = match v1::FileSystem::try_from(disk.file_system) {
        Ok(v1::FileSystem::Ext4) => FileSystem::Ext4,
        Ok(v1::FileSystem::Xfs) => FileSystem::Xfs,
        Ok(v1::FileSystem::Btrfs) => FileSystem::Btrfs,
        _ => return Err(invalid("file_system", "name the file system, which is never guessed from content")),
    };
    Ok(Disk {
        layers: disk.layers.into_iter().map(layer).collect::<Result<_, _>>()?,
        partition,
        file_system,
        mount_path: if disk.mount_path.is_empty() { "/".to_owned() } else { disk.mount_path },
        flushes: disk.flushes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_goes_to_the_wire_and_back_but_for_its_token() {
        let spec_in = Spec::Machine {
            guest: Some(Guest { address: GuestAddress::Vsock { cid: 3, port: 4 }, token: "secret".to_owned() }),
            disks: vec![Disk {
                layers: vec![DiskLayer { path: "/d.qcow2".into(), format: DiskFormat::Qcow2 }],
                partition: Some(DiskPartition::Number(2)),
                file_system: FileSystem::Ext4,
                mount_path: "/home".to_owned(),
                flushes: true,
            }],
        };
        let Spec::Machine { guest: Some(shown), disks } = spec(Some(spec_to(&spec_in))).unwrap() else {
            panic!("a machine was put in")
        };
        assert_eq!(shown.token, "");
        let guest = Some(Guest { token: "secret".to_owned(), ..shown });
        assert_eq!(Spec::Machine { guest, disks }, spec_in);
    }

    #[test]
    fn a_token_is_bounded() {
        let found = |bytes| {
            let address = Some(v1::guest::Address::UnixPath("/run/vm/1.sock".to_owned()));
            match guest(v1::Guest { address, guest_token: "t".repeat(bytes) }, "guest") {
                Ok(_) => None,
                Err(HostFault::Invalid { field, .. }) => Some(field),
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(found(TOKEN_BYTES_MAX), None);
        assert_eq!(found(TOKEN_BYTES_MAX + 1).as_deref(), Some("guest.guest_token"));
    }

    #[test]
    fn what_is_never_guessed_must_be_named() {
        let check = |disk: v1::Disk, expect: &str| {
            let machine = v1::Machine { guest: None, disks: vec![disk] };
            let asked = v1::WorkspaceSpec { files: Some(v1::workspace_spec::Files::Machine(machine)) };
            match spec(Some(asked)) {
                Err(HostFault::Invalid { field, .. }) => assert_eq!(field, expect),
                other => panic!("{other:?}"),
            }
        };
        let layer = |format| v1::DiskLayer { path: "/d".to_owned(), format };
        let disk = v1::Disk { layers: vec![layer(1)], file_system: 1, ..Default::default() };
        check(v1::Disk { file_system: 0, ..disk.clone() }, "spec.machine.disks[0].file_system");
        check(v1::Disk { layers: vec![layer(0)], ..disk.clone() }, "spec.machine.disks[0].layers");
        let zero = Some(v1::disk::Partition::PartitionNumber(0));
        check(v1::Disk { partition: zero, ..disk }, "spec.machine.disks[0].partition_number");
        assert!(matches!(spec(None), Err(HostFault::Invalid { .. })));
    }
}
