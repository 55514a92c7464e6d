//! Calls on the files of a running machine, forwarded to the agent inside: as they came, but for the workspace's name, the
//! caller's credentials, which stay here, and what an older agent would ignore, which is refused. What comes back is judged
//! ([`mod@judge`]) and checked ([`mod@check`]), and the host's own origin put on it.

pub mod check;
pub mod judge;
pub mod stream;
pub mod write;

use std::time::Instant;

use dormouse_files::{Fault, limits::Limits, path::TreePath};
use dormouse_proto::files::v1::{self, files_service_client::FilesServiceClient};
use tonic::{Request, Response, Status, transport::Channel};

use crate::{
    host::{Feature, Guest, Origin, error::Failure, relay::GUEST_WORKSPACE},
    rpc::{
        files::{Caller, Room, encode},
        relay::{
            check::{Lie, Order, Pieces, Place, Total},
            judge::judge,
            stream::{Answers, RelayStream, Told},
        },
        status,
    },
};

/// Longest message that is taken from a guest, in bytes: a piece of a Read and what is around it.
const MESSAGE_BYTES_MAX: usize = check::PIECE_BYTES_MAX + (1 << 20);
/// What a call without a feature of its own is missing where the guest does not know it.
const OLDEST: &str = "files";

/// One call's way to a guest.
#[derive(Clone)]
pub struct Relay {
    guest: Guest,
    workspace: String,
    deadline: Option<Instant>,
}

impl Relay {
    /// For a call on this workspace.
    pub fn new(guest: Guest, workspace: &str, caller: &Caller) -> Self {
        Self { guest, workspace: workspace.to_owned(), deadline: caller.deadline }
    }

