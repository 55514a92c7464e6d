//! Sockets: bound before anything is served, loopback TCP and Unix sockets that only their owner can open.
//!
//! A Unix socket is bound inside a private directory (0700) beside its place and then renamed there, so that there is no
//! moment in which another user could open it; unix(7) says that the permission on the socket is what counts. The socket
//! of an agent that is gone is replaced, that of a living one is refused.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::config::Address;

/// Why nothing can listen there.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody answers there.
    #[error("{address}: another agent is listening there")]
    Taken {
        /// Where.
        address: String,
    },
    /// There is something that is no socket.
    #[error("{}: there is something that is not a socket; it is left alone", .path.display())]
    NotSocket {
        /// Where.
        path: PathBuf,
    },
    /// The system failed.
    #[error("{address} cannot be bound")]
    Io {
        /// Where.
        address: String,
        /// From the system.
        #[source]
        source: io::Error,
    },
}

/// Something bound.
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener, SocketAddr),
    /// A Unix socket, removed when this is dropped.
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Where it listens, its port included.
    pub fn address(&self) -> Address {
        match self {
            Self::Tcp(_, address) => Address::Tcp(*address),
            Self::Unix(_, file) => Address::Unix(file.path.clone()),
        }
    }
}

/// The file of a Unix socket; removed when this is dropped, where it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If it cannot be removed now, the next agent finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds an address.
///
/// # Errors
/// See [`ListenError`].
pub fn bind(address: &Address) -> Result<Listener, ListenError> {
    let failed = |source| ListenError::Io { address: address.to_string(), source };
    match address {
        Address::Tcp(tcp) => {
            let listener = TcpListener::bind(tcp).map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => ListenError::Taken { address: address.to_string() },
                _ => failed(source),
            })?;
            listener.set_nonblocking(true).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok(Listener::Tcp(listener, bound))
        }
        Address::Unix(path) => {
            check_place(path, address)?;
            let (listener, identity) = bind_privately(path).map_err(failed)?;
            Ok(Listener::Unix(listener, SocketFile { path: path.clone(), identity }))
        }
    }
}

fn check_place(path: &Path, address: &Address) -> Result<(), ListenError> {
    let failed = |source| ListenError::Io { address: address.to_string(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => Err(ListenError::NotSocket { path: path.to_owned() }),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
            Ok(_) => Err(ListenError::Taken { address: address.to_string() }),
            Err(error) => Err(failed(error)),
        },
    }
}

fn bind_privately(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    // Short, because a socket's path has at most 107 bytes (unix(7)).
    let private = parent.join(format!(".d{:x}{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    let staged = private.join("s");
    let bound = (|| {
        let listener = UnixListener::bind(&staged)?;
        fs::set_permissions(&staged, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let identity = identity(&staged)?;
        fs::rename(&staged, path)?;
        Ok((listener, identity))
    })();
    if bound.is_err() {
        // The error to tell is the first one.
        let _ = fs::remove_file(&staged);
    }
    let removed = fs::remove_dir(&private);
    bound.and_then(|bound| removed.map(|()| bound))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_socket_is_its_owners_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/files.sock");
        let listener = bind(&Address::Unix(path.clone())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(path.parent().unwrap()), ["files.sock"]);
        assert!(UnixStream::connect(&path).is_ok());
        drop(listener);
        assert!(names(path.parent().unwrap()).is_empty());
    }

    #[test]
    fn a_living_agent_is_left_alone_and_a_dead_one_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = bind(&Address::Unix(path.clone())).unwrap();
        assert!(matches!(bind(&Address::Unix(path.clone())), Err(ListenError::Taken { .. })));
        drop(first);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(bind(&Address::Unix(path.clone())).is_ok());
        fs::write(&path, "mine").unwrap();
        assert!(matches!(bind(&Address::Unix(path.clone())), Err(ListenError::NotSocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_port_of_nought_is_any_port() {
        let listener = bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let Address::Tcp(bound) = listener.address() else { panic!("a port was bound") };
        assert_ne!(bound.port(), 0);
        assert!(matches!(bind(&Address::Tcp(bound)), Err(ListenError::Taken { .. })));
    }
}
