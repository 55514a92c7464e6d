//! Where a host listens, and the connection to it.
//!
//! A connection is opened at the first call and again whenever it was lost, so a host that is away for a moment is an
//! error of a call (and is retried there), never an error of the start.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint as Transport, Uri};

use crate::trust::{NoAuthorities, Trust, can_be_certified};

/// The receiver's settings decide the speed of a Read: frames this large (bytes) halve the client's work.
const FRAME_BYTES: u32 = 256 * 1024;
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
const HEADER_LIST_BYTES: u32 = 16 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// `sockaddr_un.sun_path` of unix(7), with its final zero byte.
const UNIX_PATH_BYTES_MAX: usize = 107;
const HTTPS_PORT: u16 = 443;

/// The address of a host's listener.
///
/// Written as `unix:/run/dormouse/files.sock`, `https://HOST[:PORT]` (443 where it is left out), `http://HOST:PORT` or
/// `tcp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A Unix socket that speaks HTTP/2.
    Unix(PathBuf),
    /// HTTP/2 with prior knowledge over TCP, not encrypted.
    Tcp {
        /// A name or an address; an IPv6 address without its brackets.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// HTTP/2 over TLS; the server's certificate must be for this host.
    Tls {
        /// A name or an address; an IPv6 address without its brackets.
        host: String,
        /// Never 0.
        port: u16,
    },
}

/// Why a text is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No known scheme at the start.
    #[error(
        "endpoint {0:?} has no known scheme: write unix:PATH, https://HOST[:PORT], http://HOST:PORT or tcp:HOST:PORT"
    )]
    Scheme(String),
    /// The socket's path is empty, too long for the kernel, or holds a zero byte.
    #[error("endpoint {0:?}: a Unix socket's path has 1 to {UNIX_PATH_BYTES_MAX} bytes and no zero byte")]
    UnixPath(String),
    /// No host and port, or more than that.
    #[error("endpoint {0:?}: after the scheme a host and a port are expected, such as 127.0.0.1:7070")]
    HostPort(String),
}

impl Endpoint {
    /// A channel to this endpoint; nothing is sent before its first call. Must be called inside a Tokio runtime. Over TLS
    /// the system's authorities are trusted.
    pub fn channel(&self) -> Channel {
        self.channel_with(&Trust::system())
    }

    /// The same, with a say in whose certificates are believed. Without TLS that means nothing.
    pub fn channel_with(&self, trust: &Trust) -> Channel {
        match self {
            Self::Unix(path) => {
                let path = path.clone();
                // The authority is only a name in the request's head; a socket has none of its own.
                let transport = settings(Transport::from_static("http://localhost"));
                transport.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                }))
            }
            Self::Tcp { .. } => {
                let uri = self.uri().expect("a parsed host and port make a URI");
                settings(Transport::from(uri)).connect_lazy()
            }
            Self::Tls { .. } => {
                let uri = self.uri().expect("a parsed host and port make a URI");
                let transport = settings(Transport::from(uri));
                match transport.clone().tls_config(trust.config()) {
                    Ok(transport) => transport.connect_lazy(),
                    // The name was looked at when it was parsed, so the system has no authorities: told by the first call.
                    Err(_) => transport.connect_with_connector_lazy(tower::service_fn(|_: Uri| async {
                        Err::<TokioIo<UnixStream>, _>(NoAuthorities)
                    })),
                }
            }
        }
    }

    fn uri(&self) -> Option<Uri> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp { .. } | Self::Tls { .. } => self.to_string().parse().ok(),
        }
    }
}

