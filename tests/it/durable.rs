//! An answer comes after the change is on stable storage, and a crash changes nothing that was answered.

use std::fs;

use dormouse_proto::files::v1 as pb;
use dormouse_tests::{
    ask,
    site::{LIVE, Site, put, revision_of, snapshot},
    trace::Trace,
    world::Setup,
};

/// One system call of a trace: its name, what it was asked, and the lines where it began and ended.
#[derive(Debug)]
struct Call {
    name: String,
    what: String,
    begin: usize,
    end: usize,
}

/// The calls of a trace of strace -f -y, in the order in which they began.
fn calls(notes: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: Vec<(String, usize)> = Vec::new();
    for (number, line) in notes.lines().enumerate() {
        let Some((thread, rest)) = line.trim_start().split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("<... ") {
            if let Some(place) = open.iter().position(|(one, _)| one == thread) {
                let (_, index) = open.remove(place);
                calls[index].end = number;
                calls[index].what.push_str(rest);
            }
            continue;
        }
        let Some((name, what)) = rest.split_once('(') else { continue };
        if what.contains("<unfinished ...>") {
            open.push((thread.to_owned(), calls.len()));
        }
        calls.push(Call { name: name.to_owned(), what: what.to_owned(), begin: number, end: number });
    }
    calls
}

fn is_flush(call: &Call) -> bool {
    (call.name == "fsync" || call.name == "fdatasync") && call.what.contains("= 0")
}

/// Asserts the order of one change: its bytes are flushed, it is renamed or linked to its name, the directory is flushed,
/// and only then the answer goes out. `directories` are those whose entries have changed.
#[track_caller]
fn check_order(notes: &str, name: &str, directories: &[String]) {
    let calls = calls(notes);
    let named = format!("\"{name}\"");
    let commit = calls
        .iter()
        .rev()
        .find(|call| (call.name.starts_with("rename") || call.name == "linkat") && call.what.contains(&named))
        .unwrap_or_else(|| panic!("{name} gets its name:\n{notes}"));
    assert!(
        calls.iter().any(|call| is_flush(call) && call.end < commit.begin),
        "its bytes are flushed before line {}:\n{notes}",
        commit.begin
    );
    let mut durable = 0;
    for directory in directories {
        let place = format!("<{directory}>");
        let flush = calls
            .iter()
            .find(|call| is_flush(call) && call.begin > commit.end && call.what.contains(&place))
            .or_else(|| {
                // The parents of a new directory may be flushed before the file gets its name.
                calls
                    .iter()
                    .rev()
                    .find(|call| is_flush(call) && call.what.contains(&place) && directory != &directories[0])
            })
            .unwrap_or_else(|| panic!("{directory} is flushed after line {}:\n{notes}", commit.end));
        durable = durable.max(flush.end);
    }
    let answer = calls
        .iter()
        .filter(|call| matches!(call.name.as_str(), "write" | "writev" | "sendto" | "sendmsg"))
        .rfind(|call| call.what.contains("socket") || call.what.contains("UNIX"))
        .unwrap_or_else(|| panic!("the answer goes out:\n{notes}"));
    assert!(answer.begin > durable, "the answer in line {} comes after line {durable}:\n{notes}", answer.begin);
}

const WATCHED: &str =
    "fsync,fdatasync,rename,renameat,renameat2,linkat,write,writev,sendto,sendmsg,mkdirat,unlinkat,openat2";

#[test]
fn a_patch_is_answered_after_file_and_directory_are_on_disk() {
    let site = Site::live(|root| put(root, "d/file", "one\n"));
    site.stat(ask::stat(LIVE, "/d/file")).expect("a first call, so that the connection is made");
    let Some(trace) = Trace::attach(&site.world, WATCHED, "the order of system calls of a Patch") else { return };
    let answer = site.patch(ask::patch(LIVE, "/d/file", "one", "two")).expect("it applies");
    let notes = trace.finish();
    assert!(answer.durable);
    check_order(&notes, "file", &[site.file("/d").display().to_string()]);
}

