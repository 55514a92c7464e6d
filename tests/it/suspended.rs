//! Workspaces that sleep: who answers for them, who refuses, and that nothing wakes them.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use dormouse_proto::{
    files::v1::{self as pb, Consistency, ErrorReason, ServedFrom},
    host::v1::{self as host, WorkspaceState},
};
use dormouse_tests::{
    ask, image,
    refusal::Refusal,
    site::{ASLEEP, LIVE, Site, put, revision_of, snapshot},
    skip,
    world::{Setup, binary},
};

fn workspace(site: &Site, name: &str) -> host::Workspace {
    let request = host::GetWorkspaceRequest { name: name.to_owned() };
    site.wait(site.host().get_workspace(request)).expect("it is known").into_inner().workspace.expect("a workspace")
}

fn suspend(site: &Site, name: &str) -> host::Workspace {
    let request = host::SuspendWorkspaceRequest { name: name.to_owned(), ..Default::default() };
    site.wait(site.host().suspend_workspace(request)).expect("it sleeps").into_inner().workspace.expect("a workspace")
}

fn resume(site: &Site, name: &str) -> host::Workspace {
    let request = host::ResumeWorkspaceRequest { name: name.to_owned(), ..Default::default() };
    site.wait(site.host().resume_workspace(request)).expect("it runs").into_inner().workspace.expect("a workspace")
}

#[test]
fn every_read_is_answered_and_it_sleeps_on() {
    let site = Site::both("8M", |root| put(root, "a", "TODO\n"));
    let before = workspace(&site, ASLEEP);
    assert_eq!(before.state(), WorkspaceState::Suspended);
    assert!(before.seal.as_ref().is_some_and(|seal| seal.exact), "{before:?}");
    let image_before = revision_of(&fs::read(&site.image).expect("an image"));
    for _ in 0..25 {
        let stat = site.stat(ask::stat(ASLEEP, "/a")).expect("an answer").origin.expect("an origin");
        let read = site.read(ask::read(ASLEEP, "/a")).expect("an answer").origin;
        let list = site.list(ask::list(ASLEEP, "/")).expect("an answer").origin;
        let search = site.search(ask::search(ASLEEP, "/", "TODO")).expect("an answer").origin;
        for origin in [stat, read, list, search] {
            assert_eq!((origin.served_from(), origin.consistency()), (ServedFrom::Disk, Consistency::Exact));
            assert_eq!(origin.generation, before.generation);
        }
    }
    assert_eq!(workspace(&site, ASLEEP), before, "its state and its last activity are what they were");
    assert_eq!(revision_of(&fs::read(&site.image).expect("an image")), image_before, "not a byte is written");
}

#[test]
fn every_change_is_refused_as_not_running() {
    let site = Site::both("8M", |root| put(root, "a", "one\n"));
    let before = fs::read(&site.image).expect("an image");
    let check = |refusal: Refusal| {
        refusal.expect(ErrorReason::WorkspaceNotRunning).with("workspace", ASLEEP).with("state", "suspended");
    };
    check(site.patch(ask::patch(ASLEEP, "/a", "one", "two")).expect_err("it sleeps"));
    check(site.patch(ask::content(ASLEEP, "/b", &b"x"[..])).expect_err("it sleeps"));
    check(site.write(ask::write(ASLEEP, "/a"), vec![], pb::WriteFinish::default()).expect_err("it sleeps"));
    check(site.remove(ask::remove(ASLEEP, "/a")).expect_err("it sleeps"));
    check(site.rename(ask::rename(ASLEEP, "/a", "/b")).expect_err("it sleeps"));
    check(site.make_directory(ask::make_directory(ASLEEP, "/d")).expect_err("it sleeps"));
    // What is wrong with the request itself is told first, so that it never costs a wake.
    let bad = site.patch(ask::edits(ASLEEP, "/a", vec![])).expect_err("no edits");
    bad.expect(ErrorReason::InvalidRequest);
    let bad = site.patch(ask::content(ASLEEP, "relative", &b"x"[..])).expect_err("no path");
    bad.expect(ErrorReason::InvalidRequest);
    assert_eq!(fs::read(&site.image).expect("an image"), before);
}

#[test]
fn nobody_is_told_apart_from_nowhere_and_nothing() {
    let site = Site::both("8M", |root| put(root, "a", "one\n"));
    let gone = site.image.with_extension("gone");
    fs::rename(&site.image, &gone).expect("the disk goes away");
    let away = site.read(ask::read(ASLEEP, "/a")).expect_err("its disk is not here");
    away.expect(ErrorReason::OfflineUnavailable).with("workspace", ASLEEP).with("http_status", "409");
    site.stat(ask::stat(ASLEEP, "/x")).expect_err("not even this is known").expect(ErrorReason::OfflineUnavailable);
    site.list(ask::list(ASLEEP, "/")).expect_err("its disk is not here").expect(ErrorReason::OfflineUnavailable);
    let search = site.search(ask::search(ASLEEP, "/", "x")).expect_err("its disk is not here");
    search.expect(ErrorReason::OfflineUnavailable);
    fs::rename(&gone, &site.image).expect("the disk comes back");
    let nothing = site.read(ask::read(ASLEEP, "/x")).expect_err("there is no such file");
    nothing.expect(ErrorReason::FileNotFound);
    let nobody = site.read(ask::read("t/nobody", "/a")).expect_err("there is no such workspace");
    nobody.expect(ErrorReason::WorkspaceNotFound);
}

