//! `dormouse files read`

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use dormouse_client::{
    ReadStream,
    proto::files::v1::{ByteRange, LineRange, ReadRequest, read_request::Range},
};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::Source;
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::{self, Object, base64},
    progress::Progress,
    target,
};

/// What `--json` without `-o` puts into its object; a larger file is for `-o`.
const JSON_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Print a file, or a part of it
///
/// Follows symbolic links, never out of the workspace.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files read [OPTIONS] WORKSPACE PATH\n       dormouse files read [OPTIONS] WORKSPACE:/PATH",
    after_help = "Examples:\n  \
        dormouse files read customer-42/main /home/user/project/app.py\n  \
        dormouse files read customer-42/main:/home/user/project/app.py --lines 10:40\n  \
        dormouse files read customer-42/main:/var/log/app.log --offset -4096\n  \
        dormouse files read customer-42/main:/home/user/data.bin -o data.bin"
)]
pub struct Args {
    /// The workspace and a file in it
    #[arg(required = true, value_name = "WORKSPACE PATH")]
    words: Vec<OsString>,
    /// Write to this file; it appears, or is replaced, only when all has arrived
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Begin at this byte; negative: counted from the end
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    offset: Option<i64>,
    /// At most this many bytes
    #[arg(long, value_name = "BYTES")]
    length: Option<i64>,
    /// Only lines A to B, both included and counted from 1; either may be left out
    #[arg(long, value_name = "A:B", value_parser = lines, conflicts_with_all = ["offset", "length"])]
    lines: Option<LineRange>,
    /// Also give the whole file's revision, as a note, or in the object of --json
    #[arg(long)]
    revision: bool,
    /// Refuse unless the file has this revision
    #[arg(long, value_name = "REVISION")]
    expected_revision: Option<String>,
    /// What may answer
    #[arg(long, value_name = "FROM", default_value = "any")]
    source: Source,
}

impl Args {
    fn request(self) -> Result<ReadRequest, Failure> {
        let (target, _) = target::take(self.words, &[], 0)?;
        let range = match (self.lines, self.offset, self.length) {
            (Some(lines), _, _) => Some(Range::LineRange(lines)),
            (None, None, None) => None,
            (None, _, Some(0)) => {
                return Err(Failure::Usage("--length 0 reads nothing; leave it out to read to the end".into()));
            }
            (None, offset, length) => {
                Some(Range::ByteRange(ByteRange { offset: offset.unwrap_or(0), length: length.unwrap_or(0) }))
            }
        };
        Ok(ReadRequest {
            workspace: target.workspace,
            path: target.path.text,
            raw_path: target.path.raw,
            range,
            expected_revision: self.expected_revision,
            include_revision: self.revision,
            source: self.source.into(),
            expected_etag: None,
        })
    }
}

pub async fn run(mut args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let output = args.output.take();
    let asked = args.revision;
    let request = args.request()?;
    let whole = request.range.is_none();
    let mut read = context.files.read(request).await?;
    let content = match &output {
        Some(path) => {
            // The size of the whole file says nothing of a part of it.
            let total = if whole { u64::try_from(read.header().file.size_bytes).ok() } else { None };
            to_file(&mut read, path, context.progress(total)).await?;
            None
        }
        None if context.json() => Some(to_memory(&mut read).await?),
        None => {
            while let Some(piece) = read.next().await? {
                context.out.bytes(&piece)?;
            }
            context.out.flush()?;
            None
        }
    };
    let header = read.header();
    let end = read.end().cloned().unwrap_or_default();
    if context.json() {
        let mut object = Object::default()
            .with("file", json::file(&header.file))
            .with_origin(&header.origin)
            .with("offset", header.offset)
            .with("bytes_sent", end.bytes_sent)
            .with_some("revision", end.revision.as_deref())
            .with_some("line_count", end.line_count)
            .with("changed", end.changed);
        if let Some(content) = content {
            object = match String::from_utf8(content) {
                Ok(text) => object.with("content", text),
                Err(bytes) => object.with("raw_content", base64(bytes.as_bytes())),
            };
        }
        context.out.object(&Value::from(object))?;
        return Ok(Exit::Done);
    }
    context.note_origin(&header.origin);
    match &end.revision {
        Some(revision) if asked => context.note(&format!("revision {revision}")),
        None if asked => context.note("no revision: the host cannot give one"),
        _ => {}
    }
    if end.changed {
        context.note("the file changed while it was read: the bytes may be a mixture");
    }
    Ok(Exit::Done)
}

