//! FilesService as it is mounted: the generated code takes every call but Read, whose answer is framed by [`Frames`].

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use dormouse_proto::files::v1::{
    self,
    files_service_server::{FilesService, FilesServiceServer},
};
use http::header::CONTENT_TYPE;
use tonic::{
    Request, Status, Streaming,
    body::Body,
    codec::Codec,
    metadata::{GRPC_CONTENT_TYPE, MetadataMap},
    server::NamedService,
};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::{
    rpc::{
        files::{Files, frames::Frames},
        status,
    },
    server::DECODE_BYTES_MAX,
};

const READ: &str = "/dormouse.files.v1.FilesService/Read";

/// The service as a router takes it.
#[derive(Clone)]
pub struct FilesRoute {
    files: Files,
    generated: FilesServiceServer<Files>,
}

impl FilesRoute {
    /// To these files.
    pub fn new(files: Files) -> Self {
        let generated = FilesServiceServer::new(files.clone()).max_decoding_message_size(DECODE_BYTES_MAX);
        Self { files, generated }
    }
}

impl NamedService for FilesRoute {
    const NAME: &'static str = <FilesServiceServer<Files> as NamedService>::NAME;
}

impl Service<http::Request<Body>> for FilesRoute {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // A request that is compressed is refused by the generated code, in the protocol's words.
        let is_plain = request.headers().get("grpc-encoding").is_none_or(|encoding| encoding == "identity");
        if request.uri().path() != READ || !is_plain {
            return self.generated.call(request);
        }
        let files = self.files.clone();
        Box::pin(async move { Ok(read(&files, request).await.unwrap_or_else(Status::into_http)) })
    }
}

/// What the generated code does with a call of one request and many answers, up to the body.
async fn read(files: &Files, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let decoder = ProstCodec::<v1::ReadResponse, v1::ReadRequest>::default().decoder();
    let mut messages = Streaming::new_request(decoder, body, None, Some(DECODE_BYTES_MAX));
    let message = messages.message().await?.ok_or_else(|| status::internal("a Read without a message"))?;
    // To the request's end, as the generated code does: what follows the message may be an error.
    messages.trailers().await?;
    let request = Request::from_parts(MetadataMap::from_headers(parts.headers), parts.extensions, message);
    let (metadata, messages, extensions) = FilesService::read(files, request).await?.into_parts();
    let mut response = http::Response::new(Body::new(Frames::new(messages)));
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    *response.extensions_mut() = extensions;
    Ok(response)
}
