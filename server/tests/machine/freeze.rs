//! A real freeze: an ext4 file system on an image, mounted here, as the machine's disk. Needs root, a loop device and mke2fs;
//! where these are not to be had there is nothing to freeze, and it says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use dormouse_proto::{files::v1 as files, host::v1 as host};
use nix::sys::signal::Signal;
use tonic::Code;

use crate::skip::skip;
use crate::world::{Agent, World, check, content, read, stat, value};

/// A mounted image; unmounted when it is dropped, once the agent on it has gone.
struct Mounted(Vec<PathBuf>);

impl Mounted {
    fn new(image: &Path, place: &Path) -> Option<Self> {
        fs::File::create(image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir_all(place).unwrap();
        let run = |program: &str, words: &[&str]| {
            Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
        };
        let (image, text) = (image.to_str().unwrap(), place.to_str().unwrap());
        if !nix::unistd::geteuid().is_root()
            || !run("mke2fs", &["-q", "-t", "ext4", "-F", image])
            || !run("mount", &["-o", "loop", image, text])
        {
            skip("a real freeze", "no file system can be mounted here: that needs root, a loop device and mke2fs");
            return None;
        }
        let mut this = Self(vec![place.to_owned()]);
        let inner = place.join("tmp");
        fs::create_dir(&inner).unwrap();
        assert!(run("mount", &["-t", "tmpfs", "none", inner.to_str().unwrap()]));
        this.0.push(inner);
        Some(this)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A freeze outlives the process that made it, and an unmount would wait for the thaw.
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0[0]).output();
        for place in self.0.iter().rev() {
            let _ = Command::new("umount").arg(place).status();
        }
    }
}

fn disk(path: &Path) -> host::Disk {
    host::Disk {
        layers: vec![host::DiskLayer { path: path.display().to_string(), format: host::DiskFormat::Raw.into() }],
        file_system: host::FileSystem::Ext4.into(),
        flushes: true,
        ..Default::default()
    }
}

