//! The host's own commands around a suspend and a resume, for a host with no control plane above it: an argv, no shell,
//! with a bound on its time. The workspace is named in the environment.

use std::{
    io,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::host::spec::Spec;

/// Which commands, and for how long.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Stops the machine; empty: nothing is run.
    pub pause: Vec<String>,
    /// Starts it again; empty: nothing is run.
    pub resume: Vec<String>,
    /// Bound on each.
    pub timeout: Duration,
}

/// Runs a command to its end. Blocks.
///
/// # Errors
/// It could not be started, ended with another code than 0, or was killed at its bound.
pub fn run(argv: &[String], workspace: &str, spec: &Spec, timeout: Duration) -> io::Result<()> {
    let Some((program, arguments)) = argv.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).env("DORMOUSE_WORKSPACE", workspace).stdin(Stdio::null()).stdout(Stdio::null());
    match spec {
        Spec::Directory { root } => drop(command.env("DORMOUSE_DIRECTORY", root)),
        Spec::Machine { .. } => {
            if let Some(layer) = spec.root_disk().and_then(|disk| disk.layers.first()) {
                command.env("DORMOUSE_DISK", &layer.path);
            }
        }
    }
    let mut child = command.spawn()?;
    let process = i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)?;
    let (ended, end) = mpsc::channel();
    let waiter = thread::spawn(move || {
        let status = child.wait();
        // The receiver is gone only when this command's bound has passed.
        let _ = ended.send(());
        status
    });
    let in_time = end.recv_timeout(timeout).is_ok();
    if !in_time {
        // It may have ended in this moment; the waiter below says which.
        let _ = kill(process, Signal::SIGKILL);
    }
    let status = waiter.join().map_err(|_| io::Error::other("the command's waiter failed"))??;
    match (in_time, status.success()) {
        (false, _) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} did not end in {timeout:?}"))),
        (true, false) => Err(io::Error::other(format!("{program} ended with {status}"))),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argv: &[&str], timeout: Duration) -> Option<io::ErrorKind> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        run(&argv, "a/b", &Spec::Directory { root: "/srv".into() }, timeout).err().map(|error| error.kind())
    }

    #[test]
    fn a_command_ends_well_badly_or_late() {
        let long = Duration::from_secs(30);
        assert_eq!(check(&[], long), None);
        assert_eq!(check(&["true"], long), None);
        assert_eq!(check(&["sh", "-c", "test \"$DORMOUSE_WORKSPACE:$DORMOUSE_DIRECTORY\" = a/b:/srv"], long), None);
        assert_eq!(check(&["false"], long), Some(io::ErrorKind::Other));
        assert_eq!(check(&["/nowhere/to-be-found"], long), Some(io::ErrorKind::NotFound));
        assert_eq!(check(&["sleep", "600"], Duration::from_millis(20)), Some(io::ErrorKind::TimedOut));
    }
}
