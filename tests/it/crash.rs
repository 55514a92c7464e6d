//! A process that changes a workspace is killed again and again, in the middle of several changes at once. Whatever it had
//! answered is there exactly once, and whoever retries with its key gets what it asked for exactly once.
//!
//! SIGKILL leaves the kernel's memory whole, so this is about the order of steps and recovery; what a power cut leaves is
//! `tests/powercut`'s.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use dormouse_proto::files::v1::{self as pb, files_service_client::FilesServiceClient};
use dormouse_tests::world::{Setup, World};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{runtime::Runtime, task::JoinHandle};
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

/// Clients that each have one request under way.
const CLIENT_COUNT: usize = 32;
/// Files that all clients change.
const SHARED_COUNT: usize = 8;
/// The agent's workspace.
const WORKSPACE: &str = "work";
/// Most time for one answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The last line of every shared file, before which each edit puts its own.
const LAST_LINE: &str = "the end\n";

/// How often the process is killed.
const KILL_COUNT: usize = 300;

#[test]
fn what_a_killed_driver_answered_is_there_once() {
    tell::<Driver>();
}

#[test]
fn what_a_killed_agent_answered_is_there_once() {
    tell::<Agent>();
}

fn tell<P: Process>() {
    let mut fleet = Fleet::new(0x5eed);
    for _ in 0..KILL_COUNT {
        fleet.killed_round::<P>();
    }
    fleet.last_round::<P>();
    let answered: usize = fleet.clients.iter().map(|client| client.answered.len()).sum();
    let rescued: usize = fleet.clients.iter().map(|client| client.rescued).sum();
    println!("{} kills, {answered} changes, {rescued} of them happened unheard before a kill", KILL_COUNT);
    assert!(answered > KILL_COUNT, "only {answered} changes were made: the test showed nothing");
    assert!(rescued > KILL_COUNT / 50, "no kill came between a change and its answer: the test showed nothing");
}

/// Who changes the workspace, and is killed.
trait Process: Sized {
    /// Starts it on `root` and `state` in a directory; it may still be opening the workspace.
    fn start(directory: &Path) -> Self;
    /// Waits until it takes requests.
    fn wait_open(&mut self);
    /// Sends a client's request, with nothing else of that client under way.
    fn send(&mut self, number: usize, request: Value);
    /// The next answer, with its client.
    fn receive(&mut self) -> Option<(usize, Value)>;
    /// Kills it, and returns what it had answered before.
    fn kill(self) -> Vec<(usize, Value)>;
    /// Lets it end well.
    fn finish(self);

    fn ask(&mut self, number: usize, request: Value) -> Value {
        self.send(number, request);
        self.receive().expect("it answers").1
    }
}

/// A workspace, and clients that change it through one process after the other.
struct Fleet {
    directory: TempDir,
    clients: Vec<Client>,
    random: Random,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in ["root", "state", "agent"] {
            let path = directory.path().join(name);
            fs::create_dir(&path).expect("a directory is made");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("its mode is set");
        }
        for number in 0..SHARED_COUNT {
            fs::write(directory.path().join(format!("root/shared{number}")), LAST_LINE).expect("a file is written");
        }
        let clients = (0..CLIENT_COUNT).map(Client::new).collect();
        Self { directory, clients, random: Random(seed) }
    }

    /// A process that is killed: while it opens the workspace, or after a few answers, with all other requests under way.
    fn killed_round<P: Process>(&mut self) {
        let mut process = P::start(self.directory.path());
        if self.random.below(8) == 0 {
            self.random.moment();
            process.kill();
            return;
        }
        process.wait_open();
        for client in &mut self.clients {
            process.send(client.number, client.request());
        }
        for _ in 0..self.random.below(40) {
            let (number, answer) = process.receive().expect("nobody has killed it yet");
            let client = &mut self.clients[number];
            client.take(&answer);
            process.send(number, client.request());
        }
        self.random.moment();
        // An answer that was given before the end is an answer.
        for (number, answer) in process.kill() {
            self.clients[number].take(&answer);
        }
        for client in &mut self.clients {
            client.is_retry = client.under_way.is_some();
        }
    }

    /// A process that may finish: what is under way is retried, then everything that was ever answered; then the files
    /// are looked at.
    fn last_round<P: Process>(&mut self) {
        let mut process = P::start(self.directory.path());
        process.wait_open();
        for client in &mut self.clients {
            if client.under_way.is_some() {
                let answer = process.ask(client.number, client.request());
                client.take(&answer);
            }
            for request in &client.answered {
                let answer = process.ask(client.number, request.clone());
                assert_eq!(answer["replayed"], true, "{request} is not remembered: {answer}");
            }
        }
        process.finish();
        self.check_files();
    }

    fn check_files(&self) {
        let root = self.directory.path().join("root");
        let mut expected = BTreeMap::new();
        for number in 0..SHARED_COUNT {
            expected.insert(root.join(format!("shared{number}")), None);
        }
        for client in &self.clients {
            if let Some(own) = client.own_file() {
                expected.insert(root.join(own), Some(client.own_content()));
            }
        }
        let found = files(&root);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "other files than expected");
        for (path, content) in expected {
            if let Some(content) = content {
                assert_eq!(found[&path], content, "{}", path.display());
            }
        }
        for number in 0..SHARED_COUNT {
            let text = &found[&root.join(format!("shared{number}"))];
            let lines = text.strip_suffix(LAST_LINE).expect("the last line is there").lines();
            let mut lines: Vec<_> = lines.map(str::to_owned).collect();
            let mut wanted: Vec<_> = self.clients.iter().flat_map(|client| client.lines_in(number)).collect();
            lines.sort_unstable();
            wanted.sort_unstable();
            let other = lines.iter().zip(&wanted).find(|(line, wanted)| line != wanted);
            assert!(
                other.is_none() && lines.len() == wanted.len(),
                "shared{number}: {} lines of {}: {other:?}",
                lines.len(),
                wanted.len()
            );
        }
    }
}

