//! The way to the agent inside a running machine: one lazily opened channel for each workspace, and what the host itself
//! says to that agent. Calls on files go through the same channel, in [`crate::rpc::relay`].
//!
//! Who the machine is follows from the socket that was dialled, never from what it says. Liveness is a PING of HTTP/2
//! (RFC 9113, section 6.7) and nothing else: a Patch or a revision of some GiB may be silent for long, a machine that
//! hangs answers no PING.

pub mod dial;
pub mod machine;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

use crate::host::{
    Feature,
    spec::{Guest, GuestAddress},
};

/// The metadata key by which the host shows a guest its token.
pub const TOKEN_METADATA: &str = "dormouse-guest-token";
/// The one name by which a host asks a guest for its workspace: the same for ever, because it is a part of what a key of a
/// change stands for.
pub const GUEST_WORKSPACE: &str = "workspace";

/// Of the way to a machine's own agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelaySettings {
    /// Connecting, hybrid vsock's OK included.
    pub connect: Duration,
    /// Between two PINGs.
    pub ping: Duration,
    /// PINGs without an answer before the guest is unreachable.
    pub ping_lost: u32,
}

/// The channel to one guest.
pub struct Link {
    guest: Guest,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    /// Connections made so far: after a new one the guest may be another version of itself.
    connections: Arc<AtomicU64>,
    features: Mutex<Option<(u64, Vec<Feature>)>>,
}

impl Link {
    /// To this guest; nothing is dialled before the first call. Must be called within a tokio runtime.
    pub fn new(guest: &Guest, settings: RelaySettings) -> Self {
        let connections = Arc::new(AtomicU64::new(0));
        let connector = tower::service_fn({
            let connections = connections.clone();
            let address = guest.address.clone();
            move |_: http::Uri| {
                let (connections, address) = (connections.clone(), address.clone());
                async move {
                    let socket = timely(&address, settings.connect).await?;
                    connections.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, io::Error>(TokioIo::new(socket))
                }
            }
        });
        // The name of the authority is no address: the connector knows where the guest is.
        let channel = Endpoint::from_static("http://guest")
            .http2_keep_alive_interval(settings.ping)
            .keep_alive_timeout(settings.ping.saturating_mul(settings.ping_lost))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20)
            .connect_with_connector_lazy(connector);
        let token = guest.token.parse().ok().filter(|_| !guest.token.is_empty());
        Self { guest: guest.clone(), channel, token, connections, features: Mutex::default() }
    }

    /// To whom.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// For a client of one of the guest's services.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A request of ours, with the guest's token and nothing of any caller's.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert(TOKEN_METADATA, token.clone());
        }
        request
    }

    /// What the guest can do, where that is known of the connection as it is now.
    pub fn features(&self) -> Option<Vec<Feature>> {
        let connections = self.connections.load(Ordering::SeqCst);
        let known = self.features.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(at, _)| *at == connections).map(|(_, features)| features.clone())
    }

    /// Keeps what the guest said it can do.
    pub fn remember(&self, features: Vec<Feature>) {
        let connections = self.connections.load(Ordering::SeqCst);
        *self.features.lock().unwrap_or_else(PoisonError::into_inner) = Some((connections, features));
    }
}

async fn timely(address: &GuestAddress, limit: Duration) -> io::Result<Box<dyn dial::Socket>> {
    match tokio::time::timeout(limit, dial::dial(address)).await {
        Ok(found) => found,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the guest does not take the connection in time")),
    }
}
