//! What each verb does when nothing goes wrong.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use dormouse_files::{meta::FileType, revision::Revision, tree::Tree};

use super::*;

fn same_as_stat(world: &World, entry: &dormouse_files::stat::Entry) {
    let tree = world.workspace().tree();
    let mut directory = tree.root().unwrap();
    let names: Vec<&[u8]> = entry.path.components().collect();
    for name in &names[..names.len() - 1] {
        directory = tree.directory(&directory, name).unwrap();
    }
    assert_eq!(tree.stat(&directory, names[names.len() - 1]).unwrap(), entry.meta);
}

#[test]
fn edits_replace_text() {
    let world = World::new();
    world.put("f", "one\ntwo\n");
    let old = Revision::of(b"one\ntwo\n");
    let done = world.patch(&PatchPlan { expected: Expected::Revision(old), ..edit("/f", "two", "three") }).unwrap();
    assert_eq!(world.text("f"), "one\nthree\n");
    assert_eq!((done.revision, done.previous_revision), (Revision::of(b"one\nthree\n"), Some(old)));
    assert_eq!((done.bytes_written, done.replacements, done.durable, done.replayed), (10, 1, true, false));
    assert_eq!(done.entry.revision, Some(done.revision));
    same_as_stat(&world, &done.entry);
    assert!(!done.replaced_open_file);
}

#[test]
fn content_creates_and_replaces() {
    let world = World::new();
    let done = world.patch(&PatchPlan { expected: Expected::Absent, ..content("/f", b"a") }).unwrap();
    assert_eq!((done.previous_revision, done.bytes_written), (None, 1));
    same_as_stat(&world, &done.entry);
    assert_eq!(std::fs::metadata(world.at("f")).unwrap().mode() & 0o7777, 0o644);
    let done = world.patch(&content("/f", b"b")).unwrap();
    assert_eq!(done.previous_revision, Some(Revision::of(b"a")));
    assert_eq!(world.text("f"), "b");
    world.patch(&PatchPlan { mode: Some(0o777), ..content("/x", b"") }).unwrap();
    assert_eq!(std::fs::metadata(world.at("x")).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(world.names(), ["f", "x"]);
}

#[test]
fn an_existing_file_keeps_its_mode_and_owner() {
    let world = World::new();
    world.put("f", "a");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(world.at("f"), Some(1000), Some(1001)).unwrap();
    }
    std::fs::set_permissions(world.at("f"), std::fs::Permissions::from_mode(0o6755)).unwrap();
    let before = std::fs::metadata(world.at("f")).unwrap();
    world.patch(&PatchPlan { mode: Some(0o600), ..edit("/f", "a", "b") }).unwrap();
    let after = std::fs::metadata(world.at("f")).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino());
}

#[test]
fn a_new_file_belongs_to_the_owner_of_its_directory() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::fs::create_dir(world.at("d")).unwrap();
    std::os::unix::fs::chown(world.at("d"), Some(1000), Some(1001)).unwrap();
    world.patch(&PatchPlan { create_parents: true, ..content("/d/e/f", b"a") }).unwrap();
    for name in ["d/e", "d/e/f"] {
        let found = std::fs::metadata(world.at(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (1000, 1001), "{name}");
    }
    assert_eq!(std::fs::metadata(world.at("d/e")).unwrap().mode() & 0o7777, 0o755);
}

/// Version 2 of a list (acl(5), `linux/posix_acl_xattr.h`): the owner may write, user 1000 read, the mask reads and writes.
const LIST: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 6, 0, 255, 255, 255, 255, // owner
    2, 0, 4, 0, 232, 3, 0, 0, // user 1000
    4, 0, 4, 0, 255, 255, 255, 255, // group
    16, 0, 6, 0, 255, 255, 255, 255, // mask
    32, 0, 0, 0, 255, 255, 255, 255, // others
];

