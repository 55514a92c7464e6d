//! The client of `FilesService`, a file for each verb that is more than one question and one answer.

pub mod list;
pub mod read;
pub mod search;
pub mod write;

use std::sync::Arc;

use dormouse_proto::files::v1::{files_service_client::FilesServiceClient, *};
use tonic::{Code, transport::Channel};

use crate::{
    call::{ANSWER_BYTES_MAX, Caller, Options, fill_key, fits},
    error::{Error, Kind},
    method::Method,
    wake::Waker,
};

/// A client of `FilesService`. Cheap to clone; clones share the connection.
#[derive(Debug, Clone)]
pub struct FilesClient(Caller);

impl FilesClient {
    /// A client over a connection, see [`Endpoint::channel`](crate::Endpoint::channel).
    pub fn new(channel: Channel) -> Self {
        Self(Caller::new(channel))
    }

    /// The same client, calling in another way.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.0.options = Arc::new(options);
        self
    }

    /// The same client with a way to wake a workspace. It is used at most once in a call, and only when the host says that
    /// the workspace must run for it.
    #[must_use]
    pub fn with_waker(mut self, waker: Arc<dyn Waker>) -> Self {
        self.0.waker = Some(waker);
        self
    }

    /// What the host, or a workspace on it, can do. A host too old to say has no optional feature, and is answered for so.
    pub async fn capabilities(&self, request: GetCapabilitiesRequest) -> Result<GetCapabilitiesResponse, Error> {
        let workspace = request.workspace.clone();
        let answer = self
            .0
            .unary(Method::GET_CAPABILITIES, &workspace, request, |channel, request| async move {
                service(channel).get_capabilities(request).await
            })
            .await;
        match answer {
            Err(error) if error.code() == Code::Unimplemented => Ok(GetCapabilitiesResponse::default()),
            answer => answer,
        }
    }

    /// Metadata of one file or directory. A revision that was asked for is absent where the host has none to give.
    pub async fn stat(&self, request: StatRequest) -> Result<StatResponse, Error> {
        let workspace = request.workspace.clone();
        self.0
            .unary(
                Method::STAT,
                &workspace,
                request,
                |channel, request| async move { service(channel).stat(request).await },
            )
            .await
    }

    /// The bytes of a file or a part of it, checked and resumed where the connection breaks.
    pub async fn read(&self, request: ReadRequest) -> Result<read::ReadStream, Error> {
        fits(Method::READ, &request)?;
        read::ReadStream::open(self.0.clone(), request).await
    }

    /// The entries of a directory, resumed where the connection breaks.
    pub async fn list(&self, request: ListRequest) -> Result<list::ListStream, Error> {
        fits(Method::LIST, &request)?;
        list::ListStream::open(self.0.clone(), request).await
    }

    /// Lines that match a pattern, as the host finds them.
    pub async fn search(&self, request: SearchRequest) -> Result<search::SearchStream, Error> {
        fits(Method::SEARCH, &request)?;
        search::SearchStream::open(self.0.clone(), request).await
    }

    /// Replaces text in a file, or its whole content. An empty idempotency key is filled in.
    pub async fn patch(&self, mut request: PatchRequest) -> Result<PatchResponse, Error> {
        fill_key(&mut request.idempotency_key);
        let workspace = request.workspace.clone();
        self.0
            .unary(Method::PATCH, &workspace, request, |channel, request| async move {
                service(channel).patch(request).await
            })
            .await
    }

    /// Writes a file of any size. An empty idempotency key is filled in. Another attempt is made only while `source` can
    /// give its bytes again from the start.
    pub async fn write(&self, mut start: WriteStart, source: write::WriteSource) -> Result<WriteResponse, Error> {
        fill_key(&mut start.idempotency_key);
        fits(Method::WRITE, &start)?;
        write::run(&self.0, start, source).await
    }

    /// Removes a file or a directory. An empty idempotency key is filled in.
    pub async fn remove(&self, mut request: RemoveRequest) -> Result<RemoveResponse, Error> {
        fill_key(&mut request.idempotency_key);
        let workspace = request.workspace.clone();
        self.0
            .unary(Method::REMOVE, &workspace, request, |channel, request| async move {
                service(channel).remove(request).await
            })
            .await
    }

    /// Renames a file or directory (`Move`). An empty idempotency key is filled in.
    pub async fn rename(&self, mut request: MoveRequest) -> Result<MoveResponse, Error> {
        fill_key(&mut request.idempotency_key);
        let workspace = request.workspace.clone();
        self.0
            .unary(Method::MOVE, &workspace, request, |channel, request| async move {
                service(channel).r#move(request).await
            })
            .await
    }

    /// Makes a directory. An empty idempotency key is filled in.
    pub async fn make_directory(&self, mut request: MakeDirectoryRequest) -> Result<MakeDirectoryResponse, Error> {
        fill_key(&mut request.idempotency_key);
        let workspace = request.workspace.clone();
        self.0
            .unary(Method::MAKE_DIRECTORY, &workspace, request, |channel, request| async move {
                service(channel).make_directory(request).await
            })
            .await
    }
}

fn service(channel: Channel) -> FilesServiceClient<Channel> {
    FilesServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

fn broken_answer(method: Method, fact: impl Into<String>) -> Error {
    Error::local(method, Kind::BrokenAnswer, Code::DataLoss, fact)
}
