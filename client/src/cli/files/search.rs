//! `dormouse files search`

use std::ffi::OsString;

use dormouse_client::{
    proto::files::v1::{Match, SearchEnd, SearchRequest},
    words,
};
use serde_json::Value;

use super::{Source, exclusions, style};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::{self, Object},
    out::Format,
    target,
    text::SearchPrinter,
};

/// Find lines that match a text or a regular expression
///
/// Searches contents, not names. Prints `path:line:column: text`, one line for each line that matches, in path order.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files search [OPTIONS] WORKSPACE PATH PATTERN\n       \
        dormouse files search [OPTIONS] WORKSPACE:/PATH PATTERN",
    after_help = "Examples:\n  \
        dormouse files search customer-42/main /home/user/project TODO --include '*.py'\n  \
        dormouse files search customer-42/main /home/user/project 'def \\w+_test' --regex -i --json\n  \
        dormouse files search customer-42/main:/srv 'a -- b' -C 2 --no-default-exclude\n\n\
        The exit code is 1 when nothing was found."
)]
pub struct Args {
    /// The workspace, a directory or file in it, and what to look for: literal text, or with --regex an RE2 expression
    #[arg(required = true, value_name = "WORKSPACE PATH PATTERN")]
    words: Vec<OsString>,
    /// PATTERN is an RE2 regular expression
    #[arg(long)]
    regex: bool,
    /// Ignore case
    #[arg(long, short)]
    ignore_case: bool,
    /// Search only files that this gitignore-style glob matches, relative to PATH; may be given up to 32 times
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    include: Vec<String>,
    /// Skip what this glob matches, instead of .git and node_modules; may be given up to 32 times
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    exclude: Vec<String>,
    /// Do not skip .git and node_modules
    #[arg(long)]
    no_default_exclude: bool,
    /// Lines of context before and after a match, 0 to 5
    #[arg(long, short = 'C', value_name = "N", default_value_t = 0)]
    context: i32,
    /// Stop after this many matches, 1 to 5000 [default: 200]
    #[arg(long, short, value_name = "N", alias = "max-matches")]
    max: Option<i32>,
    /// Skip files larger than this [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    max_file_bytes: Option<i64>,
    /// What may answer
    #[arg(long, value_name = "FROM", default_value = "any")]
    source: Source,
}

impl Args {
    fn request(self) -> Result<SearchRequest, Failure> {
        let (target, rest) = target::take(self.words, &["PATTERN"], 0)?;
        let pattern = rest.into_iter().next().unwrap_or_default();
        let pattern = pattern.into_string().map_err(|_| {
            Failure::Usage("PATTERN is not UTF-8; with --regex write other bytes as \\C or \\x{..}".into())
        })?;
        Ok(SearchRequest {
            workspace: target.workspace,
            path: target.path.text,
            raw_path: target.path.raw,
            pattern,
            regex: self.regex,
            case_insensitive: self.ignore_case,
            include: self.include,
            exclude: exclusions(self.exclude, self.no_default_exclude),
            context_lines: self.context,
            max_matches: self.max,
            max_file_bytes: self.max_file_bytes,
            source: self.source.into(),
        })
    }
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let request = args.request()?;
    let with_context = request.context_lines > 0;
    let mut search = context.files.search(request).await?;
    let found_some = match context.format {
        Format::Json => {
            let (matches, end, origin) = search.collect().await?;
            context.out.object(&whole(&matches, &end, Object::default().with_origin(&origin)))?;
            !matches.is_empty()
        }
        Format::JsonLines => {
            let mut found_some = false;
            while let Some(found) = search.next().await? {
                found_some = true;
                context.out.object(&typed("match", json::found(&found)))?;
                // Whoever reads lines as they come waits for this one.
                context.out.flush()?;
            }
            let end = search.end().cloned().unwrap_or_default();
            let object = json::search_end(Object::default().with_origin(search.origin()), &end);
            context.out.object(&typed("end", object.into()))?;
            found_some
        }
        Format::Text => {
            let mut printer = SearchPrinter::new(style(context), with_context);
            let mut found_some = false;
            let mut clipped = 0_u64;
            let mut lines = Vec::new();
            while let Some(found) = search.next().await? {
                found_some = true;
                clipped += u64::from(found.text_clipped);
                printer.add(&found, &mut lines);
                context.out.bytes(&lines)?;
                lines.clear();
            }
            printer.finish(&mut lines);
            context.out.bytes(&lines)?;
            let end = search.end().cloned().unwrap_or_default();
            context.out.flush()?;
            context.note_origin(search.origin());
            notes(&end, clipped).iter().for_each(|note| context.note(note));
            found_some
        }
    };
    Ok(if found_some { Exit::Done } else { Exit::NothingFound })
}

