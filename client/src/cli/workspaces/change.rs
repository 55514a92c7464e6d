//! `dormouse workspaces get|release|suspend|resume`: a name, and for a transition its generation.

use dormouse_client::proto::host::v1::{
    GetWorkspaceRequest, ReleaseWorkspaceRequest, ResumeWorkspaceRequest, SuspendWorkspaceRequest,
};
use serde_json::json;

use super::print;
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
};

/// Show one workspace: its state, generation and seal
///
/// Prints name, state, generation and what is known of the disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dormouse workspaces get customer-42/main --json | jq -r .state")]
pub struct GetArgs {
    /// Such as customer-42/main
    workspace: String,
}

/// Forget a workspace; its files are left alone
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dormouse workspaces release customer-42/main")]
pub struct ReleaseArgs {
    /// Such as customer-42/main
    workspace: String,
    /// Of this call, from the control plane; 0: the current one plus one
    #[arg(long, value_name = "N", default_value_t = 0)]
    at: i64,
}

/// Suspend a workspace; from then on reads come from its disk
///
/// For a host with no control plane above it: quiesce, pause and seal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dormouse workspaces suspend customer-42/main")]
pub struct SuspendArgs {
    /// Such as customer-42/main
    workspace: String,
    /// The machine stays in memory
    #[arg(long)]
    parked: bool,
    /// Of this call, from the control plane; 0: the current one plus one
    #[arg(long, value_name = "N", default_value_t = 0)]
    at: i64,
}

/// Resume a workspace
///
/// For a host with no control plane above it: unseal, resume and open.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dormouse workspaces resume customer-42/main")]
pub struct ResumeArgs {
    /// Such as customer-42/main
    workspace: String,
    /// Of this call, from the control plane; 0: the current one plus one
    #[arg(long, value_name = "N", default_value_t = 0)]
    at: i64,
}

pub async fn get(args: GetArgs, context: &mut Context) -> Result<Exit, Failure> {
    let answer = context.host.get_workspace(GetWorkspaceRequest { name: args.workspace }).await?;
    print(context, answer.workspace)
}

pub async fn release(args: ReleaseArgs, context: &mut Context) -> Result<Exit, Failure> {
    let request = ReleaseWorkspaceRequest { name: args.workspace.clone(), generation: args.at };
    context.host.release_workspace(request).await?;
    if context.json() {
        context.out.object(&json!({ "name": args.workspace, "released": true }))?;
    }
    Ok(Exit::Done)
}

pub async fn suspend(args: SuspendArgs, context: &mut Context) -> Result<Exit, Failure> {
    let request = SuspendWorkspaceRequest { name: args.workspace, generation: args.at, parked: args.parked };
    let answer = context.host.suspend_workspace(request).await?;
    print(context, answer.workspace)
}

pub async fn resume(args: ResumeArgs, context: &mut Context) -> Result<Exit, Failure> {
    let request = ResumeWorkspaceRequest { name: args.workspace, generation: args.at };
    let answer = context.host.resume_workspace(request).await?;
    print(context, answer.workspace)
}