#[test]
fn a_new_file_is_answered_after_each_new_directorys_parent_is_on_disk() {
    let site = Site::live(|root| put(root, "d/file", "one\n"));
    site.stat(ask::stat(LIVE, "/d/file")).expect("a first call, so that the connection is made");
    let Some(trace) = Trace::attach(&site.world, WATCHED, "the order of system calls of a create") else { return };
    let request = pb::PatchRequest { create_parents: true, ..ask::content(LIVE, "/d/e/f/new", &b"x"[..]) };
    let answer = site.patch(request).expect("it is created");
    let notes = trace.finish();
    assert!(answer.durable);
    let directories = ["/d/e/f", "/d/e", "/d"].map(|path| site.file(path).display().to_string());
    // A new chain of directories may also be made aside and get its name as one.
    let calls = calls(&notes);
    let whole = calls.iter().rev().any(|call| call.name.starts_with("rename") && call.what.contains("\"e\""));
    check_order(&notes, if whole { "e" } else { "new" }, if whole { &directories[2..] } else { &directories });
}

#[test]
fn what_was_answered_before_a_crash_is_there_after_it() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path().join("tree");
    let state = place.path().join("agent");
    fs::create_dir(&root).expect("a directory");
    put(&root, "a", "0\n");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for round in 0..5 {
        let world = Setup::new().directory(LIVE, &root).state(&state).start();
        let request = ask::patch(LIVE, "/a", &format!("{round}\n"), &format!("{}\n", round + 1));
        let mut files = runtime.block_on(world.files());
        let first = runtime.block_on(files.patch(request.clone())).expect("it applies").into_inner();
        world.kill();
        assert_eq!(fs::read(root.join("a")).expect("it is there"), format!("{}\n", round + 1).as_bytes());
        let world = Setup::new().directory(LIVE, &root).state(&state).start();
        let mut files = runtime.block_on(world.files());
        let again = runtime.block_on(files.patch(request)).expect("the stored answer").into_inner();
        assert_eq!((again.replayed, &again.revision), (true, &first.revision));
        assert_eq!(first.revision, revision_of(&fs::read(root.join("a")).expect("it is there")));
    }
    assert_eq!(snapshot(&root).len(), 1, "nothing is left beside it: {:?}", snapshot(&root));
}

#[test]
fn a_crash_in_the_middle_leaves_the_old_or_the_new() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path().join("tree");
    let state = place.path().join("agent");
    fs::create_dir(&root).expect("a directory");
    put(&root, "a", "old".repeat(500_000));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut old, mut new) = (0, 0);
    for round in 0..12_u32 {
        let before = fs::read(root.join("a")).expect("it is there");
        let after = format!("{round:03}").repeat(500_000);
        let world = Setup::new().directory(LIVE, &root).state(&state).start();
        let mut files = runtime.block_on(world.files());
        let request = ask::content(LIVE, "/a", after.clone());
        let call = {
            let (mut files, request) = (files.clone(), request.clone());
            runtime.spawn(async move { files.patch(request).await })
        };
        // Each round lets it come a little further.
        for _ in 0..round * 3 {
            if runtime.block_on(files.stat(ask::stat(LIVE, "/"))).is_err() {
                break;
            }
        }
        world.kill();
        let answered = runtime.block_on(call).expect("the call ends").is_ok();
        let world = Setup::new().directory(LIVE, &root).state(&state).start();
        let found = fs::read(root.join("a")).expect("it is there");
        if found == after.as_bytes() {
            new += 1
        } else {
            old += 1
        }
        assert!(
            found == after.as_bytes() || (found == before && !answered),
            "neither old nor new, or an answer was lost"
        );
        let mut files = runtime.block_on(world.files());
        runtime.block_on(files.patch(request)).expect("a retry with its key finds out which");
        assert_eq!(fs::read(root.join("a")).expect("it is there"), after.as_bytes());
        assert_eq!(snapshot(&root).len(), 1, "nothing is left beside it: {:?}", snapshot(&root));
    }
    eprintln!("killed in the middle: {old} times old, {new} times new");
}
