//! `tests/scenarios.json`, which every client plays: here the Rust library and the command line; the Python and TypeScript
//! libraries play it in their own tests.

mod command;
mod library;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{ffi::OsStringExt as _, fs::symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormouse_proto::host::v1::{
    ResumeWorkspaceRequest, SuspendWorkspaceRequest, host_service_client::HostServiceClient,
};
use dormouse_tests::{
    site::revision_of,
    world::{Setup, World, binary},
};
use regex::Regex;
use serde_json::{Map, Value, json};

const NAME: &str = "customer-42/main";

/// What a client's error says, in the words of the scenarios.
#[derive(Debug)]
struct Told {
    class: &'static str,
    reason: String,
    code: String,
    retryable: bool,
    details: BTreeMap<String, String>,
}

/// A client that plays.
trait Plays {
    /// Makes a call; nothing where this client cannot express it.
    fn call(&mut self, verb: &str, arguments: &Map<String, Value>) -> Option<Result<Value, Told>>;
    /// Calls one of the agents' tools; what it says, and whether that is an error.
    fn tool(&mut self, name: &str, arguments: &Value) -> (String, bool);
    /// How often the workspace was woken.
    fn wakes(&self) -> u64;
    /// Of a refusal that this client makes itself, before anything is sent, only its class is compared.
    fn refuses_itself(&self, _: &Told) -> bool {
        false
    }
}

/// Where a client finds its host.
struct Place<'a> {
    endpoint: String,
    host: &'a Path,
    /// For the client's own files.
    directory: &'a Path,
    /// It has a way to wake a workspace.
    wakes: bool,
    /// For a whole call.
    timeout: Duration,
}

/// Plays all scenarios.
fn play<P: Plays>(start: impl Fn(&Place) -> P) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios.json")).expect("the scenarios");
    let file: Value = serde_json::from_str(&text).expect("the scenarios are JSON");
    let scenarios = file["scenarios"].as_array().expect("a list");
    assert!(scenarios.len() > 10, "there is something to play");
    for scenario in scenarios {
        eprintln!("scenario: {}", scenario["name"]);
        play_one(scenario, &start);
    }
}

fn play_one<P: Plays>(scenario: &Value, start: &impl Fn(&Place) -> P) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path().join("files");
    fs::create_dir(&root).expect("a directory");
    let mut setup = Setup::new().directory(NAME, &root);
    for feature in scenario["without"].as_array().into_iter().flatten() {
        setup = setup.without(feature.as_str().expect("a feature's name"));
    }
    let world = setup.start();
    for (path, value) in scenario["files"].as_object().expect("files") {
        put(&root, path, value);
    }
    let double = scenario.get("double").map(|plan| Double::start(plan, &world));
    let mut client = start(&Place {
        endpoint: double
            .as_ref()
            .map_or_else(|| format!("tcp:{}", world.tcp), |double| format!("tcp:{}", double.address)),
        host: &world.host,
        directory: place.path(),
        wakes: scenario["waker"] == true,
        timeout: Duration::from_millis(scenario["timeout_ms"].as_u64().unwrap_or(60_000)),
    });
    let mut stage = Stage { world: &world, root, saved: BTreeMap::new() };
    for step in scenario["steps"].as_array().expect("steps") {
        stage.step(step, &mut client);
    }
    if let Some(wakes) = scenario["wakes"].as_u64() {
        assert_eq!(client.wakes(), wakes, "how often it was woken");
    }
    drop(client);
    if let Some(double) = double {
        let said = double.end();
        assert_eq!(said["left"], 0, "the script was not played to its end: {said}");
        matches(&scenario["asked"], &said["asked"], "asked");
    }
}

/// The program that stands before the agent and misbehaves.
struct Double {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Double {
    fn start(plan: &Value, world: &World) -> Self {
        let mut plan = plan.clone();
        plan["upstream"] = world.tcp.clone().into();
        plan["host"] = world.host.display().to_string().into();
        plan["workspace"] = NAME.into();
        let mut child = Command::new(binary("dormouse_double"))
            .arg(plan.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the double starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its stdout is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says where it listens");
        let ready: Value = serde_json::from_str(&line).expect("JSON");
        Self { child, lines, address: ready["listen"].as_str().expect("an address").to_owned() }
    }

    /// What it was asked.
    fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it says what it was asked");
        assert!(self.child.wait().expect("its exit is known").success());
        serde_json::from_str(&line).expect("JSON")
    }
}

struct Stage<'a> {
    world: &'a World,
    root: PathBuf,
    saved: BTreeMap<String, Value>,
}

