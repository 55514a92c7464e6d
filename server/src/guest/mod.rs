//! The agent inside a machine (`dormoused guest`): the same edge over one directory with the disks that are mounted beneath it,
//! and the freeze of their file systems, for the host that runs the machine and for nobody else in it.
//!
//! It has one workspace, under whatever name the host asks for it, no disks and no HostService. Who may call follows from
//! where it listens: a Unix socket is its owner's (0600), a vsock peer must be the host (cid 2, vsock(7)), and a TCP port,
//! which every process of the machine can reach, demands a token.

pub mod freezer;
mod listen;
pub mod mounts;
pub mod table;

use std::{
    error::Error,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use dormouse_files::Fault;
use dormouse_live::Mounts;
use dormouse_proto::guest::v1::guest_service_server::GuestServiceServer;
use tokio::{sync::watch, task::JoinSet};
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::{
    config::{Address, Config, ConfigError},
    flags::GuestFlags,
    guest::{freezer::Freezer, table::MountTable},
    host::{
        Host,
        admit::Admission,
        allowed::TOKEN_BYTES_MAX,
        register::ConfiguredError,
        relay::GUEST_WORKSPACE,
        spec::Spec,
        state::State,
        store::{Store, StoreError, Volatile},
        workspace::Workspace,
    },
    listen::{ListenError, SocketFile},
    rpc::{
        files::{Files, route::FilesRoute},
        guest::GuestControl,
        observe::{Gate, ObserveLayer, Token},
    },
    server::{FILES_SERVICE, StartError, common_routes, set_files_health},
    telemetry::metrics::Metrics,
};

/// Calls of the host beside those on files.
const CONTROL_CALLS_MAX: usize = 16;
/// How long calls may hold up the way down.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Where the agent inside a machine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestAddress {
    /// A Unix socket, mode 0600.
    Unix(PathBuf),
    /// A TCP port, on any address of the machine.
    Tcp(SocketAddr),
    /// A vsock port.
    Vsock(u32),
}

impl FromStr for GuestAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix("vsock:") {
            return port.parse().map(Self::Vsock).map_err(|_| format!("{port:?} is no vsock port"));
        }
        match text.parse::<Address>() {
            Ok(Address::Unix(path)) => Ok(Self::Unix(path)),
            Ok(Address::Tcp(address)) => Ok(Self::Tcp(address)),
            Err(_) => Err(format!("{text:?} is no address: give unix:PATH, tcp:HOST:PORT or vsock:PORT")),
        }
    }
}

impl fmt::Display for GuestAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(address) => write!(formatter, "tcp:{address}"),
            Self::Vsock(port) => write!(formatter, "vsock:{port}"),
        }
    }
}

