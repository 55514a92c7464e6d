//! `dormouse files patch`

use std::ffi::OsString;

use dormouse_client::proto::files::v1::{Edit, EditList, PatchRequest, PatchResponse, patch_request::Change};
use serde::Deserialize;

use super::{mode, print_revision};
use crate::cli::{
    context::Context,
    fail::{Exit, Failure},
    input::load,
    json::{self, Object},
    target,
};

/// Well above what any request may have, so that a larger file is refused by its size and never sent in part.
const INPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const _: () = assert!(INPUT_BYTES_MAX > dormouse_client::REQUEST_BYTES_MAX as u64);

/// Replace text in a file, or its whole content
///
/// All edits or none, durably. Prints the new revision.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dormouse files patch [OPTIONS] WORKSPACE PATH --old TEXT --new TEXT\n       \
        dormouse files patch [OPTIONS] WORKSPACE:/PATH --content-file FILE",
    after_help = "Examples:\n  \
        R=$(dormouse files stat customer-42/main /home/user/project/app.py --revision --json | jq -r .revision)\n  \
        dormouse files patch customer-42/main /home/user/project/app.py --old 'DEBUG = True' --new 'DEBUG = False' \\\n    \
        --expected-revision \"$R\"\n  \
        echo hello | dormouse files patch customer-42/main:/home/user/hello.txt --content-file -\n  \
        dormouse files patch customer-42/main:/home/user/app.py --edits-file edits.json --dry-run\n\n\
        EDITS: a JSON list of {\"old_text\": …, \"new_text\": …, \"replace_all\": false}, or an object with it as \"edits\"."
)]
pub struct Args {
    /// The workspace and a file in it
    #[arg(required = true, value_name = "WORKSPACE PATH")]
    words: Vec<OsString>,
    /// Text to replace; it must occur exactly once, unless --replace-all. May be given again, each with its --new
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    old: Vec<String>,
    /// What to put in its place
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    new: Vec<String>,
    /// Replace every place where an old text occurs
    #[arg(long)]
    replace_all: bool,
    /// Edits from a JSON file; - is standard input
    #[arg(long, value_name = "EDITS")]
    edits_file: Option<OsString>,
    /// The whole new content from a file; - is standard input. Creates the file if it is missing
    #[arg(long, value_name = "FILE")]
    content_file: Option<OsString>,
    /// Refuse unless the file has this revision; "absent": unless there is no file
    #[arg(long, value_name = "REVISION")]
    expected_revision: Option<String>,
    /// Permission bits of a new file [default: 0644]
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    mode: Option<u32>,
    /// Make missing directories on the way to a new file
    #[arg(long)]
    create_parents: bool,
    /// Check everything and print the revision that would be, but change nothing
    #[arg(long)]
    dry_run: bool,
    /// The same key for a repetition of the same patch [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Where the change comes from.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    Edits(Vec<Edit>),
    EditsFile(OsString),
    ContentFile(OsString),
}

impl Args {
    /// Exactly one of edits and content. On the wire the last one would win silently, so two are refused here.
    fn input(&mut self) -> Result<Input, Failure> {
        let pairs = !self.old.is_empty() || !self.new.is_empty();
        match (pairs, self.edits_file.take(), self.content_file.take()) {
            (false, None, None) => {
                Err(Failure::Usage("nothing to change: give --old and --new, --edits-file, or --content-file".into()))
            }
            (true, None, None) => Ok(Input::Edits(self.pairs()?)),
            (false, Some(_), None) if self.replace_all => Err(Failure::Usage(
                "--replace-all belongs to --old and --new; in --edits-file each edit says it".into(),
            )),
            (false, Some(file), None) => Ok(Input::EditsFile(file)),
            (false, None, Some(_)) if self.replace_all => {
                Err(Failure::Usage("--replace-all belongs to --old and --new, not to whole content".into()))
            }
            (false, None, Some(file)) => Ok(Input::ContentFile(file)),
            _ => Err(Failure::Usage(
                "edits and content exclude each other: give only one of --old/--new, --edits-file and --content-file"
                    .into(),
            )),
        }
    }

    fn pairs(&mut self) -> Result<Vec<Edit>, Failure> {
        if self.old.len() != self.new.len() {
            let (old, new) = (self.old.len(), self.new.len());
            return Err(Failure::Usage(format!("each --old needs its --new: {old} and {new} were given")));
        }
        let pairs = std::mem::take(&mut self.old).into_iter().zip(std::mem::take(&mut self.new));
        Ok(pairs.map(|(old_text, new_text)| Edit { old_text, new_text, replace_all: self.replace_all }).collect())
    }

    fn request(self, change: Change) -> Result<PatchRequest, Failure> {
        let (target, _) = target::take(self.words, &[], 0)?;
        Ok(PatchRequest {
            workspace: target.workspace,
            path: target.path.text,
            raw_path: target.path.raw,
            change: Some(change),
            expected_revision: self.expected_revision,
            mode: self.mode,
            create_parents: self.create_parents,
            idempotency_key: self.idempotency_key.unwrap_or_default(),
            validate_only: self.dry_run,
        })
    }
}

