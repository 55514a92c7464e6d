//! Read: the bytes of a file, in pieces.

use std::ops::ControlFlow;

use dormouse_files::{
    Fault,
    read::{self, Piece, Range, ReadPlan},
};
use dormouse_proto::files::v1;
use tonic::Request;

use crate::{
    host::{Feature, ReadSource, Walk, error::Failure},
    rpc::{
        buffers::Buffers,
        files::{
            Files, ReadCall, encode,
            fields::{self, Names},
            first_byte,
        },
        lane,
        relay::stream::Answers,
        status,
    },
};

/// Longest etag that is compared, in bytes: ours have fewer than 128.
const ETAG_BYTES_MAX: usize = 256;

fn decode(request: &v1::ReadRequest) -> Result<(ReadPlan, ReadSource), Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::File)?;
    let range = match &request.range {
        None => Range::Whole,
        Some(v1::read_request::Range::ByteRange(range)) => {
            let length = u64::try_from(range.length)
                .map_err(|_| Fault::invalid("byte_range.length", "it is negative; 0 reads to the end"))?;
            Range::Bytes { offset: range.offset, length }
        }
        Some(v1::read_request::Range::LineRange(range)) => {
            let line = |field: &str, value: i64| {
                u64::try_from(value).map_err(|_| Fault::invalid(field, "it is negative; lines are numbered from 1"))
            };
            let start = line("line_range.start", range.start)?.max(1);
            let end = line("line_range.end", range.end)?;
            if end != 0 && end < start {
                return Err(Fault::invalid("line_range.end", format!("line {end} comes before the start, {start}")));
            }
            Range::Lines { start, end }
        }
    };
    if request.expected_etag.as_ref().is_some_and(|etag| etag.is_empty() || etag.len() > ETAG_BYTES_MAX) {
        return Err(Fault::invalid("expected_etag", "it is no etag; send one as a Stat or a Read gave it"));
    }
    let plan = ReadPlan {
        path,
        range,
        expected_revision: fields::expected_content(request.expected_revision.as_deref())?,
        expected_etag: request.expected_etag.clone(),
        include_revision: request.include_revision,
    };
    Ok((plan, fields::source(request.source)?))
}

impl Files {
    pub(super) async fn do_read(
        &self,
        request: Request<v1::ReadRequest>,
    ) -> Result<Answers<v1::ReadResponse>, Failure> {
        let caller = self.caller(&request)?;
        let request = request.into_inner();
        let (plan, source) = decode(&request)?;
        let workspace = request.workspace.clone();
        // The feature comes before the state, and the workspace before both.
        self.host.find_at(&workspace, caller.generation)?;
        self.require_revisions(plan.expected_revision.is_some())?;
        let ReadCall { reading, room, budget } = self.reading(&workspace, &caller, None, source, first_byte)?;
        reading.check_path(&plan.path, Walk::No)?;
        if let Some(relay) = Self::relay(&reading, &workspace, &caller) {
            let wanted = plan.include_revision && self.host.has(Feature::FileRevision);
            return relay.read(request, plan.path, wanted, room).await;
        }
        let revisions = self.revisions(plan.include_revision || plan.expected_revision.is_some(), &reading);
        let host = self.host.clone();
        let tell = move |failure: Failure| status::of(&workspace, &failure);
        lane::stream(budget, tell, move |budget, outlet| {
            let _room = room;
            let limits = &host.settings().limits;
            let (place, origin) = reading.open(&host)?;
            let bytes_max = reading.is_offline().then_some(limits.offline_read_bytes_max);
            // A message waits for the next event, so that a small file is one message with header, data and end.
            let mut waiting = v1::ReadResponse::default();
            let buffers = Buffers::default();
            let mut sink = |piece: Piece<'_>| match piece {
                Piece::Header(entry) => {
                    waiting.file = Some(encode::entry(&entry));
                    waiting.origin = Some(encode::origin(origin));
                    ControlFlow::Continue(())
                }
                Piece::Data { offset, bytes } => {
                    budget.untimed();
                    let data = buffers.hold(bytes);
                    let flow = match waiting.data.is_empty() {
                        true => ControlFlow::Continue(()),
                        false => outlet.push(std::mem::take(&mut waiting)),
                    };
                    waiting.offset = encode::count(offset);
                    waiting.data = data;
                    flow
                }
            };
            let end = read::run(&place, &plan, revisions, bytes_max, limits, budget, &mut sink)
                .map_err(|fault| reading.told(fault.into()))?;
            if end.changed && reading.is_offline() {
                // A sleeping workspace's file does not change: whoever wrote it woke the workspace, or went around it.
                return Err(Fault::OfflineChanged.into());
            }
            waiting.end = Some(v1::ReadEnd {
                bytes_sent: encode::count(end.bytes_sent),
                crc32c: end.crc32c,
                revision: end.revision.map(|revision| revision.to_string()),
                line_count: end.line_count.map(encode::count),
                changed: end.changed,
            });
            outlet.push_last(waiting)
        })
        .await
        .map(Answers::Lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> v1::ReadRequest {
        v1::ReadRequest { workspace: "a".to_owned(), path: "/f".to_owned(), ..Default::default() }
    }

    fn bytes(offset: i64, length: i64) -> v1::ReadRequest {
        let range = v1::read_request::Range::ByteRange(v1::ByteRange { offset, length });
        v1::ReadRequest { range: Some(range), ..request() }
    }

    fn lines(start: i64, end: i64) -> v1::ReadRequest {
        let range = v1::read_request::Range::LineRange(v1::LineRange { start, end });
        v1::ReadRequest { range: Some(range), ..request() }
    }

    #[track_caller]
    fn check(request: v1::ReadRequest, expect: Result<Range, &str>) {
        let found = decode(&request).map(|(plan, _)| plan.range).map_err(|fault| match fault {
            Fault::Invalid { field, .. } => field,
            other => other.to_string(),
        });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn ranges_are_sound_or_refused_by_field() {
        check(request(), Ok(Range::Whole));
        check(bytes(-5, 0), Ok(Range::Bytes { offset: -5, length: 0 }));
        check(bytes(0, -1), Err("byte_range.length"));
        check(lines(0, 0), Ok(Range::Lines { start: 1, end: 0 }));
        check(lines(3, 3), Ok(Range::Lines { start: 3, end: 3 }));
        check(lines(3, 2), Err("line_range.end"));
        check(lines(-1, 2), Err("line_range.start"));
        check(lines(1, -2), Err("line_range.end"));
        check(v1::ReadRequest { expected_etag: Some(String::new()), ..request() }, Err("expected_etag"));
        check(v1::ReadRequest { expected_revision: Some("absent".to_owned()), ..request() }, Err("expected_revision"));
        check(v1::ReadRequest { workspace: String::new(), ..request() }, Err("workspace"));
        check(v1::ReadRequest { path: "/f/".to_owned(), ..request() }, Err("path"));
    }
}
