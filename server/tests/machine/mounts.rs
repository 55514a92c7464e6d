//! A machine with more than one disk: its root on one, and others mounted beneath. Needs root, a loop device and mke2fs; where
//! these are not to be had there is nothing to mount, and it says so.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path, time::Duration};

use dormouse_proto::{
    files::v1::{self as files, write_request::Message},
    host::v1 as host,
};
use tonic::Code;

use crate::{
    disks::{Machine, Mounts, run},
    skip::skip,
    world::{Agent, check, content, read, stat, value},
};

fn remove(path: &str, recursive: bool, key: &str) -> files::RemoveRequest {
    files::RemoveRequest {
        workspace: "m".to_owned(),
        path: path.to_owned(),
        recursive,
        idempotency_key: key.to_owned(),
        ..Default::default()
    }
}

fn rename(path: &str, new_path: &str, key: &str) -> files::MoveRequest {
    files::MoveRequest {
        workspace: "m".to_owned(),
        path: path.to_owned(),
        new_path: new_path.to_owned(),
        idempotency_key: key.to_owned(),
        ..Default::default()
    }
}

fn paths(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|path| (*path).to_owned()).collect()
}

#[tokio::test]
async fn a_disk_beneath_the_root_is_read_as_a_part_of_it() {
    let prepare = |root: &Path, mounts: &mut Mounts| {
        fs::create_dir_all(root.join("home/u/deep")).unwrap();
        fs::write(root.join("top.txt"), "a needle at the top").unwrap();
        fs::write(root.join("home/u/a.txt"), "a needle on the disk").unwrap();
        symlink("home/u", root.join("link")).unwrap();
        symlink("/top.txt", root.join("home/absolute")).unwrap();
        symlink("../../top.txt", root.join("home/u/up")).unwrap();
        assert!(mounts.mount(&root.join("tmp"), &["-t", "tmpfs", "none"]));
        fs::write(root.join("tmp/t"), "a needle in memory").unwrap();
        // A part of the same disk, and all of it once more.
        let home = root.join("home");
        assert!(mounts.mount(&root.join("part"), &["--bind", home.join("u").to_str().unwrap()]));
        assert!(mounts.mount(&root.join("again"), &["--bind", home.to_str().unwrap()]));
        // A disk on a disk.
        assert!(mounts.disk(&home.join("u/deep")));
        fs::write(home.join("u/deep/d.txt"), "a needle on the third disk").unwrap();
    };
    let Some(mut machine) = Machine::new(prepare).await else { return };
    for (path, text) in [
        ("/home/u/a.txt", "a needle on the disk"),
        ("/link/a.txt", "a needle on the disk"),
        ("/home/absolute", "a needle at the top"),
        ("/home/u/up", "a needle at the top"),
        ("/home/u/deep/d.txt", "a needle on the third disk"),
    ] {
        assert_eq!(machine.text(path).await, text, "{path}");
    }
    // The mount point is the root of what is mounted there: inode 2 of an ext4.
    let home = machine.world.files.stat(stat("m", "/home")).await.unwrap().into_inner().file.unwrap();
    assert_eq!((home.path.as_str(), home.etag.split('-').next()), ("/home", Some("2")));

    let all = [
        "/again",
        "/home",
        "/home/absolute",
        "/home/lost+found",
        "/home/u",
        "/home/u/a.txt",
        "/home/u/deep",
        "/home/u/deep/d.txt",
        "/home/u/deep/lost+found",
        "/home/u/up",
        "/link",
        "/lost+found",
        "/part",
        "/tmp",
        "/top.txt",
    ];
    let deep = root_image(&machine.root);
    let (found, unreadable) = machine.list("/").await;
    assert_eq!((found, unreadable), (&paths(&all) | &deep, 3));
    let needles = paths(&["/home/u/a.txt", "/home/u/deep/d.txt", "/top.txt"]);
    assert_eq!(machine.found("/", "needle").await, needles);
    assert_eq!(machine.found("/home/u", "third").await, paths(&["/home/u/deep/d.txt"]));
    for path in ["/tmp/t", "/part/a.txt", "/again/u/a.txt"] {
        check(machine.world.read(read("m", path)).await, Code::InvalidArgument, "PATH_OUTSIDE_WORKSPACE");
    }
    for place in ["", "/home", "/home/u/deep"] {
        let state = format!("{place}/.dormouse");
        assert!(machine.root.join(&state[1..]).is_dir(), "each disk has its own");
        for path in [state.clone(), format!("{state}/lock")] {
            check(machine.world.files.stat(stat("m", &path)).await, Code::NotFound, "FILE_NOT_FOUND");
            check(machine.world.read(read("m", &path)).await, Code::NotFound, "FILE_NOT_FOUND");
        }
    }
}

