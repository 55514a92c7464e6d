//! What a caller says of a disk, and what it is told when the disk cannot answer.

use std::{io, path::PathBuf};

use dormouse_files::tree::TreeError;

/// Where a disk's bytes are, as the workspace's record says it. Nothing of it is ever guessed from content: a guest can
/// write any header into its own disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// The layer that is written, then each one behind it. Never empty.
    pub layers: Vec<Layer>,
    /// Which part of the disk; nothing: the file system fills it.
    pub partition: Option<Partition>,
}

/// One file or block device of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Absolute.
    pub path: PathBuf,
    /// How its bytes are laid out.
    pub format: Format,
}

/// How a layer's bytes are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As they are.
    Raw,
    /// QEMU's qcow2, versions 2 and 3.
    Qcow2,
}

/// A part of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partition {
    /// 1-based, in a GPT or MBR.
    Number(u32),
    /// In a GPT, such as `0fc63daf-8483-4772-8e79-3d69d8477de4`.
    Guid(String),
}

/// Whether a disk whose journal needs recovery may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsealed {
    /// It may not.
    Never,
    /// It may, with what the replayed journal holds, as after a power cut.
    Crash,
}

/// How true a disk's answers are to the moment of the suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// The journal needed no recovery.
    Exact,
    /// The journal was replayed in memory.
    Crash,
}

/// Why a disk cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can be told what is wrong, and another host or a resume can help.
    #[error("the disk cannot be read here: {what}")]
    Unavailable {
        /// Such as `needs_recovery`, or the feature that is not known.
        what: String,
    },
    /// It does not parse, or a checksum does not hold.
    #[error("the disk is corrupt: {what}")]
    Corrupt {
        /// The structure and its place.
        what: String,
    },
    /// The replayed journal is larger than its bound.
    #[error("the journal holds more than {limit_bytes} bytes")]
    OverlayTooLarge {
        /// The bound.
        limit_bytes: u64,
    },
    /// The system failed.
    #[error("{} cannot be read", .path.display())]
    Io {
        /// The layer.
        path: PathBuf,
        /// From the system.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// What a tree's own error means while the disk is being opened; `path` is the layer that is written.
    pub(crate) fn from_tree(error: TreeError, path: &std::path::Path) -> Self {
        match error {
            TreeError::Unavailable { what } => Self::Unavailable { what },
            TreeError::Corrupt { what } => Self::Corrupt { what },
            TreeError::Io(source) => Self::Io { path: path.to_owned(), source },
            // Nothing else is bounded while a disk is opened.
            TreeError::OverLimit { limit, .. } => Self::OverlayTooLarge { limit_bytes: limit },
            other => Self::Corrupt { what: other.to_string() },
        }
    }
}