#[tokio::test]
async fn a_frozen_machine_is_read_exactly_and_one_that_only_stopped_is_not() {
    let mut world = World::new(|_| ()).await;
    let (image, copy, place) = (world.at("machine.img"), world.at("disk.img"), world.at("mnt"));
    let Some(_mounted) = Mounted::new(&image, &place) else { return };
    let listen = format!("unix:{}", world.at("g.sock").display());
    let (_agent, _) = Agent::start(&place, &listen, &[]);
    fs::copy(&image, &copy).unwrap();
    world.register("m", world.unix("g.sock"), vec![disk(&copy)]).await;
    let done = world.files.patch(content("m", "/a.txt", "acknowledged", "k1")).await.unwrap().into_inner();
    fs::write(place.join("not-synced"), "still in memory").unwrap();

    let timeout = prost_types::Duration::try_from(std::time::Duration::from_secs(60)).ok();
    let quiesce = |generation| host::QuiesceWorkspaceRequest { name: "m".to_owned(), generation, timeout };
    let seal = |generation| host::SealWorkspaceRequest {
        name: "m".to_owned(),
        generation,
        parked: false,
        require_exact: true,
    };
    let unseal = |generation| host::UnsealWorkspaceRequest { name: "m".to_owned(), generation };
    let open = |generation| host::OpenWorkspaceRequest { name: "m".to_owned(), generation, guest: None };
    world.host.quiesce_workspace(quiesce(10)).await.unwrap();
    // A writer inside blocks, a change from outside is refused, and reads go on.
    let writer = std::thread::spawn({
        let path = place.join("late");
        move || fs::write(path, "late").is_ok()
    });
    check(world.files.patch(content("m", "/b", "b", "k2")).await, Code::Unavailable, "WORKSPACE_IN_TRANSITION");
    assert_eq!(world.read(read("m", "/a.txt")).await.unwrap().1, b"acknowledged");
    fs::copy(&image, &copy).unwrap();
    assert!(!writer.is_finished(), "the writer waits for the thaw");

    let sealed = world.host.seal_workspace(seal(11)).await.unwrap().into_inner().workspace.unwrap();
    let found = sealed.seal.unwrap();
    assert!(found.exact, "{}", sealed.note);
    assert_eq!(found.foreign_mount_paths, ["/tmp"]);
    let described = world.files.stat(stat("m", "/a.txt")).await.unwrap().into_inner();
    assert_eq!(described.file.unwrap().revision, Some(done.revision));
    let origin = described.origin.unwrap();
    assert_eq!((origin.served_from(), origin.consistency()), (files::ServedFrom::Disk, files::Consistency::Exact));
    assert_eq!(world.read(read("m", "/not-synced")).await.unwrap().1, b"still in memory");
    check(world.files.stat(stat("m", "/tmp/x")).await, Code::FailedPrecondition, "OFFLINE_UNAVAILABLE");
    check(world.files.stat(stat("m", "/late")).await, Code::NotFound, "FILE_NOT_FOUND");
    check(world.files.stat(stat("m", "/.dormouse")).await, Code::NotFound, "FILE_NOT_FOUND");

    world.host.unseal_workspace(unseal(12)).await.unwrap();
    check(world.files.stat(stat("m", "/a.txt")).await, Code::Unavailable, "OFFLINE_CHANGED");
    world.host.open_workspace(open(13)).await.unwrap();
    assert!(tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap(), "the Open thaws");
    let described = world.files.stat(stat("m", "/late")).await.unwrap().into_inner();
    assert_eq!(described.origin.unwrap().served_from(), files::ServedFrom::Workspace);
    assert!(world.files.patch(content("m", "/a.txt", "acknowledged", "k1")).await.unwrap().into_inner().replayed);

    // Stopped without a freeze.
    fs::copy(&image, &copy).unwrap();
    let refused = check(world.host.seal_workspace(seal(14)).await, Code::FailedPrecondition, "NOT_QUIESCED");
    assert_eq!(value(&refused, "what"), "needs_recovery");

    // Another disk than the one that froze.
    world.host.quiesce_workspace(quiesce(15)).await.unwrap();
    fs::copy(&image, &copy).unwrap();
    let mut bytes = fs::read(&copy).unwrap();
    bytes[1024 + 0x68] ^= 1;
    // s_checksum: crc32c of all before it, begun with all ones and not inverted at the end.
    let checksum = !crc32c::crc32c(&bytes[1024..1024 + 0x3fc]);
    bytes[1024 + 0x3fc..2048].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&copy, bytes).unwrap();
    let refused = check(world.host.seal_workspace(seal(16)).await, Code::FailedPrecondition, "NOT_QUIESCED");
    assert_eq!(value(&refused, "what"), "file_system_uuid");
    world.host.open_workspace(open(17)).await.unwrap();
    assert!(world.files.patch(content("m", "/c", "c", "k3")).await.is_ok());

    // The guest's own time ends a freeze that nobody ends.
    let timeout = prost_types::Duration::try_from(std::time::Duration::from_millis(800)).ok();
    let request = host::QuiesceWorkspaceRequest { name: "m".to_owned(), generation: 18, timeout };
    world.host.quiesce_workspace(request).await.unwrap();
    let writer = tokio::task::spawn_blocking({
        let path = place.join("later");
        move || fs::write(path, "later").is_ok()
    });
    assert!(writer.await.unwrap(), "it waited, and went on");
    world.server.shutdown().await;
}

