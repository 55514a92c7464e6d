//! One layer around every service: a span, a request id, a count, a latency and an outcome for each call; a caught panic;
//! the caller's deadline; the host's limiter; and a normaliser, so that no error leaves without its `ErrorInfo`.
//!
//! ```text
//! span and counters → catch a panic → normalise an error → deadline → limiter → the service
//!                     (of the answer's head here; of its body in [`crate::rpc::body`])
//! ```

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dormouse_files::revision::Revision;
use http::{HeaderMap, HeaderValue, Request, Response};
use tonic::{Status, body::Body};
use tower::{Layer, Service};
use tracing::Instrument;

use crate::{
    host::{
        admit::{Admission, Permit},
        error::HostFault,
        relay::TOKEN_METADATA,
    },
    rpc::{body::Observed, status},
    telemetry::metrics::Metrics,
};

/// The response header that names the call in the log.
pub const REQUEST_ID: &str = "x-request-id";
/// Longest request id that is taken over from a caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What a handler is told of its call, by the request's extensions.
#[derive(Debug, Clone)]
pub struct Call {
    /// By when the caller wants its answer.
    pub deadline: Option<Instant>,
    /// The call's room on this host; whoever works for the call holds it.
    pub permit: Option<Arc<Permit>>,
}

/// Which calls the limiter counts.
#[derive(Clone)]
pub struct Gate {
    /// Calls on files.
    pub files: Admission,
    /// Calls of the control plane, which overloaded callers of files must not shut out.
    pub host: Admission,
    /// What every call must show, inside a machine that listens where others could call.
    pub token: Option<Token>,
}

/// A token, of which only the digest is kept.
#[derive(Clone)]
pub struct Token(Revision);

impl Token {
    /// This one.
    pub fn new(token: &str) -> Self {
        Self(Revision::of(token.as_bytes()))
    }

    /// Whether a call carries it. The digests are compared in full, so the time says nothing of where they differ.
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(TOKEN_METADATA).map(HeaderValue::as_bytes).unwrap_or_default();
        let shown = Revision::of(shown);
        let differing = self.0.digest().iter().zip(shown.digest()).fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(differing) == 0
    }
}

/// Makes the layer.
#[derive(Clone)]
pub struct ObserveLayer {
    /// Room for calls.
    pub gate: Gate,
    /// Counters.
    pub metrics: Metrics,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe { inner, layer: self.clone() }
    }
}

/// The layer.
#[derive(Clone)]
pub struct Observe<S> {
    inner: S,
    layer: ObserveLayer,
}

impl<S> Service<Request<Body>> for Observe<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The service that was polled ready is the one that is called; its clone waits for the next call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let began = Instant::now();
        let id = request_id(request.headers());
        let method = method_name(request.uri().path());
        let path = request.uri().path().to_owned();
        let span = tracing::info_span!("call", method, id = id.to_str().unwrap_or_default());
        let deadline = timeout(request.headers()).and_then(|timeout| began.checked_add(timeout));
        let ObserveLayer { gate, metrics } = self.layer.clone();
        let end = End { metrics, method, id: id.clone(), began };

        let work = async move {
            if gate.token.as_ref().is_some_and(|token| !token.is_shown(request.headers())) {
                return Ok(answer(status::of_host(&HostFault::CredentialsRequired), &id, end));
            }
            let permit = match admit(&gate, &path) {
                Ok(permit) => permit.map(Arc::new),
                Err(fault) => return Ok(answer(status::of_host(&fault), &id, end)),
            };
            request.extensions_mut().insert(Call { deadline, permit: permit.clone() });
            let handled = catch(inner.call(request));
            let handled = match deadline {
                Some(deadline) => match tokio::time::timeout_at(deadline.into(), handled).await {
                    Ok(handled) => handled,
                    Err(_) => {
                        return Ok(answer(status::of_fault("", &dormouse_files::Fault::DeadlineExceeded), &id, end));
                    }
                },
                None => handled.await,
            };
            let response = match handled {
                Some(response) => response?,
                None => {
                    tracing::error!("a handler panicked");
                    return Ok(answer(status::internal("a handler panicked"), &id, end));
                }
            };
            // An error before any message is in the headers alone ("Trailers-Only" of gRPC over HTTP/2).
            if let Some(refused) =
                Status::from_header_map(response.headers()).filter(|status| status.code() != tonic::Code::Ok)
            {
                return Ok(answer(status::normalised(refused, &path), &id, end));
            }
            let (mut head, body) = response.into_parts();
            head.headers.insert(REQUEST_ID, id);
            let deadline = deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
            Ok(Response::from_parts(head, Body::new(Observed::new(body, deadline, permit, path, end))))
        };
        Box::pin(work.instrument(span))
    }
}