/// What the agent inside a machine is told.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// The workspace.
    pub root: PathBuf,
    /// Where to listen.
    pub listen: GuestAddress,
    /// What every call must show.
    pub token: Option<String>,
    /// For the agent's own lock and record.
    pub state_dir: PathBuf,
}

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A file that it was given cannot be read.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// From the system.
        #[source]
        source: io::Error,
    },
    /// The token makes no sense.
    #[error("the token must be 1 to {TOKEN_BYTES_MAX} printable ASCII characters without blanks")]
    Token,
    /// A port that every process can reach, and no token.
    #[error(
        "a TCP port can be reached by every process of this machine; give --token-file, or listen on a Unix socket or vsock"
    )]
    TokenNeeded,
    /// A default makes no sense.
    #[error("the limits are refused")]
    Config(#[from] ConfigError),
    /// The state directory cannot be used.
    #[error("the state directory cannot be used")]
    Store(#[from] StoreError),
    /// The root cannot be served.
    #[error("the workspace is refused")]
    Workspace(#[from] ConfiguredError),
    /// The address cannot be bound.
    #[error("the agent cannot listen")]
    Listen(#[from] ListenError),
    /// The services cannot be built.
    #[error(transparent)]
    Services(#[from] StartError),
    /// Its own workspace is not known.
    #[error("the workspace is not known")]
    Unknown,
}

impl GuestFlags {
    /// What they say, with the token read.
    ///
    /// # Errors
    /// `Read`, `Token`.
    pub fn options(&self) -> Result<GuestOptions, GuestError> {
        let token = match &self.token_file {
            None => None,
            Some(path) => {
                let text =
                    fs::read_to_string(path).map_err(|source| GuestError::Read { path: path.clone(), source })?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        };
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (root, state_dir) = (absolute(&self.root), absolute(&self.state_dir));
        Ok(GuestOptions { root, listen: self.listen.clone(), token, state_dir })
    }
}

/// The agent inside a machine, serving.
pub struct GuestServer {
    listen: GuestAddress,
    host: Host,
    freezer: Arc<Freezer>,
    closing: watch::Sender<bool>,
    serving: JoinSet<Result<(), tonic::transport::Error>>,
    _socket_file: Option<SocketFile>,
}

impl GuestServer {
    /// Starts it; when this returns it serves. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`GuestError`]; nothing is bound then.
    pub async fn start(options: &GuestOptions) -> Result<Self, GuestError> {
        let printable = |token: &str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match (&options.token, &options.listen) {
            (Some(token), _) if !printable(token) || token.len() > TOKEN_BYTES_MAX => return Err(GuestError::Token),
            (None, GuestAddress::Tcp(_)) => return Err(GuestError::TokenNeeded),
            _ => {}
        }
        let mut settings = Config { state_dir: options.state_dir.clone(), ..Config::default() }.check()?.settings;
        // A root that cannot be resolved is refused below, in the words for it.
        let root = fs::canonicalize(&options.root).unwrap_or_else(|_| options.root.clone());
        let table = mount_table(&root);
        settings.mounts = table.clone().map(|table| table as Arc<dyn Mounts>);
        let idle = settings.live.nested_idle;
        // What must survive a restart, the journal of changes, lies on the workspace's own file system.
        let host = Host::start(settings, Store::open(&options.state_dir, Volatile::Taken)?)?;
        let spec = Spec::Directory { root: options.root.clone() };
        host.register_configured(GUEST_WORKSPACE, &spec, State::Running)?;
        let workspace = host.alone(GUEST_WORKSPACE).map_err(|_| GuestError::Unknown)?;
        let root = match workspace.held().record.spec.clone() {
            Spec::Directory { root } => root,
            Spec::Machine { .. } => return Err(GuestError::Unknown),
        };
        if let Some(table) = &table {
            recover_mounted(&workspace, table);
        }
        let freezer = Arc::new(Freezer::new(&root, workspace.clone()));
        let boot_id = boot_id()?;

        let (health, _) = tonic_health::server::health_reporter();
        set_files_health(&health, ServingStatus::Serving).await;
        let gate = Gate {
            files: host.admission().clone(),
            host: Admission::new(CONTROL_CALLS_MAX),
            token: options.token.as_deref().map(Token::new),
        };
        let observe = ObserveLayer { gate, metrics: Metrics::default() };
        let files = FilesRoute::new(Files::new(host.clone()));
        let control = GuestServiceServer::new(GuestControl::new(freezer.clone(), boot_id));
        let routes = common_routes(Routes::new(files).add_service(control), &health, FILES_SERVICE)?;

        let (closing, closed) = watch::channel(false);
        let mut serving = JoinSet::new();
        serving.spawn(close_idle_mounts(workspace, idle / 2, closed.clone()));
        let bound = listen::serve(&options.listen, routes, observe, closed, &mut serving)?;
        Ok(Self { listen: bound.address, host, freezer, closing, serving, _socket_file: bound.socket_file })
    }

    /// Where it listens, with the port that was given.
    pub fn listen(&self) -> &GuestAddress {
        &self.listen
    }

    /// What a caller that started it waits for: one line of JSON, without its end.
    pub fn ready_line(&self) -> String {
        #[derive(serde::Serialize)]
        struct Ready {
            ready: bool,
            listen: String,
        }
        let ready = Ready { ready: true, listen: self.listen.to_string() };
        serde_json::to_string(&ready).expect("a string and a bool are JSON")
    }

    /// Goes down: thaws, refuses new calls, waits for those under way, but not for ever.
    pub async fn shutdown(mut self) {
        let freezer = self.freezer.clone();
        // A failure is a panic of the lane, which has been told; the file systems' own timer is left then.
        let _ = crate::rpc::lane::finish(move || Ok(freezer.thaw())).await;
        let admission = self.host.admission().clone();
        admission.drain();
        self.closing.send_replace(true);
        let ended = async {
            admission.idle().await;
            while let Some(ended) = self.serving.join_next().await {
                if let Ok(Err(error)) = ended {
                    tracing::error!(error = &error as &dyn Error, "a listener failed");
                }
            }
        };
        if tokio::time::timeout(DRAIN_TIME, ended).await.is_err() {
            tracing::warn!("the drain is over its bound; what is left is cut off");
        }
        self.serving.abort_all();
    }
}

/// Of the workspace at this root, where it can be read.
fn mount_table(root: &Path) -> Option<Arc<MountTable>> {
    match MountTable::open(root) {
        Ok(table) => Some(Arc::new(table)),
        Err(error) => {
            tracing::warn!(%error, "the mount table cannot be read: no disk beneath the root is served, and none is frozen");
            None
        }
    }
}

/// Brings to an end what a crash left on each disk that is mounted beneath the root, and says once which of them are not
/// served, or can be read only.
fn recover_mounted(workspace: &Workspace, table: &MountTable) {
    let Some(directory) = workspace.held().directory.clone() else { return };
    let disks = match table.disks() {
        Ok(disks) => disks,
        Err(error) => return tracing::warn!(%error, "the mount table cannot be read; what is mounted is not served"),
    };
    for place in disks {
        match directory.recover_mounted(&place) {
            Ok(None) => tracing::info!(%place, "a disk that is mounted beneath the root is served"),
            Ok(Some(why)) => tracing::warn!(%place, why, "a disk beneath the root can be read and not changed"),
            Err(Fault::Outside { .. }) => tracing::warn!(
                %place,
                "a mount beneath the root is not served: it shows a part of a disk, or one that is mounted elsewhere, or lies \
                 within a mount that is not served"
            ),
            Err(fault) => {
                let error = &fault as &dyn Error;
                tracing::warn!(%place, error, "a disk beneath the root can be read and not changed");
            }
        }
    }
}

/// Closes, as long as the agent serves, what is mounted beneath the root and was not changed for a while, so that it can be
/// unmounted. Never while the disks are frozen: it counts as a change.
async fn close_idle_mounts(
    workspace: Arc<Workspace>,
    every: Duration,
    mut closed: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    loop {
        tokio::select! {
            // An error is the end of who would tell.
            _ = closed.changed() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let begun = {
            let mut held = workspace.held();
            let directory = held.directory.clone().filter(|directory| directory.has_open_mounts());
            directory
                .filter(|_| held.record.state == State::Running)
                .map(|directory| (directory, workspace.begin_change(&mut held)))
        };
        if let Some((directory, guard)) = begun {
            let close = move || {
                directory.close_idle_mounts();
                drop(guard);
                Ok(())
            };
            // A failure is a panic of the lane, which has been told; the next round tries again.
            let _ = crate::rpc::lane::finish(close).await;
        }
    }
}

/// Of this boot of the machine (proc_sys_kernel(5)).
fn boot_id() -> Result<String, GuestError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|source| GuestError::Read { path: path.to_owned(), source })?;
    Ok(text.trim().to_owned())
}
