//! MCP over streamable HTTP: one path, checked hosts and origins, bounded connections and sessions.
//!
//! A web page that a person looks at can send requests to a loopback address, under a name of its own that it made point there
//! (DNS rebinding): so the `Host` of a request must be a name that was allowed, and a request that carries an `Origin` is
//! refused unless that origin was allowed (MCP specification, Transports, security warning).

use std::{convert::Infallible, fmt::Display, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::{net::TcpListener, sync::Semaphore};

use super::server::{Server, Shared};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
};

const PATH: &str = "/mcp";
const CONNECTIONS_MAX: usize = 256;
const SESSIONS_MAX: usize = 64;
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// After an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may send requests.
pub struct Guards {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// Of `DORMOUSE_MCP_TOKEN`.
    token: Option<String>,
}

impl Guards {
    pub fn new(hosts: Vec<String>, origins: Vec<String>) -> Self {
        let token = std::env::var("DORMOUSE_MCP_TOKEN").ok().filter(|token| !token.is_empty());
        Self { hosts, origins, token }
    }

    fn check(&self, address: SocketAddr) -> Result<(), Failure> {
        if address.ip().is_loopback() || (self.token.is_some() && !self.hosts.is_empty()) {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "--http {address} can be reached from other machines: set DORMOUSE_MCP_TOKEN and give --allow-host, or take a \
             loopback address such as 127.0.0.1"
        )))
    }

    fn config(&self) -> StreamableHttpServerConfig {
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(loopback.into_iter().chain(self.hosts.iter().cloned()))
            .with_allowed_origins(self.origins.iter().cloned())
            .enforce_origin_validation();
        config.max_request_body_bytes = REQUEST_BYTES_MAX;
        config
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        given.and_then(|value| value.strip_prefix(b"Bearer ")).is_some_and(|given| same(given, token.as_bytes()))
    }
}

/// Compared in a time that does not depend on where they differ.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differ, (left, right)| differ | (left ^ right)) == 0
}

/// Until the process is told to end.
pub async fn serve(
    address: SocketAddr,
    guards: Guards,
    shared: Arc<Shared>,
    context: &Context,
) -> Result<Exit, Failure> {
    guards.check(address)?;
    let named = |error| Failure::File(format!("--http {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(named)?;
    let at = listener.local_addr().map_err(named)?;
    let workspace = shared.workspace().to_owned();
    let places = Arc::new(Semaphore::new(SESSIONS_MAX));
    let sessions = move || match places.clone().try_acquire_owned() {
        Ok(place) => Ok(Server::in_place(shared.clone(), place)),
        Err(_) => Err(std::io::Error::other(format!("{SESSIONS_MAX} sessions are open"))),
    };
    let mcp = StreamableHttpService::new(sessions, Arc::new(LocalSessionManager::default()), guards.config());
    let guards = Arc::new(guards);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    context.say(&format!("serving the tools of {workspace} at http://{at}{PATH}"));
    loop {
        let place = connections.clone().acquire_owned().await.map_err(|error| Failure::Panic(error.to_string()))?;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                context.note(&format!("no connection: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (mcp, guards) = (mcp.clone(), guards.clone());
        let service = tower::service_fn(move |request| {
            let (mcp, guards) = (mcp.clone(), guards.clone());
            async move { Ok::<_, Infallible>(answer(&mcp, &guards, request).await) }
        });
        tokio::spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
            server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // How a connection ended is the agent's own affair.
            let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
            drop(place);
        });
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Mcp = StreamableHttpService<Server, LocalSessionManager>;

async fn answer<B>(mcp: &Mcp, guards: &Guards, request: Request<B>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Error: Display,
{
    if !guards.admits(request.headers()) {
        return refused(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
    }
    if request.uri().path() != PATH {
        return refused(StatusCode::NOT_FOUND, "the tools are at /mcp\n");
    }
    mcp.handle(request).await.map(BodyExt::boxed_unsync)
}

fn refused(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guards(hosts: &[&str], token: Option<&str>) -> Guards {
        let hosts = hosts.iter().map(ToString::to_string).collect();
        Guards { hosts, origins: vec![], token: token.map(str::to_owned) }
    }

    #[test]
    fn only_loopback_is_served_without_a_token_and_a_host() {
        for address in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80"] {
            assert!(guards(&[], None).check(address.parse().unwrap()).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            let address = address.parse().unwrap();
            assert!(guards(&[], None).check(address).is_err());
            assert!(guards(&["a"], None).check(address).is_err());
            assert!(guards(&[], Some("t")).check(address).is_err());
            assert!(guards(&["a"], Some("t")).check(address).is_ok());
        }
    }

    #[test]
    fn a_token_is_asked_for_where_there_is_one() {
        let check = |token: Option<&str>, given: Option<&str>, expect: bool| {
            let mut headers = HeaderMap::new();
            given.into_iter().for_each(|given| {
                headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            });
            assert_eq!(guards(&[], token).admits(&headers), expect, "{token:?} {given:?}");
        };
        check(None, None, true);
        check(Some("abc"), None, false);
        check(Some("abc"), Some("Bearer abd"), false);
        check(Some("abc"), Some("Bearer abcd"), false);
        check(Some("abc"), Some("abc"), false);
        check(Some("abc"), Some("Bearer abc"), true);
    }
}
