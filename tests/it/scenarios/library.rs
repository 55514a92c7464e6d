//! The Rust library as a player: calls by the scenarios' names, answers in the shape that all languages share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormouse_client::{
    Endpoint, Error, FilesClient, HostClient, HostWaker, Kind, Options, Waker, Waking, WriteSource,
    proto::files::v1::{self as pb, patch_request::Change, read_request::Range},
    retry::Policy,
    tools::{self, Session},
};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::{NAME, Place, Plays, Told, as_bytes, content};

/// Counts what it passes on.
struct Counting {
    wakes: Arc<AtomicU64>,
    host: HostWaker,
}

impl Waker for Counting {
    fn wake<'a>(&'a self, workspace: &'a str) -> Waking<'a> {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.host.wake(workspace)
    }
}

pub struct Library {
    runtime: Runtime,
    files: FilesClient,
    wakes: Arc<AtomicU64>,
}

impl Library {
    pub fn new(place: &Place) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let entered = runtime.enter();
        let policy = Policy { backoff: Duration::from_millis(2), ..Policy::default() };
        let options = Options { policy, timeout: Some(place.timeout), ..Options::default() };
        let endpoint: Endpoint = place.endpoint.parse().expect("an endpoint");
        let mut files = FilesClient::new(endpoint.channel()).with_options(options.clone());
        let wakes = Arc::new(AtomicU64::new(0));
        if place.wakes {
            let host = HostClient::new(Endpoint::Unix(place.host.to_owned()).channel()).with_options(options);
            files = files.with_waker(Arc::new(Counting { wakes: wakes.clone(), host: HostWaker::new(host) }));
        }
        drop(entered);
        Self { runtime, files, wakes }
    }
}

impl Plays for Library {
    fn call(&mut self, verb: &str, arguments: &Map<String, Value>) -> Option<Result<Value, Told>> {
        let asked = Arguments(arguments);
        // The library's types take one of these.
        if asked.has("content") && asked.has("edits") || asked.has("start_line") && asked.has("offset") {
            return None;
        }
        Some(self.runtime.block_on(run(&self.files, verb, &asked)).map_err(|error| told(&error)))
    }

    fn tool(&mut self, name: &str, arguments: &Value) -> (String, bool) {
        let session = Session::new(NAME);
        let output = self.runtime.block_on(tools::call(name, arguments, &self.files, &session)).expect("a tool");
        (output.text, output.is_error)
    }

    fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::SeqCst)
    }
}

struct Arguments<'a>(&'a Map<String, Value>);