#[test]
fn a_disk_that_somebody_wrote_is_not_believed() {
    let mut site = Site::both_with(Setup::new().expect_warnings(), "8M", |root| put(root, "a", "one\n"));
    assert_eq!(site.read(ask::read(ASLEEP, "/a")).expect("it sleeps").bytes, b"one\n");
    let new = site.place().join("new");
    fs::write(&new, "two two\n").expect("a file");
    image::run("debugfs", &["-w", "-R", "rm /a"], &[&site.image], &[]);
    let request = format!("write {} a", new.display());
    image::run("debugfs", &["-w", "-R", &request], &[&site.image], &[]);
    let refusal = site.read(ask::read(ASLEEP, "/a")).expect_err("it was written behind our back");
    assert!(
        matches!(
            refusal.reason,
            ErrorReason::OfflineUnavailable | ErrorReason::OfflineChanged | ErrorReason::WorkspaceQuarantined
        ),
        "{refusal:?}"
    );
    // The agent stays well, and so does the other workspace.
    assert_eq!(site.read(ask::read(LIVE, "/a")).expect("it runs").bytes, b"one\n");
    assert!(site.world.terminate().0.success());
}

#[test]
fn suspend_edit_resume_three_times_over() {
    let site = Site::live(|root| put(root, "a", "0\n"));
    for round in 0..3 {
        let answer = site.patch(ask::patch(LIVE, "/a", &format!("{round}"), &format!("{}", round + 1)));
        let acknowledged = answer.expect("it runs").revision;
        let asleep = suspend(&site, LIVE);
        assert_eq!(asleep.state(), WorkspaceState::Suspended);
        let stat = pb::StatRequest { include_revision: true, ..ask::stat(LIVE, "/a") };
        let answer = site.stat(stat).expect("it sleeps and answers");
        assert_eq!(answer.file.expect("a file").revision, Some(acknowledged));
        let origin = answer.origin.expect("an origin");
        assert_eq!((origin.served_from(), origin.generation), (ServedFrom::Disk, asleep.generation));
        let refusal = site.patch(ask::patch(LIVE, "/a", "x", "y")).expect_err("it sleeps");
        refusal.expect(ErrorReason::WorkspaceNotRunning);
        let awake = resume(&site, LIVE);
        assert_eq!(awake.state(), WorkspaceState::Running);
        assert!(awake.generation > asleep.generation);
        let answer = site.read(ask::read(LIVE, "/a")).expect("it runs");
        assert_eq!((answer.origin.served_from(), answer.origin.generation), (ServedFrom::Workspace, awake.generation));
    }
    assert_eq!(site.content("/a"), b"3\n");
}

#[test]
fn a_parked_workspace_is_read_and_not_unparked() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let request = host::SuspendWorkspaceRequest { name: LIVE.to_owned(), parked: true, ..Default::default() };
    site.wait(site.host().suspend_workspace(request)).expect("it is parked");
    let before = workspace(&site, LIVE);
    assert_eq!(before.state(), WorkspaceState::Parked);
    let answer = site.read(ask::read(LIVE, "/a")).expect("it is read");
    assert_eq!((answer.origin.served_from(), answer.bytes), (ServedFrom::Disk, b"one\n".to_vec()));
    let refusal = site.patch(ask::patch(LIVE, "/a", "one", "two")).expect_err("it is parked");
    refusal.expect(ErrorReason::WorkspaceNotRunning).with("state", "parked");
    assert_eq!(workspace(&site, LIVE), before);
}

#[test]
fn while_it_wakes_a_read_may_come_again_and_nobody_is_unknown() {
    let site = Site::both("8M", |root| put(root, "a", "one\n"));
    let request = host::UnsealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
    let answer = site.wait(site.host().unseal_workspace(request)).expect("it wakes").into_inner();
    assert_eq!(answer.workspace.expect("a workspace").state(), WorkspaceState::Resuming);
    let refusal = site.read(ask::read(ASLEEP, "/a")).expect_err("it wakes");
    assert_eq!(refusal.code, tonic::Code::Unavailable);
    refusal.expect(ErrorReason::OfflineChanged).with("workspace", ASLEEP).with("retryable", "true");
    let refusal = site.patch(ask::patch(ASLEEP, "/a", "one", "two")).expect_err("it wakes");
    refusal.expect(ErrorReason::WorkspaceInTransition).with("state", "resuming");
    let refusal = site.read(ask::read("t/nobody", "/a")).expect_err("there is no such workspace");
    assert_eq!(refusal.code, tonic::Code::NotFound);
    refusal.expect(ErrorReason::WorkspaceNotFound).with("retryable", "false");
}

