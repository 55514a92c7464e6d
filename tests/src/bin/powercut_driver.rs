//! Changes a directory workspace as it is told by lines, for whoever means to stop it in the middle: the power-cut rig
//! (`tests/powercut`) and the crash tests.
//!
//! Answers for: opening the workspace (which recovers it), carrying out requests on a few threads, one JSON object a line.
//! Never judges.
//! ```text
//! ► {"open":true}
//! ◄ {"id":1,"op":"patch","key":"k1","path":"/a","edits":[["old","new",false]]}
//! ► {"id":1,"ok":true,"replayed":false,"revision":"…"}
//! ```
//! `op` is patch (with `edits` or `content`), write, remove, move or make_directory; beside `key` and `path` there may be
//! `to`, `expected` (as on the wire), `mode`, `parents`, `replace`, `recursive`, and for a write `announced`: its revision
//! goes ahead of it. A refusal is `{"id":1,"ok":false,"error":"RevisionMismatch","message":"…"}`. At the end of its input
//! it finishes what it has and ends with 0.

use std::{
    error::Error,
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, mpsc},
    thread,
};

use bytes::Bytes;
use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::{Key, MakeDirectoryPlan, MovePlan, RemovePlan, WritePlan},
    patch::{Change, Edit, PatchPlan},
    path::TreePath,
    revision::{Expected, Revision},
};
use dormouse_live::{LiveLimits, Workspace, WriteBegin};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Most threads that may be asked for.
const THREAD_COUNT_MAX: usize = 64;
/// A Write's pieces: small enough that most writes have several.
const PIECE_BYTES: usize = 4 << 10;

type AnyError = Box<dyn Error + Send + Sync>;

/// The arguments.
struct Arguments {
    root: PathBuf,
    agent_state: PathBuf,
    threads: usize,
    /// A rule of the commit to leave out.
    without: Option<String>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("powercut_driver: {why}");
            return ExitCode::from(2);
        }
    };
    match open(&arguments) {
        Ok(workspace) => {
            say(&json!({"open": true}));
            serve(&workspace, arguments.threads);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&json!({"open": false, "message": chain(error.as_ref())}));
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut root, mut agent_state, mut threads, mut without) = (None, None, 1, None);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--root" => root = Some(PathBuf::from(value)),
            "--agent-state" => agent_state = Some(PathBuf::from(value)),
            "--threads" => threads = value.parse().map_err(|_| format!("{value} is no number of threads"))?,
            "--without" => without = Some(value),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    if !(1..=THREAD_COUNT_MAX).contains(&threads) {
        return Err(format!("1 to {THREAD_COUNT_MAX} threads"));
    }
    let root = root.ok_or("--root is missing")?;
    let agent_state = agent_state.ok_or("--agent-state is missing")?;
    Ok(Arguments { root, agent_state, threads, without })
}

/// Opens the workspace; with a rule of the commit left out, for the rig's controls.
#[cfg(feature = "failpoints")]
fn open(arguments: &Arguments) -> Result<Workspace, AnyError> {
    use dormouse_live::fail::Rule;
    let rule = match arguments.without.as_deref() {
        None => return Ok(Workspace::open(&arguments.root, &arguments.agent_state, LiveLimits::default())?),
        Some("file-flush") => Rule::FileFlush,
        Some("directory-flush") => Rule::DirectoryFlush,
        Some("intent") => Rule::Intent,
        Some("displaced-stays") => Rule::DisplacedStays,
        Some("name-before-flush") => Rule::NameBeforeFlush,
        Some(other) => return Err(format!("there is no rule {other}").into()),
    };
    Ok(Workspace::open_without(&arguments.root, &arguments.agent_state, LiveLimits::default(), rule)?)
}

#[cfg(not(feature = "failpoints"))]
fn open(arguments: &Arguments) -> Result<Workspace, AnyError> {
    match &arguments.without {
        None => Ok(Workspace::open(&arguments.root, &arguments.agent_state, LiveLimits::default())?),
        Some(rule) => Err(format!("only a build with the feature `failpoints` can leave out {rule}").into()),
    }
}

/// Hands each line to the next free thread, until there are no more.
fn serve(workspace: &Workspace, threads: usize) {
    let (sender, receiver) = mpsc::sync_channel::<String>(threads);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = receiver.lock().expect("no thread panics while it waits").recv();
                    let Ok(line) = next else { break };
                    say(&answer(workspace, &line));
                }
            });
        }
        for line in io::stdin().lock().lines() {
            let line = line.expect("the input is text");
            sender.send(line).expect("the threads wait for lines");
        }
        drop(sender);
    });
}

