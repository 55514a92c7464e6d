//! `dormouse files list`

use std::ffi::OsString;

use dormouse_client::{
    proto::files::v1::{ListEnd, ListRequest},
    words,
};

use super::{Source, exclusions, search::typed, style};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    json::{self, Object},
    out::Format,
    target, text,
};

/// List a directory
///
/// Prints paths in path order, a directory's with a slash at its end.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files list [OPTIONS] WORKSPACE PATH\n       dormouse files list [OPTIONS] WORKSPACE:/PATH",
    after_help = "Examples:\n  \
        dormouse files list customer-42/main /home/user/project\n  \
        dormouse files list customer-42/main:/home/user/project -l --depth 3 --include '*.py'"
)]
pub struct Args {
    /// The workspace and a directory in it
    #[arg(required = true, value_name = "WORKSPACE PATH")]
    words: Vec<OsString>,
    /// Mode, links, owner, group, size and time (UTC) before each path
    #[arg(long, short)]
    long: bool,
    /// How many levels deep, 1 to 64 [default: 1]
    #[arg(long, short, value_name = "N")]
    depth: Option<i32>,
    /// List only what this gitignore-style glob matches, relative to PATH; may be given up to 32 times
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    include: Vec<String>,
    /// Leave out what this glob matches; may be given up to 32 times
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    exclude: Vec<String>,
    /// Stop after this many entries, at most 1000000 [default: 10000]
    #[arg(long, short, value_name = "N", alias = "max-entries")]
    max: Option<i32>,
    /// Also give each file's revision (SHA-256)
    #[arg(long)]
    revision: bool,
    /// Begin after this path
    #[arg(long, value_name = "PATH")]
    start_after: Option<OsString>,
    /// What may answer
    #[arg(long, value_name = "FROM", default_value = "any")]
    source: Source,
}

impl Args {
    fn request(self) -> Result<ListRequest, Failure> {
        let (target, _) = target::take(self.words, &[], 0)?;
        let start_after = match &self.start_after {
            Some(word) => target::WirePath::within(word, &target.workspace)?,
            None => target::WirePath::default(),
        };
        Ok(ListRequest {
            workspace: target.workspace,
            path: target.path.text,
            raw_path: target.path.raw,
            depth: self.depth,
            include: self.include,
            exclude: exclusions(self.exclude, false),
            max_entries: self.max,
            include_revision: self.revision,
            source: self.source.into(),
            start_after: start_after.text,
            raw_start_after: start_after.raw,
        })
    }
}

pub async fn run(args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let (long, revision) = (args.long, args.revision);
    let mut list = context.files.list(args.request()?).await?;
    let style = style(context);
    let mut entries = Vec::new();
    let mut line = Vec::new();
    while let Some(file) = list.next().await? {
        match context.format {
            Format::Json => entries.push(json::file(&file)),
            Format::JsonLines => context.out.object(&typed("entry", json::file(&file)))?,
            Format::Text => {
                if long || revision {
                    text::long_entry(&file, revision, style, &mut line);
                } else {
                    text::entry(&file, style, &mut line);
                }
                context.out.bytes(&line)?;
                line.clear();
            }
        }
    }
    let end = list.end().cloned().unwrap_or_default();
    let object = json::list_end(Object::default().with_origin(list.origin()), &end);
    match context.format {
        Format::Json => context.out.object(&serde_json::Value::from(object.with("entries", entries)))?,
        Format::JsonLines => context.out.object(&typed("end", object.into()))?,
        Format::Text => {
            context.out.flush()?;
            context.note_origin(list.origin());
            notes(&end).iter().for_each(|note| context.note(note));
        }
    }
    Ok(Exit::Done)
}

fn notes(end: &ListEnd) -> Vec<String> {
    let mut notes = Vec::new();
    if end.truncated {
        let reason = words::stop_reason(end.stop_reason());
        notes.push(format!("stopped early: {reason}; go on with --start-after and the last path"));
    }
    if end.unreadable > 0 {
        notes.push(format!("directories that could not be read: {}", end.unreadable));
    }
    notes
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use dormouse_client::proto::files::v1::GlobList;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(words: &[&str], expect: ListRequest) {
        let line = Line::try_parse_from(["list"].iter().chain(words)).unwrap();
        assert_eq!(line.args.request().unwrap(), expect, "{words:?}");
    }

    #[test]
    fn each_flag_maps_to_its_field() {
        let plain = || ListRequest { workspace: "w".into(), path: "/p".into(), ..Default::default() };
        check(&["w", "/p"], plain());
        check(&["w:/p", "-d", "3", "--max", "7"], ListRequest { depth: Some(3), max_entries: Some(7), ..plain() });
        check(&["w:/p", "--include", "*.py"], ListRequest { include: vec!["*.py".into()], ..plain() });
        let exclude = Some(GlobList { globs: vec![".git".into()] });
        check(&["w:/p", "--exclude", ".git"], ListRequest { exclude, ..plain() });
        check(&["w:/p", "--revision"], ListRequest { include_revision: true, ..plain() });
        check(&["w:/p", "--start-after", "/p/a"], ListRequest { start_after: "/p/a".into(), ..plain() });
        check(&["w:/p", "--source", "workspace"], ListRequest { source: 1, ..plain() });
    }

    #[test]
    fn a_cut_listing_says_how_to_go_on() {
        let end = ListEnd { truncated: true, stop_reason: 4, unreadable: 2, ..Default::default() };
        assert_eq!(
            notes(&end),
            [
                "stopped early: max_entries; go on with --start-after and the last path",
                "directories that could not be read: 2"
            ]
        );
    }
}