/// The one object of `--json`.
fn whole(matches: &[Match], end: &SearchEnd, object: Object) -> Value {
    let matches: Vec<_> = matches.iter().map(json::found).collect();
    json::search_end(object.with("matches", matches), end).into()
}

/// A line of `--jsonl`: `record` says what it is, beside the object's own fields.
pub(super) fn typed(kind: &str, value: Value) -> Value {
    let mut value = value;
    if let Value::Object(fields) = &mut value {
        fields.insert("record".to_owned(), kind.into());
    }
    value
}

fn notes(end: &SearchEnd, clipped: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if end.truncated {
        notes.push(format!("stopped early: {}", words::stop_reason(end.stop_reason())));
    }
    if let Some(skipped) = &end.skipped {
        let kinds = [
            (skipped.binary, "binary"),
            (skipped.too_large, "too large"),
            (skipped.special, "special"),
            (skipped.unreadable, "unreadable"),
        ];
        let parts: Vec<_> =
            kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
        if !parts.is_empty() {
            notes.push(format!("not searched: {}", parts.join(", ")));
        }
    }
    if clipped > 0 {
        notes.push(format!("long lines cut at 1000 bytes: {clipped}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use dormouse_client::proto::files::v1::{GlobList, SkippedFiles, StopReason};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(words: &[&str], expect: SearchRequest) {
        let line = Line::try_parse_from(["search"].iter().chain(words)).unwrap();
        assert_eq!(line.args.request().unwrap(), expect, "{words:?}");
    }

    fn plain() -> SearchRequest {
        SearchRequest { workspace: "c/main".into(), path: "/p".into(), pattern: "TODO".into(), ..Default::default() }
    }

    #[test]
    fn each_flag_maps_to_its_field() {
        check(&["c/main", "/p", "TODO"], plain());
        check(&["c/main:/p", "TODO"], plain());
        check(
            &["c/main", "/p", "TODO", "--include", "*.py"],
            SearchRequest { include: vec!["*.py".into()], ..plain() },
        );
        check(
            &["--include", "*.py", "c/main", "/p", "--include=a/**", "TODO"],
            SearchRequest { include: vec!["*.py".into(), "a/**".into()], ..plain() },
        );
        check(
            &["c/main", "/p", "TODO", "--regex", "-i"],
            SearchRequest { regex: true, case_insensitive: true, ..plain() },
        );
        check(&["c/main", "--regex", "/p", "TODO"], SearchRequest { regex: true, ..plain() });
        check(&["c/main:/p", "TODO", "--max", "5"], SearchRequest { max_matches: Some(5), ..plain() });
        check(&["c/main:/p", "TODO", "--max-file-bytes", "9"], SearchRequest { max_file_bytes: Some(9), ..plain() });
        check(&["c/main:/p", "TODO", "--context", "2"], SearchRequest { context_lines: 2, ..plain() });
        check(&["c/main:/p", "TODO", "--source", "disk"], SearchRequest { source: 2, ..plain() });
        let none = Some(GlobList { globs: vec![] });
        check(&["c/main:/p", "TODO", "--no-default-exclude"], SearchRequest { exclude: none, ..plain() });
        let one = Some(GlobList { globs: vec!["x".into()] });
        check(&["c/main:/p", "TODO", "--exclude", "x"], SearchRequest { exclude: one, ..plain() });
        check(&["c/main:/p", "--", "-x"], SearchRequest { pattern: "-x".into(), ..plain() });
    }

    #[test]
    fn notes_say_what_was_left_out() {
        let skipped = SkippedFiles { binary: 2, unreadable: 1, ..Default::default() };
        let end = SearchEnd {
            truncated: true,
            stop_reason: StopReason::MaxMatches.into(),
            files_scanned: 3,
            skipped: Some(skipped),
        };
        assert_eq!(
            notes(&end, 1),
            ["stopped early: max_matches", "not searched: 2 binary, 1 unreadable", "long lines cut at 1000 bytes: 1"]
        );
        assert!(notes(&SearchEnd::default(), 0).is_empty());
    }
}
