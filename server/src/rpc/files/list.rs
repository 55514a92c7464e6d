//! List: a directory's entries, in batches.

use std::ops::ControlFlow;

use dormouse_files::{Fault, limits::Limits, list, list::ListPlan, search::globs::GlobSet, stat::Entry};
use dormouse_proto::files::v1;
use prost::Message;
use tonic::Request;

use crate::{
    host::{Feature, ReadSource, Walk, error::Failure},
    rpc::{
        files::{
            Files, ReadCall, encode,
            fields::{self, Names},
            walk_time,
        },
        lane::{self, LaneBudget},
        relay::stream::Answers,
        status,
    },
};

/// Encoded bytes of entries in one message, or one entry.
const BATCH_BYTES_MAX: usize = 64 << 10;

fn decode(request: &v1::ListRequest, limits: &Limits) -> Result<(ListPlan, ReadSource), Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::Any)?;
    let depth = fields::bounded("depth", request.depth.map(i64::from), 1, limits.list_depth_max as u64)?;
    let entries = fields::bounded(
        "max_entries",
        request.max_entries.map(i64::from),
        limits.list_entry_count_default as u64,
        limits.list_entry_count_max as u64,
    )?;
    let start_after = match (request.start_after.is_empty(), request.raw_start_after.is_empty()) {
        (true, true) => None,
        _ => Some(fields::path("start_after", &request.start_after, &request.raw_start_after, Names::Any)?),
    };
    let exclude = request.exclude.as_ref().map(|list| list.globs.as_slice()).unwrap_or_default();
    let plan = ListPlan {
        path,
        depth: usize::try_from(depth).unwrap_or(usize::MAX),
        globs: GlobSet::new(&request.include, exclude, limits)?,
        entry_count_max: usize::try_from(entries).unwrap_or(usize::MAX),
        include_revision: request.include_revision,
        start_after,
    };
    Ok((plan, fields::source(request.source)?))
}

impl Files {
    pub(super) async fn do_list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Answers<v1::ListResponse>, Failure> {
        let caller = self.caller(&request)?;
        let request = request.into_inner();
        fields::size(&request, self.limits().request_bytes_max)?;
        let workspace = request.workspace.clone();
        let host = self.host.clone();
        // On a lane because hostile globs take their time to compile.
        let (plan, source) = lane::look(LaneBudget::new(caller.deadline, None), {
            let host = host.clone();
            let request = request.clone();
            move |_| Ok(decode(&request, &host.settings().limits)?)
        })
        .await?;
        let ReadCall { reading, room, budget } = self.reading(&workspace, &caller, None, source, walk_time)?;
        reading.check_path(&plan.path, Walk::Down)?;
        if let Some(relay) = Self::relay(&reading, &workspace, &caller) {
            let wanted = plan.include_revision && self.host.has(Feature::FileRevision);
            return relay.list(request, plan.path, plan.entry_count_max, wanted, room).await;
        }
        let revisions = self.revisions(plan.include_revision, &reading);
        let tell = move |failure: Failure| status::of(&workspace, &failure);
        lane::stream(budget, tell, move |budget, outlet| {
            let _room = room;
            let (place, origin) = reading.open(&host)?;
            let mut waiting = v1::ListResponse { origin: Some(encode::origin(origin)), ..Default::default() };
            let mut waiting_bytes = 0;
            let mut sink = |entry: Entry| {
                let entry = encode::entry(&entry);
                let entry_bytes = entry.encoded_len() + 8;
                let mut flow = ControlFlow::Continue(());
                if waiting_bytes + entry_bytes > BATCH_BYTES_MAX && !waiting.entries.is_empty() {
                    if !reading.still_mine() {
                        return ControlFlow::Break(());
                    }
                    flow = outlet.push(std::mem::take(&mut waiting));
                    waiting_bytes = 0;
                }
                waiting_bytes += entry_bytes;
                waiting.entries.push(entry);
                flow
            };
            let end = list::run(&place, &plan, revisions, &host.settings().limits, budget, &mut sink)
                .map_err(|fault| reading.told(fault.into()))?;
            reading.check_still()?;
            waiting.end = Some(v1::ListEnd {
                entries_sent: encode::count(end.entries_sent),
                truncated: end.stop.is_some(),
                stop_reason: encode::stop(end.stop).into(),
                unreadable: encode::count(end.unreadable),
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

    fn request() -> v1::ListRequest {
        v1::ListRequest { workspace: "a".to_owned(), path: "/".to_owned(), ..Default::default() }
    }

    #[track_caller]
    fn check(request: v1::ListRequest, expect: Result<(usize, usize), &str>) {
        let found =
            decode(&request, &Limits::default()).map(|(plan, _)| (plan.depth, plan.entry_count_max)).map_err(|fault| {
                match fault {
                    Fault::Invalid { field, .. } => field,
                    other => other.to_string(),
                }
            });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn depth_and_count_have_defaults_and_bounds() {
        check(request(), Ok((1, 10_000)));
        check(v1::ListRequest { depth: Some(64), max_entries: Some(1_000_000), ..request() }, Ok((64, 1_000_000)));
        check(v1::ListRequest { depth: Some(0), ..request() }, Err("depth"));
        check(v1::ListRequest { depth: Some(65), ..request() }, Err("depth"));
        check(v1::ListRequest { max_entries: Some(0), ..request() }, Err("max_entries"));
        check(v1::ListRequest { max_entries: Some(1_000_001), ..request() }, Err("max_entries"));
        check(v1::ListRequest { start_after: "/a".to_owned(), ..request() }, Ok((1, 10_000)));
        check(
            v1::ListRequest { start_after: "/a".to_owned(), raw_start_after: "/a".into(), ..request() },
            Err("start_after"),
        );
        check(v1::ListRequest { start_after: "a".to_owned(), ..request() }, Err("start_after"));
    }
}
