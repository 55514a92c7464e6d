//! The disk of a suspended workspace, read straight from its image: no root, no mount, and never a write.

use std::{io, path::PathBuf};

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

/// Bounds against a hostile image.
#[derive(Debug, Clone)]
pub struct DiskLimits {
    /// Bytes of blocks that a replayed journal may put over the disk.
    pub overlay_bytes_max: u64,
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self { overlay_bytes_max: 256 << 20 }
    }
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

/// A disk that is open; implements `Tree`.
pub struct Volume {
    _private: (),
}

/// How true a disk's answers are to the moment of the suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// The journal needed no recovery.
    Exact,
    /// The journal was replayed in memory.
    Crash,
}

impl Volume {
    /// Opens the file system on a disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(spec: &DiskSpec, unsealed: Unsealed, limits: &DiskLimits) -> Result<Self, OpenError> {
        let _ = (spec, unsealed, limits);
        Err(OpenError::Unavailable { what: "not built yet".to_owned() })
    }

    /// How true its answers are.
    pub fn consistency(&self) -> Consistency {
        Consistency::Exact
    }
}
