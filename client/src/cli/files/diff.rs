//! `dormouse files diff`

use std::{ffi::OsString, time::Duration};

use dormouse_client::proto::files::v1::ReadRequest;
use serde_json::json;
use similar::{Algorithm, TextDiff};

use super::{Source, style};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    input::load,
    target,
    text::diff_line,
};

/// Of each side; larger files are compared elsewhere.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// After this the differences that were found are given as they are: still true, only less small.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Compare a file of a workspace with one of this machine
///
/// Prints a unified diff of what would change if FILE replaced the workspace's file. The exit code is 1 when they differ.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files diff [OPTIONS] WORKSPACE PATH [FILE]\n       \
        dormouse files diff [OPTIONS] WORKSPACE:/PATH [FILE]",
    after_help = "Examples:\n  \
        dormouse files diff customer-42/main /home/user/project/app.py app.py\n  \
        dormouse files read w:/etc/hosts | sed s/a/b/ | dormouse files diff w:/etc/hosts"
)]
pub struct Args {
    /// The workspace, a file in it, and the file of this machine; without it, or as -, standard input
    #[arg(required = true, value_name = "WORKSPACE PATH FILE")]
    words: Vec<OsString>,
    /// Lines of context around a change
    #[arg(long, short = 'U', value_name = "N", default_value_t = 3)]
    context: usize,
    /// What may answer
    #[arg(long, value_name = "FROM", default_value = "any")]
    source: Source,
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (target, rest) = target::take(args.words, &["FILE"], 1)?;
    let name = rest.into_iter().next().unwrap_or_else(|| "-".into());
    let new = load("FILE", &name, BYTES_MAX as u64 + 1).await?;
    if new.len() > BYTES_MAX {
        let fact = format!("{} has more than {BYTES_MAX} bytes, too many to compare here", name.to_string_lossy());
        return Err(Failure::Usage(fact));
    }
    let request = ReadRequest {
        workspace: target.workspace.clone(),
        path: target.path.text,
        raw_path: target.path.raw,
        source: args.source.into(),
        ..ReadRequest::default()
    };
    let (header, old, _) = context.files.read(request).await?.collect(BYTES_MAX).await?;
    let old_name = format!("{}:{}", target.workspace, header.file.path);
    let new_name = name.to_string_lossy();
    let diff = compare(&old, &new, &old_name, &new_name, args.context);
    if context.json() {
        context.out.object(&json!({ "differ": old != new, "diff": diff }))?;
    } else {
        let mut lines = Vec::new();
        for line in diff.split_terminator('\n') {
            diff_line(line, style(context), &mut lines);
            lines.push(b'\n');
        }
        context.out.bytes(&lines)?;
        context.out.flush()?;
        context.note_origin(&header.origin);
    }
    Ok(if old == new { Exit::Done } else { Exit::NothingFound })
}

/// The unified diff; empty for the same bytes, and one sentence, as diff(1) says it, where a side is no text.
fn compare(old: &[u8], new: &[u8], old_name: &str, new_name: &str, context_lines: usize) -> String {
    if old == new {
        return String::new();
    }
    let (Some(old), Some(new)) = (text(old), text(new)) else {
        return format!("Binary files {old_name} and {new_name} differ\n");
    };
    let mut config = TextDiff::configure();
    let diff = config.algorithm(Algorithm::Myers).timeout(TIME_MAX).diff_lines(old, new);
    diff.unified_diff().context_radius(context_lines).header(old_name, new_name).to_string()
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: &[u8], new: &[u8], expect: &str) {
        assert_eq!(compare(old, new, "w:/a", "b", 1), expect);
    }

    #[test]
    fn differences_are_a_unified_diff() {
        check(b"a\n", b"a\n", "");
        check(b"1\n2\n3\n4\n5\n", b"1\n2\nthree\n4\n5\n", "--- w:/a\n+++ b\n@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n");
        check(b"", b"x\n", "--- w:/a\n+++ b\n@@ -0,0 +1 @@\n+x\n");
        check(b"x\n", b"x", "--- w:/a\n+++ b\n@@ -1 +1 @@\n-x\n+x\n\\ No newline at end of file\n");
        check(b"x\0", b"x", "Binary files w:/a and b differ\n");
        check(b"x", b"\xff", "Binary files w:/a and b differ\n");
    }
}
