//! The agent's configuration: one struct for each room, read from a TOML file, overridden by flags, and refused by name
//! before anything is bound.

mod address;
mod unknown;
mod workspace;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use dormouse_disk::{DiskLimits, Unsealed};
use dormouse_files::limits::Limits;
use dormouse_live::LiveLimits;
use serde::{Deserialize, Deserializer, de};

pub use address::Address;
pub use workspace::{Configured, ConfiguredState, DiskConfig, GuestAddressConfig, WorkspaceConfig};

use crate::{
    host::{
        Feature, Settings,
        hooks::Hooks,
        index::IndexSettings,
        relay::RelaySettings,
        volumes::{Clones, VolumeSettings},
    },
    telemetry::log::{self, LogConfig},
};

/// Longest request that the decoder is set for; a larger `request_bytes_max` could never be met.
pub const REQUEST_BYTES_MAX: u64 = 7 << 20;

/// Longest configuration, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Longest time that a key may be kept.
const RETENTION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// From the system.
        #[source]
        source: std::io::Error,
    },
    /// It does not parse; the text names line and key.
    #[error("the configuration {} does not parse:\n{what}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        what: String,
    },
    /// A key has a value that makes no sense.
    #[error("{key}: {what}")]
    Value {
        /// The key, such as `limits.calls_max`.
        key: String,
        /// What is wrong and what to do.
        what: String,
    },
}

/// Everything that the agent is told.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where FilesService, health and reflection are served.
    pub listen: Vec<Address>,
    /// Where HostService, health and reflection are served; Unix sockets only.
    pub host_listen: Vec<Address>,
    /// What must survive a restart.
    pub state_dir: PathBuf,
    /// RegisterWorkspace takes no path outside these.
    pub roots: Vec<PathBuf>,
    /// Nor a socket outside these.
    pub socket_roots: Vec<PathBuf>,
    /// Nor a block device outside these.
    pub device_roots: Vec<PathBuf>,
    /// Nor a TCP port outside this range, such as `20000-20999`; empty: none.
    pub guest_tcp_ports: String,
    /// What is switched off.
    pub disable_features: Vec<String>,
    /// Bounds.
    pub limits: LimitsConfig,
    /// Of workspaces at rest.
    pub offline: OfflineConfig,
    /// Of searches.
    pub search: SearchConfig,
    /// Of keys that make a change happen once.
    pub idempotency: IdempotencyConfig,
    /// Of the way to a running machine's own agent.
    pub guest: GuestConfig,
    /// Commands around a suspend and a resume.
    pub hooks: HooksConfig,
    /// Of the log.
    pub log: LogConfig,
    /// Workspaces that are known from the start.
    #[serde(rename = "workspace")]
    pub workspaces: Vec<WorkspaceConfig>,
    /// Takes a state directory in memory; only in process, for a demonstration or a test.
    #[serde(skip)]
    pub state_may_vanish: bool,
}

/// `[limits]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Longest request, in bytes of its encoding; at most 7 MiB.
    pub request_bytes_max: u64,
    /// Largest file that Patch takes or leaves, in bytes.
    pub patch_file_bytes_max: u64,
    /// Most bytes that one Read of a disk returns.
    pub offline_read_bytes_max: u64,
    /// Largest file on a disk whose revision is computed, in bytes.
    pub offline_revision_bytes_max: u64,
    /// Time to the first byte of a disk's answer.
    #[serde(deserialize_with = "duration")]
    pub offline_budget: Duration,
    /// Time of one Search or List.
    #[serde(deserialize_with = "duration")]
    pub search_budget: Duration,
    /// Calls at once; a workspace gets at most half of them.
    pub calls_max: usize,
    /// Bound on the way down.
    #[serde(deserialize_with = "duration")]
    pub drain: Duration,
}

/// `[offline]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OfflineConfig {
    /// `never`, or `crash`: what a replayed journal holds.
    pub serve_unsealed: ServeUnsealed,
    /// `auto`, or `never`: whether a sealed disk is read from a reflink clone, made at Seal.
    pub clone: CloneMode,
}

/// Whether a disk whose journal needs recovery may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ServeUnsealed {
    /// It may not.
    Never,
    /// It may, marked so.
    Crash,
}

/// Whether a sealed disk is cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum CloneMode {
    /// Where the file system can.
    Auto,
    /// Never.
    Never,
}

