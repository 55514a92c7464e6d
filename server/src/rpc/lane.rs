//! Lanes: where blocking work runs. The only `spawn_blocking` of the agent.
//!
//! ```text
//! handler ──once──► one blocking thread ──► its result              (a change runs on when its caller has gone)
//!         ──stream─► one blocking thread ──► bounded channel ──► body of the answer
//!                         ▲ a push breaks once the receiver is gone; the budget says so between pushes
//! ```
//! A panic on a lane is caught there and answered INTERNAL; the host lives on.

use std::{
    ops::ControlFlow,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use dormouse_files::{
    Fault,
    budget::{Budget, Spent},
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::Stream;

use crate::host::error::Failure;

/// Messages that wait between a lane and its caller: with pieces of 256 KiB, 1 MiB for each call.
const MESSAGE_COUNT_MAX: usize = 4;

/// How long before the caller's deadline its work ends, so that what it has found arrives in time; of a short time only an
/// eighth.
const MARGIN_MAX: Duration = Duration::from_millis(200);

/// What a call on a lane may spend.
#[derive(Debug, Clone)]
pub struct LaneBudget {
    /// The caller's.
    deadline: Option<Instant>,
    /// The host's own, for this kind of call.
    until: Option<Instant>,
    /// Whether the host's own time still counts.
    timed: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
}

impl LaneBudget {
    /// The caller's deadline, and so much of the host's time from now.
    ///
    /// The work is told a little before the caller's deadline, so that what it has found by then still arrives.
    pub fn new(deadline: Option<Instant>, time: Option<Duration>) -> Self {
        let now = Instant::now();
        let margin = |left: Duration| (left / 8).min(MARGIN_MAX);
        Self {
            deadline: deadline.map(|deadline| deadline - margin(deadline.saturating_duration_since(now))),
            until: time.and_then(|time| now.checked_add(time)),
            timed: Arc::new(AtomicBool::new(true)),
            gone: Arc::new(AtomicBool::new(false)),
        }
    }

    /// The host's own time has done its duty, as a time to the first byte has at that byte.
    pub fn untimed(&self) {
        self.timed.store(false, Ordering::Relaxed);
    }
}

impl Budget for LaneBudget {
    fn spent(&self) -> Option<Spent> {
        if self.gone.load(Ordering::Relaxed) {
            return Some(Spent::Gone);
        }
        if self.deadline.is_none() && self.until.is_none() {
            return None;
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(Spent::Deadline);
        }
        let timed = self.until.is_some_and(|until| now >= until) && self.timed.load(Ordering::Relaxed);
        timed.then_some(Spent::Time)
    }
}

/// Sets its flag when it is dropped, which is when the caller has gone.
struct Goodbye(Arc<AtomicBool>);

impl Drop for Goodbye {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A blocking thread, within the call's span.
fn lane<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> JoinHandle<Result<T, Failure>> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
}

fn panicked() -> Failure {
    tracing::error!("a lane panicked");
    Failure::Files(Fault::Internal("a lane panicked"))
}

/// Runs work that only looks; its budget says `Gone` once nobody waits.
///
/// # Errors
/// The work's own; `Internal` where it panicked.
pub async fn look<T: Send + 'static>(
    budget: LaneBudget,
    work: impl FnOnce(&LaneBudget) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let _goodbye = Goodbye(budget.gone.clone());
    lane(move || work(&budget)).await.unwrap_or_else(|_| Err(panicked()))
}

/// Runs work to its end, whether or not its caller waits for it: a change, a transition.
///
/// # Errors
/// The work's own; `Internal` where it panicked.
pub async fn finish<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    lane(work).await.unwrap_or_else(|_| Err(panicked()))
}

/// Where a lane puts its messages.
pub struct Outlet<T> {
    sender: mpsc::Sender<Sent<T>>,
}

/// A message on its way.
struct Sent<T> {
    message: T,
    is_last: bool,
}

impl<T> Outlet<T> {
    /// Sends the next message, waiting while the caller is slow; `Break` once it has gone.
    pub fn push(&mut self, message: T) -> ControlFlow<()> {
        self.send(Sent { message, is_last: false })
    }

    /// Sends the message that makes the answer whole. The stream ends well right behind it, whatever the lane still does:
    /// a caller that hangs up once it has all of the answer has not gone before its end.
    ///
    /// # Errors
    /// `Gone` where the caller has.
    pub fn push_last(&mut self, message: T) -> Result<(), Failure> {
        match self.send(Sent { message, is_last: true }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Fault::Gone.into()),
        }
    }

    fn send(&mut self, sent: Sent<T>) -> ControlFlow<()> {
        match self.sender.blocking_send(sent) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// The messages of a lane, as the body of an answer takes them.
pub struct LaneStream<T> {
    head: Option<T>,
    receiver: mpsc::Receiver<Sent<T>>,
    /// Nothing once the last message came.
    lane: Option<JoinHandle<Result<(), Failure>>>,
    _goodbye: Goodbye,
    tell: Box<dyn Fn(Failure) -> tonic::Status + Send + Sync>,
}

/// Runs work that streams. Answers only when its first message is there: what can be refused is refused before the
/// answer begins, because a caller can try again only before it has seen headers (gRFC A6).
///
/// # Errors
/// The work's own, where it ends so before its first message.
pub async fn stream<T: Send + 'static>(
    budget: LaneBudget,
    tell: impl Fn(Failure) -> tonic::Status + Send + Sync + 'static,
    work: impl FnOnce(&LaneBudget, &mut Outlet<T>) -> Result<(), Failure> + Send + 'static,
) -> Result<LaneStream<T>, Failure> {
    let (sender, receiver) = mpsc::channel(MESSAGE_COUNT_MAX);
    let goodbye = Goodbye(budget.gone.clone());
    let lane = lane(move || work(&budget, &mut Outlet { sender }));
    let mut stream = LaneStream { head: None, receiver, lane: Some(lane), _goodbye: goodbye, tell: Box::new(tell) };
    match stream.receiver.recv().await {
        Some(first) => stream.head = Some(stream.taken(first)),
        None => stream.end().await?,
    }
    Ok(stream)
}

