//! The command line as a player: a process for each call, and `dormouse mcp` for the tools.

use std::{
    cell::Cell,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::ffi::OsStringExt as _,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormouse_tests::world::binary;
use serde_json::{Map, Value, json};

use super::{NAME, Place, Plays, Told, as_bytes, content};

pub struct CommandLine {
    endpoint: String,
    host: String,
    directory: PathBuf,
    wakes: bool,
    timeout: Duration,
    files: Cell<u32>,
    agent: Option<Agent>,
}

/// A `dormouse mcp`, and the lines that it says.
struct Agent {
    child: Child,
    lines: BufReader<ChildStdout>,
    asked: u64,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The end of its standard input ends it.
        drop(self.child.stdin.take());
        let status = self.child.wait();
        if !std::thread::panicking() {
            assert!(status.expect("its exit is known").success());
        }
    }
}

impl CommandLine {
    pub fn new(place: &Place) -> Self {
        Self {
            endpoint: place.endpoint.clone(),
            host: format!("unix:{}", place.host.display()),
            directory: place.directory.to_owned(),
            wakes: place.wakes,
            timeout: place.timeout,
            files: Cell::new(0),
            agent: None,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary("dormouse"));
        command
            .env("DORMOUSE_ENDPOINT", &self.endpoint)
            .env("DORMOUSE_HOST_ENDPOINT", &self.host)
            .env("XDG_CONFIG_HOME", &self.directory)
            .env_remove("DORMOUSE_TOKEN")
            .args(["--timeout", &format!("{}ms", self.timeout.as_millis())]);
        if self.wakes {
            let program = binary("dormouse");
            let wake =
                format!("echo woken >>'{}' && '{}' workspaces resume {NAME}", self.mark().display(), program.display());
            command.args(["--wake-command", &wake]);
        }
        command
    }

    fn mark(&self) -> PathBuf {
        self.directory.join("wakes")
    }

    /// A file of this machine that holds some bytes.
    fn file(&self, bytes: &[u8]) -> OsString {
        let number = self.files.get() + 1;
        self.files.set(number);
        let path = self.directory.join(format!("given-{number}"));
        fs::write(&path, bytes).expect("it is written");
        path.into()
    }

    fn words(&self, verb: &str, arguments: &Map<String, Value>) -> Vec<OsString> {
        let streamed = verb.ends_with("_iter");
        let name = match verb {
            "search_iter" => "search",
            "list_iter" => "list",
            "read_text" | "read_with_info" => "read",
            "remove" => "rm",
            "move" => "mv",
            "make_directory" => "mkdir",
            other => other,
        };
        let mut words: Vec<OsString> =
            ["files", name, if streamed { "--jsonl" } else { "--json" }].into_iter().map(OsString::from).collect();
        let mut place = vec![OsString::from(NAME), OsString::from_vec(as_bytes(&arguments["path"]))];
        let lines = |part: &str| arguments.get(part).and_then(Value::as_i64).map(|n| n.to_string()).unwrap_or_default();
        if arguments.contains_key("start_line") {
            words.push(format!("--lines={}:{}", lines("start_line"), lines("end_line")).into());
        }
        if verb == "read_with_info" {
            words.push("--revision".into());
        }
        for (key, value) in arguments {
            let plain = |flag: &str| {
                vec![OsString::from(format!(
                    "--{flag}={}",
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                ))]
            };
            let each = |flag: &str| {
                let list = value.as_array().expect("a list").iter();
                list.map(|item| OsString::from(format!("--{flag}={}", item.as_str().expect("a text")))).collect()
            };
            words.extend::<Vec<OsString>>(match (&**key, value) {
                ("path" | "start_line" | "end_line", _) => continue,
                ("pattern" | "new_path", value) => {
                    place.push(value.as_str().expect("a text").into());
                    continue;
                }
                ("content", value) if verb == "write" => {
                    place.push(self.file(&as_bytes(value)));
                    continue;
                }
                ("content", value) => vec!["--content-file".into(), self.file(&as_bytes(value))],
                ("edits", value) => vec!["--edits-file".into(), self.file(value.to_string().as_bytes())],
                ("exclude", Value::Array(list)) if list.is_empty() => vec!["--no-default-exclude".into()],
                ("include", _) => each("include"),
                ("exclude", _) => each("exclude"),
                ("case_insensitive", _) => vec!["-i".into()],
                ("validate_only", _) => vec!["--dry-run".into()],
                ("create_parents", _) if verb == "make_directory" => vec!["-p".into()],
                ("regex" | "revision" | "replace" | "recursive" | "create_parents", _) => {
                    vec![format!("--{}", key.replace('_', "-")).into()]
                }
                ("mode", value) => vec![format!("--mode={:o}", value.as_u64().expect("bits")).into()],
                ("context_lines", _) => plain("context"),
                ("max_matches" | "max_entries", _) => plain("max"),
                (other, _) => plain(&other.replace('_', "-")),
            });
        }
        words.push("--".into());
        words.extend(place);
        words
    }

