//! Answers as JSON. Pure: from an answer to a value. Field names are the contract's, in snake_case; bytes that are not
//! UTF-8 stand beside their text in a `raw_…` field, as base64 (RFC 4648, section 4).

use base64::{Engine, engine::general_purpose::STANDARD};
use dormouse_client::{
    proto::{
        files::v1::{Consistency, FileInfo, GetCapabilitiesResponse, Line, ListEnd, Match, Origin, SearchEnd},
        host::v1::{FileSystem, Seal, Workspace, WorkspaceState, disk::Partition, guest, workspace_spec::Files},
    },
    words::{file_type, served_from, stop_reason},
};
use prost_types::{Duration, Timestamp};
use serde_json::{Map, Value, json};

use super::text::time_text;

/// An object that is put together field by field.
#[derive(Debug, Default)]
pub struct Object(Map<String, Value>);

impl Object {
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    pub fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// A field only where the bytes are not what the text beside it says.
    fn with_raw(self, name: &str, raw: &[u8]) -> Self {
        if raw.is_empty() { self } else { self.with(name, base64(raw)) }
    }

    /// An answer's origin, and beside it the one word of it that is asked for most.
    pub fn with_origin(self, origin: &Origin) -> Self {
        let consistency = match origin.consistency() {
            Consistency::Unspecified => "",
            Consistency::Exact => "exact",
            Consistency::Crash => "crash",
        };
        let served_from = served_from(origin);
        self.with("served_from", served_from).with(
            "origin",
            json!({ "served_from": served_from, "consistency": consistency, "generation": origin.generation }),
        )
    }

    /// All fields of a file.
    pub fn with_file(self, file: &FileInfo) -> Self {
        let Value::Object(fields) = self::file(file) else { return self };
        Self(self.0.into_iter().chain(fields).collect())
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.0)
    }
}

/// Base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// RFC 3339 with nanoseconds; a number of them that is none counts as 0.
pub fn time(time: &Timestamp) -> String {
    let nanos = u32::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000).unwrap_or(0);
    time_text(time.seconds).replace('Z', &format!(".{nanos:09}Z"))
}

