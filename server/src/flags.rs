//! The command line of `dormoused`, and how it overrides the configuration.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::config::{
    Address, CloneMode, Config, ConfigError, ConfiguredState, DiskConfig, SearchIndex, ServeUnsealed, WorkspaceConfig,
};
use crate::{
    guest::GuestAddress,
    host::spec::{DiskFormat, FileSystem},
    telemetry::log::LogFormat,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "dormoused",
    version,
    about = "Serves the files of this host's workspaces over gRPC, asleep or awake."
)]
#[command(after_help = "Examples:
  dormoused demo
  dormoused serve --config /etc/dormouse/dormoused.toml
  dormoused serve --listen tcp:127.0.0.1:0 --state-dir /tmp/state --workspace demo/main=directory:/srv/project
  dormoused serve --workspace demo/asleep=disk:/srv/disk.img,format=raw")]
pub struct Flags {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the workspaces of this host until SIGTERM or SIGINT.
    Serve(Box<ServeFlags>),
    /// Serve one directory and the freeze of its file system to the host of this machine: run it inside.
    Guest(GuestFlags),
    /// Serve two small workspaces, one awake and one asleep, from a temporary directory, and say what to try.
    Demo,
}

/// Flags of `serve`; each overrides the key of the same name in the configuration.
#[derive(Debug, Args, Default)]
#[command(after_help = "When it serves it prints one line of JSON:
  {\"ready\":true,\"listen\":[\"tcp:127.0.0.1:43211\"],\"host_listen\":[\"unix:/run/dormouse/host.sock\"]}")]
pub struct ServeFlags {
    /// The configuration, TOML; without it every key has its default.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where FilesService listens: unix:PATH, or tcp:HOST:PORT on loopback (port 0: any). May be given more than once.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Address>,
    /// Where HostService listens: unix:PATH. May be given more than once.
    #[arg(long, value_name = "ADDRESS")]
    pub host_listen: Vec<Address>,
    /// What must survive a restart is kept here.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// A workspace: a running directory, or the disk of a sleeping machine. May be given more than once.
    #[arg(
        help = "NAME=directory:PATH, or a sleeping NAME=disk:PATH[,format=raw|qcow2][,partition=N]. May be given more than once",
        long, value_name = "WORKSPACE", value_parser = workspace)]
    pub workspace: Vec<WorkspaceConfig>,
    /// file_search, file_patch, file_write, file_revision or offline_read. May be given more than once.
    #[arg(long, value_name = "FEATURE")]
    pub disable_feature: Vec<String>,
    /// Whether a disk whose journal needs recovery may answer with what the journal holds.
    #[arg(long, value_enum)]
    pub serve_unsealed: Option<ServeUnsealed>,
    /// Whether a sealed disk is read from a reflink clone, where its file system can make one.
    #[arg(long = "clone", value_enum, value_name = "MODE")]
    pub clone_mode: Option<CloneMode>,
    /// Whether disks at rest get an index by their first search, which makes later ones quick.
    #[arg(long, value_enum)]
    pub search_index: Option<SearchIndex>,
    /// How the log is written.
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
    /// error, warn, info, debug, trace, or a filter such as info,h2=warn.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Bound on the way down, such as 20s.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub drain: Option<Duration>,
}

/// Flags of `guest`.
#[derive(Debug, Args)]
#[command(after_help = "When it serves it prints one line of JSON:
  {\"ready\":true,\"listen\":\"vsock:1024\"}

A Unix socket can be opened by its owner alone, a vsock port by the host alone; a TCP port needs --token-file, because every
process of the machine can reach it.")]
pub struct GuestFlags {
    /// The workspace: this directory, as far as its own file system reaches. What is mounted beneath is not served.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Where to listen: unix:PATH, tcp:HOST:PORT or vsock:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: GuestAddress,
    /// A file with the guest_token that the host sends with every call.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// For the agent's own lock; the journal of changes lies on the workspace's file system.
    #[arg(long, value_name = "DIR", default_value = "/run/dormouse-guest")]
    pub state_dir: PathBuf,
    /// How the log is written.
    #[arg(long, value_enum, default_value = "auto")]
    pub log_format: LogFormat,
    /// error, warn, info, debug, trace, or a filter such as info,h2=warn.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log_level: String,
}

impl ServeFlags {
    /// The configuration with these flags over it.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        if !self.host_listen.is_empty() {
            config.host_listen.clone_from(&self.host_listen);
        }
        if let Some(state_dir) = &self.state_dir {
            config.state_dir = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.clone());
        }
        for workspace in &self.workspace {
            config.workspaces.retain(|known| known.name != workspace.name);
            config.workspaces.push(workspace.clone());
        }
        config.disable_features.extend(self.disable_feature.iter().cloned());
        if let Some(serve_unsealed) = self.serve_unsealed {
            config.offline.serve_unsealed = serve_unsealed;
        }
        if let Some(clone) = self.clone_mode {
            config.offline.clone = clone;
        }
        if let Some(index) = self.search_index {
            config.search.index = index;
        }
        if let Some(format) = self.log_format {
            config.log.format = format;
        }
        if let Some(level) = &self.log_level {
            config.log.level.clone_from(level);
        }
        if let Some(drain) = self.drain {
            config.limits.drain = drain;
        }
        Ok(config)
    }
}

