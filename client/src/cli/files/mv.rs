//! `dormouse files mv`

use std::ffi::OsString;

use dormouse_client::proto::files::v1::MoveRequest;
use serde_json::Value;

use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::{self, Object},
    target,
};

/// Rename a file or directory within its workspace
///
/// Renames within the workspace; the new path is the whole path, never a directory to put it in.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files mv [OPTIONS] WORKSPACE PATH NEW_PATH\n       \
        dormouse files mv [OPTIONS] WORKSPACE:/PATH /NEW_PATH",
    after_help = "Examples:\n  \
        dormouse files mv customer-42/main /home/user/a.txt /home/user/b.txt\n  \
        dormouse files mv customer-42/main:/home/user/a.txt /home/user/b.txt --replace"
)]
pub struct Args {
    /// The workspace, a file or directory in it, and its new path
    #[arg(required = true, value_name = "WORKSPACE PATH NEW_PATH")]
    words: Vec<OsString>,
    /// Replace a file that is already there
    #[arg(long)]
    replace: bool,
    /// Refuse unless the file has this revision
    #[arg(long, value_name = "REVISION")]
    expected_revision: Option<String>,
    /// Make missing directories on the way to the new path
    #[arg(long)]
    create_parents: bool,
    /// The same key for a repetition of the same move [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (target, rest) = target::take(args.words, &["NEW_PATH"], 0)?;
    let new_path = rest.into_iter().next().unwrap_or_default();
    let new_path = target::WirePath::within(&new_path, &target.workspace)?;
    let request = MoveRequest {
        workspace: target.workspace,
        path: target.path.text,
        raw_path: target.path.raw,
        new_path: new_path.text,
        raw_new_path: new_path.raw,
        replace: args.replace,
        expected_revision: args.expected_revision,
        create_parents: args.create_parents,
        idempotency_key: args.idempotency_key.unwrap_or_default(),
    };
    let answer = context.files.rename(request).await?;
    if context.json() {
        let object = Object::default()
            .with_some("file", answer.file.as_ref().map(json::file))
            .with("durable", answer.durable)
            .with("replayed", answer.replayed);
        context.out.object(&Value::from(object))?;
    }
    Ok(Exit::Done)
}
