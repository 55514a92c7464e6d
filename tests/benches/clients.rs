//! What the clients cost beside the plainest way to the same answer, in one run: `cargo bench -p dormouse-tests --bench clients`,
//! after `cargo build --release --bins`.
//!
//! | figure | beside | target |
//! |---|---|---|
//! | Python `read()` of 256 MiB, throughput | the same pieces streamed by plain grpcio and joined | at least 0.9 |
//! | `dormouse files stat` as a process, wall | the same by grpcurl, with its reflection | at most 0.3 |
//! | `search_files` over `dormouse mcp`, wall | the same Search by the Rust library on an open connection | at most 5 ms more |
//!
//! Rounds alternate; medians with their least and most. `DORMOUSE_PYTHON` names a Python with grpcio and protobuf, and
//! `DORMOUSE_GRPCURL` grpcurl; without them their figures are skipped. `DORMOUSE_BENCH_MIB` (256) and `DORMOUSE_BENCH_ROUNDS` (9)
//! change it.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use dormouse_client::{Endpoint, FilesClient, proto::files::v1 as pb};
use dormouse_tests::{
    site::put,
    skip,
    world::{Setup, World, binary},
};
use serde_json::{Value, json};

const WORKSPACE: &str = "bench/tree";

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let (mebibytes, rounds) = (number("DORMOUSE_BENCH_MIB", 256), number("DORMOUSE_BENCH_ROUNDS", 9));
    let directory = tempfile::tempdir().expect("a place for the files");
    let root = directory.path().join("root");
    put(&root, "p/app.py", "import os\n# TODO: tidy\n".repeat(20));
    fs::write(root.join("big"), vec![b'x'; mebibytes << 20]).expect("a file");
    let world = Setup::new().directory(WORKSPACE, &root).start();
    if let Some(python) = skip::tool("DORMOUSE_PYTHON", "the benchmark of the Python library") {
        read_by_python(&python, &world, rounds);
    }
    if let Some(grpcurl) = skip::tool("DORMOUSE_GRPCURL", "the benchmark of the command line") {
        stat_by_process(&grpcurl, &world, rounds * 3);
    }
    search_by_tool(&world, rounds * 20);
}

/// The median, the least and the most.
fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn read_by_python(python: &OsStr, world: &World, rounds: usize) {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the project");
    let output = Command::new(python)
        .arg(project.join("tests/clients/python/throughput.py"))
        .args([&format!("unix:{}", world.unix.display()), WORKSPACE, "/big", &rounds.to_string()])
        .env("PYTHONPATH", project.join("client/python/src"))
        .stderr(Stdio::inherit())
        .output()
        .expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut ratios: Vec<f64> = said["ratios"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    let (median, least, most) = spread(&mut ratios);
    let checked =
        if said["checked"] == true { "its sum checked" } else { "its sum not checked, for want of google-crc32c" };
    println!(
        "Python read() ÷ plain grpcio, throughput, {checked}: {median:.2} ({least:.2}-{most:.2}), target at least 0.9"
    );
}

fn stat_by_process(grpcurl: &OsStr, world: &World, rounds: usize) {
    let ours = || {
        let mut command = Command::new(binary("dormouse"));
        command.args(["files", "stat", WORKSPACE, "/p/app.py", "--json", "--endpoint"]);
        command.arg(format!("unix:{}", world.unix.display()));
        wall(&mut command)
    };
    let request = json!({ "workspace": WORKSPACE, "path": "/p/app.py" }).to_string();
    let theirs = || {
        let mut command = Command::new(grpcurl);
        command.args(["-plaintext", "-unix", "-d", &request]).arg(&world.unix);
        wall(command.arg("dormouse.files.v1.FilesService/Stat"))
    };
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let ratio = ours().as_secs_f64() / theirs().as_secs_f64();
        if round > 0 {
            ratios.push(ratio);
        }
    }
    let (median, least, most) = spread(&mut ratios);
    println!("dormouse files stat ÷ grpcurl, wall: {median:.2} ({least:.2}-{most:.2}), target at most 0.3");
}

fn wall(command: &mut Command) -> Duration {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    begin.elapsed()
}

fn search_by_tool(world: &World, rounds: usize) {
    let endpoint = format!("unix:{}", world.unix.display());
    let mut mcp = Command::new(binary("dormouse"))
        .args(["mcp", "--workspace", WORKSPACE, "--endpoint", &endpoint])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("dormouse starts");
    let mut input = mcp.stdin.take().expect("its stdin is piped");
    let mut lines = BufReader::new(mcp.stdout.take().expect("its stdout is piped"));
    let mut ask = |message: Value, answered: bool| {
        writeln!(input, "{message}").expect("it listens");
        let mut line = String::new();
        if answered {
            lines.read_line(&mut line).expect("it answers");
        }
        line
    };
    let client = json!({ "name": "bench", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    ask(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }), true);
    ask(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }), false);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let files =
        runtime.block_on(async { FilesClient::new(endpoint.parse::<Endpoint>().expect("an endpoint").channel()) });
    let mut more = Vec::new();
    for round in 0..=rounds {
        let call = json!({ "name": "search_files", "arguments": { "path": "/p", "pattern": "TODO" } });
        let begin = Instant::now();
        let answer = ask(json!({ "jsonrpc": "2.0", "id": round + 1, "method": "tools/call", "params": call }), true);
        let tool = begin.elapsed();
        assert!(answer.contains("TODO"), "{answer}");
        let request = pb::SearchRequest {
            workspace: WORKSPACE.into(),
            path: "/p".into(),
            pattern: "TODO".into(),
            ..pb::SearchRequest::default()
        };
        let begin = Instant::now();
        let found = runtime.block_on(async { files.search(request).await?.collect().await }).expect("a search");
        let rpc = begin.elapsed();
        assert_eq!(found.0.len(), 20);
        if round > 0 {
            more.push((tool.as_secs_f64() - rpc.as_secs_f64()) * 1_000.0);
        }
    }
    drop(input);
    assert!(mcp.wait().expect("its exit is known").success());
    let (median, least, most) = spread(&mut more);
    println!("search_files over MCP − the same RPC: {median:.2} ms ({least:.2}-{most:.2}), target at most 5 ms");
}