/// Ends a call: its outcome is counted and logged once.
pub struct End {
    metrics: Metrics,
    method: &'static str,
    id: HeaderValue,
    began: Instant,
}

impl End {
    /// With this status, after so many bytes. A caller's mistake is told at DEBUG; what a person must look at, at ERROR. A
    /// corrupt disk (DATA_LOSS) is told by the host, once, and not again for every call that meets it.
    pub fn ended(&self, code: tonic::Code, message: &str, bytes: u64) {
        let time = self.began.elapsed();
        self.metrics.ended(self.method, code, bytes, time);
        let (method, id, time_us) = (self.method, self.id.to_str().unwrap_or_default(), time.as_micros() as u64);
        match code {
            tonic::Code::Internal | tonic::Code::Unknown => {
                tracing::error!(method, id, ?code, message, bytes, time_us, "call failed");
            }
            _ => tracing::debug!(method, id, ?code, bytes, time_us, "call ended"),
        }
    }
}

fn answer(status: Status, id: &HeaderValue, end: End) -> Response<Body> {
    end.ended(status.code(), status.message(), 0);
    let mut response = status.into_http::<Body>();
    response.headers_mut().insert(REQUEST_ID, id.clone());
    response
}

fn admit(gate: &Gate, path: &str) -> Result<Option<Permit>, crate::host::error::HostFault> {
    if path.starts_with("/dormouse.files.") {
        return gate.files.call().map(Some);
    }
    if ["/dormouse.host.", "/dormouse.guest."].iter().any(|package| path.starts_with(package)) {
        return gate.host.call().map(Some);
    }
    Ok(None)
}

