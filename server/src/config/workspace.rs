//! `[[workspace]]`: a workspace that is known from the start, as the operator writes it down.

use std::{io::Read as _, path::PathBuf};

use serde::Deserialize;

use crate::{
    config::ConfigError,
    host::{
        allowed::TOKEN_BYTES_MAX,
        spec::{Disk, DiskFormat, DiskLayer, DiskPartition, FileSystem, Guest, GuestAddress, Spec, check_name},
        state::State,
    },
};

/// `[[workspace]]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceConfig {
    /// Such as `customer-42/main`.
    pub name: String,
    /// `running`, the default, or `suspended`.
    #[serde(default = "running")]
    pub state: ConfiguredState,
    /// A directory of this host; or else `disk`.
    pub directory: Option<PathBuf>,
    /// A machine's disk.
    pub disk: Option<DiskConfig>,
    /// Where the machine's own agent listens.
    pub guest: Option<GuestAddressConfig>,
    /// A file with the token that is sent to that agent with every call.
    pub guest_token_file: Option<PathBuf>,
}

/// In which state a workspace of the configuration begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfiguredState {
    /// It runs.
    Running,
    /// Its disk is sealed at once.
    Suspended,
}

fn running() -> ConfiguredState {
    ConfiguredState::Running
}

/// A disk of a workspace of the configuration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// The image or block device that is written.
    pub path: PathBuf,
    /// Never guessed.
    #[serde(default = "raw")]
    pub format: DiskFormat,
    /// The images behind it, nearest first.
    #[serde(default)]
    pub backing: Vec<DiskLayer>,
    /// 1-based number in the partition table.
    pub partition: Option<u32>,
    /// In a GPT; or else `partition`.
    pub partition_guid: Option<String>,
    /// Only ext4 is read.
    #[serde(default = "ext4")]
    pub file_system: FileSystem,
    /// Where in the workspace it is mounted.
    #[serde(default = "root")]
    pub mount_path: String,
    /// The machine's flushes reach the host's stable storage.
    #[serde(default)]
    pub flushes: bool,
}

fn raw() -> DiskFormat {
    DiskFormat::Raw
}

fn ext4() -> FileSystem {
    FileSystem::Ext4
}

fn root() -> String {
    "/".to_owned()
}

/// An address of a guest's agent; exactly one key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestAddressConfig {
    /// A socket of Firecracker or Cloud Hypervisor.
    HybridVsock {
        /// Absolute.
        socket: PathBuf,
        /// Inside the machine.
        port: u32,
    },
    /// The host's own vsock.
    Vsock {
        /// 3 or more.
        cid: u32,
        /// Inside the machine.
        port: u32,
    },
    /// A Unix socket that speaks gRPC.
    UnixPath(PathBuf),
    /// `host:port`, loopback only.
    Tcp(String),
}

/// A workspace of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub spec: Spec,
    /// In which state it begins.
    pub state: State,
}

impl WorkspaceConfig {
    pub(super) fn check(&self) -> Result<Configured, ConfigError> {
        let wrong = |key: &str, what: &str| ConfigError::Value {
            key: format!("workspace.{key}"),
            what: format!("{}: {what}", self.name),
        };
        check_name(&self.name).map_err(|what| ConfigError::Value { key: "workspace.name".to_owned(), what })?;
        let state = match self.state {
            ConfiguredState::Running => State::Running,
            ConfiguredState::Suspended => State::Suspended,
        };
        let token = self.token(&wrong)?;
        let spec = match (&self.directory, &self.disk, &self.guest) {
            (Some(directory), None, None) => Spec::Directory { root: directory.clone() },
            (Some(_), _, _) => return Err(wrong("directory", "a directory has neither disk nor guest")),
            (None, None, None) => return Err(wrong("directory", "give a directory, or a disk or guest")),
            (None, disk, guest) => Spec::Machine {
                guest: guest.clone().map(|address| Guest {
                    address: match address {
                        GuestAddressConfig::HybridVsock { socket, port } => GuestAddress::HybridVsock { socket, port },
                        GuestAddressConfig::Vsock { cid, port } => GuestAddress::Vsock { cid, port },
                        GuestAddressConfig::UnixPath(path) => GuestAddress::Unix(path),
                        GuestAddressConfig::Tcp(address) => GuestAddress::Tcp(address),
                    },
                    token: token.clone(),
                }),
                disks: disk.iter().map(|disk| disk.check(&wrong)).collect::<Result<_, _>>()?,
            },
        };
        Ok(Configured { name: self.name.clone(), spec, state })
    }
}

impl WorkspaceConfig {
    /// What its guest's token file holds, but for the end of its line; nothing where there is none.
    fn token(&self, wrong: &impl Fn(&str, &str) -> ConfigError) -> Result<String, ConfigError> {
        let key = "guest_token_file";
        let Some(path) = &self.guest_token_file else { return Ok(String::new()) };
        if self.guest.is_none() {
            return Err(wrong(key, "there is no guest that it could be sent to; give guest too"));
        }
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(TOKEN_BYTES_MAX as u64 + 3).read_to_string(&mut text))
            .map_err(|error| wrong(key, &format!("{}: {error}", path.display())))?;
        let token = text.trim_end_matches(['\r', '\n']);
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = format!("{}: a token is 1 to {TOKEN_BYTES_MAX} printable ASCII characters", path.display());
            return Err(wrong(key, &what));
        }
        Ok(token.to_owned())
    }
}

impl DiskConfig {
    fn check(&self, wrong: &impl Fn(&str, &str) -> ConfigError) -> Result<Disk, ConfigError> {
        let first = DiskLayer { path: self.path.clone(), format: self.format };
        Ok(Disk {
            layers: [first].into_iter().chain(self.backing.iter().cloned()).collect(),
            partition: match (self.partition, &self.partition_guid) {
                (None, None) => None,
                (Some(0), _) => return Err(wrong("disk.partition", "partitions are numbered from 1")),
                (Some(number), None) => Some(DiskPartition::Number(number)),
                (None, Some(guid)) => Some(DiskPartition::Guid(guid.clone())),
                (Some(_), Some(_)) => {
                    return Err(wrong("disk.partition", "give partition or partition_guid, not both"));
                }
            },
            file_system: self.file_system,
            mount_path: self.mount_path.clone(),
            flushes: self.flushes,
        })
    }
}