#[test]
fn a_read_under_way_when_it_wakes_ends_as_changed() {
    let site = Site::both("80M", |root| put(root, "a", vec![b'x'; 64 << 20]));
    let status = site.wait(async {
        let mut stream = site.files.clone().read(ask::read(ASLEEP, "/a")).await.expect("it begins").into_inner();
        stream.message().await.expect("it goes on").expect("a header");
        let request = host::UnsealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
        site.world.host().await.unseal_workspace(request).await.expect("it wakes");
        loop {
            match stream.message().await {
                Ok(Some(message)) => assert!(message.end.is_none(), "what has moved on is not complete"),
                Ok(None) => panic!("a stream without an end that ends well"),
                Err(status) => break status,
            }
        }
    });
    Refusal::from(status).expect(ErrorReason::OfflineChanged);
}

#[test]
fn owners_without_a_name_are_numbers() {
    let site = Site::both("8M", |root| put(root, "d/a", "TODO\n"));
    // Another image of the same agent: `set_inode_field` of debugfs needs no root.
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = image::make(&site.root, place.path(), image::Directories::Hashed, "8M");
    for field in ["uid 501", "gid 501"] {
        image::run("debugfs", &["-w", "-R", &format!("set_inode_field /d/a {field}")], &[&image], &[]);
    }
    drop(site);
    let site = Site::live_with(Setup::new().disk("t/strange", &image), |_| {});
    let entries = site.list(ask::list("t/strange", "/d")).expect("it lists").entries;
    assert_eq!((entries[0].uid, entries[0].gid), (501, 501));
    assert_eq!(site.search(ask::search("t/strange", "/", "TODO")).expect("it searches").paths(), ["/d/a"]);
}

#[test]
fn an_agent_that_is_nobody_answers_for_a_disk_it_may_read() {
    if !skip::is_root() {
        return skip::skip("an agent of another user", "becoming one needs root");
    }
    let site = Site::both("8M", |root| put(root, "a", "TODO\n"));
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = place.path().join("disk.img");
    fs::copy(&site.image, &image).expect("an image");
    drop(site);
    let open = |path: &std::path::Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    open(place.path(), 0o777);
    open(&image, 0o444);
    // The built binary may lie where only its builder may go.
    let agent = place.path().join("dormoused");
    fs::copy(binary("dormoused"), &agent).expect("a copy of the agent");
    open(&agent, 0o755);
    let socket = place.path().join("files.sock");
    let child = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&agent)
        .args(["serve", "--log-format", "json", "--listen"])
        .arg(format!("unix:{}", socket.display()))
        .arg("--host-listen")
        .arg(format!("unix:{}", place.path().join("host.sock").display()))
        .arg("--state-dir")
        .arg(place.path().join("state"))
        .arg("--workspace")
        .arg(format!("t/disk=disk:{}", image.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(place.path().join("log")).expect("a log"))
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return skip::skip("an agent of another user", &format!("setpriv does not start: {error}")),
    };
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("its stdout is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready).expect("a line");
    let log = || fs::read_to_string(place.path().join("log")).unwrap_or_default();
    assert!(ready.contains("\"ready\":true"), "{ready}{}", log());
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    assert!(status.contains("Uid:\t65534\t65534"), "{status}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let answer = runtime.block_on(async {
        let endpoint =
            tonic::transport::Endpoint::from_shared(format!("unix:{}", socket.display())).expect("an address");
        let files = pb::files_service_client::FilesServiceClient::new(endpoint.connect().await.expect("a connection"));
        dormouse_tests::site::search(files, tonic::Request::new(ask::search("t/disk", "/", "TODO"))).await
    });
    assert_eq!(answer.expect("an answer").paths(), ["/a"], "{}", log());
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("it fits")),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("it runs");
    assert!(child.wait().expect("its exit is known").success(), "{}", log());
}

#[test]
fn a_running_workspaces_activity_moves_and_a_sleeping_ones_does_not() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let activity = || workspace(&site, LIVE).activity_time.map(|time| (time.seconds, time.nanos));
    site.read(ask::read(LIVE, "/a")).expect("it runs");
    let first = activity();
    assert!(first.is_some(), "an answer of the running workspace is activity");
    let begin = Instant::now();
    while activity() == first {
        site.read(ask::read(LIVE, "/a")).expect("it runs");
        assert!(begin.elapsed() < Duration::from_secs(5), "every answer moves it");
    }
    suspend(&site, LIVE);
    let asleep = activity();
    for _ in 0..100 {
        site.read(ask::read(LIVE, "/a")).expect("it sleeps and answers");
    }
    assert_eq!(activity(), asleep);
    assert_eq!(snapshot(&site.root).len(), 1);
}