pub async fn run(mut args: Args, context: &mut Context) -> Result<Exit, Failure> {
    let change = match args.input()? {
        Input::Edits(edits) => Change::Edits(EditList { edits }),
        Input::EditsFile(name) => {
            Change::Edits(EditList { edits: edits(&load("--edits-file", &name, INPUT_BYTES_MAX).await?)? })
        }
        Input::ContentFile(name) => Change::Content(load("--content-file", &name, INPUT_BYTES_MAX).await?.into()),
    };
    let dry_run = args.dry_run;
    let answer = context.files.patch(args.request(change)?).await?;
    print_revision(context, &answer.revision, object(&answer))?;
    context.out.flush()?;
    if !context.json() {
        if dry_run {
            context.note("dry run: nothing was changed");
        }
        if answer.replaced_open_file {
            context
                .note("another process keeps the replaced file open for writing; what it writes from now on is lost");
        }
    }
    Ok(Exit::Done)
}

fn object(answer: &PatchResponse) -> Object {
    Object::default()
        .with("revision", &*answer.revision)
        .with_some("previous_revision", answer.previous_revision.as_deref())
        .with("bytes_written", answer.bytes_written)
        .with("durable", answer.durable)
        .with("replacements", answer.replacements)
        .with("replayed", answer.replayed)
        .with("replaced_open_file", answer.replaced_open_file)
        .with_some("file", answer.file.as_ref().map(json::file))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEdit {
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEdits {
    edits: Vec<FileEdit>,
}

fn edits(json: &[u8]) -> Result<Vec<Edit>, Failure> {
    let is_object = json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let parsed = if is_object {
        serde_json::from_slice::<FileEdits>(json).map(|file| file.edits)
    } else {
        serde_json::from_slice::<Vec<FileEdit>>(json)
    };
    let list = parsed.map_err(|error| Failure::Usage(format!("--edits-file: {error}")))?;
    let edit =
        |edit: FileEdit| Edit { old_text: edit.old_text, new_text: edit.new_text, replace_all: edit.replace_all };
    Ok(list.into_iter().map(edit).collect())
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

    fn parse(words: &[&str]) -> Args {
        Line::try_parse_from(["patch", "w:/p"].iter().chain(words)).unwrap().args
    }

    fn check(words: &[&str], expect: Result<Input, &str>) {
        match (parse(words).input(), expect) {
            (Ok(input), Ok(expect)) => assert_eq!(input, expect, "{words:?}"),
            (Err(Failure::Usage(fact)), Err(part)) => assert!(fact.contains(part), "{fact}"),
            (got, expect) => panic!("{words:?}: {got:?}, not {expect:?}"),
        }
    }

    fn edit(old_text: &str, new_text: &str, replace_all: bool) -> Edit {
        Edit { old_text: old_text.into(), new_text: new_text.into(), replace_all }
    }

    #[test]
    fn exactly_one_of_edits_and_content() {
        check(&["--old", "a", "--new", "b"], Ok(Input::Edits(vec![edit("a", "b", false)])));
        check(&["--old=a", "--new=", "--replace-all"], Ok(Input::Edits(vec![edit("a", "", true)])));
        check(&["--old", "-a", "--new", "--b"], Ok(Input::Edits(vec![edit("-a", "--b", false)])));
        let two = vec![edit("a", "b", false), edit("c", "d", false)];
        check(&["--old", "a", "--new", "b", "--old", "c", "--new", "d"], Ok(Input::Edits(two)));
        check(&["--content-file", "-"], Ok(Input::ContentFile("-".into())));
        check(&["--edits-file", "e"], Ok(Input::EditsFile("e".into())));
        check(&[], Err("nothing to change"));
        check(&["--old", "a"], Err("each --old needs its --new: 1 and 0"));
        check(&["--old", "a", "--new", "b", "--content-file", "f"], Err("exclude each other"));
        check(&["--edits-file", "e", "--content-file", "f"], Err("exclude each other"));
        check(&["--edits-file", "e", "--new", "x"], Err("exclude each other"));
        check(&["--content-file", "f", "--replace-all"], Err("--replace-all belongs"));
    }

    #[test]
    fn each_flag_maps_to_its_field() {
        let change = Change::Content("x".into());
        let plain = || PatchRequest {
            workspace: "w".into(),
            path: "/p".into(),
            change: Some(change.clone()),
            ..Default::default()
        };
        let check =
            |words: &[&str], expect| assert_eq!(parse(words).request(change.clone()).unwrap(), expect, "{words:?}");
        check(&[], plain());
        check(&["--expected-revision", "absent"], PatchRequest { expected_revision: Some("absent".into()), ..plain() });
        // An unset variable of a script must reach the host, which refuses it, and not mean "any revision".
        check(&["--expected-revision", ""], PatchRequest { expected_revision: Some(String::new()), ..plain() });
        check(&["--mode", "0600"], PatchRequest { mode: Some(0o600), ..plain() });
        check(&["--create-parents"], PatchRequest { create_parents: true, ..plain() });
        check(&["--dry-run"], PatchRequest { validate_only: true, ..plain() });
        check(&["--idempotency-key", "k"], PatchRequest { idempotency_key: "k".into(), ..plain() });
    }

    #[test]
    fn edits_files_are_lists_or_objects_and_misspelt_fields_are_named() {
        let expect = vec![edit("a", "b", true)];
        assert_eq!(edits(br#"[{"old_text":"a","new_text":"b","replace_all":true}]"#).unwrap(), expect);
        assert_eq!(edits(br#" {"edits":[{"old_text":"a","new_text":"b","replace_all":true}]}"#).unwrap(), expect);
        let Err(Failure::Usage(fact)) = edits(br#"[{"old_text":"a","new_txt":"b"}]"#) else { panic!() };
        assert!(fact.contains("new_txt"), "{fact}");
        assert!(edits(b"").is_err());
    }
}
