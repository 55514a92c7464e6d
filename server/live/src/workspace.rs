//! One directory workspace: its tree, and every change of it.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{MakeDirectoryPlan, MovePlan, PlaceDone, RemoveDone, RemovePlan, WriteDone, WritePlan},
    limits::Limits,
    patch::{PatchDone, PatchPlan},
};

use crate::tree::LiveTree;

/// Bounds of a workspace's changes.
#[derive(Debug, Clone)]
pub struct LiveLimits {
    /// Of the engines.
    pub files: Limits,
    /// A key is never forgotten sooner.
    pub key_retention: Duration,
    /// Nor kept longer.
    pub key_retention_max: Duration,
    /// Bytes of the journal.
    pub journal_bytes_max: u64,
}

impl Default for LiveLimits {
    fn default() -> Self {
        Self {
            files: Limits::default(),
            key_retention: Duration::from_secs(15 * 60),
            key_retention_max: Duration::from_secs(24 * 60 * 60),
            journal_bytes_max: 64 << 20,
        }
    }
}

/// Why a directory cannot be a workspace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The root is missing, no directory, or not ours to open.
    #[error("{} cannot be opened as a workspace's root", .root.display())]
    Root {
        /// As given.
        root: PathBuf,
        /// From the system.
        #[source]
        source: io::Error,
    },
    /// The kernel lacks a call that confinement needs.
    #[error("this kernel has no {call}, without which paths cannot be confined")]
    Kernel {
        /// The system call.
        call: &'static str,
    },
    /// The state directory or its journal cannot be used.
    #[error("the state directory {} cannot be used", .path.display())]
    State {
        /// The place.
        path: PathBuf,
        /// From the system.
        #[source]
        source: io::Error,
    },
}

/// A directory workspace that is open. Shared by all calls; every method blocks.
pub struct Workspace {
    tree: LiveTree,
}

/// How a Write begins.
pub enum WriteBegin {
    /// It was done before: here is the stored answer, no data is needed.
    Replayed(WriteDone),
    /// Send the data.
    Staged(StagedWrite),
}

/// A Write whose data is arriving. Dropped before `finish`, it leaves nothing behind.
pub struct StagedWrite {
    _private: (),
}

impl Workspace {
    /// Opens the directory `root`; `agent_state` is where the agent may keep what belongs to no workspace's file system.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(root: &Path, agent_state: &Path, limits: LiveLimits) -> Result<Self, OpenError> {
        let _ = (root, agent_state, limits);
        Err(OpenError::Kernel { call: "openat2" })
    }

    /// Its files, for reading.
    pub fn tree(&self) -> &LiveTree {
        &self.tree
    }

    /// Replaces text in a file, or its whole content.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Patch.
    pub fn patch(&self, plan: &PatchPlan, budget: &dyn Budget) -> Result<PatchDone, Fault> {
        let _ = (plan, budget);
        Err(Fault::Internal("not built yet"))
    }

    /// Begins a Write: checks everything that can be checked before the data.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Write.
    pub fn write(&self, plan: &WritePlan) -> Result<WriteBegin, Fault> {
        let _ = plan;
        Err(Fault::Internal("not built yet"))
    }

    /// Removes a file, a link, an empty directory, or with `recursive` a whole one.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Remove.
    pub fn remove(&self, plan: &RemovePlan, budget: &dyn Budget) -> Result<RemoveDone, Fault> {
        let _ = (plan, budget);
        Err(Fault::Internal("not built yet"))
    }

    /// Renames a file or directory within the workspace.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Move.
    pub fn rename(&self, plan: &MovePlan, budget: &dyn Budget) -> Result<PlaceDone, Fault> {
        let _ = (plan, budget);
        Err(Fault::Internal("not built yet"))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of MakeDirectory.
    pub fn make_directory(&self, plan: &MakeDirectoryPlan) -> Result<PlaceDone, Fault> {
        let _ = plan;
        Err(Fault::Internal("not built yet"))
    }
}

impl StagedWrite {
    /// The next piece of the content.
    ///
    /// # Errors
    /// `DiskFull` and what the system says.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let _ = piece;
        Err(Fault::Internal("not built yet"))
    }

    /// Makes the whole visible and durable. `size_bytes` and `crc32c` are what the caller believes it sent.
    ///
    /// # Errors
    /// `Invalid` where they differ from what arrived, and as `ErrorReason` in files.proto says of Write.
    pub fn finish(self, size_bytes: u64, crc32c: Option<u32>, budget: &dyn Budget) -> Result<WriteDone, Fault> {
        let _ = (size_bytes, crc32c, budget);
        Err(Fault::Internal("not built yet"))
    }
}
