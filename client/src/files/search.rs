//! Search: lines that match, in path order. A search that breaks is begun again only while nothing was handed out: a
//! second run may find other lines, and half of each is no answer.

use std::collections::VecDeque;

use dormouse_proto::files::v1::{Match, Origin, SearchEnd, SearchRequest, SearchResponse};
use tonic::{Code, Streaming};

use super::{broken_answer, service};
use crate::{
    call::{Caller, Run},
    error::{Error, Kind},
    method::Method,
};

const METHOD: Method = Method::SEARCH;
/// The contract's bounds of `max_matches`.
const MATCHES_UNSET: usize = 200;
const MATCHES_MAX: usize = 5_000;

/// The matches of a search, in path order.
pub struct SearchStream {
    caller: Caller,
    run: Run,
    request: SearchRequest,
    stream: Streaming<SearchResponse>,
    origin: Origin,
    /// Arrived and not yet handed out: at most one message.
    waiting: VecDeque<Match>,
    given: usize,
    end: Option<SearchEnd>,
}

impl SearchStream {
    pub(crate) async fn open(caller: Caller, request: SearchRequest) -> Result<Self, Error> {
        let mut run = caller.begin(METHOD, &request.workspace);
        let (stream, first) = start(&caller, &mut run, &request).await?;
        let mut search = Self {
            caller,
            run,
            request,
            stream,
            origin: Origin::default(),
            waiting: VecDeque::new(),
            given: 0,
            end: None,
        };
        search.take(first);
        Ok(search)
    }

    /// Where the answer comes from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The host's last word; there once [`next`](Self::next) has answered that nothing is left.
    pub fn end(&self) -> Option<&SearchEnd> {
        if self.waiting.is_empty() { self.end.as_ref() } else { None }
    }

    /// The next match; nothing once the search has ended.
    pub async fn next(&mut self) -> Result<Option<Match>, Error> {
        loop {
            if let Some(found) = self.waiting.pop_front() {
                let limit = self.request.max_matches.map_or(MATCHES_UNSET, |max| usize::try_from(max).unwrap_or(0));
                if self.given >= limit.min(MATCHES_MAX) {
                    let fact = format!("more than the {limit} matches that were asked for");
                    return Err(self.run.give_up(broken_answer(METHOD, fact)));
                }
                self.given += 1;
                return Ok(Some(found));
            }
            if self.end.is_some() {
                return Ok(None);
            }
            let error = match self.run.attempt(self.stream.message()).await {
                Ok(Some(message)) => {
                    self.take(message);
                    continue;
                }
                Ok(None) => Error::broken_off(METHOD),
                Err(error) => error,
            };
            if self.given > 0 {
                return Err(self.run.give_up(error));
            }
            self.run.recover(error).await?;
            let (stream, first) = start(&self.caller, &mut self.run, &self.request).await?;
            self.stream = stream;
            self.take(first);
        }
    }

    /// All matches at once. Since nothing is handed out before the end, a search that breaks at any point is begun again.
    pub async fn collect(mut self) -> Result<(Vec<Match>, SearchEnd, Origin), Error> {
        loop {
            let mut matches = Vec::new();
            let error = loop {
                match self.next().await {
                    Ok(Some(found)) => matches.push(found),
                    Ok(None) => {
                        let end = self.end.take().unwrap_or_default();
                        return Ok((matches, end, self.origin));
                    }
                    Err(error) => break error,
                }
            };
            if matches!(error.kind(), Kind::BrokenAnswer) || self.given == 0 || error.code() == Code::DeadlineExceeded {
                return Err(error);
            }
            self.run.recover(error).await?;
            let (stream, first) = start(&self.caller, &mut self.run, &self.request).await?;
            self.given = 0;
            self.waiting.clear();
            self.stream = stream;
            self.take(first);
        }
    }

    fn take(&mut self, message: SearchResponse) {
        if let Some(origin) = message.origin {
            self.origin = origin;
        }
        self.waiting.extend(message.matches);
        self.end = message.end;
    }
}

async fn start(
    caller: &Caller,
    run: &mut Run,
    request: &SearchRequest,
) -> Result<(Streaming<SearchResponse>, SearchResponse), Error> {
    loop {
        let error = match first(caller, run, request).await {
            Ok(begun) => return Ok(begun),
            Err(error) => error,
        };
        run.recover(error).await?;
    }
}

async fn first(
    caller: &Caller,
    run: &mut Run,
    request: &SearchRequest,
) -> Result<(Streaming<SearchResponse>, SearchResponse), Error> {
    let call = run.stream_request(request.clone());
    let mut stream = run.attempt(service(caller.channel.clone()).search(call)).await?.into_inner();
    let message = run.attempt(stream.message()).await?.ok_or_else(|| Error::broken_off(METHOD))?;
    Ok((stream, message))
}