async fn to_memory(read: &mut ReadStream) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    while let Some(piece) = read.next().await? {
        if content.len() + piece.len() > JSON_BYTES_MAX {
            let fact =
                format!("the content has more than {JSON_BYTES_MAX} bytes, too many for one JSON object; use -o FILE");
            return Err(Failure::Usage(fact));
        }
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

/// Writes beside the target and renames, so that nothing partial is ever seen under its name; what cannot be renamed over
/// (a device, a pipe) is written directly.
async fn to_file(read: &mut ReadStream, path: &Path, progress: Progress) -> Result<(), Failure> {
    let named = |error: io::Error| Failure::File(path.display().to_string(), error);
    // A link stays a link: its target is replaced.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&place) {
        Ok(known) if known.is_dir() => Err(named(io::Error::from(io::ErrorKind::IsADirectory))),
        Ok(known) if !known.is_file() => {
            let mut file = OpenOptions::new().write(true).open(&place).map_err(named)?;
            pieces(read, &mut file, progress, &named).await
        }
        Ok(known) => replace(read, &place, known.permissions(), progress, &named).await,
        // What the umask leaves of it, as for any new file.
        Err(_) => replace(read, &place, Permissions::from_mode(0o666), progress, &named).await,
    }
}

async fn replace(
    read: &mut ReadStream,
    place: &Path,
    permissions: Permissions,
    progress: Progress,
    named: &impl Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    let directory = match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary: NamedTempFile =
        tempfile::Builder::new().prefix(".dormouse-").permissions(permissions).tempfile_in(directory).map_err(named)?;
    pieces(read, temporary.as_file_mut(), progress, named).await?;
    temporary.persist(place).map_err(|error| named(error.error))?;
    Ok(())
}

async fn pieces(
    read: &mut ReadStream,
    file: &mut File,
    mut progress: Progress,
    named: &impl Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    while let Some(piece) = read.next().await? {
        file.write_all(&piece).map_err(named)?;
        progress.advance(piece.len());
    }
    Ok(())
}

/// `A:B`, `A:`, `:B`, or one line as `A`.
fn lines(text: &str) -> Result<LineRange, String> {
    let number = |part: &str| match part {
        "" => Ok(0),
        _ => part.parse::<i64>().ok().filter(|n| *n > 0).ok_or("expected A:B with lines counted from 1, such as 10:40"),
    };
    let (start, end) = match text.split_once(':') {
        Some((start, end)) => (number(start)?, number(end)?),
        None => (number(text)?, number(text)?),
    };
    if text.is_empty() || text == ":" || (end != 0 && end < start) {
        return Err("expected A:B with A not after B, such as 10:40".to_owned());
    }
    Ok(LineRange { start, end })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(words: &[&str], expect: ReadRequest) {
        let line = Line::try_parse_from(["read", "w:/p"].iter().chain(words)).unwrap();
        let expect = ReadRequest { workspace: "w".into(), path: "/p".into(), ..expect };
        assert_eq!(line.args.request().unwrap(), expect, "{words:?}");
    }

    fn bytes(offset: i64, length: i64) -> ReadRequest {
        ReadRequest { range: Some(Range::ByteRange(ByteRange { offset, length })), ..Default::default() }
    }

    #[test]
    fn each_flag_maps_to_its_field() {
        check(&[], ReadRequest::default());
        check(&["--offset", "5"], bytes(5, 0));
        check(&["--offset", "-5"], bytes(-5, 0));
        check(&["--length", "5"], bytes(0, 5));
        check(&["--offset=7", "--length=5"], bytes(7, 5));
        let range = Some(Range::LineRange(LineRange { start: 10, end: 40 }));
        check(&["--lines", "10:40"], ReadRequest { range, ..Default::default() });
        check(&["--revision"], ReadRequest { include_revision: true, ..Default::default() });
        check(&["--expected-revision", "r"], ReadRequest { expected_revision: Some("r".into()), ..Default::default() });
        assert!(Line::try_parse_from(["read", "w:/p", "--lines", "1:2", "--offset", "1"]).is_err());
    }

    #[test]
    fn line_ranges_are_read() {
        let range = |start, end| Ok(LineRange { start, end });
        assert_eq!(lines("10:40"), range(10, 40));
        assert_eq!(lines("10:"), range(10, 0));
        assert_eq!(lines(":40"), range(0, 40));
        assert_eq!(lines("7"), range(7, 7));
        for wrong in ["", ":", "0:3", "a", "4:3", "-1:2", "1:2:3"] {
            assert!(lines(wrong).is_err(), "{wrong}");
        }
    }
}
