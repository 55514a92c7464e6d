//! The command line as a shell sees it: standard output, standard error and exit code, against a scripted host.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use dormouse_client::proto::{files::v1::*, host::v1::*};
use serde_json::Value;
use tonic::{Code, Status};

use crate::fake::{Asked, Host, Reply, file, from_disk, from_workspace, refusal, unavailable};

const REVISION: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn command(host: &Host) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("DORMOUSE_ENDPOINT", host.endpoint().to_string())
        .env("DORMOUSE_HOST_ENDPOINT", host.endpoint().to_string())
        .stdin(Stdio::null());
    command
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// What a run printed and how it ended.
struct Run {
    out: String,
    err: String,
    code: i32,
}

async fn run(host: &Host, words: &[&str]) -> Run {
    let mut command = command(host);
    command.args(words);
    let output = output(command).await;
    Run {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
    }
}

fn found(path: &str, line: i32, text: &str) -> Match {
    let column = text.find("TODO").map_or(1, |place| place as i32 + 1);
    Match { path: path.into(), line, column, end_column: column + 4, text: text.into(), ..Match::default() }
}

fn hits(matches: Vec<Match>, end: SearchEnd) -> Reply {
    let messages = [
        SearchResponse { origin: Some(from_disk()), matches, end: None },
        SearchResponse { end: Some(end), ..SearchResponse::default() },
    ];
    Reply::Search(messages.into_iter().map(Ok).collect())
}

fn content(text: &'static [u8]) -> ReadResponse {
    ReadResponse {
        file: Some(file("/a", text.len() as i64, "e1")),
        origin: Some(from_workspace()),
        data: text.into(),
        ..ReadResponse::default()
    }
}

fn content_end(text: &[u8]) -> ReadResponse {
    let end = ReadEnd { bytes_sent: text.len() as i64, crc32c: crc32c::crc32c(text), ..ReadEnd::default() };
    ReadResponse { offset: text.len() as i64, end: Some(end), ..ReadResponse::default() }
}

#[tokio::test]
async fn the_specification_s_search_runs_as_it_stands() {
    let end = SearchEnd { files_scanned: 2, ..SearchEnd::default() };
    let matches = vec![found("/home/user/project/a.py", 4, "# TODO: x"), found("/home/user/project/b.py", 1, "TODO")];
    let host = Host::new([hits(matches, end)]).await;
    let run =
        run(&host, &["files", "search", "customer-42/main", "/home/user/project", "TODO", "--include", "*.py"]).await;
    assert_eq!(run.out, "/home/user/project/a.py:4:3: # TODO: x\n/home/user/project/b.py:1:1: TODO\n");
    assert_eq!((&*run.err, run.code), ("dormouse: served from disk\n", 0));
    let expect = SearchRequest {
        workspace: "customer-42/main".into(),
        path: "/home/user/project".into(),
        pattern: "TODO".into(),
        include: vec!["*.py".into()],
        ..SearchRequest::default()
    };
    assert_eq!(host.asked(), [Asked::Search(expect)]);
}

#[tokio::test]
async fn the_specification_s_json_search_is_one_object() {
    let end =
        SearchEnd { truncated: true, stop_reason: StopReason::MaxMatches.into(), files_scanned: 7, skipped: None };
    let host = Host::new([hits(vec![found("/p/t.py", 9, "def a_test")], end)]).await;
    let words = ["files", "search", "customer-42/main", "/p", r"def \w+_test", "--regex", "-i", "--json"];
    let run = run(&host, &words).await;
    let object: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((object["matches"][0]["line"].as_i64(), object["truncated"].as_bool()), (Some(9), Some(true)));
    assert_eq!((object["stop_reason"].as_str(), object["files_scanned"].as_i64()), (Some("max_matches"), Some(7)));
    assert_eq!(object["served_from"], "disk");
    assert_eq!((&*run.err, run.code), ("", 0));
    let Asked::Search(request) = &host.asked()[0] else { panic!() };
    assert_eq!((request.regex, request.case_insensitive, &*request.pattern), (true, true, r"def \w+_test"));
}