/// `NAME=directory:PATH` or `NAME=disk:PATH[,format=…][,partition=…]`.
fn workspace(text: &str) -> Result<WorkspaceConfig, String> {
    let form = "give NAME=directory:PATH or NAME=disk:PATH[,format=raw|qcow2][,partition=N]";
    let (name, place) = text.split_once('=').ok_or(form)?;
    let absolute = |path: &str| match path {
        "" => Err(form.to_owned()),
        path => std::path::absolute(path).map_err(|error| error.to_string()),
    };
    let mut found = WorkspaceConfig {
        name: name.to_owned(),
        state: ConfiguredState::Running,
        directory: None,
        disk: None,
        guest: None,
        guest_token_file: None,
    };
    if let Some(path) = place.strip_prefix("directory:") {
        found.directory = Some(absolute(path)?);
        return Ok(found);
    }
    let place = place.strip_prefix("disk:").ok_or(form)?;
    let mut parts = place.split(',');
    let mut disk = DiskConfig {
        path: absolute(parts.next().unwrap_or_default())?,
        format: DiskFormat::Raw,
        backing: Vec::new(),
        partition: None,
        partition_guid: None,
        file_system: FileSystem::Ext4,
        mount_path: "/".to_owned(),
        flushes: false,
    };
    for part in parts {
        match part.split_once('=') {
            Some(("format", "raw")) => disk.format = DiskFormat::Raw,
            Some(("format", "qcow2")) => disk.format = DiskFormat::Qcow2,
            Some(("partition", number)) => {
                disk.partition = Some(number.parse().map_err(|_| format!("{number:?} is no partition's number"))?);
            }
            _ => return Err(format!("{part:?} is unknown: {form}")),
        }
    }
    found.state = ConfiguredState::Suspended;
    found.disk = Some(disk);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_a_directory_or_a_sleeping_disk() {
        let directory = workspace("a/b=directory:/srv").unwrap();
        assert_eq!((directory.name.as_str(), directory.directory), ("a/b", Some("/srv".into())));
        let disk = workspace("a=disk:/d.img,format=qcow2,partition=2").unwrap();
        assert_eq!(disk.state, ConfiguredState::Suspended);
        let disk = disk.disk.unwrap();
        assert_eq!((disk.format, disk.partition), (DiskFormat::Qcow2, Some(2)));
        for bad in
            ["", "a", "a=", "a=directory:", "a=disk:", "a=disk:/d,format=vmdk", "a=disk:/d,partition=x", "a=tape:/d"]
        {
            assert!(workspace(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_override_the_configuration() {
        let parse = |words: &[&str]| Flags::try_parse_from([&["dormoused", "serve"], words].concat());
        let Command::Serve(flags) = parse(&[
            "--listen=tcp:127.0.0.1:0",
            "--state-dir=/s",
            "--disable-feature=file_search",
            "--drain=3s",
            "--serve-unsealed=crash",
            "--search-index=off",
        ])
        .unwrap()
        .command
        else {
            panic!("serve was asked for")
        };
        let config = flags.config().unwrap();
        assert_eq!(config.listen, [Address::Tcp("127.0.0.1:0".parse().unwrap())]);
        assert_eq!(config.state_dir, PathBuf::from("/s"));
        assert_eq!(config.disable_features, ["file_search"]);
        assert_eq!(config.limits.drain, Duration::from_secs(3));
        assert_eq!(config.search.index, SearchIndex::Off);
        assert_eq!(config.offline.serve_unsealed, ServeUnsealed::Crash);
        assert!(parse(&["--listen=nonsense"]).is_err());
        assert!(parse(&["--unknown"]).is_err());
    }
}
