//! List: the entries of a directory in path order; where the connection breaks, it goes on after the last one.

use std::collections::VecDeque;

use bytes::Bytes;
use dormouse_proto::files::v1::{FileInfo, ListEnd, ListRequest, ListResponse, Origin, StopReason};
use tonic::Streaming;

use super::{broken_answer, service};
use crate::{
    call::{Caller, Run},
    error::Error,
    method::Method,
};

const METHOD: Method = Method::LIST;
/// What the contract gives where no `max_entries` is asked for.
const MAX_ENTRIES_UNSET: i32 = 10_000;

/// The entries of a listing, in path order.
pub struct ListStream {
    caller: Caller,
    run: Run,
    request: ListRequest,
    stream: Streaming<ListResponse>,
    origin: Origin,
    /// Arrived and not yet handed out: at most one message.
    waiting: VecDeque<FileInfo>,
    given: i64,
    last: Option<(String, Bytes)>,
    /// Entries that this attempt sent, for its own count.
    attempt: i64,
    /// A later attempt asked for one entry more than was wanted, to learn whether there is one.
    probing: bool,
    end: Option<ListEnd>,
}

impl ListStream {
    pub(crate) async fn open(caller: Caller, request: ListRequest) -> Result<Self, Error> {
        let mut run = caller.begin(METHOD, &request.workspace);
        loop {
            match first(&caller, &mut run, &request).await {
                Ok((stream, message)) => {
                    let origin = message.origin.unwrap_or_default();
                    let mut list = Self {
                        caller,
                        run,
                        request,
                        stream,
                        origin,
                        waiting: VecDeque::new(),
                        given: 0,
                        last: None,
                        attempt: 0,
                        probing: false,
                        end: None,
                    };
                    list.take(message)?;
                    return Ok(list);
                }
                Err(error) => run.recover(error).await?,
            }
        }
    }

    /// Where the answer comes from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The host's last word; there once [`next`](Self::next) has answered that nothing is left.
    pub fn end(&self) -> Option<&ListEnd> {
        if self.waiting.is_empty() { self.end.as_ref() } else { None }
    }

    /// The next entry; nothing once all have arrived.
    pub async fn next(&mut self) -> Result<Option<FileInfo>, Error> {
        loop {
            if let Some(entry) = self.waiting.pop_front() {
                let limit = wanted(&self.request);
                if self.given >= limit {
                    let fact = format!("more than the {limit} entries that were asked for");
                    return Err(self.run.give_up(broken_answer(METHOD, fact)));
                }
                self.given = self.given.saturating_add(1);
                self.last = Some((entry.path.clone(), entry.raw_path.clone()));
                return Ok(Some(entry));
            }
            if self.end.is_some() {
                return Ok(None);
            }
            let error = match self.run.attempt(self.stream.message()).await {
                Ok(Some(message)) => {
                    self.take(message)?;
                    self.run.progressed();
                    continue;
                }
                Ok(None) => Error::broken_off(METHOD),
                Err(error) => error,
            };
            self.run.recover(error).await?;
            self.resume().await?;
        }
    }

    /// All entries at once; the request's `max_entries` bounds them.
    pub async fn collect(mut self) -> Result<(Vec<FileInfo>, ListEnd, Origin), Error> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next().await? {
            entries.push(entry);
        }
        Ok((entries, self.end.unwrap_or_default(), self.origin))
    }

    fn take(&mut self, message: ListResponse) -> Result<(), Error> {
        self.attempt = self.attempt.saturating_add(message.entries.len() as i64);
        if !self.probing {
            self.waiting.extend(message.entries);
        }
        if let Some(mut end) = message.end {
            if self.probing && self.attempt > 0 {
                end.truncated = true;
                end.stop_reason = StopReason::MaxEntries.into();
            }
            if end.entries_sent != self.attempt {
                let fact = format!("{} entries arrived of {} sent", self.attempt, end.entries_sent);
                return Err(self.run.give_up(broken_answer(METHOD, fact)));
            }
            // The caller is told of all that it got, over however many attempts.
            end.entries_sent = self.given.saturating_add(self.waiting.len() as i64);
            self.end = Some(end);
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Error> {
        loop {
            let request = rest(&self.request, self.last.as_ref(), self.given);
            match first(&self.caller, &mut self.run, &request).await {
                Ok((stream, message)) => {
                    self.stream = stream;
                    self.attempt = 0;
                    self.probing = self.given >= wanted(&self.request);
                    return self.take(message);
                }
                Err(error) => self.run.recover(error).await?,
            }
        }
    }
}

async fn first(
    caller: &Caller,
    run: &mut Run,
    request: &ListRequest,
) -> Result<(Streaming<ListResponse>, ListResponse), Error> {
    let call = run.stream_request(request.clone());
    let mut stream = run.attempt(service(caller.channel.clone()).list(call)).await?.into_inner();
    let message = run.attempt(stream.message()).await?.ok_or_else(|| Error::broken_off(METHOD))?;
    Ok((stream, message))
}

/// The request for what is left after `given` entries, the last of which is `last`.
fn rest(request: &ListRequest, last: Option<&(String, Bytes)>, given: i64) -> ListRequest {
    let mut next = request.clone();
    let Some((path, raw_path)) = last else { return next };
    if raw_path.is_empty() {
        next.start_after = path.clone();
        next.raw_start_after = Bytes::new();
    } else {
        next.start_after = String::new();
        next.raw_start_after = raw_path.clone();
    }
    // With all of them there and only `end` missing, one more tells whether the listing was cut.
    next.max_entries = Some(i32::try_from(wanted(request).saturating_sub(given)).unwrap_or(1).max(1));
    next
}

/// How many entries the caller wants at most.
fn wanted(request: &ListRequest) -> i64 {
    i64::from(request.max_entries.unwrap_or(MAX_ENTRIES_UNSET).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(max: Option<i32>, last: Option<(&str, &[u8])>, given: i64, expect: (&str, &[u8], Option<i32>)) {
        let request = ListRequest { max_entries: max, start_after: "/p/0".into(), ..Default::default() };
        let last = last.map(|(path, raw)| (path.to_owned(), Bytes::copy_from_slice(raw)));
        let next = rest(&request, last.as_ref(), given);
        assert_eq!((&*next.start_after, &*next.raw_start_after, next.max_entries), expect);
    }

    #[test]
    fn a_listing_goes_on_after_its_last_entry() {
        check(None, None, 0, ("/p/0", b"", None));
        check(Some(5), Some(("/p/a", b"")), 2, ("/p/a", b"", Some(3)));
        check(None, Some(("/p/a", b"")), 1, ("/p/a", b"", Some(9_999)));
        check(Some(5), Some(("/p/\u{fffd}", b"/p/\xff")), 2, ("", b"/p/\xff", Some(3)));
        check(Some(2), Some(("/p/b", b"")), 2, ("/p/b", b"", Some(1)));
    }
}
