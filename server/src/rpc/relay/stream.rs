//! The messages of an answer: of a lane of this host, or of a machine's own agent. The latter are passed on one by one, each
//! checked first; the caller's pace is the guest's.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio_stream::Stream;
use tonic::{Status, Streaming};

use crate::{
    host::error::Failure,
    rpc::{files::Room, lane::LaneStream, relay::check::Lie},
};

/// An answer that streams.
pub enum Answers<T> {
    /// From here.
    Lane(LaneStream<T>),
    /// From a machine's own agent.
    Relay(Box<RelayStream<T>>),
}

/// Checks each message, and nothing at the end of the stream; what it says of a message may change that.
pub type Check<T> = Box<dyn FnMut(Option<&mut T>) -> Result<(), Lie> + Send + Sync>;
/// From a failure to what the caller is told.
pub type Tell = Box<dyn Fn(Told) -> Status + Send + Sync>;

/// How a relayed stream ends badly.
pub enum Told {
    /// The guest says so, or is gone.
    Guest(Status),
    /// The guest breaks the contract.
    Lie(Lie),
}

/// The answer of a machine's own agent.
pub struct RelayStream<T> {
    head: Option<T>,
    inner: Option<Streaming<T>>,
    check: Check<T>,
    tell: Tell,
    _room: Room,
}

impl<T> RelayStream<T> {
    /// Waits for the first message: what the guest refuses is refused before the answer begins.
    ///
    /// # Errors
    /// The guest's refusal, as `judge` makes it, or its lie.
    pub async fn begin(
        mut inner: Streaming<T>,
        mut check: Check<T>,
        tell: Tell,
        room: Room,
        judge: impl FnOnce(Told) -> Failure,
    ) -> Result<Self, Failure> {
        let mut head = match inner.message().await {
            Ok(head) => head,
            Err(status) => return Err(judge(Told::Guest(status))),
        };
        match check(head.as_mut()) {
            Ok(()) => Ok(Self { head, inner: Some(inner), check, tell, _room: room }),
            Err(lie) => Err(judge(Told::Lie(lie))),
        }
    }
}

impl<T: Unpin> Stream for RelayStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(head) = this.head.take() {
            return Poll::Ready(Some(Ok(head)));
        }
        let Some(inner) = this.inner.as_mut() else { return Poll::Ready(None) };
        let ended = match ready!(Pin::new(inner).poll_next(context)) {
            Some(Ok(mut message)) => match (this.check)(Some(&mut message)) {
                Ok(()) => return Poll::Ready(Some(Ok(message))),
                Err(lie) => Some(Told::Lie(lie)),
            },
            Some(Err(status)) => Some(Told::Guest(status)),
            None => (this.check)(None).err().map(Told::Lie),
        };
        // What the guest would still send is cut off.
        this.inner = None;
        Poll::Ready(ended.map(|told| Err((this.tell)(told))))
    }
}

impl<T: Unpin> Stream for Answers<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut() {
            Self::Lane(stream) => Pin::new(stream).poll_next(context),
            Self::Relay(stream) => Pin::new(stream.as_mut()).poll_next(context),
        }
    }
}
