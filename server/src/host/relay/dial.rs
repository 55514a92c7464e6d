//! A connection to the agent inside a machine: a Unix socket, loopback TCP, the host's own vsock (vsock(7)), or the Unix
//! socket by which Firecracker and Cloud Hypervisor reach a machine's vsock: the caller writes `CONNECT port`, and the
//! monitor answers `OK` and its own port once the machine has taken the connection.

use std::{
    io,
    os::{fd::AsRawFd, unix::fs::FileTypeExt},
    path::Path,
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr, connect, socket},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};

use crate::host::spec::GuestAddress;

/// Longest answer to `CONNECT`, in bytes: `OK 4294967295` and its end.
const ANSWER_BYTES_MAX: usize = 32;

/// Both directions of a connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Connects. Its caller bounds the time.
///
/// # Errors
/// From the system; `InvalidData` where a hybrid socket does not answer `OK`.
pub async fn dial(address: &GuestAddress) -> io::Result<Box<dyn Socket>> {
    match address {
        GuestAddress::Unix(path) => Ok(Box::new(unix(path).await?)),
        GuestAddress::HybridVsock { socket, port } => Ok(Box::new(hybrid(socket, *port).await?)),
        GuestAddress::Vsock { cid, port } => Ok(Box::new(vsock(*cid, *port).await?)),
        GuestAddress::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
    }
}

async fn unix(path: &Path) -> io::Result<UnixStream> {
    // A link could lead to a socket that the registration would have refused.
    if !tokio::fs::symlink_metadata(path).await?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a socket", path.display())));
    }
    UnixStream::connect(path).await
}

async fn hybrid(path: &Path, port: u32) -> io::Result<UnixStream> {
    let mut stream = unix(path).await?;
    stream.write_all(format!("CONNECT {port}\n").as_bytes()).await?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES_MAX);
    // One byte at a time: what follows the line is HTTP/2 already, and not ours to take.
    while answer.last() != Some(&b'\n') {
        if answer.len() == ANSWER_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the socket's answer to CONNECT has no end"));
        }
        answer.push(stream.read_u8().await?);
    }
    if !answer.starts_with(b"OK ") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the socket does not answer CONNECT with OK"));
    }
    Ok(stream)
}

/// A vsock stream behaves as any stream socket once it is connected, so the runtime's type for Unix sockets carries it.
async fn vsock(cid: u32, port: u32) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let descriptor = socket(AddressFamily::Vsock, SockType::Stream, flags, None)?;
    match connect(descriptor.as_raw_fd(), &VsockAddr::new(cid, port)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = UnixStream::from_std(descriptor.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        None => Ok(stream),
        Some(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// A hybrid socket that answers so, and what the dial makes of it.
    async fn check(answer: &'static [u8], expect: Result<(), io::ErrorKind>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 13];
            stream.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked, b"CONNECT 1024\n");
            stream.write_all(answer).await.unwrap();
        });
        let found = dial(&GuestAddress::HybridVsock { socket: path, port: 1024 }).await;
        assert_eq!(found.map(drop).map_err(|error| error.kind()), expect, "{answer:?}");
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_hybrid_socket_says_ok_in_one_line() {
        check(b"OK 1073741824\nPRI", Ok(())).await;
        check(b"NO\n", Err(io::ErrorKind::InvalidData)).await;
        check(b"OK", Err(io::ErrorKind::UnexpectedEof)).await;
        check(&[b'x'; 64], Err(io::ErrorKind::InvalidData)).await;
    }

    #[tokio::test]
    async fn only_a_socket_itself_is_dialled() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let _listener = UnixListener::bind(at("s")).unwrap();
        std::os::unix::fs::symlink(at("s"), at("link")).unwrap();
        assert!(dial(&GuestAddress::Unix(at("s"))).await.is_ok());
        for name in ["link", "none"] {
            assert!(dial(&GuestAddress::Unix(at(name))).await.is_err(), "{name}");
        }
    }
}