/// The outcome of a future, or nothing where it panicked.
async fn catch<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// The caller's own id where it is short and printable, else one of ours.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let known = headers.get(REQUEST_ID).filter(|value| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    });
    if let Some(known) = known {
        return known.clone();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let text = format!("{now:x}-{:x}", COUNT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// The time that a caller gives its call: at most eight digits and a unit ("Requests" in gRPC over HTTP/2).
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count.checked_mul(3600)?)),
        "M" => Some(Duration::from_secs(count.checked_mul(60)?)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// The method as the log and the counters have it: one of those that are served, so that a caller cannot make new ones.
fn method_name(path: &str) -> &'static str {
    const FILES: [&str; 10] =
        ["GetCapabilities", "Stat", "Read", "List", "Search", "Patch", "Write", "Remove", "Move", "MakeDirectory"];
    const HOST: [&str; 14] = [
        "GetHost",
        "RegisterWorkspace",
        "ReleaseWorkspace",
        "GetWorkspace",
        "ListWorkspaces",
        "WatchWorkspaces",
        "QuiesceWorkspace",
        "SealWorkspace",
        "UnsealWorkspace",
        "OpenWorkspace",
        "SuspendWorkspace",
        "ResumeWorkspace",
        "DrainHost",
        "UndrainHost",
    ];
    const GUEST: [&str; 3] = ["GetGuest", "Freeze", "Thaw"];
    let known = |names: &[&'static str], name: &str| names.iter().copied().find(|known| *known == name);
    let found = match path.rsplit_once('/') {
        Some(("/dormouse.files.v1.FilesService", name)) => known(&FILES, name),
        Some(("/dormouse.host.v1.HostService", name)) => known(&HOST, name),
        Some(("/dormouse.guest.v1.GuestService", name)) => known(&GUEST, name),
        Some(("/grpc.health.v1.Health", _)) => Some("Health"),
        Some(("/grpc.reflection.v1.ServerReflection" | "/grpc.reflection.v1alpha.ServerReflection", _)) => {
            Some("Reflection")
        }
        _ => None,
    };
    found.unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        let check = |text: &str, expect| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_str(text).unwrap());
            assert_eq!(timeout(&headers), expect, "{text}");
        };
        check("1H", Some(Duration::from_secs(3600)));
        check("2M", Some(Duration::from_secs(120)));
        check("99999999S", Some(Duration::from_secs(99_999_999)));
        check("100m", Some(Duration::from_millis(100)));
        check("7u", Some(Duration::from_micros(7)));
        check("7n", Some(Duration::from_nanos(7)));
        for bad in ["", "S", "1", "1x", "-1S", "123456789S", "1.5S", " 1S"] {
            check(bad, None);
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn a_caller_makes_no_new_method_names() {
        assert_eq!(method_name("/dormouse.files.v1.FilesService/Stat"), "Stat");
        assert_eq!(method_name("/dormouse.host.v1.HostService/GetHost"), "GetHost");
        assert_eq!(method_name("/grpc.health.v1.Health/Watch"), "Health");
        for odd in ["", "/", "/dormouse.files.v1.FilesService/Nothing", "/x/Stat", "Stat"] {
            assert_eq!(method_name(odd), "other");
        }
    }

    #[test]
    fn a_request_id_is_the_callers_where_it_is_short_and_printable() {
        let check = |text: &str, kept: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(text).unwrap());
            assert_eq!(request_id(&headers) == text, kept, "{text}");
        };
        check("abc-1", true);
        check(&"x".repeat(64), true);
        check(&"x".repeat(65), false);
        check("a b", false);
        check("", false);
    }

    #[tokio::test]
    async fn a_panic_is_nothing() {
        assert_eq!(catch(async { 1 }).await, Some(1));
        assert_eq!(catch(async { panic!("on purpose") }).await, None::<()>);
    }

    /// The layer around a service that does this.
    async fn through<F>(path: &str, timeout: Option<&str>, calls_max: usize, work: fn() -> F) -> (Status, Metrics)
    where
        F: Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send + 'static,
    {
        let gate = Gate { files: Admission::new(calls_max), host: Admission::new(1), token: None };
        let metrics = Metrics::default();
        let layer = ObserveLayer { gate: gate.clone(), metrics: metrics.clone() };
        let mut service = layer.layer(tower::service_fn(move |_: Request<Body>| work()));
        let mut request = Request::builder().uri(path);
        if let Some(timeout) = timeout {
            request = request.header("grpc-timeout", timeout);
        }
        let response = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
        assert!(response.headers().contains_key(REQUEST_ID));
        let status = match Status::from_header_map(response.headers()) {
            Some(status) => status,
            None => {
                use http_body_util::BodyExt;
                let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap_or_default();
                Status::from_header_map(&trailers).unwrap_or_else(|| Status::new(tonic::Code::Ok, ""))
            }
        };
        assert_eq!(gate.files.calls(), 0, "the permit is back");
        (status, metrics)
    }

    const STAT: &str = "/dormouse.files.v1.FilesService/Stat";

    #[track_caller]
    fn check(found: (Status, Metrics), code: tonic::Code, reason: &str) {
        use tonic_types::StatusExt;
        let (status, metrics) = found;
        let info = status.get_details_error_info();
        assert_eq!((status.code(), info.map(|info| info.reason).unwrap_or_default().as_str()), (code, reason));
        assert_eq!(
            metrics.all().iter().map(|(name, code, count)| (*name, *code, count.calls)).collect::<Vec<_>>(),
            [("Stat", code, 1)]
        );
    }

    #[tokio::test]
    async fn every_end_of_a_call_is_said_and_counted_once() {
        use tonic::Code;
        let never = || std::future::pending();
        check(through(STAT, Some("5m"), 1, never).await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
        let panics = || async { panic!("on purpose") };
        check(through(STAT, None, 1, panics).await, Code::Internal, "INTERNAL");
        check(through(STAT, None, 0, never).await, Code::Unavailable, "HOST_OVERLOADED");
        let bare = || async { Ok(Status::new(Code::Internal, "Missing request message.").into_http()) };
        check(through(STAT, None, 1, bare).await, Code::InvalidArgument, "INVALID_REQUEST");
        let well = || async { Ok(Response::new(Body::empty())) };
        check(through(STAT, None, 1, well).await, Code::Ok, "");
    }

    /// A body that never has anything to say, or panics when it is asked.
    struct Odd(bool);

    impl http_body::Body for Odd {
        type Data = bytes::Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
            assert!(!self.0, "on purpose");
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_stream_ends_by_its_deadline_and_a_panic_in_it_is_caught() {
        use tonic::Code;
        let silent = || async { Ok(Response::new(Body::new(Odd(false)))) };
        check(through(STAT, Some("5m"), 1, silent).await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
        let panics = || async { Ok(Response::new(Body::new(Odd(true)))) };
        check(through(STAT, None, 1, panics).await, Code::Internal, "INTERNAL");
    }
}
