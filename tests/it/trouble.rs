//! File systems and neighbours that refuse, fill up, lie or interfere: each has a reason of its own, and nothing is lost.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use dormouse_proto::{
    files::v1::{self as pb, ErrorReason},
    host::v1 as host,
};
use dormouse_tests::{
    ask, image,
    mount::Mount,
    refusal::Refusal,
    site::{ASLEEP, LIVE, Site, put, revision_of, snapshot},
    world::Setup,
};

#[test]
fn a_full_disk_changes_nothing_and_leaves_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["-t", "tmpfs", "-o", "size=8m", "tmpfs"];
    let Some(_mount) = Mount::make("a full disk", &arguments, place.path()) else { return };
    let root = place.path().join("tree");
    put(&root, "a", "one\n");
    let limits = "[idempotency]\njournal_bytes_max = 1048576\n";
    let site = Site::of(Setup::new().config(limits), &root);
    site.patch(ask::patch(LIVE, "/a", "one", "two")).expect("there is room");
    fs::write(place.path().join("ballast"), vec![1; 3 << 20]).expect("most of the room is taken");
    let before = snapshot(&root);
    let large = ask::content(LIVE, "/a", vec![b'x'; 6 << 20]);
    site.patch(large).expect_err("there is no room").expect(ErrorReason::DiskFull).with("path", "/a");
    let pieces = vec![bytes::Bytes::from(vec![b'x'; 1 << 20]); 7];
    let refusal = site.write(ask::write(LIVE, "/b"), pieces, pb::WriteFinish { size_bytes: 7 << 20, crc32c: None });
    refusal.expect_err("there is no room").expect(ErrorReason::DiskFull);
    assert_eq!(snapshot(&root), before);
    fs::remove_file(place.path().join("ballast")).expect("it is ours");
    site.patch(ask::patch(LIVE, "/a", "two", "three")).expect("there is room again");
}

#[test]
fn a_read_only_file_system_is_read_and_not_changed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(_mount) = Mount::make("a read-only file system", &["-t", "tmpfs", "tmpfs"], place.path()) else { return };
    put(place.path(), "a", "one\n");
    let arguments = ["-o", "remount,ro"];
    assert!(
        std::process::Command::new("mount").args(arguments).arg(place.path()).status().expect("mount").success(),
        "it becomes read-only"
    );
    let site = Site::of(Setup::new().expect_warnings(), place.path());
    assert_eq!(site.read(ask::read(LIVE, "/a")).expect("it is read").bytes, b"one\n");
    let refusal = site.patch(ask::patch(LIVE, "/a", "one", "two")).expect_err("it is read-only");
    refusal.expect(ErrorReason::ReadOnly).with("path", "/a");
    site.remove(ask::remove(LIVE, "/a")).expect_err("it is read-only").expect(ErrorReason::ReadOnly);
    let refusal = site.make_directory(ask::make_directory(LIVE, "/d")).expect_err("it is read-only");
    refusal.expect(ErrorReason::ReadOnly);
}

#[test]
fn a_root_on_a_file_system_of_its_own_hides_what_is_the_agents() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(_mount) = Mount::make("a root that is a mount", &["-t", "tmpfs", "tmpfs"], place.path()) else { return };
    put(place.path(), "a", "TODO\n");
    let site = Site::of(Setup::new(), place.path());
    site.patch(ask::patch(LIVE, "/a", "TODO", "TODO twice")).expect("it applies");
    assert!(place.path().join(".dormouse").is_dir(), "the agent's own directory lies in the root");
    let everything = pb::ListRequest { depth: Some(64), ..ask::list(LIVE, "/") };
    assert_eq!(site.list(everything).expect("it lists").paths(), ["/a"]);
    let everywhere = pb::SearchRequest { exclude: ask::globs(&[]), ..ask::search(LIVE, "/", "TODO") };
    assert_eq!(site.search(everywhere).expect("it searches").paths(), ["/a"]);
    for path in ["/.dormouse", "/.dormouse/lock", "/.dormouse/journal"] {
        site.stat(ask::stat(LIVE, path)).expect_err("no verb shows it").expect(ErrorReason::FileNotFound);
        site.read(ask::read(LIVE, path)).expect_err("no verb shows it").expect(ErrorReason::FileNotFound);
        let change = site.patch(ask::content(LIVE, path, &b"x"[..]));
        assert!(change.is_err(), "no verb changes it: {path}");
        let remove = pb::RemoveRequest { recursive: true, ..ask::remove(LIVE, path) };
        assert!(site.remove(remove).is_err(), "no verb removes it: {path}");
    }
    let answer = site.rename(ask::rename(LIVE, "/a", "/.dormouse/a"));
    assert!(answer.is_err(), "nothing is moved into it: {answer:?}");
    assert_eq!(site.content("/a"), b"TODO twice\n");
}