/// `[search]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchConfig {
    /// `on`, or `off`: whether disks at rest get an index.
    pub index: SearchIndex,
    /// Bytes of all indexes in memory, and so the most that one may have.
    pub index_memory_bytes_max: u64,
    /// Bytes of all indexes in the state directory.
    pub index_disk_bytes_max: u64,
}

/// Whether there are search indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SearchIndex {
    /// There are none.
    Off,
    /// A disk at rest gets one by its first search that reads all of it.
    On,
}

/// `[idempotency]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdempotencyConfig {
    /// A key is never forgotten sooner.
    #[serde(deserialize_with = "duration")]
    pub retention: Duration,
    /// Nor kept longer.
    #[serde(deserialize_with = "duration")]
    pub retention_max: Duration,
    /// For each workspace.
    pub journal_bytes_max: u64,
}

/// `[guest]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestConfig {
    /// Connecting, hybrid vsock's OK included.
    #[serde(deserialize_with = "duration")]
    pub connect: Duration,
    /// Between two pings.
    #[serde(deserialize_with = "duration")]
    pub ping: Duration,
    /// Pings without an answer before the guest is unreachable.
    pub ping_lost: u32,
}

/// `[hooks]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// An argv, no shell; empty: nothing.
    pub pause: Vec<String>,
    /// An argv, no shell; empty: nothing.
    pub resume: Vec<String>,
    /// Bound on each.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    humantime::parse_duration(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

impl Default for Config {
    fn default() -> Self {
        let runtime = runtime_dir();
        Self {
            listen: vec![Address::Unix(runtime.join("files.sock"))],
            host_listen: vec![Address::Unix(runtime.join("host.sock"))],
            state_dir: state_dir(),
            roots: Vec::new(),
            socket_roots: Vec::new(),
            device_roots: Vec::new(),
            guest_tcp_ports: String::new(),
            disable_features: Vec::new(),
            limits: LimitsConfig::default(),
            offline: OfflineConfig::default(),
            search: SearchConfig::default(),
            idempotency: IdempotencyConfig::default(),
            guest: GuestConfig::default(),
            hooks: HooksConfig::default(),
            log: LogConfig::default(),
            workspaces: Vec::new(),
            state_may_vanish: false,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            request_bytes_max: limits.request_bytes_max,
            patch_file_bytes_max: limits.patch_file_bytes_max,
            offline_read_bytes_max: limits.offline_read_bytes_max,
            offline_revision_bytes_max: limits.offline_revision_bytes_max,
            offline_budget: limits.offline_budget,
            search_budget: limits.search_budget,
            calls_max: 256,
            drain: Duration::from_secs(20),
        }
    }
}

impl Default for OfflineConfig {
    fn default() -> Self {
        Self { serve_unsealed: ServeUnsealed::Never, clone: CloneMode::Auto }
    }
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { index: SearchIndex::On, index_memory_bytes_max: 256 << 20, index_disk_bytes_max: 4 << 30 }
    }
}

impl Default for IdempotencyConfig {
    fn default() -> Self {
        let limits = LiveLimits::default();
        Self {
            retention: limits.key_retention,
            retention_max: limits.key_retention_max,
            journal_bytes_max: limits.journal_bytes_max,
        }
    }
}

impl Default for GuestConfig {
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), ping: Duration::from_secs(1), ping_lost: 3 }
    }
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self { pause: Vec::new(), resume: Vec::new(), timeout: Duration::from_secs(30) }
    }
}

/// `$XDG_RUNTIME_DIR/dormouse`, or `/run/dormouse` (XDG Base Directory Specification).
pub fn runtime_dir() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| Path::new(value).is_absolute()) {
        Some(base) => PathBuf::from(base).join("dormouse"),
        None => PathBuf::from("/run/dormouse"),
    }
}

/// `/var/lib/dormouse` for root, else `$XDG_STATE_HOME/dormouse` or `~/.local/state/dormouse`.
fn state_dir() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/lib/dormouse");
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (absolute("XDG_STATE_HOME"), absolute("HOME")) {
        (Some(base), _) => base.join("dormouse"),
        (None, Some(home)) => home.join(".local/state/dormouse"),
        (None, None) => PathBuf::from("/var/lib/dormouse"),
    }
}

