//! A test that cannot run here says why and is counted: `tests/run` prints the list at its end.

use std::{fs::OpenOptions, io::Write as _};

/// Notes that `what` was not tested, and why. The environment variable `DORMOUSE_SKIPS` names the file that collects
/// the notes of one run.
pub fn skip(what: &str, why: &str) {
    let line = format!("skipped: {what}: {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("DORMOUSE_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the list of skips opens");
        file.write_all(line.as_bytes()).expect("the list of skips takes a line");
    }
}

/// Whether this process may mount file systems.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The path of a tool that `tests/run` installs, from the environment, or nothing after noting the skip.
pub fn tool(variable: &str, what: &str) -> Option<std::ffi::OsString> {
    let found = std::env::var_os(variable);
    if found.is_none() {
        skip(what, &format!("{variable} is not set; tests/run installs the tool and sets it"));
    }
    found
}
