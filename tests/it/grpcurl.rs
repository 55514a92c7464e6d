//! A person with grpcurl: what is there, how it is called, and what an error says, without any file of the contract.

use std::{fs, os::unix::ffi::OsStrExt as _, process::Command};

use dormouse_tests::{
    site::{Site, put, revision_of},
    skip,
};

/// What grpcurl says about an agent, over TCP or over its Unix socket.
struct Said {
    success: bool,
    stdout: String,
    stderr: String,
}

fn grpcurl(site: &Site, unix: bool, arguments: &[&str], rest: &[&str]) -> Option<Said> {
    let tool = skip::tool("DORMOUSE_GRPCURL", "grpcurl")?;
    let mut command = Command::new(tool);
    command.arg("-plaintext");
    if unix {
        command.arg("-unix");
    }
    command.args(arguments);
    if unix {
        command.arg(&site.world.unix);
    } else {
        command.arg(&site.world.tcp);
    }
    let output = command.args(rest).output().expect("grpcurl starts");
    Some(Said {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The JSON objects that grpcurl prints one after another.
fn objects(text: &str) -> Vec<serde_json::Value> {
    serde_json::Deserializer::from_str(text).into_iter().map(|value| value.expect("JSON")).collect()
}

#[test]
fn it_lists_and_describes_the_service() {
    let site = Site::live(|_| {});
    for unix in [false, true] {
        let Some(said) = grpcurl(&site, unix, &[], &["list"]) else { return };
        assert!(said.success, "{}", said.stderr);
        let services: Vec<_> = said.stdout.lines().collect();
        assert!(services.contains(&"dormouse.files.v1.FilesService"), "{services:?}");
        assert!(services.contains(&"grpc.health.v1.Health"), "{services:?}");
        let said = grpcurl(&site, unix, &[], &["list", "dormouse.files.v1.FilesService"]).expect("it is there");
        for method in
            ["GetCapabilities", "Stat", "Read", "List", "Search", "Patch", "Write", "Remove", "Move", "MakeDirectory"]
        {
            assert!(said.stdout.contains(&format!("dormouse.files.v1.FilesService.{method}\n")), "{}", said.stdout);
        }
        let said = grpcurl(&site, unix, &[], &["describe", "dormouse.files.v1.PatchRequest"]).expect("it is there");
        assert!(said.stdout.contains("string idempotency_key = 9;"), "{}", said.stdout);
        let said = grpcurl(&site, unix, &[], &["describe", "google.rpc.ErrorInfo"]).expect("it is there");
        assert!(said.stdout.contains("message ErrorInfo"), "{}", said.stdout);
    }
}

#[test]
fn it_calls_and_reads_streams() {
    let site = Site::both("8M", |root| {
        put(root, "a", "one TODO\n");
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").expect("a name of any bytes");
    });
    for unix in [false, true] {
        let body = r#"{"workspace":"t/asleep","path":"/a","include_revision":true}"#;
        let Some(said) = grpcurl(&site, unix, &["-d", body], &["dormouse.files.v1.FilesService/Stat"]) else { return };
        assert!(said.success, "{}", said.stderr);
        let answer = &objects(&said.stdout)[0];
        assert_eq!(answer["file"]["revision"], revision_of(b"one TODO\n"));
        assert_eq!(answer["origin"]["servedFrom"], "SERVED_FROM_DISK");
        let body = r#"{"workspace":"t/live","path":"/","pattern":"TODO"}"#;
        let said =
            grpcurl(&site, unix, &["-d", body], &["dormouse.files.v1.FilesService/Search"]).expect("it is there");
        let messages = objects(&said.stdout);
        assert_eq!(messages[0]["matches"][0]["column"], 5, "{}", said.stdout);
        assert!(messages.last().is_some_and(|last| last.get("end").is_some()), "{}", said.stdout);
        // "/\xff" in base64.
        let body = r#"{"workspace":"t/live","raw_path":"L/8="}"#;
        let said = grpcurl(&site, unix, &["-d", body], &["dormouse.files.v1.FilesService/Stat"]).expect("it is there");
        assert_eq!(objects(&said.stdout)[0]["file"]["rawPath"], "L/8=", "{}", said.stdout);
    }
}

#[test]
fn it_prints_an_error_with_its_reason_and_details() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let body = format!(
        r#"{{"workspace":"t/live","path":"/a","content":"eA==","idempotency_key":"k","expected_revision":"{}"}}"#,
        "0".repeat(64)
    );
    for unix in [false, true] {
        let Some(said) = grpcurl(&site, unix, &["-d", &body], &["dormouse.files.v1.FilesService/Patch"]) else {
            return;
        };
        assert!(!said.success);
        for part in [
            "Code: Aborted",
            "google.rpc.ErrorInfo",
            "REVISION_MISMATCH",
            "\"actual_revision\"",
            &revision_of(b"one\n"),
            "dormouse.dev",
        ] {
            assert!(said.stderr.contains(part), "{part} is missing: {}", said.stderr);
        }
    }
    assert_eq!(site.content("/a"), b"one\n");
    let Some(said) = grpcurl(
        &site,
        true,
        &["-d", r#"{"workspace":"t/x","path":"relative"}"#],
        &["dormouse.files.v1.FilesService/Stat"],
    ) else {
        return;
    };
    for part in ["INVALID_REQUEST", "google.rpc.BadRequest", "fieldViolations"] {
        assert!(said.stderr.contains(part), "{part} is missing: {}", said.stderr);
    }
}
