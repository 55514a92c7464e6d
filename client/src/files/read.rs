//! Read: the bytes of a file in pieces, each checked against its place, the whole against its count and CRC-32C.
//!
//! Where the connection breaks, the read goes on at its offset, pinned to the `etag` of the first message: the same bytes
//! from the running workspace and from its disk, or an error. Nothing is handed out twice and nothing is left out.
//!
//! ```text
//! opening ──first message──► handing out ──`end`──► ended
//!    ▲                            │ broken
//!    └────── offset, etag ────────┘
//! ```

use bytes::{Buf, Bytes};
use dormouse_proto::files::v1::{ByteRange, FileInfo, Origin, ReadEnd, ReadRequest, ReadResponse, read_request::Range};
use tonic::{Code, Streaming};

use super::{broken_answer, service};
use crate::{
    call::{Caller, Run},
    error::{Error, Kind},
    method::Method,
};

const METHOD: Method = Method::READ;

/// What is known before the first byte.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadHeader {
    /// The file that is read.
    pub file: FileInfo,
    /// Where the answer comes from.
    pub origin: Origin,
    /// Where the first byte lies in the file.
    pub offset: u64,
}

/// The bytes of a read, in order.
pub struct ReadStream {
    caller: Caller,
    run: Run,
    request: ReadRequest,
    header: ReadHeader,
    stream: Option<Streaming<ReadResponse>>,
    /// Handed out so far.
    given: u64,
    attempt: Received,
    /// Of the current attempt's bytes, how many the caller already has.
    skip: u64,
    /// A piece that came with the attempt's first message.
    waiting: Option<ReadResponse>,
    end: Option<ReadEnd>,
}

/// What one attempt has sent; its `end` speaks of these bytes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Received {
    start: u64,
    bytes: u64,
    crc32c: u32,
}

impl Received {
    fn at(start: u64) -> Self {
        Self { start, bytes: 0, crc32c: 0 }
    }

    fn take(&mut self, piece: &ReadResponse) -> Result<(), String> {
        let place = self.start.saturating_add(self.bytes);
        if u64::try_from(piece.offset).ok() != Some(place) && !(piece.data.is_empty() && piece.end.is_some()) {
            return Err(format!("data for offset {} came where {place} was due", piece.offset));
        }
        self.bytes = self.bytes.saturating_add(piece.data.len() as u64);
        self.crc32c = crc32c::crc32c_append(self.crc32c, &piece.data);
        Ok(())
    }

    fn check(&self, end: &ReadEnd) -> Result<(), String> {
        if u64::try_from(end.bytes_sent).ok() != Some(self.bytes) {
            return Err(format!("{} bytes arrived of {} sent", self.bytes, end.bytes_sent));
        }
        if end.crc32c != self.crc32c {
            return Err(format!("the bytes' CRC-32C is {:08x}, the host sent {:08x}", self.crc32c, end.crc32c));
        }
        Ok(())
    }
}

impl ReadStream {
    pub(crate) async fn open(caller: Caller, request: ReadRequest) -> Result<Self, Error> {
        let mut run = caller.begin(METHOD, &request.workspace);
        loop {
            match Self::first(&caller, &mut run, &request).await {
                Ok((stream, header, first)) => {
                    let attempt = Received::at(header.offset);
                    let stream = Some(stream);
                    return Ok(Self {
                        caller,
                        run,
                        request,
                        header,
                        stream,
                        given: 0,
                        attempt,
                        skip: 0,
                        waiting: Some(first),
                        end: None,
                    });
                }
                Err(error) => run.recover(error).await?,
            }
        }
    }

    /// Sends one attempt and reads its first message.
    async fn first(
        caller: &Caller,
        run: &mut Run,
        request: &ReadRequest,
    ) -> Result<(Streaming<ReadResponse>, ReadHeader, ReadResponse), Error> {
        let call = run.stream_request(request.clone());
        let mut stream = run.attempt(service(caller.channel.clone()).read(call)).await?.into_inner();
        let mut first = run.attempt(stream.message()).await?.ok_or_else(|| Error::broken_off(METHOD))?;
        let file = first.file.take().ok_or_else(|| broken_answer(METHOD, "the first message names no file"))?;
        let offset = u64::try_from(first.offset)
            .map_err(|_| broken_answer(METHOD, format!("data for offset {} is no place in a file", first.offset)))?;
        let origin = first.origin.take().unwrap_or_default();
        Ok((stream, ReadHeader { file, origin, offset }, first))
    }

