//! What a workspace is made of, as its registration says it: a directory of this host, or a machine with disks. These
//! words are kept in the record of a workspace, so a change of their shape is a change of the record's schema.

use std::path::PathBuf;

use dormouse_disk::{DiskSpec, Format, Layer, Partition};
use dormouse_files::path::TreePath;
use serde::{Deserialize, Serialize};

/// Longest name of a workspace, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Whether a name is a workspace's: 1 to 128 of `a-z A-Z 0-9 . _ -` in parts joined by `/`, no part `.` or `..`.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a workspace's name is missing; give one such as customer-42/main".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("a workspace's name has at most {NAME_BYTES_MAX} bytes, this one {}", name.len()));
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    for part in name.split('/') {
        if part.is_empty() || part == "." || part == ".." || !part.bytes().all(known) {
            return Err(format!("{name:?} is no workspace's name: parts of a-z A-Z 0-9 . _ - joined by /"));
        }
    }
    Ok(())
}

/// A workspace's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Spec {
    /// A directory of this host.
    Directory {
        /// Absolute.
        root: PathBuf,
    },
    /// A machine with disks.
    Machine {
        /// Where its own agent listens; nothing: nowhere.
        guest: Option<Guest>,
        /// Each file system that can be read from a disk.
        disks: Vec<Disk>,
    },
}

/// Where the agent inside a running machine listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// The address.
    pub address: GuestAddress,
    /// Sent to the guest with every call; never shown.
    pub token: String,
}

/// An address of a guest's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestAddress {
    /// A socket of Firecracker or Cloud Hypervisor.
    HybridVsock {
        /// Absolute.
        socket: PathBuf,
        /// Inside the machine.
        port: u32,
    },
    /// The host's own vsock.
    Vsock {
        /// Of the machine, 3 or more.
        cid: u32,
        /// Inside the machine.
        port: u32,
    },
    /// A Unix socket that speaks gRPC.
    Unix(PathBuf),
    /// `host:port`, loopback only.
    Tcp(String),
}

/// One file system of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The layer that is written, then each one behind it. Never empty.
    pub layers: Vec<DiskLayer>,
    /// Which part of the disk; nothing: the file system fills it.
    pub partition: Option<DiskPartition>,
    /// What it holds.
    pub file_system: FileSystem,
    /// Where in the workspace it is mounted.
    pub mount_path: String,
    /// The machine's flushes reach the host's stable storage.
    pub flushes: bool,
}

/// One file or block device of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskLayer {
    /// Absolute, links already resolved.
    pub path: PathBuf,
    /// How its bytes are laid out.
    pub format: DiskFormat,
}

/// How a layer's bytes are laid out. Never guessed from content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFormat {
    /// As they are.
    Raw,
    /// QEMU's qcow2.
    Qcow2,
}

/// A part of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskPartition {
    /// 1-based.
    Number(u32),
    /// In a GPT.
    Guid(String),
}

/// What a disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSystem {
    /// Read here.
    Ext4,
    /// Kept in the record, not read here.
    Xfs,
    /// Kept in the record, not read here.
    Btrfs,
}

impl FileSystem {
    /// As the configuration and notes carry it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

impl Disk {
    /// For the disk reader.
    pub fn to_reader(&self) -> DiskSpec {
        let layer = |layer: &DiskLayer| Layer {
            path: layer.path.clone(),
            format: match layer.format {
                DiskFormat::Raw => Format::Raw,
                DiskFormat::Qcow2 => Format::Qcow2,
            },
        };
        DiskSpec {
            layers: self.layers.iter().map(layer).collect(),
            partition: self.partition.clone().map(|partition| match partition {
                DiskPartition::Number(number) => Partition::Number(number),
                DiskPartition::Guid(guid) => Partition::Guid(guid),
            }),
        }
    }
}

impl Spec {
    /// The same, but for the token of its guest.
    pub fn without_token(&self) -> Self {
        let mut spec = self.clone();
        if let Self::Machine { guest: Some(guest), .. } = &mut spec {
            guest.token = String::new();
        }
        spec
    }

    /// The disk that holds the workspace's root; nothing for a directory, or where no disk does.
    pub fn root_disk(&self) -> Option<&Disk> {
        match self {
            Self::Directory { .. } => None,
            Self::Machine { disks, .. } => disks.iter().find(|disk| disk.mount_path == "/"),
        }
    }

    /// Mount points that the root's disk does not hold: nothing under them is answered from it.
    pub fn mounts_elsewhere(&self) -> Vec<TreePath> {
        match self {
            Self::Directory { .. } => Vec::new(),
            Self::Machine { disks, .. } => disks
                .iter()
                .filter_map(|disk| TreePath::parse(disk.mount_path.as_bytes()).ok())
                .filter(|path| !path.is_root())
                .collect(),
        }
    }

    /// Every file that the spec names, for the check against other workspaces.
    pub fn layers(&self) -> impl Iterator<Item = &DiskLayer> {
        let disks = match self {
            Self::Directory { .. } => [].as_slice(),
            Self::Machine { disks, .. } => disks.as_slice(),
        };
        disks.iter().flat_map(|disk| &disk.layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_known_letters() {
        for good in ["a", "customer-42/main", "A.b_c-9", "a/b/c", "..."] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let long = "x".repeat(129);
        for bad in ["", "/", "a/", "/a", "a//b", ".", "a/..", "a b", "ä", "a\0", long.as_str()] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
