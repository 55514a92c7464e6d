//! `dormouse host`

use std::time::Duration;

use clap::ValueEnum;
use dormouse_client::proto::host::v1::{DrainHostRequest, GetHostRequest, UndrainHostRequest};
use serde_json::json;

use super::{
    context::Context,
    fail::{Exit, Failure},
    json,
};

/// Shows the host, or drains it before its agent is stopped.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse host\n  dormouse host drain --drain-timeout 20s\n  dormouse host undrain"
)]
pub struct Args {
    /// What to do
    #[arg(value_enum, default_value = "get")]
    action: Action,
    /// How long the host waits for its last calls [default: the host's own]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    drain_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Show it
    Get,
    /// Take no new calls of FilesService, and wait for the last ones
    Drain,
    /// Take calls again
    Undrain,
}

pub async fn run(args: Args, mut context: Context) -> Result<Exit, Failure> {
    match args.action {
        Action::Get => {
            let host = context.host.get_host(GetHostRequest {}).await?;
            let start = host.start_time.as_ref().map(json::time);
            if context.json() {
                context.out.object(&json!({
                    "host": host.host,
                    "server_version": host.server_version,
                    "draining": host.draining,
                    "workspace_count": host.workspace_count,
                    "start_time": start,
                }))?;
            } else {
                let lines = format!(
                    "host: {}\nversion: {}\ndraining: {}\nworkspaces: {}\nstarted: {}\n",
                    host.host,
                    host.server_version,
                    if host.draining { "yes" } else { "no" },
                    host.workspace_count,
                    start.unwrap_or_else(|| "unknown".to_owned()),
                );
                context.out.bytes(lines.as_bytes())?;
            }
        }
        Action::Drain => {
            let timeout = args.drain_timeout.map(|timeout| prost_types::Duration {
                seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                nanos: timeout.subsec_nanos() as i32,
            });
            let answer = context.host.drain_host(DrainHostRequest { timeout }).await?;
            if context.json() {
                context.out.object(&json!({ "calls_left": answer.calls_left }))?;
            } else if answer.calls_left > 0 {
                context.note(&format!("calls that have not ended: {}", answer.calls_left));
            }
        }
        Action::Undrain => {
            context.host.undrain_host(UndrainHostRequest {}).await?;
            if context.json() {
                context.out.object(&json!({}))?;
            }
        }
    }
    context.out.flush()?;
    Ok(Exit::Done)
}