#[test]
fn a_file_that_is_a_mount_point_is_not_replaced_and_one_behind_it_is_outside() {
    let site = Site::live(|root| {
        put(root, "a", "one\n");
        put(root, "inner/b", "one\n");
        put(root.parent().expect("a parent"), "elsewhere/b", "two\n");
        put(root.parent().expect("a parent"), "other", "two\n");
    });
    let elsewhere = site.place().join("other").display().to_string();
    let arguments = ["--bind", &elsewhere];
    let Some(_mount) = Mount::make("a file that is a mount point", &arguments, &site.file("/a")) else { return };
    let refusal = site.patch(ask::content(LIVE, "/a", &b"three\n"[..])).expect_err("it is a mount point");
    assert!(matches!(refusal.reason, ErrorReason::MountPoint | ErrorReason::PathOutsideWorkspace), "{refusal:?}");
    let refusal = site.read(ask::read(LIVE, "/a")).expect_err("it lies behind a mount");
    refusal.expect(ErrorReason::PathOutsideWorkspace);
    let elsewhere = site.place().join("elsewhere").display().to_string();
    let arguments = ["--bind", &elsewhere];
    let Some(_mount) = Mount::make("a directory that is a mount point", &arguments, &site.file("/inner")) else {
        return;
    };
    for path in ["/inner/b", "/inner/new"] {
        let refusal = site.patch(ask::content(LIVE, path, &b"three\n"[..])).expect_err("it lies behind a mount");
        assert!(matches!(refusal.reason, ErrorReason::PathOutsideWorkspace | ErrorReason::MountPoint), "{refusal:?}");
    }
    let found = site.search(ask::search(LIVE, "/", "two")).expect("it searches");
    assert_eq!(found.paths(), [] as [&str; 0], "neither is what lies behind them");
    assert_eq!(fs::read(site.place().join("elsewhere/b")).expect("it is there"), b"two\n");
    assert_eq!(fs::read(site.place().join("other")).expect("it is there"), b"two\n");
}

#[test]
fn a_file_that_somebody_writes_is_not_patched_behind_his_back() {
    let mut site = Site::live_with(Setup::new().expect_warnings(), |root| put(root, "a", "one\n"));
    let mut writer = OpenOptions::new().append(true).open(site.file("/a")).expect("a writer");
    let refusal = site.patch(ask::patch(LIVE, "/a", "one", "two")).expect_err("it is being written");
    refusal.expect(ErrorReason::BusyWriter).with("path", "/a");
    let pinned =
        pb::PatchRequest { expected_revision: Some(revision_of(b"one\n")), ..ask::content(LIVE, "/a", &b"two\n"[..]) };
    site.patch(pinned.clone()).expect_err("it is being written").expect(ErrorReason::BusyWriter);
    assert_eq!(site.content("/a"), b"one\n");
    // Whole content without a condition wins, and says what it cost.
    let answer = site.patch(ask::content(LIVE, "/a", &b"new\n"[..])).expect("it is replaced");
    assert!(answer.replaced_open_file);
    writer.write_all(b"lost\n").expect("his file is still his");
    assert_eq!(site.content("/a"), b"new\n");
    drop(writer);
    // What was refused as busy is not remembered under its key: it is judged afresh.
    let refusal = site.patch(pinned).expect_err("it has changed since");
    refusal.expect(ErrorReason::RevisionMismatch).with("actual_revision", &revision_of(b"new\n"));
    let answer = site.patch(ask::patch(LIVE, "/a", "new", "newer")).expect("nobody writes it");
    assert!(!answer.replaced_open_file);
    // What he wrote to the replaced file is not in the new one, but it is kept, and the log says where.
    let (status, _) = site.world.terminate();
    assert!(status.success());
    let log = site.world.log_text();
    let loud: Vec<serde_json::Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &serde_json::Value| event["level"] == "WARN" || event["level"] == "ERROR")
        .collect();
    let [warning] = &loud[..] else { panic!("one warning, and no error: {loud:?}") };
    assert_eq!(warning["path"], "/a");
    let kept = warning["kept"].as_str().expect("it is kept");
    assert_eq!(fs::read(kept).expect("where the log says"), b"one\nlost\n");
}

