//! The host's own vsock, by its loopback (`CONFIG_VSOCKETS_LOOPBACK`, vsock(7)): a connection is made as to a machine, and the
//! agent inside takes none whose peer is not the host.

use std::{io::Read as _, os::fd::AsRawFd};

use dormouse_server::host::{relay::dial::dial, spec::GuestAddress};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, accept, bind, getsockname, listen, socket,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    skip::skip,
    world::{Agent, World},
};

/// `VMADDR_CID_LOCAL`.
const CID_LOCAL: u32 = 1;
/// `VMADDR_CID_ANY` and `VMADDR_PORT_ANY`.
const ANY: u32 = u32::MAX;
const WHAT: &str = "a vsock with a peer";

#[tokio::test]
async fn a_vsock_is_dialled_and_the_agent_inside_takes_the_host_alone() {
    let listener = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).and_then(|listener| {
        bind(listener.as_raw_fd(), &VsockAddr::new(ANY, ANY))?;
        listen(&listener, Backlog::new(1)?)?;
        Ok(listener)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(errno) => {
            return skip(WHAT, &format!("this kernel has none: {errno}; only a monitor's own socket is tested"));
        }
    };
    let port = getsockname::<VsockAddr>(listener.as_raw_fd()).unwrap().port();
    let mut stream = match dial(&GuestAddress::Vsock { cid: CID_LOCAL, port }).await {
        Ok(stream) => stream,
        Err(error) => {
            return skip(
                WHAT,
                &format!("this kernel has no loopback for it: {error}; only a monitor's own socket is tested"),
            );
        }
    };
    // A vsock stream behaves as any stream socket, so the type for Unix sockets carries it.
    let mut taken = std::os::unix::net::UnixStream::from(accept(&listener).unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut bytes = [0; 4];
    taken.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
    drop((taken, stream, listener));

    // A process of the same machine is not the host.
    let world = World::new(|_| ()).await;
    let (_agent, _) = Agent::start(&world.at("machine"), &format!("vsock:{port}"), &[]);
    let mut stream = dial(&GuestAddress::Vsock { cid: CID_LOCAL, port }).await.unwrap();
    // Hung up on, whether or not it has said something.
    let ended = stream.read(&mut bytes).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    world.server.shutdown().await;
}
