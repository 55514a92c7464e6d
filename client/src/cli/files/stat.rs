//! `dormouse files stat`

use std::ffi::OsString;

use dormouse_client::proto::files::v1::StatRequest;

use super::{Source, style};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::Object,
    target, text,
};

/// Show the metadata of a file or directory
///
/// A symbolic link is described, not followed.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files stat [OPTIONS] WORKSPACE PATH\n       dormouse files stat [OPTIONS] WORKSPACE:/PATH",
    after_help = "Examples:\n  \
        dormouse files stat customer-42/main /home/user/project/app.py\n  \
        dormouse files stat customer-42/main /home/user/project/app.py --revision --json | jq -r .revision"
)]
pub struct Args {
    /// The workspace and a file or directory in it
    #[arg(required = true, value_name = "WORKSPACE PATH")]
    words: Vec<OsString>,
    /// Also give the content's revision (SHA-256)
    #[arg(long)]
    revision: bool,
    /// What may answer
    #[arg(long, value_name = "FROM", default_value = "any")]
    source: Source,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (target, _) = target::take(args.words, &[], 0)?;
    let request = StatRequest {
        workspace: target.workspace,
        path: target.path.text,
        raw_path: target.path.raw,
        include_revision: args.revision,
        source: args.source.into(),
    };
    let answer = context.files.stat(request).await?;
    let (file, origin) = (answer.file.unwrap_or_default(), answer.origin.unwrap_or_default());
    if context.json() {
        let object = Object::default().with_file(&file).with_origin(&origin);
        context.out.object(&serde_json::Value::from(object))?;
        return Ok(Exit::Done);
    }
    let mut lines = Vec::new();
    text::stat(&file, style(context), &mut lines);
    context.out.bytes(&lines)?;
    context.out.flush()?;
    context.note_origin(&origin);
    if args.revision && file.revision.is_none() {
        context.note("no revision: not a regular file, or the host cannot give one");
    }
    Ok(Exit::Done)
}