impl Stage<'_> {
    fn step(&mut self, step: &Value, client: &mut impl Plays) {
        if let Some(what) = step["host"].as_str() {
            transition(&self.world.host, what);
        } else if let Some(files) = step["behind"].as_object() {
            files.iter().for_each(|(path, value)| put(&self.root, path, value));
        } else if let Some(name) = step["tool"].as_str() {
            self.tool(name, step, client);
        } else {
            self.call(step["call"].as_str().expect("a step's kind"), step, client);
        }
    }

    fn tool(&mut self, name: &str, step: &Value, client: &mut impl Plays) {
        let (text, is_error) = client.tool(name, &self.value(&step["arguments"]));
        if let Some(parts) = step["error_text"].as_array() {
            assert!(is_error, "{name}: {text}");
            for part in parts {
                let part = self.value(part);
                assert!(text.contains(part.as_str().expect("a text")), "{part} is missing: {text}");
            }
            return;
        }
        assert!(!is_error, "{name}: {text}");
        let mut answer: Value = serde_json::from_str(&text).expect("JSON");
        answer["$size"] = text.len().into();
        if let Some(shown) = answer["matches"].as_array().map(Vec::len) {
            answer["$total_matches"] = (shown as u64 + answer["omitted_matches"].as_u64().expect("a count")).into();
        }
        self.answered(step, &answer, name);
    }

    fn call(&mut self, verb: &str, step: &Value, client: &mut impl Plays) {
        let arguments = self.value(&step["arguments"]);
        let Some(result) = client.call(verb, arguments.as_object().expect("arguments")) else {
            // What a client's types do not let anyone say needs no refusal.
            assert_eq!(step["error"]["class"], "InvalidRequest", "{verb} {arguments}");
            return;
        };
        match (result, step.get("error")) {
            (Ok(answer), None) => self.answered(step, &answer, verb),
            (Err(told), Some(expect)) => self.failed(expect, &told, client.refuses_itself(&told)),
            (result, expect) => panic!("{verb} {arguments}: {result:?}, not {expect:?}"),
        }
    }

    fn answered(&mut self, step: &Value, answer: &Value, what: &str) {
        if let Some(expect) = step.get("expect") {
            matches(&self.value(expect), answer, what);
        }
        for (name, member) in step["save"].as_object().into_iter().flatten() {
            self.saved.insert(name.clone(), answer[member.as_str().expect("a member's name")].clone());
        }
    }

    fn failed(&self, expect: &Value, told: &Told, only_class: bool) {
        assert_eq!(expect["class"], told.class, "{told:?}");
        if only_class {
            return;
        }
        let lines: Vec<u64> = told
            .details
            .get("lines")
            .into_iter()
            .flat_map(|lines| lines.split(','))
            .flat_map(|line| line.trim().parse())
            .collect();
        let actual = json!({
            "reason": told.reason, "code": told.code, "retryable": told.retryable, "lines": lines,
            "feature": told.details.get("feature"), "current": told.details.get("actual_revision"), "details": told.details,
        });
        let mut expect = self.value(expect);
        expect.as_object_mut().expect("an object").remove("class");
        matches(&expect, &actual, &format!("{told:?}"));
    }

    /// A value of the file as an argument, or as what is expected.
    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let saved = Regex::new(r"\$\{(\w+)\}").expect("a pattern");
                let name = |found: &regex::Captures<'_>| match &self.saved[&found[1]] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                saved.replace_all(text, name).into_owned().into()
            }
            Value::Array(list) => list.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) if members.contains_key("$sha256") => {
                revision_of(&as_bytes(&members["$sha256"])).into()
            }
            Value::Object(members) => members.iter().map(|(key, item)| (key.clone(), self.value(item))).collect(),
            other => other.clone(),
        }
    }
}

