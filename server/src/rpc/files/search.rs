//! Search: lines that match, in batches.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use dormouse_files::{
    Fault,
    limits::Limits,
    path::TreePath,
    search::{
        self, Aids, Match, SearchPlan,
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
    },
};
use dormouse_proto::files::v1;
use prost::Message;
use tonic::Request;

use crate::{
    host::{Feature, ReadSource, Walk, error::Failure, index::Wanted},
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

/// Encoded bytes of matches in one message, or one match.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// A batch does not wait longer than this for more, where more comes at all.
const BATCH_TIME_MAX: Duration = Duration::from_millis(100);
/// A search over fewer files is quick without an index.
const INDEX_FILE_COUNT_MIN: u64 = 100;
/// What is excluded where the caller says nothing.
const EXCLUDE_DEFAULT: [&str; 2] = [".git", "node_modules"];

/// A Search whose shape is sound but for its pattern and globs, which take time to compile.
#[derive(Debug)]
struct Shape {
    path: TreePath,
    context_line_count: usize,
    match_count_max: usize,
    file_bytes_max: u64,
    source: ReadSource,
}

fn decode(request: &v1::SearchRequest, limits: &Limits) -> Result<Shape, Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::Any)?;
    let context = usize::try_from(request.context_lines).ok().filter(|count| *count <= limits.context_line_count_max);
    let context_line_count = context.ok_or_else(|| {
        let limit = limits.context_line_count_max;
        Fault::invalid("context_lines", format!("{} is not between 0 and the limit of {limit}", request.context_lines))
    })?;
    let matches = fields::bounded(
        "max_matches",
        request.max_matches.map(i64::from),
        limits.search_match_count_default as u64,
        limits.search_match_count_max as u64,
    )?;
    let file_bytes_max = fields::bounded(
        "max_file_bytes",
        request.max_file_bytes,
        limits.search_file_bytes_default,
        limits.search_file_bytes_max,
    )?;
    Ok(Shape {
        path,
        context_line_count,
        match_count_max: usize::try_from(matches).unwrap_or(usize::MAX),
        file_bytes_max,
        source: fields::source(request.source)?,
    })
}

fn compile(request: &v1::SearchRequest, limits: &Limits) -> Result<(Pattern, GlobSet), Fault> {
    let syntax = if request.regex { Syntax::Regex } else { Syntax::Literal };
    let case = if request.case_insensitive { Case::Insensitive } else { Case::Sensitive };
    let pattern = Pattern::new(&request.pattern, syntax, case, limits)?;
    let globs = match &request.exclude {
        Some(exclude) => GlobSet::new(&request.include, &exclude.globs, limits)?,
        None => GlobSet::new(&request.include, &EXCLUDE_DEFAULT.map(str::to_owned), limits)?,
    };
    Ok((pattern, globs))
}

