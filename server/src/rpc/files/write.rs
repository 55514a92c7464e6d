//! Write: a file of any size, its content arriving piece by piece. Until it is finished nothing of it is visible; from
//! then on it runs to its end, whether or not its caller waits.

use std::time::Duration;

use dormouse_files::{
    Fault,
    change::{WriteDone, WritePlan},
    path::TreePath,
    revision::{Expected, Revision},
};
use dormouse_live::{StagedWrite, WriteBegin};
use dormouse_proto::files::v1::{self, write_request::Message};
use tonic::{Code, Request, Status, Streaming};

use crate::{
    host::{
        Feature, Writable, Writing,
        error::{Failure, HostFault},
        state::State,
        workspace::ChangeGuard,
    },
    rpc::{
        files::{
            Caller, Files, Room, encode,
            fields::{self, Names},
        },
        lane::{self, LaneBudget},
        relay::Relay,
        status,
    },
};

/// Longest time between two whole messages of a caller, and before the first: a Write holds a call's room, a staged file
/// and Quiesce. A caller on a slow line sends smaller messages.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

fn decode(mut start: v1::WriteStart) -> Result<WritePlan, Fault> {
    fields::workspace(&start.workspace)?;
    let path = fields::path("path", &start.path, &start.raw_path, Names::File)?;
    let expected = fields::expected(start.expected_revision.as_deref())?;
    let mode = fields::mode(start.mode)?;
    let content_revision = match start.content_revision.take() {
        None => None,
        Some(text) => Some(Revision::parse(&text).ok_or_else(|| {
            Fault::invalid("content_revision", "it is no revision: send 64 lowercase hex characters, or leave it unset")
        })?),
    };
    let key_text = std::mem::take(&mut start.idempotency_key);
    // The content is told apart by its own revision, so the one that may come with the start is not hashed twice.
    let key = fields::key(&key_text, "Write", &start)?;
    Ok(WritePlan { path, expected, mode, create_parents: start.create_parents, key, content_revision })
}

/// All the data, and what its caller believes it sent.
struct Arrived {
    finish: v1::WriteFinish,
    staged: StagedWrite,
}

impl Files {
    pub(super) async fn do_write(
        &self,
        request: Request<Streaming<v1::WriteRequest>>,
    ) -> Result<v1::WriteResponse, Status> {
        let told = |workspace: &str, failure: &Failure| status::of(workspace, failure);
        let caller = self.caller(&request).map_err(|failure| told("", &failure))?;
        let mut messages = request.into_inner();
        let start = match next(&mut messages).await? {
            Some(Message::Start(start)) => start,
            _ => {
                let fault = Fault::invalid("message", "the first message of a Write must be start");
                return Err(told("", &fault.into()));
            }
        };
        let workspace = start.workspace.clone();
        let begun = self.begin(start, &caller).await.map_err(|failure| told(&workspace, &failure))?;
        let done = match begun {
            Begun::Replayed(done) => *done,
            Begun::Guest(begun) => {
                let AtGuest { relay, start, path, guard, room } = *begun;
                return relay.write(start, &path, guard, room, &mut messages).await;
            }
            Begun::Staged(begun) => {
                let Staged { mut guard, staged, room } = *begun;
                let arrived = tokio::select! {
                    arrived = self.arrive(&workspace, &mut messages, staged) => Some(arrived?),
                    () = guard.cut() => None,
                };
                let Some(Arrived { finish, staged }) = arrived else {
                    let fault = HostFault::InTransition { workspace: workspace.clone(), state: State::Quiescing };
                    return Err(status::of_host(&fault));
                };
                self.commit(finish, staged, guard, room, &caller).await.map_err(|failure| told(&workspace, &failure))?
            }
        };
        Ok(v1::WriteResponse {
            revision: done.revision.to_string(),
            previous_revision: done.previous_revision.map(|revision| revision.to_string()),
            bytes_written: encode::count(done.bytes_written),
            durable: done.durable,
            file: Some(encode::entry(&done.entry)),
            replayed: done.replayed,
        })
    }

    async fn begin(&self, start: v1::WriteStart, caller: &Caller) -> Result<Begun, Failure> {
        let name = start.workspace.clone();
        let message = start.clone();
        let plan = decode(start)?;
        let (workspace, room) = self.find(&name, caller)?;
        self.host.require(Feature::FileWrite)?;
        self.require_revisions(plan.expected != Expected::Any)?;
        let Writing { files, guard } = self.host.writing(&workspace)?;
        let directory = match files {
            Writable::Directory(directory) => directory,
            Writable::Guest(guest) => {
                let relay = Relay::new(guest, workspace.name(), caller);
                return Ok(Begun::Guest(Box::new(AtGuest { relay, start: message, path: plan.path, guard, room })));
            }
        };
        lane::finish(move || match directory.write(&plan)? {
            WriteBegin::Replayed(done) => Ok(Begun::Replayed(Box::new(done))),
            WriteBegin::Staged(staged) => Ok(Begun::Staged(Box::new(Staged { guard, staged, room }))),
        })
        .await
    }