    fn client(&self) -> FilesServiceClient<Channel> {
        FilesServiceClient::new(self.guest.link.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// With the guest's token and what is left of the caller's time.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.guest.link.request(message);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        request
    }

    fn origin(&self) -> v1::Origin {
        encode::origin(Origin { disk: None, generation: self.guest.generation })
    }

    fn judged(&self, feature: &str) -> impl Fn(Told) -> Failure + Send + Sync + use<> {
        let (workspace, feature) = (self.workspace.clone(), feature.to_owned());
        move |told| match told {
            Told::Guest(status) => judge(&status, &workspace, &feature),
            Told::Lie(lie) => lie.told(&workspace).into(),
        }
    }

    fn answer<T>(&self, answer: Result<Response<T>, Status>, feature: &str) -> Result<T, Failure> {
        answer.map(Response::into_inner).map_err(|status| judge(&status, &self.workspace, feature))
    }

    fn honest<T>(&self, found: Result<T, Lie>) -> Result<T, Failure> {
        found.map_err(|lie| lie.told(&self.workspace).into())
    }

    /// What the guest can do. One without GetCapabilities has no optional feature.
    ///
    /// # Errors
    /// `GuestUnreachable`, and what else the guest refuses.
    pub async fn features(&self) -> Result<Vec<Feature>, Failure> {
        if let Some(known) = self.guest.link.features() {
            return Ok(known);
        }
        let request = self.request(v1::GetCapabilitiesRequest { workspace: GUEST_WORKSPACE.to_owned() });
        let features: Vec<Feature> = match self.client().get_capabilities(request).await {
            Ok(answer) => {
                let names: Vec<String> = answer.get_ref().features().map(v1::Feature::wire_name).collect();
                Feature::ALL.into_iter().filter(|feature| names.iter().any(|name| name == feature.name())).collect()
            }
            Err(status) if status.code() == tonic::Code::Unimplemented => Vec::new(),
            Err(status) => return Err(judge(&status, &self.workspace, OLDEST)),
        };
        self.guest.link.remember(features.clone());
        Ok(features)
    }

    /// Refuses what the guest cannot do: an older one would drop an unknown field in silence.
    ///
    /// # Errors
    /// `FeatureUnavailable`, and as [`Relay::features`].
    pub async fn require(&self, feature: Feature) -> Result<(), Failure> {
        match self.features().await?.contains(&feature) {
            true => Ok(()),
            false => {
                let feature = feature.name().to_owned();
                Err(crate::host::error::HostFault::FeatureUnavailable { feature }.into())
            }
        }
    }

    /// As [`Relay::require`], of revisions, where one is expected.
    pub(crate) async fn require_revisions(&self, expects: bool) -> Result<(), Failure> {
        match expects {
            true => self.require(Feature::FileRevision).await,
            false => Ok(()),
        }
    }

    async fn gives_revisions(&self, wanted: bool) -> Result<bool, Failure> {
        Ok(wanted && self.features().await?.contains(&Feature::FileRevision))
    }

    /// Stat. `wanted` is whether a revision is asked for and this host gives any.
    pub(crate) async fn stat(
        &self,
        message: v1::StatRequest,
        path: &TreePath,
        wanted: bool,
        _room: Room,
    ) -> Result<v1::StatResponse, Failure> {
        let revisions = self.gives_revisions(wanted).await?;
        let message = v1::StatRequest {
            workspace: GUEST_WORKSPACE.to_owned(),
            include_revision: revisions,
            source: 0,
            ..message
        };
        let answer = self.client().stat(self.request(message)).await;
        let mut answer = self.answer(answer, OLDEST)?;
        let file = answer.file.as_mut().ok_or(Lie("a Stat without a file"));
        self.honest(file.and_then(|file| check::file(file, Place::At(path), revisions)))?;
        answer.origin = Some(self.origin());
        Ok(answer)
    }

    /// Read.
    pub(crate) async fn read(
        &self,
        message: v1::ReadRequest,
        path: TreePath,
        wanted: bool,
        room: Room,
    ) -> Result<Answers<v1::ReadResponse>, Failure> {
        self.require_revisions(message.expected_revision.is_some()).await?;
        let revisions = self.gives_revisions(wanted).await?;
        let etag = message.expected_etag.clone();
        let message = v1::ReadRequest {
            workspace: GUEST_WORKSPACE.to_owned(),
            include_revision: revisions,
            source: 0,
            ..message
        };
        let answer = self.client().read(self.request(message)).await;
        let inner = self.answer(answer, OLDEST)?;
        let (mut order, mut pieces, origin) = (Order::default(), Pieces::default(), self.origin());
        let check = move |message: Option<&mut v1::ReadResponse>| {
            let Some(message) = message else { return order.close() };
            let first = order.next(message.end.is_some())?;
            // Before anything is checked: what an older agent says of it was never asked for.
            match &mut message.end {
                Some(end) if !revisions => end.revision = None,
                _ => {}
            }
            pieces.next(message)?;
            message.origin = first.then_some(origin);
            match (&mut message.file, first) {
                (Some(file), true) => {
                    check::file(file, Place::At(&path), revisions)?;
                    // An agent that does not know the field would send another file's bytes.
                    if etag.as_ref().is_some_and(|etag| *etag != file.etag) {
                        return Err(Lie("a Read of another etag than was expected"));
                    }
                }
                (None, false) => {}
                _ => return Err(Lie("the file is told once, in the first message")),
            }
            Ok(())
        };
        self.relayed(inner, Box::new(check), OLDEST, room).await
    }

    /// List.
    pub(crate) async fn list(
        &self,
        message: v1::ListRequest,
        path: TreePath,
        entry_count_max: usize,
        wanted: bool,
        room: Room,
    ) -> Result<Answers<v1::ListResponse>, Failure> {
        let revisions = self.gives_revisions(wanted).await?;
        let message = v1::ListRequest {
            workspace: GUEST_WORKSPACE.to_owned(),
            include_revision: revisions,
            source: 0,
            ..message
        };
        let answer = self.client().list(self.request(message)).await;
        let inner = self.answer(answer, OLDEST)?;
        let (mut order, mut count, origin) = (Order::default(), 0_usize, self.origin());
        let mut total = Total::of_list(entry_count_max);
        let check = move |message: Option<&mut v1::ListResponse>| {
            let Some(message) = message else { return order.close() };
            total.next(message)?;
            let first = order.next(message.end.is_some())?;
            message.origin = first.then_some(origin);
            count = count.saturating_add(message.entries.len());
            if count > entry_count_max {
                return Err(Lie("more entries than were asked for"));
            }
            message.entries.iter_mut().try_for_each(|entry| check::file(entry, Place::Within(&path), revisions))
        };
        self.relayed(inner, Box::new(check), OLDEST, room).await
    }

    /// Search.
    pub(crate) async fn search(
        &self,
        message: v1::SearchRequest,
        path: TreePath,
        match_count_max: usize,
        room: Room,
    ) -> Result<Answers<v1::SearchResponse>, Failure> {
        self.require(Feature::FileSearch).await?;
        let message = v1::SearchRequest { workspace: GUEST_WORKSPACE.to_owned(), source: 0, ..message };
        let answer = self.client().search(self.request(message)).await;
        let feature = Feature::FileSearch.name();
        let inner = self.answer(answer, feature)?;
        let (mut order, mut count, origin) = (Order::default(), 0_usize, self.origin());
        let mut total = Total::of_search(Limits::default().search_result_bytes_max);
        let check = move |message: Option<&mut v1::SearchResponse>| {
            let Some(message) = message else { return order.close() };
            total.next(message)?;
            let first = order.next(message.end.is_some())?;
            message.origin = first.then_some(origin);
            count = count.saturating_add(message.matches.len());
            if count > match_count_max {
                return Err(Lie("more matches than were asked for"));
            }
            message.matches.iter().try_for_each(|found| check::found(found, &path))
        };
        self.relayed(inner, Box::new(check), feature, room).await
    }

    async fn relayed<T: 'static>(
        &self,
        inner: tonic::Streaming<T>,
        check: stream::Check<T>,
        feature: &str,
        room: Room,
    ) -> Result<Answers<T>, Failure> {
        let (judged, workspace) = (self.judged(feature), self.workspace.clone());
        let tell = move |told| status::of(&workspace, &judged(told));
        RelayStream::begin(inner, check, Box::new(tell), room, self.judged(feature))
            .await
            .map(|stream| Answers::Relay(Box::new(stream)))
    }

