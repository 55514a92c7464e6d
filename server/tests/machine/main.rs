//! Running machines: the relay to the agent inside, without a machine. The agent is the real program on a Unix socket, a
//! double of it, or a real one behind a socket that speaks as a machine monitor's does.
#![allow(clippy::unwrap_used, reason = "what a test builds on is a test's own failure")]

mod disks;
mod double;
mod freeze;
mod hybrid;
mod mounts;
#[path = "../../../tests/src/skip.rs"]
#[allow(dead_code, reason = "not every test needs all of it")]
mod skip;
mod vsock;
mod world;

use std::{fs, time::Duration};

use dormouse_proto::{
    files::v1::{self as files, write_request::Message},
    host::v1 as host,
};
use nix::sys::signal::Signal;
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use crate::{
    double::Double,
    hybrid::Hybrid,
    world::{Agent, World, check, content, read, search, stat, value},
};

#[tokio::test]
async fn a_running_machine_is_written_patched_searched_and_listed() {
    let mut world = World::new(|_| ()).await;
    let root = world.at("machine");
    let listen = format!("unix:{}", world.at("g.sock").display());
    let (_agent, _) = Agent::start(&root, &listen, &[]);
    world.register("m", world.unix("g.sock"), Vec::new()).await;

    let start = files::WriteStart {
        workspace: "m".to_owned(),
        path: "/src/big.txt".to_owned(),
        create_parents: true,
        idempotency_key: "w1".to_owned(),
        ..Default::default()
    };
    let write = |size_bytes: i64| {
        [
            Message::Start(start.clone()),
            Message::Data("one\n".into()),
            Message::Data("two TODO\n".into()),
            Message::Finish(files::WriteFinish { size_bytes, crc32c: None }),
        ]
        .map(|message| files::WriteRequest { message: Some(message) })
    };
    let refused = world.files.write(tokio_stream::iter(write(12))).await;
    check(refused, Code::InvalidArgument, "INVALID_REQUEST");
    assert!(!root.join("src/big.txt").exists());
    let written = world.files.write(tokio_stream::iter(write(13))).await.unwrap().into_inner();
    assert_eq!((written.bytes_written, written.replayed), (13, false));
    assert!(world.files.write(tokio_stream::iter(write(13))).await.unwrap().into_inner().replayed);

    let edits = vec![files::Edit { old_text: "one".to_owned(), new_text: "1".to_owned(), replace_all: false }];
    let patch = files::PatchRequest {
        change: Some(files::patch_request::Change::Edits(files::EditList { edits })),
        expected_revision: Some(written.revision.clone()),
        ..content("m", "/src/big.txt", "", "p1")
    };
    let patched = world.files.patch(patch.clone()).await.unwrap().into_inner();
    assert_eq!(patched.previous_revision, Some(written.revision));
    assert_eq!(fs::read(root.join("src/big.txt")).unwrap(), b"1\ntwo TODO\n");
    let stale = files::PatchRequest { idempotency_key: "p2".to_owned(), ..patch };
    let stale = check(world.files.patch(stale).await, Code::Aborted, "REVISION_MISMATCH");
    assert_eq!(value(&stale, "actual_revision"), patched.revision);

    let described = world.files.stat(stat("m", "/src/big.txt")).await.unwrap().into_inner();
    assert_eq!(described.file.unwrap().revision, Some(patched.revision));
    let origin = described.origin.unwrap();
    assert_eq!((origin.served_from(), origin.generation), (files::ServedFrom::Workspace, 1));
    let (first, bytes) = world.read(read("m", "/src/big.txt")).await.unwrap();
    assert_eq!(bytes, b"1\ntwo TODO\n");
    assert_eq!(first.origin.unwrap().served_from(), files::ServedFrom::Workspace);
    let mut found = world.files.search(search("m", "/", "TODO")).await.unwrap().into_inner();
    let found = found.next().await.unwrap().unwrap();
    assert_eq!(
        (found.matches[0].path.as_str(), found.origin.unwrap().served_from()),
        ("/src/big.txt", files::ServedFrom::Workspace)
    );
    let list = files::ListRequest {
        workspace: "m".to_owned(),
        path: "/".to_owned(),
        depth: Some(3),
        include_revision: true,
        ..Default::default()
    };
    let listed = world.files.list(list).await.unwrap().into_inner().next().await.unwrap().unwrap();
    let paths: Vec<_> = listed.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/src", "/src/big.txt"]);

    let make = files::MakeDirectoryRequest {
        workspace: "m".to_owned(),
        path: "/d".to_owned(),
        idempotency_key: "d1".to_owned(),
        ..Default::default()
    };
    world.files.make_directory(make).await.unwrap();
    let rename = files::MoveRequest {
        workspace: "m".to_owned(),
        path: "/src/big.txt".to_owned(),
        new_path: "/d/b".to_owned(),
        idempotency_key: "m1".to_owned(),
        ..Default::default()
    };
    assert_eq!(world.files.r#move(rename).await.unwrap().into_inner().file.unwrap().path, "/d/b");
    let remove = files::RemoveRequest {
        workspace: "m".to_owned(),
        path: "/d".to_owned(),
        recursive: true,
        idempotency_key: "r1".to_owned(),
        ..Default::default()
    };
    world.files.remove(remove).await.unwrap();
    let missing = check(world.files.stat(stat("m", "/d")).await, Code::NotFound, "FILE_NOT_FOUND");
    assert_eq!((value(&missing, "path").as_str(), value(&missing, "missing").as_str()), ("/d", "/d"));
    let request = files::GetCapabilitiesRequest { workspace: "m".to_owned() };
    assert_eq!(world.files.get_capabilities(request).await.unwrap().into_inner().features.len(), 5);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_hung_guest_is_unreachable_in_five_seconds_and_others_answer() {
    let mut world = World::new(|_| ()).await;
    let mut agents = Vec::new();
    for name in ["hung", "well"] {
        let listen = format!("unix:{}", world.at(&format!("{name}.sock")).display());
        agents.push(Agent::start(&world.at(name), &listen, &[]).0);
        world.register(name, world.unix(&format!("{name}.sock")), Vec::new()).await;
        assert!(world.files.stat(stat(name, "/")).await.is_ok());
    }
    agents[0].signal(Signal::SIGSTOP);
    // One call on the connection that hangs, and one that must make a new one to a socket that takes it and never speaks.
    for _ in 0..2 {
        let began = std::time::Instant::now();
        let mut client = world.files.clone();
        let hung = tokio::spawn(async move { client.stat(stat("hung", "/")).await });
        assert!(world.files.stat(stat("well", "/")).await.is_ok());
        let status = check(hung.await.unwrap(), Code::Unavailable, "GUEST_UNREACHABLE");
        assert_eq!(value(&status, "workspace"), "hung");
        // Four seconds by the settings, and no caller's deadline: the rest is room for a busy machine.
        eprintln!("a guest that hangs is told after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    agents[0].signal(Signal::SIGCONT);
    assert!(world.files.stat(stat("hung", "/")).await.is_ok());
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_patch_of_which_nothing_is_heard_for_20_s_is_not_cut_off() {
    let mut world = World::new(|_| ()).await;
    double::serve(Double::Slow, &world.at("slow.sock"));
    world.register("slow", world.unix("slow.sock"), Vec::new()).await;
    let began = std::time::Instant::now();
    let done = world.files.patch(content("slow", "/f", "x", "k")).await.unwrap().into_inner();
    assert_eq!(done.revision, "0".repeat(64));
    assert!(began.elapsed() >= double::SLOW_TIME, "{:?}", began.elapsed());
    world.server.shutdown().await;
}

#[tokio::test]
async fn an_older_guest_reads_without_revisions_and_refuses_the_rest() {
    let mut world = World::new(|_| ()).await;
    double::serve(Double::Old, &world.at("old.sock"));
    world.register("old", world.unix("old.sock"), Vec::new()).await;
    let mut request = Request::new(stat("old", "/f"));
    request.metadata_mut().insert("authorization", "Bearer secret".parse().unwrap());
    let described = world.files.stat(request).await.unwrap().into_inner();
    assert_eq!(described.file.unwrap().revision, None);
    let request = files::ReadRequest { include_revision: true, ..read("old", "/f") };
    let (first, bytes) = world.read(request).await.unwrap();
    assert_eq!((bytes.as_slice(), first.file.unwrap().revision), (b"xxxxx".as_slice(), None));
    assert_eq!(first.origin.unwrap().generation, 1, "the host's own origin");

    let pinned = files::ReadRequest { expected_revision: Some("0".repeat(64)), ..read("old", "/f") };
    let refused = check(world.read(pinned).await, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "file_revision");
    let refused =
        check(world.files.patch(content("old", "/f", "x", "k")).await, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!((value(&refused, "feature").as_str(), value(&refused, "retryable").as_str()), ("file_patch", "false"));
    let refused = world.files.search(search("old", "/", "x")).await.map(drop);
    let refused = check(refused, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "file_search");
    let remove = files::RemoveRequest {
        workspace: "old".to_owned(),
        path: "/f".to_owned(),
        idempotency_key: "k".to_owned(),
        ..Default::default()
    };
    let refused = check(world.files.remove(remove).await, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "file_write");
    let request = files::GetCapabilitiesRequest { workspace: "old".to_owned() };
    let can: Vec<_> = world.files.get_capabilities(request).await.unwrap().into_inner().features().collect();
    assert_eq!(can, [files::Feature::OfflineRead]);
    let quiesce = host::QuiesceWorkspaceRequest { name: "old".to_owned(), ..Default::default() };
    let refused = check(world.host.quiesce_workspace(quiesce).await, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "guest_freeze");
    assert!(world.files.stat(stat("old", "/f")).await.is_ok(), "it is running again");
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_guest_that_lies_is_cut_off() {
    let mut world = World::new(|_| ()).await;
    let doubles = [
        Double::LongPiece,
        Double::Gap,
        Double::Huge,
        Double::NoEnd,
        Double::Outside,
        Double::HostsReason,
        Double::UnknownReason,
        Double::Bare,
    ];
    for (index, double) in doubles.into_iter().enumerate() {
        let name = format!("lies-{index}");
        double::serve(double, &world.at(&format!("{name}.sock")));
        world.register(&name, world.unix(&format!("{name}.sock")), Vec::new()).await;
        if matches!(double, Double::LongPiece | Double::Gap | Double::Huge | Double::NoEnd) {
            let refused = world.read(read(&name, "/f")).await.map(drop);
            check(refused, Code::Internal, "INTERNAL");
        } else {
            check(
                world.files.stat(files::StatRequest { include_revision: false, ..stat(&name, "/f") }).await,
                Code::Internal,
                "INTERNAL",
            );
        }
        if double == Double::Outside {
            let list = files::ListRequest { workspace: name.clone(), path: "/d".to_owned(), ..Default::default() };
            check(world.files.list(list).await.map(drop), Code::Internal, "INTERNAL");
            check(world.files.search(search(&name, "/d", "x")).await.map(drop), Code::Internal, "INTERNAL");
        }
    }
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_patch_that_is_cut_off_is_found_again_under_its_key() {
    let mut world = World::new(|_| ()).await;
    let root = world.at("machine");
    let listen = format!("unix:{}", world.at("g.sock").display());
    let (_agent, _) = Agent::start(&root, &listen, &[]);
    let hybrid = Hybrid::serve(&world.at("v.sock"), &world.at("g.sock"), 1024);
    let address = host::HybridVsock { socket_path: world.at("v.sock").display().to_string(), port: 1024 };
    world.register("m", host::guest::Address::HybridVsock(address), Vec::new()).await;
    world.files.patch(content("m", "/f", "one one", "k0")).await.unwrap();

    hybrid.swallow(true);
    let edits = vec![files::Edit { old_text: "one".to_owned(), new_text: "one one".to_owned(), replace_all: true }];
    let patch = files::PatchRequest {
        change: Some(files::patch_request::Change::Edits(files::EditList { edits })),
        ..content("m", "/f", "", "k1")
    };
    let mut client = world.files.clone();
    let first = tokio::spawn({
        let patch = patch.clone();
        async move { client.patch(patch).await }
    });
    while fs::read(root.join("f")).unwrap() != b"one one one one" {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_finished(), "its answer is on its way");
    hybrid.cut();
    check(first.await.unwrap(), Code::Unavailable, "GUEST_UNREACHABLE");
    hybrid.swallow(false);
    let again = world.files.patch(patch).await.unwrap().into_inner();
    assert!(again.replayed && again.replacements == 2);
    assert_eq!(fs::read(root.join("f")).unwrap(), b"one one one one", "applied once");
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_port_needs_its_token_and_a_missing_guest_is_unreachable() {
    let mut world = World::new(|config| config.guest_tcp_ports = "1024-65535".to_owned()).await;
    fs::write(world.at("token"), "s3cret\n").unwrap();
    let token = world.at("token").display().to_string();
    let (_agent, line) = Agent::start(&world.at("machine"), "tcp:127.0.0.1:0", &["--token-file", &token]);
    let address = line.split('"').find_map(|word| word.strip_prefix("tcp:")).unwrap().to_owned();
    let tcp = || host::guest::Address::Tcp(address.clone());
    world.register_with_token("good", tcp(), Vec::new(), "s3cret").await;
    world.register_with_token("bad", tcp(), Vec::new(), "other").await;
    world.register("none", tcp(), Vec::new()).await;
    assert!(world.files.stat(stat("good", "/")).await.is_ok());
    for name in ["bad", "none"] {
        check(world.files.stat(stat(name, "/")).await, Code::Internal, "INTERNAL");
    }
    world.register("gone", world.unix("nobody.sock"), Vec::new()).await;
    check(world.files.stat(stat("gone", "/")).await, Code::Unavailable, "GUEST_UNREACHABLE");
    let shown = world.host.get_workspace(host::GetWorkspaceRequest { name: "good".to_owned() }).await.unwrap();
    assert!(!format!("{shown:?}").contains("s3cret"));
    world.server.shutdown().await;
}

#[tokio::test]
async fn an_open_waits_for_the_guest_until_its_deadline_and_takes_its_new_address() {
    let mut world = World::new(|_| ()).await;
    world.register("m", world.unix("old.sock"), Vec::new()).await;
    let seal = host::SealWorkspaceRequest { name: "m".to_owned(), ..Default::default() };
    let sealed = world.host.seal_workspace(seal).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!((sealed.state(), sealed.seal), (host::WorkspaceState::Suspended, None), "no disk can answer");
    check(world.files.stat(stat("m", "/")).await, Code::FailedPrecondition, "OFFLINE_UNAVAILABLE");
    let unseal = host::UnsealWorkspaceRequest { name: "m".to_owned(), generation: 0 };
    world.host.unseal_workspace(unseal).await.unwrap();

    let open = |path: String, deadline: Duration| {
        let guest = (!path.is_empty())
            .then(|| host::Guest { address: Some(host::guest::Address::UnixPath(path)), ..Default::default() });
        let mut request = Request::new(host::OpenWorkspaceRequest { name: "m".to_owned(), generation: 0, guest });
        request.set_timeout(deadline);
        request
    };
    let refused = world.host.open_workspace(open(String::new(), Duration::from_secs(6))).await;
    check(refused, Code::Unavailable, "GUEST_UNREACHABLE");
    let outside = world.host.open_workspace(open("/run/none.sock".to_owned(), Duration::from_secs(60))).await;
    assert_eq!(value(&check(outside, Code::InvalidArgument, "INVALID_REQUEST"), "field"), "guest");
    // The machine is still starting when the Open comes.
    let path = world.at("new.sock").display().to_string();
    let mut control = world.host.clone();
    let opening = tokio::spawn({
        let request = open(path.clone(), Duration::from_secs(60));
        async move { control.open_workspace(request).await }
    });
    let (_agent, _) = Agent::start(&world.at("machine"), &format!("unix:{path}"), &[]);
    let opened = opening.await.unwrap().unwrap().into_inner().workspace.unwrap();
    assert_eq!(opened.state(), host::WorkspaceState::Running);
    assert!(world.files.stat(stat("m", "/")).await.is_ok());
    world.server.shutdown().await;
}
