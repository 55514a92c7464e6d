//! The command line `dormouse` and `dormoused demo`, as a person or a script uses them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use dormouse_tests::{
    image,
    site::{put, revision_of},
    skip,
    world::{Setup, World, binary},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// The workspaces of the specification's own command lines.
const AWAKE: &str = "customer-42/main";
const ASLEEP: &str = "demo/asleep";

struct Desk {
    world: World,
    place: TempDir,
}

/// What a command did.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Desk {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let root = place.path().join("root");
        put(
            &root,
            "home/user/project/app.py",
            "import os\nDEBUG = True  # TODO\n\ndef main_test():\n    # TODO TODO\n    pass\n",
        );
        put(&root, "home/user/project/b.md", "TODO\n");
        put(&root, "home/user/project/.git/config", "TODO\n");
        let image = image::make(&root, place.path(), image::Directories::Linear, "8M");
        let world = Setup::new().directory(AWAKE, &root).disk(ASLEEP, &image).start();
        Self { world, place }
    }

    /// A command line as a shell runs it, with the built programs on its path.
    fn shell(&self, line: &str) -> Done {
        let programs = binary("dormouse").parent().expect("a directory").to_owned();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        Command::new("sh")
            .args(["-c", line])
            .env("PATH", path)
            .env("DORMOUSE_ENDPOINT", format!("unix:{}", self.world.unix.display()))
            .env("DORMOUSE_HOST_ENDPOINT", format!("unix:{}", self.world.host.display()))
            .env("XDG_CONFIG_HOME", self.place.path())
            .stdin(Stdio::null())
            .output()
            .expect("a shell starts")
            .into()
    }

    /// Runs a line that must succeed and gives what it prints.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let done = self.shell(line);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        done.stdout
    }

    /// Runs a line that must end with this code, and gives what it says on standard error.
    #[track_caller]
    fn fails(&self, line: &str, code: i32) -> String {
        let done = self.shell(line);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        done.stderr
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.place.path().join("root/home/user/project").join(path)).expect("it is there")
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_two_searches_of_the_specification_run_as_they_stand() {
    let desk = Desk::new();
    let found = desk.ok("dormouse files search customer-42/main /home/user/project TODO --include '*.py'");
    assert_eq!(
        found,
        "/home/user/project/app.py:2:17: DEBUG = True  # TODO\n/home/user/project/app.py:5:7:     # TODO TODO\n"
    );
    let found = desk.ok(r"dormouse files search customer-42/main /home/user/project 'DEF \w+_test' --regex -i --json");
    let found = json(&found);
    assert_eq!(found["matches"][0]["path"], "/home/user/project/app.py");
    assert_eq!((&found["matches"][0]["line"], &found["matches"][0]["column"]), (&4.into(), &1.into()));
    assert_eq!((&found["truncated"], &found["files_scanned"]), (&false.into(), &2.into()));
}

#[test]
fn each_flag_of_a_search_does_its_part() {
    let desk = Desk::new();
    let place = "customer-42/main /home/user/project";
    let lines = |flags: &str| desk.ok(&format!("dormouse files search {place} TODO {flags}")).lines().count();
    assert_eq!(lines(""), 3);
    assert_eq!(lines("--no-default-exclude"), 4);
    assert_eq!(lines("--exclude '*.md'"), 3, "what is given replaces the default, so .git is searched");
    assert_eq!(lines("--max 1"), 1);
    let cut = json(&desk.ok(&format!("dormouse files search {place} TODO --max 1 --json")));
    assert_eq!((&cut["truncated"], &cut["stop_reason"]), (&true.into(), &"max_matches".into()));
    assert!(
        desk.shell(&format!("dormouse files search {place} TODO --max 1"))
            .stderr
            .contains("stopped early: max_matches")
    );
    assert_eq!(desk.ok("dormouse files search customer-42/main:/home/user/project TODO").lines().count(), 3);
    desk.fails(&format!("dormouse files search {place} nowhere"), 1);
    desk.fails(&format!("dormouse files search {place} 'f(' --regex"), 2);
    desk.fails(&format!("dormouse files search {place} todo --max 5001"), 2);
    assert_eq!(lines("-i"), 3);
}

#[test]
fn context_is_printed_around_matches_once() {
    let desk = Desk::new();
    put(&desk.place.path().join("root"), "c/a", "1\n2 x\n3 x\n4\n5\n6\n7\n8 x\n9\n");
    put(&desk.place.path().join("root"), "c/b", "x\nend\n");
    let found = desk.ok("dormouse files search customer-42/main /c x --context 1");
    let expect = "/c/a-1- 1\n/c/a:2:3: 2 x\n/c/a:3:3: 3 x\n/c/a-4- 4\n--\n/c/a-7- 7\n/c/a:8:3: 8 x\n/c/a-9- 9\n--\n/c/b:1:1: x\n/c/b-2- end\n";
    assert_eq!(found, expect);
}