/// The images of disks that were made on the machine's own.
fn root_image(root: &Path) -> BTreeSet<String> {
    ["home.img", "home/u/deep.img"]
        .into_iter()
        .filter(|name| root.join(name).exists())
        .map(|name| format!("/{name}"))
        .collect()
}

#[tokio::test]
async fn a_change_happens_on_the_disk_that_holds_its_name_and_once() {
    let prepare = |root: &Path, mounts: &mut Mounts| {
        fs::create_dir_all(root.join("home/u")).unwrap();
        fs::write(root.join("top.txt"), "top").unwrap();
        fs::write(root.join("home/u/a.txt"), "one two").unwrap();
        symlink("home/u", root.join("link")).unwrap();
        symlink("u", root.join("home/link")).unwrap();
        symlink("/home/u/a.txt", root.join("home/u/absolute")).unwrap();
        symlink("/top.txt", root.join("home/out")).unwrap();
        assert!(mounts.mount(&root.join("sub/tmp"), &["-t", "tmpfs", "none"]));
    };
    let Some(mut machine) = Machine::new(prepare).await else { return };
    let root = machine.root.clone();

    // Patch, and its replay, from the journal of that disk.
    let edit = files::Edit { old_text: "two".to_owned(), new_text: "2".to_owned(), replace_all: false };
    let request = files::PatchRequest {
        change: Some(files::patch_request::Change::Edits(files::EditList { edits: vec![edit] })),
        ..content("m", "/home/u/a.txt", "", "k1")
    };
    let done = machine.world.files.patch(request.clone()).await.unwrap().into_inner();
    assert_eq!(
        (done.file.as_ref().unwrap().path.as_str(), done.durable, done.replayed),
        ("/home/u/a.txt", true, false)
    );
    assert_eq!(fs::read_to_string(root.join("home/u/a.txt")).unwrap(), "one 2");
    let again = machine.world.files.patch(request).await.unwrap().into_inner();
    assert_eq!(again, files::PatchResponse { replayed: true, ..done });
    let reused = machine.world.files.patch(content("m", "/home/u/b.txt", "b", "k1")).await;
    check(reused, Code::InvalidArgument, "IDEMPOTENCY_KEY_REUSED");

    // Write, MakeDirectory, Move and Remove.
    let start = files::WriteStart {
        workspace: "m".to_owned(),
        path: "/home/w/big".to_owned(),
        create_parents: true,
        idempotency_key: "k2".to_owned(),
        ..Default::default()
    };
    let messages = [
        Message::Start(start),
        Message::Data("piece".into()),
        Message::Finish(files::WriteFinish { size_bytes: 5, crc32c: None }),
    ];
    let messages = messages.map(|message| files::WriteRequest { message: Some(message) });
    for replayed in [false, true] {
        let written = machine.world.files.write(tokio_stream::iter(messages.clone())).await.unwrap().into_inner();
        assert_eq!((written.file.unwrap().path.as_str(), written.replayed), ("/home/w/big", replayed));
    }
    let request = files::MakeDirectoryRequest {
        workspace: "m".to_owned(),
        path: "/home/d".to_owned(),
        idempotency_key: "k3".to_owned(),
        ..Default::default()
    };
    let made = machine.world.files.make_directory(request).await.unwrap().into_inner();
    assert_eq!(made.file.unwrap().path, "/home/d");
    let moved = machine.world.files.r#move(rename("/home/w/big", "/home/d/big", "k4")).await.unwrap().into_inner();
    assert_eq!(moved.file.unwrap().path, "/home/d/big");
    assert_eq!(fs::read(root.join("home/d/big")).unwrap(), b"piece");
    machine.world.files.remove(remove("/home/d", true, "k5")).await.unwrap();
    assert!(machine.world.files.remove(remove("/home/d", true, "k5")).await.unwrap().into_inner().replayed);
    assert!(!root.join("home/d").exists());

    // From one disk to another nothing is renamed, and nothing copied.
    for (from, to) in [("/top.txt", "/home/top.txt"), ("/home/u/a.txt", "/a.txt")] {
        let refused = machine.world.files.r#move(rename(from, to, "k6")).await;
        assert_eq!(value(&check(refused, Code::InvalidArgument, "INVALID_REQUEST"), "field"), "new_path");
        assert!(root.join(&from[1..]).exists() && !root.join(&to[1..]).exists());
    }
    let refused = machine.world.files.r#move(rename("/home/u/a.txt", "/", "k6")).await;
    assert_eq!(value(&check(refused, Code::InvalidArgument, "INVALID_REQUEST"), "field"), "new_path");
    // A mount point is a name of the disk that it lies on, and stays; so does what something is mounted in.
    let refusals = [
        (machine.world.files.remove(remove("/home", false, "k7")).await.map(drop), "/home"),
        (machine.world.files.remove(remove("/home", true, "k8")).await.map(drop), "/home"),
        (machine.world.files.r#move(rename("/home", "/house", "k9")).await.map(drop), "/home"),
        (machine.world.files.remove(remove("/sub", true, "k10")).await.map(drop), "/sub/tmp"),
    ];
    for (refused, place) in refusals {
        assert_eq!(value(&check(refused, Code::FailedPrecondition, "MOUNT_POINT"), "path"), place);
    }
    assert!(root.join("home/u/a.txt").exists() && root.join("sub/tmp").is_dir());

    // What is refused is named by its whole path, and a link leads where it leads in the whole machine.
    let refused = machine.world.files.patch(content("m", "/home/none/x", "x", "k11")).await;
    let refused = check(refused, Code::NotFound, "FILE_NOT_FOUND");
    assert_eq!((value(&refused, "path"), value(&refused, "missing")), ("/home/none/x".into(), "/home/none".into()));
    for (path, link, leads) in [
        ("/link/a.txt", "/link", "/home/u/a.txt"),
        ("/home/link/a.txt", "/home/link", "/home/u/a.txt"),
        ("/home/u/absolute", "/home/u/absolute", "/home/u/a.txt"),
        ("/home/out", "/home/out", "/top.txt"),
    ] {
        let refused = machine.world.files.patch(content("m", path, "x", "k12")).await;
        let refused = check(refused, Code::FailedPrecondition, "SYMLINK_REFUSED");
        assert_eq!(
            (value(&refused, "link").as_str(), value(&refused, "resolved_path").as_str()),
            (link, leads),
            "{path}"
        );
    }
    for path in ["/.dormouse/x", "/home/.dormouse/x"] {
        let refused =
            check(machine.world.files.patch(content("m", path, "x", "k13")).await, Code::NotFound, "FILE_NOT_FOUND");
        assert_eq!(value(&refused, "path"), path);
    }
    let (found, _) = machine.list("/home").await;
    assert!(found.iter().all(|path| !path.contains(".dormouse")), "{found:?}");
}

#[tokio::test]
async fn a_freeze_holds_every_disk_and_what_is_read_goes_on() {
    let Some(mut machine) = Machine::new(|_, _| ()).await else { return };
    let home = machine.root.join("home");
    // It is open for changes when it freezes.
    machine.patch("/home/a", "a", "k1").await;
    machine.patch("/top", "t", "k2").await;
    let timeout = prost_types::Duration::try_from(Duration::from_secs(60)).ok();
    let quiesce = host::QuiesceWorkspaceRequest { name: "m".to_owned(), generation: 10, timeout };
    machine.world.host.quiesce_workspace(quiesce).await.unwrap();
    for place in [&machine.root, &home] {
        assert!(!run("fsfreeze", &["-f", place.to_str().unwrap()]), "{} is frozen already", place.display());
    }
    let refused = machine.world.files.patch(content("m", "/home/b", "b", "k3")).await;
    check(refused, Code::Unavailable, "WORKSPACE_IN_TRANSITION");
    assert_eq!(machine.text("/home/a").await, "a");
    assert_eq!(machine.list("/home").await.0, paths(&["/home/a", "/home/lost+found"]));
    let open = host::OpenWorkspaceRequest { name: "m".to_owned(), generation: 11, guest: None };
    machine.world.host.open_workspace(open).await.unwrap();
    for place in [&machine.root, &home] {
        fs::write(place.join("thawed"), "").unwrap();
    }
    machine.patch("/home/b", "b", "k3").await;
}

#[tokio::test]
async fn an_agent_that_was_killed_recovers_every_disk() {
    let Some(mut machine) = Machine::new(|_, _| ()).await else { return };
    let keys = [("/top", "k1"), ("/home/a", "k2")];
    for (path, key) in keys {
        assert!(!machine.patch(path, "text", key).await.replayed);
    }
    let left = machine.root.join("home/.dormouse/sffff");
    machine.agent = None;
    fs::write(&left, "staged by a change that was cut off").unwrap();
    machine.restart().await;
    assert!(!left.exists(), "what was left is gone before the first call");
    for (path, key) in keys {
        assert!(machine.patch(path, "text", key).await.replayed, "{path}");
    }
}

#[tokio::test]
async fn a_disk_that_comes_later_is_served_and_one_that_goes_can_go() {
    let Some(mut machine) = Machine::new(|root, _| fs::create_dir(root.join("data")).unwrap()).await else { return };
    let data = machine.root.join("data");
    machine.patch("/data/beneath", "on the root's disk", "k1").await;
    assert!(machine.mounts.disk(&data));
    check(machine.world.read(read("m", "/data/beneath")).await, Code::NotFound, "FILE_NOT_FOUND");
    assert!(!machine.patch("/data/f", "on the new disk", "k2").await.replayed);
    assert_eq!(fs::read_to_string(data.join("f")).unwrap(), "on the new disk");
    assert!(data.join(".dormouse").is_dir());

    for number in 0..500 {
        fs::create_dir_all(data.join(format!("tree/{number}/d"))).unwrap();
    }
    machine.world.files.remove(remove("/data/tree", true, "k6")).await.unwrap();

    // Nothing but a change that was just made holds it, and what that has left to do.
    machine.mounts.unmount(&data);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "beneath it is what was beneath it, and no journal");
    check(machine.world.read(read("m", "/data/f")).await, Code::NotFound, "FILE_NOT_FOUND");
    assert_eq!(machine.text("/data/beneath").await, "on the root's disk");

    // The same disk, at another place: a key is known where its journal is.
    let image = data.with_extension("img");
    assert!(machine.mounts.mount(&machine.root.join("moved"), &["-o", "loop", image.to_str().unwrap()]));
    assert_eq!(machine.text("/moved/f").await, "on the new disk");
    let left = fs::read_dir(machine.root.join("moved/.dormouse")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.starts_with('s')), "{left:?}");
    machine.mounts.unmount(&machine.root.join("moved"));
    assert!(machine.mounts.mount(&data, &["-o", "loop", image.to_str().unwrap()]));
    assert!(machine.patch("/data/f", "on the new disk", "k2").await.replayed);

    // A directory above it gets another name, of which the kernel gives no sign.
    let inner = machine.root.join("a/disk");
    assert!(machine.mounts.disk(&inner));
    machine.patch("/a/disk/f", "f", "k3").await;
    fs::rename(machine.root.join("a"), machine.root.join("b")).unwrap();
    fs::create_dir_all(&inner).unwrap();
    machine.mounts.0.retain(|known| *known != inner);
    machine.mounts.0.push(machine.root.join("b/disk"));
    check(machine.world.read(read("m", "/a/disk/f")).await, Code::NotFound, "FILE_NOT_FOUND");
    assert_eq!(machine.text("/b/disk/f").await, "f");
    machine.patch("/b/disk/f", "new", "k4").await;
    machine.patch("/a/disk/f", "other", "k5").await;
    assert_eq!(fs::read_to_string(machine.root.join("b/disk/f")).unwrap(), "new");
    assert_eq!(fs::read_to_string(inner.join("f")).unwrap(), "other");
}