/// An image with `/b`, and with `/d/a` whose inode does not hold its checksum.
fn broken_image(place: &Path) -> PathBuf {
    let root = place.join("tree");
    put(&root, "d/a", "TODO\n");
    put(&root, "b", "TODO\n");
    let image = image::make(&root, place, image::Directories::Linear, "8M");
    // The inode of /d/a gets another size without its checksum: what debugfs writes, raw.
    let output = std::process::Command::new("debugfs")
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .args(["-R", "imap /d/a"])
        .arg(&image)
        .output()
        .expect("debugfs starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "Inode 13 is part of block group 0\n\tlocated at block 45, offset 0x0c00"
    let place_of = text.split("located at block ").nth(1).expect("debugfs tells the place");
    let (block, offset) = place_of.trim().split_once(", offset 0x").expect("a block and an offset");
    let block: u64 = block.parse().expect("a number");
    let offset = u64::from_str_radix(offset.trim(), 16).expect("a hexadecimal number");
    let file = OpenOptions::new().read(true).write(true).open(&image).expect("the image opens");
    let mut superblock = [0; 1_024];
    file.read_exact_at(&mut superblock, 1_024).expect("a superblock");
    let block_bytes = 1_024_u64 << superblock[24];
    file.write_all_at(&[0xff; 4], block * block_bytes + offset + 4).expect("it is broken");
    image
}

#[test]
fn an_image_that_is_broken_is_said_to_be_so_and_harms_nobody() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = broken_image(place.path());
    let setup = Setup::new().disk(ASLEEP, &image).expect_warnings();
    let site = Site::live_with(setup, |root| put(root, "a", "TODO\n"));
    let refusal = site.read(ask::read(ASLEEP, "/d/a")).expect_err("its inode is broken");
    refusal.expect(ErrorReason::DiskCorrupt).with("path", "/d/a");
    assert_eq!(site.read(ask::read(ASLEEP, "/b")).expect("the rest is whole").bytes, b"TODO\n");
    let answer = site.search(ask::search(ASLEEP, "/", "TODO")).expect("the rest is searched");
    assert_eq!(answer.paths(), ["/b"]);
    assert_eq!(answer.end.skipped.unwrap_or_default().unreadable, 1);
    assert_eq!(site.read(ask::read(LIVE, "/a")).expect("its neighbour is well").bytes, b"TODO\n");
}