#[test]
fn a_stat_prints_a_revision_that_a_patch_takes() {
    let desk = Desk::new();
    let stat = desk.ok("dormouse files stat customer-42/main /home/user/project/app.py --revision --json");
    let revision = json(&stat)["revision"].as_str().expect("a revision").to_owned();
    assert_eq!(revision, revision_of(desk.content("app.py").as_bytes()));
    let line = format!(
        "dormouse files patch customer-42/main /home/user/project/app.py \
         --old 'DEBUG = True' --new 'DEBUG = False' --expected-revision {revision}"
    );
    let printed = desk.ok(&line);
    assert!(desk.content("app.py").contains("DEBUG = False"));
    assert_eq!(
        printed,
        format!("{}\n", revision_of(desk.content("app.py").as_bytes())),
        "the new revision, and no more"
    );
    let said = desk.fails(&line, 4);
    assert!(said.contains(printed.trim()), "the current revision is told: {said}");
    let said = desk.fails(&format!("{line} --json"), 4);
    let error = json(said.lines().last().expect("an object"));
    assert_eq!(error["error"]["reason"], "revision_mismatch");
    assert_eq!(error["error"]["details"]["actual_revision"], printed.trim());
}

#[test]
fn content_comes_from_a_file_or_from_standard_input() {
    let desk = Desk::new();
    let target = "customer-42/main /home/user/project/new.txt";
    let printed = desk.ok(&format!("echo x | dormouse files patch {target} --content-file -"));
    assert_eq!((desk.content("new.txt").as_str(), printed.trim()), ("x\n", revision_of(b"x\n").as_str()));
    let file = desk.place.path().join("from");
    fs::write(&file, "y\n").expect("a file");
    desk.ok(&format!("dormouse files patch {target} --content-file {}", file.display()));
    assert_eq!(desk.content("new.txt"), "y\n");
    desk.fails(&format!("dormouse files patch {target} --content-file - --expected-revision absent"), 4);
    // Exactly one of the two.
    desk.fails(&format!("dormouse files patch {target}"), 2);
    desk.fails(&format!("dormouse files patch {target} --old y --new z --content-file -"), 2);
    assert_eq!(desk.content("new.txt"), "y\n");
    let app = "customer-42/main /home/user/project/app.py";
    desk.fails(&format!("dormouse files patch {app} --old TODO --new DONE"), 4);
    desk.ok(&format!("dormouse files patch {app} --old TODO --new DONE --replace-all"));
    assert_eq!(desk.content("app.py").matches("DONE").count(), 3);
}

#[test]
fn a_sleeping_workspace_is_read_and_said_so() {
    let desk = Desk::new();
    let done = desk.shell("dormouse files read demo/asleep /home/user/project/b.md");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "TODO\n"), "{done:?}");
    assert!(done.stderr.contains("served from disk"), "{done:?}");
    let done = desk.shell("dormouse files read customer-42/main /home/user/project/b.md");
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("TODO\n", ""));
    let said = desk.fails("dormouse files patch demo/asleep /home/user/project/b.md --old TODO --new x", 6);
    assert!(said.contains("suspended") || said.contains("not running"), "{said}");
}

#[test]
fn a_patch_of_a_suspended_workspace_wakes_it_exactly_once_and_a_read_never() {
    let desk = Desk::new();
    let state = || {
        let workspace = json(&desk.ok("dormouse workspaces get customer-42/main --json"));
        (workspace["state"].as_str().expect("a state").to_owned(), workspace["generation"].as_i64().expect("a number"))
    };
    desk.ok("dormouse workspaces suspend customer-42/main");
    let (_, asleep) = state();
    let b = "customer-42/main /home/user/project/b.md --wake host";
    let done = desk.shell(&format!("dormouse files read {b}"));
    assert_eq!((done.code, &*done.stdout), (Some(0), "TODO\n"), "{done:?}");
    assert!(done.stderr.contains("served from disk"), "{done:?}");
    assert_eq!(state(), ("suspended".to_owned(), asleep), "a read wakes nothing");
    let printed = desk.ok(&format!("dormouse files patch {b} --old TODO --new DONE"));
    assert_eq!(desk.content("b.md"), "DONE\n");
    assert_eq!(printed.trim(), revision_of(b"DONE\n"));
    assert_eq!(state(), ("running".to_owned(), asleep + 1), "one resume, and nothing more");
    // Of a workspace that runs nothing is woken.
    desk.ok(&format!("dormouse files patch {b} --old DONE --new TODO"));
    assert_eq!(state().1, asleep + 1);
}

