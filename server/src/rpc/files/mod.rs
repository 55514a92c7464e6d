//! FilesService: each verb in its own file, all by the same way.
//!
//! ```text
//! decode (shape) → find (workspace, generation) → feature → state and room → lane: engine → encode
//! ```
//! That is the order in which the contract finds what is wrong with a request.

pub mod capabilities;
pub mod encode;
pub mod fields;
pub mod frames;
pub mod list;
pub mod make_directory;
pub mod patch;
pub mod read;
pub mod remove;
pub mod rename;
pub mod route;
pub mod search;
pub mod stat;
pub mod write;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dormouse_files::{Fault, limits::Limits, stat::Revisions};
use dormouse_proto::files::v1::{self, files_service_server::FilesService};
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap};
use tracing::Instrument;

use crate::{
    host::{
        Feature, Host, ReadSource, Reading,
        admit::{Permit, WorkspacePermit},
        error::Failure,
        workspace::Workspace,
    },
    rpc::{
        lane::LaneBudget,
        observe::Call,
        relay::{Relay, stream::Answers},
        status,
    },
};

/// The service.
#[derive(Clone)]
pub struct Files {
    host: Host,
}

/// What a handler knows of its caller, and holds while it works.
pub struct Caller {
    /// By when it wants its answer.
    pub deadline: Option<Instant>,
    /// Which generation it knows.
    pub generation: Option<i64>,
    permit: Option<Arc<Permit>>,
}

/// The room of one call: held by whoever works for it, to the end of the work.
pub struct Room {
    _call: Option<Arc<Permit>>,
    _workspace: WorkspacePermit,
}

/// A read that may begin.
pub struct ReadCall {
    reading: Arc<Reading>,
    room: Room,
    budget: LaneBudget,
}

impl Files {
    /// On this host.
    pub fn new(host: Host) -> Self {
        Self { host }
    }

    fn limits(&self) -> &Limits {
        &self.host.settings().limits
    }

    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Failure> {
        caller(request.extensions().get::<Call>(), request.metadata())
    }

    /// The workspace, and room for a call on it.
    fn find(&self, name: &str, caller: &Caller) -> Result<(Arc<Workspace>, Room), Failure> {
        let workspace = self.host.find_at(name, caller.generation)?;
        let room = Room { _call: caller.permit.clone(), _workspace: self.host.admission().workspace(name)? };
        Ok((workspace, room))
    }

    /// A read of this workspace, with so much of the host's own time where it has any.
    fn reading(
        &self,
        name: &str,
        caller: &Caller,
        feature: Option<Feature>,
        source: ReadSource,
        time: impl FnOnce(&Reading, &Limits) -> Option<Duration>,
    ) -> Result<ReadCall, Failure> {
        let (workspace, room) = self.find(name, caller)?;
        if let Some(feature) = feature {
            self.host.require(feature)?;
        }
        let reading = self.host.reading(&workspace, source)?;
        let budget = LaneBudget::new(caller.deadline, time(&reading, self.limits()));
        Ok(ReadCall { reading: Arc::new(reading), room, budget })
    }

    /// The way to the machine's own agent, where that is to answer.
    fn relay(reading: &Reading, workspace: &str, caller: &Caller) -> Option<Relay> {
        reading.guest().map(|guest| Relay::new(guest, workspace, caller))
    }

    /// Which files get a revision.
    fn revisions(&self, wanted: bool, reading: &Reading) -> Revisions {
        if !wanted || !self.host.has(Feature::FileRevision) {
            return Revisions::Never;
        }
        match reading.is_offline() {
            true => Revisions::UpTo(self.limits().offline_revision_bytes_max),
            false => Revisions::Always,
        }
    }

    /// An expected revision is refused, not ignored, where this host gives none.
    fn require_revisions(&self, expects: bool) -> Result<(), Failure> {
        match expects {
            true => Ok(self.host.require(Feature::FileRevision)?),
            false => Ok(()),
        }
    }
}

fn caller(call: Option<&Call>, metadata: &MetadataMap) -> Result<Caller, Failure> {
    Ok(Caller {
        deadline: call.and_then(|call| call.deadline),
        generation: fields::generation(metadata)?,
        permit: call.and_then(|call| call.permit.clone()),
    })
}

/// The host's own time to the first byte of a disk's answer.
fn first_byte(reading: &Reading, limits: &Limits) -> Option<Duration> {
    reading.is_offline().then_some(limits.offline_budget)
}

/// The host's own time for a walk.
fn walk_time(_: &Reading, limits: &Limits) -> Option<Duration> {
    Some(limits.search_budget)
}

/// Runs a change in a task of its own: its caller may go away in any moment, and then the handler's future is dropped. The
/// caller's room on the host goes with it, so a drain waits for it.
async fn apart<T: Send + 'static>(
    change: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::spawn(change.in_current_span()).await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(%error, "a change did not end");
            Err(Fault::Internal("a change did not end").into())
        }
    }
}

/// Turns the failures of a handler into statuses, in one place for all verbs.
macro_rules! answer {
    ($workspace:expr, $work:expr) => {{
        let workspace = $workspace;
        match $work.await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(failure) => Err(status::of(&workspace, &failure)),
        }
    }};
}

#[tonic::async_trait]
impl FilesService for Files {
    type ReadStream = Answers<v1::ReadResponse>;
    type ListStream = Answers<v1::ListResponse>;
    type SearchStream = Answers<v1::SearchResponse>;

    async fn get_capabilities(
        &self,
        request: Request<v1::GetCapabilitiesRequest>,
    ) -> Result<Response<v1::GetCapabilitiesResponse>, Status> {
        answer!(request.get_ref().workspace.clone(), self.capabilities(request))
    }

    async fn stat(&self, request: Request<v1::StatRequest>) -> Result<Response<v1::StatResponse>, Status> {
        answer!(request.get_ref().workspace.clone(), self.do_stat(request))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        answer!(request.get_ref().workspace.clone(), self.do_read(request))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        answer!(request.get_ref().workspace.clone(), self.do_list(request))
    }

    async fn search(&self, request: Request<v1::SearchRequest>) -> Result<Response<Self::SearchStream>, Status> {
        answer!(request.get_ref().workspace.clone(), self.do_search(request))
    }

    async fn patch(&self, request: Request<v1::PatchRequest>) -> Result<Response<v1::PatchResponse>, Status> {
        let files = self.clone();
        answer!(request.get_ref().workspace.clone(), apart(async move { files.do_patch(request).await }))
    }

    async fn write(
        &self,
        request: Request<Streaming<v1::WriteRequest>>,
    ) -> Result<Response<v1::WriteResponse>, Status> {
        self.do_write(request).await.map(Response::new)
    }

    async fn remove(&self, request: Request<v1::RemoveRequest>) -> Result<Response<v1::RemoveResponse>, Status> {
        let files = self.clone();
        answer!(request.get_ref().workspace.clone(), apart(async move { files.do_remove(request).await }))
    }

    async fn r#move(&self, request: Request<v1::MoveRequest>) -> Result<Response<v1::MoveResponse>, Status> {
        let files = self.clone();
        answer!(request.get_ref().workspace.clone(), apart(async move { files.do_move(request).await }))
    }

    async fn make_directory(
        &self,
        request: Request<v1::MakeDirectoryRequest>,
    ) -> Result<Response<v1::MakeDirectoryResponse>, Status> {
        let files = self.clone();
        answer!(request.get_ref().workspace.clone(), apart(async move { files.do_make_directory(request).await }))
    }
}