/// Suspends or resumes the workspace, as a control plane would.
fn transition(socket: &Path, what: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut host = HostServiceClient::connect(format!("unix:{}", socket.display())).await.expect("the host");
        let name = NAME.to_owned();
        if what == "suspend" {
            let request = SuspendWorkspaceRequest { name, ..SuspendWorkspaceRequest::default() };
            host.suspend_workspace(request).await.map(drop).expect("it suspends");
        } else {
            let request = ResumeWorkspaceRequest { name, ..ResumeWorkspaceRequest::default() };
            host.resume_workspace(request).await.map(drop).expect("it resumes");
        }
    });
}

/// Writes into the directory, past the agent.
fn put(root: &Path, path: &str, value: &Value) {
    if let Some(name) = value["$raw_name"].as_str() {
        let name = STANDARD.decode(name).expect("base64");
        let name = std::ffi::OsString::from_vec(name[1..].to_vec());
        return fs::write(root.join(name), as_bytes(&value["content"])).expect("it is written");
    }
    let place = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(place.parent().expect("a parent")).expect("a directory");
    if let Some(target) = value["$link"].as_str() {
        symlink(target, place).expect("a link");
    } else if value["$directory"] == true {
        fs::create_dir(place).expect("a directory");
    } else {
        fs::write(place, as_bytes(value)).expect("it is written");
    }
}

/// A text, `{"$base64": b}` or `{"$fill": [text, size]}` as bytes.
fn as_bytes(value: &Value) -> Vec<u8> {
    if let Some(text) = value.as_str() {
        return text.as_bytes().to_vec();
    }
    if let Some(text) = value["$base64"].as_str() {
        return STANDARD.decode(text).expect("base64");
    }
    let (text, size) = (value["$fill"][0].as_str().expect("a text"), value["$fill"][1].as_u64().expect("a size"));
    text.bytes().cycle().take(usize::try_from(size).expect("a size")).collect()
}

/// What a client that gives bytes is compared by.
fn content(bytes: &[u8]) -> Value {
    let mut told = json!({ "size_bytes": bytes.len(), "sha256": revision_of(bytes) });
    if let Ok(text) = std::str::from_utf8(bytes) {
        told["text"] = text.into();
    }
    told
}

/// Fails, naming the place, where the answer is not what is expected.
#[track_caller]
fn matches(expect: &Value, actual: &Value, place: &str) {
    let rule = expect.as_object().filter(|members| members.len() == 1).and_then(|members| members.iter().next());
    match (rule, expect) {
        (Some((name, limit)), _) if name == "$length" => {
            let length = actual.as_array().map(Vec::len).or_else(|| actual.as_str().map(|text| text.chars().count()));
            assert_eq!(length, limit.as_u64().map(|limit| limit as usize), "{place}: {actual}");
        }
        (Some((name, limit)), _) if name == "$most" => assert!(actual.as_u64() <= limit.as_u64(), "{place}: {actual}"),
        (Some((name, pattern)), _) if name == "$pattern" => {
            let pattern = Regex::new(pattern.as_str().expect("a pattern")).expect("a pattern");
            assert!(pattern.is_match(actual.as_str().unwrap_or_default()), "{place}: {actual}");
        }
        (Some((name, bytes)), _) if name == "$base64" => assert_eq!(bytes, actual, "{place}"),
        (_, Value::Object(members)) => {
            assert!(actual.is_object(), "{place}: {actual}");
            for (key, value) in members {
                let place = format!("{place}.{key}");
                match (actual.get(key), value) {
                    (found, value) if value["$absent"] == true => assert_eq!(found, None, "{place}"),
                    // Where a client has no null, the member is not there.
                    (None, Value::Null) => {}
                    (Some(found), value) => matches(value, found, &place),
                    (None, _) => panic!("{place} is missing in {actual}"),
                }
            }
        }
        (_, Value::Array(list)) => {
            let found = actual.as_array().unwrap_or_else(|| panic!("{place}: {actual}"));
            assert_eq!(found.len(), list.len(), "{place}: {actual}");
            list.iter()
                .zip(found)
                .enumerate()
                .for_each(|(at, (value, found))| matches(value, found, &format!("{place}[{at}]")));
        }
        _ => assert_eq!(actual, expect, "{place}"),
    }
}

#[test]
fn the_library_plays_every_scenario() {
    play(library::Library::new);
}

#[test]
fn the_command_line_plays_every_scenario() {
    play(command::CommandLine::new);
}
