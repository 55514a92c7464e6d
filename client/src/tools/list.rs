//! `list_files`: whole entries up to the bound, the rest counted in `omitted_entries`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Session, explain::Refusal, fitting, json as written, stat::entry};
use crate::{
    FilesClient,
    proto::files::v1::ListRequest,
    words::{served_from, stop_reason},
};

/// More entries than any bound of an answer that a model can use.
const ENTRIES_MAX: i32 = 10_000;

/// What the model asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFiles {
    path: String,
    depth: Option<i32>,
    #[serde(default)]
    include: Vec<String>,
}

pub(super) async fn run(asked: ListFiles, client: &FilesClient, session: &Session) -> Result<String, Refusal> {
    let request = ListRequest {
        workspace: session.workspace.clone(),
        path: asked.path,
        depth: asked.depth,
        include: asked.include,
        max_entries: Some(ENTRIES_MAX),
        ..ListRequest::default()
    };
    let collected = async { client.list(request).await?.collect().await };
    let (entries, end, origin) = collected.await.map_err(|error| Refusal::from_error(&error, session))?;
    let answer = |shown: Vec<Value>, omitted: usize| {
        let mut answer = json!({
            "entries": shown,
            "truncated": end.truncated,
            "stop_reason": stop_reason(end.stop_reason()),
            "served_from": served_from(&origin),
            "omitted_entries": omitted,
        });
        if omitted > 0 {
            answer["hint"] = "list a directory further down, a smaller depth, or with include".into();
        }
        answer
    };
    let room = session.output_bytes.saturating_sub(written(&answer(Vec::new(), usize::MAX)).len());
    let (shown, omitted) = fitting(&entries, room, |file| entry(file).into());
    Ok(written(&answer(shown, omitted)))
}
