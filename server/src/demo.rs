//! `dormoused demo`: two workspaces to try, one awake and one asleep, from a temporary directory that is gone afterwards.
//! Needs no root, no tool and no configuration.

use std::{fs, io, io::Read, path::Path};

use flate2::read::GzDecoder;
use tempfile::TempDir;

use crate::{
    Server,
    config::{Address, Config, ConfiguredState, DiskConfig, WorkspaceConfig},
    host::spec::{DiskFormat, FileSystem},
    server::StartError,
};

/// A suspended workspace's ext4 image; `server/demo/README.md` says how it is made.
const IMAGE: &[u8] = include_bytes!("../demo/asleep.img.gz");
/// The same small project, for the workspace that is awake.
const FILES: [(&str, &str); 5] = [
    ("README.md", include_str!("../demo/project/README.md")),
    ("src/main.py", include_str!("../demo/project/src/main.py")),
    ("src/greeting.py", include_str!("../demo/project/src/greeting.py")),
    ("tests/test_greeting.py", include_str!("../demo/project/tests/test_greeting.py")),
    ("notes/todo.txt", include_str!("../demo/project/notes/todo.txt")),
];
/// The image's size once it is unpacked, in bytes: what a broken archive could unpack to is bounded by it.
const IMAGE_BYTES: u64 = 8 << 20;

/// A demonstration that serves.
pub struct Demo {
    server: Server,
    directory: TempDir,
}

/// Why there is no demonstration.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The temporary directory cannot be filled.
    #[error("the demonstration's files cannot be written")]
    Files(#[from] io::Error),
    /// The agent does not start.
    #[error("the demonstration does not start")]
    Start(#[from] StartError),
}

impl Demo {
    /// Starts it.
    ///
    /// # Errors
    /// See [`DemoError`].
    pub async fn start() -> Result<Self, DemoError> {
        let directory = tempfile::Builder::new().prefix("dormouse-demo-").tempdir()?;
        let config = config(directory.path())?;
        Ok(Self { server: Server::start(&config).await?, directory })
    }

    /// What to try, for a person at a terminal.
    pub fn to_try(&self) -> String {
        let address = self.server.listen().iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.to_string()),
            Address::Unix(_) => None,
        });
        let address = address.unwrap_or_default();
        let dormouse = client();
        format!(
            "Two workspaces are served: demo/awake, a directory, and demo/asleep, a suspended disk that nothing mounts.

  export DORMOUSE_ENDPOINT='unix:{socket}' DORMOUSE_HOST_ENDPOINT='unix:{host_socket}'

  {dormouse} files read demo/asleep /src/main.py
  {dormouse} files search demo/asleep / TODO --include '*.py'
  {dormouse} files stat demo/asleep /README.md --revision --json
  {dormouse} files patch demo/awake /src/greeting.py --old Hello --new 'Good morning'
  grpcurl -plaintext -d '{{\"workspace\":\"demo/asleep\",\"path\":\"/src/main.py\"}}' {address} dormouse.files.v1.FilesService/Read

The same is served on tcp:{address}. Everything is gone again when this ends: press Ctrl-C.
",
            socket = self.directory.path().join("files.sock").display(),
            host_socket = self.directory.path().join("host.sock").display(),
        )
    }

    /// The agent behind it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Ends it and removes its files.
    pub async fn end(self) {
        self.server.shutdown().await;
        if let Err(error) = self.directory.close() {
            tracing::warn!(%error, "the demonstration's files could not be removed");
        }
    }
}

fn config(directory: &Path) -> io::Result<Config> {
    let awake = directory.join("awake");
    for (name, text) in FILES {
        let path = awake.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text)?;
    }
    let image = directory.join("asleep.img");
    let mut unpacked = GzDecoder::new(IMAGE).take(IMAGE_BYTES);
    io::copy(&mut unpacked, &mut fs::File::create(&image)?)?;
    let workspace = |name: &str, state| WorkspaceConfig {
        name: name.to_owned(),
        state,
        directory: None,
        disk: None,
        guest: None,
        guest_token_file: None,
    };
    let disk = DiskConfig {
        path: image,
        format: DiskFormat::Raw,
        backing: Vec::new(),
        partition: None,
        partition_guid: None,
        file_system: FileSystem::Ext4,
        mount_path: "/".to_owned(),
        flushes: true,
    };
    Ok(Config {
        listen: vec![
            Address::Unix(directory.join("files.sock")),
            Address::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 0))),
        ],
        host_listen: vec![Address::Unix(directory.join("host.sock"))],
        state_dir: directory.join("state"),
        state_may_vanish: true,
        workspaces: vec![
            WorkspaceConfig { directory: Some(awake), ..workspace("demo/awake", ConfiguredState::Running) },
            WorkspaceConfig { disk: Some(disk), ..workspace("demo/asleep", ConfiguredState::Suspended) },
        ],
        ..Config::default()
    })
}

/// How the command line is called: the program beside this one, or else by cargo.
fn client() -> String {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("dormouse")).filter(|path| path.is_file());
    match beside {
        Some(path) => format!("'{}'", path.display()),
        None => "cargo run --release --bin dormouse --".to_owned(),
    }
}
