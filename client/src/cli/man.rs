//! `dormouse man`

use std::path::PathBuf;

use super::{
    fail::{Exit, Failure},
    out::Out,
};

/// Where the pages go.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dormouse man | man -l -\n  dormouse man --directory /usr/local/share/man/man1")]
pub struct Args {
    /// Write a page for each command into this directory, instead of printing the first one
    #[arg(long, short, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

pub fn run(args: &Args, command: clap::Command) -> Result<Exit, Failure> {
    match &args.directory {
        Some(directory) => {
            let named = |error| Failure::File(directory.display().to_string(), error);
            std::fs::create_dir_all(directory).map_err(named)?;
            clap_mangen::generate_to(command, directory).map_err(named)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            let mut out = Out::new();
            out.bytes(&page)?;
            out.flush()?;
        }
    }
    Ok(Exit::Done)
}