    /// Patch. Its key stands for the same request before and after a suspend, because the name that the guest sees is fixed.
    pub(crate) async fn patch(&self, message: v1::PatchRequest, path: &TreePath) -> Result<v1::PatchResponse, Failure> {
        self.require(Feature::FilePatch).await?;
        self.require_revisions(message.expected_revision.is_some()).await?;
        let message = v1::PatchRequest { workspace: GUEST_WORKSPACE.to_owned(), ..message };
        let answer = self.client().patch(self.request(message)).await;
        let mut answer = self.answer(answer, Feature::FilePatch.name())?;
        self.honest(check::revision(Some(&answer.revision)))?;
        self.changed(answer.file.as_mut(), answer.previous_revision.as_deref(), path)?;
        Ok(answer)
    }

    /// Remove.
    pub(crate) async fn remove(&self, message: v1::RemoveRequest) -> Result<v1::RemoveResponse, Failure> {
        self.require(Feature::FileWrite).await?;
        self.require_revisions(message.expected_revision.is_some()).await?;
        let message = v1::RemoveRequest { workspace: GUEST_WORKSPACE.to_owned(), ..message };
        let answer = self.client().remove(self.request(message)).await;
        let answer = self.answer(answer, Feature::FileWrite.name())?;
        self.honest(check::revision(answer.previous_revision.as_deref()))?;
        Ok(answer)
    }

    /// Move.
    pub(crate) async fn rename(
        &self,
        message: v1::MoveRequest,
        new_path: &TreePath,
    ) -> Result<v1::MoveResponse, Failure> {
        self.require(Feature::FileWrite).await?;
        self.require_revisions(message.expected_revision.is_some()).await?;
        let message = v1::MoveRequest { workspace: GUEST_WORKSPACE.to_owned(), ..message };
        let answer = self.client().r#move(self.request(message)).await;
        let mut answer = self.answer(answer, Feature::FileWrite.name())?;
        self.changed(answer.file.as_mut(), None, new_path)?;
        Ok(answer)
    }

    /// MakeDirectory.
    pub(crate) async fn make_directory(
        &self,
        message: v1::MakeDirectoryRequest,
        path: &TreePath,
    ) -> Result<v1::MakeDirectoryResponse, Failure> {
        self.require(Feature::FileWrite).await?;
        let message = v1::MakeDirectoryRequest { workspace: GUEST_WORKSPACE.to_owned(), ..message };
        let answer = self.client().make_directory(self.request(message)).await;
        let mut answer = self.answer(answer, Feature::FileWrite.name())?;
        self.changed(answer.file.as_mut(), None, path)?;
        Ok(answer)
    }

    /// What a change answers beside its own words.
    fn changed(&self, file: Option<&mut v1::FileInfo>, previous: Option<&str>, path: &TreePath) -> Result<(), Failure> {
        self.honest(check::revision(previous))?;
        match file {
            Some(file) => self.honest(check::file(file, Place::At(path), true)),
            None => Ok(()),
        }
    }
}

/// The end of a relay whose task did not end: a panic, or the way down.
fn lost(error: &tokio::task::JoinError) -> Failure {
    tracing::error!(%error, "a relayed change did not end");
    Fault::Internal("a relayed change did not end").into()
}
