//! An agent on loopback: the real `dormoused`, in a process of its own, with a state directory of its own.
//!
//! Dropping a [`World`] stops the agent with SIGTERM and fails the test where it does not end well, or where its log
//! holds a warning or an error that the test did not expect.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use dormouse_proto::{
    files::v1::files_service_client::FilesServiceClient, host::v1::host_service_client::HostServiceClient,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// Most time that an agent may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(40);

/// How an agent is to be started.
#[derive(Default)]
pub struct Setup {
    arguments: Vec<OsString>,
    config: Option<String>,
    expects_warnings: bool,
    state: Option<PathBuf>,
}

impl Setup {
    /// Nothing but listeners and a state directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more argument of `dormoused serve`.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// A running workspace in a directory.
    pub fn directory(self, name: &str, root: &Path) -> Self {
        self.argument("--workspace").argument(format!("{name}=directory:{}", root.display()))
    }

    /// A suspended workspace on an image.
    pub fn disk(self, name: &str, image: &Path) -> Self {
        self.argument("--workspace").argument(format!("{name}=disk:{}", image.display()))
    }

    /// A feature that this agent is to lack.
    pub fn without(self, feature: &str) -> Self {
        self.argument("--disable-feature").argument(feature)
    }

    /// The text of a configuration file.
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = Some(text.into());
        self
    }

    /// The test provokes warnings or errors in the log.
    pub fn expect_warnings(mut self) -> Self {
        self.expects_warnings = true;
        self
    }

    /// A state directory that outlives the agent.
    pub fn state(mut self, state: &Path) -> Self {
        self.state = Some(state.to_owned());
        self
    }

    /// Starts the agent and waits until it says that it is ready.
    ///
    /// # Panics
    /// With the agent's log where it does not.
    pub fn start(self) -> World {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let unix = directory.path().join("files.sock");
        let host = directory.path().join("host.sock");
        let log = directory.path().join("log");
        let state = self.state.unwrap_or_else(|| directory.path().join("state"));
        let mut command = Command::new(binary("dormoused"));
        command.arg("serve").arg("--log-format").arg("json");
        if let Some(text) = &self.config {
            let path = directory.path().join("dormoused.toml");
            fs::write(&path, text).expect("the configuration is written");
            command.arg("--config").arg(path);
        }
        command
            .arg("--listen")
            .arg(format!("unix:{}", unix.display()))
            .args(["--listen", "tcp:127.0.0.1:0", "--host-listen"])
            .arg(format!("unix:{}", host.display()))
            .arg("--state-dir")
            .arg(&state)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("the log is created"));
        let mut child = command.spawn().expect("dormoused starts; `cargo build --workspace --bins` makes it");
        let (sender, receiver) = mpsc::channel();
        let mut lines = BufReader::new(child.stdout.take().expect("its stdout is piped")).lines();
        std::thread::spawn(move || {
            while let Some(Ok(line)) = lines.next() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let ready = match receiver.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(_) => {
                // It may have exited already; either way its log says why.
                let _ = child.kill();
                let status = child.wait().expect("its exit is known");
                panic!("dormoused is not ready ({status}):\n{}", fs::read_to_string(&log).unwrap_or_default());
            }
        };
        let ready: serde_json::Value = serde_json::from_str(&ready).expect("the ready line is JSON");
        assert_eq!(ready["ready"], true, "{ready}");
        let tcp = ready["listen"]
            .as_array()
            .and_then(|listen| listen.iter().find_map(|address| address.as_str()?.strip_prefix("tcp:")))
            .expect("a TCP address")
            .to_owned();
        World { child: Some(child), tcp, unix, host, log, state, expects_warnings: self.expects_warnings, directory }
    }
}

/// An agent that is ready.
pub struct World {
    child: Option<Child>,
    /// Its FilesService on TCP, as `127.0.0.1:PORT`.
    pub tcp: String,
    /// Its FilesService on a Unix socket.
    pub unix: PathBuf,
    /// Its HostService.
    pub host: PathBuf,
    /// Its log, a line of JSON an event.
    pub log: PathBuf,
    /// Its state directory.
    pub state: PathBuf,
    expects_warnings: bool,
    /// Gone with the world; free for the test's own files.
    pub directory: TempDir,
}

impl World {
    /// A client of its FilesService over the Unix socket, which takes messages of up to 16 MiB.
    pub async fn files(&self) -> FilesServiceClient<Channel> {
        FilesServiceClient::new(channel(&self.unix).await)
            .max_decoding_message_size(16 << 20)
            .max_encoding_message_size(16 << 20)
    }

    /// A client of its HostService.
    pub async fn host(&self) -> HostServiceClient<Channel> {
        HostServiceClient::new(channel(&self.host).await)
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// Kills it at once, as a crash would.
    pub fn kill(mut self) {
        let mut child = self.child.take().expect("the agent runs");
        child.kill().expect("SIGKILL is sent");
        child.wait().expect("its exit is known");
    }

    /// Stops it with SIGTERM and says how it ended and how long that took.
    pub fn terminate(&mut self) -> (ExitStatus, Duration) {
        let mut child = self.child.take().expect("the agent runs");
        let begin = Instant::now();
        let process = Pid::from_raw(i32::try_from(child.id()).expect("a process id fits"));
        // Where it is gone already, `wait` below says how.
        let _ = kill(process, Signal::SIGTERM);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait()));
        match receiver.recv_timeout(PATIENCE) {
            Ok(status) => (status.expect("its exit is known"), begin.elapsed()),
            Err(_) => {
                let _ = kill(process, Signal::SIGKILL);
                panic!("dormoused does not stop within {PATIENCE:?}:\n{}", self.log_text());
            }
        }
    }

    /// All of its log so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        if std::thread::panicking() {
            if let Some(mut child) = self.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
            eprintln!("the agent's log:\n{}", self.log_text());
            return;
        }
        let (status, _) = self.terminate();
        let log = self.log_text();
        assert!(status.success(), "dormoused ended with {status}:\n{log}");
        if !self.expects_warnings {
            let loud =
                log.lines().find(|line| line.contains(r#""level":"WARN""#) || line.contains(r#""level":"ERROR""#));
            assert_eq!(loud, None, "the log holds an unexpected warning or error");
        }
    }
}

/// A connection to a Unix socket.
async fn channel(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix:{}", socket.display()))
        .expect("a Unix socket's address")
        .connect()
        .await
        .expect("the agent takes connections")
}

/// The path of one of the product's binaries, built beside this test.
///
/// # Panics
/// Where it was not built.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in the profile's deps");
    let path = profile.join(name);
    assert!(path.exists(), "{} is missing; `cargo build --workspace --bins` makes it", path.display());
    path
}