#[tokio::test]
async fn a_search_without_hits_ends_with_1_and_a_stop_is_a_note() {
    let end = SearchEnd { truncated: true, stop_reason: StopReason::Budget.into(), ..SearchEnd::default() };
    let host = Host::new([hits(vec![], SearchEnd::default()), hits(vec![found("/a", 1, "TODO")], end)]).await;
    let none = run(&host, &["files", "search", "w:/p", "TODO", "-q"]).await;
    assert_eq!((&*none.out, &*none.err, none.code), ("", "", 1));
    let cut = run(&host, &["files", "search", "w:/p", "TODO"]).await;
    assert_eq!(cut.err, "dormouse: served from disk\ndormouse: stopped early: budget\n");
}

#[tokio::test]
async fn json_lines_end_with_the_totals() {
    let host = Host::new([hits(vec![found("/a", 1, "TODO"), found("/b", 2, "TODO")], SearchEnd::default())]).await;
    let run = run(&host, &["files", "search", "w:/p", "TODO", "--jsonl"]).await;
    let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["record"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["match", "match", "end"]);
    assert_eq!((&lines[1]["path"], &lines[2]["truncated"]), (&Value::from("/b"), &Value::from(false)));
}

#[tokio::test]
async fn stat_s_revision_is_in_its_object() {
    let mut known = file("/home/a.py", 4, "e1");
    known.revision = Some(REVISION.into());
    let host = Host::new([Reply::Stat(StatResponse { file: Some(known), origin: Some(from_disk()) })]).await;
    let run = run(&host, &["files", "stat", "c/main", "/home/a.py", "--revision", "--json"]).await;
    let object: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&object["revision"], &object["path"]), (&Value::from(REVISION), &Value::from("/home/a.py")));
    let Asked::Stat(request) = &host.asked()[0] else { panic!() };
    assert!(request.include_revision);
}

#[tokio::test]
async fn patch_prints_the_new_revision_and_nothing_else() {
    let done = PatchResponse { revision: REVISION.into(), replacements: 1, ..PatchResponse::default() };
    let host = Host::new([Reply::Patch(done.clone()), Reply::Patch(done)]).await;
    let words = ["files", "patch", "c/main", "/a", "--old", "A", "--new", "B", "--expected-revision", "R"];
    let text = run(&host, &words).await;
    assert_eq!((text.out, &*text.err, text.code), (format!("{REVISION}\n"), "", 0));
    let request = &host.patches()[0];
    let edit = Edit { old_text: "A".into(), new_text: "B".into(), replace_all: false };
    assert_eq!(request.change, Some(patch_request::Change::Edits(EditList { edits: vec![edit] })));
    assert_eq!(request.expected_revision.as_deref(), Some("R"));
    let json = run(&host, &[&words[..], &["--json"]].concat()).await;
    let object: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&object["revision"], &object["replacements"]), (&Value::from(REVISION), &Value::from(1)));
}

#[tokio::test]
async fn edits_and_content_together_are_refused_before_anything_is_sent() {
    let host = Host::new([]).await;
    let both = ["files", "patch", "w:/a", "--old", "A", "--new", "B", "--content-file", "/dev/null"];
    let text = run(&host, &both).await;
    assert_eq!((&*text.out, text.code), ("", 2));
    assert!(text.err.contains("exclude each other"), "{}", text.err);
    let json = run(&host, &[&both[..], &["--json"]].concat()).await;
    let object: Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!((object["error"]["exit_code"].as_i64(), json.code), (Some(2), 2));
    assert!(host.asked().is_empty());
}

