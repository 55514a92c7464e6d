//! `dormouse workspaces watch`

use dormouse_client::proto::host::v1::WatchWorkspacesResponse;
use serde_json::Value;

use super::line;
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::{self, Object},
};

/// Follow the states of all workspaces, until interrupted
///
/// Prints the state of every workspace now, then each change. A connection that is lost is opened again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse workspaces watch\n  dormouse workspaces watch --jsonl | jq -c '[.name, .state]'"
)]
pub struct Args {}

pub async fn run(_: Args, context: &mut Context) -> Result<Exit, Failure> {
    let mut watch = context.host.watch_workspaces().await?;
    loop {
        let change = watch.next().await?;
        if context.json() {
            context.out.object(&object(&change))?;
        } else if let Some(line) = text(&change) {
            context.out.bytes(line.as_bytes())?;
        }
        // A change is news only while it is fresh.
        context.out.flush()?;
    }
}

fn object(change: &WatchWorkspacesResponse) -> Value {
    let fields = match change.workspace.as_ref().map(json::workspace) {
        Some(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let Value::Object(marks) = Object::default().with("released", change.released).with("synced", change.synced).into()
    else {
        return Value::Null;
    };
    Value::Object(fields.into_iter().chain(marks).collect())
}

fn text(change: &WatchWorkspacesResponse) -> Option<String> {
    let workspace = change.workspace.as_ref()?;
    Some(if change.released { format!("{}\treleased\n", workspace.name) } else { line(workspace) })
}

#[cfg(test)]
mod tests {
    use dormouse_client::proto::host::v1::Workspace;

    use super::*;

    #[test]
    fn changes_are_lines_and_marks_are_silent() {
        let workspace = Some(Workspace { name: "w".into(), state: 1, ..Default::default() });
        let change = WatchWorkspacesResponse { workspace: workspace.clone(), ..Default::default() };
        assert_eq!(text(&change).as_deref(), Some("w\trunning\t0\t-\n"));
        let gone = WatchWorkspacesResponse { workspace, released: true, ..Default::default() };
        assert_eq!(text(&gone).as_deref(), Some("w\treleased\n"));
        let mark = WatchWorkspacesResponse { synced: true, ..Default::default() };
        assert_eq!(text(&mark), None);
        assert_eq!(object(&mark)["synced"], true);
        assert_eq!(object(&gone)["name"], "w");
    }
}
