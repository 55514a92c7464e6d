//! The agent in one process: state directory, workspaces, sockets, services, and the way down.
//!
//! ```text
//! check the configuration → lock the state directory → know the workspaces → bind → serve
//!                                                             … → NOT_SERVING → refuse new calls → wait → end
//! ```

use std::{error::Error, time::Duration};

use dormouse_proto::{FILE_DESCRIPTOR_SET, host::v1::host_service_server::HostServiceServer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinSet,
};
use tokio_stream::{Stream, StreamExt};
use tonic::{server::NamedService, service::Routes, transport::server::Connected};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    authority::named,
    config::{Address, Config, ConfigError, REQUEST_BYTES_MAX},
    connections::{FILES_CONNECTIONS_MAX, HOST_CONNECTIONS_MAX, Incoming, Room},
    host::{
        Host,
        admit::Admission,
        register::{ConfiguredError, check_configured},
        store::{Store, StoreError, Volatile},
    },
    listen::{self, ListenError, Listener, SocketFile},
    rpc::{
        files::{Files, route::FilesRoute},
        host::Control,
        observe::{Gate, ObserveLayer},
    },
    telemetry::metrics::Metrics,
};

/// Longest message that the decoder takes: a request over the 7 MiB of the contract is refused by the handler, in words.
pub(crate) const DECODE_BYTES_MAX: usize = REQUEST_BYTES_MAX as usize + (1 << 20);
/// Calls of the control plane at once.
const HOST_CALLS_MAX: usize = 128;
/// How long connections may stay open on the way down once no call is under way.
const CONNECTIONS_TIME_MAX: Duration = Duration::from_secs(5);
pub(crate) const FILES_SERVICE: &str = <FilesRoute as NamedService>::NAME;
const HOST_SERVICE: &str = <HostServiceServer<Control> as NamedService>::NAME;

