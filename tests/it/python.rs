//! A stock Python client, generated while the test runs, with the default settings of grpcio.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path, process::Command};

use dormouse_tests::{
    site::{Site, put},
    skip,
};

fn fill(root: &Path) {
    put(root, "hello.txt", "hello\n");
    put(root, "sub/app.py", "import os\n# TODO\n");
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff.txt")), "TODO\n").expect("a name of any bytes");
    put(root, "large", (0..5_u32 << 20).map(|place| (place % 251) as u8).collect::<Vec<_>>());
    for number in 0..10 {
        put(root, &format!("wide/{number}"), format!("{}\n", "x".repeat(999)).repeat(1_000));
    }
}

/// Generates the client from the contract and lets it check one thing, over TCP and over the Unix socket.
#[track_caller]
fn check(name: &str) {
    let Some(python) = skip::tool("DORMOUSE_PYTHON", "a stock Python client") else { return };
    let site = Site::both("48M", fill);
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the project");
    let generated = site.place().join("generated");
    fs::create_dir(&generated).expect("a directory");
    let output = Command::new(&python)
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(project.join("proto"))
        .arg(format!("--python_out={}", generated.display()))
        .arg(format!("--grpc_python_out={}", generated.display()))
        .arg("dormouse/files/v1/files.proto")
        .output()
        .expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let addresses = [site.world.tcp.clone(), format!("unix:{}", site.world.unix.display())];
    for address in &addresses[..if name == "change" { 1 } else { 2 }] {
        let output = Command::new(&python)
            .arg(project.join("tests/clients/python/stock.py"))
            .args([address, name])
            .env("PYTHONPATH", &generated)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("Python starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said == "ok\n",
            "{address}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn it_makes_a_unary_call() {
    check("unary");
}

#[test]
fn it_takes_a_stream() {
    check("stream");
}

#[test]
fn it_finds_the_reason_of_an_error() {
    check("errors");
}

#[test]
fn it_reads_a_name_that_is_not_utf_8() {
    check("strange_name");
}

#[test]
fn it_reads_5_mib_with_its_default_limit() {
    check("large_read");
}

#[test]
fn it_takes_a_search_that_fills_4_mib() {
    check("large_search");
}

#[test]
fn it_changes_a_file_once() {
    check("change");
}
