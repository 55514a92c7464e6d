//! `dormouse workspaces list`

use clap::ValueEnum;
use dormouse_client::proto::host::v1::{ListWorkspacesRequest, WorkspaceState};
use serde_json::json;

use super::line;
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json,
    out::Format,
};

/// List the workspaces of the host, by name
///
/// Prints name, state, generation and what is known of the disk, divided by tabs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dormouse workspaces list\n  dormouse workspaces list --state suspended --json")]
pub struct Args {
    /// Only workspaces in this state; may be given more than once
    #[arg(long, value_name = "STATE")]
    state: Vec<State>,
}

/// The states of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    Running,
    Quiescing,
    Parked,
    Suspended,
    Resuming,
    Quarantined,
}

impl From<State> for i32 {
    fn from(state: State) -> Self {
        match state {
            State::Running => WorkspaceState::Running.into(),
            State::Quiescing => WorkspaceState::Quiescing.into(),
            State::Parked => WorkspaceState::Parked.into(),
            State::Suspended => WorkspaceState::Suspended.into(),
            State::Resuming => WorkspaceState::Resuming.into(),
            State::Quarantined => WorkspaceState::Quarantined.into(),
        }
    }
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let states: Vec<i32> = args.state.into_iter().map(Into::into).collect();
    let mut page_token = String::new();
    let mut all = Vec::new();
    loop {
        let request = ListWorkspacesRequest { page_size: 0, page_token: page_token.clone(), states: states.clone() };
        let page = context.host.list_workspaces(request).await?;
        for workspace in &page.workspaces {
            match context.format {
                Format::Json => all.push(json::workspace(workspace)),
                Format::JsonLines => context.out.object(&json::workspace(workspace))?,
                Format::Text => context.out.bytes(line(workspace).as_bytes())?,
            }
        }
        // A token that does not move would list for ever.
        if page.next_page_token.is_empty() || page.next_page_token == page_token {
            break;
        }
        page_token = page.next_page_token;
    }
    if context.format == Format::Json {
        context.out.object(&json!({ "workspaces": all }))?;
    }
    Ok(Exit::Done)
}
