//! `dormouse files capabilities`

use dormouse_client::proto::files::v1::GetCapabilitiesRequest;

use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json,
};

/// Show what the host, or one workspace on it, can do
///
/// Prints a feature a line. A host too old to say has none of them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse files capabilities\n  dormouse files capabilities customer-42/main --json"
)]
pub struct Args {
    /// Of this workspace, whose own agent may be older than the host
    workspace: Option<String>,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let request = GetCapabilitiesRequest { workspace: args.workspace.unwrap_or_default() };
    let answer = context.files.capabilities(request).await?;
    if context.json() {
        context.out.object(&json::capabilities(&answer))?;
        return Ok(Exit::Done);
    }
    for feature in answer.features() {
        context.out.bytes(format!("{}\n", feature.wire_name()).as_bytes())?;
    }
    Ok(Exit::Done)
}
