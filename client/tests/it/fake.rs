//! A host that answers from a script, and remembers what it was asked.
//!
//! Between it and its clients lies a socket that can be cut, so that an answer can get lost after the work was done.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use dormouse_client::{
    Endpoint, FilesClient, HostClient, Options,
    proto::{
        ERROR_DOMAIN,
        files::v1::{
            files_service_server::{FilesService, FilesServiceServer},
            *,
        },
        host::v1::{
            host_service_server::{HostService, HostServiceServer},
            *,
        },
    },
    retry::Policy,
};
use tempfile::TempDir;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_stream::{Stream, StreamExt, wrappers::UnixListenerStream};
use tonic::{Code, Request, Response, Status, Streaming, metadata::MetadataMap, transport::Server};
use tonic_types::{ErrorDetails, StatusExt};

/// What the host says to one call. A call that finds no reply is answered INTERNAL, which no client sends again.
#[derive(Debug, Clone)]
pub enum Reply {
    Refuse(Status),
    /// Never an answer.
    Hang,
    /// The work is done, and the connection is lost before the answer.
    Cut,
    Capabilities(GetCapabilitiesResponse),
    Stat(StatResponse),
    Read(Vec<Result<ReadResponse, Status>>),
    /// These messages, and then nothing more.
    ReadThenHang(Vec<ReadResponse>),
    List(Vec<Result<ListResponse, Status>>),
    Search(Vec<Result<SearchResponse, Status>>),
    Patch(PatchResponse),
    Write(WriteResponse),
    Remove(RemoveResponse),
    Move(MoveResponse),
    MakeDirectory(MakeDirectoryResponse),
    Workspace(Workspace),
    Workspaces(Vec<Workspace>),
    Watch(Vec<Result<WatchWorkspacesResponse, Status>>),
}

/// What the host was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Capabilities(GetCapabilitiesRequest),
    Stat(StatRequest),
    Read(ReadRequest),
    List(ListRequest),
    Search(SearchRequest),
    Patch(PatchRequest),
    /// The start, the bytes, and the finish if there was one.
    Write(WriteStart, Vec<u8>, Option<WriteFinish>),
    Remove(RemoveRequest),
    Move(MoveRequest),
    MakeDirectory(MakeDirectoryRequest),
    Resume(ResumeWorkspaceRequest),
    Other(&'static str),
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    asked: Vec<Asked>,
    metadata: Vec<MetadataMap>,
}

#[derive(Clone)]
struct Service {
    state: Arc<Mutex<State>>,
    cut: watch::Sender<u64>,
    calls: watch::Sender<usize>,
}

/// A running host.
pub struct Host {
    service: Service,
    directory: TempDir,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Retries as by the rules, only faster.
pub fn quick() -> Options {
    Options { policy: Policy { backoff: Duration::from_millis(1), ..Policy::default() }, ..Options::default() }
}

impl Host {
    /// A host that will say these replies, in order.
    pub async fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let service = Service {
            state: Arc::new(Mutex::new(State { replies: replies.into_iter().collect(), ..State::default() })),
            cut: watch::Sender::new(0),
            calls: watch::Sender::new(0),
        };
        let router = Server::builder()
            .add_service(FilesServiceServer::new(service.clone()).max_decoding_message_size(8 << 20))
            .add_service(HostServiceServer::new(service.clone()));
        Self::serve(service, |incoming| async move { router.serve_with_incoming(incoming).await.unwrap() })
    }

    /// A host that knows neither FilesService nor HostService.
    pub async fn without_services() -> Self {
        let service = Service { state: Arc::default(), cut: watch::Sender::new(0), calls: watch::Sender::new(0) };
        Self::serve(service, |incoming| async move {
            Server::builder()
                .add_routes(tonic::service::Routes::default())
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        })
    }

