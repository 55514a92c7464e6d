//! Why a directory cannot be opened as a workspace. Why a call on one fails is `dormouse_files::Fault`.

use std::{io, path::PathBuf};

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