/// One whole line, or a panic: who started this process waits for it.
fn say(answer: &Value) {
    let line = format!("{answer}\n");
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes()).and_then(|()| output.flush()).expect("somebody listens");
}

fn answer(workspace: &Workspace, line: &str) -> Value {
    let mut request: Value = serde_json::from_str(line).expect("a request is JSON");
    let fields = request.as_object_mut().expect("a request is an object");
    let id = fields.remove("id").expect("a request has a number");
    let hash: [u8; 32] = Sha256::digest(request.to_string()).into();
    let mut done = match carry_out(workspace, &request, hash) {
        Ok(done) => done,
        Err(error) => match error.downcast_ref::<Fault>() {
            Some(fault) => json!({"ok": false, "error": name(fault), "message": chain(fault)}),
            None => panic!("{line}: {error}"),
        },
    };
    done["id"] = id;
    done
}

fn carry_out(workspace: &Workspace, request: &Value, hash: [u8; 32]) -> Result<Value, AnyError> {
    let text = |field: &str| request[field].as_str();
    let flag = |field: &str| request[field].as_bool().unwrap_or(false);
    let path = |field: &str| TreePath::parse_file(text(field).unwrap_or_default().as_bytes());
    let mode = || request["mode"].as_u64().map(u32::try_from).transpose();
    let key = Key::new(text("key").unwrap_or_default(), hash).ok_or("no key")?;
    let expected = Expected::parse(text("expected")).map_err(|text| format!("no revision: {text}"))?;
    match text("op").unwrap_or_default() {
        "patch" => {
            let plan = PatchPlan {
                path: path("path")?,
                change: change(request)?,
                expected,
                mode: mode()?,
                create_parents: flag("parents"),
                key,
                validate_only: false,
            };
            let done = workspace.patch(&plan, &Unbounded)?;
            Ok(happened(done.replayed, done.durable, Some(done.revision)))
        }
        "write" => {
            let content = text("content").ok_or("a write has a content")?.as_bytes();
            let plan = WritePlan {
                path: path("path")?,
                expected,
                mode: mode()?,
                create_parents: flag("parents"),
                key,
                content_revision: flag("announced").then(|| Revision::of(content)),
            };
            let done = match workspace.write(&plan)? {
                WriteBegin::Replayed(done) => done,
                WriteBegin::Staged(mut staged) => {
                    for piece in content.chunks(PIECE_BYTES) {
                        staged.append(piece)?;
                    }
                    staged.finish(u64::try_from(content.len())?, None, &Unbounded)?
                }
            };
            Ok(happened(done.replayed, done.durable, Some(done.revision)))
        }
        "remove" => {
            let plan = RemovePlan { path: path("path")?, expected, recursive: flag("recursive"), key };
            let done = workspace.remove(&plan, &Unbounded)?;
            Ok(happened(done.replayed, done.durable, None))
        }
        "move" => {
            let plan = MovePlan {
                path: path("path")?,
                new_path: path("to")?,
                replace: flag("replace"),
                expected,
                create_parents: flag("parents"),
                key,
            };
            let done = workspace.rename(&plan, &Unbounded)?;
            Ok(happened(done.replayed, done.durable, None))
        }
        "make_directory" => {
            let plan = MakeDirectoryPlan { path: path("path")?, mode: mode()?, create_parents: flag("parents"), key };
            let done = workspace.make_directory(&plan)?;
            Ok(happened(done.replayed, done.durable, None))
        }
        other => Err(format!("no such request: {other}").into()),
    }
}

fn change(request: &Value) -> Result<Change, AnyError> {
    if let Some(content) = request["content"].as_str() {
        return Ok(Change::Content(Bytes::copy_from_slice(content.as_bytes())));
    }
    let edits = request["edits"].as_array().ok_or("a patch has edits or a content")?;
    let edit = |edit: &Value| match (edit[0].as_str(), edit[1].as_str(), edit[2].as_bool()) {
        (Some(old), Some(new), Some(replace_all)) => {
            Ok(Edit { old_text: old.to_owned(), new_text: new.to_owned(), replace_all })
        }
        _ => Err(format!("no edit: {edit}").into()),
    };
    edits.iter().map(edit).collect::<Result<_, AnyError>>().map(Change::Edits)
}

fn happened(replayed: bool, durable: bool, revision: Option<Revision>) -> Value {
    let revision = revision.map(|revision| revision.to_string());
    json!({"ok": true, "replayed": replayed, "durable": durable, "revision": revision})
}

/// The name of a fault's variant.
fn name(fault: &Fault) -> String {
    format!("{fault:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// An error and all that caused it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