impl Config {
    /// From a file.
    ///
    /// # Errors
    /// `Read`, `Parse`.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(failed)?;
        if text.len() as u64 > CONFIG_BYTES_MAX {
            let what = format!("it has more than {CONFIG_BYTES_MAX} bytes");
            return Err(failed(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what)));
        }
        unknown::parse(&text).map_err(|what| ConfigError::Parse { path: path.to_owned(), what })
    }

    /// What the host is to be told, with every value checked.
    ///
    /// # Errors
    /// `Value`, naming the key.
    pub fn check(&self) -> Result<Checked, ConfigError> {
        let wrong = |key: &str, what: String| ConfigError::Value { key: key.to_owned(), what };
        if self.listen.is_empty() {
            return Err(wrong("listen", "give at least one address, such as unix:/run/dormouse/files.sock".to_owned()));
        }
        for address in &self.listen {
            match address {
                Address::Tcp(tcp) if !tcp.ip().is_loopback() => {
                    let what = format!(
                        "{address} is not loopback, and there is no TLS yet; listen on 127.0.0.1 or a Unix socket"
                    );
                    return Err(wrong("listen", what));
                }
                _ => {}
            }
        }
        for address in &self.host_listen {
            if let Address::Tcp(_) = address {
                return Err(wrong("host_listen", format!("{address}: HostService is served on Unix sockets only")));
            }
        }
        if !self.state_dir.is_absolute() {
            return Err(wrong("state_dir", format!("{} is not absolute", self.state_dir.display())));
        }
        let bound = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(wrong(key, format!("{value} is not between {least} and {most}")))
        };
        let limits = &self.limits;
        bound("limits.request_bytes_max", limits.request_bytes_max, 1 << 10, REQUEST_BYTES_MAX)?;
        bound("limits.patch_file_bytes_max", limits.patch_file_bytes_max, 1, 1 << 30)?;
        bound("limits.offline_read_bytes_max", limits.offline_read_bytes_max, 1, i64::MAX as u64)?;
        bound("limits.offline_revision_bytes_max", limits.offline_revision_bytes_max, 0, i64::MAX as u64)?;
        bound("search.index_memory_bytes_max", self.search.index_memory_bytes_max, 1 << 20, 1 << 36)?;
        bound("search.index_disk_bytes_max", self.search.index_disk_bytes_max, 1 << 20, 1 << 46)?;
        bound("guest.ping_lost", u64::from(self.guest.ping_lost), 1, 60)?;
        bound("limits.calls_max", limits.calls_max as u64, 2, 256)?;
        bound("idempotency.journal_bytes_max", self.idempotency.journal_bytes_max, 1 << 16, 1 << 40)?;
        for (key, value) in [
            ("limits.offline_budget", limits.offline_budget),
            ("limits.search_budget", limits.search_budget),
            ("limits.drain", limits.drain),
            ("hooks.timeout", self.hooks.timeout),
            ("guest.connect", self.guest.connect),
            ("guest.ping", self.guest.ping),
        ] {
            if value.is_zero() || value > Duration::from_secs(60 * 60) {
                return Err(wrong(key, "give a time above 0 and up to 1h".to_owned()));
            }
        }
        for (key, value) in [
            ("idempotency.retention", self.idempotency.retention),
            ("idempotency.retention_max", self.idempotency.retention_max),
        ] {
            if value < Duration::from_secs(1) || value > RETENTION_MAX {
                return Err(wrong(key, "give a time from 1s to 366d".to_owned()));
            }
        }
        for (key, argv) in [("hooks.pause", &self.hooks.pause), ("hooks.resume", &self.hooks.resume)] {
            if argv.first().is_some_and(String::is_empty) || argv.iter().any(|word| word.contains('\0')) {
                let what =
                    "the first word is the program to run, and no word holds a NUL; leave it empty to run nothing";
                return Err(wrong(key, what.to_owned()));
            }
        }
        if self.log.level.trim().is_empty() {
            let what = "it is empty; give error, warn, info, debug, trace, or a filter such as info,h2=warn";
            return Err(wrong("log.level", what.to_owned()));
        }
        log::filter(&self.log.level).map_err(|what| wrong("log.level", what))?;
        if self.idempotency.retention > self.idempotency.retention_max {
            return Err(wrong("idempotency.retention", "it is longer than retention_max".to_owned()));
        }
        let disabled = self.disable_features.iter().map(|name| feature(name)).collect::<Result<_, _>>()?;
        let roots = self.checked_roots("roots", &self.roots)?;
        let settings = Settings {
            limits: self.engine_limits(),
            live: LiveLimits {
                files: self.engine_limits(),
                key_retention: self.idempotency.retention,
                key_retention_max: self.idempotency.retention_max,
                journal_bytes_max: self.idempotency.journal_bytes_max,
                ..LiveLimits::default()
            },
            mounts: None,
            disk: DiskLimits::default(),
            volumes: VolumeSettings {
                clones: match self.offline.clone {
                    CloneMode::Auto => Clones::Auto,
                    CloneMode::Never => Clones::Never,
                },
                ..VolumeSettings::default()
            },
            unsealed: match self.offline.serve_unsealed {
                ServeUnsealed::Never => Unsealed::Never,
                ServeUnsealed::Crash => Unsealed::Crash,
            },
            disabled,
            roots,
            socket_roots: self.checked_roots("socket_roots", &self.socket_roots)?,
            device_roots: self.checked_roots("device_roots", &self.device_roots)?,
            guest_tcp_ports: ports(&self.guest_tcp_ports)?,
            hooks: Hooks {
                pause: self.hooks.pause.clone(),
                resume: self.hooks.resume.clone(),
                timeout: self.hooks.timeout,
            },
            relay: RelaySettings {
                connect: self.guest.connect,
                ping: self.guest.ping,
                ping_lost: self.guest.ping_lost,
            },
            calls_max: limits.calls_max,
            index: IndexSettings {
                on: self.search.index == SearchIndex::On,
                memory_bytes_max: self.search.index_memory_bytes_max,
                disk_bytes_max: self.search.index_disk_bytes_max,
            },
        };
        let workspaces = self.workspaces.iter().map(WorkspaceConfig::check).collect::<Result<Vec<_>, _>>()?;
        for (index, workspace) in workspaces.iter().enumerate() {
            if workspaces[..index].iter().any(|other| other.name == workspace.name) {
                return Err(wrong("workspace.name", format!("{} is given twice", workspace.name)));
            }
        }
        Ok(Checked { settings, workspaces })
    }

    fn engine_limits(&self) -> Limits {
        Limits {
            request_bytes_max: self.limits.request_bytes_max,
            patch_file_bytes_max: self.limits.patch_file_bytes_max,
            offline_read_bytes_max: self.limits.offline_read_bytes_max,
            offline_revision_bytes_max: self.limits.offline_revision_bytes_max,
            offline_budget: self.limits.offline_budget,
            search_budget: self.limits.search_budget,
            ..Limits::default()
        }
    }

    /// Roots with their links resolved, none within another, and none that holds the state directory.
    fn checked_roots(&self, key: &str, roots: &[PathBuf]) -> Result<Vec<PathBuf>, ConfigError> {
        let wrong = |what: String| ConfigError::Value { key: key.to_owned(), what };
        let mut checked: Vec<PathBuf> = Vec::new();
        for root in roots {
            if !root.is_absolute() {
                return Err(wrong(format!("{} is not absolute", root.display())));
            }
            let real = root.canonicalize().map_err(|error| wrong(format!("{}: {error}", root.display())))?;
            if let Some(other) = checked.iter().find(|other| real.starts_with(other) || other.starts_with(&real)) {
                return Err(wrong(format!("{} and {} lie within each other", root.display(), other.display())));
            }
            if self.state_dir.starts_with(&real) {
                return Err(wrong(format!("{} holds the state directory", root.display())));
            }
            checked.push(real);
        }
        Ok(checked)
    }
}

/// A configuration whose every value was checked.
#[derive(Debug, Clone)]
pub struct Checked {
    /// For the host.
    pub settings: Settings,
    /// Workspaces that are known from the start.
    pub workspaces: Vec<Configured>,
}

/// A feature by its name.
///
/// # Errors
/// `Value`, with the names that there are.
pub fn feature(name: &str) -> Result<Feature, ConfigError> {
    Feature::ALL.into_iter().find(|feature| feature.name() == name).ok_or_else(|| ConfigError::Value {
        key: "disable_features".to_owned(),
        what: format!("{name:?} is no feature: {}", Feature::ALL.map(Feature::name).join(", ")),
    })
}

fn ports(text: &str) -> Result<Option<(u16, u16)>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let range = text.split_once('-').unwrap_or((text, text));
    match (range.0.parse(), range.1.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Some((first, last))),
        _ => Err(ConfigError::Value {
            key: "guest_tcp_ports".to_owned(),
            what: format!("{text:?} is no range of ports such as 20000-20999"),
        }),
    }
}

#[cfg(test)]
mod tests;
