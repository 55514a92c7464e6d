//! One call from its first attempt to its answer: deadlines, the headers of a request, waiting and waking.
//!
//! What is done after a failure is decided in `retry`; this is where it is carried out.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use dormouse_proto::GENERATION_METADATA;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Request, Response, Status, metadata::AsciiMetadataValue, transport::Channel};
use uuid::Uuid;

use crate::{
    error::Error,
    method::Method,
    retry::{self, Attempt, Policy, Step},
    wake::Waker,
};

/// The largest request that a host takes, in bytes of its encoding.
pub const REQUEST_BYTES_MAX: usize = 7 * 1024 * 1024;
/// A host's messages have at most 1 MiB of content; more than this is refused instead of buffered.
pub(crate) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A bearer token; never shown.
#[derive(Clone)]
pub struct Token(AsciiMetadataValue);

impl Token {
    /// The token, or nothing for a text that cannot be sent as a header.
    pub fn new(text: &str) -> Option<Self> {
        let mut value: AsciiMetadataValue = format!("Bearer {}", text.trim()).parse().ok()?;
        value.set_sensitive(true);
        (!text.trim().is_empty()).then_some(Self(value))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(..)")
    }
}

/// How calls are made.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// For a whole call, its retries, waits and a wake included; for a stream, to its last message. Unset: none.
    pub timeout: Option<Duration>,
    /// For one attempt of a call with a single answer. Unset: as long as the whole call.
    pub attempt_timeout: Option<Duration>,
    /// When a call is made again.
    pub policy: Policy,
    /// Sent with every call.
    pub token: Option<Token>,
    /// The workspace's generation, where the caller knows it: an older host then refuses instead of answering from a disk
    /// that has moved on.
    pub generation: Option<i64>,
}

/// A connection with the way in which it is used.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) channel: Channel,
    pub(crate) options: Arc<Options>,
    pub(crate) waker: Option<Arc<dyn Waker>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Caller").field("options", &self.options).field("wakes", &self.waker.is_some()).finish()
    }
}

impl Caller {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, options: Arc::default(), waker: None }
    }

    pub(crate) fn begin(&self, method: Method, workspace: &str) -> Run {
        let now = Instant::now();
        Run {
            method,
            workspace: workspace.to_owned(),
            deadline: self.options.timeout.and_then(|timeout| now.checked_add(timeout)),
            attempt_deadline: None,
            options: self.options.clone(),
            waker: self.waker.clone(),
            since: now,
            failed: 0,
            attempts: 0,
        }
    }

    /// A call with one answer.
    pub(crate) async fn unary<Q, R, F>(
        &self,
        method: Method,
        workspace: &str,
        message: Q,
        mut send: impl FnMut(Channel, Request<Q>) -> F,
    ) -> Result<R, Error>
    where
        Q: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        fits(method, &message)?;
        let mut run = self.begin(method, workspace);
        loop {
            let request = run.request(message.clone());
            match run.attempt(send(self.channel.clone(), request)).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) => run.recover(error).await?,
            }
        }
    }
}

/// Refuses a message that every host would refuse.
pub(crate) fn fits(method: Method, message: &impl Message) -> Result<(), Error> {
    let size = message.encoded_len();
    if size > REQUEST_BYTES_MAX {
        return Err(Error::request_too_large(method, size as u64, REQUEST_BYTES_MAX as u64));
    }
    Ok(())
}

/// A key for a mutation that has none yet; every attempt carries the same.
pub(crate) fn fill_key(key: &mut String) {
    if key.is_empty() {
        *key = Uuid::new_v4().to_string();
    }
}

/// The state of one call between its attempts.
pub(crate) struct Run {
    method: Method,
    workspace: String,
    options: Arc<Options>,
    waker: Option<Arc<dyn Waker>>,
    deadline: Option<Instant>,
    attempt_deadline: Option<Instant>,
    /// When the call began, or a stream last got on.
    since: Instant,
    /// Failed attempts since then.
    failed: u32,
    attempts: u32,
}

impl Run {
    /// The request of the next attempt of a call with one answer.
    pub(crate) fn request<T>(&mut self, message: T) -> Request<T> {
        let own = self.options.attempt_timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.attempt_deadline = [own, self.deadline].into_iter().flatten().min();
        self.head(message)
    }

    /// The request of the next attempt of a call whose answer is a stream.
    pub(crate) fn stream_request<T>(&mut self, message: T) -> Request<T> {
        self.attempt_deadline = self.deadline;
        self.head(message)
    }

    fn head<T>(&mut self, message: T) -> Request<T> {
        self.attempts = self.attempts.saturating_add(1);
        let mut request = Request::new(message);
        if let Some(deadline) = self.attempt_deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(token) = &self.options.token {
            request.metadata_mut().insert("authorization", token.0.clone());
        }
        if let Some(generation) = self.options.generation {
            request.metadata_mut().insert(GENERATION_METADATA, generation.into());
        }
        request
    }

