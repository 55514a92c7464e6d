//! Directory workspaces: a directory of this host, read through confined descriptors and changed durably and exactly once.

mod errno;
pub mod tree;
pub mod workspace;

pub use tree::{LiveDirectory, LiveFile, LiveTree};
pub use workspace::{LiveLimits, OpenError, StagedWrite, Workspace, WriteBegin};