    /// What is known before the first byte.
    pub fn header(&self) -> &ReadHeader {
        &self.header
    }

    /// The host's last word; there once [`next`](Self::next) has answered that nothing is left.
    pub fn end(&self) -> Option<&ReadEnd> {
        self.end.as_ref()
    }

    /// The next piece, never empty; nothing once the whole has arrived and was found intact.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while self.end.is_none() {
            let piece = match self.piece().await {
                Ok(piece) => piece,
                Err(error) => {
                    self.stream = None;
                    self.run.recover(error).await?;
                    self.resume().await?;
                    continue;
                }
            };
            self.attempt.take(&piece).map_err(|fact| self.broken(fact))?;
            if let Some(end) = &piece.end {
                self.attempt.check(end).map_err(|fact| self.broken(fact))?;
                self.end = piece.end;
                // Nothing may follow; the call's trailers are not waited for.
                self.stream = None;
            }
            let mut data = piece.data;
            let known = self.skip.min(data.len() as u64);
            data.advance(known as usize);
            self.skip -= known;
            if !data.is_empty() {
                self.given = self.given.saturating_add(data.len() as u64);
                self.run.progressed();
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// All of it at once; refused where there are more than `bytes_max` bytes, however many the host would send.
    pub async fn collect(mut self, bytes_max: usize) -> Result<(ReadHeader, Vec<u8>, ReadEnd), Error> {
        let mut content = Vec::new();
        while let Some(piece) = self.next().await? {
            if piece.len() > bytes_max.saturating_sub(content.len()) {
                let fact = format!("more than {bytes_max} bytes, too many to take at once; read a part of it");
                let kind = Kind::LimitExceeded { limit_bytes: Some(bytes_max as u64) };
                return Err(self.run.give_up(Error::local(METHOD, kind, Code::OutOfRange, fact)));
            }
            content.extend_from_slice(&piece);
        }
        Ok((self.header, content, self.end.unwrap_or_default()))
    }

    async fn piece(&mut self) -> Result<ReadResponse, Error> {
        if let Some(piece) = self.waiting.take() {
            return Ok(piece);
        }
        let Some(stream) = &mut self.stream else { return Err(Error::broken_off(METHOD)) };
        self.run.attempt(stream.message()).await?.ok_or_else(|| Error::broken_off(METHOD))
    }

    /// Opens the read again where it broke.
    async fn resume(&mut self) -> Result<(), Error> {
        if self.header.file.etag.is_empty() {
            return Err(self.run.give_up(Error::local(
                METHOD,
                Kind::DependencyUnavailable,
                Code::Unavailable,
                "the read broke off, and this host gives no etag to resume it by; read again from the start",
            )));
        }
        let (request, skip) = rest(&self.request, &self.header, self.given);
        loop {
            let error = match Self::first(&self.caller, &mut self.run, &request).await {
                Ok((stream, header, first)) => {
                    if header.file.etag != self.header.file.etag {
                        return Err(self.run.give_up(Error::local(
                            METHOD,
                            Kind::ChangedWhileRead,
                            Code::Aborted,
                            "the file changed while it was read; read it again from the start",
                        )));
                    }
                    let due = self.header.offset.saturating_add(self.given).saturating_sub(skip);
                    // The end of a part without data may come at any offset.
                    if header.offset != due && !(first.data.is_empty() && first.end.is_some()) {
                        return Err(self.broken(format!("resumed at offset {} where {due} was due", header.offset)));
                    }
                    self.attempt = Received::at(due);
                    self.skip = skip;
                    self.stream = Some(stream);
                    self.waiting = Some(first);
                    return Ok(());
                }
                Err(error) => error,
            };
            self.run.recover(error).await?;
        }
    }

    fn broken(&self, fact: String) -> Error {
        self.run.give_up(broken_answer(METHOD, format!("the answer does not hold together: {fact}")))
    }
}

/// The request for what is left after `given` bytes, and how many of its bytes the caller already has.
fn rest(request: &ReadRequest, header: &ReadHeader, given: u64) -> (ReadRequest, u64) {
    let mut next = request.clone();
    // The first attempt has checked the revision, at the price of a pass over the file; the etag pins what it saw.
    next.expected_revision = None;
    next.expected_etag = Some(header.file.etag.clone());
    let length = match request.range {
        // Where these lines end is the host's knowledge: ask for them again and skip.
        Some(Range::LineRange(_)) => return (next, given),
        Some(Range::ByteRange(range)) => u64::try_from(range.length).unwrap_or(0),
        None => 0,
    };
    let size = u64::try_from(header.file.size_bytes).unwrap_or(0);
    let to_end = size.saturating_sub(header.offset);
    let total = if length == 0 { to_end } else { length.min(to_end) };
    // With all bytes there and only `end` missing, one byte is asked for again: a length of 0 would mean "all", and an
    // offset at the end of the file is not one that every host answers.
    let skip = u64::from(given > 0 && given >= total);
    let offset = header.offset.saturating_add(given).saturating_sub(skip);
    let left = if length == 0 { 0 } else { length.saturating_sub(given).saturating_add(skip).max(1) };
    next.range = Some(Range::ByteRange(ByteRange {
        offset: i64::try_from(offset).unwrap_or(i64::MAX),
        length: i64::try_from(left).unwrap_or(i64::MAX),
    }));
    (next, skip)
}

#[cfg(test)]
mod tests {
    use dormouse_proto::files::v1::LineRange;

