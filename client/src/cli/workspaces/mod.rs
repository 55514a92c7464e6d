//! `dormouse workspaces …`, a file for each command that is more than a name and a generation.

mod change;
mod list;
mod register;
mod watch;

use clap::Subcommand;
use dormouse_client::proto::host::v1::Workspace;

use super::{
    context::Context,
    fail::{Exit, Failure},
    json,
};

/// The calls of HostService about workspaces.
#[derive(Debug, Subcommand)]
pub enum Command {
    List(list::Args),
    Get(change::GetArgs),
    Register(register::Args),
    Release(change::ReleaseArgs),
    Suspend(change::SuspendArgs),
    Resume(change::ResumeArgs),
    Watch(watch::Args),
}

/// Runs a command and flushes what it printed.
pub async fn run(command: Command, mut context: Context) -> Result<Exit, Failure> {
    let exit = match command {
        Command::List(args) => list::run(args, &mut context).await,
        Command::Get(args) => change::get(args, &mut context).await,
        Command::Register(args) => register::run(args, &mut context).await,
        Command::Release(args) => change::release(args, &mut context).await,
        Command::Suspend(args) => change::suspend(args, &mut context).await,
        Command::Resume(args) => change::resume(args, &mut context).await,
        Command::Watch(args) => watch::run(args, &mut context).await,
    };
    let flushed = context.out.flush();
    let exit = exit?;
    flushed?;
    Ok(exit)
}

/// A workspace in one line, its columns divided by tabs: name, state, generation, and a word about its disk.
fn line(workspace: &Workspace) -> String {
    let disk = match &workspace.seal {
        Some(seal) if seal.exact => "exact",
        Some(_) => "crash",
        None => "-",
    };
    let note = if workspace.note.is_empty() { String::new() } else { format!("\t{}", workspace.note) };
    format!("{}\t{}\t{}\t{disk}{note}\n", workspace.name, json::state_name(workspace.state()), workspace.generation)
}

fn print(context: &mut Context, workspace: Option<Workspace>) -> Result<Exit, Failure> {
    let workspace = workspace.unwrap_or_default();
    if context.json() {
        context.out.object(&json::workspace(&workspace))?;
    } else {
        context.out.bytes(line(&workspace).as_bytes())?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use dormouse_client::proto::host::v1::Seal;

    use super::*;

    #[test]
    fn a_workspace_is_one_line_of_columns() {
        let mut workspace = Workspace { name: "c/main".into(), state: 1, generation: 7, ..Default::default() };
        assert_eq!(line(&workspace), "c/main\trunning\t7\t-\n");
        workspace.state = 4;
        workspace.seal = Some(Seal { exact: true, ..Default::default() });
        workspace.note = "why".into();
        assert_eq!(line(&workspace), "c/main\tsuspended\t7\texact\twhy\n");
    }
}
