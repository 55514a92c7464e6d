//! Waking a workspace by a command of the caller's.

use std::{ffi::OsString, process::Stdio};

use dormouse_client::{WakeError, Waker, Waking};
use tokio::process::Command;

/// Runs `sh -c COMMAND` with `DORMOUSE_WORKSPACE` in its environment; exit code 0 means that the workspace runs or is about
/// to. Its output goes to standard error, for standard output is data. It is killed when the call's deadline passes.
pub struct CommandWaker(OsString);

impl CommandWaker {
    pub fn new(command: OsString) -> Self {
        Self(command)
    }
}

impl Waker for CommandWaker {
    fn wake<'a>(&'a self, workspace: &'a str) -> Waking<'a> {
        Box::pin(async move {
            let status = Command::new("sh")
                .arg("-c")
                .arg(&self.0)
                .env("DORMOUSE_WORKSPACE", workspace)
                .stdin(Stdio::null())
                .stdout(Stdio::from(std::io::stderr()))
                .kill_on_drop(true)
                .status()
                .await
                .map_err(|error| WakeError(format!("sh cannot be started: {error}")))?;
            if status.success() { Ok(()) } else { Err(WakeError(format!("the wake command ended with {status}"))) }
        })
    }
}