    /// Runs one attempt, or one step of a stream's, within its deadline.
    pub(crate) async fn attempt<T>(&self, future: impl Future<Output = Result<T, Status>>) -> Result<T, Error> {
        let Some(deadline) = self.attempt_deadline else {
            return future.await.map_err(|status| Error::from_status(self.method, &status));
        };
        let begun = Instant::now();
        match timeout_at(deadline, future).await {
            Ok(result) => result.map_err(|status| Error::from_status(self.method, &status)),
            Err(_) => Err(Error::deadline(self.method, deadline.saturating_duration_since(begun))),
        }
    }

    /// Waits, or wakes the workspace, until the next attempt may be made; or gives the error back.
    pub(crate) async fn recover(&mut self, error: Error) -> Result<(), Error> {
        self.failed = self.failed.saturating_add(1);
        let now = Instant::now();
        let attempt = Attempt {
            failed: self.failed,
            elapsed: now.saturating_duration_since(self.since),
            remaining: self.deadline.map(|deadline| deadline.saturating_duration_since(now)),
            can_wake: self.waker.is_some() && !self.workspace.is_empty(),
            random: random(),
        };
        match retry::decide(&self.options.policy, self.method.effect(), &error, &attempt) {
            Step::Wait(gap) => {
                sleep(gap).await;
                Ok(())
            }
            Step::Wake => self.wake(error).await,
            Step::Stop => Err(error.with_attempts(self.attempts)),
        }
    }

    async fn wake(&mut self, error: Error) -> Result<(), Error> {
        let Some(waker) = self.waker.take() else { return Err(error.with_attempts(self.attempts)) };
        let limit = Instant::now().checked_add(self.options.policy.wake);
        let limit = [self.deadline, limit].into_iter().flatten().min();
        let waking = waker.wake(&self.workspace);
        let failure = match limit {
            None => waking.await.err().map(|failure| failure.to_string()),
            Some(limit) => match timeout_at(limit, waking).await {
                Ok(result) => result.err().map(|failure| failure.to_string()),
                Err(_) => Some("it took too long".to_owned()),
            },
        };
        match failure {
            Some(failure) => Err(error.with_attempts(self.attempts).with_wake_failure(failure)),
            None => {
                // What follows a wake is a new story: the workspace needs its time to come up.
                self.progressed();
                Ok(())
            }
        }
    }

    /// A stream got on: its next failure is the first one.
    pub(crate) fn progressed(&mut self) {
        self.since = Instant::now();
        self.failed = 0;
    }

    /// The error as the caller gets it.
    pub(crate) fn give_up(&self, error: Error) -> Error {
        error.with_attempts(self.attempts)
    }
}

/// Evenly spread over 0 to 1, from the random bits of a UUID (RFC 9562, version 4: the last 62 bits are all random).
fn random() -> f64 {
    let (_, low) = Uuid::new_v4().as_u64_pair();
    f64::from(low as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use dormouse_proto::files::v1::{PatchRequest, patch_request::Change};

    use super::*;
    use crate::error::Kind;

    fn patch(bytes: usize) -> PatchRequest {
        PatchRequest { change: Some(Change::Content(vec![0; bytes].into())), ..Default::default() }
    }

    #[test]
    fn a_request_over_the_limit_is_refused_before_it_is_sent() {
        // Tag and length of the content take 5 bytes.
        assert!(fits(Method::PATCH, &patch(REQUEST_BYTES_MAX - 5)).is_ok());
        let error = fits(Method::PATCH, &patch(REQUEST_BYTES_MAX - 4)).unwrap_err();
        assert_eq!(error.kind(), &Kind::LimitExceeded { limit_bytes: Some(7_340_032) });
        assert_eq!(error.reason_name(), "REQUEST_TOO_LARGE");
        assert_eq!(error.attempts(), 0);
    }

    #[test]
    fn a_key_is_made_once_and_a_given_one_is_kept() {
        let mut key = String::new();
        fill_key(&mut key);
        assert_eq!(Uuid::parse_str(&key).unwrap().get_version_num(), 4);
        let first = key.clone();
        fill_key(&mut key);
        assert_eq!(key, first);
    }

    #[test]
    fn a_token_is_sent_as_a_header_or_not_at_all_and_never_shown() {
        assert!(Token::new("abc\n").is_some());
        assert!(Token::new("a\nb").is_none());
        assert!(Token::new(" ").is_none());
        assert_eq!(format!("{:?}", Token::new("secret")), "Some(Token(..))");
    }

    #[test]
    fn random_numbers_stay_in_bounds() {
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&random())));
    }
}