    /// Takes the data to the staged file, one message at a time, until the last one.
    async fn arrive(
        &self,
        workspace: &str,
        messages: &mut Streaming<v1::WriteRequest>,
        mut staged: StagedWrite,
    ) -> Result<Arrived, Status> {
        let invalid = |what: &str| status::of(workspace, &Fault::invalid("message", what).into());
        loop {
            match next(messages).await? {
                Some(Message::Data(data)) => {
                    staged = lane::finish(move || {
                        staged.append(&data)?;
                        Ok(staged)
                    })
                    .await
                    .map_err(|failure| status::of(workspace, &failure))?;
                }
                Some(Message::Finish(finish)) => {
                    if next(messages).await?.is_some() {
                        return Err(invalid("nothing may follow finish"));
                    }
                    return Ok(Arrived { finish, staged });
                }
                Some(Message::Start(_)) => return Err(invalid("start may come only once, as the first message")),
                None => return Err(invalid("the stream ended before finish; nothing was written")),
            }
        }
    }

    async fn commit(
        &self,
        finish: v1::WriteFinish,
        staged: StagedWrite,
        guard: ChangeGuard,
        room: Room,
        caller: &Caller,
    ) -> Result<WriteDone, Failure> {
        let size_bytes =
            u64::try_from(finish.size_bytes).map_err(|_| Fault::invalid("finish.size_bytes", "it is negative"))?;
        let budget = LaneBudget::new(caller.deadline, None);
        lane::finish(move || {
            let _room = room;
            let done = staged.finish(size_bytes, finish.crc32c, &budget);
            drop(guard);
            Ok(done?)
        })
        .await
    }
}

/// A Write that may go on.
enum Begun {
    Replayed(Box<WriteDone>),
    Staged(Box<Staged>),
    Guest(Box<AtGuest>),
}

/// A Write whose data goes to a machine's own agent.
struct AtGuest {
    relay: Relay,
    start: v1::WriteStart,
    path: TreePath,
    guard: ChangeGuard,
    room: Room,
}

/// A Write whose data is arriving, and what it holds meanwhile.
struct Staged {
    guard: ChangeGuard,
    staged: StagedWrite,
    room: Room,
}

/// The next message of a caller; nothing at the end of its stream, and DEADLINE_EXCEEDED where none comes in time.
pub(crate) async fn next(messages: &mut Streaming<v1::WriteRequest>) -> Result<Option<Message>, Status> {
    match spoken(messages.message(), IDLE_TIME_MAX).await? {
        Ok(None) => Ok(None),
        Ok(Some(v1::WriteRequest { message: Some(message) })) => Ok(Some(message)),
        Ok(Some(v1::WriteRequest { message: None })) => {
            Err(status::of_fault("", &Fault::invalid("message", "a message is empty: set start, data or finish")))
        }
        // What is no fault of the bytes that came is the end of the connection: nobody is left to be told.
        Err(error) if !matches!(error.code(), Code::Internal | Code::OutOfRange) => Err(status::gone()),
        Err(error) => Err(status::normalised(error, "/dormouse.files.v1.FilesService/Write")),
    }
}

/// What a caller says, where that comes in time.
async fn spoken<T>(arrives: impl Future<Output = T>, idle: Duration) -> Result<T, Status> {
    tokio::time::timeout(idle, arrives).await.map_err(|_| status::of_host(&HostFault::CallerSilent { idle }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_caller_is_waited_for_only_so_long() {
        let idle = Duration::from_millis(20);
        assert_eq!(spoken(std::future::ready(7), idle).await.unwrap(), 7);
        let status = spoken(std::future::pending::<()>(), idle).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    }

    fn start() -> v1::WriteStart {
        v1::WriteStart {
            workspace: "a".to_owned(),
            path: "/f".to_owned(),
            idempotency_key: "k".to_owned(),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(start: v1::WriteStart, expect: Result<(), &str>) {
        let found = decode(start).map(drop).map_err(|fault| match fault {
            Fault::Invalid { field, .. } => field,
            other => other.to_string(),
        });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn a_start_is_sound_or_refused_by_field() {
        let revision = Some(Revision::of(b"").to_string());
        check(start(), Ok(()));
        check(v1::WriteStart { content_revision: revision, ..start() }, Ok(()));
        check(v1::WriteStart { content_revision: Some("absent".to_owned()), ..start() }, Err("content_revision"));
        check(v1::WriteStart { idempotency_key: String::new(), ..start() }, Err("idempotency_key"));
        check(v1::WriteStart { workspace: "/".to_owned(), ..start() }, Err("workspace"));
        check(v1::WriteStart { path: String::new(), ..start() }, Err("path"));
    }

    #[test]
    fn an_attempt_that_knows_its_content_is_the_same_request() {
        let revision = Some(Revision::of(b"").to_string());
        let first = decode(start()).unwrap();
        let second = decode(v1::WriteStart { content_revision: revision, ..start() }).unwrap();
        assert_eq!(first.key, second.key);
    }
}
