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
    /// How long the one who flushes the journal waits for changes that are about to write to it; a lone change waits for
    /// nobody.
    pub gather: Duration,
    /// And for how many of them.
    pub gather_count_max: u64,
    /// How long a displaced file stays after its change is durable: who looked its name up before that and writes to it
    /// only now is noticed.
    pub lingering: Duration,
    /// Displaced files that stay so; beyond that the oldest go sooner.
    pub lingering_count_max: usize,
    /// Their bytes, too.
    pub lingering_bytes_max: u64,
    /// Displaced files that are kept because somebody wrote to them late; beyond that the oldest go.
    pub kept_count_max: usize,
    /// Their bytes, too.
    pub kept_bytes_max: u64,
    /// How long a file system that is mounted beneath the root stays open after its last change: until then it cannot be
    /// unmounted.
    pub nested_idle: Duration,
    /// Such file systems that are open for changes at once.
    pub nested_count_max: usize,
}

impl Default for LiveLimits {
    fn default() -> Self {
        Self {
            files: Limits::default(),
            key_retention: Duration::from_secs(15 * 60),
            key_retention_max: Duration::from_secs(24 * 60 * 60),
            journal_bytes_max: 64 << 20,
            gather: Duration::from_millis(4),
            gather_count_max: 64,
            lingering: Duration::from_secs(1),
            lingering_count_max: 4096,
            lingering_bytes_max: 32 << 20,
            kept_count_max: 64,
            kept_bytes_max: 256 << 20,
            nested_idle: Duration::from_secs(2),
            nested_count_max: 16,
        }
    }
}
