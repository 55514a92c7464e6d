//! HostService: which workspaces are known, their generations, and what survives a restart.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dormouse_proto::{
    files::v1::{self as pb, ErrorReason},
    host::v1::{self as host, WorkspaceState, host_service_client::HostServiceClient, workspace_spec::Files},
};
use dormouse_tests::{
    ask, image,
    refusal::Refusal,
    site::put,
    world::{Setup, World},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{Status, transport::Channel};

/// An agent that may be told of workspaces under one directory.
struct Hosted {
    world: World,
    runtime: Runtime,
    place: TempDir,
}

impl Hosted {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        Self::again(place)
    }

    fn again(place: TempDir) -> Self {
        fs::create_dir_all(place.path().join("roots")).expect("a directory");
        let config = format!("roots = [{:?}]\n", place.path().join("roots"));
        let world = Setup::new().config(config).state(&place.path().join("state")).start();
        Self { world, runtime: Runtime::new().expect("a runtime"), place }
    }

    fn client(&self) -> HostServiceClient<Channel> {
        self.runtime.block_on(self.world.host())
    }

    fn wait<T>(&self, call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Refusal> {
        Ok(self.runtime.block_on(call)?.into_inner())
    }

    /// A directory with one file under the configured root.
    fn root(&self, name: &str) -> PathBuf {
        let root = self.place.path().join("roots").join(name);
        put(&root, "a", "one\n");
        root
    }

    fn register(&self, request: host::RegisterWorkspaceRequest) -> Result<host::Workspace, Refusal> {
        let answer = self.wait(self.client().register_workspace(request))?;
        Ok(answer.workspace.expect("a workspace"))
    }

    fn get(&self, name: &str) -> Result<host::Workspace, Refusal> {
        let request = host::GetWorkspaceRequest { name: name.to_owned() };
        let answer = self.wait(self.client().get_workspace(request))?;
        Ok(answer.workspace.expect("a workspace"))
    }

    fn suspend(&self, name: &str, generation: i64) -> Result<host::Workspace, Refusal> {
        let request = host::SuspendWorkspaceRequest { name: name.to_owned(), generation, parked: false };
        let answer = self.wait(self.client().suspend_workspace(request))?;
        Ok(answer.workspace.expect("a workspace"))
    }

    fn resume(&self, name: &str, generation: i64) -> Result<host::Workspace, Refusal> {
        let request = host::ResumeWorkspaceRequest { name: name.to_owned(), generation };
        let answer = self.wait(self.client().resume_workspace(request))?;
        Ok(answer.workspace.expect("a workspace"))
    }

    fn release(&self, name: &str) -> Result<(), Refusal> {
        let request = host::ReleaseWorkspaceRequest { name: name.to_owned(), generation: 0 };
        self.wait(self.client().release_workspace(request)).map(|_| ())
    }

    fn list(&self, request: host::ListWorkspacesRequest) -> Result<host::ListWorkspacesResponse, Refusal> {
        self.wait(self.client().list_workspaces(request))
    }
}

fn directory(name: &str, root: &Path) -> host::RegisterWorkspaceRequest {
    let root = root.to_str().expect("a path of text").to_owned();
    let files = Files::Directory(host::Directory { root });
    host::RegisterWorkspaceRequest {
        name: name.to_owned(),
        spec: Some(host::WorkspaceSpec { files: Some(files) }),
        ..Default::default()
    }
}

fn disk(name: &str, image: &Path) -> host::RegisterWorkspaceRequest {
    let path = image.to_str().expect("a path of text").to_owned();
    let layers = vec![host::DiskLayer { path, format: host::DiskFormat::Raw as i32 }];
    let disk = host::Disk { layers, file_system: host::FileSystem::Ext4 as i32, flushes: true, ..Default::default() };
    let machine = host::Machine { guest: None, disks: vec![disk] };
    host::RegisterWorkspaceRequest {
        name: name.to_owned(),
        spec: Some(host::WorkspaceSpec { files: Some(Files::Machine(machine)) }),
        state: WorkspaceState::Suspended as i32,
        ..Default::default()
    }
}

#[test]
fn a_registered_workspace_is_served_and_a_released_one_is_not() {
    let hosted = Hosted::new();
    let root = hosted.root("one");
    let made = hosted.register(directory("c/one", &root)).expect("it is registered");
    assert_eq!((made.name.as_str(), made.state()), ("c/one", WorkspaceState::Running));
    assert_eq!(hosted.get("c/one").expect("it is known"), made);
    let mut files = hosted.runtime.block_on(hosted.world.files());
    let stat = |files: &mut pb::files_service_client::FilesServiceClient<Channel>| {
        hosted.wait(files.stat(ask::stat("c/one", "/a")))
    };
    stat(&mut files).expect("it is served");
    hosted.release("c/one").expect("it is released");
    stat(&mut files).expect_err("it is forgotten").expect(ErrorReason::WorkspaceNotFound);
    hosted.get("c/one").expect_err("it is forgotten").expect(ErrorReason::WorkspaceNotFound).with("workspace", "c/one");
    assert_eq!(fs::read(root.join("a")).expect("its files are left alone"), b"one\n");
}

#[test]
fn a_sleeping_disk_is_registered_and_sealed_at_once() {
    let hosted = Hosted::new();
    let root = hosted.root("tree");
    let image = image::make(&root, &hosted.place.path().join("roots"), image::Directories::Linear, "8M");
    let made = hosted.register(disk("c/disk", &image)).expect("it is registered");
    assert_eq!(made.state(), WorkspaceState::Suspended);
    let seal = made.seal.expect("a seal");
    assert!(seal.exact && seal.layer_stamps.len() == 1 && seal.superblock_sha256.len() == 64, "{seal:?}");
    // No image belongs to two workspaces.
    hosted.register(disk("c/other", &image)).expect_err("it is another's").expect(ErrorReason::InvalidRequest);
}

#[test]
fn the_same_spec_is_a_replay_and_another_is_refused() {
    let hosted = Hosted::new();
    let request = directory("c/one", &hosted.root("one"));
    let made = hosted.register(request.clone()).expect("it is registered");
    assert_eq!(hosted.register(request).expect("it is so already"), made);
    let other = directory("c/one", &hosted.root("two"));
    hosted
        .register(other)
        .expect_err("another directory")
        .expect(ErrorReason::WorkspaceAlreadyExists)
        .with("workspace", "c/one");
}

#[test]
fn only_what_lies_under_a_configured_root_is_registered() {
    let hosted = Hosted::new();
    let outside = hosted.place.path().join("outside");
    put(&outside, "a", "one\n");
    let link = hosted.place.path().join("roots/link");
    std::os::unix::fs::symlink(&outside, &link).expect("a link");
    let inside = hosted.root("inside");
    for root in [
        outside.as_path(),
        &link,
        Path::new("/"),
        Path::new("/etc"),
        &inside.join("../../outside"),
        Path::new("relative"),
        &hosted.place.path().join("roots/missing"),
        &inside.join("a"),
    ] {
        let refusal = hosted.register(directory("c/one", root)).expect_err("it lies outside, or is no directory");
        assert!(
            matches!(refusal.reason, ErrorReason::InvalidRequest | ErrorReason::PathOutsideWorkspace),
            "{root:?}: {refusal:?}"
        );
    }
    for name in ["", "/a", "a/", "a//b", "../a", "a/..", "a b", "\u{e9}", &"n".repeat(129)] {
        let refusal = hosted.register(directory(name, &inside)).expect_err("no name");
        refusal.expect(ErrorReason::InvalidRequest).with("field", "name");
    }
    let nothing = host::RegisterWorkspaceRequest { name: "c/one".to_owned(), ..Default::default() };
    hosted.register(nothing).expect_err("no spec").expect(ErrorReason::InvalidRequest);
    hosted.register(directory("c/one", &inside)).expect("it lies inside");
    let refusal = hosted.register(directory("c/two", &inside.join("."))).expect_err("a root within a root");
    refusal.expect(ErrorReason::InvalidRequest);
}

#[test]
fn workspaces_are_listed_in_pages_by_name_and_state() {
    let hosted = Hosted::new();
    for number in 0..25 {
        let name = format!("w{number:02}");
        hosted.register(directory(&name, &hosted.root(&name))).expect("it is registered");
        if number % 5 == 0 {
            hosted.suspend(&name, 0).expect("it sleeps");
        }
    }
    let pages = |states: Vec<WorkspaceState>, page_size| {
        let (mut names, mut token, mut count) = (Vec::new(), String::new(), 0);
        loop {
            let states = states.iter().map(|state| *state as i32).collect();
            let request = host::ListWorkspacesRequest { page_size, page_token: token, states };
            let page = hosted.list(request).expect("a page");
            assert!(page_size == 0 || page.workspaces.len() <= page_size as usize);
            names.extend(page.workspaces.into_iter().map(|workspace| workspace.name));
            (token, count) = (page.next_page_token, count + 1);
            if token.is_empty() {
                return (names, count);
            }
        }
    };
    let all: Vec<_> = (0..25).map(|number| format!("w{number:02}")).collect();
    assert_eq!(pages(vec![], 10), (all.clone(), 3));
    assert_eq!(pages(vec![], 0), (all, 1));
    let asleep = pages(vec![WorkspaceState::Suspended], 2).0;
    assert_eq!(asleep, ["w00", "w05", "w10", "w15", "w20"]);
    for request in [
        host::ListWorkspacesRequest { page_size: -1, ..Default::default() },
        host::ListWorkspacesRequest { page_token: "\u{1}nonsense".to_owned(), ..Default::default() },
    ] {
        hosted.list(request).expect_err("no page").expect(ErrorReason::InvalidRequest);
    }
}

#[test]
fn a_watcher_hears_what_is_and_then_what_changes() {
    let hosted = Hosted::new();
    for name in ["a", "b"] {
        hosted.register(directory(name, &hosted.root(name))).expect("it is registered");
    }
    let mut stream = hosted.wait(hosted.client().watch_workspaces(host::WatchWorkspacesRequest {})).expect("a stream");
    let mut next = || hosted.runtime.block_on(stream.message()).expect("it goes on").expect("a message");
    let mut known = Vec::new();
    loop {
        let message = next();
        known.extend(message.workspace.map(|workspace| workspace.name));
        if message.synced {
            break;
        }
    }
    known.sort();
    assert_eq!(known, ["a", "b"]);
    hosted.suspend("a", 0).expect("it sleeps");
    // A slow watcher may miss what lies between, never the last.
    loop {
        let workspace = next().workspace.expect("a workspace");
        assert_eq!(workspace.name, "a");
        if workspace.state() == WorkspaceState::Suspended {
            break;
        }
    }
    hosted.release("b").expect("it is released");
    let message = next();
    assert_eq!((message.workspace.expect("a workspace").name.as_str(), message.released), ("b", true));
}

#[test]
fn generations_replay_and_go_stale() {
    let hosted = Hosted::new();
    let request = host::RegisterWorkspaceRequest { generation: 10, ..directory("w", &hosted.root("w")) };
    assert_eq!(hosted.register(request).expect("it is registered").generation, 10);
    let asleep = hosted.suspend("w", 12).expect("it sleeps");
    assert_eq!((asleep.generation, asleep.state()), (12, WorkspaceState::Suspended));
    assert_eq!(hosted.suspend("w", 12).expect("a replay"), asleep);
    for stale in [1, 11] {
        hosted
            .suspend("w", stale)
            .expect_err("it is older")
            .expect(ErrorReason::StaleGeneration)
            .with("workspace", "w")
            .with("generation", "12");
    }
    let refusal = hosted.resume("w", 12).expect_err("another call under the same generation");
    refusal.expect(ErrorReason::StaleGeneration);
    hosted.suspend("w", -1).expect_err("no generation").expect(ErrorReason::InvalidRequest).with("field", "generation");
    assert_eq!(hosted.get("w").expect("it is known"), asleep, "what was refused changed nothing");
    // A transition that its state does not allow.
    let refusal = hosted.suspend("w", 13).expect_err("it sleeps already under another generation");
    refusal.expect(ErrorReason::WrongState).with("workspace", "w").with("state", "suspended");
    // Generation 0 of a host with nobody above it: the next one, and no error where it is so already.
    assert_eq!(hosted.suspend("w", 0).expect("it is so already").state(), WorkspaceState::Suspended);
    let awake = hosted.resume("w", 0).expect("it runs");
    assert!(awake.generation > 12, "{awake:?}");
    assert_eq!(hosted.resume("w", 0).expect("it is so already").state(), WorkspaceState::Running);
    hosted.suspend("nobody", 1).expect_err("unknown").expect(ErrorReason::WorkspaceNotFound);
}

#[test]
fn a_restart_keeps_what_was_known() {
    let hosted = Hosted::new();
    hosted.register(directory("running", &hosted.root("running"))).expect("it is registered");
    let request = host::RegisterWorkspaceRequest { generation: 7, ..directory("asleep", &hosted.root("asleep")) };
    hosted.register(request).expect("it is registered");
    hosted.suspend("asleep", 9).expect("it sleeps");
    let image = image::make(&hosted.root("tree"), &hosted.place.path().join("roots"), image::Directories::Linear, "8M");
    hosted.register(disk("disk", &image)).expect("it is registered");
    let patch = ask::patch("running", "/a", "one", "two");
    let mut files = hosted.runtime.block_on(hosted.world.files());
    let first = hosted.wait(files.patch(patch.clone())).expect("it applies");
    let known = ["running", "asleep", "disk"].map(|name| hosted.get(name).expect("it is known"));
    // Once as an order, once as a crash.
    let Hosted { world, runtime, place } = hosted;
    drop((world, runtime));
    let hosted = Hosted::again(place);
    let again = ["running", "asleep", "disk"].map(|name| hosted.get(name).expect("it is known"));
    let essence = |workspaces: &[host::Workspace; 3]| {
        workspaces.clone().map(|one| (one.name.clone(), one.state(), one.generation, one.spec, one.seal))
    };
    assert_eq!(essence(&again), essence(&known));
    let Hosted { world, runtime, place } = hosted;
    world.kill();
    drop(runtime);
    let hosted = Hosted::again(place);
    let again = ["running", "asleep", "disk"].map(|name| hosted.get(name).expect("it is known"));
    assert_eq!(essence(&again), essence(&known));
    let mut files = hosted.runtime.block_on(hosted.world.files());
    let replayed = hosted.wait(files.patch(patch)).expect("the stored answer");
    assert_eq!((replayed.replayed, &replayed.revision), (true, &first.revision));
    hosted.wait(files.stat(ask::stat("disk", "/a"))).expect("the disk answers on");
    // The generation went on from where it stood.
    hosted.resume("asleep", 9).expect_err("it is older").expect(ErrorReason::StaleGeneration).with("generation", "9");
    hosted.resume("asleep", 10).expect("it runs");
}

#[test]
fn the_host_drains_and_takes_calls_again() {
    let hosted = Hosted::new();
    hosted.register(directory("w", &hosted.root("w"))).expect("it is registered");
    let mut files = hosted.runtime.block_on(hosted.world.files());
    let host_answer = || hosted.wait(hosted.client().get_host(host::GetHostRequest {})).expect("an answer");
    assert_eq!((host_answer().draining, host_answer().workspace_count), (false, 1));
    let answer = hosted.wait(hosted.client().drain_host(host::DrainHostRequest::default())).expect("it is empty");
    assert_eq!(answer.calls_left, 0);
    hosted.wait(files.stat(ask::stat("w", "/a"))).expect_err("it drains").expect(ErrorReason::HostDraining);
    assert!(host_answer().draining);
    hosted.wait(hosted.client().undrain_host(host::UndrainHostRequest {})).expect("it is open");
    hosted.wait(files.stat(ask::stat("w", "/a"))).expect("it takes calls again");
}