#[tokio::test]
async fn other_kinds_of_disks_and_subvolumes_are_served() {
    let prepare = |root: &Path, mounts: &mut Mounts| {
        if mounts.disk_of(&root.with_extension("xfs"), &root.join("xfs"), &["mkfs.xfs", "-q"], 320 << 20) {
            fs::write(root.join("xfs/f"), "f").unwrap();
        }
        if mounts.disk_of(&root.with_extension("btrfs"), &root.join("btrfs"), &["mkfs.btrfs", "-q"], 256 << 20) {
            let (top, subvolume) = (root.join("btrfs"), root.join("btrfs/sub"));
            assert!(run("btrfs", &["subvolume", "create", subvolume.to_str().unwrap()]));
            assert!(run("btrfs", &["subvolume", "create", subvolume.join("inner").to_str().unwrap()]));
            fs::write(top.join("f"), "f").unwrap();
            // It numbers its files as the top level does, `.dormouse` among those there.
            for number in 0..64 {
                fs::write(subvolume.join(format!("inner/{number}")), "n").unwrap();
            }
            fs::write(subvolume.join("inner/f"), "f").unwrap();
            // A part of it, and a subvolume of a disk whose top level is mounted nowhere.
            fs::create_dir_all(top.join("plain")).unwrap();
            assert!(mounts.mount(&root.join("plain"), &["--bind", top.join("plain").to_str().unwrap()]));
        }
        let volumes = root.join("volumes");
        if mounts.disk_of(&root.with_extension("volumes"), &volumes, &["mkfs.btrfs", "-q"], 256 << 20) {
            for name in ["one", "two"] {
                assert!(run("btrfs", &["subvolume", "create", volumes.join(name).to_str().unwrap()]));
                assert!(mounts.mount(&root.join(name), &["--bind", volumes.join(name).to_str().unwrap()]));
            }
            mounts.unmount(&volumes);
        }
    };
    let Some(mut machine) = Machine::new(prepare).await else { return };
    let made = |name: &str| machine.mounts.0.contains(&machine.root.join(name));
    let (has_xfs, has_btrfs) = (made("xfs"), made("btrfs"));
    if !has_xfs {
        skip("a second disk of xfs", "mkfs.xfs or the kernel's xfs is missing");
    }
    if !has_btrfs {
        skip("a second disk of btrfs", "mkfs.btrfs or the kernel's btrfs is missing");
    }
    let mut served = vec!["/home"];
    served.extend(has_xfs.then_some("/xfs"));
    served.extend(has_btrfs.then_some(["/btrfs", "/one", "/two"]).into_iter().flatten());
    for (number, place) in served.into_iter().enumerate() {
        let (path, key) = (format!("{place}/new"), format!("k{number}"));
        assert!(!machine.patch(&path, "new", &key).await.replayed);
        assert!(machine.patch(&path, "new", &key).await.replayed);
        assert_eq!(machine.text(&path).await, "new");
        assert!(machine.root.join(&place[1..]).join(".dormouse").is_dir());
    }
    if has_btrfs {
        let expect = ["/btrfs/f", "/btrfs/new", "/btrfs/plain", "/btrfs/sub", "/btrfs/sub/inner", "/btrfs/sub/inner/f"];
        let (found, unreadable) = machine.list("/btrfs").await;
        assert_eq!(unreadable, 0, "a subvolume is no loop");
        assert!(found.is_superset(&paths(&expect)), "{found:?}");
        let inner = (0..64).map(|number| format!("/btrfs/sub/inner/{number}"));
        assert!(found.is_superset(&inner.collect()), "{found:?}");
        check(machine.world.read(read("m", "/plain/f")).await, Code::InvalidArgument, "PATH_OUTSIDE_WORKSPACE");
    }
}

