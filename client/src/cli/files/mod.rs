//! `dormouse files …`, a file for each command.

mod capabilities;
mod diff;
mod list;
mod mkdir;
mod mv;
mod patch;
mod read;
mod rm;
mod search;
mod stat;
mod write;

use clap::{Subcommand, ValueEnum};
use dormouse_client::proto::files::v1::{GlobList, ReadSource};

use super::{
    context::Context,
    fail::{Exit, Failure},
    out::Format,
    text::Style,
};

/// The verbs of FilesService.
#[derive(Debug, Subcommand)]
pub enum Command {
    Search(search::Args),
    Stat(stat::Args),
    Read(read::Args),
    List(list::Args),
    Patch(patch::Args),
    Write(write::Args),
    Rm(rm::Args),
    Mv(mv::Args),
    Mkdir(mkdir::Args),
    Diff(diff::Args),
    Capabilities(capabilities::Args),
}

/// Runs a command and flushes what it printed.
pub async fn run(command: Command, mut context: Context) -> Result<Exit, Failure> {
    let exit = match command {
        Command::Search(args) => search::run(args, &mut context).await,
        Command::Stat(args) => stat::run(args, &mut context).await,
        Command::Read(args) => read::run(args, &mut context).await,
        Command::List(args) => list::run(args, &mut context).await,
        Command::Patch(args) => patch::run(args, &mut context).await,
        Command::Write(args) => write::run(args, &mut context).await,
        Command::Rm(args) => rm::run(args, &mut context).await,
        Command::Mv(args) => mv::run(args, &mut context).await,
        Command::Mkdir(args) => mkdir::run(args, &mut context).await,
        Command::Diff(args) => diff::run(args, &mut context).await,
        Command::Capabilities(args) => capabilities::run(args, &mut context).await,
    };
    // What came before a failure was true and stays.
    let flushed = context.out.flush();
    let exit = exit?;
    flushed?;
    Ok(exit)
}

/// What a read may be answered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// The disk for a suspended or parked workspace, else the running workspace
    Any,
    /// Only the running workspace
    Workspace,
    /// Only the disk
    Disk,
}

impl From<Source> for i32 {
    fn from(source: Source) -> Self {
        match source {
            Source::Any => ReadSource::Unspecified.into(),
            Source::Workspace => ReadSource::Workspace.into(),
            Source::Disk => ReadSource::Disk.into(),
        }
    }
}

/// Exclusions as the contract tells them apart: none given keeps the host's default, an empty list excludes nothing.
fn exclusions(globs: Vec<String>, no_default: bool) -> Option<GlobList> {
    (no_default || !globs.is_empty()).then_some(GlobList { globs })
}

/// Permission bits, in octal as chmod(1) takes them.
fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected octal permission bits from 0 to 0777, such as 0644".to_owned()),
    }
}

fn style(context: &Context) -> Style {
    Style { colour: context.colour, terminal: context.out.is_terminal() }
}

/// A changed file in one line: its new revision and nothing else, or an object.
fn print_revision(context: &mut Context, revision: &str, object: impl Into<serde_json::Value>) -> Result<(), Failure> {
    match context.format {
        Format::Text => context.out.bytes(format!("{revision}\n").as_bytes())?,
        Format::Json | Format::JsonLines => context.out.object(&object.into())?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_permission_bits() {
        assert_eq!(mode("0644"), Ok(0o644));
        assert_eq!(mode("755"), Ok(0o755));
        assert_eq!(mode("0o600"), Ok(0o600));
        assert!(mode("1777").is_err());
        assert!(mode("0888").is_err());
        assert!(mode("").is_err());
        assert!(mode("-1").is_err());
    }

    #[test]
    fn absent_and_empty_exclusions_differ() {
        assert_eq!(exclusions(vec![], false), None);
        assert_eq!(exclusions(vec![], true), Some(GlobList { globs: vec![] }));
        assert_eq!(exclusions(vec!["a".into()], false), Some(GlobList { globs: vec!["a".into()] }));
    }
}
