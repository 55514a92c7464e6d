//! `stat_file`: what is at a path.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Session, explain::Refusal, json as written};
use crate::{
    FilesClient,
    proto::files::v1::{FileInfo, FileType, StatRequest},
    words::{self, served_from},
};

/// What the model asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatFile {
    path: String,
}

pub(super) async fn run(asked: StatFile, client: &FilesClient, session: &Session) -> Result<String, Refusal> {
    let request = StatRequest {
        workspace: session.workspace.clone(),
        path: asked.path,
        include_revision: true,
        ..StatRequest::default()
    };
    let answer = client.stat(request).await.map_err(|error| Refusal::from_error(&error, session))?;
    let file = answer.file.unwrap_or_default();
    let mut shown = entry(&file);
    shown.insert("mode".into(), format!("{:04o}", file.mode).into());
    shown.insert("uid".into(), file.uid.into());
    shown.insert("gid".into(), file.gid.into());
    if let Some(time) = &file.modify_time {
        shown.insert("modify_time".into(), time.to_string().into());
    }
    if let Some(revision) = file.revision {
        shown.insert("revision".into(), revision.into());
    }
    shown.insert("served_from".into(), served_from(&answer.origin.unwrap_or_default()).into());
    Ok(written(&shown))
}

/// What every listing says of a file.
pub(super) fn entry(file: &FileInfo) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("path".into(), file.path.clone().into());
    entry.insert("type".into(), words::file_type(file.r#type()).into());
    if file.r#type() == FileType::Regular {
        entry.insert("size_bytes".into(), file.size_bytes.into());
    }
    if !file.symlink_target.is_empty() {
        entry.insert("symlink_target".into(), file.symlink_target.clone().into());
    }
    entry
}