#[test]
fn a_disk_that_is_broken_is_one_error_in_the_log_for_each_generation() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = broken_image(place.path());
    let mut site = Site::live_with(Setup::new().disk(ASLEEP, &image).expect_warnings(), |_| {});
    let mut generations = Vec::new();
    for _ in 0..2 {
        for _ in 0..3 {
            site.read(ask::read(ASLEEP, "/d/a")).expect_err("its inode is broken").expect(ErrorReason::DiskCorrupt);
            site.stat(ask::stat(ASLEEP, "/d/a")).expect_err("its inode is broken").expect(ErrorReason::DiskCorrupt);
        }
        let request = host::GetWorkspaceRequest { name: ASLEEP.to_owned() };
        let known = site.wait(site.host().get_workspace(request)).expect("it is known").into_inner();
        generations.push(known.workspace.expect("a workspace").generation);
        let unseal = host::UnsealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
        site.wait(site.host().unseal_workspace(unseal)).expect("it wakes");
        let seal = host::SealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
        site.wait(site.host().seal_workspace(seal)).expect("it sleeps again");
    }
    let (status, _) = site.world.terminate();
    assert!(status.success());
    let errors: Vec<serde_json::Value> = site
        .world
        .log_text()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &serde_json::Value| event["level"] == "ERROR")
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for (error, generation) in errors.iter().zip(generations) {
        assert_eq!((&error["workspace"], &error["generation"]), (&ASLEEP.into(), &generation.into()), "{error}");
        assert!(error["what"].as_str().is_some_and(|what| what.contains("checksum")), "{error}");
    }
}

#[test]
fn a_disk_that_was_not_left_in_order_is_told_so_by_its_seal() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path().join("tree");
    put(&root, "a", "one\n");
    let image = image::make(&root, place.path(), image::Directories::Linear, "16M");
    // As a machine that was stopped without a freeze leaves it (INCOMPAT_RECOVER, ext4's superblock).
    image::run("debugfs", &["-w", "-R", "feature +needs_recovery"], &[&image], &[]);
    let site = Site::live_with(Setup::new().disk(ASLEEP, &image).expect_warnings(), |_| {});
    let request = host::GetWorkspaceRequest { name: ASLEEP.to_owned() };
    let known = site.wait(site.host().get_workspace(request)).expect("it is known").into_inner();
    let known = known.workspace.expect("a workspace");
    assert_eq!(known.state(), host::WorkspaceState::Suspended);
    assert!(!known.seal.is_some_and(|seal| seal.exact) && !known.note.is_empty(), "it says why: {:?}", known.note);
    let refusal = site.read(ask::read(ASLEEP, "/a")).expect_err("nobody proved it");
    refusal.expect(ErrorReason::OfflineUnavailable).with("workspace", ASLEEP);
    let unseal = host::UnsealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
    site.wait(site.host().unseal_workspace(unseal)).expect("it wakes");
    let seal = host::SealWorkspaceRequest { name: ASLEEP.to_owned(), require_exact: true, ..Default::default() };
    let refusal: Refusal = site.wait(site.host().seal_workspace(seal)).expect_err("it is not exact").into();
    refusal.expect(ErrorReason::NotQuiesced).with("what", "needs_recovery");
    drop(site);
    // The same, where the host serves what a replayed journal holds.
    let setup = Setup::new().config("[offline]\nserve_unsealed = \"crash\"\n").disk(ASLEEP, &image).expect_warnings();
    let site = Site::live_with(setup, |_| {});
    let answer = site.read(ask::read(ASLEEP, "/a")).expect("it is served, marked");
    assert_eq!((answer.origin.consistency(), answer.bytes), (pb::Consistency::Crash, b"one\n".to_vec()));
}

#[test]
fn a_sparse_file_of_a_disk_is_its_zeros_and_its_islands() {
    let site = Site::both("32M", |root| {
        let file = File::create(root.join("sparse")).expect("a file");
        file.set_len(40 << 20).expect("a hole");
        file.write_all_at(b"TODO here\n", 20 << 20).expect("an island");
    });
    for workspace in [LIVE, ASLEEP] {
        let read = site.read(ask::bytes(workspace, "/sparse", (20 << 20) - 3, 8)).expect("it reads");
        assert_eq!(read.bytes, b"\0\0\0TODO ");
        assert_eq!(site.file_info(workspace, "/sparse").revision, site.file_info(LIVE, "/sparse").revision);
        let end = site.read(ask::bytes(workspace, "/sparse", -2, 0)).expect("it reads");
        assert_eq!((end.bytes, end.offset), (vec![0, 0], (40 << 20) - 2));
    }
}
