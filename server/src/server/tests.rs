//! The agent in one process, called over real gRPC on loopback and on a Unix socket.

use std::{fs, path::Path, time::Duration};

use dormouse_proto::{
    GENERATION_METADATA,
    files::v1::{self as files, files_service_client::FilesServiceClient, files_service_server},
    host::v1::{self as host, host_service_client::HostServiceClient},
};
use tokio_stream::StreamExt;
use tonic::{
    Code, Request, Status,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;

use super::*;
use crate::config::{ConfiguredState, DiskConfig, WorkspaceConfig};

/// An agent with one directory workspace, `w`, and its callers.
struct World {
    directory: tempfile::TempDir,
    server: Option<Server>,
    files: FilesServiceClient<Channel>,
    host: HostServiceClient<Channel>,
}

fn config(directory: &Path) -> Config {
    let root = directory.join("tree");
    fs::create_dir_all(root.join("src")).unwrap();
    fs::write(root.join("src/a.txt"), "one\ntwo TODO\nthree\n").unwrap();
    let workspace = WorkspaceConfig {
        name: "w".to_owned(),
        state: ConfiguredState::Running,
        directory: Some(root),
        disk: None,
        guest: None,
        guest_token_file: None,
    };
    Config {
        listen: vec![
            Address::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 0))),
            Address::Unix(directory.join("files.sock")),
        ],
        host_listen: vec![Address::Unix(directory.join("host.sock"))],
        state_dir: directory.join("state"),
        state_may_vanish: true,
        workspaces: vec![workspace],
        ..Config::default()
    }
}

async fn connect(address: &Address) -> Channel {
    let uri = match address {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    };
    Endpoint::from_shared(uri).unwrap().connect().await.unwrap()
}

impl World {
    async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        change(&mut config);
        Self::from(directory, &config).await
    }

    async fn from(directory: tempfile::TempDir, config: &Config) -> Self {
        let server = Server::start(config).await.unwrap();
        let files = FilesServiceClient::new(connect(&server.listen()[0]).await);
        let host = HostServiceClient::new(connect(&server.host_listen()[0]).await);
        Self { directory, server: Some(server), files, host }
    }

    fn host_state(&self) -> &Host {
        self.server.as_ref().unwrap().host()
    }

    async fn end(mut self) -> usize {
        self.server.take().unwrap().shutdown().await
    }

    async fn suspend(&mut self) -> host::Workspace {
        let request = host::SuspendWorkspaceRequest { name: "w".to_owned(), ..Default::default() };
        self.host.suspend_workspace(request).await.unwrap().into_inner().workspace.unwrap()
    }

    async fn resume(&mut self) -> host::Workspace {
        let request = host::ResumeWorkspaceRequest { name: "w".to_owned(), ..Default::default() };
        self.host.resume_workspace(request).await.unwrap().into_inner().workspace.unwrap()
    }

    async fn read(&mut self, request: files::ReadRequest) -> Result<(files::ReadResponse, Vec<u8>), Status> {
        let mut stream = self.files.read(request).await?.into_inner();
        let mut first: Option<files::ReadResponse> = None;
        let mut bytes = Vec::new();
        let mut ended = false;
        while let Some(message) = stream.next().await {
            let message = message?;
            bytes.extend_from_slice(&message.data);
            ended |= message.end.is_some();
            first.get_or_insert(message);
        }
        assert!(ended, "a read without an end");
        Ok((first.unwrap(), bytes))
    }
}

fn stat(path: &str) -> files::StatRequest {
    files::StatRequest { workspace: "w".to_owned(), path: path.to_owned(), ..Default::default() }
}

fn read(path: &str) -> files::ReadRequest {
    files::ReadRequest { workspace: "w".to_owned(), path: path.to_owned(), ..Default::default() }
}

fn search(pattern: &str) -> files::SearchRequest {
    files::SearchRequest {
        workspace: "w".to_owned(),
        path: "/".to_owned(),
        pattern: pattern.to_owned(),
        ..Default::default()
    }
}

fn content(path: &str, text: &str, key: &str) -> files::PatchRequest {
    files::PatchRequest {
        workspace: "w".to_owned(),
        path: path.to_owned(),
        change: Some(files::patch_request::Change::Content(text.to_owned().into())),
        idempotency_key: key.to_owned(),
        ..Default::default()
    }
}

#[track_caller]
fn check<T: std::fmt::Debug>(found: Result<T, Status>, code: Code, reason: &str) -> Status {
    let status = found.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    let details = status.get_error_details();
    assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some(reason), "{status:?}");
    status
}