impl<T> LaneStream<T> {
    fn taken(&mut self, sent: Sent<T>) -> T {
        if sent.is_last {
            self.lane = None;
        }
        sent.message
    }

    async fn end(&mut self) -> Result<(), Failure> {
        match self.lane.take() {
            Some(lane) => lane.await.unwrap_or_else(|_| Err(panicked())),
            None => Ok(()),
        }
    }
}

impl<T: Unpin> Stream for LaneStream<T> {
    type Item = Result<T, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(head)));
        }
        if self.lane.is_none() {
            return Poll::Ready(None);
        }
        if let Some(sent) = ready!(self.receiver.poll_recv(context)) {
            return Poll::Ready(Some(Ok(self.taken(sent))));
        }
        let Some(lane) = self.lane.as_mut() else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(lane).poll(context));
        self.lane = None;
        match ended.unwrap_or_else(|_| Err(panicked())) {
            Ok(()) => Poll::Ready(None),
            Err(failure) => Poll::Ready(Some(Err((self.tell)(failure)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    fn unlimited() -> LaneBudget {
        LaneBudget::new(None, None)
    }

    fn told(failure: Failure) -> tonic::Status {
        crate::rpc::status::of("w", &failure)
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let found = look(unlimited(), |_| -> Result<(), Failure> { panic!("on purpose") }).await;
        assert!(matches!(found, Err(Failure::Files(Fault::Internal(_)))));
        let found = finish(|| -> Result<(), Failure> { panic!("on purpose") }).await;
        assert!(matches!(found, Err(Failure::Files(Fault::Internal(_)))));
        assert_eq!(finish(|| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_panic_in_the_middle_of_a_stream_ends_it_with_a_status() {
        let mut found = stream(unlimited(), told, |_, outlet| {
            let _ = outlet.push(1);
            panic!("on purpose")
        })
        .await
        .unwrap();
        assert_eq!(found.next().await.unwrap().unwrap(), 1);
        assert_eq!(found.next().await.unwrap().unwrap_err().code(), tonic::Code::Internal);
        assert!(found.next().await.is_none());
    }

    #[tokio::test]
    async fn an_answer_that_is_whole_does_not_wait_for_its_lane() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (ended, end) = std::sync::mpsc::channel();
        let mut found = stream(unlimited(), told, move |_, outlet| {
            let _ = outlet.push(1);
            outlet.push_last(2)?;
            // Ends only when the test has seen the end of the stream.
            ended.send(wait.recv_timeout(Duration::from_secs(60))).map_err(|_| Failure::Files(Fault::Gone))
        })
        .await
        .unwrap();
        assert_eq!(found.next().await.unwrap().unwrap(), 1);
        assert_eq!(found.next().await.unwrap().unwrap(), 2);
        assert!(found.next().await.is_none());
        done.send(()).unwrap();
        let ended = tokio::task::spawn_blocking(move || end.recv_timeout(Duration::from_secs(60))).await.unwrap();
        assert_eq!(ended, Ok(Ok(())));
    }

    #[tokio::test]
    async fn a_refusal_before_the_first_message_is_no_stream() {
        let found = stream::<u8>(unlimited(), told, |_, _| Err(Failure::Files(Fault::KeyReused))).await;
        assert!(matches!(found, Err(Failure::Files(Fault::KeyReused))));
    }

    #[tokio::test]
    async fn a_lane_ends_when_its_caller_has_gone() {
        let (ended, end) = std::sync::mpsc::channel();
        let found = stream(unlimited(), told, move |budget, outlet| {
            while outlet.push([0; 1024]).is_continue() {}
            // The channel closes a moment before or after the flag is raised; a lane that asks goes on asking.
            while budget.spent() != Some(Spent::Gone) {
                std::thread::yield_now();
            }
            ended.send(()).map_err(|_| Failure::Files(Fault::Gone))
        })
        .await
        .unwrap();
        drop(found);
        let ended = tokio::task::spawn_blocking(move || end.recv_timeout(Duration::from_secs(10))).await.unwrap();
        assert!(ended.is_ok());
    }

    #[test]
    fn a_budget_ends_by_deadline_time_or_goodbye() {
        let past = Instant::now();
        assert_eq!(LaneBudget::new(Some(past), None).spent(), Some(Spent::Deadline));
        let until = |left: Duration| {
            let deadline = Instant::now() + left;
            deadline - LaneBudget::new(Some(deadline), None).deadline.unwrap()
        };
        assert_eq!(until(Duration::from_secs(10)), Duration::from_millis(200));
        assert_eq!(until(Duration::from_secs(2)), Duration::from_millis(200));
        assert!(until(Duration::from_millis(100)) <= Duration::from_micros(12_500));
        let timed = LaneBudget::new(None, Some(Duration::ZERO));
        assert_eq!(timed.spent(), Some(Spent::Time));
        timed.untimed();
        assert_eq!(timed.spent(), None);
        let left = LaneBudget::new(None, None);
        drop(Goodbye(left.gone.clone()));
        assert_eq!(left.spent(), Some(Spent::Gone));
    }
}
