//! Agents inside a machine that are not ours: an older one, and one that lies.

use std::{path::Path, time::Duration};

use dormouse_proto::files::v1::{
    self,
    files_service_server::{FilesService, FilesServiceServer},
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// How long [`Double::Slow`] takes.
pub const SLOW_TIME: Duration = Duration::from_secs(20);

/// What it does instead of its work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Double {
    /// Serves Stat and Read, and knows neither GetCapabilities nor a field that came later.
    Old,
    /// Takes long over a Patch, and says nothing meanwhile but PING.
    Slow,
    /// Sends a piece of 1 MiB and one byte.
    LongPiece,
    /// Sends pieces that do not follow each other.
    Gap,
    /// Sends a message over every bound.
    Huge,
    /// Never says that it is done.
    NoEnd,
    /// Describes another file.
    Outside,
    /// Gives a reason that only a host can have.
    HostsReason,
    /// Gives a reason that there is not.
    UnknownReason,
    /// Ends with a bare status.
    Bare,
}

type Messages<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

fn file(path: &str) -> v1::FileInfo {
    v1::FileInfo {
        path: path.to_owned(),
        size_bytes: 5,
        revision: Some("not for sale".to_owned()),
        etag: "e".to_owned(),
        ..Default::default()
    }
}

fn with_reason(reason: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason, "dormouse.dev", std::collections::HashMap::new());
    Status::with_error_details(tonic::Code::FailedPrecondition, "believe me", details)
}

fn unknown<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented(""))
}

#[tonic::async_trait]
impl FilesService for Double {
    type ReadStream = Messages<v1::ReadResponse>;
    type ListStream = Messages<v1::ListResponse>;
    type SearchStream = Messages<v1::SearchResponse>;

    async fn get_capabilities(
        &self,
        _: Request<v1::GetCapabilitiesRequest>,
    ) -> Result<Response<v1::GetCapabilitiesResponse>, Status> {
        match self {
            Self::Old => unknown(),
            _ => Ok(Response::new(v1::GetCapabilitiesResponse { features: vec![1, 2, 3, 4, 5], ..Default::default() })),
        }
    }

    async fn stat(&self, request: Request<v1::StatRequest>) -> Result<Response<v1::StatResponse>, Status> {
        assert_eq!(request.metadata().get("authorization"), None, "the caller's credentials stay with the host");
        let path = request.into_inner().path;
        match self {
            Self::Outside => Ok(Response::new(v1::StatResponse { file: Some(file("/etc/../x")), origin: None })),
            Self::HostsReason => Err(with_reason("WORKSPACE_NOT_RUNNING")),
            Self::UnknownReason => Err(with_reason("SEND_MONEY")),
            Self::Bare => Err(Status::unavailable("gone fishing")),
            _ => Ok(Response::new(v1::StatResponse { file: Some(file(&path)), origin: None })),
        }
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let piece = |offset: i64, bytes: usize| v1::ReadResponse {
            offset,
            data: vec![b'x'; bytes].into(),
            ..Default::default()
        };
        let first = |bytes: usize| v1::ReadResponse {
            file: Some(file(&request.get_ref().path)),
            origin: Some(v1::Origin { generation: 99, ..Default::default() }),
            ..piece(0, bytes)
        };
        let end = |bytes_sent: i64| v1::ReadResponse {
            end: Some(v1::ReadEnd { bytes_sent, revision: Some("nor this".to_owned()), ..Default::default() }),
            ..Default::default()
        };
        let messages = match self {
            Self::LongPiece => vec![first(5), piece(5, (1 << 20) + 1), end((1 << 20) + 6)],
            Self::Gap => vec![first(5), piece(6, 5), end(10)],
            Self::Huge => vec![first(5), piece(5, 3 << 20), end((3 << 20) + 5)],
            Self::NoEnd => vec![first(5)],
            _ => vec![first(5), end(5)],
        };
        let messages: Vec<_> = messages.into_iter().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(messages)))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        match self {
            Self::Outside => {
                let message = v1::ListResponse {
                    entries: vec![file("/elsewhere")],
                    end: Some(v1::ListEnd::default()),
                    ..Default::default()
                };
                Ok(Response::new(tokio_stream::iter(vec![Ok(message)])))
            }
            _ => unknown(),
        }
    }

    async fn search(&self, _: Request<v1::SearchRequest>) -> Result<Response<Self::SearchStream>, Status> {
        match self {
            Self::Outside => {
                let found = v1::Match { path: "/elsewhere".to_owned(), line: 1, ..Default::default() };
                let message = v1::SearchResponse {
                    matches: vec![found],
                    end: Some(v1::SearchEnd::default()),
                    ..Default::default()
                };
                Ok(Response::new(tokio_stream::iter(vec![Ok(message)])))
            }
            _ => unknown(),
        }
    }

    async fn patch(&self, _: Request<v1::PatchRequest>) -> Result<Response<v1::PatchResponse>, Status> {
        match self {
            Self::Slow => {
                tokio::time::sleep(SLOW_TIME).await;
                Ok(Response::new(v1::PatchResponse { revision: "0".repeat(64), ..Default::default() }))
            }
            _ => unknown(),
        }
    }

    async fn write(&self, _: Request<Streaming<v1::WriteRequest>>) -> Result<Response<v1::WriteResponse>, Status> {
        unknown()
    }

    async fn remove(&self, _: Request<v1::RemoveRequest>) -> Result<Response<v1::RemoveResponse>, Status> {
        unknown()
    }

    async fn r#move(&self, _: Request<v1::MoveRequest>) -> Result<Response<v1::MoveResponse>, Status> {
        unknown()
    }

    async fn make_directory(
        &self,
        _: Request<v1::MakeDirectoryRequest>,
    ) -> Result<Response<v1::MakeDirectoryResponse>, Status> {
        unknown()
    }
}

/// Serves on a Unix socket for as long as the test runs.
pub fn serve(double: Double, path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    let service = FilesServiceServer::new(double).max_encoding_message_size(16 << 20);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener)),
    );
}