#[tokio::test]
async fn content_comes_from_a_file_or_standard_input() {
    let done = PatchResponse { revision: REVISION.into(), ..PatchResponse::default() };
    let host = Host::new([Reply::Patch(done.clone()), Reply::Patch(done)]).await;
    let mut command = command(&host);
    command.args(["files", "patch", "w:/a", "--content-file", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"x\n").unwrap();
    assert!(tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap().success());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("content");
    std::fs::write(&path, b"\xff\0y").unwrap();
    let from_file = run(&host, &["files", "patch", "w:/a", "--content-file", path.to_str().unwrap()]).await;
    assert_eq!(from_file.code, 0, "{}", from_file.err);
    let changes: Vec<_> = host.patches().into_iter().map(|request| request.change.unwrap()).collect();
    let content = |bytes: &'static [u8]| patch_request::Change::Content(bytes.into());
    assert_eq!(changes, [content(b"x\n"), content(b"\xff\0y")]);
    let missing = run(&host, &["files", "patch", "w:/a", "--content-file", "/nowhere/at/all"]).await;
    assert_eq!((missing.code, host.asked().len()), (8, 2));
    assert!(missing.err.contains("/nowhere/at/all"), "{}", missing.err);
}

async fn check_exit(reply: Reply, code: i32, part: &str) {
    let host = Host::new(vec![reply; 6]).await;
    let text = run(&host, &["files", "stat", "w:/a"]).await;
    assert_eq!(text.code, code, "{}", text.err);
    assert!(text.err.starts_with("dormouse: ") && text.err.contains(part), "{}", text.err);
    assert_eq!(text.out, "");
}

#[tokio::test]
async fn failures_have_their_exit_codes_and_say_what_to_do() {
    check_exit(refusal(Code::NotFound, "FILE_NOT_FOUND", &[]), 3, "file_not_found").await;
    check_exit(refusal(Code::Aborted, "REVISION_MISMATCH", &[("actual_revision", "r7")]), 4, "--expected-revision r7")
        .await;
    check_exit(refusal(Code::FailedPrecondition, "EDIT_NOT_UNIQUE", &[("lines", "3,9")]), 4, "lines 3, 9").await;
    check_exit(refusal(Code::PermissionDenied, "WRITE_POLICY_DENIED", &[]), 5, "write_policy_denied").await;
    check_exit(refusal(Code::FailedPrecondition, "FILE_TOO_LARGE", &[]), 5, "file_too_large").await;
    check_exit(refusal(Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING", &[]), 6, "--wake host").await;
    check_exit(refusal(Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE", &[("feature", "file_search")]), 7, "grep -rn")
        .await;
    check_exit(Reply::Refuse(Status::unimplemented("")), 7, "Stat").await;
    check_exit(refusal(Code::InvalidArgument, "INVALID_REQUEST", &[("field", "path")]), 2, "invalid_request").await;
    check_exit(refusal(Code::Internal, "INTERNAL", &[]), 8, "internal").await;
    check_exit(unavailable(), 6, "after 5 attempts").await;
    check_exit(refusal(Code::NotFound, "WORKSPACE_NOT_FOUND", &[]), 3, "workspaces list").await;
    let link = [("link", "/l"), ("resolved_path", "/real")];
    check_exit(refusal(Code::FailedPrecondition, "SYMLINK_REFUSED", &link), 4, "name the file itself: /real").await;
    check_exit(refusal(Code::FailedPrecondition, "NOT_A_REGULAR_FILE", &[("type", "directory")]), 4, "files list")
        .await;
}

#[tokio::test]
async fn the_next_step_fits_the_command() {
    let host = Host::new([
        refusal(Code::FailedPrecondition, "DIRECTORY_NOT_EMPTY", &[]),
        refusal(Code::AlreadyExists, "FILE_ALREADY_EXISTS", &[]),
        refusal(Code::NotFound, "FILE_NOT_FOUND", &[]),
        refusal(Code::NotFound, "FILE_NOT_FOUND", &[]),
        refusal(Code::NotFound, "FILE_NOT_FOUND", &[]),
    ])
    .await;
    let commands: [(&[&str], &str); 5] = [
        (&["rm", "w:/d"], "next: repeat with -r"),
        (&["mv", "w:/a", "/b"], "next: repeat with --replace"),
        (&["mkdir", "w:/a/b"], "next: repeat with -p"),
        (&["write", "w:/a/b", "/dev/null"], "next: repeat with --create-parents"),
        (&["read", "w:/a"], "next: check the path"),
    ];
    for (words, part) in commands {
        let run = run(&host, &[&["files"], words].concat()).await;
        assert!(run.err.contains(part), "{words:?}: {}", run.err);
    }
}

#[tokio::test]
async fn under_json_an_error_is_one_object_on_standard_error() {
    let metadata = [("code", "conflict"), ("actual_revision", "r7"), ("retryable", "false")];
    let host = Host::new([refusal(Code::Aborted, "REVISION_MISMATCH", &metadata)]).await;
    let run = run(&host, &["files", "stat", "w:/a", "--json"]).await;
    let object: Value = serde_json::from_str(&run.err).unwrap();
    let error = &object["error"];
    assert_eq!((&error["code"], &error["reason"]), (&Value::from("conflict"), &Value::from("revision_mismatch")));
    assert_eq!((&error["details"]["actual_revision"], &error["retryable"]), (&Value::from("r7"), &Value::from(false)));
    assert_eq!((&*run.out, run.code), ("", 4));
    let usage = self::run(&host, &["files", "stat", "--json", "--no-such-flag"]).await;
    let object: Value = serde_json::from_str(&usage.err).unwrap();
    assert_eq!((object["error"]["code"].as_str(), usage.code), (Some("invalid_argument"), 2));
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_read_into_a_file_is_there_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("got");
    let words = ["files", "read", "w:/a", "-o", path.to_str().unwrap()];
    let mut messages = vec![Ok(content(b"hello\n"))];
    messages.push(Err(Status::data_loss("the disk failed")));
    let host = Host::new([
        Reply::Read(messages),
        Reply::Read(vec![Ok(content(b"hello\n")), Ok(content_end(b"hello\n"))]),
        Reply::Read(vec![Ok(content(b"again\n")), Ok(content_end(b"other\n"))]),
    ])
    .await;
    let failed = run(&host, &words).await;
    assert_eq!((failed.code, names(directory.path())), (8, vec![]), "{}", failed.err);
    let good = run(&host, &words).await;
    assert_eq!((good.code, &*good.out), (0, ""), "{}", good.err);
    assert_eq!(std::fs::read(&path).unwrap(), b"hello\n");
    // A checksum that does not hold leaves the old file.
    let wrong = run(&host, &words).await;
    assert_eq!((wrong.code, names(directory.path())), (8, vec!["got".to_owned()]));
    assert_eq!(std::fs::read(&path).unwrap(), b"hello\n");
}

#[tokio::test]
async fn an_interrupted_read_leaves_nothing() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::new([Reply::ReadThenHang(vec![content(b"hello\n")])]).await;
        let mut command = command(&host);
        command.args(["files", "read", "w:/a", "-o"]).arg(directory.path().join("got"));
        let mut child = command.spawn().unwrap();
        host.until_asked(1).await;
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
        assert_eq!((status.code(), names(directory.path())), (Some(code), vec![]));
    }
}

#[tokio::test]
async fn a_closed_pipe_is_quiet() {
    let many: Vec<_> = (1..5000).map(|line| found("/home/user/project/a.py", line, "# TODO")).collect();
    let request = ["files", "search", "w:/p", "TODO", "--max", "5000"];
    let host = Host::new([hits(many, SearchEnd::default())]).await;
    let mut command = command(&host);
    command.args(request).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!((String::from_utf8(output.stderr).unwrap(), output.status.code()), (String::new(), Some(0)));
}

#[tokio::test]
async fn names_and_content_that_are_not_utf8_pass_unchanged() {
    use std::os::unix::ffi::OsStringExt;
    let host = Host::new([Reply::Read(vec![Ok(content(b"\xff\0\n")), Ok(content_end(b"\xff\0\n"))])]).await;
    let mut command = command(&host);
    command.args(["files", "read", "w"]).arg(std::ffi::OsString::from_vec(b"/\xfe".to_vec()));
    let output = output(command).await;
    assert_eq!(output.stdout, b"\xff\0\n");
    assert_eq!((&*host.reads()[0].path, &*host.reads()[0].raw_path), ("", &b"/\xfe"[..]));
}

#[tokio::test]
async fn a_sleeping_workspace_is_woken_by_the_host_or_by_a_command() {
    let asleep = || refusal(Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING", &[]);
    let done = || Reply::Patch(PatchResponse { revision: REVISION.into(), ..PatchResponse::default() });
    let words = ["files", "patch", "c/main:/a", "--content-file", "/dev/null"];
    let host = Host::new([asleep(), Reply::Workspace(Workspace::default()), done(), asleep(), done(), asleep()]).await;
    let by_host = run(&host, &[&words[..], &["--wake", "host"]].concat()).await;
    assert_eq!((by_host.out, by_host.code), (format!("{REVISION}\n"), 0), "{}", by_host.err);
    let resumes = host.asked().iter().filter(|asked| matches!(asked, Asked::Resume(_))).count();
    assert_eq!(resumes, 1, "it is woken exactly once");
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let script = format!("echo waking; echo \"$DORMOUSE_WORKSPACE\" >> {}", mark.display());
    let by_command = run(&host, &[&words[..], &["--wake-command", &script]].concat()).await;
    assert_eq!((by_command.out, &*by_command.err), (format!("{REVISION}\n"), "waking\n"));
    assert_eq!(std::fs::read_to_string(mark).unwrap(), "c/main\n");
    let failed = run(&host, &[&words[..], &["--wake-command", "exit 3"]].concat()).await;
    assert_eq!(failed.code, 6);
    assert!(failed.err.contains("waking the workspace failed") && failed.err.contains('3'), "{}", failed.err);
}

#[tokio::test]
async fn workspaces_are_listed_over_all_pages() {
    let workspace = |name: &str, state| Workspace { name: name.into(), state, generation: 4, ..Workspace::default() };
    let both = vec![workspace("a/main", 1), workspace("b/main", 4)];
    let host = Host::new(vec![Reply::Workspaces(both); 4]).await;
    let text = run(&host, &["workspaces", "list"]).await;
    assert_eq!(text.out, "a/main\trunning\t4\t-\nb/main\tsuspended\t4\t-\n");
    let json = run(&host, &["workspaces", "list", "--json"]).await;
    let object: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(object["workspaces"][1]["state"], "suspended");
}

#[tokio::test]
async fn a_read_as_json_holds_its_content_as_text_or_as_base64() {
    let read = |bytes: &'static [u8]| Reply::Read(vec![Ok(content(bytes)), Ok(content_end(bytes))]);
    let host = Host::new([read(b"hello\n"), read(b"\xff\0")]).await;
    let text: Value = serde_json::from_str(&run(&host, &["files", "read", "w:/a", "--json"]).await.out).unwrap();
    assert_eq!((&text["content"], &text["file"]["path"]), (&Value::from("hello\n"), &Value::from("/a")));
    assert_eq!((&text["origin"]["served_from"], text.get("raw_content")), (&Value::from("workspace"), None));
    let raw: Value = serde_json::from_str(&run(&host, &["files", "read", "w:/a", "--json"]).await.out).unwrap();
    assert_eq!((&raw["raw_content"], raw.get("content")), (&Value::from("/wA="), None));
}

#[tokio::test]
async fn a_listing_prints_paths_and_a_write_prints_its_revision() {
    let mut directory = file("/p/d", 0, "");
    directory.r#type = FileType::Directory.into();
    let end = ListEnd { entries_sent: 2, ..ListEnd::default() };
    let message =
        ListResponse { origin: Some(from_workspace()), entries: vec![file("/p/a", 1, ""), directory], end: Some(end) };
    let written = WriteResponse { revision: REVISION.into(), ..WriteResponse::default() };
    let host = Host::new([Reply::List(vec![Ok(message)]), Reply::Write(written)]).await;
    let list = run(&host, &["files", "list", "w", "/p"]).await;
    assert_eq!((&*list.out, &*list.err), ("/p/a\n/p/d/\n", ""));
    let write = run(&host, &["files", "write", "w:/a", "/dev/null"]).await;
    assert_eq!((write.out, write.code), (format!("{REVISION}\n"), 0), "{}", write.err);
}

#[tokio::test]
async fn features_are_listed() {
    let answer = GetCapabilitiesResponse { features: vec![1, 2], ..GetCapabilitiesResponse::default() };
    let host = Host::new([Reply::Capabilities(answer)]).await;
    assert_eq!(run(&host, &["files", "capabilities"]).await.out, "file_search\nfile_patch\n");
}

#[tokio::test]
async fn completions_and_manual_pages_are_printed_without_a_host() {
    let host = Host::new([]).await;
    assert!(run(&host, &["completions", "bash"]).await.out.contains("_dormouse"));
    assert!(run(&host, &["man"]).await.out.contains(".TH dormouse"));
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(&host, &["man", "--directory", directory.path().to_str().unwrap()]).await.code, 0);
    assert!(names(directory.path()).contains(&"dormouse-files-search.1".to_owned()));
    assert!(host.asked().is_empty());
}