pub fn file(file: &FileInfo) -> Value {
    let symlink = (!file.symlink_target.is_empty()).then_some(&*file.symlink_target);
    Object::default()
        .with("path", &*file.path)
        .with_raw("raw_path", &file.raw_path)
        .with("type", file_type(file.r#type()))
        .with("size_bytes", file.size_bytes)
        .with("mode", file.mode)
        .with("uid", file.uid)
        .with("gid", file.gid)
        .with("link_count", file.link_count)
        .with_some("modify_time", file.modify_time.as_ref().map(time))
        .with_some("symlink_target", symlink)
        .with_raw("raw_symlink_target", &file.raw_symlink_target)
        .with_some("revision", file.revision.as_deref())
        .with("etag", &*file.etag)
        .into()
}

pub fn found(found: &Match) -> Value {
    let first = i64::from(found.line).saturating_sub(found.before.len() as i64);
    let before: Vec<_> = (first..).zip(&found.before).map(|(number, text)| line(number, text)).collect();
    let after: Vec<_> = (i64::from(found.line).saturating_add(1)..)
        .zip(&found.after)
        .map(|(number, text)| line(number, text))
        .collect();
    Object::default()
        .with("path", &*found.path)
        .with_raw("raw_path", &found.raw_path)
        .with("line", found.line)
        .with("column", found.column)
        .with("end_column", found.end_column)
        .with("text", &*found.text)
        .with_raw("raw_text", &found.raw_text)
        .with("text_clipped", found.text_clipped)
        .with("before", before)
        .with("after", after)
        .into()
}

fn line(number: i64, line: &Line) -> Value {
    Object::default()
        .with("line", number)
        .with("text", &*line.text)
        .with_raw("raw_text", &line.raw)
        .with("clipped", line.clipped)
        .into()
}

/// The totals of a search, as fields of the object that holds them.
pub fn search_end(object: Object, end: &SearchEnd) -> Object {
    let skipped = end.skipped.unwrap_or_default();
    object
        .with("truncated", end.truncated)
        .with("stop_reason", stop_reason(end.stop_reason()))
        .with("files_scanned", end.files_scanned)
        .with(
            "skipped",
            json!({
                "binary": skipped.binary,
                "too_large": skipped.too_large,
                "special": skipped.special,
                "unreadable": skipped.unreadable,
            }),
        )
}

/// The totals of a listing, as fields of the object that holds them.
pub fn list_end(object: Object, end: &ListEnd) -> Object {
    object
        .with("truncated", end.truncated)
        .with("stop_reason", stop_reason(end.stop_reason()))
        .with("unreadable", end.unreadable)
}

pub fn capabilities(answer: &GetCapabilitiesResponse) -> Value {
    let features: Vec<_> = answer.features().map(|feature| feature.wire_name()).collect();
    let seconds = |time: &Option<Duration>| time.as_ref().map(|time| time.seconds as f64 + f64::from(time.nanos) / 1e9);
    let limits = answer.limits.as_ref().map(|limits| {
        json!({
            "max_request_bytes": limits.max_request_bytes,
            "max_patch_file_bytes": limits.max_patch_file_bytes,
            "max_patch_edits": limits.max_patch_edits,
            "max_search_matches": limits.max_search_matches,
            "max_search_globs": limits.max_search_globs,
            "max_search_file_bytes": limits.max_search_file_bytes,
            "max_search_pattern_bytes": limits.max_search_pattern_bytes,
            "max_search_result_bytes": limits.max_search_result_bytes,
            "max_glob_bytes": limits.max_glob_bytes,
            "max_offline_read_bytes": limits.max_offline_read_bytes,
            "max_list_entries": limits.max_list_entries,
            "max_list_depth": limits.max_list_depth,
            "search_budget": seconds(&limits.search_budget),
            "offline_budget": seconds(&limits.offline_budget),
            "idempotency_retention": seconds(&limits.idempotency_retention),
        })
    });
    json!({ "features": features, "limits": limits, "server_version": answer.server_version })
}

/// The word for a workspace's state.
pub fn state_name(state: WorkspaceState) -> String {
    state.as_str_name().trim_start_matches("WORKSPACE_STATE_").to_ascii_lowercase()
}

pub fn workspace(workspace: &Workspace) -> Value {
    let files = workspace.spec.as_ref().and_then(|spec| spec.files.as_ref());
    Object::default()
        .with("name", &*workspace.name)
        .with("state", state_name(workspace.state()))
        .with("generation", workspace.generation)
        .with_some("spec", files.map(spec))
        .with_some("seal", workspace.seal.as_ref().map(seal))
        .with_some("transition_time", workspace.transition_time.as_ref().map(time))
        .with_some("activity_time", workspace.activity_time.as_ref().map(time))
        .with("note", &*workspace.note)
        .into()
}

fn spec(files: &Files) -> Value {
    let machine = match files {
        Files::Directory(directory) => return json!({ "directory": { "root": directory.root } }),
        Files::Machine(machine) => machine,
    };
    let address = machine.guest.as_ref().and_then(|guest| guest.address.as_ref()).map(|address| match address {
        guest::Address::HybridVsock(at) => {
            json!({ "hybrid_vsock": { "socket_path": at.socket_path, "port": at.port } })
        }
        guest::Address::Vsock(at) => json!({ "vsock": { "cid": at.cid, "port": at.port } }),
        guest::Address::UnixPath(path) => json!({ "unix_path": path }),
        guest::Address::Tcp(at) => json!({ "tcp": at }),
    });
    let disks: Vec<Value> = machine.disks.iter().map(disk).collect();
    json!({ "machine": { "guest": address, "disks": disks } })
}

fn disk(disk: &dormouse_client::proto::host::v1::Disk) -> Value {
    let layers: Vec<_> = disk
        .layers
        .iter()
        .map(|layer| {
            let format = layer.format().as_str_name().trim_start_matches("DISK_FORMAT_").to_ascii_lowercase();
            json!({ "path": layer.path, "format": format })
        })
        .collect();
    let file_system = match disk.file_system() {
        FileSystem::Unspecified => None,
        known => Some(known.as_str_name().trim_start_matches("FILE_SYSTEM_").to_ascii_lowercase()),
    };
    let (number, guid) = match &disk.partition {
        Some(Partition::PartitionNumber(number)) => (Some(*number), None),
        Some(Partition::PartitionGuid(guid)) => (None, Some(&**guid)),
        None => (None, None),
    };
    Object::default()
        .with("layers", layers)
        .with_some("partition_number", number)
        .with_some("partition_guid", guid)
        .with("file_system", file_system)
        .with("mount_path", &*disk.mount_path)
        .with("flushes", disk.flushes)
        .into()
}

fn seal(seal: &Seal) -> Value {
    Object::default()
        .with("generation", seal.generation)
        .with("exact", seal.exact)
        .with_some("seal_time", seal.seal_time.as_ref().map(time))
        .with("superblock_sha256", &*seal.superblock_sha256)
        .with("foreign_mount_paths", seal.foreign_mount_paths.clone())
        .into()
}

#[cfg(test)]
mod tests {
    use dormouse_client::proto::files::v1::StopReason;

    use super::*;

    fn check(value: Value, expect: Value) {
        assert_eq!(value, expect);
    }

    #[test]
    fn a_match_has_its_lines_numbered_and_raw_bytes_only_where_needed() {
        let hit = Match {
            path: "/p/\u{fffd}".into(),
            raw_path: b"/p/\xff".to_vec().into(),
            line: 4,
            column: 3,
            end_column: 7,
            text: "# TODO".into(),
            before: vec![Line { text: "three".into(), ..Default::default() }],
            after: vec![Line { text: "\u{fffd}".into(), raw: b"\xfe".to_vec().into(), clipped: true }],
            ..Default::default()
        };
        check(
            found(&hit),
            json!({
                "path": "/p/\u{fffd}", "raw_path": "L3Av/w==", "line": 4, "column": 3, "end_column": 7,
                "text": "# TODO", "text_clipped": false,
                "before": [{ "line": 3, "text": "three", "clipped": false }],
                "after": [{ "line": 5, "text": "\u{fffd}", "raw_text": "/g==", "clipped": true }],
            }),
        );
    }

    #[test]
    fn a_search_s_totals_are_all_there() {
        let whole = SearchEnd { files_scanned: 7, ..Default::default() };
        check(
            search_end(Object::default(), &whole).into(),
            json!({
                "truncated": false, "stop_reason": "", "files_scanned": 7,
                "skipped": { "binary": 0, "too_large": 0, "special": 0, "unreadable": 0 },
            }),
        );
        let cut = SearchEnd { truncated: true, stop_reason: StopReason::Budget.into(), ..Default::default() };
        assert_eq!(Value::from(search_end(Object::default(), &cut))["stop_reason"], "budget");
    }

    #[test]
    fn a_file_has_a_revision_only_where_the_host_gave_one() {
        let mut info = FileInfo { path: "/a".into(), r#type: 1, mode: 0o644, ..Default::default() };
        assert_eq!(file(&info).get("revision"), None);
        info.revision = Some("ab".into());
        info.modify_time = Some(Timestamp { seconds: -1, nanos: 500 });
        let value = file(&info);
        assert_eq!(
            (&value["revision"], &value["type"], &value["mode"]),
            (&json!("ab"), &json!("regular"), &json!(420))
        );
        assert_eq!(value["modify_time"], "1969-12-31T23:59:59.000000500Z");
    }

    #[test]
    fn origins_are_told_in_the_contract_s_words() {
        let origin = Origin { served_from: 2, consistency: 1, generation: 9 };
        check(
            Object::default().with_origin(&origin).into(),
            json!({
                "served_from": "disk",
                "origin": { "served_from": "disk", "consistency": "exact", "generation": 9 },
            }),
        );
        let origin = Origin { served_from: 1, ..Default::default() };
        assert_eq!(Value::from(Object::default().with_origin(&origin))["origin"]["consistency"], "");
    }
}