#[tokio::test]
async fn a_disk_that_takes_no_change_is_read() {
    let prepare = |root: &Path, mounts: &mut Mounts| {
        fs::write(root.join("home/a"), "a").unwrap();
        let sealed = root.join("sealed");
        assert!(mounts.disk(&sealed));
        fs::write(sealed.join("s"), "s").unwrap();
        assert!(run("mount", &["-o", "remount,ro", sealed.to_str().unwrap()]));
    };
    let Some(mut machine) = Machine::new(prepare).await else { return };
    assert_eq!(machine.text("/sealed/s").await, "s");
    let refused = machine.world.files.patch(content("m", "/sealed/s", "t", "k1")).await;
    assert_eq!(value(&check(refused, Code::FailedPrecondition, "READ_ONLY"), "path"), "/sealed/s");
    let many = (0..16).map(|number| {
        let mut files = machine.world.files.clone();
        tokio::spawn(async move { files.patch(content("m", "/sealed/s", "t", &format!("many{number}"))).await })
    });
    for refused in many.collect::<Vec<_>>() {
        check(refused.await.unwrap(), Code::FailedPrecondition, "READ_ONLY");
    }

    // It has an agent of its own, which holds its journal.
    machine.patch("/home/b", "b", "k2").await;
    machine.agent = None;
    let home = machine.root.join("home");
    let listen = format!("unix:{}", machine.world.at("h.sock").display());
    let (_own, _) = Agent::start(&home, &listen, &[]);
    machine.restart().await;
    assert_eq!(machine.text("/home/a").await, "a");
    let refused = machine.world.files.patch(content("m", "/home/a", "x", "k3")).await;
    check(refused, Code::Internal, "IO_ERROR");
    machine.patch("/top", "t", "k4").await;
}

#[tokio::test]
async fn a_directory_workspace_steps_into_no_mount() {
    let Some(mut machine) = Machine::new(|root, _| fs::write(root.join("home/a"), "a").unwrap()).await else { return };
    machine.agent = None;
    let root = machine.root.display().to_string();
    let spec =
        Some(host::WorkspaceSpec { files: Some(host::workspace_spec::Files::Directory(host::Directory { root })) });
    let request = host::RegisterWorkspaceRequest { name: "d".to_owned(), spec, ..Default::default() };
    machine.world.host.register_workspace(request).await.unwrap();
    check(machine.world.read(read("d", "/home/a")).await, Code::InvalidArgument, "PATH_OUTSIDE_WORKSPACE");
    let refused = machine.world.files.patch(content("d", "/home/a", "x", "k1")).await;
    check(refused, Code::InvalidArgument, "PATH_OUTSIDE_WORKSPACE");
    machine.world.server.shutdown().await;
}
