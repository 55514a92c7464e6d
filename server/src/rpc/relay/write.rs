//! Write, forwarded: the caller's messages go to the guest one by one. Until `finish` has gone out, the end of the caller or a
//! Quiesce cuts it off, and the guest keeps nothing; from then on the call runs to its end in a task of its own.

use dormouse_files::{Fault, path::TreePath};
use dormouse_proto::files::v1::{self, write_request::Message};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::Instrument;

use crate::{
    host::{
        Feature,
        error::{Failure, HostFault},
        relay::GUEST_WORKSPACE,
        state::State,
        workspace::ChangeGuard,
    },
    rpc::{
        files::{Room, write::next},
        relay::{Relay, check, lost},
        status,
    },
};

/// Messages that wait for the guest: each has up to 8 MiB.
const MESSAGE_COUNT_MAX: usize = 2;

impl Relay {
    /// Write; `messages` are the caller's after the first one.
    ///
    /// # Errors
    /// As the guest says; `InTransition` where a Quiesce came first.
    pub(crate) async fn write(
        &self,
        start: v1::WriteStart,
        path: &TreePath,
        guard: ChangeGuard,
        room: Room,
        messages: &mut Streaming<v1::WriteRequest>,
    ) -> Result<v1::WriteResponse, Status> {
        let told = |failure: Failure| status::of(&self.workspace, &failure);
        self.require(Feature::FileWrite).await.map_err(told)?;
        self.require_revisions(start.expected_revision.is_some()).await.map_err(told)?;
        let start = v1::WriteStart { workspace: GUEST_WORKSPACE.to_owned(), ..start };
        let (sender, receiver) = mpsc::channel(MESSAGE_COUNT_MAX);
        let wrapped = |message| v1::WriteRequest { message: Some(message) };
        let mut cut = guard.watch();
        let (mut client, request) = (self.client(), self.request(ReceiverStream::new(receiver)));
        // Ends with the guest's answer, with the channel, or with the caller's stream, which ends when `sender` is dropped.
        let call = async move {
            let _held = (guard, room);
            client.write(request).await
        };
        let mut call = tokio::spawn(call.in_current_span());
        // A channel that is closed means that the answer is there, or about to be: the loop takes that.
        let mut sent = sender.send(wrapped(Message::Start(start))).await;
        let invalid = |what: &str| told(Fault::invalid("message", what).into());
        let early = loop {
            if sent.is_err() {
                break None;
            }
            // In this order: an answer that is there, such as a replay's, needs no more of the caller's data.
            let message = tokio::select! {
                biased;
                ended = &mut call => break Some(ended),
                () = cut.cut() => {
                    let workspace = self.workspace.clone();
                    return Err(status::of_host(&HostFault::InTransition { workspace, state: State::Quiescing }));
                }
                message = next(messages) => message?,
            };
            match message {
                Some(data @ Message::Data(_)) => sent = sender.send(wrapped(data)).await,
                Some(finish @ Message::Finish(_)) => {
                    if next(messages).await?.is_some() {
                        return Err(invalid("nothing may follow finish"));
                    }
                    // As above.
                    let _ = sender.send(wrapped(finish)).await;
                    break None;
                }
                Some(Message::Start(_)) => return Err(invalid("start may come only once, as the first message")),
                None => return Err(invalid("the stream ended before finish; nothing was written")),
            }
        };
        drop(sender);
        let ended = match early {
            Some(ended) => ended,
            None => call.await,
        };
        let answered = || {
            let answer = ended.map_err(|error| lost(&error))?;
            let mut answer = self.answer(answer, Feature::FileWrite.name())?;
            self.honest(check::revision(Some(&answer.revision)))?;
            self.changed(answer.file.as_mut(), answer.previous_revision.as_deref(), path)?;
            Ok(answer)
        };
        answered().map_err(told)
    }
}
