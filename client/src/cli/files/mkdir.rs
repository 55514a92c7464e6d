//! `dormouse files mkdir`

use std::ffi::OsString;

use dormouse_client::proto::files::v1::MakeDirectoryRequest;
use serde_json::Value;

use super::mode;
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::{self, Object},
    target,
};

/// Make a directory
///
/// Makes a directory; with -p those on the way to it too.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files mkdir [OPTIONS] WORKSPACE PATH\n       dormouse files mkdir [OPTIONS] WORKSPACE:/PATH",
    after_help = "Example:\n  dormouse files mkdir -p customer-42/main /home/user/project/src"
)]
pub struct Args {
    /// The workspace and the directory to make in it
    #[arg(required = true, value_name = "WORKSPACE PATH")]
    words: Vec<OsString>,
    /// Make missing directories on the way too
    #[arg(long, short = 'p')]
    parents: bool,
    /// Permission bits [default: 0755]
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    mode: Option<u32>,
    /// The same key for a repetition of the same call [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (target, _) = target::take(args.words, &[], 0)?;
    let request = MakeDirectoryRequest {
        workspace: target.workspace,
        path: target.path.text,
        raw_path: target.path.raw,
        mode: args.mode,
        create_parents: args.parents,
        idempotency_key: args.idempotency_key.unwrap_or_default(),
    };
    let answer = context.files.make_directory(request).await?;
    if context.json() {
        let object = Object::default()
            .with_some("file", answer.file.as_ref().map(json::file))
            .with("durable", answer.durable)
            .with("replayed", answer.replayed);
        context.out.object(&Value::from(object))?;
    }
    Ok(Exit::Done)
}