    fn serve<F>(service: Service, run: impl FnOnce(UnixListenerStream) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let directory = tempfile::tempdir().unwrap();
        let behind = directory.path().join("behind.sock");
        let server = tokio::spawn(run(UnixListenerStream::new(UnixListener::bind(&behind).unwrap())));
        let front = UnixListener::bind(directory.path().join("host.sock")).unwrap();
        let cut = service.cut.subscribe();
        let wire = tokio::spawn(async move {
            while let Ok((mut client, _)) = front.accept().await {
                let mut server = UnixStream::connect(&behind).await.unwrap();
                let mut cut = cut.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { service, directory, tasks: vec![server, wire] }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.directory.path().join("host.sock"))
    }

    pub fn files(&self) -> FilesClient {
        FilesClient::new(self.endpoint().channel()).with_options(quick())
    }

    pub fn host(&self) -> HostClient {
        HostClient::new(self.endpoint().channel()).with_options(quick())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.service.state.lock().unwrap()
    }

    /// Every connection is lost; the next one is taken again.
    pub fn cut(&self) {
        self.service.cut.send_modify(|count| *count += 1);
    }

    /// Until so many calls have come.
    pub async fn until_asked(&self, count: usize) {
        self.service.calls.subscribe().wait_for(|calls| *calls >= count).await.unwrap();
    }

    /// What was asked so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    pub fn reads(&self) -> Vec<ReadRequest> {
        let read = |asked: Asked| if let Asked::Read(request) = asked { Some(request) } else { None };
        self.asked().into_iter().filter_map(read).collect()
    }

    pub fn patches(&self) -> Vec<PatchRequest> {
        let patch = |asked: Asked| if let Asked::Patch(request) = asked { Some(request) } else { None };
        self.asked().into_iter().filter_map(patch).collect()
    }

    /// A header of the request of this number, as text.
    pub fn header(&self, number: usize, name: &str) -> Option<String> {
        self.state().metadata[number].get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    /// Replies that were never asked for.
    pub fn left(&self) -> usize {
        self.state().replies.len()
    }
}

impl Service {
    async fn next<T>(&self, asked: Asked, request: &Request<T>) -> Result<Reply, Status> {
        self.take(asked, request.metadata().clone()).await
    }

    async fn take(&self, asked: Asked, metadata: MetadataMap) -> Result<Reply, Status> {
        let reply = {
            let mut state = self.state.lock().unwrap();
            state.asked.push(asked);
            state.metadata.push(metadata);
            state.replies.pop_front()
        };
        self.calls.send_modify(|count| *count += 1);
        match reply {
            None => Err(Status::internal("the script has no reply left")),
            Some(Reply::Refuse(status)) => Err(status),
            Some(Reply::Hang) => std::future::pending().await,
            Some(Reply::Cut) => {
                self.cut.send_modify(|count| *count += 1);
                std::future::pending().await
            }
            Some(reply) => Ok(reply),
        }
    }
}

fn wrong<T>(reply: Reply) -> Result<T, Status> {
    Err(Status::internal(format!("the script has {reply:?} here")))
}

type Stream1<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn stream<T: Send + 'static>(items: Vec<Result<T, Status>>) -> Response<Stream1<T>> {
    Response::new(Box::pin(tokio_stream::iter(items)))
}

macro_rules! answer {
    ($self:ident, $asked:ident, $request:ident, $reply:ident) => {{
        match $self.next(Asked::$asked($request.get_ref().clone()), &$request).await? {
            Reply::$reply(answer) => Ok(Response::new(answer)),
            other => wrong(other),
        }
    }};
}

#[tonic::async_trait]
impl FilesService for Service {
    type ReadStream = Stream1<ReadResponse>;
    type ListStream = Stream1<ListResponse>;
    type SearchStream = Stream1<SearchResponse>;

    async fn get_capabilities(
        &self,
        request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        answer!(self, Capabilities, request, Capabilities)
    }

    async fn stat(&self, request: Request<StatRequest>) -> Result<Response<StatResponse>, Status> {
        answer!(self, Stat, request, Stat)
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        match self.next(Asked::Read(request.get_ref().clone()), &request).await? {
            Reply::Read(items) => Ok(stream(items)),
            Reply::ReadThenHang(items) => {
                let items = tokio_stream::iter(items.into_iter().map(Ok));
                Ok(Response::new(Box::pin(items.chain(tokio_stream::pending()))))
            }
            other => wrong(other),
        }
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        match self.next(Asked::List(request.get_ref().clone()), &request).await? {
            Reply::List(items) => Ok(stream(items)),
            other => wrong(other),
        }
    }

    async fn search(&self, request: Request<SearchRequest>) -> Result<Response<Self::SearchStream>, Status> {
        match self.next(Asked::Search(request.get_ref().clone()), &request).await? {
            Reply::Search(items) => Ok(stream(items)),
            other => wrong(other),
        }
    }

    async fn patch(&self, request: Request<PatchRequest>) -> Result<Response<PatchResponse>, Status> {
        answer!(self, Patch, request, Patch)
    }

    async fn write(&self, request: Request<Streaming<WriteRequest>>) -> Result<Response<WriteResponse>, Status> {
        let metadata = request.metadata().clone();
        let mut messages = request.into_inner();
        let (mut start, mut data, mut finish) = (WriteStart::default(), Vec::new(), None);
        while let Some(message) = messages.next().await {
            // A caller that gave up: what arrived is remembered all the same.
            let Ok(message) = message else { break };
            match message.message {
                Some(write_request::Message::Start(message)) => start = message,
                Some(write_request::Message::Data(piece)) => data.extend_from_slice(&piece),
                Some(write_request::Message::Finish(message)) => finish = Some(message),
                None => return Err(Status::invalid_argument("an empty message")),
            }
        }
        match self.take(Asked::Write(start, data, finish), metadata).await? {
            Reply::Write(answer) => Ok(Response::new(answer)),
            other => wrong(other),
        }
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Result<Response<RemoveResponse>, Status> {
        answer!(self, Remove, request, Remove)
    }

    async fn r#move(&self, request: Request<MoveRequest>) -> Result<Response<MoveResponse>, Status> {
        answer!(self, Move, request, Move)
    }