fn value(status: &Status, key: &str) -> String {
    status.get_error_details().error_info().unwrap().metadata.get(key).cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_file_is_described_read_searched_and_listed_over_both_sockets() {
    let mut world = World::new(|_| ()).await;
    let over_unix = connect(&world.server.as_ref().unwrap().listen()[1]).await;
    for mut client in [world.files.clone(), FilesServiceClient::new(over_unix)] {
        let request = files::StatRequest { include_revision: true, ..stat("/src/a.txt") };
        let answer = client.stat(request).await.unwrap().into_inner();
        let file = answer.file.unwrap();
        assert_eq!((file.path.as_str(), file.size_bytes), ("/src/a.txt", 19));
        assert_eq!(file.revision.unwrap().len(), 64);
        assert_eq!(answer.origin.unwrap().served_from(), files::ServedFrom::Workspace);
    }
    let (first, bytes) = world.read(read("/src/a.txt")).await.unwrap();
    assert_eq!(bytes, b"one\ntwo TODO\nthree\n");
    assert_eq!(first.end.unwrap().bytes_sent, 19);
    let found = world.files.search(search("TODO")).await.unwrap().into_inner().next().await.unwrap().unwrap();
    assert_eq!((found.matches[0].path.as_str(), found.matches[0].line), ("/src/a.txt", 2));
    let request =
        files::ListRequest { workspace: "w".to_owned(), path: "/".to_owned(), depth: Some(2), ..Default::default() };
    let listed = world.files.list(request).await.unwrap().into_inner().next().await.unwrap().unwrap();
    let paths: Vec<&str> = listed.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/src", "/src/a.txt"]);
    assert_eq!(world.end().await, 0);
}

#[tokio::test]
async fn a_refusal_comes_before_the_stream() {
    let mut world = World::new(|_| ()).await;
    let missing = world.files.read(read("/src/none/x")).await.map(drop);
    assert_eq!(value(&check(missing, Code::NotFound, "FILE_NOT_FOUND"), "missing"), "/src/none");
    let unknown = files::ReadRequest { workspace: "other".to_owned(), ..read("/src/a.txt") };
    check(world.files.read(unknown).await.map(drop), Code::NotFound, "WORKSPACE_NOT_FOUND");
    check(world.files.read(read("/../a")).await.map(drop), Code::InvalidArgument, "PATH_OUTSIDE_WORKSPACE");
    let pattern = files::SearchRequest { regex: true, ..search("f(") };
    check(world.files.search(pattern).await.map(drop), Code::InvalidArgument, "INVALID_PATTERN");
    let mut newer = Request::new(stat("/"));
    newer.metadata_mut().insert(GENERATION_METADATA, "99".parse().unwrap());
    let stale = check(world.files.stat(newer).await, Code::Aborted, "STALE_GENERATION");
    assert_eq!(value(&stale, "generation"), "1");
    let source = files::ReadSource::Disk.into();
    check(world.files.stat(files::StatRequest { source, ..stat("/") }).await, Code::FailedPrecondition, "WRONG_STATE");
    world.end().await;
}

#[tokio::test]
async fn a_patch_is_applied_once_and_a_sleeping_workspace_refuses_it() {
    let mut world = World::new(|_| ()).await;
    let done = world.files.patch(content("/new.txt", "x", "k1")).await.unwrap().into_inner();
    assert!(!done.replayed && done.previous_revision.is_none());
    let again = world.files.patch(content("/new.txt", "x", "k1")).await.unwrap().into_inner();
    assert!(again.replayed && again.revision == done.revision);
    let reused = world.files.patch(content("/new.txt", "y", "k1")).await;
    check(reused, Code::InvalidArgument, "IDEMPOTENCY_KEY_REUSED");
    let asleep = world.suspend().await;
    assert_eq!((asleep.state(), asleep.generation), (host::WorkspaceState::Suspended, 2));
    let refused =
        check(world.files.patch(content("/z", "z", "k2")).await, Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING");
    assert_eq!(value(&refused, "state"), "suspended");
    let (first, bytes) = world.read(read("/new.txt")).await.unwrap();
    let origin = first.origin.unwrap();
    assert_eq!((bytes.as_slice(), origin.served_from()), (b"x".as_slice(), files::ServedFrom::Disk));
    assert_eq!((origin.consistency(), origin.generation), (files::Consistency::Exact, 2));
    let source = files::ReadSource::Workspace.into();
    let only_running = world.files.stat(files::StatRequest { source, ..stat("/") }).await;
    check(only_running, Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING");
    assert_eq!(world.resume().await.generation, 3);
    assert!(world.files.patch(content("/z", "z", "k2")).await.is_ok());
    world.end().await;
}

#[tokio::test]
async fn a_write_of_many_pieces_is_one_file_and_a_broken_one_is_none() {
    let mut world = World::new(|_| ()).await;
    let start = |path: &str| {
        let start = files::WriteStart {
            workspace: "w".to_owned(),
            path: path.to_owned(),
            idempotency_key: path.to_owned(),
            ..Default::default()
        };
        files::WriteRequest { message: Some(files::write_request::Message::Start(start)) }
    };
    let data = |bytes: usize| files::WriteRequest {
        message: Some(files::write_request::Message::Data(vec![b'x'; bytes].into())),
    };
    let finish = |size_bytes: i64| {
        let finish = files::WriteFinish { size_bytes, crc32c: None };
        files::WriteRequest { message: Some(files::write_request::Message::Finish(finish)) }
    };
    let whole = vec![start("/big"), data(300_000), data(5), finish(300_005)];
    let done = world.files.write(tokio_stream::iter(whole)).await.unwrap().into_inner();
    assert_eq!(done.bytes_written, 300_005);
    let (_, bytes) = world.read(read("/big")).await.unwrap();
    assert_eq!(bytes.len(), 300_005);
    for (broken, field) in [
        (vec![start("/b1"), data(5)], "message"),
        (vec![data(5)], "message"),
        (vec![start("/b2"), start("/b2")], "message"),
        (vec![start("/b3"), finish(0), data(1)], "message"),
        (vec![start("/b4"), finish(-1)], "finish.size_bytes"),
        (vec![], "message"),
    ] {
        let refused = world.files.write(tokio_stream::iter(broken)).await;
        assert_eq!(value(&check(refused, Code::InvalidArgument, "INVALID_REQUEST"), "field"), field);
    }
    let names: Vec<_> =
        fs::read_dir(world.directory.path().join("tree")).unwrap().map(|name| name.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with('b') && name != "big"), "{names:?}");
    world.end().await;
}

#[tokio::test]
async fn what_tonic_would_say_is_said_in_our_words() {
    let mut world = World::new(|_| ()).await;
    let oversize = content("/f", &"x".repeat(9 << 20), "k");
    check(world.files.patch(oversize).await, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    let over = content("/f", &"x".repeat(7 << 20), "k");
    let refused = check(world.files.patch(over).await, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    assert_eq!(value(&refused, "limit_bytes"), "7340032");

    /// StatRequest as an old or careless encoder could write it: with a path that is not UTF-8.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Careless {
        #[prost(bytes, tag = "2")]
        path: Vec<u8>,
    }
    let channel = connect(&world.server.as_ref().unwrap().listen()[0]).await;
    let mut raw = tonic::client::Grpc::new(channel);
    let mut call = async |method: &'static str| {
        raw.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<Careless, files::StatResponse>::default();
        let message = Careless { path: b"/\xff".to_vec() };
        raw.unary(Request::new(message), PathAndQuery::from_static(method), codec).await.map(drop)
    };
    let refused = call("/dormouse.files.v1.FilesService/Stat").await;
    check(refused, Code::InvalidArgument, "INVALID_REQUEST");
    let unknown = call("/dormouse.files.v1.FilesService/Summarise").await;
    check(unknown, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    let unknown = call("/dormouse.files.v9.FilesService/Stat").await;
    check(unknown, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    world.end().await;
}

#[tokio::test]
async fn features_that_are_off_say_so() {
    let off = ["file_search", "file_patch", "file_write", "file_revision", "offline_read"];
    let mut world = World::new(|config| config.disable_features = off.map(str::to_owned).to_vec()).await;
    let request = files::GetCapabilitiesRequest { workspace: "w".to_owned() };
    let can = world.files.get_capabilities(request).await.unwrap().into_inner();
    assert!(can.features.is_empty());
    assert_eq!(can.limits.unwrap().max_request_bytes, 7 << 20);
    let refused =
        check(world.files.search(search("x")).await.map(drop), Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    for (key, expect) in
        [("feature", "file_search"), ("code", "conflict"), ("retryable", "false"), ("http_status", "409")]
    {
        assert_eq!(value(&refused, key), expect);
    }
    let refused =
        check(world.files.patch(content("/f", "x", "k")).await, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "file_patch");
    let request = files::RemoveRequest {
        workspace: "w".to_owned(),
        path: "/src".to_owned(),
        idempotency_key: "k".to_owned(),
        ..Default::default()
    };
    let refused = check(world.files.remove(request).await, Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "file_write");
    let request = files::StatRequest { include_revision: true, ..stat("/src/a.txt") };
    assert_eq!(world.files.stat(request).await.unwrap().into_inner().file.unwrap().revision, None);
    let pinned = files::ReadRequest { expected_revision: Some("0".repeat(64)), ..read("/src/a.txt") };
    let refused = check(world.files.read(pinned).await.map(drop), Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE");
    assert_eq!(value(&refused, "feature"), "file_revision");
    world.suspend().await;
    check(world.files.stat(stat("/")).await, Code::FailedPrecondition, "OFFLINE_UNAVAILABLE");
    world.end().await;
}

/// A Write that has begun and waits for its data: it holds its room.
async fn held_write(
    world: &World,
    path: &str,
) -> (
    tokio::sync::mpsc::Sender<files::WriteRequest>,
    tokio::task::JoinHandle<Result<tonic::Response<files::WriteResponse>, Status>>,
) {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let start = files::WriteStart {
        workspace: "w".to_owned(),
        path: path.to_owned(),
        idempotency_key: path.to_owned(),
        ..Default::default()
    };
    sender.send(files::WriteRequest { message: Some(files::write_request::Message::Start(start)) }).await.unwrap();
    let calls = world.host_state().admission().calls();
    let mut client = world.files.clone();
    let call = tokio::spawn(async move { client.write(tokio_stream::wrappers::ReceiverStream::new(receiver)).await });
    while world.host_state().admission().calls() == calls {
        tokio::task::yield_now().await;
    }
    (sender, call)
}

#[tokio::test]
async fn an_overloaded_host_refuses_and_a_workspace_gets_half() {
    let mut world = World::new(|config| config.limits.calls_max = 2).await;
    let (data, call) = held_write(&world, "/f").await;
    // The workspace's half is one call; another caller's try must wait until that Write has reached the workspace.
    let busy = loop {
        match world.files.stat(stat("/")).await {
            Err(status) => break status,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    let busy = check::<()>(Err(busy), Code::Unavailable, "HOST_OVERLOADED");
    assert!(busy.metadata().contains_key("grpc-retry-pushback-ms"));
    drop(data);
    check(call.await.unwrap(), Code::InvalidArgument, "INVALID_REQUEST");
    world.host_state().admission().idle().await;
    assert!(world.files.stat(stat("/")).await.is_ok());
    world.end().await;
}

#[tokio::test]
async fn a_suspend_cuts_a_staged_write_and_a_drain_refuses_new_calls() {
    let mut world = World::new(|_| ()).await;
    let (data, call) = held_write(&world, "/f").await;
    assert_eq!(world.suspend().await.state(), host::WorkspaceState::Suspended);
    // Cut off while it waited, or refused because the suspend came first: nothing was written either way.
    let status = call.await.unwrap().unwrap_err();
    let reason = status.get_error_details().error_info().unwrap().reason.clone();
    assert!(["WORKSPACE_IN_TRANSITION", "WORKSPACE_NOT_RUNNING"].contains(&reason.as_str()), "{status:?}");
    assert!(!world.directory.path().join("tree/f").exists());
    drop(data);
    let timeout = prost_types::Duration::try_from(Duration::from_secs(5)).ok();
    let drained = world.host.drain_host(host::DrainHostRequest { timeout }).await.unwrap().into_inner();
    assert_eq!(drained.calls_left, 0);
    check(world.files.stat(stat("/")).await, Code::Unavailable, "HOST_DRAINING");
    assert!(world.host.get_host(host::GetHostRequest {}).await.unwrap().into_inner().draining);
    world.host.undrain_host(host::UndrainHostRequest {}).await.unwrap();
    assert!(world.files.stat(stat("/")).await.is_ok());
    world.end().await;
}

#[tokio::test]
async fn generations_are_the_control_planes() {
    let mut world = World::new(|_| ()).await;
    let unseal = |generation| host::UnsealWorkspaceRequest { name: "w".to_owned(), generation };
    let seal = |generation, parked| host::SealWorkspaceRequest {
        name: "w".to_owned(),
        generation,
        parked,
        require_exact: true,
    };
    let sealed = world.host.seal_workspace(seal(10, false)).await.unwrap().into_inner().workspace.unwrap();
    assert!(sealed.generation == 10 && sealed.seal.unwrap().exact);
    let replay = world.host.seal_workspace(seal(10, false)).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!(replay.generation, 10);
    let stale = check(world.host.seal_workspace(seal(10, true)).await, Code::Aborted, "STALE_GENERATION");
    assert_eq!(value(&stale, "generation"), "10");
    check(world.host.unseal_workspace(unseal(9)).await, Code::Aborted, "STALE_GENERATION");
    let wrong = check(world.host.seal_workspace(seal(11, false)).await, Code::FailedPrecondition, "WRONG_STATE");
    assert_eq!(value(&wrong, "wanted"), "running|quiescing|resuming");
    world.host.unseal_workspace(unseal(12)).await.unwrap();
    check(world.files.stat(stat("/")).await, Code::Unavailable, "OFFLINE_CHANGED");
    check(world.files.patch(content("/f", "x", "k")).await, Code::Unavailable, "WORKSPACE_IN_TRANSITION");
    let open = host::OpenWorkspaceRequest { name: "w".to_owned(), generation: 0, guest: None };
    let opened = world.host.open_workspace(open.clone()).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!((opened.generation, opened.state()), (13, host::WorkspaceState::Running));
    // Its target state holds already.
    assert_eq!(world.host.open_workspace(open).await.unwrap().into_inner().workspace.unwrap().generation, 13);
    let quiesce = host::QuiesceWorkspaceRequest { name: "w".to_owned(), generation: 14, timeout: None };
    let still = world.host.quiesce_workspace(quiesce).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!(still.state(), host::WorkspaceState::Quiescing);
    assert!(world.files.stat(stat("/")).await.is_ok());
    check(world.files.patch(content("/f", "x", "k")).await, Code::Unavailable, "WORKSPACE_IN_TRANSITION");
    world.end().await;
}

#[tokio::test]
async fn a_restart_knows_what_it_knew() {
    let mut world = World::new(|_| ()).await;
    world.suspend().await;
    let World { directory, server, .. } = world;
    server.unwrap().shutdown().await;
    let config = config(directory.path());
    let mut world = World::from(directory, &config).await;
    let request = host::GetWorkspaceRequest { name: "w".to_owned() };
    let known = world.host.get_workspace(request).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!((known.state(), known.generation), (host::WorkspaceState::Suspended, 2));
    assert!(known.seal.unwrap().exact);
    let second = Server::start(&config).await.map(drop).unwrap_err();
    assert!(matches!(second, StartError::Store(StoreError::Held { .. })), "{second}");
    world.end().await;
}

#[tokio::test]
async fn a_workspace_is_registered_under_a_root_listed_watched_and_released() {
    let outside = tempfile::tempdir().unwrap();
    let roots = tempfile::tempdir().unwrap();
    let mut world = World::new(|config| config.roots = vec![roots.path().to_owned()]).await;
    let register = |name: &str, root: &Path| {
        let files = host::workspace_spec::Files::Directory(host::Directory { root: root.display().to_string() });
        let spec = Some(host::WorkspaceSpec { files: Some(files) });
        host::RegisterWorkspaceRequest { name: name.to_owned(), spec, ..Default::default() }
    };
    let mut watch = world.host.watch_workspaces(host::WatchWorkspacesRequest {}).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().workspace.unwrap().name, "w");
    assert!(watch.next().await.unwrap().unwrap().synced);
    let refused = world.host.register_workspace(register("x", outside.path())).await;
    assert_eq!(value(&check(refused, Code::InvalidArgument, "INVALID_REQUEST"), "field"), "spec.directory.root");
    for name in ["x/1", "x/2"] {
        let root = roots.path().join(name);
        fs::create_dir_all(&root).unwrap();
        world.host.register_workspace(register(name, &root)).await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap().workspace.unwrap().name, name);
    }
    let replay = world.host.register_workspace(register("x/1", &roots.path().join("x/1"))).await;
    assert_eq!(replay.unwrap().into_inner().workspace.unwrap().generation, 1);
    let other = world.host.register_workspace(register("x/1", &roots.path().join("x/2"))).await;
    check(other, Code::AlreadyExists, "WORKSPACE_ALREADY_EXISTS");
    let mut token = String::new();
    let mut names = Vec::new();
    loop {
        let request = host::ListWorkspacesRequest { page_size: 2, page_token: token, states: Vec::new() };
        let page = world.host.list_workspaces(request).await.unwrap().into_inner();
        names.extend(page.workspaces.into_iter().map(|workspace| workspace.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["w", "x/1", "x/2"]);
    let release = |generation| host::ReleaseWorkspaceRequest { name: "x/1".to_owned(), generation };
    world.host.release_workspace(release(5)).await.unwrap();
    let told = watch.next().await.unwrap().unwrap();
    assert!(told.released && told.workspace.unwrap().name == "x/1");
    world.host.release_workspace(release(5)).await.unwrap();
    check(world.host.release_workspace(release(4)).await, Code::Aborted, "STALE_GENERATION");
    check(world.host.release_workspace(release(6)).await, Code::NotFound, "WORKSPACE_NOT_FOUND");
    let gone = files::StatRequest { workspace: "x/1".to_owned(), ..stat("/") };
    check(world.files.stat(gone).await, Code::NotFound, "WORKSPACE_NOT_FOUND");
    world.end().await;
    check(watch.next().await.unwrap(), Code::Unavailable, "HOST_DRAINING");
}

#[tokio::test]
async fn a_sleeping_disk_is_read_and_a_touched_one_is_not() {
    let demo = crate::demo::Demo::start().await.unwrap();
    let mut client = FilesServiceClient::new(connect(&demo.server().listen()[0]).await);
    let asleep =
        |path: &str| files::StatRequest { workspace: "demo/asleep".to_owned(), include_revision: true, ..stat(path) };
    let answer = client.stat(asleep("/src/main.py")).await.unwrap().into_inner();
    let origin = answer.origin.unwrap();
    assert_eq!((origin.served_from(), origin.consistency()), (files::ServedFrom::Disk, files::Consistency::Exact));
    let text = include_str!("../../demo/project/src/main.py");
    let revision = dormouse_files::revision::Revision::of(text.as_bytes()).to_string();
    assert_eq!(answer.file.unwrap().revision, Some(revision));
    let change = files::PatchRequest { workspace: "demo/asleep".to_owned(), ..content("/x", "x", "k") };
    check(client.patch(change).await, Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING");
    let text = demo.to_try();
    assert!(text.contains("DORMOUSE_ENDPOINT") && text.contains("grpcurl"), "{text}");

    let mut control = HostServiceClient::new(connect(&demo.server().host_listen()[0]).await);
    let request = host::GetWorkspaceRequest { name: "demo/asleep".to_owned() };
    let workspace = control.get_workspace(request.clone()).await.unwrap().into_inner().workspace.unwrap();
    let Some(host::workspace_spec::Files::Machine(machine)) = workspace.spec.unwrap().files else {
        panic!("a machine sleeps there")
    };
    let image = machine.disks[0].layers[0].path.clone();
    // Somebody starts the machine without an Unseal: its file system writes the superblock.
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024 + 0x34] ^= 1;
    fs::write(&image, &bytes).unwrap();
    check(client.stat(asleep("/src/main.py")).await, Code::Unavailable, "OFFLINE_CHANGED");
    check(client.stat(asleep("/src/main.py")).await, Code::FailedPrecondition, "WORKSPACE_QUARANTINED");
    let quarantined = control.get_workspace(request).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!(quarantined.state(), host::WorkspaceState::Quarantined);
    let unseal = host::UnsealWorkspaceRequest { name: "demo/asleep".to_owned(), generation: 0 };
    control.unseal_workspace(unseal).await.unwrap();
    check(client.stat(asleep("/")).await, Code::Unavailable, "OFFLINE_CHANGED");
    demo.end().await;
}

#[tokio::test]
async fn a_disk_that_is_missing_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.workspaces[0] = asleep(&directory.path().join("none.img"));
    let refused = Server::start(&config).await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, StartError::Workspace(ConfiguredError::Refused { what, .. }) if what.contains("none.img"))
    );
    assert!(!directory.path().join("files.sock").exists(), "nothing is bound");
}

#[tokio::test]
async fn health_says_when_the_agent_goes_down() {
    let world = World::new(|_| ()).await;
    let channel = connect(&world.server.as_ref().unwrap().listen()[0]).await;
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let service = <files_service_server::FilesServiceServer<Files> as NamedService>::NAME.to_owned();
    let request = tonic_health::pb::HealthCheckRequest { service };
    let answer = health.check(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    let mut watched = health.watch(request).await.unwrap().into_inner();
    let serving = watched.next().await.unwrap().unwrap().status();
    assert_eq!(serving, tonic_health::pb::health_check_response::ServingStatus::Serving);
    let down = tokio::spawn(world.end());
    let not_serving = watched.next().await.unwrap().unwrap().status();
    assert_eq!(not_serving, tonic_health::pb::health_check_response::ServingStatus::NotServing);
    drop(watched);
    drop(health);
    assert_eq!(down.await.unwrap(), 0);
}

#[tokio::test]
async fn a_quiesce_is_over_when_its_time_is() {
    let mut world = World::new(|_| ()).await;
    let mut watch = world.host.watch_workspaces(host::WatchWorkspacesRequest {}).await.unwrap().into_inner();
    let timeout = prost_types::Duration::try_from(Duration::from_millis(20)).ok();
    let request = host::QuiesceWorkspaceRequest { name: "w".to_owned(), generation: 7, timeout };
    world.host.quiesce_workspace(request).await.unwrap();
    let mut quiescing = false;
    loop {
        let told = watch.next().await.unwrap().unwrap();
        let Some(workspace) = told.workspace else { continue };
        quiescing |= workspace.state() == host::WorkspaceState::Quiescing;
        if quiescing && workspace.state() == host::WorkspaceState::Running {
            break;
        }
    }
    assert!(world.files.patch(content("/f", "x", "k")).await.is_ok());
    world.end().await;
}

#[tokio::test]
async fn a_silent_peer_and_an_open_read_do_not_hold_up_the_way_down() {
    let mut world = World::new(|config| config.limits.drain = Duration::from_millis(300)).await;
    fs::write(world.directory.path().join("tree/big"), vec![7; 32 << 20]).unwrap();
    let Address::Tcp(address) = world.server.as_ref().unwrap().listen()[0].clone() else { panic!("a port") };
    let silent = std::net::TcpStream::connect(address).unwrap();
    let mut open = world.files.read(read("/big")).await.unwrap().into_inner();
    assert!(open.next().await.unwrap().is_ok());
    let began = std::time::Instant::now();
    let calls_left = world.end().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(calls_left, 1, "the read that nobody takes on");
    drop((silent, open));
}

/// The demonstration's image with its superblock changed, as by a machine that stopped without a freeze.
fn image(directory: &Path, name: &str, change: impl FnOnce(&mut [u8])) -> std::path::PathBuf {
    use std::io::Read;
    let mut bytes = Vec::new();
    let packed: &[u8] = include_bytes!("../../demo/asleep.img.gz");
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let superblock = &mut bytes[1024..2048];
    change(superblock);
    // s_checksum: crc32c of all before it, begun with all ones and not inverted at the end.
    let checksum = !crc32c::crc32c(&superblock[..0x3fc]);
    superblock[0x3fc..].copy_from_slice(&checksum.to_le_bytes());
    let path = directory.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn asleep(path: &Path) -> WorkspaceConfig {
    WorkspaceConfig {
        name: "w".to_owned(),
        state: ConfiguredState::Suspended,
        directory: None,
        guest: None,
        guest_token_file: None,
        disk: Some(DiskConfig {
            path: path.to_owned(),
            format: crate::host::spec::DiskFormat::Raw,
            backing: Vec::new(),
            partition: None,
            partition_guid: None,
            file_system: crate::host::spec::FileSystem::Ext4,
            mount_path: "/".to_owned(),
            flushes: true,
        }),
    }
}

#[tokio::test]
async fn a_disk_without_a_journal_is_never_exact() {
    let images = tempfile::tempdir().unwrap();
    // s_feature_compat: HAS_JOURNAL
    let path = image(images.path(), "plain.img", |superblock| superblock[0x5c] &= !4);
    let mut world = World::new(|config| {
        config.workspaces[0] = asleep(&path);
        config.offline.serve_unsealed = crate::config::ServeUnsealed::Crash;
    })
    .await;
    let answer = world.files.stat(stat("/README.md")).await.unwrap().into_inner();
    assert_eq!(answer.origin.unwrap().consistency(), files::Consistency::Crash);
    world.end().await;
    let mut world = World::new(|config| config.workspaces[0] = asleep(&path)).await;
    check(world.files.stat(stat("/README.md")).await, Code::FailedPrecondition, "OFFLINE_UNAVAILABLE");
    world.end().await;
}

#[tokio::test]
async fn an_unclean_disk_answers_only_where_the_host_allows_it() {
    let images = tempfile::tempdir().unwrap();
    // s_feature_incompat: RECOVER
    let path = image(images.path(), "unclean.img", |superblock| superblock[0x60] |= 4);
    let disk = |config: &mut Config| config.workspaces[0] = asleep(&path);
    let mut world = World::new(disk).await;
    check(world.files.stat(stat("/README.md")).await, Code::FailedPrecondition, "OFFLINE_UNAVAILABLE");
    let request = host::GetWorkspaceRequest { name: "w".to_owned() };
    let asleep = world.host.get_workspace(request).await.unwrap().into_inner().workspace.unwrap();
    assert!(!asleep.seal.unwrap().exact && asleep.note.contains("needs_recovery"), "{}", asleep.note);
    // It has no agent that could answer once it runs, and nothing is begun; its machine may be started all the same.
    let resume = host::ResumeWorkspaceRequest { name: "w".to_owned(), generation: 0 };
    let refused = check(world.host.resume_workspace(resume).await, Code::InvalidArgument, "INVALID_REQUEST");
    assert_eq!(value(&refused, "field"), "spec.machine.guest");
    let unseal = host::UnsealWorkspaceRequest { name: "w".to_owned(), generation: 0 };
    world.host.unseal_workspace(unseal).await.unwrap();
    let seal = host::SealWorkspaceRequest { name: "w".to_owned(), require_exact: true, ..Default::default() };
    let refused = check(world.host.seal_workspace(seal).await, Code::FailedPrecondition, "NOT_QUIESCED");
    assert_eq!(value(&refused, "what"), "needs_recovery");
    world.end().await;

    let mut world = World::new(|config| {
        disk(config);
        config.offline.serve_unsealed = crate::config::ServeUnsealed::Crash;
    })
    .await;
    let (first, _) = world.read(read("/README.md")).await.unwrap();
    assert_eq!(first.origin.unwrap().consistency(), files::Consistency::Crash);
    world.end().await;
}

#[tokio::test]
async fn many_slow_readers_hold_no_more_than_their_windows() {
    let mut world = World::new(|config| config.limits.calls_max = 64).await;
    fs::write(world.directory.path().join("tree/big"), vec![7; 8 << 20]).unwrap();
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        match world.files.read(read("/big")).await {
            Ok(stream) => open.push(stream.into_inner()),
            Err(status) => {
                check::<()>(Err(status), Code::Unavailable, "HOST_OVERLOADED");
                refused += 1;
            }
        }
    }
    assert_eq!((open.len(), refused), (32, 68), "a workspace gets half of the room");
    // All at once: they share one connection, whose window a stream that nobody reads would keep.
    let readers: Vec<_> = open
        .into_iter()
        .map(|mut stream| {
            tokio::spawn(async move {
                let mut bytes = 0;
                while let Some(message) = stream.next().await {
                    bytes += message.unwrap().data.len();
                }
                bytes
            })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), 8 << 20);
    }
    assert_eq!(world.end().await, 0);
}

#[tokio::test]
async fn a_read_in_flight_ends_when_the_unseal_begins() {
    let mut world = World::new(|_| ()).await;
    fs::write(world.directory.path().join("tree/big"), vec![7; 64 << 20]).unwrap();
    world.suspend().await;
    let mut stream = world.files.read(read("/big")).await.unwrap().into_inner();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first.origin.unwrap().served_from(), files::ServedFrom::Disk);
    let unseal = host::UnsealWorkspaceRequest { name: "w".to_owned(), generation: 0 };
    world.host.unseal_workspace(unseal).await.unwrap();
    let mut bytes = first.data.len();
    let ended = loop {
        match stream.next().await.unwrap() {
            Ok(message) => {
                assert!(message.end.is_none(), "it ended well");
                bytes += message.data.len();
            }
            Err(status) => break status,
        }
    };
    assert!(bytes < 64 << 20, "what was on its way is less than all");
    check::<()>(Err(ended), Code::Unavailable, "OFFLINE_CHANGED");
    world.end().await;
}

#[tokio::test]
async fn a_suspend_whose_hook_failed_is_carried_on_by_its_replay() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("stopped");
    let mut world = World::new(|config| {
        config.hooks.pause = vec!["test".to_owned(), "-f".to_owned(), flag.display().to_string()];
    })
    .await;
    let suspend = |generation| host::SuspendWorkspaceRequest { name: "w".to_owned(), generation, parked: false };
    check(world.host.suspend_workspace(suspend(5)).await, Code::Internal, "IO_ERROR");
    let request = host::GetWorkspaceRequest { name: "w".to_owned() };
    let now = world.host.get_workspace(request).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!((now.state(), now.generation), (host::WorkspaceState::Quiescing, 5));
    check(world.host.suspend_workspace(suspend(4)).await, Code::Aborted, "STALE_GENERATION");
    fs::write(&flag, "").unwrap();
    let done = world.host.suspend_workspace(suspend(5)).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!((done.state(), done.generation), (host::WorkspaceState::Suspended, 5));
    let again = world.host.suspend_workspace(suspend(5)).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!(again, done);
    world.end().await;
}

#[tokio::test]
async fn a_root_that_was_replaced_is_refused_and_then_opened_by_a_resume() {
    let mut world = World::new(|_| ()).await;
    let (root, old) = (world.directory.path().join("tree"), world.directory.path().join("old"));
    fs::rename(&root, &old).unwrap();
    fs::create_dir(&root).unwrap();
    check(world.files.patch(content("/n", "x", "k1")).await, Code::Internal, "IO_ERROR");
    world.suspend().await;
    fs::remove_dir(&root).unwrap();
    let request = host::ResumeWorkspaceRequest { name: "w".to_owned(), ..Default::default() };
    check(world.host.resume_workspace(request).await, Code::Internal, "IO_ERROR");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("here"), "new").unwrap();
    assert_eq!(world.resume().await.state(), host::WorkspaceState::Running);
    assert_eq!(world.read(read("/here")).await.unwrap().1, b"new");
    world.files.patch(content("/n", "x", "k2")).await.unwrap();
    assert_eq!(fs::read(root.join("n")).unwrap(), b"x");
    assert!(!old.join("n").exists());
    world.end().await;
}
