//! `dormouse files write`

use std::{ffi::OsString, path::Path};

use dormouse_client::{
    WriteSource,
    proto::files::v1::{WriteResponse, WriteStart},
};

use super::{mode, print_revision};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    input::standard_input,
    json::{self, Object},
    target,
};

/// Write a file of any size
///
/// Nothing is visible under the path before all of it is durable. Prints the new revision.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files write [OPTIONS] WORKSPACE PATH [FILE]\n       \
        dormouse files write [OPTIONS] WORKSPACE:/PATH [FILE]",
    after_help = "Examples:\n  \
        dormouse files write customer-42/main /home/user/data.bin data.bin\n  \
        tar c src | dormouse files write customer-42/main:/home/user/src.tar --create-parents"
)]
pub struct Args {
    /// The workspace, a file in it, and the file of this machine to send; without it, or as -, standard input
    #[arg(required = true, value_name = "WORKSPACE PATH FILE")]
    words: Vec<OsString>,
    /// Refuse unless the file has this revision; "absent": unless there is no file
    #[arg(long, value_name = "REVISION")]
    expected_revision: Option<String>,
    /// Permission bits of a new file [default: 0644]
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    mode: Option<u32>,
    /// Make missing directories on the way to a new file
    #[arg(long)]
    create_parents: bool,
    /// The same key for a repetition of the same write [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (target, rest) = target::take(args.words, &["FILE"], 1)?;
    let start = WriteStart {
        workspace: target.workspace,
        path: target.path.text,
        raw_path: target.path.raw,
        expected_revision: args.expected_revision,
        mode: args.mode,
        create_parents: args.create_parents,
        idempotency_key: args.idempotency_key.unwrap_or_default(),
        content_revision: None,
    };
    let (source, total) = match rest.into_iter().next() {
        Some(name) if name != "-" => open(&name).await?,
        _ => (WriteSource::reader(standard_input("FILE")?), None),
    };
    let mut progress = context.progress(total);
    let source = source.with_progress(move |sent| progress.reach(sent));
    let answer = context.files.write(start, source).await?;
    print_revision(context, &answer.revision, object(&answer))?;
    Ok(Exit::Done)
}

/// What is to be sent, and its size where that is known. A regular file can be sent again from its start; a pipe or a device only while its bytes are remembered.
async fn open(name: &OsString) -> Result<(WriteSource, Option<u64>), Failure> {
    let named = |error| Failure::File(name.to_string_lossy().into_owned(), error);
    let file = tokio::fs::File::open(Path::new(name)).await.map_err(named)?;
    let known = file.metadata().await.map_err(named)?;
    if known.is_dir() {
        return Err(named(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }
    Ok(if known.is_file() { (WriteSource::file(file), Some(known.len())) } else { (WriteSource::reader(file), None) })
}

fn object(answer: &WriteResponse) -> Object {
    Object::default()
        .with("revision", &*answer.revision)
        .with_some("previous_revision", answer.previous_revision.as_deref())
        .with("bytes_written", answer.bytes_written)
        .with("durable", answer.durable)
        .with("replayed", answer.replayed)
        .with_some("file", answer.file.as_ref().map(json::file))
}