    async fn make_directory(
        &self,
        request: Request<MakeDirectoryRequest>,
    ) -> Result<Response<MakeDirectoryResponse>, Status> {
        answer!(self, MakeDirectory, request, MakeDirectory)
    }
}

/// A method of HostService that no test asks for.
macro_rules! not_asked_for {
    ($($verb:ident, $request:ident, $answer:ident;)*) => {
        $(fn $verb<'a, 'b>(
            &'a self,
            _: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$answer>, Status>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async { Err(Status::internal("not in the script")) })
        })*
    };
}

#[tonic::async_trait]
impl HostService for Service {
    type WatchWorkspacesStream = Stream1<WatchWorkspacesResponse>;

    async fn get_workspace(
        &self,
        request: Request<GetWorkspaceRequest>,
    ) -> Result<Response<GetWorkspaceResponse>, Status> {
        match self.next(Asked::Other("get"), &request).await? {
            Reply::Workspace(workspace) => Ok(Response::new(GetWorkspaceResponse { workspace: Some(workspace) })),
            other => wrong(other),
        }
    }

    async fn list_workspaces(
        &self,
        request: Request<ListWorkspacesRequest>,
    ) -> Result<Response<ListWorkspacesResponse>, Status> {
        match self.next(Asked::Other("list"), &request).await? {
            // A page of one each, to be turned.
            Reply::Workspaces(workspaces) => {
                let page: usize = request.get_ref().page_token.parse().unwrap_or(0);
                let next = page + 1;
                let next_page_token = if next < workspaces.len() { next.to_string() } else { String::new() };
                let workspaces = workspaces.into_iter().skip(page).take(1).collect();
                Ok(Response::new(ListWorkspacesResponse { workspaces, next_page_token }))
            }
            other => wrong(other),
        }
    }

    async fn watch_workspaces(
        &self,
        request: Request<WatchWorkspacesRequest>,
    ) -> Result<Response<Self::WatchWorkspacesStream>, Status> {
        match self.next(Asked::Other("watch"), &request).await? {
            Reply::Watch(items) => Ok(stream(items)),
            other => wrong(other),
        }
    }

    async fn resume_workspace(
        &self,
        request: Request<ResumeWorkspaceRequest>,
    ) -> Result<Response<ResumeWorkspaceResponse>, Status> {
        match self.next(Asked::Resume(request.get_ref().clone()), &request).await? {
            Reply::Workspace(workspace) => Ok(Response::new(ResumeWorkspaceResponse { workspace: Some(workspace) })),
            other => wrong(other),
        }
    }

    not_asked_for! {
        get_host, GetHostRequest, GetHostResponse;
        register_workspace, RegisterWorkspaceRequest, RegisterWorkspaceResponse;
        release_workspace, ReleaseWorkspaceRequest, ReleaseWorkspaceResponse;
        quiesce_workspace, QuiesceWorkspaceRequest, QuiesceWorkspaceResponse;
        seal_workspace, SealWorkspaceRequest, SealWorkspaceResponse;
        unseal_workspace, UnsealWorkspaceRequest, UnsealWorkspaceResponse;
        open_workspace, OpenWorkspaceRequest, OpenWorkspaceResponse;
        suspend_workspace, SuspendWorkspaceRequest, SuspendWorkspaceResponse;
        drain_host, DrainHostRequest, DrainHostResponse;
        undrain_host, UndrainHostRequest, UndrainHostResponse;
    }
}

/// A refusal with its reason and metadata, as a host says it.
pub fn refusal(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Reply {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata);
    Reply::Refuse(Status::with_error_details(code, format!("refused: {}", reason.to_lowercase()), details))
}

pub fn unavailable() -> Reply {
    Reply::Refuse(Status::unavailable("down"))
}

/// A file's metadata with an etag.
pub fn file(path: &str, size_bytes: i64, etag: &str) -> FileInfo {
    FileInfo {
        path: path.into(),
        r#type: FileType::Regular.into(),
        size_bytes,
        mode: 0o644,
        etag: etag.into(),
        ..FileInfo::default()
    }
}

pub fn from_disk() -> Origin {
    Origin { served_from: ServedFrom::Disk.into(), consistency: Consistency::Exact.into(), generation: 3 }
}

pub fn from_workspace() -> Origin {
    Origin { served_from: ServedFrom::Workspace.into(), ..Origin::default() }
}
