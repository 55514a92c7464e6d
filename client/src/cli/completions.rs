//! `dormouse completions SHELL`

use clap_complete::Shell;

use super::{
    fail::{Exit, Failure},
    out::Out,
};

/// The shell to complete for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dormouse completions bash > ~/.local/share/bash-completion/completions/dormouse")]
pub struct Args {
    /// Whose script to print
    shell: Shell,
}

pub fn run(args: &Args, command: &mut clap::Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "dormouse", &mut script);
    let mut out = Out::new();
    out.bytes(&script)?;
    out.flush()?;
    Ok(Exit::Done)
}
