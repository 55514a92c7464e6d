//! `dormouse files rm`

use std::ffi::OsString;

use dormouse_client::proto::files::v1::RemoveRequest;
use serde_json::Value;

use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::Object,
    target,
};

/// Remove a file or directory
///
/// A file or an empty directory; with -r a whole directory.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files rm [OPTIONS] WORKSPACE PATH\n       dormouse files rm [OPTIONS] WORKSPACE:/PATH",
    after_help = "Examples:\n  \
        dormouse files rm customer-42/main /home/user/old.txt\n  \
        dormouse files rm -r customer-42/main:/home/user/build"
)]
pub struct Args {
    /// The workspace and a file or directory in it
    #[arg(required = true, value_name = "WORKSPACE PATH")]
    words: Vec<OsString>,
    /// Remove a directory and all in it
    #[arg(long, short)]
    recursive: bool,
    /// Refuse unless the file has this revision
    #[arg(long, value_name = "REVISION")]
    expected_revision: Option<String>,
    /// The same key for a repetition of the same removal [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (target, _) = target::take(args.words, &[], 0)?;
    let request = RemoveRequest {
        workspace: target.workspace,
        path: target.path.text,
        raw_path: target.path.raw,
        expected_revision: args.expected_revision,
        recursive: args.recursive,
        idempotency_key: args.idempotency_key.unwrap_or_default(),
    };
    let answer = context.files.remove(request).await?;
    if context.json() {
        let object = Object::default()
            .with_some("previous_revision", answer.previous_revision)
            .with("durable", answer.durable)
            .with("replayed", answer.replayed);
        context.out.object(&Value::from(object))?;
    }
    Ok(Exit::Done)
}
