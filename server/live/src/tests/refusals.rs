//! What is refused, with which reason, and that nothing was changed by it.

use std::os::unix::fs::{MetadataExt, symlink};

use dormouse_files::revision::Revision;

use super::*;

fn absent(plan: PatchPlan) -> PatchPlan {
    PatchPlan { expected: Expected::Absent, ..plan }
}

fn at_revision(plan: PatchPlan, content: &[u8]) -> PatchPlan {
    PatchPlan { expected: Expected::Revision(Revision::of(content)), ..plan }
}

/// A tree with one of each, looked at before and after.
fn with_all(check: impl Fn(&World)) {
    let world = World::new();
    world.put("f", "text\n");
    std::fs::write(world.at("latin"), b"caf\xe9").unwrap();
    std::fs::create_dir(world.at("d")).unwrap();
    world.put("d/g", "inner");
    symlink("f", world.at("link")).unwrap();
    symlink("d", world.at("linkd")).unwrap();
    symlink("nowhere", world.at("dangling")).unwrap();
    symlink("/../../etc", world.at("out")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let before = world.names();
    let inode = std::fs::metadata(world.at("f")).unwrap().ino();
    check(&world);
    assert_eq!(world.names(), before);
    assert_eq!(world.text("f"), "text\n");
    assert_eq!(std::fs::metadata(world.at("f")).unwrap().ino(), inode);
    assert!(world.staged().is_empty(), "{:?}", world.staged());
}

#[test]
fn a_patch_of_what_is_no_file() {
    with_all(|world| {
        refused(world.patch(&content("/", b"x")), "NotRegular");
        refused(world.patch(&content("/d", b"x")), "NotRegular");
        refused(world.patch(&content("/fifo", b"x")), "NotRegular");
        refused(world.patch(&edit("/d", "a", "b")), "NotRegular");
        refused(world.patch(&content("/f/x", b"x")), "NotDirectory");
        refused(world.patch(&content("/no/x", b"x")), "NotFound");
        refused(world.patch(&edit("/none", "a", "b")), "NotFound");
        refused(world.patch(&PatchPlan { create_parents: true, ..edit("/no/x", "a", "b") }), "NotFound");
        refused(world.write(&write_plan("/d"), b"x"), "NotRegular");
        refused(world.write(&write_plan("/no/x"), b"x"), "NotFound");
        match world.patch(&content("/no/such/x", b"x")) {
            Err(Fault::NotFound { missing, .. }) => assert_eq!(missing, path("/no")),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_link_anywhere_on_the_path() {
    with_all(|world| {
        let at = |text: &str, link: &str, resolved: Option<&str>| match world.patch(&content(text, b"x")) {
            Err(Fault::Symlink { link: found, resolved: to, .. }) => {
                assert_eq!((found, to), (path(link), resolved.map(path)), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        };
        at("/link", "/link", Some("/f"));
        at("/linkd/g", "/linkd", Some("/d/g"));
        at("/linkd/new", "/linkd", Some("/d/new"));
        at("/dangling", "/dangling", Some("/nowhere"));
        at("/out/passwd", "/out", None);
        refused(world.write(&write_plan("/link"), b"x"), "Symlink");
        refused(world.write(&write_plan("/linkd/g"), b"x"), "Symlink");
        refused(world.workspace().remove(&remove_plan("/linkd/g"), &Unbounded), "Symlink");
        refused(world.workspace().rename(&move_plan("/linkd/g", "/x"), &Unbounded), "Symlink");
        refused(world.workspace().rename(&move_plan("/f", "/linkd/x"), &Unbounded), "Symlink");
        let over = MovePlan { replace: true, ..move_plan("/f", "/link") };
        refused(world.workspace().rename(&over, &Unbounded), "Symlink");
        refused(world.workspace().make_directory(&directory_plan("/linkd/x")), "Symlink");
        refused(world.workspace().make_directory(&directory_plan("/dangling")), "Symlink");
        let parents = PatchPlan { create_parents: true, ..content("/dangling/x", b"x") };
        refused(world.patch(&parents), "Symlink");
    });
}

#[test]
fn another_revision() {
    with_all(|world| {
        let actual = |result: Result<PatchDone, Fault>| match result {
            Err(Fault::RevisionMismatch { actual, .. }) => actual,
            other => panic!("{other:?}"),
        };
        let now = Some(Revision::of(b"text\n"));
        assert_eq!(actual(world.patch(&at_revision(edit("/f", "text", "x"), b"other"))), now);
        assert_eq!(actual(world.patch(&at_revision(content("/f", b"x"), b"other"))), now);
        assert_eq!(actual(world.patch(&absent(content("/f", b"x")))), now);
        assert_eq!(actual(world.patch(&absent(content("/d", b"x")))), None);
        assert_eq!(actual(world.patch(&absent(content("/dangling", b"x")))), None);
        assert_eq!(actual(world.patch(&absent(content("/fifo", b"x")))), None);
        assert_eq!(actual(world.patch(&absent(content("/", b"x")))), None);
        assert_eq!(actual(world.patch(&at_revision(edit("/none", "a", "b"), b"a"))), None);
        assert_eq!(actual(world.patch(&at_revision(content("/none", b"b"), b"a"))), None);
        // The revision is looked at before the text and the edits.
        assert!(actual(world.patch(&at_revision(edit("/latin", "a", "b"), b"a"))).is_some());
        let expected = Expected::Revision(Revision::of(b"other"));
        let write = WritePlan { expected, ..write_plan("/f") };
        refused(world.write(&write, b"x"), "RevisionMismatch");
        let write = WritePlan { expected: Expected::Absent, ..write_plan("/d") };
        refused(world.write(&write, b"x"), "RevisionMismatch");
        let remove = RemovePlan { expected, ..remove_plan("/f") };
        refused(world.workspace().remove(&remove, &Unbounded), "RevisionMismatch");
        let rename = MovePlan { expected, ..move_plan("/f", "/x") };
        refused(world.workspace().rename(&rename, &Unbounded), "RevisionMismatch");
        let remove = RemovePlan { expected, ..remove_plan("/d") };
        refused(world.workspace().remove(&remove, &Unbounded), "NotRegular");
    });
}

#[test]
fn edits_that_do_not_apply() {
    with_all(|world| {
        refused(world.patch(&edit("/f", "missing", "x")), "EditNoMatch");
        refused(world.patch(&edit("/f", "t", "x")), "EditNotUnique");
        match world.patch(&edit("/latin", "caf", "x")) {
            Err(Fault::NotUtf8 { offset, .. }) => assert_eq!(offset, 3),
            other => panic!("{other:?}"),
        }
        let two = PatchPlan {
            change: Change::Edits(vec![
                Edit { old_text: "text".to_owned(), new_text: "x".to_owned(), replace_all: false },
                Edit { old_text: "text".to_owned(), new_text: "y".to_owned(), replace_all: false },
            ]),
            ..content("/f", b"")
        };
        match world.patch(&two) {
            Err(Fault::EditNoMatch { edit_index, .. }) => assert_eq!(edit_index, 1),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn removes_moves_and_directories() {
    with_all(|world| {
        let workspace = world.workspace();
        let remove = |at: &str| workspace.remove(&remove_plan(at), &Unbounded);
        refused(remove("/"), "Invalid");
        refused(remove("/none"), "NotFound");
        refused(remove("/d"), "NotEmpty");
        let rename = |from: &str, to: &str| workspace.rename(&move_plan(from, to), &Unbounded);
        refused(rename("/", "/x"), "Invalid");
        refused(rename("/d", "/"), "Invalid");
        refused(rename("/d", "/d/inside"), "Invalid");
        refused(rename("/d", "/d"), "Invalid");
        refused(rename("/none", "/x"), "NotFound");
        refused(rename("/f", "/d"), "AlreadyExists");
        refused(rename("/f", "/no/x"), "NotFound");
        let over =
            |from: &str, to: &str| workspace.rename(&MovePlan { replace: true, ..move_plan(from, to) }, &Unbounded);
        refused(over("/f", "/d"), "AlreadyExists");
        refused(over("/d", "/f"), "AlreadyExists");
        let failed = MovePlan { create_parents: true, ..move_plan("/none", "/x/y") };
        refused(workspace.rename(&failed, &Unbounded), "NotFound");
        let make = |at: &str| workspace.make_directory(&directory_plan(at));
        refused(make("/"), "AlreadyExists");
        refused(make("/d"), "AlreadyExists");
        refused(make("/f"), "AlreadyExists");
        refused(make("/no/x"), "NotFound");
        refused(make("/f/x"), "NotDirectory");
    });
}

#[test]
fn a_write_that_is_not_what_was_meant() {
    with_all(|world| {
        let begin = |plan: &WritePlan| match world.workspace().write(plan).unwrap() {
            WriteBegin::Staged(mut staged) => {
                staged.append(b"abc").unwrap();
                staged
            }
            WriteBegin::Replayed(_) => panic!("never done"),
        };
        refused(begin(&write_plan("/new")).finish(4, None, &Unbounded), "Invalid");
        refused(begin(&write_plan("/new")).finish(3, Some(1), &Unbounded), "Invalid");
        let plan = WritePlan { content_revision: Some(Revision::of(b"x")), ..write_plan("/new") };
        refused(begin(&plan).finish(3, None, &Unbounded), "Invalid");
    });
}

#[test]
fn a_file_over_the_limit() {
    let world = World::new();
    let limit = LiveLimits::default().files.patch_file_bytes_max;
    let file = std::fs::File::create(world.at("f")).unwrap();
    file.set_len(limit + 1).unwrap();
    match world.patch(&edit("/f", "a", "b")) {
        Err(Fault::TooLarge { size_bytes, limit_bytes, instead, .. }) => {
            assert_eq!((size_bytes, limit_bytes, instead), (limit + 1, limit, "Write"));
        }
        other => panic!("{other:?}"),
    }
    drop(file);
    // A larger one can still be written whole.
    assert_eq!(world.write(&write_plan("/f"), b"small").unwrap().bytes_written, 5);
}

#[test]
fn a_writer_that_does_not_let_go() {
    let world = World::new();
    world.put("f", "text\n");
    let writer = std::fs::OpenOptions::new().write(true).open(world.at("f")).unwrap();
    refused(world.patch(&edit("/f", "text", "x")), "BusyWriter");
    refused(world.patch(&at_revision(content("/f", b"x"), b"text\n")), "BusyWriter");
    assert_eq!(world.text("f"), "text\n");
    let done = world.patch(&content("/f", b"new")).unwrap();
    assert!(done.replaced_open_file);
    assert_eq!(world.text("f"), "new");
    drop(writer);
    assert!(!world.patch(&content("/f", b"newer")).unwrap().replaced_open_file);
}

#[test]
fn a_root_that_is_gone_is_said_to_be() {
    let world = World::new();
    std::fs::create_dir(world.at("d")).unwrap();
    std::fs::remove_dir_all(world.at("")).unwrap();
    refused(world.patch(&content("/f", b"x")), "Io");
    refused(world.write(&write_plan("/f"), b"x"), "Io");
    refused(world.patch(&PatchPlan { create_parents: true, ..content("/d/f", b"x") }), "Io");
    assert!(world.staged().is_empty(), "{:?}", world.staged());
}

#[test]
fn a_root_that_was_replaced_is_changed_no_more() {
    let mut world = World::new();
    world.put("f", "a");
    let WriteBegin::Staged(staged) = world.workspace().write(&write_plan("/f")).unwrap() else { panic!("a new key") };
    assert!(world.workspace().is_sound());
    let old = world.place.path().join("old");
    std::fs::rename(world.root(), &old).unwrap();
    refused(world.patch(&content("/f", b"b")), "Io");
    std::fs::create_dir(world.root()).unwrap();
    assert!(!world.workspace().is_sound());
    refused(world.patch(&content("/f", b"b")), "Io");
    refused(world.write(&write_plan("/f"), b"b"), "Io");
    refused(staged.finish(0, None, &Unbounded), "Io");
    refused(world.workspace().make_directory(&directory_plan("/d")), "Io");
    refused(world.patch(&PatchPlan { validate_only: true, ..content("/f", b"b") }), "Io");
    assert_eq!(std::fs::read_dir(&old).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(old.join("f")).unwrap(), "a");
    world.open();
    world.patch(&content("/f", b"b")).unwrap();
    assert_eq!(world.text("/f"), "b");
}
