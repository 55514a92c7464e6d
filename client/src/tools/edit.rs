//! `edit_file`: every edit is held to one revision of the file, and what it answers holds the next one.

use serde::Deserialize;
use serde_json::json;

use super::{Session, explain::Refusal, json as written};
use crate::{
    Error, FilesClient, Kind,
    proto::files::v1::{Edit, EditList, ErrorReason, FileType, PatchRequest, StatRequest, patch_request::Change},
};

/// What the model asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    pub(super) path: String,
    pub(super) edits: Option<Vec<Replacement>>,
    pub(super) content: Option<String>,
    pub(super) expected_revision: Option<String>,
}

/// One replacement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) async fn run(asked: EditFile, client: &FilesClient, session: &Session) -> Result<String, Refusal> {
    let EditFile { path, edits, content, expected_revision } = asked;
    let change = match (edits, content) {
        (Some(edits), None) => {
            let edit = |edit: Replacement| Edit {
                old_text: edit.old_text,
                new_text: edit.new_text,
                replace_all: edit.replace_all,
            };
            Change::Edits(EditList { edits: edits.into_iter().map(edit).collect() })
        }
        (None, Some(content)) => Change::Content(content.into()),
        _ => {
            return Err(Refusal::invalid("an edit takes exactly one of `edits` and `content`")
                .with_next("call edit_file again with one of the two"));
        }
    };
    let creates = matches!(change, Change::Content(_));
    let revision = match expected_revision {
        Some(revision) => revision,
        None => revision_now(&path, creates, client, session).await?,
    };
    let request = PatchRequest {
        workspace: session.workspace.clone(),
        path,
        change: Some(change),
        expected_revision: Some(revision.clone()),
        ..PatchRequest::default()
    };
    match client.patch(request).await {
        Ok(done) => Ok(written(&json!({
            "revision": done.revision,
            "previous_revision": done.previous_revision,
            "replacements": done.replacements,
            "bytes_written": done.bytes_written,
            "durable": done.durable,
        }))),
        Err(error) => {
            let refusal = Refusal::from_error(&error, session);
            Err(match next_edit(&error, &revision) {
                Some(next) => refusal.with_next(next),
                None => refusal,
            })
        }
    }
}

/// The revision that the edit is held to: the file's own, or "absent" for content where there is no file.
async fn revision_now(path: &str, creates: bool, client: &FilesClient, session: &Session) -> Result<String, Refusal> {
    let request = StatRequest {
        workspace: session.workspace.clone(),
        path: path.to_owned(),
        include_revision: true,
        ..StatRequest::default()
    };
    let file = match client.stat(request).await {
        Ok(answer) => answer.file.unwrap_or_default(),
        Err(error) if creates && error.reason() == Some(ErrorReason::FileNotFound) => return Ok("absent".to_owned()),
        Err(error) => return Err(Refusal::from_error(&error, session)),
    };
    if let Some(revision) = file.revision {
        return Ok(revision);
    }
    Err(match file.r#type() {
        FileType::Regular => Refusal::new(
            "conflict",
            "host_feature_unavailable",
            "this host gives no revision of the file, so the edit cannot be held to one",
            session.alternative("file_revision"),
        ),
        FileType::Symlink => Refusal::new(
            "conflict",
            "symlink_refused",
            format!("{path} is a symbolic link to {}", file.symlink_target),
            "call edit_file again with the path of the file itself",
        ),
        FileType::Directory => Refusal::new(
            "conflict",
            "not_a_regular_file",
            format!("{path} is a directory"),
            "name a regular file; list_files shows what is in a directory",
        ),
        _ => Refusal::new(
            "conflict",
            "not_a_regular_file",
            format!("{path} is neither a file nor a directory"),
            "name a regular file",
        ),
    })
}

/// What makes the next try succeed without a read.
fn next_edit(error: &Error, revision: &str) -> Option<String> {
    let detail = |key: &str| error.metadata().get(key).map(String::as_str);
    Some(match error.kind() {
        Kind::RevisionMismatch { current } => {
            let current = if current.is_empty() { "left out" } else { current };
            format!(
                "the file has changed since: look at it again, then call edit_file with expected_revision {current}"
            )
        }
        Kind::EditNoMatch { nearest_line, cause, .. } => {
            let mut parts = Vec::new();
            if let Some(line) = nearest_line {
                let text = written(&detail("nearest_text").unwrap_or_default());
                parts.push(format!("the nearest place is line {line}, which reads {text}"));
            }
            if let Some(line) = detail("diverges_at_line") {
                parts.push(format!("it diverges at line {line}"));
            }
            if let Some(cause) = cause {
                parts.push(format!("the cause is {cause}"));
            }
            parts.push(format!(
                "nothing was changed; mend old_text and call edit_file with expected_revision {revision}"
            ));
            parts.join("; ")
        }
        Kind::EditNotUnique { lines, .. } => {
            let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
            let places = if lines.is_empty() { String::new() } else { format!(" (lines {})", lines.join(", ")) };
            format!(
                "nothing was changed; add lines around old_text until it occurs once{places}, or set replace_all, and \
                 call edit_file with expected_revision {revision}"
            )
        }
        Kind::HostFeatureUnavailable { .. } | Kind::WorkspaceNotRunning { .. } => return None,
        _ if error.retryable() => "nothing is known to be changed; call edit_file again".to_owned(),
        _ => return None,
    })
}