/// Why the agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration makes no sense.
    #[error("the configuration is refused")]
    Config(#[from] ConfigError),
    /// The state directory cannot be used.
    #[error("the agent cannot start")]
    Store(#[from] StoreError),
    /// A workspace cannot be served.
    #[error("a workspace is refused")]
    Workspace(#[from] ConfiguredError),
    /// An address cannot be bound.
    #[error("the agent cannot listen")]
    Listen(#[from] ListenError),
    /// A socket cannot be handed to the runtime, or the descriptors do not decode.
    #[error("the services cannot be built")]
    Services(#[source] Box<dyn Error + Send + Sync>),
}

/// An agent that serves.
pub struct Server {
    listen: Vec<Address>,
    host_listen: Vec<Address>,
    host: Host,
    /// Room for calls of the control plane.
    control_calls: Admission,
    metrics: Metrics,
    health: HealthReporter,
    closing: watch::Sender<bool>,
    serving: JoinSet<Result<(), tonic::transport::Error>>,
    socket_files: Vec<SocketFile>,
    drain: Duration,
}

impl Server {
    /// Starts an agent; when this returns it serves. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is bound then.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let checked = config.check()?;
        for workspace in &checked.workspaces {
            // Before the state directory is made: what is refused leaves nothing behind.
            check_configured(&workspace.name, &workspace.spec)?;
        }
        let volatile = if config.state_may_vanish { Volatile::Taken } else { Volatile::Refused };
        let store = Store::open(&config.state_dir, volatile)?;
        let host = Host::start(checked.settings, store)?;
        for workspace in &checked.workspaces {
            host.register_configured(&workspace.name, &workspace.spec, workspace.state)?;
        }
        let bind = |addresses: &[Address]| addresses.iter().map(listen::bind).collect::<Result<Vec<_>, _>>();
        let (listeners, host_listeners) = (bind(&config.listen)?, bind(&config.host_listen)?);

        let metrics = Metrics::default();
        let (closing, closed) = watch::channel(false);
        let (health, _) = tonic_health::server::health_reporter();
        set_files_health(&health, ServingStatus::Serving).await;
        health.set_service_status(HOST_SERVICE, ServingStatus::Serving).await;
        let control_calls = Admission::new(HOST_CALLS_MAX);
        let gate = Gate { files: host.admission().clone(), host: control_calls.clone(), token: None };
        let observe = ObserveLayer { gate, metrics: metrics.clone() };
        let files = FilesRoute::new(Files::new(host.clone()));
        let control = HostServiceServer::new(Control::new(host.clone(), health.clone(), closed.clone()))
            .max_decoding_message_size(DECODE_BYTES_MAX);
        let files = common_routes(Routes::new(files), &health, FILES_SERVICE)?;
        let control = common_routes(Routes::new(control), &health, HOST_SERVICE)?;

        let address = |listeners: &[Listener]| listeners.iter().map(Listener::address).collect();
        let (listen, host_listen) = (address(&listeners), address(&host_listeners));
        let mut server = Self {
            listen,
            host_listen,
            host,
            control_calls,
            metrics,
            health,
            closing,
            serving: JoinSet::new(),
            socket_files: Vec::new(),
            drain: config.limits.drain,
        };
        let sets = [
            (listeners, files, Room::new(FILES_CONNECTIONS_MAX)),
            (host_listeners, control, Room::new(HOST_CONNECTIONS_MAX)),
        ];
        for (listeners, routes, room) in sets {
            for listener in listeners {
                server.serve(listener, &room, routes.clone(), observe.clone(), closed.clone())?;
            }
        }
        Ok(server)
    }

    fn serve(
        &mut self,
        listener: Listener,
        room: &Room,
        routes: Routes,
        observe: ObserveLayer,
        closed: watch::Receiver<bool>,
    ) -> Result<(), StartError> {
        let failed = |error: std::io::Error| StartError::Services(error.into());
        match listener {
            Listener::Tcp(listener, _) => {
                let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
                let incoming = Incoming::new(listener, room);
                self.serving.spawn(serve(incoming, routes, observe, closed));
            }
            Listener::Unix(listener, file) => {
                let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
                self.socket_files.push(file);
                let incoming = Incoming::new(listener, room).map(|taken| taken.map(named));
                self.serving.spawn(serve(incoming, routes, observe, closed));
            }
        }
        Ok(())
    }

    /// Where FilesService listens, with the ports that were given.
    pub fn listen(&self) -> &[Address] {
        &self.listen
    }

    /// What a caller that started this agent waits for: one line of JSON, without its end.
    pub fn ready_line(&self) -> String {
        #[derive(serde::Serialize)]
        struct Ready {
            ready: bool,
            listen: Vec<String>,
            host_listen: Vec<String>,
        }
        let text = |addresses: &[Address]| addresses.iter().map(ToString::to_string).collect();
        let ready = Ready { ready: true, listen: text(&self.listen), host_listen: text(&self.host_listen) };
        serde_json::to_string(&ready).expect("strings and a bool are JSON")
    }

    /// Where HostService listens.
    pub fn host_listen(&self) -> &[Address] {
        &self.host_listen
    }

    /// The workspaces behind the services.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Goes down: says NOT_SERVING, refuses new calls, waits for those under way, but no longer than `limits.drain`.
    /// Returns how many calls were left.
    pub async fn shutdown(mut self) -> usize {
        set_files_health(&self.health, ServingStatus::NotServing).await;
        self.health.set_service_status(HOST_SERVICE, ServingStatus::NotServing).await;
        let admission = self.host.admission().clone();
        admission.drain();
        self.control_calls.drain();
        // From here on no connection is taken, and those that are open are told to go (GOAWAY, RFC 9113).
        self.closing.send_replace(true);
        let until = tokio::time::Instant::now() + self.drain;
        // A transition under way is waited for like a change; watchers have just been told to leave.
        let calls = async { tokio::join!(admission.idle(), self.control_calls.idle()) };
        if tokio::time::timeout_at(until, calls).await.is_err() {
            let calls_left = admission.calls() + self.control_calls.calls();
            tracing::warn!(calls_left, "the drain is over its bound; what is left is cut off");
        }
        // What is left now is the last bytes of answers, and peers that say nothing: hyper waits for the latter for ever.
        let connections = async {
            while let Some(ended) = self.serving.join_next().await {
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(error = &error as &dyn Error, "a listener failed"),
                    Err(error) => tracing::error!(%error, "a listener's task failed"),
                }
            }
        };
        let until = until.min(tokio::time::Instant::now() + CONNECTIONS_TIME_MAX);
        if tokio::time::timeout_at(until, connections).await.is_err() {
            tracing::info!("connections that are still open are cut off");
        }
        self.serving.abort_all();
        self.metrics.log();
        self.host.log_counters();
        admission.calls() + self.control_calls.calls()
    }
}

/// Says whether calls on files are taken, of that service and of the agent as a whole.
pub(crate) async fn set_files_health(health: &HealthReporter, status: ServingStatus) {
    for service in ["", FILES_SERVICE] {
        health.set_service_status(service, status).await;
    }
}

/// Health and both versions of reflection, beside a service.
pub(crate) fn common_routes(routes: Routes, health: &HealthReporter, service: &str) -> Result<Routes, StartError> {
    let failed = |error: tonic_reflection::server::Error| StartError::Services(error.into());
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(service)
            .with_service_name("grpc.health.v1.Health")
    };
    let health_service = tonic_health::server::HealthService::from_health_reporter(health.clone());
    Ok(routes
        .add_service(tonic_health::pb::health_server::HealthServer::new(health_service))
        .add_service(reflection().with_service_name("grpc.reflection.v1.ServerReflection").build_v1().map_err(failed)?)
        .add_service(
            reflection()
                .with_service_name("grpc.reflection.v1alpha.ServerReflection")
                .build_v1alpha()
                .map_err(failed)?,
        ))
}

/// One listener, until `closed` turns true and its connections have ended.
pub(crate) async fn serve<I, IO, E>(
    incoming: I,
    routes: Routes,
    observe: ObserveLayer,
    mut closed: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error>
where
    I: Stream<Item = Result<IO, E>>,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    tonic::transport::Server::builder()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_frame_size(256 << 10)
        .max_concurrent_streams(256)
        .http2_max_header_list_size(16 << 10)
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .max_connection_age(Duration::from_secs(30 * 60))
        .max_connection_age_grace(Duration::from_secs(60))
        .layer(observe)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move {
            // An error means that the server itself is gone, and then this listener goes too.
            let _ = closed.wait_for(|closed| *closed).await;
        })
        .await
}

#[cfg(test)]
mod tests;