fn attribute(world: &World, at: &str, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = rustix::fs::getxattr(world.at(at), name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn an_existing_file_keeps_its_attributes_but_no_capability() {
    let world = World::new();
    world.put("f", "a");
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(world.at("f"), name, value, rustix::fs::XattrFlags::empty()).is_ok()
    };
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let had_capability = set("security.capability", &capability);
    if !set("user.note", b"kept") || !set("system.posix_acl_access", &LIST) {
        return;
    }
    assert_eq!(attribute(&world, "f", "security.capability").is_some(), had_capability);
    for plan in [edit("/f", "a", "b"), content("/f", b"c")] {
        world.patch(&plan).unwrap();
        assert_eq!(attribute(&world, "f", "user.note").as_deref(), Some(b"kept".as_slice()));
        assert_eq!(attribute(&world, "f", "system.posix_acl_access").as_deref(), Some(LIST.as_slice()));
        assert_eq!(attribute(&world, "f", "security.capability"), None);
    }
    world.write(&write_plan("/f"), b"d").unwrap();
    assert_eq!(attribute(&world, "f", "system.posix_acl_access").as_deref(), Some(LIST.as_slice()));
}

#[test]
fn new_files_and_directories_inherit() {
    let world = World::new();
    std::fs::create_dir(world.at("d")).unwrap();
    std::fs::set_permissions(world.at("d"), std::fs::Permissions::from_mode(0o2755)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(world.at("d"), "system.posix_acl_default", &LIST, flags).is_err() {
        return;
    }
    world.put("plain", "no list");
    world.patch(&content("/d/f", b"a")).unwrap();
    world.patch(&PatchPlan { create_parents: true, ..content("/d/e/g/f", b"a") }).unwrap();
    world.workspace().make_directory(&directory_plan("/d/made")).unwrap();
    for at in ["d/f", "d/e", "d/e/g", "d/e/g/f", "d/made"] {
        let found = attribute(&world, at, "system.posix_acl_access").unwrap_or_else(|| panic!("{at} has no list"));
        assert_eq!(found[12..20], LIST[12..20], "{at}");
        let is_directory = world.at(at).is_dir();
        assert_eq!(attribute(&world, at, "system.posix_acl_default").is_some(), is_directory, "{at}");
        let mode = std::fs::metadata(world.at(at)).unwrap().mode() & 0o7777;
        assert_eq!(mode, if is_directory { 0o2755 } else { 0o644 }, "{at}");
    }
    // A file that replaces one without a list has none, though the directory would give it one.
    std::fs::rename(world.at("plain"), world.at("d/plain")).unwrap();
    world.patch(&content("/d/plain", b"b")).unwrap();
    assert_eq!(attribute(&world, "d/plain", "system.posix_acl_access"), None);
}

#[test]
fn the_same_content_changes_no_inode_and_no_time() {
    let world = World::new();
    world.put("f", "a");
    let before = std::fs::metadata(world.at("f")).unwrap();
    let done = world.patch(&content("/f", b"a")).unwrap();
    assert_eq!((done.bytes_written, done.durable), (0, true));
    let done = world.write(&write_plan("/f"), b"a").unwrap();
    assert_eq!((done.bytes_written, done.durable), (0, true));
    let after = std::fs::metadata(world.at("f")).unwrap();
    assert_eq!(
        (after.ino(), after.mtime_nsec(), after.ctime_nsec()),
        (before.ino(), before.mtime_nsec(), before.ctime_nsec())
    );
}

#[test]
fn validate_only_changes_nothing() {
    let world = World::new();
    world.put("f", "a");
    let plan = PatchPlan { validate_only: true, ..edit("/f", "a", "bb") };
    let done = world.patch(&plan).unwrap();
    assert_eq!((done.revision, done.bytes_written, done.entry.meta.size_bytes), (Revision::of(b"bb"), 2, 2));
    assert_eq!(world.text("f"), "a");
    let made = world.patch(&PatchPlan { validate_only: true, create_parents: true, ..content("/d/g", b"x") }).unwrap();
    assert_eq!((made.previous_revision, made.entry.meta.mode), (None, 0o644));
    assert_eq!(world.names(), ["f"]);
    assert!(world.staged().is_empty());
    // The key is not remembered: another request may use it.
    let done = world.patch(&PatchPlan { key: named_key(plan.key.text(), 9), ..edit("/f", "a", "c") }).unwrap();
    assert!(!done.replayed);
}

#[test]
fn write_takes_any_size_and_leaves_nothing_when_cut() {
    let world = World::new();
    let big: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let done = world.write(&write_plan("/f"), &big).unwrap();
    assert_eq!((done.revision, done.bytes_written, done.previous_revision), (Revision::of(&big), 3_000_000, None));
    assert_eq!(std::fs::read(world.at("f")).unwrap(), big);
    same_as_stat(&world, &done.entry);
    let WriteBegin::Staged(mut cut) = world.workspace().write(&write_plan("/g")).unwrap() else { panic!() };
    cut.append(b"abc").unwrap();
    drop(cut);
    assert_eq!(world.names(), ["f"]);
    let done = world.write(&WritePlan { create_parents: true, ..write_plan("/d/e/g") }, b"new").unwrap();
    assert_eq!((world.text("d/e/g").as_str(), done.entry.meta.mode), ("new", 0o644));
}

#[test]
fn remove_takes_files_links_and_trees() {
    let world = World::new();
    world.put("f", "a");
    symlink("f", world.at("l")).unwrap();
    symlink("/nowhere", world.at("dangling")).unwrap();
    std::fs::create_dir_all(world.at("d/e/deep/er")).unwrap();
    world.put("d/e/x", "1");
    world.put("d/e/deep/er/y", "1");
    std::fs::create_dir(world.at("empty")).unwrap();
    let remove = |plan: &RemovePlan| world.workspace().remove(plan, &Unbounded);
    assert_eq!(remove(&remove_plan("/l")).unwrap().previous_revision, None);
    remove(&remove_plan("/dangling")).unwrap();
    assert_eq!(world.text("f"), "a");
    assert_eq!(remove(&remove_plan("/f")).unwrap().previous_revision, Some(Revision::of(b"a")));
    refused(remove(&remove_plan("/d")), "NotEmpty");
    remove(&remove_plan("/empty")).unwrap();
    assert!(remove(&RemovePlan { recursive: true, ..remove_plan("/d") }).unwrap().durable);
    assert!(world.names().is_empty());
}

#[test]
fn what_was_removed_is_deleted_in_the_end() {
    let mut world = World::new();
    std::fs::create_dir_all(world.at("d/e/f/g")).unwrap();
    for number in 0..300 {
        world.put(&format!("d/e/{number}"), "x");
        world.put(&format!("d/e/f/g/{number}"), "x");
    }
    world.workspace().remove(&RemovePlan { recursive: true, ..remove_plan("/d") }, &Unbounded).unwrap();
    world.put("f", "a");
    world.patch(&content("/f", b"b")).unwrap();
    // The first closing may stop the deletion; each opening begins it again, and each run deletes some.
    for _ in 0..1000 {
        world.close();
        if world.staged().is_empty() {
            return;
        }
        world.open();
        std::thread::yield_now();
    }
    panic!("{:?}", world.staged());
}

#[test]
fn rename_moves_files_links_and_directories() {
    let world = World::new();
    world.put("f", "a");
    world.put("g", "b");
    std::fs::create_dir(world.at("d")).unwrap();
    symlink("f", world.at("l")).unwrap();
    let rename = |plan: &MovePlan| world.workspace().rename(plan, &Unbounded);
    let done = rename(&move_plan("/f", "/d/f")).unwrap();
    same_as_stat(&world, &done.entry);
    assert_eq!(done.entry.path, path("/d/f"));
    refused(rename(&move_plan("/g", "/d/f")), "AlreadyExists");
    rename(&MovePlan { replace: true, ..move_plan("/g", "/d/f") }).unwrap();
    assert_eq!(world.text("d/f"), "b");
    let done = rename(&MovePlan { create_parents: true, ..move_plan("/d", "/x/y/d") }).unwrap();
    assert_eq!(done.entry.meta.kind, FileType::Directory);
    assert_eq!(rename(&move_plan("/l", "/k")).unwrap().entry.link_target, Some(b"f".to_vec()));
    assert_eq!(world.names(), ["k", "x", "x/y", "x/y/d", "x/y/d/f"]);
}

#[test]
fn make_directory_makes_its_parents_too() {
    let world = World::new();
    let make = |plan: &MakeDirectoryPlan| world.workspace().make_directory(plan);
    let done =
        make(&MakeDirectoryPlan { mode: Some(0o700), create_parents: true, ..directory_plan("/a/b/c") }).unwrap();
    same_as_stat(&world, &done.entry);
    assert_eq!(done.entry.meta.mode, 0o700);
    assert_eq!(std::fs::metadata(world.at("a/b")).unwrap().mode() & 0o7777, 0o755);
    let done = make(&directory_plan("/a/d")).unwrap();
    assert_eq!((done.entry.meta.mode, done.durable), (0o755, true));
    same_as_stat(&world, &done.entry);
}

#[test]
fn the_root_may_hold_its_state_itself() {
    let place = tempfile::tempdir().unwrap();
    let open = || Workspace::open(place.path(), &place.path().join("none"), LiveLimits::default()).unwrap();
    let workspace = open();
    workspace.patch(&content("/f", b"a"), &Unbounded).unwrap();
    let tree = workspace.tree();
    let mut names = Vec::new();
    tree.names(&tree.root().unwrap(), &mut |name| {
        names.push(name.bytes.to_vec());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(names, [b"f"]);
    refused(workspace.patch(&content("/.dormouse", b"a"), &Unbounded), "PermissionDenied");
    refused(workspace.patch(&content("/.dormouse/x", b"a"), &Unbounded), "NotFound");
    let create = PatchPlan { create_parents: true, ..content("/.dormouse/x", b"a") };
    refused(workspace.patch(&create, &Unbounded), "NotFound");
    refused(workspace.remove(&remove_plan("/.dormouse"), &Unbounded), "PermissionDenied");
    refused(workspace.rename(&move_plan("/f", "/.dormouse/journal.0"), &Unbounded), "NotFound");
    let state = std::fs::metadata(place.path().join(".dormouse")).unwrap();
    assert_eq!(state.mode() & 0o7777, 0o700);
    drop(workspace);
    drop(open());
}

#[test]
fn the_agents_own_directory_serves_where_it_may() {
    let place = tempfile::tempdir().unwrap();
    for name in ["work", "agent"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let open = || Workspace::open(&place.path().join("work"), &place.path().join("agent"), LiveLimits::default());
    let workspace = open().unwrap();
    let plan = content("/f", b"a");
    workspace.patch(&plan, &Unbounded).unwrap();
    assert!(!place.path().join("work/.dormouse").exists());
    assert!(matches!(open(), Err(crate::OpenError::State { .. })), "two agents must not share a journal");
    drop(workspace);
    std::fs::rename(place.path().join("work"), place.path().join("moved")).unwrap();
    let moved =
        Workspace::open(&place.path().join("moved"), &place.path().join("agent"), LiveLimits::default()).unwrap();
    assert!(moved.patch(&plan, &Unbounded).unwrap().replayed);
}