    fn agent(&mut self) -> &mut Agent {
        if self.agent.is_none() {
            let mut child = self
                .command()
                .args(["mcp", "--workspace", NAME])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("dormouse starts");
            let lines = BufReader::new(child.stdout.take().expect("its stdout is piped"));
            let mut agent = Agent { child, lines, asked: 0 };
            agent.ask(
                "initialize",
                json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }),
            );
            agent.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
            self.agent = Some(agent);
        }
        self.agent.as_mut().expect("it was just started")
    }
}

impl Agent {
    fn say(&mut self, message: &Value) {
        let input = self.child.stdin.as_mut().expect("its stdin is piped");
        writeln!(input, "{message}").and_then(|()| input.flush()).expect("it listens");
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }));
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it answers");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["id"], self.asked, "{answer}");
        answer["result"].clone()
    }
}

impl Plays for CommandLine {
    fn call(&mut self, verb: &str, arguments: &Map<String, Value>) -> Option<Result<Value, Told>> {
        let words = self.words(verb, arguments);
        let output = self.command().args(&words).stdin(Stdio::null()).output().expect("dormouse starts");
        let code = output.status.code().expect("it was not killed");
        let said = String::from_utf8(output.stderr).expect("what it says is text");
        if code > 1 {
            let object = said.lines().last().unwrap_or_default();
            let object: Value =
                serde_json::from_str(object).unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"));
            return Some(Err(told(code, &object["error"])));
        }
        let text = String::from_utf8(output.stdout).expect("JSON is text");
        let mut objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        if verb.ends_with("_iter") {
            let mut items: Vec<Value> = objects.collect();
            let end = items.pop().expect("the last one holds the totals");
            assert_eq!(end["record"], "end");
            return Some(Ok(json!({ "items": items, "origin": end["origin"], "summary": end })));
        }
        let mut answer = objects.next().unwrap_or_else(|| panic!("{words:?}: {code} {said}"));
        if verb.starts_with("read") {
            let bytes = match (answer["content"].as_str(), answer["raw_content"].as_str()) {
                (Some(text), _) => text.as_bytes().to_vec(),
                (None, raw) => STANDARD.decode(raw.expect("content")).expect("base64"),
            };
            let told = content(&bytes);
            if verb != "read_with_info" {
                return Some(Ok(told));
            }
            answer["content"] = told;
        }
        Some(Ok(answer))
    }

    fn tool(&mut self, name: &str, arguments: &Value) -> (String, bool) {
        let result = self.agent().ask("tools/call", json!({ "name": name, "arguments": arguments }));
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{name}: {result}")).to_owned();
        (text, result["isError"] == true)
    }

    fn wakes(&self) -> u64 {
        fs::read_to_string(self.mark()).map_or(0, |text| text.lines().count() as u64)
    }

    fn refuses_itself(&self, told: &Told) -> bool {
        told.class == "InvalidRequest" && told.details.is_empty()
    }
}

/// The class that a script would tell by the exit code, and further by reason and code.
fn told(exit: i32, error: &Value) -> Told {
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let class = match (exit, &*text("reason"), &*text("code")) {
        (2, ..) => "InvalidRequest",
        (3, ..) => "NotFound",
        (4, "revision_mismatch", _) => "RevisionMismatch",
        (4, "edit_no_match", _) => "EditNoMatch",
        (4, "edit_not_unique", _) => "EditNotUnique",
        (4, ..) => "Conflict",
        (5, _, "payload_too_large") => "LimitExceeded",
        (5, _, "unauthenticated") => "Unauthenticated",
        (5, _, "insufficient_storage") => "StorageFull",
        (5, ..) => "PolicyDenied",
        (6, _, "workspace_not_running") => "WorkspaceNotRunning",
        (6, _, "timeout") => "DeadlineExceeded",
        (6, ..) => "DependencyUnavailable",
        (7, ..) => "HostFeatureUnavailable",
        (8, ..) => "DormouseError",
        other => panic!("{other:?}: {error}"),
    };
    let details = error["details"].as_object().into_iter().flatten();
    Told {
        class,
        reason: text("reason"),
        code: text("code"),
        retryable: error["retryable"] == true,
        details: details.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect(),
    }
}
