//! What a control plane, or a person in its place, says to one host.

use std::sync::Arc;

use dormouse_proto::host::v1::{host_service_client::HostServiceClient, *};
use tonic::{Streaming, transport::Channel};

use crate::{
    call::{ANSWER_BYTES_MAX, Caller, Options, Run},
    error::Error,
    method::Method,
    wake::{WakeError, Waker, Waking},
};

/// A client of `HostService`. Cheap to clone; clones share the connection.
#[derive(Debug, Clone)]
pub struct HostClient(Caller);

/// One method with one answer: the names differ, the way is the same.
macro_rules! verb {
    ($(#[$doc:meta])* $verb:ident, $method:ident, $request:ident -> $answer:ident) => {
        $(#[$doc])*
        pub async fn $verb(&self, request: $request) -> Result<$answer, Error> {
            self.0
                .unary(Method::$method, "", request, |channel, request| async move {
                    service(channel).$verb(request).await
                })
                .await
        }
    };
}

impl HostClient {
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

    verb!(
        /// The host as a whole.
        get_host, GET_HOST, GetHostRequest -> GetHostResponse
    );
    verb!(
        /// Makes a workspace known. The same spec again is a replay.
        register_workspace, REGISTER_WORKSPACE, RegisterWorkspaceRequest -> RegisterWorkspaceResponse
    );
    verb!(
        /// Forgets a workspace; its files are left alone.
        release_workspace, RELEASE_WORKSPACE, ReleaseWorkspaceRequest -> ReleaseWorkspaceResponse
    );
    verb!(
        /// One workspace: its state, generation and seal.
        get_workspace, GET_WORKSPACE, GetWorkspaceRequest -> GetWorkspaceResponse
    );
    verb!(
        /// A page of the workspaces, by name.
        list_workspaces, LIST_WORKSPACES, ListWorkspacesRequest -> ListWorkspacesResponse
    );
    verb!(
        /// Lets a running workspace come to rest: no new change, its file systems frozen.
        quiesce_workspace, QUIESCE_WORKSPACE, QuiesceWorkspaceRequest -> QuiesceWorkspaceResponse
    );
    verb!(
        /// Looks for the proof that a stopped workspace's disk is still and complete.
        seal_workspace, SEAL_WORKSPACE, SealWorkspaceRequest -> SealWorkspaceResponse
    );
    verb!(
        /// The fence before anything may write the disk again.
        unseal_workspace, UNSEAL_WORKSPACE, UnsealWorkspaceRequest -> UnsealWorkspaceResponse
    );
    verb!(
        /// Finds the running machine's agent and serves from it.
        open_workspace, OPEN_WORKSPACE, OpenWorkspaceRequest -> OpenWorkspaceResponse
    );
    verb!(
        /// Quiesce, pause and seal in one call.
        suspend_workspace, SUSPEND_WORKSPACE, SuspendWorkspaceRequest -> SuspendWorkspaceResponse
    );
    verb!(
        /// Unseal, resume and open in one call.
        resume_workspace, RESUME_WORKSPACE, ResumeWorkspaceRequest -> ResumeWorkspaceResponse
    );
    verb!(
        /// Lets the host take no new calls of `FilesService`.
        drain_host, DRAIN_HOST, DrainHostRequest -> DrainHostResponse
    );
    verb!(
        /// Lets the host take calls again.
        undrain_host, UNDRAIN_HOST, UndrainHostRequest -> UndrainHostResponse
    );

    /// The state of every workspace now, then its changes. A lost watch is begun again by itself: the states of all then
    /// come once more, up to another `synced`.
    pub async fn watch_workspaces(&self) -> Result<WatchStream, Error> {
        let mut watch =
            WatchStream { caller: self.0.clone(), run: self.0.begin(Method::WATCH_WORKSPACES, ""), stream: None };
        watch.open().await?;
        Ok(watch)
    }
}

/// The changes of a host's workspaces, until the caller drops it.
pub struct WatchStream {
    caller: Caller,
    run: Run,
    stream: Option<Streaming<WatchWorkspacesResponse>>,
}

impl WatchStream {
    /// The next change; never ends by itself but with an error.
    pub async fn next(&mut self) -> Result<WatchWorkspacesResponse, Error> {
        loop {
            let error = match &mut self.stream {
                None => {
                    self.open().await?;
                    continue;
                }
                Some(stream) => match self.run.attempt(stream.message()).await {
                    Ok(Some(change)) => {
                        self.run.progressed();
                        return Ok(change);
                    }
                    Ok(None) => Error::broken_off(Method::WATCH_WORKSPACES),
                    Err(error) => error,
                },
            };
            self.stream = None;
            self.run.recover(error).await?;
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        while self.stream.is_none() {
            let request = self.run.stream_request(WatchWorkspacesRequest {});
            let mut service = service(self.caller.channel.clone());
            match self.run.attempt(service.watch_workspaces(request)).await {
                Ok(response) => self.stream = Some(response.into_inner()),
                Err(error) => self.run.recover(error).await?,
            }
        }
        Ok(())
    }
}

fn service(channel: Channel) -> HostServiceClient<Channel> {
    HostServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// Wakes through the host itself: `HostService.ResumeWorkspace`, for a host with no control plane above it.
#[derive(Debug, Clone)]
pub struct HostWaker(HostClient);

impl HostWaker {
    /// A waker that asks this host.
    pub fn new(host: HostClient) -> Self {
        Self(host)
    }
}

impl Waker for HostWaker {
    fn wake<'a>(&'a self, workspace: &'a str) -> Waking<'a> {
        Box::pin(async move {
            let request = ResumeWorkspaceRequest { name: workspace.to_owned(), generation: 0 };
            self.0.resume_workspace(request).await.map(drop).map_err(|error| WakeError(error.to_string()))
        })
    }
}
