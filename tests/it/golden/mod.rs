//! What every command prints, in every form: `transcript.txt` holds the commands and their answers as a person sees them, and this
//! runs them again against a real agent. With `DORMOUSE_BLESS` set it writes the answers anew instead of comparing them.
//!
//! A line that begins with `$ ` is a command; what follows is its standard output, its standard error (each line after `! `), and its
//! exit code where that is not 0. What differs from run to run is named: TIME, ETAG, ROOT and so on.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use dormouse_tests::{
    site::put,
    world::{Setup, World, binary},
};
use regex::Regex;

const TRANSCRIPT: &str = "tests/it/golden/transcript.txt";

#[test]
fn every_command_prints_what_its_transcript_says() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path().join("root");
    let app = "import os\nDEBUG = True  # TODO\n\ndef main():\n    # TODO TODO\n    pass\n";
    put(&root, "home/user/project/app.py", app);
    put(&root, "home/user/project/notes.md", "TODO: write\n");
    for name in ["app.py", "notes.md"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(root.join("home/user/project").join(name), mode).expect("its mode is set");
    }
    put(place.path(), "app.py", app.replace("True", "False"));
    put(place.path(), "second/a", "x\n");
    std::os::unix::fs::symlink("app.py", root.join("home/user/project/link")).expect("a link");
    let config = format!("roots = [{:?}]\n", place.path());
    let world = Setup::new().config(config).directory("customer-42/main", &root).start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the project").join(TRANSCRIPT);
    let expect = fs::read_to_string(&path).expect("the transcript is text");
    let mut got = String::new();
    for line in expect.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            got.push_str(&answer(command, &world, place.path()));
        } else if line.starts_with('#') {
            got.push_str(&format!("{line}\n"));
        }
    }
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        return fs::write(&path, got).expect("the transcript is written");
    }
    for (number, (expect, got)) in expect.lines().zip(got.lines()).enumerate() {
        assert_eq!(got, expect, "line {} of the transcript", number + 1);
    }
    assert_eq!(got.lines().count(), expect.lines().count());
}

#[test]
fn the_transcript_holds_every_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the project").join(TRANSCRIPT);
    let transcript = fs::read_to_string(path).expect("the transcript is text");
    let pages = tempfile::tempdir().expect("a temporary directory");
    let made = Command::new(binary("dormouse")).args(["man", "--directory"]).arg(pages.path()).output();
    assert!(made.expect("dormouse starts").status.success());
    for page in fs::read_dir(pages.path()).expect("pages") {
        let name = page.expect("a page").file_name().into_string().expect("a name is text");
        let command = name.trim_end_matches(".1").replace('-', " ");
        // A page of a group has no command of its own.
        if ["dormouse", "dormouse files", "dormouse workspaces"].contains(&&*command) || command.ends_with(" help") {
            continue;
        }
        assert!(
            transcript.contains(&format!("{command} ")) || transcript.contains(&format!("{command}\n")),
            "{command}"
        );
    }
}

fn answer(command: &str, world: &World, place: &Path) -> String {
    let programs = binary("dormouse").parent().expect("a directory").to_owned();
    let output = Command::new("sh")
        .args(["-c", command])
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default()))
        .env("DORMOUSE_ENDPOINT", format!("unix:{}", world.unix.display()))
        .env("DORMOUSE_HOST_ENDPOINT", format!("unix:{}", world.host.display()))
        .env("XDG_CONFIG_HOME", place)
        .env("PLACE", place)
        .env_remove("DORMOUSE_TOKEN")
        .current_dir(place)
        .stdin(Stdio::null())
        .output()
        .expect("a shell starts");
    let mut text = format!("$ {command}\n");
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    text.push_str(&stdout);
    if !stdout.is_empty() && !stdout.ends_with('\n') {
        text.push_str("(no newline)\n");
    }
    for line in String::from_utf8(output.stderr).expect("it says text").lines() {
        text.push_str(&format!("! {line}\n"));
    }
    match output.status.code() {
        Some(0) => {}
        code => text.push_str(&format!("=> {}\n", code.expect("it was not killed"))),
    }
    named(&text, place)
}

/// What differs from run to run, by its name.
fn named(text: &str, place: &Path) -> String {
    let rules = [
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
        (r#""etag":"[^"]*""#, r#""etag":"ETAG""#),
        (r#""host":"[^"]*""#, r#""host":"HOST""#),
        (r#""(uid|gid)":\d+"#, r#""$1":0"#),
        (r#"(version"?[: ]+"?)\d+\.\d+\.\d+"#, "${1}VERSION"),
        (r"(?m)^host: .*$", "host: HOST"),
        (r#""size_bytes":\d+,"type":"directory""#, r#""size_bytes":0,"type":"directory""#),
        (r"dormouse \d+\.\d+\.\d+", "dormouse VERSION"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
        (r"(request_id\W+)[0-9a-zA-Z-]+", "${1}ID"),
    ];
    let mut text = text.replace(&place.display().to_string(), "PLACE");
    for (pattern, name) in rules {
        text = Regex::new(pattern).expect("a pattern").replace_all(&text, name).into_owned();
    }
    text
}
