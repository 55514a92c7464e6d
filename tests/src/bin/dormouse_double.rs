//! A double of a host for the scenarios of all clients: it stands before a real agent, forwards each call, and misbehaves as its
//! script says. It is told everything by one argument of JSON:
//!
//! ```json
//! { "upstream": "127.0.0.1:7070", "host": "/tmp/h.sock", "workspace": "w", "only": ["Stat", "Read"],
//!   "script": { "Search": ["unavailable"], "Patch": ["lose"], "Read": [{ "cut_after": 1, "host": "resume" }] } }
//! ```
//!
//! A method's next call takes the next behaviour of its list; after the list calls are forwarded. `unavailable` and `unimplemented`
//! are bare statuses, as of a proxy; `lose` forwards, waits for the whole answer and breaks the connection instead of giving it;
//! `{"refuse": {code, reason, message, metadata, retry_after_ms}}` is a refusal in the contract's words; `{"cut_after": n}` gives n
//! messages and then, with `host`, suspends or resumes the workspace, and ends with OFFLINE_CHANGED. With `only`, other methods are
//! not known; those of `hold` are taken and never answered, so that every caller's deadline passes. It prints where it listens; when its standard input ends it prints what it was asked, and ends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    convert::Infallible,
    error::Error,
    io::Read as _,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use dormouse_proto::{
    ERROR_DOMAIN,
    host::v1::{ResumeWorkspaceRequest, SuspendWorkspaceRequest, host_service_client::HostServiceClient},
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tonic::{
    Code, Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::{Service as _, ServiceExt as _};

type Failure = Box<dyn Error + Send + Sync>;

/// What a method was asked.
#[derive(Default)]
struct Asked {
    calls: u64,
    bodies: BTreeSet<Vec<u8>>,
}

struct Double {
    upstream: Channel,
    host: Option<PathBuf>,
    workspace: String,
    only: Option<Vec<String>>,
    hold: Vec<String>,
    script: Mutex<BTreeMap<String, VecDeque<Value>>>,
    asked: Mutex<BTreeMap<String, Asked>>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let argument = std::env::args().nth(1).ok_or("one argument of JSON is expected")?;
    let plan: Value = serde_json::from_str(&argument)?;
    let text = |name: &str| plan[name].as_str().map(str::to_owned);
    let script = plan["script"].as_object().into_iter().flatten();
    let script = script.map(|(method, list)| (method.clone(), list.as_array().cloned().unwrap_or_default().into()));
    let names = |name: &str| {
        let list = plan[name].as_array()?;
        Some(list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect::<Vec<_>>())
    };
    let upstream = text("upstream").ok_or("upstream is missing")?;
    let double = Arc::new(Double {
        upstream: Endpoint::from_shared(format!("http://{upstream}"))?.connect_lazy(),
        host: text("host").map(PathBuf::from),
        workspace: text("workspace").unwrap_or_default(),
        only: names("only"),
        hold: names("hold").unwrap_or_default(),
        script: Mutex::new(script.collect()),
        asked: Mutex::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", json!({ "listen": listener.local_addr()?.to_string() }));
    let server = tokio::spawn(serve(listener, double.clone()));
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    server.abort();
    let asked = double.asked.lock().expect("no holder panics");
    let asked: BTreeMap<_, _> =
        asked.iter().map(|(method, asked)| (method, [asked.calls, asked.bodies.len() as u64])).collect();
    let script = double.script.lock().expect("no holder panics");
    let left: usize = script.values().map(VecDeque::len).sum();
    println!("{}", json!({ "asked": asked, "left": left }));
    Ok(())
}

async fn serve(listener: TcpListener, double: Arc<Double>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (breaks, mut broken) = watch::channel(false);
        let breaks = Arc::new(breaks);
        let double = double.clone();
        tokio::spawn(async move {
            let service = tower::service_fn(move |request: Request<_>| {
                let (double, breaks) = (double.clone(), breaks.clone());
                async move { Ok::<_, Infallible>(double.answer(request, &breaks).await) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new()).http2_only();
            server.http2().max_frame_size(256 * 1024).initial_stream_window_size(4 * 1024 * 1024);
            let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            // Dropping the connection is what breaks it.
            tokio::select! {
                _ = connection => {}
                _ = broken.wait_for(|broken| *broken) => {}
            }
        });
    }
}

impl Double {
    async fn answer<B>(&self, request: Request<B>, breaks: &watch::Sender<bool>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Failure>,
    {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
            return Status::cancelled("the caller went away").into_http();
        };
        {
            let mut all = self.asked.lock().expect("no holder panics");
            let asked = all.entry(method.clone()).or_default();
            asked.calls += 1;
            asked.bodies.insert(body.to_vec());
        }
        if self.only.as_ref().is_some_and(|only| !only.contains(&method)) {
            return Status::unimplemented("").into_http();
        }
        if self.hold.contains(&method) {
            // The connection drops this when the caller gives up.
            return std::future::pending().await;
        }
        let behaviour = self.script.lock().expect("no holder panics").get_mut(&method).and_then(VecDeque::pop_front);
        let forwarded = self.forward(Request::from_parts(parts, Body::new(Full::new(body))));
        match behaviour {
            None => forwarded.await.unwrap_or_else(|error| Status::internal(error.to_string()).into_http()),
            Some(behaviour) => match self.misbehave(&behaviour, forwarded, breaks).await {
                Ok(response) => response,
                Err(error) => Status::internal(format!("the double: {error}")).into_http(),
            },
        }
    }

    async fn forward(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let mut upstream = self.upstream.clone();
        Ok(upstream.ready().await?.call(request).await?)
    }

    async fn misbehave(
        &self,
        behaviour: &Value,
        forwarded: impl Future<Output = Result<Response<Body>, Failure>>,
        breaks: &watch::Sender<bool>,
    ) -> Result<Response<Body>, Failure> {
        match behaviour.as_str() {
            Some("forward") => return forwarded.await,
            Some("unavailable") => return Ok(Status::unavailable("").into_http()),
            Some("unimplemented") => return Ok(Status::unimplemented("").into_http()),
            Some("lose") => {
                forwarded.await?.into_body().collect().await?;
                breaks.send_replace(true);
                return std::future::pending().await;
            }
            Some(other) => return Err(format!("no behaviour is called {other}").into()),
            None => {}
        }
        if let Some(refusal) = behaviour.get("refuse") {
            return Ok(status(refusal)?.into_http());
        }
        let messages = behaviour["cut_after"].as_u64().ok_or("cut_after is missing")?;
        let (head, body) = forwarded.await?.into_parts();
        let kept = first_messages(body, messages).await?;
        if let Some(what) = behaviour["host"].as_str() {
            self.transition(what).await?;
        }
        let refusal = status(&json!({ "code": "UNAVAILABLE", "reason": "OFFLINE_CHANGED" }))?;
        let mut trailers = http::HeaderMap::new();
        refusal.add_header(&mut trailers)?;
        let frames = [Ok::<_, Infallible>(http_body::Frame::data(kept)), Ok(http_body::Frame::trailers(trailers))];
        Ok(Response::from_parts(head, Body::new(http_body_util::StreamBody::new(tokio_stream::iter(frames)))))
    }

    /// As a control plane would.
    async fn transition(&self, what: &str) -> Result<(), Failure> {
        let socket = self.host.as_ref().ok_or("host is missing")?;
        let mut host = HostServiceClient::connect(format!("unix:{}", socket.display())).await?;
        let name = self.workspace.clone();
        match what {
            "suspend" => {
                host.suspend_workspace(SuspendWorkspaceRequest { name, ..SuspendWorkspaceRequest::default() }).await?;
            }
            _ => {
                host.resume_workspace(ResumeWorkspaceRequest { name, ..ResumeWorkspaceRequest::default() }).await?;
            }
        }
        Ok(())
    }
}

/// The first messages of a stream with their five bytes of head (gRPC over HTTP/2, Length-Prefixed-Message).
async fn first_messages(mut body: Body, count: u64) -> Result<Bytes, Failure> {
    let (mut waiting, mut kept) = (BytesMut::new(), BytesMut::new());
    let mut taken = 0;
    while taken < count {
        while waiting.len() >= 5 && taken < count {
            let length = 5 + (&waiting[1..5]).get_u32() as usize;
            if waiting.len() < length {
                break;
            }
            kept.extend_from_slice(&waiting.split_to(length));
            taken += 1;
        }
        if taken < count {
            let frame = body.frame().await.ok_or("the answer has fewer messages than the script wants")??;
            if let Ok(data) = frame.into_data() {
                waiting.extend_from_slice(&data);
            }
        }
    }
    Ok(kept.freeze())
}

fn status(refusal: &Value) -> Result<Status, Failure> {
    let text = |name: &str| refusal[name].as_str().unwrap_or_default();
    let code = (0..=16).map(Code::from_i32).find(|code| constant(*code) == text("code"));
    let code = code.ok_or_else(|| format!("no code is called {}", text("code")))?;
    let mut metadata: HashMap<String, String> = HashMap::from([("reason".to_owned(), text("reason").to_lowercase())]);
    for (key, value) in refusal["metadata"].as_object().into_iter().flatten() {
        metadata.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
    }
    let retry = refusal["retry_after_ms"].as_u64().map(Duration::from_millis);
    let mut details = ErrorDetails::with_error_info(text("reason"), ERROR_DOMAIN, metadata);
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    let message = refusal["message"].as_str().unwrap_or("the double refuses");
    Ok(Status::with_error_details(code, message, details))
}

/// As the contract writes codes.
fn constant(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
