//! Mounts that a test makes and that are gone with it. Need root.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::skip;

/// A mount; unmounted when dropped.
pub struct Mount {
    place: PathBuf,
}

impl Mount {
    /// Runs mount(8) with these arguments on a place, or notes the skip.
    pub fn make(what: &str, arguments: &[&str], place: &Path) -> Option<Self> {
        if !skip::is_root() {
            skip::skip(what, "mounting needs root");
            return None;
        }
        match run(Command::new("mount").args(arguments).arg(place)) {
            Ok(()) => Some(Self { place: place.to_owned() }),
            Err(error) => {
                skip::skip(what, &format!("mount: {error}"));
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = run(Command::new("umount").arg(&self.place));
        if !std::thread::panicking() {
            done.unwrap_or_else(|error| panic!("{} is unmounted: {error}", self.place.display()));
        }
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
