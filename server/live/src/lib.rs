//! Directory workspaces: a directory of this host, read through confined descriptors and changed durably and exactly once.
//!
//! ```text
//! Workspace ─┬─ tree ──────────────► openat2, one name at a time
//!            └─ patch, write, remove, rename, make_directory
//!                 └─ ledger (key known?) ─ locate ─ lock ─ current ─ stage ─ ledger (intent) ─ commit ─ ledger (done)
//! open ──► state ──► ledger ──► recover ──► sweep
//! ```
//! Inside a machine a workspace has the file systems that are mounted beneath its root, too: `mounts` steps into them for
//! reading, `nested` opens the one that a change is on.
//!
//! The steps of a change are numbered P1 to P7 where they are made: P1 lock and read, P2 stage, P3 intent, P4 exchange, P5
//! look at what was displaced, P6 flush the directories, P7 done. A crash between any two of them leaves the old file or
//! the new one, and a retry with the same key finds out which.

mod aside;
mod attributes;
mod beneath;
mod commit;
mod content;
mod displaced;
mod errno;
mod error;
pub mod fail;
mod inner;
mod journal;
mod ledger;
mod limits;
mod lingering;
mod locate;
mod lock;
mod make_directory;
pub mod mounts;
mod nested;
mod patch;
mod read;
mod record;
mod recover;
mod remove;
mod rename;
mod stage;
mod state;
mod subject;
mod sweep;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod workspace;
mod write;

pub use displaced::{LateWrite, LateWriteListener};
pub use error::OpenError;
pub use limits::LiveLimits;
pub use mounts::{MountRoot, Mounts};
pub use tree::{LiveDirectory, LiveFile, LiveTree};
pub use workspace::{Stats, Workspace};
pub use write::{StagedWrite, WriteBegin};