fn settings(transport: Transport) -> Transport {
    transport
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .max_frame_size(FRAME_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADER_LIST_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(rest) = text.strip_prefix("unix:") {
            // gRPC's own naming writes absolute paths with "//" too; both mean the same.
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() || path.len() > UNIX_PATH_BYTES_MAX || path.contains('\0') {
                return Err(EndpointError::UnixPath(text.to_owned()));
            }
            return Ok(Self::Unix(Path::new(path).to_owned()));
        }
        let refused = || EndpointError::HostPort(text.to_owned());
        if let Some(rest) = text.strip_prefix("https://") {
            let (host, port) =
                host_and_port(rest.strip_suffix('/').unwrap_or(rest), Some(HTTPS_PORT)).ok_or_else(refused)?;
            return if can_be_certified(&host) { Ok(Self::Tls { host, port }) } else { Err(refused()) };
        }
        let rest = match text.strip_prefix("http://") {
            Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
            None => text.strip_prefix("tcp:").ok_or_else(|| EndpointError::Scheme(text.to_owned()))?,
        };
        let (host, port) = host_and_port(rest, None).ok_or_else(refused)?;
        let endpoint = Self::Tcp { host, port };
        if endpoint.uri().is_some() { Ok(endpoint) } else { Err(refused()) }
    }
}

fn host_and_port(text: &str, default: Option<u16>) -> Option<(String, u16)> {
    // The last colon of a bare "[::1]" belongs to the address.
    let (host, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)?),
        None => (text, default?),
    };
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').filter(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())?,
        None if !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) => host,
        None => return None,
    };
    Some((host.to_owned(), port))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Unix(path) => return write!(out, "unix:{}", path.display()),
            Self::Tcp { host, port } => ("http", host, port),
            Self::Tls { host, port } => ("https", host, port),
        };
        if host.contains(':') {
            write!(out, "{scheme}://[{host}]:{port}")
        } else {
            write!(out, "{scheme}://{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let parsed = text.parse::<Endpoint>();
        match expect {
            Ok(shown) => {
                let endpoint = parsed.unwrap();
                assert_eq!(endpoint.to_string(), shown, "{text}");
                assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint, "{text} round trip");
            }
            Err(part) => {
                let error = parsed.unwrap_err().to_string();
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    #[test]
    fn endpoints_are_parsed() {
        check("unix:/run/dormouse/files.sock", Ok("unix:/run/dormouse/files.sock"));
        check("unix:///run/dormouse/files.sock", Ok("unix:/run/dormouse/files.sock"));
        check("unix:files.sock", Ok("unix:files.sock"));
        check("http://127.0.0.1:7070", Ok("http://127.0.0.1:7070"));
        check("http://127.0.0.1:7070/", Ok("http://127.0.0.1:7070"));
        check("tcp:localhost:7070", Ok("http://localhost:7070"));
        check("tcp:[::1]:7070", Ok("http://[::1]:7070"));
        check("https://host", Ok("https://host:443"));
        check("https://host:8443/", Ok("https://host:8443"));
        check("https://127.0.0.1", Ok("https://127.0.0.1:443"));
        check("https://[::1]", Ok("https://[::1]:443"));
        check("https://[::1]:70", Ok("https://[::1]:70"));
        check("http://host-1.internal:65535", Ok("http://host-1.internal:65535"));
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_reason() {
        check("", Err("no known scheme"));
        check("/run/dormouse.sock", Err("no known scheme"));
        check("localhost:7070", Err("no known scheme"));
        check("https:host:443", Err("no known scheme"));
        check("https://", Err("a host and a port"));
        check("https://host:0", Err("a host and a port"));
        check("https://host/path", Err("a host and a port"));
        check("https://a..b", Err("a host and a port"));
        check("https://::1", Err("a host and a port"));
        check("https://user@host", Err("a host and a port"));
        check("http://[::1]", Err("a host and a port"));
        check("unix:", Err("107 bytes"));
        check(&format!("unix:/{}", "a".repeat(107)), Err("107 bytes"));
        check("unix:/a\0b", Err("107 bytes"));
        check("http://host", Err("a host and a port"));
        check("http://host:0", Err("a host and a port"));
        check("http://host:65536", Err("a host and a port"));
        check("http://host:70/path", Err("a host and a port"));
        check("http://:70", Err("a host and a port"));
        check("http://user@host:70", Err("a host and a port"));
        check("tcp:::1:70", Err("a host and a port"));
        check("tcp:[zz]:70", Err("a host and a port"));
    }
}