impl Arguments<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name)?.as_str().map(str::to_owned)
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        T::try_from(self.0.get(name)?.as_i64()?).ok()
    }

    fn is(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    fn texts(&self, name: &str) -> Option<Vec<String>> {
        let list = self.0.get(name)?.as_array()?;
        Some(list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
    }

    /// The path as text, or as bytes.
    fn path(&self) -> (String, bytes::Bytes) {
        match &self.0["path"] {
            Value::String(text) => (text.clone(), bytes::Bytes::new()),
            raw => (String::new(), as_bytes(raw).into()),
        }
    }

    fn source(&self) -> i32 {
        match self.text("source").as_deref() {
            Some("workspace") => pb::ReadSource::Workspace.into(),
            Some("disk") => pb::ReadSource::Disk.into(),
            _ => pb::ReadSource::Unspecified.into(),
        }
    }
}

async fn run(files: &FilesClient, verb: &str, asked: &Arguments<'_>) -> Result<Value, Error> {
    let workspace = NAME.to_owned();
    let (path, raw_path) = asked.path();
    let key = || asked.text("idempotency_key").unwrap_or_default();
    Ok(match verb {
        "stat" => {
            let include_revision = asked.is("revision");
            let request = pb::StatRequest { workspace, path, raw_path, include_revision, source: asked.source() };
            let answer = files.stat(request).await?;
            with_origin(file(&answer.file.unwrap_or_default()), &answer.origin.unwrap_or_default())
        }
        "read" | "read_text" | "read_with_info" => {
            let range = match (
                asked.number("start_line"),
                asked.number("end_line"),
                asked.number("offset"),
                asked.number("length"),
            ) {
                (None, None, None, None) => None,
                (None, None, offset, length) => {
                    Some(Range::ByteRange(pb::ByteRange { offset: offset.unwrap_or(0), length: length.unwrap_or(0) }))
                }
                (start, end, ..) => {
                    Some(Range::LineRange(pb::LineRange { start: start.unwrap_or(0), end: end.unwrap_or(0) }))
                }
            };
            let request = pb::ReadRequest {
                workspace,
                path,
                raw_path,
                range,
                expected_revision: asked.text("expected_revision"),
                include_revision: verb == "read_with_info",
                source: asked.source(),
                expected_etag: None,
            };
            let (header, bytes, end) = files.read(request).await?.collect(1 << 30).await?;
            if verb != "read_with_info" {
                return Ok(content(&bytes));
            }
            let about = json!({
                "content": content(&bytes), "offset": header.offset, "revision": end.revision,
                "line_count": end.line_count, "changed": end.changed,
            });
            with_origin(about, &header.origin)
        }
        "list" | "list_iter" => {
            let request = pb::ListRequest {
                workspace,
                path,
                raw_path,
                depth: asked.number("depth"),
                include: asked.texts("include").unwrap_or_default(),
                exclude: asked.texts("exclude").map(|globs| pb::GlobList { globs }),
                max_entries: asked.number("max_entries"),
                include_revision: asked.is("revision"),
                source: asked.source(),
                start_after: asked.text("start_after").unwrap_or_default(),
                raw_start_after: bytes::Bytes::new(),
            };
            let (entries, end, origin) = files.list(request).await?.collect().await?;
            let entries: Vec<_> = entries.iter().map(file).collect();
            let total = json!({ "truncated": end.truncated, "stop_reason": stop(end.stop_reason()) });
            with_origin(items(verb == "list_iter", "entries", entries, total), &origin)
        }
        "search" | "search_iter" => {
            let request = pb::SearchRequest {
                workspace,
                path,
                raw_path,
                pattern: asked.text("pattern").expect("a pattern"),
                regex: asked.is("regex"),
                case_insensitive: asked.is("case_insensitive"),
                include: asked.texts("include").unwrap_or_default(),
                exclude: asked.texts("exclude").map(|globs| pb::GlobList { globs }),
                context_lines: asked.number("context_lines").unwrap_or(0),
                max_matches: asked.number("max_matches"),
                max_file_bytes: asked.number("max_file_bytes"),
                source: asked.source(),
            };
            let (found, end, origin) = files.search(request).await?.collect().await?;
            let found: Vec<_> = found.iter().map(one_match).collect();
            let skipped = end.skipped.unwrap_or_default();
            let total = json!({
                "truncated": end.truncated, "stop_reason": stop(end.stop_reason()), "files_scanned": end.files_scanned,
                "skipped": { "binary": skipped.binary, "too_large": skipped.too_large },
            });
            with_origin(items(verb == "search_iter", "matches", found, total), &origin)
        }
        "patch" => {
            let edit = |edit: &Value| pb::Edit {
                old_text: edit["old_text"].as_str().expect("a text").to_owned(),
                new_text: edit["new_text"].as_str().expect("a text").to_owned(),
                replace_all: edit["replace_all"] == true,
            };
            let change = match (asked.0.get("edits"), asked.0.get("content")) {
                (Some(edits), _) => {
                    Change::Edits(pb::EditList { edits: edits.as_array().expect("a list").iter().map(edit).collect() })
                }
                (None, content) => Change::Content(as_bytes(content.expect("a change")).into()),
            };
            let request = pb::PatchRequest {
                workspace,
                path,
                raw_path,
                change: Some(change),
                expected_revision: asked.text("expected_revision"),
                mode: asked.number("mode"),
                create_parents: asked.is("create_parents"),
                idempotency_key: key(),
                validate_only: asked.is("validate_only"),
            };
            let done = files.patch(request).await?;
            json!({
                "revision": done.revision, "previous_revision": done.previous_revision, "bytes_written": done.bytes_written,
                "durable": done.durable, "replacements": done.replacements, "replayed": done.replayed,
                "file": done.file.as_ref().map(file),
            })
        }
        "write" => {
            let start = pb::WriteStart {
                workspace,
                path,
                raw_path,
                expected_revision: asked.text("expected_revision"),
                mode: asked.number("mode"),
                create_parents: asked.is("create_parents"),
                idempotency_key: key(),
                content_revision: None,
            };
            let done = files.write(start, WriteSource::bytes(as_bytes(&asked.0["content"]))).await?;
            json!({
                "revision": done.revision, "previous_revision": done.previous_revision, "bytes_written": done.bytes_written,
                "replayed": done.replayed, "file": done.file.as_ref().map(file),
            })
        }
        "remove" => {
            let request = pb::RemoveRequest {
                workspace,
                path,
                raw_path,
                expected_revision: asked.text("expected_revision"),
                recursive: asked.is("recursive"),
                idempotency_key: key(),
            };
            let done = files.remove(request).await?;
            json!({ "previous_revision": done.previous_revision, "replayed": done.replayed })
        }
        "move" => {
            let request = pb::MoveRequest {
                workspace,
                path,
                raw_path,
                new_path: asked.text("new_path").expect("a path"),
                replace: asked.is("replace"),
                create_parents: asked.is("create_parents"),
                idempotency_key: key(),
                ..pb::MoveRequest::default()
            };
            json!({ "file": files.rename(request).await?.file.as_ref().map(file) })
        }
        "make_directory" => {
            let request = pb::MakeDirectoryRequest {
                workspace,
                path,
                raw_path,
                mode: asked.number("mode"),
                create_parents: asked.is("create_parents"),
                idempotency_key: key(),
            };
            json!({ "file": files.make_directory(request).await?.file.as_ref().map(file) })
        }
        other => panic!("no verb is called {other}"),
    })
}

/// As a stream is told, or as a whole.
fn items(streamed: bool, name: &str, list: Vec<Value>, total: Value) -> Value {
    if streamed {
        return json!({ "items": list, "summary": total });
    }
    let mut whole = total;
    whole[name] = list.into();
    whole
}

fn with_origin(mut value: Value, origin: &pb::Origin) -> Value {
    let served_from = match origin.served_from() {
        pb::ServedFrom::Unspecified => "",
        pb::ServedFrom::Workspace => "workspace",
        pb::ServedFrom::Disk => "disk",
    };
    let consistency = if origin.consistency() == pb::Consistency::Exact { "exact" } else { "" };
    value["origin"] =
        json!({ "served_from": served_from, "consistency": consistency, "generation": origin.generation });
    value
}

fn stop(reason: pb::StopReason) -> &'static str {
    match reason {
        pb::StopReason::Unspecified => "",
        pb::StopReason::MaxMatches => "max_matches",
        pb::StopReason::Budget => "budget",
        pb::StopReason::MaxBytes => "max_bytes",
        pb::StopReason::MaxEntries => "max_entries",
    }
}