    use super::*;

    fn header(size_bytes: i64, offset: u64) -> ReadHeader {
        let file = FileInfo { size_bytes, etag: "e1".into(), ..Default::default() };
        ReadHeader { file, origin: Origin::default(), offset }
    }

    fn check(range: Option<(i64, i64)>, start: u64, given: u64, expect: (i64, i64, u64)) {
        let range = range.map(|(offset, length)| Range::ByteRange(ByteRange { offset, length }));
        let request = ReadRequest { range, expected_revision: Some("r".into()), ..Default::default() };
        let (next, skip) = rest(&request, &header(1000, start), given);
        let Some(Range::ByteRange(range)) = next.range else { panic!("{next:?}") };
        assert_eq!((range.offset, range.length, skip), expect);
        assert_eq!(next.expected_etag.as_deref(), Some("e1"));
        assert_eq!(next.expected_revision, None);
    }

    #[test]
    fn a_whole_file_goes_on_to_its_end() {
        check(None, 0, 0, (0, 0, 0));
        check(None, 0, 300, (300, 0, 0));
        check(None, 0, 1000, (999, 0, 1));
    }

    #[test]
    fn a_range_goes_on_to_its_own_end() {
        check(Some((100, 50)), 100, 20, (120, 30, 0));
        check(Some((100, 50)), 100, 50, (149, 1, 1));
        check(Some((100, 0)), 100, 20, (120, 0, 0));
        // Longer than the file: the end of the file is the end.
        check(Some((900, 500)), 900, 100, (999, 401, 1));
        // Counted from the end: the place that the host named.
        check(Some((-10, 0)), 990, 4, (994, 0, 0));
        check(Some((-10, 5)), 990, 4, (994, 1, 0));
    }

    #[test]
    fn lines_are_asked_for_again_and_skipped() {
        let range = Some(Range::LineRange(LineRange { start: 3, end: 9 }));
        let request = ReadRequest { range, ..Default::default() };
        let (next, skip) = rest(&request, &header(1000, 40), 77);
        assert_eq!((next.range, skip), (range, 77));
    }

    #[test]
    fn pieces_are_checked_against_their_place_count_and_checksum() {
        let piece = |offset, data: &'static str| ReadResponse {
            offset,
            data: Bytes::from_static(data.as_bytes()),
            ..Default::default()
        };
        let mut received = Received::at(10);
        received.take(&piece(10, "1234")).unwrap();
        received.take(&piece(14, "")).unwrap();
        received.take(&piece(14, "56789")).unwrap();
        assert!(received.clone().take(&piece(18, "x")).unwrap_err().contains("19 was due"));
        // The check value of CRC-32C for "123456789" (RFC 3720, B.4 names the polynomial).
        let end = ReadEnd { bytes_sent: 9, crc32c: 0xe306_9283, ..Default::default() };
        received.check(&end).unwrap();
        assert!(
            received.check(&ReadEnd { bytes_sent: 8, ..end.clone() }).unwrap_err().contains("9 bytes arrived of 8")
        );
        assert!(received.check(&ReadEnd { crc32c: 1, ..end }).unwrap_err().contains("CRC-32C"));
        assert!(received.take(&piece(-1, "x")).is_err());
    }
}
