//! What the disk refuses: nothing is changed, nothing staged is left, and the reason is the right one. Where root is needed
//! to make a disk refuse, an ordinary user's run of the test ends before that.

use std::{
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use dormouse_files::{revision::Revision, tree::Tree};

use super::*;
use crate::fail::Steps;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(command: &[&str]) -> bool {
    Command::new(command[0]).args(&command[1..]).status().is_ok_and(|status| status.success())
}

/// Something mounted; gone when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], at: &std::path::Path) -> Self {
        assert!(run(&[&["mount"], arguments, &[at.to_str().unwrap()]].concat()));
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(&["umount", "--lazy", self.0.to_str().unwrap()]);
    }
}

/// A workspace on a small file system in memory.
fn small_world() -> Option<(Mounted, tempfile::TempDir, World)> {
    if !is_root() {
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "none"], place.path());
    let world = World::in_directory(tempfile::tempdir_in(place.path()).unwrap());
    Some((mounted, place, world))
}

#[test]
fn a_disk_that_was_full_at_the_start() {
    let Some((_mounted, place, mut world)) = small_world() else { return };
    world.put("f", "a");
    world.close();
    for name in ["lock", "journal.0", "journal.1"] {
        std::fs::remove_file(world.place.path().join("state").join(name)).unwrap();
    }
    let full = std::fs::write(place.path().join("filling"), vec![0; 8 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    world.open();
    let tree = world.workspace().tree();
    assert_eq!(tree.stat(&tree.root().unwrap(), b"f").unwrap().size_bytes, 1);
    refused(world.patch(&content("/f", b"b")), "DiskFull");
    refused(world.write(&write_plan("/f"), b"b"), "DiskFull");
    std::fs::remove_file(place.path().join("filling")).unwrap();
    world.open();
    world.patch(&content("/f", b"b")).unwrap();
    assert_eq!(world.text("/f"), "b");
}

#[test]
fn a_full_disk() {
    let Some((_mounted, _place, world)) = small_world() else { return };
    world.put("f", "a");
    std::fs::write(world.at("filling"), vec![0; 3 << 20]).unwrap();
    let big = vec![b'x'; 1 << 20];
    refused(world.patch(&content("/f", &big)), "DiskFull");
    refused(world.patch(&PatchPlan { create_parents: true, ..content("/d/e/f", &big) }), "DiskFull");
    refused(world.write(&write_plan("/new"), &big), "DiskFull");
    assert_eq!(world.names(), ["f", "filling"]);
    assert_eq!(world.text("f"), "a");
    assert!(world.staged().is_empty());
    // What was refused is not remembered: with space again the same key serves.
    let plan = content("/f", &big);
    refused(world.patch(&plan), "DiskFull");
    std::fs::remove_file(world.at("filling")).unwrap();
    assert!(!world.patch(&plan).unwrap().replayed);
    assert_eq!(Revision::of(&std::fs::read(world.at("f")).unwrap()), Revision::of(&big));
}

#[test]
fn a_read_only_file_system() {
    let Some((mounted, _place, mut world)) = small_world() else { return };
    world.put("f", "a");
    let at = mounted.0.to_str().unwrap().to_owned();
    world.close();
    assert!(run(&["mount", "-o", "remount,ro", &at]));
    world.open();
    refused(world.patch(&content("/f", b"b")), "ReadOnly");
    refused(world.patch(&content("/none/f", b"b")), "NotFound");
    refused(world.write(&write_plan("/f"), b"b"), "ReadOnly");
    refused(world.workspace().remove(&remove_plan("/f"), &Unbounded), "ReadOnly");
    refused(world.workspace().rename(&move_plan("/f", "/g"), &Unbounded), "ReadOnly");
    refused(world.workspace().make_directory(&directory_plan("/d")), "ReadOnly");
    use dormouse_files::tree::Tree;
    let tree = world.workspace().tree();
    assert!(tree.open(&tree.root().unwrap(), b"f").is_ok());
    world.close();
    assert!(run(&["mount", "-o", "remount,rw", &at]));
    world.open();
    world.close();
}

#[test]
fn an_immutable_file() {
    let world = World::new();
    world.put("f", "a");
    let at = world.at("f").to_str().unwrap().to_owned();
    if !is_root() || !run(&["chattr", "+i", &at]) {
        return;
    }
    let patched = world.patch(&content("/f", b"b"));
    let removed = world.workspace().remove(&remove_plan("/f"), &Unbounded);
    assert!(run(&["chattr", "-i", &at]));
    refused(patched, "PermissionDenied");
    refused(removed, "PermissionDenied");
    assert_eq!(world.text("f"), "a");
    assert!(world.staged().is_empty());
    assert!(world.patch(&content("/f", b"b")).is_ok());
}

#[test]
fn a_mount_point() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.put("f", "a");
    world.put("other", "b");
    std::fs::create_dir(world.at("d")).unwrap();
    let file = Mounted::new(&["--bind", world.at("other").to_str().unwrap()], &world.at("f"));
    let directory = Mounted::new(&["-t", "tmpfs", "none"], &world.at("d"));
    refused(world.patch(&content("/f", b"x")), "MountPoint");
    refused(world.workspace().remove(&remove_plan("/f"), &Unbounded), "MountPoint");
    refused(world.workspace().remove(&remove_plan("/d"), &Unbounded), "MountPoint");
    let all = RemovePlan { recursive: true, ..remove_plan("/d") };
    refused(world.workspace().remove(&all, &Unbounded), "MountPoint");
    refused(world.workspace().rename(&move_plan("/f", "/g"), &Unbounded), "MountPoint");
    refused(world.patch(&content("/d/x", b"x")), "Outside");
    drop((file, directory));
    assert_eq!((world.text("f").as_str(), world.text("other").as_str()), ("a", "b"));
    assert!(world.staged().is_empty());
}

/// Runs one of these tests again as the user `nobody`, since root is refused nothing; not where there is no setpriv(1).
fn run_as_nobody(test: &str) {
    use std::os::unix::fs::PermissionsExt;
    if !run(&["setpriv", "--version"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // Where it lies an ordinary user may not come.
    let copy = place.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["--exact", &format!("tests::failures::{test}")])
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_directory_that_may_not_be_written() {
    use std::os::unix::fs::PermissionsExt;
    if is_root() {
        return run_as_nobody("a_directory_that_may_not_be_written");
    }
    let world = World::new();
    std::fs::create_dir(world.at("d")).unwrap();
    world.put("d/f", "a");
    let allow = |mode| std::fs::set_permissions(world.at("d"), std::fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o500, 0o300, 0o600, 0] {
        allow(mode);
        refused(world.patch(&content("/d/f", b"b")), "PermissionDenied");
        refused(world.patch(&content("/d/new", b"b")), "PermissionDenied");
        refused(world.patch(&PatchPlan { validate_only: true, ..content("/d/f", b"b") }), "PermissionDenied");
        refused(world.workspace().remove(&remove_plan("/d/f"), &Unbounded), "PermissionDenied");
        allow(0o700);
        assert_eq!(world.names(), ["d", "d/f"]);
    }
    // Search permission alone is enough to read a file whose name is known.
    allow(0o100);
    use dormouse_files::tree::Tree;
    let tree = world.workspace().tree();
    let directory = tree.directory(&tree.root().unwrap(), b"d").unwrap();
    assert!(tree.open(&directory, b"f").is_ok());
    let listed = tree.names(&directory, &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(listed, Err(dormouse_files::tree::TreeError::PermissionDenied)));
    allow(0o700);
}

/// Nobody knows which keys were done, so nothing may be done; what can be read is read.
#[test]
fn a_damaged_journal_leaves_the_files_readable() {
    let mut world = World::new();
    world.put("f", "a");
    let plan = content("/f", b"b");
    world.patch(&plan).unwrap();
    world.close();
    let journals = ["journal.0", "journal.1"].map(|name| world.place.path().join("state").join(name));
    let sound: Vec<Vec<u8>> = journals.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for (path, bytes) in journals.iter().zip(&sound) {
        let mut bytes = bytes.clone();
        bytes.iter_mut().take(24).for_each(|byte| *byte ^= 0xee);
        std::fs::write(path, bytes).unwrap();
    }
    let damaged: Vec<Vec<u8>> = journals.iter().map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::write(world.place.path().join("state/s77"), "what a recovery may need").unwrap();
    world.open();
    let workspace = world.workspace();
    assert!(!workspace.is_sound());
    let why = workspace.closed().unwrap();
    assert!(why.contains("state") && why.contains("delete"), "{why}");
    assert!(workspace.tree().open(&workspace.tree().root().unwrap(), b"f").is_ok());
    for fault in [
        refused(world.patch(&content("/f", b"c")), "Io"),
        refused(world.patch(&plan), "Io"),
        refused(world.write(&write_plan("/f"), b"c"), "Io"),
        refused(world.workspace().remove(&remove_plan("/f"), &Unbounded), "Io"),
        refused(world.workspace().rename(&move_plan("/f", "/g"), &Unbounded), "Io"),
        refused(world.workspace().make_directory(&directory_plan("/d")), "Io"),
    ] {
        assert!(format!("{fault:?}").contains("journal"), "{fault:?}");
    }
    world.close();
    let untouched: Vec<Vec<u8>> = journals.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(damaged == untouched && world.staged() == ["s77"]);
    // Put right, the key is known again.
    for (path, bytes) in journals.iter().zip(&sound) {
        std::fs::write(path, bytes).unwrap();
    }
    world.open();
    assert!(world.patch(&plan).unwrap().replayed);
    world.close();
    // And without a journal it begins anew.
    journals.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    world.open();
    assert!(!world.patch(&plan).unwrap().replayed);
}

#[test]
fn a_state_directory_that_others_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    world.close();
    let state = world.place.path().join("state");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = || Workspace::open(&world.root(), world.place.path(), LiveLimits::default());
    assert!(matches!(open(), Err(crate::OpenError::State { .. })));
    std::fs::remove_dir_all(&state).unwrap();
    std::os::unix::fs::symlink("/tmp", &state).unwrap();
    std::os::unix::fs::symlink("/tmp", world.at(".dormouse")).unwrap();
    let none = world.place.path().join("none");
    let opened = Workspace::open(&world.root(), &none, LiveLimits::default());
    assert!(matches!(opened, Err(crate::OpenError::State { .. })));
    assert!(matches!(
        Workspace::open(&world.at("missing"), &none, LiveLimits::default()),
        Err(crate::OpenError::Root { .. })
    ));
}

/// The disk fails at each step of a change: before it is visible that is an error and nothing else, after it the outcome is
/// unknown, and in both cases a recovery knows, and the same key then happens once.
#[test]
fn a_disk_that_fails() {
    type Run = fn(&World, &Key) -> Result<bool, Fault>;
    let runs: [(&str, Run); 4] = [
        ("an edit", |world, key| Ok(world.patch(&PatchPlan { key: key.clone(), ..edit("/f", "a", "ab") })?.replayed)),
        ("a create", |world, key| {
            let plan = PatchPlan { create_parents: true, key: key.clone(), ..content("/d/g", b"ab") };
            Ok(world.patch(&plan)?.replayed)
        }),
        ("a remove", |world, key| {
            Ok(world.workspace().remove(&RemovePlan { key: key.clone(), ..remove_plan("/f") }, &Unbounded)?.replayed)
        }),
        ("a directory", |world, key| {
            Ok(world
                .workspace()
                .make_directory(&MakeDirectoryPlan { key: key.clone(), ..directory_plan("/e") })?
                .replayed)
        }),
    ];
    for (name, run) in runs {
        let mut stages = Vec::new();
        for step in ["P2 named", "P2", "P3", "P4 exchanged", "P5"] {
            let mut world = World::new();
            world.put("f", "a");
            let before = world.names();
            let broken = Arc::new(AtomicBool::new(false));
            let switch = Arc::clone(&broken);
            let hook: StopHook = Arc::new(move |at| {
                switch.fetch_or(at == step, Ordering::SeqCst);
                false
            });
            world.open_on(Steps::on_disk(hook, Arc::clone(&broken)));
            let key = key();
            let result = run(&world, &key);
            if !broken.load(Ordering::SeqCst) {
                continue;
            }
            let reason = match result {
                Ok(replayed) => panic!("{name} at {step}: done, {replayed}"),
                Err(fault) => name_of(&fault),
            };
            stages.push((step, reason.clone()));
            if reason == "Io" {
                assert_eq!((world.names(), world.text("f").as_str()), (before, "a"), "{name} at {step}");
            } else {
                assert_eq!(reason, "OutcomeUnknown", "{name} at {step}");
            }
            // A disk that has failed takes nothing more before the workspace is opened again.
            if step != "P2 named" && step != "P2" {
                broken.store(false, Ordering::SeqCst);
                refused(world.patch(&content("/other", b"x")), "Io");
            }
            world.open();
            let replayed = run(&world, &key).unwrap_or_else(|fault| panic!("{name} at {step}: {fault:?}"));
            assert_eq!(replayed, reason == "OutcomeUnknown", "{name} at {step}");
            assert!(run(&world, &key).unwrap());
            world.close();
            assert!(world.staged().len() <= 1, "{name} at {step}: {:?}", world.staged());
        }
        assert!(stages.iter().any(|(_, reason)| reason == "Io"), "{name}: {stages:?}");
        assert!(stages.iter().any(|(_, reason)| reason == "OutcomeUnknown"), "{name}: {stages:?}");
    }
}
