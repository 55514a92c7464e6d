//! One call as bare HTTP/2 frames, for what a well-behaved client library would never send or would hide: bytes that are
//! no message, a deadline that only the server enforces, a reader that stops reading.

use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request};
use tokio::net::UnixStream;
use tonic::Status;

/// The path of a method of FilesService.
pub fn method(name: &str) -> String {
    format!("/dormouse.files.v1.FilesService/{name}")
}

/// A message with its prefix of five bytes, not compressed (gRPC over HTTP/2, "Length-Prefixed-Message").
pub fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a message is below 4 GiB"));
    frame.put_slice(message);
    frame.freeze()
}

/// A call under way.
pub struct Call {
    response: h2::client::ResponseFuture,
    body: h2::SendStream<Bytes>,
    connection: tokio::task::JoinHandle<()>,
}

/// Begins a call on a connection of its own. `headers` come on top of what gRPC demands.
///
/// # Panics
/// Where the agent takes no connection.
pub async fn begin(socket: &Path, method: &str, headers: &[(&'static str, &str)]) -> Call {
    let stream = UnixStream::connect(socket).await.expect("the agent takes connections");
    let (client, connection) = h2::client::handshake(stream).await.expect("the agent speaks HTTP/2");
    let connection = tokio::spawn(async move {
        // How the connection ends is not the test's matter.
        let _ = connection.await;
    });
    let mut request = Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut client = client.ready().await.expect("the connection is ready");
    let (response, body) = client.send_request(request.body(()).expect("a request"), false).expect("it is sent");
    Call { response, body, connection }
}

impl Call {
    /// Sends bytes of the body, as the server's window allows. A server that has heard enough ends this early.
    pub async fn send(&mut self, mut bytes: Bytes, last: bool) {
        while !bytes.is_empty() {
            self.body.reserve_capacity(bytes.len().min(1 << 16));
            let room = match std::future::poll_fn(|context| self.body.poll_capacity(context)).await {
                Some(Ok(room)) => room,
                Some(Err(_)) | None => return,
            };
            let part = bytes.split_to(room.min(bytes.len()));
            if self.body.send_data(part, false).is_err() {
                return;
            }
        }
        if last {
            // A stream that the server has closed takes no end, and needs none.
            let _ = self.body.send_data(Bytes::new(), true);
        }
    }

    /// Reads the answer to its end: the messages' bytes with their prefixes, and how it ended.
    pub async fn finish(self) -> (Bytes, Result<(), Status>) {
        let response = match self.response.await {
            Ok(response) => response,
            Err(error) => panic!("the stream broke before its headers: {error}"),
        };
        let headers = response.headers().clone();
        let mut body = response.into_body();
        let mut all = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part.unwrap_or_else(|error| panic!("the stream broke: {error}"));
            body.flow_control().release_capacity(part.len()).expect("the window was held");
            all.extend_from_slice(&part);
        }
        let trailers = body.trailers().await.unwrap_or_else(|error| panic!("the stream broke: {error}"));
        self.connection.abort();
        (all.freeze(), status(trailers.as_ref().unwrap_or(&headers)))
    }
}

/// The status that trailers carry.
fn status(trailers: &HeaderMap<HeaderValue>) -> Result<(), Status> {
    match Status::from_header_map(trailers) {
        Some(status) if status.code() == tonic::Code::Ok => Ok(()),
        Some(status) => Err(status),
        None => panic!("no grpc-status: {trailers:?}"),
    }
}

/// One call from begin to end.
pub async fn call(socket: &Path, name: &str, headers: &[(&'static str, &str)], body: Bytes) -> Result<Bytes, Status> {
    let mut call = begin(socket, &method(name), headers).await;
    call.send(body, true).await;
    let (bytes, status) = call.finish().await;
    status.map(|()| bytes)
}
