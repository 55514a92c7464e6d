//! `dormouse workspaces register`

use std::path::PathBuf;

use dormouse_client::proto::host::v1::{
    Directory, Disk, DiskFormat, DiskLayer, FileSystem, Guest, HybridVsock, Machine, RegisterWorkspaceRequest, Vsock,
    WorkspaceSpec, WorkspaceState, disk::Partition, guest::Address, workspace_spec::Files,
};
use serde::Deserialize;

use super::print;
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
};

const SPEC_BYTES_MAX: u64 = 1024 * 1024;

/// Make a workspace known to the host
///
/// A directory of the host, or a machine that a JSON file describes.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("spec").required(true),
    after_help = "Examples:\n  \
        dormouse workspaces register customer-42/main --directory /srv/workspaces/42/root\n  \
        dormouse workspaces register customer-43/main --spec-file machine.json --suspended\n\n\
        SPEC: {\"machine\": {\"guest\": {\"hybrid_vsock\": {\"socket_path\": …, \"port\": 1024}}, \"disks\": [{\"layers\":\n\
        [{\"path\": …, \"format\": \"raw\"}], \"file_system\": \"ext4\", \"flushes\": true}]}}, or {\"directory\": {\"root\": …}}."
)]
pub struct Args {
    /// Such as customer-42/main
    workspace: String,
    /// A directory of the host that is the workspace's root
    #[arg(long, value_name = "ROOT", group = "spec")]
    directory: Option<String>,
    /// The workspace's spec, as JSON
    #[arg(long, value_name = "SPEC", group = "spec")]
    spec_file: Option<PathBuf>,
    /// It does not run now: its disk is looked at at once
    #[arg(long)]
    suspended: bool,
    /// Of this call, from the control plane; 0: the first one
    #[arg(long, value_name = "N", default_value_t = 0)]
    at: i64,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let files = match (args.directory, &args.spec_file) {
        (Some(root), _) => Files::Directory(Directory { root }),
        (None, Some(path)) => {
            let named = |error| Failure::File(path.display().to_string(), error);
            let file = std::fs::File::open(path).map_err(named)?;
            let mut text = String::new();
            std::io::Read::read_to_string(&mut std::io::Read::take(file, SPEC_BYTES_MAX), &mut text).map_err(named)?;
            spec(&text)?
        }
        (None, None) => return Err(Failure::Usage("give --directory or --spec-file".into())),
    };
    let state = if args.suspended { WorkspaceState::Suspended } else { WorkspaceState::Unspecified };
    let request = RegisterWorkspaceRequest {
        name: args.workspace,
        spec: Some(WorkspaceSpec { files: Some(files) }),
        generation: args.at,
        state: state.into(),
    };
    let answer = context.host.register_workspace(request).await?;
    print(context, answer.workspace)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Spec {
    Directory {
        root: String,
    },
    Machine {
        #[serde(default)]
        guest: Option<GuestSpec>,
        #[serde(default)]
        disks: Vec<DiskSpec>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GuestSpec {
    #[serde(default)]
    hybrid_vsock: Option<HybridVsockSpec>,
    #[serde(default)]
    vsock: Option<VsockSpec>,
    #[serde(default)]
    unix_path: Option<String>,
    #[serde(default)]
    tcp: Option<String>,
    #[serde(default)]
    guest_token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HybridVsockSpec {
    socket_path: String,
    port: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VsockSpec {
    cid: u32,
    port: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskSpec {
    layers: Vec<LayerSpec>,
    #[serde(default)]
    partition_number: Option<u32>,
    #[serde(default)]
    partition_guid: Option<String>,
    file_system: FileSystemSpec,
    #[serde(default)]
    mount_path: String,
    #[serde(default)]
    flushes: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerSpec {
    path: String,
    format: FormatSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatSpec {
    Raw,
    Qcow2,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileSystemSpec {
    Ext4,
    Xfs,
    Btrfs,
}

fn spec(text: &str) -> Result<Files, Failure> {
    let spec = serde_json::from_str(text).map_err(|error| Failure::Usage(format!("--spec-file: {error}")))?;
    Ok(match spec {
        Spec::Directory { root } => Files::Directory(Directory { root }),
        Spec::Machine { guest, disks } => {
            let guest = guest.map(address).transpose()?;
            let disks = disks.into_iter().map(disk).collect::<Result<_, _>>()?;
            Files::Machine(Machine { guest, disks })
        }
    })
}

fn address(guest: GuestSpec) -> Result<Guest, Failure> {
    let address = match (guest.hybrid_vsock, guest.vsock, guest.unix_path, guest.tcp) {
        (Some(at), None, None, None) => {
            Address::HybridVsock(HybridVsock { socket_path: at.socket_path, port: at.port })
        }
        (None, Some(at), None, None) => Address::Vsock(Vsock { cid: at.cid, port: at.port }),
        (None, None, Some(path), None) => Address::UnixPath(path),
        (None, None, None, Some(at)) => Address::Tcp(at),
        _ => {
            let fact = "--spec-file: guest: give exactly one of hybrid_vsock, vsock, unix_path and tcp";
            return Err(Failure::Usage(fact.into()));
        }
    };
    Ok(Guest { address: Some(address), guest_token: guest.guest_token })
}

fn disk(disk: DiskSpec) -> Result<Disk, Failure> {
    let partition = match (disk.partition_number, disk.partition_guid) {
        (None, None) => None,
        (Some(number), None) => Some(Partition::PartitionNumber(number)),
        (None, Some(guid)) => Some(Partition::PartitionGuid(guid)),
        (Some(_), Some(_)) => {
            let fact = "--spec-file: disk: partition_number and partition_guid exclude each other";
            return Err(Failure::Usage(fact.into()));
        }
    };
    let layer = |layer: LayerSpec| {
        let format = match layer.format {
            FormatSpec::Raw => DiskFormat::Raw,
            FormatSpec::Qcow2 => DiskFormat::Qcow2,
        };
        DiskLayer { path: layer.path, format: format.into() }
    };
    let file_system = match disk.file_system {
        FileSystemSpec::Ext4 => FileSystem::Ext4,
        FileSystemSpec::Xfs => FileSystem::Xfs,
        FileSystemSpec::Btrfs => FileSystem::Btrfs,
    };
    Ok(Disk {
        layers: disk.layers.into_iter().map(layer).collect(),
        partition,
        file_system: file_system.into(),
        mount_path: disk.mount_path,
        flushes: disk.flushes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<Files, &str>) {
        match (spec(text), expect) {
            (Ok(files), Ok(expect)) => assert_eq!(files, expect),
            (Err(Failure::Usage(fact)), Err(part)) => assert!(fact.contains(part), "{fact}"),
            (got, expect) => panic!("{text}: {got:?}, not {expect:?}"),
        }
    }

    #[test]
    fn specs_are_read_and_mistakes_are_named() {
        check(r#"{"directory": {"root": "/srv/42"}}"#, Ok(Files::Directory(Directory { root: "/srv/42".into() })));
        let layers = vec![DiskLayer { path: "/d/43.img".into(), format: 2 }];
        let disk = Disk { layers, file_system: 1, flushes: true, ..Default::default() };
        let guest = Guest { address: Some(Address::Vsock(Vsock { cid: 3, port: 1024 })), guest_token: String::new() };
        check(
            r#"{"machine": {"guest": {"vsock": {"cid": 3, "port": 1024}}, "disks": [
                {"layers": [{"path": "/d/43.img", "format": "qcow2"}], "file_system": "ext4", "flushes": true}]}}"#,
            Ok(Files::Machine(Machine { guest: Some(guest), disks: vec![disk] })),
        );
        check(r#"{"machine": {"guest": {}}}"#, Err("exactly one of"));
        check(r#"{"machine": {"disk": []}}"#, Err("disk"));
        check(r#"{"directory": {"root": "/a"}, "machine": {}}"#, Err("--spec-file"));
        check("", Err("--spec-file"));
    }
}
