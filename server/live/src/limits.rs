//! Every bound of a directory workspace, passed in where it is used.

use std::time::Duration;

use dormouse_files::limits::Limits;

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