/// A client that sends one request after the other, and the same one again until it is answered.
struct Client {
    number: usize,
    /// Of requests, ever.
    sent: usize,
    under_way: Option<Value>,
    /// Whether it was sent to an earlier process too.
    is_retry: bool,
    answered: Vec<Value>,
    /// Retries of what had happened, though nobody had said so before the kill.
    rescued: usize,
}

impl Client {
    fn new(number: usize) -> Self {
        Self { number, sent: 0, under_way: None, is_retry: false, answered: Vec::new(), rescued: 0 }
    }

    /// What is under way, or the next one. In turns: three edits of shared files, then a file of its own is made, moved
    /// or removed.
    fn request(&mut self) -> Value {
        let (number, turn) = (self.number, self.sent);
        let sent = &mut self.sent;
        self.under_way
            .get_or_insert_with(|| {
                *sent += 1;
                let key = format!("c{number}-{turn}");
                let own = turn / 4;
                let (made, moved) = (format!("/own{number}/deep/made"), format!("/own{number}/moved"));
                match (turn % 4, own % 3) {
                    (3, 0) => json!({"op": "patch", "key": key, "path": made, "content": key,
                                     "expected": "absent", "parents": true}),
                    (3, 1) => json!({"op": "move", "key": key, "path": made, "to": moved}),
                    (3, _) => json!({"op": "remove", "key": key, "path": moved}),
                    _ => {
                        let line = format!("{key} {}", "x".repeat(turn * 37 % 900));
                        let edit = json!([LAST_LINE, format!("{line}\n{LAST_LINE}"), false]);
                        let path = format!("/shared{}", (number + turn) % SHARED_COUNT);
                        json!({"op": "patch", "key": key, "path": path, "edits": [edit]})
                    }
                }
            })
            .clone()
    }

    fn take(&mut self, answer: &Value) {
        let request = self.under_way.take().expect("an answer follows a request");
        assert_eq!(answer["ok"], true, "{request} is refused: {answer}");
        let replayed = answer["replayed"] == true;
        assert!(self.is_retry || !replayed, "{request} was never sent before: {answer}");
        self.rescued += usize::from(replayed);
        self.is_retry = false;
        self.answered.push(request);
    }

    /// Where its own file is, after all that was answered.
    fn own_file(&self) -> Option<String> {
        let last = self.answered.iter().rev().find(|request| request["edits"].is_null())?;
        let path = match last["op"].as_str()? {
            "patch" => last["path"].as_str()?,
            "move" => last["to"].as_str()?,
            _ => return None,
        };
        Some(path.trim_start_matches('/').to_owned())
    }

    fn own_content(&self) -> String {
        let made = self.answered.iter().rev().find_map(|request| request["content"].as_str());
        made.expect("who has a file of its own has made it").to_owned()
    }

    /// The lines that its answered edits put into a shared file.
    fn lines_in(&self, shared: usize) -> impl Iterator<Item = String> {
        let path = format!("/shared{shared}");
        self.answered.iter().filter(move |request| request["path"] == path.as_str()).map(|request| {
            let new = request["edits"][0][1].as_str().expect("an edit has a new text");
            new.strip_suffix(LAST_LINE).and_then(|line| line.strip_suffix('\n')).expect("it is a line").to_owned()
        })
    }
}

/// A `powercut_driver` in a process of its own.
struct Driver {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Driver {
    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("its output is text");
        // Killed in the middle of a line, it has not answered.
        line.ends_with('\n').then(|| serde_json::from_str(&line).expect("a line is JSON"))
    }
}

