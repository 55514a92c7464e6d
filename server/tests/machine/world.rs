//! A host in this process, and the agents inside its machines as processes of their own.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use dormouse_proto::{
    files::v1::{self as files, files_service_client::FilesServiceClient},
    host::v1::{self as host, host_service_client::HostServiceClient},
};
use dormouse_server::{Config, Server, config::Address};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio_stream::StreamExt;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;

/// A host that takes whatever lies in its directory.
pub struct World {
    pub directory: tempfile::TempDir,
    config: Config,
    pub server: Server,
    pub files: FilesServiceClient<Channel>,
    pub host: HostServiceClient<Channel>,
}

impl World {
    /// Its own things lie beside the directory that callers may name.
    pub async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let agent = directory.path().canonicalize().unwrap();
        let root = agent.join("m");
        fs::create_dir(&root).unwrap();
        let mut config = Config {
            listen: vec![Address::Unix(agent.join("files.sock"))],
            host_listen: vec![Address::Unix(agent.join("host.sock"))],
            state_dir: agent.join("state"),
            roots: vec![root.clone()],
            socket_roots: vec![root.clone()],
            state_may_vanish: true,
            ..Config::default()
        };
        change(&mut config);
        Self::from(directory, config).await
    }

    /// The same host after a restart.
    pub async fn restarted(self) -> Self {
        let Self { directory, config, server, .. } = self;
        server.shutdown().await;
        Self::from(directory, config).await
    }

    async fn from(directory: tempfile::TempDir, config: Config) -> Self {
        let server = Server::start(&config).await.unwrap();
        let connect = async |address: &Address| {
            let Address::Unix(path) = address else { panic!("a Unix socket was bound") };
            Endpoint::from_shared(format!("unix:{}", path.display())).unwrap().connect().await.unwrap()
        };
        let files = FilesServiceClient::new(connect(&server.listen()[0]).await);
        let host = HostServiceClient::new(connect(&server.host_listen()[0]).await);
        Self { directory, config, server, files, host }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("m").join(name)
    }

    pub async fn register(&mut self, name: &str, address: host::guest::Address, disks: Vec<host::Disk>) {
        self.register_with_token(name, address, disks, "").await;
    }

    pub async fn register_with_token(
        &mut self,
        name: &str,
        address: host::guest::Address,
        disks: Vec<host::Disk>,
        token: &str,
    ) {
        let guest = Some(host::Guest { address: Some(address), guest_token: token.to_owned() });
        let files = host::workspace_spec::Files::Machine(host::Machine { guest, disks });
        let spec = Some(host::WorkspaceSpec { files: Some(files) });
        let request = host::RegisterWorkspaceRequest { name: name.to_owned(), spec, ..Default::default() };
        self.host.register_workspace(request).await.unwrap();
    }

    pub fn unix(&self, name: &str) -> host::guest::Address {
        host::guest::Address::UnixPath(self.at(name).display().to_string())
    }

    pub async fn read(&mut self, request: files::ReadRequest) -> Result<(files::ReadResponse, Vec<u8>), Status> {
        let mut stream = self.files.read(request).await?.into_inner();
        let (mut first, mut bytes) = (None, Vec::new());
        while let Some(message) = stream.next().await {
            let message = message?;
            bytes.extend_from_slice(&message.data);
            first.get_or_insert(message);
        }
        Ok((first.unwrap(), bytes))
    }
}

/// `dormoused guest` on a directory of its own; killed when it is dropped.
pub struct Agent(Child);

impl Agent {
    /// Over `root`, at `listen`; when this returns it serves there. What it says when it is ready comes with it.
    pub fn start(root: &Path, listen: &str, more: &[&str]) -> (Self, String) {
        fs::create_dir_all(root).unwrap();
        let state = root.with_extension("state");
        let mut child = Command::new(env!("CARGO_BIN_EXE_dormoused"))
            .args([
                "guest",
                "--root",
                root.to_str().unwrap(),
                "--listen",
                listen,
                "--state-dir",
                state.to_str().unwrap(),
            ])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("{\"ready\":true,"), "{line}");
        (Self(child), line)
    }

    /// Sends a signal; when SIGSTOP was sent, this returns when every thread has stopped.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
        while signal == Signal::SIGSTOP && !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    /// By the state of each thread, the first word after its name in parentheses (proc_pid_stat(5)).
    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        threads.map(|thread| thread.unwrap().path().join("stat")).all(|stat| {
            // One that has ended meanwhile runs no more.
            let stat = fs::read_to_string(stat).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A stopped process takes SIGKILL too (signal(7)).
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn stat(workspace: &str, path: &str) -> files::StatRequest {
    files::StatRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        include_revision: true,
        ..Default::default()
    }
}

pub fn read(workspace: &str, path: &str) -> files::ReadRequest {
    files::ReadRequest { workspace: workspace.to_owned(), path: path.to_owned(), ..Default::default() }
}

pub fn search(workspace: &str, path: &str, pattern: &str) -> files::SearchRequest {
    files::SearchRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        pattern: pattern.to_owned(),
        ..Default::default()
    }
}

pub fn content(workspace: &str, path: &str, text: &str, key: &str) -> files::PatchRequest {
    files::PatchRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        change: Some(files::patch_request::Change::Content(text.to_owned().into())),
        idempotency_key: key.to_owned(),
        ..Default::default()
    }
}

/// The status of a refusal, which has this code and reason.
#[track_caller]
pub fn check<T: std::fmt::Debug>(found: Result<T, Status>, code: Code, reason: &str) -> Status {
    let status = found.unwrap_err();
    let info = status.get_details_error_info();
    let found = info.map(|info| info.reason).unwrap_or_default();
    assert_eq!((status.code(), found.as_str()), (code, reason), "{status:?}");
    status
}

pub fn value(status: &Status, key: &str) -> String {
    status.get_details_error_info().unwrap().metadata.get(key).cloned().unwrap_or_default()
}
