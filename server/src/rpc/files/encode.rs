//! From our nouns to the wire's. What is not UTF-8 is shown with U+FFFD, and its true bytes stand beside it.

use bytes::Bytes;
use dormouse_disk::Consistency;
use dormouse_files::{
    list::Stop,
    meta::{FileType, Time},
    path::TreePath,
    search::{LineText, Match},
    stat::Entry,
};
use dormouse_proto::files::v1;

use crate::host::Origin;

/// A text as it is shown, and its true bytes exactly where the two differ.
pub fn text_and_raw(bytes: &[u8]) -> (String, Bytes) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), Bytes::new()),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Bytes::copy_from_slice(bytes)),
    }
}

/// A path.
pub fn path(path: &TreePath) -> (String, Bytes) {
    text_and_raw(path.as_bytes())
}

/// A moment.
pub fn time(time: Time) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.seconds, nanos: i32::try_from(time.nanoseconds).unwrap_or_default() }
}

/// A size or a count; beyond the wire's range its end.
pub fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn short_count(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// What a file or directory is.
pub fn entry(entry: &Entry) -> v1::FileInfo {
    let (text, raw) = path(&entry.path);
    let (target, raw_target) = entry.link_target.as_deref().map(text_and_raw).unwrap_or_default();
    v1::FileInfo {
        path: text,
        raw_path: raw,
        r#type: kind(entry.meta.kind).into(),
        size_bytes: count(entry.meta.size_bytes),
        mode: entry.meta.mode,
        uid: entry.meta.uid,
        gid: entry.meta.gid,
        link_count: entry.meta.link_count,
        modify_time: Some(time(entry.meta.modify_time)),
        symlink_target: target,
        raw_symlink_target: raw_target,
        revision: entry.revision.map(|revision| revision.to_string()),
        etag: entry.meta.etag(),
    }
}

fn kind(kind: FileType) -> v1::FileType {
    match kind {
        FileType::Regular => v1::FileType::Regular,
        FileType::Directory => v1::FileType::Directory,
        FileType::Symlink => v1::FileType::Symlink,
        FileType::Fifo => v1::FileType::Fifo,
        FileType::Socket => v1::FileType::Socket,
        FileType::CharacterDevice => v1::FileType::CharacterDevice,
        FileType::BlockDevice => v1::FileType::BlockDevice,
    }
}

/// Where an answer came from.
pub fn origin(origin: Origin) -> v1::Origin {
    let (served_from, consistency) = match origin.disk {
        None => (v1::ServedFrom::Workspace, v1::Consistency::Unspecified),
        Some(Consistency::Exact) => (v1::ServedFrom::Disk, v1::Consistency::Exact),
        Some(Consistency::Crash) => (v1::ServedFrom::Disk, v1::Consistency::Crash),
    };
    v1::Origin { served_from: served_from.into(), consistency: consistency.into(), generation: origin.generation }
}

/// Why an answer is not all there is.
pub fn stop(stop: Option<Stop>) -> v1::StopReason {
    match stop {
        None => v1::StopReason::Unspecified,
        Some(Stop::Matches) => v1::StopReason::MaxMatches,
        Some(Stop::Budget) => v1::StopReason::Budget,
        Some(Stop::Bytes) => v1::StopReason::MaxBytes,
        Some(Stop::Entries) => v1::StopReason::MaxEntries,
    }
}

/// A line that matches.
pub fn found(found: &Match) -> v1::Match {
    let (file, raw_path) = path(&found.path);
    let (text, raw_text) = text_and_raw(&found.text.bytes);
    v1::Match {
        path: file,
        raw_path,
        line: short_count(found.line),
        column: short_count(found.column),
        end_column: short_count(found.end_column),
        text,
        raw_text,
        text_clipped: found.text.clipped,
        before: found.before.iter().map(line).collect(),
        after: found.after.iter().map(line).collect(),
    }
}

fn line(line: &LineText) -> v1::Line {
    let (text, raw) = text_and_raw(&line.bytes);
    v1::Line { text, raw, clipped: line.clipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_bytes_stand_beside_a_text_exactly_where_they_differ() {
        assert_eq!(text_and_raw(b"/a"), ("/a".to_owned(), Bytes::new()));
        assert_eq!(text_and_raw(b"/\xff"), ("/\u{fffd}".to_owned(), Bytes::from_static(b"/\xff")));
        assert_eq!(text_and_raw("\u{fffd}".as_bytes()), ("\u{fffd}".to_owned(), Bytes::new()));
        assert_eq!(text_and_raw(b""), (String::new(), Bytes::new()));
    }
}
