//! Where something listens.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, de};

/// Where something listens: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, mode 0600.
    Unix(PathBuf),
    /// Loopback only, while there is no TLS; port 0: any.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            // gRPC's own spelling of an absolute path is unix:///path.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err("unix: needs a path, such as unix:/run/dormouse/files.sock".to_owned());
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if let Some(address) = text.strip_prefix("tcp:") {
            let mut found = address
                .to_socket_addrs()
                .map_err(|error| format!("{text}: {error}; give tcp:HOST:PORT, such as tcp:127.0.0.1:50051"))?;
            return found.next().map(Self::Tcp).ok_or_else(|| format!("{text}: no such host"));
        }
        Err(format!("{text:?} is no address: give unix:PATH or tcp:HOST:PORT"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(address) => write!(formatter, "tcp:{address}"),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