impl Process for Driver {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_powercut_driver"))
            .arg("--root")
            .arg(directory.join("root"))
            .arg("--agent-state")
            .arg(directory.join("agent"))
            .args(["--threads", &CLIENT_COUNT.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the driver starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is piped"));
        Self { child, lines }
    }

    fn wait_open(&mut self) {
        let opened = self.line().expect("it says whether the workspace opens");
        assert_eq!(opened["open"], true, "{opened}");
    }

    fn send(&mut self, number: usize, mut request: Value) {
        request["id"] = number.into();
        let input = self.child.stdin.as_mut().expect("its input is piped");
        input.write_all(format!("{request}\n").as_bytes()).expect("it takes a line");
    }

    fn receive(&mut self) -> Option<(usize, Value)> {
        self.line().and_then(numbered)
    }

    fn kill(mut self) -> Vec<(usize, Value)> {
        self.child.kill().expect("SIGKILL is sent");
        self.child.wait().expect("its end is known");
        std::iter::from_fn(|| self.line()).filter_map(numbered).collect()
    }

    fn finish(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("its end is known");
        assert!(status.success(), "the driver ended with {status}");
    }
}

/// The real agent, asked over gRPC.
struct Agent {
    world: World,
    runtime: Runtime,
    client: FilesServiceClient<Channel>,
    under_way: Vec<JoinHandle<()>>,
    sender: mpsc::Sender<(usize, Value)>,
    answers: mpsc::Receiver<(usize, Value)>,
}

impl Process for Agent {
    fn start(directory: &Path) -> Self {
        let world = Setup::new().directory(WORKSPACE, &directory.join("root")).state(&directory.join("agent")).start();
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(world.files());
        let (sender, answers) = mpsc::channel();
        Self { world, runtime, client, under_way: Vec::new(), sender, answers }
    }

    /// It says that it is ready only then.
    fn wait_open(&mut self) {}

    fn send(&mut self, number: usize, request: Value) {
        let (client, sender) = (self.client.clone(), self.sender.clone());
        self.under_way.push(self.runtime.spawn(async move {
            if let Some(answer) = call(client, &request).await {
                sender.send((number, answer)).expect("the test waits for answers");
            }
        }));
    }

    fn receive(&mut self) -> Option<(usize, Value)> {
        self.answers.recv_timeout(PATIENCE).ok()
    }

    fn kill(self) -> Vec<(usize, Value)> {
        self.world.kill();
        for task in self.under_way {
            self.runtime.block_on(task).expect("a call ends");
        }
        self.answers.try_iter().collect()
    }

    fn finish(mut self) {
        let (status, _) = self.world.terminate();
        assert!(status.success(), "the agent ended with {status}:\n{}", self.world.log_text());
    }
}

/// Asks the agent; nothing where it did not live to answer.
async fn call(mut client: FilesServiceClient<Channel>, request: &Value) -> Option<Value> {
    let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
    let (workspace, path, idempotency_key) = (WORKSPACE.to_owned(), text("path"), text("key"));
    let answer = match request["op"].as_str() {
        Some("patch") => {
            let change = match request["content"].as_str() {
                Some(content) => pb::patch_request::Change::Content(content.to_owned().into()),
                None => {
                    let edit = &request["edits"][0];
                    let [old_text, new_text] = [0, 1].map(|side| edit[side].as_str().unwrap_or_default().to_owned());
                    let edits = vec![pb::Edit { old_text, new_text, replace_all: false }];
                    pb::patch_request::Change::Edits(pb::EditList { edits })
                }
            };
            let asked = pb::PatchRequest {
                workspace,
                path,
                change: Some(change),
                expected_revision: request["expected"].as_str().map(str::to_owned),
                create_parents: request["parents"] == true,
                idempotency_key,
                ..Default::default()
            };
            client.patch(asked).await.map(|answer| answer.into_inner().replayed)
        }
        Some("move") => {
            let asked =
                pb::MoveRequest { workspace, path, new_path: text("to"), idempotency_key, ..Default::default() };
            client.r#move(asked).await.map(|answer| answer.into_inner().replayed)
        }
        Some("remove") => {
            let asked = pb::RemoveRequest { workspace, path, idempotency_key, ..Default::default() };
            client.remove(asked).await.map(|answer| answer.into_inner().replayed)
        }
        _ => panic!("{request} is none of the clients' requests"),
    };
    match answer {
        Ok(replayed) => Some(json!({"ok": true, "replayed": replayed})),
        // What the agent itself refuses has a reason; the rest is a broken connection.
        Err(status) => status.get_details_error_info().map(|info| json!({"ok": false, "error": info.reason})),
    }
}

/// An answer with its client's number; nothing for a line that answers nobody.
fn numbered(line: Value) -> Option<(usize, Value)> {
    let number = usize::try_from(line["id"].as_u64()?).expect("it is a client's number");
    Some((number, line))
}

/// Numbers that are the same in every run (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Lets up to 3 ms pass: nothing waits for anything, only the moment of the kill is varied.
    fn moment(&mut self) {
        thread::sleep(Duration::from_micros(self.below(3_000)));
    }
}

/// Every file beneath a directory, with its text.
fn files(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory lists") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let text = fs::read_to_string(&path).expect("a file is text");
            found.insert(path, text);
        }
    }
    found
}