/// Bytes only where they are not what the text beside them says.
fn raw(value: &mut Value, name: &str, bytes: &[u8]) {
    if !bytes.is_empty() {
        value[name] = STANDARD.encode(bytes).into();
    }
}

fn file(file: &pb::FileInfo) -> Value {
    let kind = file.r#type().as_str_name().trim_start_matches("FILE_TYPE_").to_lowercase();
    let mut told = json!({ "path": file.path, "type": kind, "size_bytes": file.size_bytes, "mode": file.mode });
    raw(&mut told, "raw_path", &file.raw_path);
    if !file.symlink_target.is_empty() {
        told["symlink_target"] = file.symlink_target.clone().into();
    }
    if let Some(revision) = &file.revision {
        told["revision"] = revision.clone().into();
    }
    if let Some(time) = &file.modify_time {
        // RFC 3339 with all its nanoseconds, as the other clients tell it.
        let whole = prost_time(time.seconds);
        told["modify_time"] = format!("{whole}.{:09}Z", time.nanos).into();
    }
    told
}

fn prost_time(seconds: i64) -> String {
    let whole = prost_types::Timestamp { seconds, nanos: 0 }.to_string();
    whole.trim_end_matches('Z').to_owned()
}

fn one_match(found: &pb::Match) -> Value {
    let line = |line: &pb::Line| json!({ "text": line.text, "clipped": line.clipped });
    let mut told = json!({
        "path": found.path, "line": found.line, "column": found.column, "end_column": found.end_column, "text": found.text,
        "text_clipped": found.text_clipped,
        "before": found.before.iter().map(line).collect::<Vec<_>>(),
        "after": found.after.iter().map(line).collect::<Vec<_>>(),
    });
    raw(&mut told, "raw_path", &found.raw_path);
    raw(&mut told, "raw_text", &found.raw_text);
    told
}

fn told(error: &Error) -> Told {
    let class = match error.kind() {
        Kind::NotFound => "NotFound",
        Kind::RevisionMismatch { .. } => "RevisionMismatch",
        Kind::EditNoMatch { .. } => "EditNoMatch",
        Kind::EditNotUnique { .. } => "EditNotUnique",
        Kind::Conflict => "Conflict",
        Kind::ChangedWhileRead => "ChangedWhileRead",
        Kind::InvalidRequest { .. } => "InvalidRequest",
        Kind::LimitExceeded { .. } => "LimitExceeded",
        Kind::PolicyDenied => "PolicyDenied",
        Kind::Unauthenticated => "Unauthenticated",
        Kind::WorkspaceNotRunning { .. } => "WorkspaceNotRunning",
        Kind::HostFeatureUnavailable { .. } => "HostFeatureUnavailable",
        Kind::DependencyUnavailable => "DependencyUnavailable",
        Kind::DeadlineExceeded => "DeadlineExceeded",
        Kind::StorageFull => "StorageFull",
        _ => "DormouseError",
    };
    Told {
        class,
        reason: error.reason_name().to_lowercase(),
        code: error.code_name().to_owned(),
        retryable: error.retryable(),
        details: error.metadata().clone(),
    }
}
