//! Requests as most tests want them; a test names only what it is about, with `..ask::…(…)` for the rest.

use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_proto::files::v1 as pb;

/// A key that no other request of this process has.
pub fn key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("key-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A Stat without a revision.
pub fn stat(workspace: &str, path: &str) -> pb::StatRequest {
    pb::StatRequest { workspace: workspace.to_owned(), path: path.to_owned(), ..Default::default() }
}

/// A Read of the whole file.
pub fn read(workspace: &str, path: &str) -> pb::ReadRequest {
    pb::ReadRequest { workspace: workspace.to_owned(), path: path.to_owned(), ..Default::default() }
}

/// A Read of bytes.
pub fn bytes(workspace: &str, path: &str, offset: i64, length: i64) -> pb::ReadRequest {
    let range = Some(pb::read_request::Range::ByteRange(pb::ByteRange { offset, length }));
    pb::ReadRequest { range, ..read(workspace, path) }
}

/// A Read of lines.
pub fn lines(workspace: &str, path: &str, start: i64, end: i64) -> pb::ReadRequest {
    let range = Some(pb::read_request::Range::LineRange(pb::LineRange { start, end }));
    pb::ReadRequest { range, ..read(workspace, path) }
}

/// A List of a directory's own entries.
pub fn list(workspace: &str, path: &str) -> pb::ListRequest {
    pb::ListRequest { workspace: workspace.to_owned(), path: path.to_owned(), ..Default::default() }
}

/// A Search for literal text.
pub fn search(workspace: &str, path: &str, pattern: &str) -> pb::SearchRequest {
    pb::SearchRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        pattern: pattern.to_owned(),
        ..Default::default()
    }
}

/// A list of globs.
pub fn globs(globs: &[&str]) -> Option<pb::GlobList> {
    Some(pb::GlobList { globs: globs.iter().map(|glob| (*glob).to_owned()).collect() })
}

/// One edit.
pub fn edit(old_text: &str, new_text: &str) -> pb::Edit {
    pb::Edit { old_text: old_text.to_owned(), new_text: new_text.to_owned(), replace_all: false }
}

/// A Patch by edits, under a key of its own.
pub fn edits(workspace: &str, path: &str, edits: Vec<pb::Edit>) -> pb::PatchRequest {
    pb::PatchRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        change: Some(pb::patch_request::Change::Edits(pb::EditList { edits })),
        idempotency_key: key(),
        ..Default::default()
    }
}

/// A Patch by one edit, under a key of its own.
pub fn patch(workspace: &str, path: &str, old_text: &str, new_text: &str) -> pb::PatchRequest {
    edits(workspace, path, vec![edit(old_text, new_text)])
}

/// A Patch by content, under a key of its own.
pub fn content(workspace: &str, path: &str, content: impl Into<bytes::Bytes>) -> pb::PatchRequest {
    pb::PatchRequest {
        change: Some(pb::patch_request::Change::Content(content.into())),
        ..edits(workspace, path, Vec::new())
    }
}

/// The first message of a Write, under a key of its own.
pub fn write(workspace: &str, path: &str) -> pb::WriteStart {
    pb::WriteStart {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        idempotency_key: key(),
        ..Default::default()
    }
}

/// A Remove, under a key of its own.
pub fn remove(workspace: &str, path: &str) -> pb::RemoveRequest {
    pb::RemoveRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        idempotency_key: key(),
        ..Default::default()
    }
}

/// A Move, under a key of its own.
pub fn rename(workspace: &str, path: &str, new_path: &str) -> pb::MoveRequest {
    pb::MoveRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        new_path: new_path.to_owned(),
        idempotency_key: key(),
        ..Default::default()
    }
}

/// A MakeDirectory, under a key of its own.
pub fn make_directory(workspace: &str, path: &str) -> pb::MakeDirectoryRequest {
    pb::MakeDirectoryRequest {
        workspace: workspace.to_owned(),
        path: path.to_owned(),
        idempotency_key: key(),
        ..Default::default()
    }
}
