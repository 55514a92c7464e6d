//! Where the agent inside a machine is bound, and whom it takes there.

use std::{io, os::fd::AsRawFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, VsockAddr, accept4, bind, getpeername, listen, socket,
};
use tokio::{
    io::Interest,
    net::{TcpListener, UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};
use tonic::service::Routes;

use crate::{
    config::Address,
    connections::{Accept, FILES_CONNECTIONS_MAX, Incoming, Room},
    guest::GuestAddress,
    listen::{self as sockets, ListenError, Listener, SocketFile},
    rpc::observe::ObserveLayer,
    server::serve as serve_incoming,
};

/// Any cid of this machine (`VMADDR_CID_ANY`, vsock(7)).
const CID_ANY: u32 = u32::MAX;
/// The host's (`VMADDR_CID_HOST`).
const CID_HOST: u32 = 2;
/// Connections that wait to be taken.
const BACKLOG: i32 = 64;

/// What was bound.
pub(super) struct Bound {
    pub(super) address: GuestAddress,
    pub(super) socket_file: Option<SocketFile>,
}

/// Binds, and serves in a task of `serving` until `closed`.
pub(super) fn serve(
    address: &GuestAddress,
    routes: Routes,
    observe: ObserveLayer,
    closed: watch::Receiver<bool>,
    serving: &mut JoinSet<Result<(), tonic::transport::Error>>,
) -> Result<Bound, ListenError> {
    let failed = |source| ListenError::Io { address: address.to_string(), source };
    let room = Room::new(FILES_CONNECTIONS_MAX);
    let known = match address {
        GuestAddress::Unix(path) => Address::Unix(path.clone()),
        GuestAddress::Tcp(tcp) => Address::Tcp(*tcp),
        GuestAddress::Vsock(port) => {
            let listener = bind_vsock(*port).map_err(failed)?;
            serving.spawn(serve_incoming(Incoming::new(HostOnly(listener), &room), routes, observe, closed));
            return Ok(Bound { address: address.clone(), socket_file: None });
        }
    };
    match sockets::bind(&known)? {
        Listener::Tcp(listener, bound) => {
            let listener = TcpListener::from_std(listener).map_err(failed)?;
            let incoming = Incoming::new(listener, &room);
            serving.spawn(serve_incoming(incoming, routes, observe, closed));
            Ok(Bound { address: GuestAddress::Tcp(bound), socket_file: None })
        }
        Listener::Unix(listener, file) => {
            let listener = UnixListener::from_std(listener).map_err(failed)?;
            serving.spawn(serve_incoming(Incoming::new(listener, &room), routes, observe, closed));
            Ok(Bound { address: address.clone(), socket_file: Some(file) })
        }
    }
}

fn bind_vsock(port: u32) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let descriptor = socket(AddressFamily::Vsock, SockType::Stream, flags, None)?;
    bind(descriptor.as_raw_fd(), &VsockAddr::new(CID_ANY, port))?;
    listen(&descriptor, Backlog::new(BACKLOG)?)?;
    // As below: the type carries the descriptor through the runtime, and is asked for readiness alone.
    UnixStream::from_std(descriptor.into())
}

/// The connections of the host; any other peer, such as a process of this machine by the loopback cid, is hung up on.
struct HostOnly(UnixStream);

impl Accept for HostOnly {
    type Connection = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            if let Some(stream) = accept(&self.0).await? {
                return Ok(stream);
            }
        }
    }
}

async fn accept(listener: &UnixStream) -> io::Result<Option<UnixStream>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    loop {
        listener.readable().await?;
        let descriptor = match listener.try_io(Interest::READABLE, || Ok(accept4(listener, flags)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            taken => taken?,
        };
        // One that has gone already has no name.
        let Ok(peer) = getpeername::<VsockAddr>(descriptor.as_raw_fd()) else { return Ok(None) };
        if peer.family() != Some(AddressFamily::Vsock) || peer.cid() != CID_HOST {
            tracing::warn!(cid = peer.cid(), "a caller that is not the host is hung up on");
            return Ok(None);
        }
        // A vsock stream behaves as any stream socket, so the runtime's type for Unix sockets carries it.
        return UnixStream::from_std(descriptor.into()).map(Some);
    }
}