#[tokio::test]
async fn suspend_edit_resume_three_times_over() {
    // The pause command stands for the monitor that stops the machine: its disk is a copy of the one that is frozen.
    let script = "cp \"${DORMOUSE_DISK%/*}/machine.img\" \"$DORMOUSE_DISK\"";
    let mut world = World::new(|config| config.hooks.pause = ["sh", "-c", script].map(str::to_owned).to_vec()).await;
    let (image, copy, place) = (world.at("machine.img"), world.at("disk.img"), world.at("mnt"));
    let Some(_mounted) = Mounted::new(&image, &place) else { return };
    let (_agent, _) = Agent::start(&place, &format!("unix:{}", world.at("g.sock").display()), &[]);
    fs::write(&copy, "").unwrap();
    world.register("m", world.unix("g.sock"), vec![disk(&copy)]).await;
    for round in 0..3 {
        let patch = content("m", "/f", &format!("round {round}"), &format!("k{round}"));
        let revision = world.files.patch(patch).await.unwrap().into_inner().revision;
        let suspend = host::SuspendWorkspaceRequest { name: "m".to_owned(), ..Default::default() };
        let asleep = world.host.suspend_workspace(suspend).await.unwrap().into_inner().workspace.unwrap();
        assert!(asleep.seal.unwrap().exact, "{}", asleep.note);
        let described = world.files.stat(stat("m", "/f")).await.unwrap().into_inner();
        assert_eq!(described.file.unwrap().revision, Some(revision));
        assert_eq!(described.origin.unwrap().served_from(), files::ServedFrom::Disk);
        let refused = world.files.patch(content("m", "/f", "x", "other")).await;
        check(refused, Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING");
        let resume = host::ResumeWorkspaceRequest { name: "m".to_owned(), ..Default::default() };
        let awake = world.host.resume_workspace(resume).await.unwrap().into_inner().workspace.unwrap();
        assert_eq!(awake.state(), host::WorkspaceState::Running);
    }
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_host_that_restarts_while_the_machine_is_frozen_seals_what_it_froze() {
    let mut world = World::new(|_| ()).await;
    let (image, copy, place) = (world.at("machine.img"), world.at("disk.img"), world.at("mnt"));
    let Some(_mounted) = Mounted::new(&image, &place) else { return };
    let (agent, _) = Agent::start(&place, &format!("unix:{}", world.at("g.sock").display()), &[]);
    fs::write(&copy, "").unwrap();
    world.register("m", world.unix("g.sock"), vec![disk(&copy)]).await;
    // Data that is still arriving is cut off: nothing of it is kept, and nobody waits for it.
    let (data, receiver) = tokio::sync::mpsc::channel(4);
    let start = files::WriteStart {
        workspace: "m".to_owned(),
        path: "/cut".to_owned(),
        idempotency_key: "w".to_owned(),
        ..Default::default()
    };
    let message = |message| files::WriteRequest { message: Some(message) };
    data.send(message(files::write_request::Message::Start(start))).await.unwrap();
    data.send(message(files::write_request::Message::Data("half".into()))).await.unwrap();
    let mut client = world.files.clone();
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let write = tokio::spawn(async move { client.write(stream).await });
    while data.capacity() < 4 || world.server.host().admission().calls() == 0 {
        tokio::task::yield_now().await;
    }
    let timeout = prost_types::Duration::try_from(std::time::Duration::from_secs(60)).ok();
    let quiesce = host::QuiesceWorkspaceRequest { name: "m".to_owned(), generation: 5, timeout };
    world.host.quiesce_workspace(quiesce).await.unwrap();
    check(write.await.unwrap(), Code::Unavailable, "WORKSPACE_IN_TRANSITION");
    assert!(!place.join("cut").exists());
    let mut world = world.restarted().await;
    fs::copy(&image, &copy).unwrap();
    let seal = host::SealWorkspaceRequest { name: "m".to_owned(), require_exact: true, ..Default::default() };
    let asleep = world.host.seal_workspace(seal).await.unwrap().into_inner().workspace.unwrap();
    assert_eq!(asleep.seal.unwrap().foreign_mount_paths, ["/tmp"]);
    check(world.files.stat(stat("m", "/tmp")).await, Code::FailedPrecondition, "OFFLINE_UNAVAILABLE");

    // The machine runs again, but its agent does not answer in time.
    let unseal = host::UnsealWorkspaceRequest { name: "m".to_owned(), generation: 0 };
    world.host.unseal_workspace(unseal).await.unwrap();
    agent.signal(Signal::SIGSTOP);
    let open = || host::OpenWorkspaceRequest { name: "m".to_owned(), generation: 0, guest: None };
    let mut request = tonic::Request::new(open());
    request.set_timeout(std::time::Duration::from_secs(6));
    check(world.host.open_workspace(request).await, Code::Unavailable, "GUEST_UNREACHABLE");
    let refused = world.files.patch(content("m", "/f", "x", "k")).await;
    check(refused, Code::Unavailable, "WORKSPACE_IN_TRANSITION");
    agent.signal(Signal::SIGCONT);
    world.host.open_workspace(open()).await.unwrap();
    assert!(world.files.patch(content("m", "/f", "x", "k")).await.is_ok());
    world.server.shutdown().await;
}
