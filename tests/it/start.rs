//! How an agent starts, and what it refuses before it binds anything.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use dormouse_tests::world::{Setup, binary};
use tempfile::TempDir;

/// Runs an agent that must not start, and gives what it said.
#[track_caller]
fn refused(place: &Path, config: &str, arguments: &[&str]) -> String {
    let file = place.join("dormoused.toml");
    fs::write(&file, config).expect("a configuration");
    let socket = place.join("files.sock");
    let Output { status, stdout, stderr } = Command::new(binary("dormoused"))
        .args(["serve", "--log-format", "json", "--config"])
        .arg(&file)
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()))
        .arg("--host-listen")
        .arg(format!("unix:{}", place.join("host.sock").display()))
        .arg("--state-dir")
        .arg(place.join("state"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("dormoused runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success(), "it starts with {config:?} {arguments:?}: {said}");
    assert!(status.code().is_some(), "it ends by itself: {status}: {said}");
    assert!(stdout.is_empty(), "it says that it is ready: {}", String::from_utf8_lossy(&stdout));
    assert!(!socket.exists() && !place.join("host.sock").exists(), "nothing is bound: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn place() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn an_unknown_key_is_refused_by_its_name() {
    for (config, named) in [
        ("listne = []\n", "listne"),
        ("[limits]\nrequest_bytes = 1\n", "request_bytes"),
        ("[[workspace]]\nname = \"w\"\ndirectroy = \"/\"\n", "directroy"),
        ("[offline]\nserve_unsealed = \"always\"\n", "serve_unsealed"),
        ("[limits]\nsearch_budget = \"soon\"\n", "search_budget"),
        ("[limits\n", "limits"),
    ] {
        let place = place();
        let said = refused(place.path(), config, &[]);
        assert!(said.contains(named), "{config:?}: {said}");
    }
}

#[test]
fn what_is_refused_leaves_no_state_directory_and_names_every_unknown_key() {
    for config in ["listne = []\nstate = 1\n", "[[workspace]]\nname = \"w\"\ndirectory = \"/nowhere/at/all\"\n"] {
        let place = place();
        let said = refused(place.path(), config, &[]);
        assert!(!place.path().join("state").exists(), "{config:?}: {said}");
        if config.starts_with("listne") {
            assert!(said.contains("listne") && said.contains("`state`"), "{said}");
        }
    }
    let place = place();
    std::os::unix::fs::symlink("/dev/zero", place.path().join("dormoused.toml")).expect("a link");
    let said = refused(place.path(), "", &[]);
    assert!(said.contains("dormoused.toml") && said.contains("bytes"), "{said}");
}

#[test]
fn a_listener_that_others_could_reach_is_refused() {
    for address in ["tcp:0.0.0.0:0", "tcp:[::]:0", "tcp:192.0.2.1:7070", "tcp:nowhere", "carrier-pigeon:1"] {
        let place = place();
        let said = refused(place.path(), "", &["--listen", address]);
        let shown = address.strip_prefix("tcp:").unwrap_or(address);
        assert!(said.contains(shown) || said.contains("loopback"), "{address}: {said}");
    }
    let place = place();
    refused(place.path(), "", &["--host-listen", "tcp:127.0.0.1:0"]);
}

#[test]
fn a_workspace_that_is_not_there_is_refused() {
    let place = place();
    fs::write(place.path().join("file"), "x").expect("a file");
    let missing = place.path().join("missing");
    for what in ["directory", "disk"] {
        let said = refused(place.path(), "", &["--workspace", &format!("w={what}:{}", missing.display())]);
        assert!(said.contains("missing"), "{said}");
    }
    let said = refused(place.path(), "", &["--workspace", &format!("w=directory:{}/file", place.path().display())]);
    assert!(said.contains("file"), "{said}");
    for workspace in ["w", "w=", "w=elsewhere:/tmp", "../w=directory:/tmp", "=directory:/tmp"] {
        let said = refused(place.path(), "", &["--workspace", workspace]);
        assert!(said.contains(workspace) || said.contains("workspace"), "{workspace}: {said}");
    }
    let said = refused(place.path(), "", &["--disable-feature", "telepathy"]);
    assert!(said.contains("telepathy"), "{said}");
}

#[test]
fn a_second_agent_on_the_same_state_says_so_and_goes() {
    let world = Setup::new().start();
    let place = place();
    let state = world.state.to_str().expect("a path of text").to_owned();
    let file = place.path().join("none.toml");
    fs::write(&file, "").expect("a configuration");
    let output = Command::new(binary("dormoused"))
        .args(["serve", "--log-format", "json", "--config"])
        .arg(&file)
        .arg("--listen")
        .arg(format!("unix:{}", place.path().join("files.sock").display()))
        .arg("--host-listen")
        .arg(format!("unix:{}", place.path().join("host.sock").display()))
        .args(["--state-dir", &state])
        .stdin(Stdio::null())
        .output()
        .expect("dormoused runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains(&state) && said.contains("another"), "it says what is taken, and by whom: {said}");
    assert!(!place.path().join("files.sock").exists(), "nothing is bound");
}

#[test]
fn a_socket_that_an_agent_left_behind_is_taken_over() {
    let place = place();
    let state = place.path().join("state");
    let world = Setup::new().state(&state).start();
    let (unix, host) = (world.unix.clone(), world.host.clone());
    assert!(unix.exists() && host.exists());
    use std::os::unix::fs::PermissionsExt as _;
    let mode = host.metadata().expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "the control plane's socket is the agent's own");
    drop(world);
    assert!(!unix.exists() && !host.exists(), "an orderly end takes its sockets along");
}
