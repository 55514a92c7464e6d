//! The program itself: what it prints, what it refuses, and how it ends.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

fn dormoused(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormoused"));
    command.args(words).env_clear().env("TMPDIR", directory).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `serve` with everything of its own in `directory`, which must not be in memory.
fn serve(directory: &Path, state: &str, more: &[&str]) -> Command {
    let at = |name: &str| directory.join(name).display().to_string();
    let host = format!("unix:{}", at(&format!("{state}.sock")));
    let state = at(state);
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--host-listen", &host, "--state-dir", &state];
    dormoused(directory, &[&words, more].concat())
}

#[track_caller]
fn check_refused(output: Output, code: i32, part: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(part), "{text}");
    assert!(output.stdout.is_empty(), "nothing is ready");
}

fn terminate(child: &mut Child) {
    let process = i32::try_from(child.id()).expect("a process id is positive and small");
    kill(Pid::from_raw(process), Signal::SIGTERM).expect("the child has not been waited for");
    assert!(child.wait().expect("the child has not been waited for").success());
}

#[test]
fn it_says_when_it_is_ready_keeps_a_second_one_out_and_ends_on_sigterm() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = directory.path().join("files");
    fs::create_dir(&files).unwrap();
    let workspace = format!("a/b=directory:{}", files.display());
    let mut first = serve(directory.path(), "one", &["--workspace", &workspace]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(first.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"ready\":true,\"listen\":[\"tcp:127.0.0.1:"), "{line}");
    assert!(line.ends_with("/one.sock\"]}\n"), "{line}");
    check_refused(
        serve(directory.path(), "one", &[]).output().unwrap(),
        1,
        "another agent runs on the state directory",
    );
    terminate(&mut first);
    assert!(!directory.path().join("one.sock").exists(), "its socket is gone");
    let mut again = serve(directory.path(), "one", &[]).spawn().unwrap();
    line.clear();
    BufReader::new(again.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"ready\":true"), "{line}");
    terminate(&mut again);
}

#[test]
fn it_takes_as_many_descriptors_as_it_may() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = serve(directory.path(), "one", &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 100; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    terminate(&mut child);
    let open_files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let bounds: Vec<&str> = open_files.split_whitespace().collect();
    assert_eq!(bounds[0], bounds[1], "{open_files}");
    assert_ne!(bounds[0], "100");
}

#[test]
fn it_refuses_before_anything_is_bound() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = directory.path().join("bad.toml");
    fs::write(&config, "[limits]\nserach_budget = \"1s\"\n").unwrap();
    let check = |more: &[&str], code, part: &str| {
        check_refused(serve(directory.path(), "s", more).output().unwrap(), code, part);
        assert!(!directory.path().join("s.sock").exists());
    };
    check(&["--config", config.to_str().unwrap()], 1, "serach_budget");
    check(&["--listen", "tcp:0.0.0.0:0"], 1, "not loopback");
    check(&["--host-listen", "tcp:127.0.0.1:0"], 1, "Unix sockets only");
    check(&["--workspace", "a=directory:/nowhere/at/all"], 1, "/nowhere/at/all");
    check(&["--workspace", "a=disk:/nowhere.img,format=qcow2"], 1, "/nowhere.img");
    check(&["--workspace", "a b=directory:/"], 1, "no workspace's name");
    check(&["--disable-feature", "file_serach"], 1, "file_serach");
    check(&["--listen", "nonsense"], 2, "no address");
}

#[test]
fn the_demonstration_says_what_to_try_and_leaves_nothing() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut demo = dormoused(directory.path(), &["demo"]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("Ctrl-C") {
        assert_ne!(lines.read_line(&mut text).unwrap(), 0, "{text}");
    }
    for part in ["DORMOUSE_ENDPOINT", "files read", "files search", "files patch", "grpcurl"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    terminate(&mut demo);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let mut errors = String::new();
    demo.stderr.unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}