impl Files {
    pub(super) async fn do_search(
        &self,
        request: Request<v1::SearchRequest>,
    ) -> Result<Answers<v1::SearchResponse>, Failure> {
        let caller = self.caller(&request)?;
        let request = request.into_inner();
        fields::size(&request, self.limits().request_bytes_max)?;
        let shape = decode(&request, self.limits())?;
        let workspace = request.workspace.clone();
        let host = self.host.clone();
        // Part of the shape, and so before the workspace; on a lane because a hostile pattern takes its time.
        let (pattern, globs) = lane::look(LaneBudget::new(caller.deadline, None), {
            let host = host.clone();
            let request = request.clone();
            move |_| Ok(compile(&request, &host.settings().limits)?)
        })
        .await?;
        let ReadCall { reading, room, budget } =
            self.reading(&workspace, &caller, Some(Feature::FileSearch), shape.source, walk_time)?;
        reading.check_path(&shape.path, Walk::Down)?;
        if let Some(relay) = Self::relay(&reading, &workspace, &caller) {
            return relay.search(request, shape.path, shape.match_count_max, room).await;
        }
        let plan = SearchPlan {
            path: shape.path,
            pattern,
            globs,
            context_line_count: shape.context_line_count,
            match_count_max: shape.match_count_max,
            file_bytes_max: shape.file_bytes_max,
            machine_root: reading.machine_root(),
        };
        let (name, has_include) = (workspace.clone(), !request.include.is_empty());
        let tell = move |failure: Failure| status::of(&workspace, &failure);
        lane::stream(budget, tell, move |budget, outlet| {
            let _room = room;
            let (place, origin) = reading.open(&host)?;
            let mut waiting = v1::SearchResponse { origin: Some(encode::origin(origin)), ..Default::default() };
            let mut waiting_bytes = 0;
            let mut waiting_since = Instant::now();
            let mut sink = |found: Match| {
                let found = encode::found(&found);
                let found_bytes = found.encoded_len() + 8;
                let mut flow = ControlFlow::Continue(());
                let full = waiting_bytes + found_bytes > BATCH_BYTES_MAX || waiting_since.elapsed() > BATCH_TIME_MAX;
                if full && !waiting.matches.is_empty() {
                    if !reading.still_mine() {
                        return ControlFlow::Break(());
                    }
                    flow = outlet.push(std::mem::take(&mut waiting));
                    waiting_bytes = 0;
                    waiting_since = Instant::now();
                }
                waiting_bytes += found_bytes;
                waiting.matches.push(found);
                flow
            };
            let key = reading.index_key();
            let index = key.and_then(|key| host.indexes().find(&name, key));
            let turns = host.turns().of(&name);
            let aids = Aids { index: index.as_deref(), turns: &turns };
            let searched = search::run_with(&place, &plan, &host.settings().limits, aids, budget, &mut sink)
                .map_err(|fault| reading.told(fault.into()))?;
            reading.check_still()?;
            let end = searched.end;
            waiting.end = Some(v1::SearchEnd {
                truncated: end.stop.is_some(),
                stop_reason: encode::stop(end.stop).into(),
                files_scanned: encode::count(end.files_scanned),
                skipped: Some(v1::SkippedFiles {
                    binary: encode::count(end.skipped.binary),
                    too_large: encode::count(end.skipped.too_large),
                    special: encode::count(end.skipped.special),
                    unreadable: encode::count(end.skipped.unreadable),
                }),
            });
            outlet.push_last(waiting)?;
            // The answer is on its way: what is left to do is for the next search.
            let has_read_all = end.stop.is_none() && end.files_scanned >= INDEX_FILE_COUNT_MIN && !has_include;
            if let (Some(key), Some(root), true) = (key, searched.root, has_read_all && !searched.by_index) {
                let (workspace, globs, machine_root) = (name, plan.globs, plan.machine_root);
                host.indexes().want(Wanted { workspace, key, place, root, globs, machine_root });
            }
            Ok(())
        })
        .await
        .map(Answers::Lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> v1::SearchRequest {
        v1::SearchRequest {
            workspace: "a".to_owned(),
            path: "/".to_owned(),
            pattern: "x".to_owned(),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(request: v1::SearchRequest, expect: Result<(usize, usize, u64), &str>) {
        let found = decode(&request, &Limits::default())
            .map(|shape| (shape.context_line_count, shape.match_count_max, shape.file_bytes_max))
            .map_err(|fault| match fault {
                Fault::Invalid { field, .. } => field,
                other => other.to_string(),
            });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn numbers_have_defaults_and_bounds() {
        let mib = 1 << 20;
        check(request(), Ok((0, 200, mib)));
        check(v1::SearchRequest { context_lines: 5, ..request() }, Ok((5, 200, mib)));
        check(v1::SearchRequest { context_lines: 6, ..request() }, Err("context_lines"));
        check(v1::SearchRequest { context_lines: -1, ..request() }, Err("context_lines"));
        check(v1::SearchRequest { max_matches: Some(5_000), ..request() }, Ok((0, 5_000, mib)));
        check(v1::SearchRequest { max_matches: Some(5_001), ..request() }, Err("max_matches"));
        check(v1::SearchRequest { max_matches: Some(0), ..request() }, Err("max_matches"));
        check(v1::SearchRequest { max_file_bytes: Some(64 << 20), ..request() }, Ok((0, 200, 64 << 20)));
        check(v1::SearchRequest { max_file_bytes: Some((64 << 20) + 1), ..request() }, Err("max_file_bytes"));
        check(v1::SearchRequest { max_file_bytes: Some(0), ..request() }, Err("max_file_bytes"));
    }
}