#[test]
fn every_kind_of_failure_has_its_code() {
    let desk = Desk::new();
    desk.fails("dormouse files stat customer-42/main /missing", 3);
    desk.fails("dormouse files stat nobody /", 3);
    desk.fails("dormouse files stat customer-42/main relative", 2);
    desk.fails("dormouse files stat", 2);
    desk.fails("dormouse files teleport", 2);
    desk.fails("dormouse files rm customer-42/main /home", 4);
    desk.fails("DORMOUSE_ENDPOINT=unix:/nowhere/x.sock dormouse files stat customer-42/main / --timeout 2s", 6);
    let lacking = Setup::new().without("file_search").directory(AWAKE, &desk.place.path().join("root")).start();
    let endpoint = format!("--endpoint unix:{}", lacking.unix.display());
    let said = desk.fails(&format!("dormouse files search {AWAKE} / TODO {endpoint}"), 7);
    assert!(said.contains("file_search") || said.contains("search"), "{said}");
    assert_eq!(desk.ok("dormouse --version").split_whitespace().next(), Some("dormouse"));
}

#[test]
fn the_other_verbs_do_what_they_say() {
    let desk = Desk::new();
    desk.ok("dormouse files mkdir customer-42/main /d");
    desk.ok("printf abc | dormouse files write customer-42/main /d/f");
    assert_eq!(desk.ok("dormouse files read customer-42/main /d/f"), "abc");
    desk.ok("dormouse files mv customer-42/main /d/f /d/g");
    assert!(desk.ok("dormouse files list customer-42/main /d").contains("g"));
    desk.ok("dormouse files rm customer-42/main /d/g");
    desk.fails("dormouse files read customer-42/main /d/g", 3);
    let listed = desk.ok("dormouse workspaces list");
    assert!(listed.contains(AWAKE) && listed.contains(ASLEEP), "{listed}");
    // A reader that has had enough is no failure.
    desk.ok("dormouse files read customer-42/main /home/user/project/app.py | head -c 1");
}

#[test]
fn a_read_into_a_file_leaves_none_where_it_fails() {
    let desk = Desk::new();
    let target = desk.place.path().join("out");
    let line = format!("dormouse files read customer-42/main /home/user/project/missing -o {}", target.display());
    desk.fails(&line, 3);
    assert!(!target.exists());
    let line = format!("dormouse files read customer-42/main /home/user/project/b.md -o {}", target.display());
    desk.ok(&line);
    assert_eq!(fs::read(&target).expect("it is written"), b"TODO\n");
}

/// What `dormoused demo` prints to be tried, run line by line as it stands.
#[test]
fn the_demonstration_can_be_typed() {
    let programs = binary("dormouse").parent().expect("a directory").to_owned();
    let mut path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let grpcurl = skip::tool("DORMOUSE_GRPCURL", "the grpcurl line of the demonstration");
    if let Some(directory) = grpcurl.as_deref().and_then(|tool| Path::new(tool).parent()) {
        path = format!("{path}:{}", directory.display());
    }
    let mut demo = Command::new(binary("dormoused"))
        .arg("demo")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dormoused starts");
    let process = Pid::from_raw(i32::try_from(demo.id()).expect("a process id fits"));
    let mut lines = BufReader::new(demo.stdout.take().expect("its stdout is piped")).lines();
    let (mut printed, mut script) = (Vec::new(), String::new());
    while let Some(Ok(line)) = lines.next() {
        let last = line.contains("Ctrl-C");
        printed.push(line);
        if last {
            break;
        }
    }
    let text = printed.join("\n");
    let mut answers = Vec::new();
    for line in printed.iter().filter_map(|line| line.strip_prefix("  ")) {
        if line.starts_with("export ") {
            script.push_str(line);
            script.push('\n');
            continue;
        }
        if line.starts_with("grpcurl") && grpcurl.is_none() {
            continue;
        }
        let output = Command::new("sh").args(["-c", &format!("{script}{line}")]).env("PATH", &path).output();
        let done = Done::from(output.expect("a shell starts"));
        assert_eq!(done.code, Some(0), "{line}: {done:?}\n{text}");
        assert!(!done.stdout.is_empty(), "{line} prints something: {done:?}");
        answers.push(done.stdout);
    }
    assert!(answers.len() >= 4, "there is something to try:\n{text}");
    assert!(answers.iter().any(|answer| answer.contains("TODO")), "the search finds something: {answers:?}");
    kill(process, Signal::SIGINT).expect("it runs");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(demo.wait()));
    let status = receiver.recv_timeout(Duration::from_secs(30)).expect("it ends").expect("its exit is known");
    assert!(status.success(), "{status}");
    let socket = script.split("unix:").nth(1).and_then(|rest| rest.split('\'').next()).expect("a socket");
    assert!(socket.ends_with(".sock"), "{script}");
    assert!(!Path::new(socket).exists(), "everything is gone again");
}
