//! The crash table: each change is stopped at each of its steps, the workspace opened again, and the same request sent
//! again. The files are old or new, never a mixture, and it has happened exactly once.
//!
//! A stop loses nothing that the kernel has: that a power cut loses nothing either is the power-cut rig's to show.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use dormouse_files::revision::Revision;

use super::*;

/// One change, on a workspace that was prepared for it.
struct Case {
    prepare: fn(&World),
    run: fn(&World, &dormouse_files::change::Key) -> Result<bool, Fault>,
    /// All names and texts before and after.
    before: &'static [(&'static str, &'static str)],
    after: &'static [(&'static str, &'static str)],
}

fn snapshot(world: &World) -> Vec<(String, String)> {
    let names = world.names();
    names
        .into_iter()
        .map(|name| {
            let text = if world.at(&name).is_dir() { String::new() } else { world.text(&name) };
            (name, text)
        })
        .collect()
}

fn is(found: &[(String, String)], expect: &[(&str, &str)]) -> bool {
    found.len() == expect.len() && found.iter().zip(expect).all(|(found, expect)| (&*found.0, &*found.1) == *expect)
}

/// The steps that a change passes, in order.
fn steps_of(case: &Case) -> Vec<&'static str> {
    let mut world = World::new();
    (case.prepare)(&world);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    world.open_with(Arc::new(move |step| {
        seen.lock().unwrap().push(step);
        false
    }));
    assert!(!(case.run)(&world, &key()).unwrap());
    assert!(is(&snapshot(&world), case.after), "{:?}", snapshot(&world));
    steps.lock().unwrap().clone()
}

fn stop_at(step: &'static str) -> StopHook {
    Arc::new(move |at| at == step)
}

fn check(case: &Case, must_pass: &[&str]) {
    let steps = steps_of(case);
    for step in must_pass {
        assert!(steps.contains(step), "{step} is not one of {steps:?}");
    }
    for step in steps {
        let mut world = World::new();
        (case.prepare)(&world);
        world.open_with(stop_at(step));
        let key = key();
        assert!((case.run)(&world, &key).is_err(), "{step}");
        world.open();
        let found = snapshot(&world);
        let (is_old, is_new) = (is(&found, case.before), is(&found, case.after));
        assert!(is_old || is_new, "stopped at {step}: {found:?}");
        let replayed = (case.run)(&world, &key).unwrap_or_else(|fault| panic!("stopped at {step}: {fault:?}"));
        assert_eq!(replayed, is_new, "stopped at {step}");
        assert!(is(&snapshot(&world), case.after), "stopped at {step}: {:?}", snapshot(&world));
        assert!((case.run)(&world, &key).unwrap(), "stopped at {step}");
        // Nothing stays behind but what the last change displaced, and that goes with the closing.
        world.close();
        assert!(world.staged().len() <= 1, "stopped at {step}: {:?}", world.staged());
    }
}

#[test]
fn an_edit() {
    let case = Case {
        prepare: |world| world.put("f", "a"),
        run: |world, key| Ok(world.patch(&PatchPlan { key: key.clone(), ..edit("/f", "a", "aa") })?.replayed),
        before: &[("f", "a")],
        after: &[("f", "aa")],
    };
    check(
        &case,
        &["P2 named", "P2", "P3", "P3 durable", "P4", "P4 exchanged", "P5", "P6", "P7", "P7 done", "P7 durable"],
    );
}

#[test]
fn a_create() {
    let case = Case {
        prepare: |_| {},
        run: |world, key| {
            let plan = PatchPlan { expected: Expected::Absent, key: key.clone(), ..content("/f", b"a") };
            Ok(world.patch(&plan)?.replayed)
        },
        before: &[],
        after: &[("f", "a")],
    };
    check(&case, &["P2", "P3 durable", "P4", "P4 exchanged", "P6", "P7 done"]);
}

#[test]
fn a_create_with_its_directories() {
    let case = Case {
        prepare: |_| {},
        run: |world, key| {
            let plan = PatchPlan { create_parents: true, key: key.clone(), ..content("/d/e/f", b"a") };
            Ok(world.patch(&plan)?.replayed)
        },
        before: &[],
        after: &[("d", ""), ("d/e", ""), ("d/e/f", "a")],
    };
    check(&case, &["P2", "P3 durable", "P4", "P4 exchanged", "P6", "P7 done"]);
}

#[test]
fn a_write() {
    let case = Case {
        prepare: |world| world.put("f", "old"),
        run: |world, key| Ok(world.write(&WritePlan { key: key.clone(), ..write_plan("/f") }, b"new")?.replayed),
        before: &[("f", "old")],
        after: &[("f", "new")],
    };
    check(&case, &["P3 durable", "P4 exchanged", "P6", "P7 done"]);
}

#[test]
fn a_remove() {
    let case = Case {
        prepare: |world| world.put("f", "a"),
        run: |world, key| {
            Ok(world.workspace().remove(&RemovePlan { key: key.clone(), ..remove_plan("/f") }, &Unbounded)?.replayed)
        },
        before: &[("f", "a")],
        after: &[],
    };
    check(&case, &["P3 durable", "P4", "P4 exchanged", "P5", "P6", "P7 done"]);
}

#[test]
fn a_remove_of_a_tree() {
    let case = Case {
        prepare: |world| {
            std::fs::create_dir_all(world.at("d/e")).unwrap();
            world.put("d/e/f", "a");
        },
        run: |world, key| {
            let plan = RemovePlan { recursive: true, key: key.clone(), ..remove_plan("/d") };
            Ok(world.workspace().remove(&plan, &Unbounded)?.replayed)
        },
        before: &[("d", ""), ("d/e", ""), ("d/e/f", "a")],
        after: &[],
    };
    check(&case, &["P3 durable", "P4", "P4 exchanged", "P6", "P7 done"]);
}

#[test]
fn a_remove_of_an_empty_directory() {
    let case = Case {
        prepare: |world| std::fs::create_dir(world.at("d")).unwrap(),
        run: |world, key| {
            Ok(world.workspace().remove(&RemovePlan { key: key.clone(), ..remove_plan("/d") }, &Unbounded)?.replayed)
        },
        before: &[("d", "")],
        after: &[],
    };
    check(&case, &["P3 durable", "P4", "P5", "P6", "P7 done"]);
}

#[test]
fn a_move() {
    let case = Case {
        prepare: |world| {
            world.put("f", "a");
            world.put("g", "b");
        },
        run: |world, key| {
            let plan = MovePlan { replace: true, key: key.clone(), ..move_plan("/f", "/g") };
            Ok(world.workspace().rename(&plan, &Unbounded)?.replayed)
        },
        before: &[("f", "a"), ("g", "b")],
        after: &[("g", "a")],
    };
    check(&case, &["P3 durable", "P4", "P4 exchanged", "P6", "P7 done", "P7 durable"]);
}

#[test]
fn a_directory() {
    let case = Case {
        prepare: |_| {},
        run: |world, key| {
            let plan = MakeDirectoryPlan { create_parents: true, key: key.clone(), ..directory_plan("/d/e") };
            Ok(world.workspace().make_directory(&plan)?.replayed)
        },
        before: &[],
        after: &[("d", ""), ("d/e", "")],
    };
    check(&case, &["P2", "P3 durable", "P4", "P4 exchanged", "P6", "P7 done"]);
}

/// A process of the workspace replaces the file between the stop and the recovery.
#[test]
fn replaced_after_the_crash() {
    for (step, is_done) in [("P3 durable", false), ("P4 exchanged", true), ("P6", true), ("P7 done", true)] {
        for create in [false, true] {
            let mut world = World::new();
            if !create {
                world.put("f", "a");
            }
            let plan = if create { content("/f", b"ours") } else { edit("/f", "a", "ours") };
            world.open_with(stop_at(step));
            assert!(world.patch(&plan).is_err());
            world.put("g", "a, theirs");
            std::fs::rename(world.at("g"), world.at("f")).unwrap();
            world.open();
            assert_eq!(world.text("f"), "a, theirs", "{step}");
            let done = world.patch(&plan).unwrap();
            assert_eq!(done.replayed, is_done, "{step} {create}");
            let expect = match (is_done, create) {
                (true, _) => "a, theirs",
                (false, true) => "ours",
                (false, false) => "ours, theirs",
            };
            assert_eq!(world.text("f"), expect, "{step}");
        }
    }
}

/// Of a replacement both names stay until `done` is durable: where the staging name is gone and the target is not ours, no
/// exchange was made. Where it is gone and the target is ours, half of the exchange is durable.
#[test]
fn a_replacement_whose_staging_name_is_gone() {
    for (step, is_done) in [("P3 durable", false), ("P4", false), ("P4 exchanged", true), ("P6", true)] {
        let mut world = World::new();
        world.put("f", "a");
        world.open_with(stop_at(step));
        let plan = edit("/f", "a", "ours");
        assert!(world.patch(&plan).is_err());
        world.close();
        let staged = world.staged();
        assert_eq!(staged.len(), 1, "{step}");
        std::fs::remove_file(world.place.path().join("state").join(&staged[0])).unwrap();
        world.open();
        assert_eq!(world.text("f"), if is_done { "ours" } else { "a" }, "{step}");
        assert_eq!(world.patch(&plan).unwrap().replayed, is_done, "{step}");
        assert_eq!(world.text("f"), "ours", "{step}");
    }
}

/// A process of the workspace replaces the file just before the exchange, and the crash comes before anybody has looked.
#[test]
fn something_newer_was_displaced_before_the_crash() {
    for written_since in [false, true] {
        let mut world = World::new();
        world.put("f", "a");
        let root = world.root();
        world.open_with(Arc::new(move |step| {
            if step == "P4" {
                std::fs::write(root.join("g"), "a, theirs").unwrap();
                std::fs::rename(root.join("g"), root.join("f")).unwrap();
            }
            step == "P4 exchanged"
        }));
        let plan = edit("/f", "a", "ours");
        assert!(world.patch(&plan).is_err());
        assert_eq!(world.text("f"), "ours");
        if written_since {
            world.put("f", "ours, and more");
        }
        world.open();
        if written_since {
            assert_eq!(world.text("f"), "ours, and more");
            let kept: Vec<String> = world.staged().into_iter().filter(|name| name.starts_with("kept-")).collect();
            assert_eq!(kept.len(), 1);
            let kept = world.place.path().join("state").join(&kept[0]);
            assert_eq!(std::fs::read_to_string(kept).unwrap(), "a, theirs");
            assert!(world.patch(&plan).unwrap().replayed);
        } else {
            assert_eq!(world.text("f"), "a, theirs");
            assert!(!world.patch(&plan).unwrap().replayed);
            assert_eq!(world.text("f"), "ours, theirs");
        }
    }
}

/// The same without a crash: what was displaced goes back, and the edit is made on what is there.
#[test]
fn something_newer_is_not_lost() {
    let mut world = World::new();
    world.put("f", "a");
    let (root, turns) = (world.root(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&turns);
    world.open_with(Arc::new(move |step| {
        if step == "P4" && counted.fetch_add(1, Ordering::SeqCst) < 3 {
            let text = std::fs::read_to_string(root.join("f")).unwrap() + ", theirs";
            std::fs::write(root.join("g"), text).unwrap();
            std::fs::rename(root.join("g"), root.join("f")).unwrap();
        }
        false
    }));
    let done = world.patch(&edit("/f", "a", "ours")).unwrap();
    assert_eq!(world.text("f"), "ours, theirs, theirs, theirs");
    assert_eq!(done.previous_revision, Some(Revision::of(b"a, theirs, theirs, theirs")));
    assert_eq!(turns.load(Ordering::SeqCst), 4);
    let expected = Expected::Revision(done.revision);
    let (root, first) = (world.root(), AtomicU32::new(0));
    world.open_with(Arc::new(move |step| {
        if step == "P4" && first.fetch_add(1, Ordering::SeqCst) == 0 {
            std::fs::write(root.join("g"), "theirs alone").unwrap();
            std::fs::rename(root.join("g"), root.join("f")).unwrap();
        }
        false
    }));
    for plan in [content("/f", b"x"), edit("/f", "ours", "x")] {
        refused(world.patch(&PatchPlan { expected, ..plan }), "RevisionMismatch");
        assert_eq!(world.text("f"), "theirs alone");
    }
    let remove = RemovePlan { expected: Expected::Revision(Revision::of(b"x")), ..remove_plan("/f") };
    refused(world.workspace().remove(&remove, &Unbounded), "RevisionMismatch");
}

/// A process had looked the name up before the exchange, and opens it for writing only after it: it comes to the displaced
/// file, waits there, and the exchange is taken back before it may go on.
#[test]
fn a_writer_that_comes_late_is_seen() {
    let mut world = World::new();
    world.put("f", "a");
    let late = std::fs::File::open(world.at("f")).unwrap();
    let (turns, wanted) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
    let counted = Arc::clone(&turns);
    world.open_with(Arc::new(move |step| {
        if step == "P4 exchanged" {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        if step == "P6" && wanted.fetch_add(1, Ordering::SeqCst) < 2 {
            let same = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&late));
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
            let opened = rustix::fs::open(same, flags, rustix::fs::Mode::empty());
            assert_eq!(opened.map(drop), Err(rustix::io::Errno::AGAIN));
        }
        false
    }));
    world.patch(&edit("/f", "a", "b")).unwrap();
    assert_eq!((world.text("f").as_str(), turns.load(Ordering::SeqCst)), ("b", 3));
}

/// A create that loses against another one, again after the intent.
#[test]
fn a_create_that_comes_second() {
    for create_parents in [false, true] {
        let at = if create_parents { "/d/f" } else { "/f" };
        let mut world = World::new();
        let (root, first) = (world.root(), AtomicU32::new(0));
        world.open_with(Arc::new(move |step| {
            if step == "P4" && first.fetch_add(1, Ordering::SeqCst) == 0 {
                let _ = std::fs::create_dir(root.join("d"));
                std::fs::write(root.join(at.trim_start_matches('/')), "theirs").unwrap();
            }
            false
        }));
        let plan = PatchPlan { expected: Expected::Absent, create_parents, ..content(at, b"ours") };
        refused(world.patch(&plan), "RevisionMismatch");
        assert_eq!(world.text(at), "theirs");
        let done = world.patch(&PatchPlan { create_parents, ..content(at, b"ours") }).unwrap();
        assert_eq!((done.previous_revision, world.text(at).as_str()), (Some(Revision::of(b"theirs")), "ours"));
        // An abort is durable before its staging goes: a recovery finds nothing to do.
        world.open();
        assert!(world.staged().is_empty());
        assert_eq!(world.text(at), "ours");
    }
}

/// A crash in the middle of the recovery: it is begun again.
#[test]
fn a_recovery_that_is_cut_off_begins_again() {
    let mut world = World::new();
    world.put("f", "a");
    world.open_with(stop_at("P4 exchanged"));
    let plan = edit("/f", "a", "b");
    assert!(world.patch(&plan).is_err());
    world.close();
    // What a recovery does before its new journal counts is to look, to flush and at most to exchange back.
    let saved: Vec<_> = ["journal.0", "journal.1"]
        .map(|name| (name, std::fs::read(world.place.path().join("state").join(name)).unwrap()))
        .into();
    let staged = world.staged();
    assert_eq!(staged.len(), 1);
    let displaced = world.place.path().join("state").join(&staged[0]);
    let kept = world.place.path().join("displaced");
    std::fs::hard_link(&displaced, &kept).unwrap();
    world.open();
    world.close();
    for (name, bytes) in saved {
        std::fs::write(world.place.path().join("state").join(name), bytes).unwrap();
    }
    std::fs::rename(kept, displaced).unwrap();
    world.open();
    assert!(world.patch(&plan).unwrap().replayed);
    assert_eq!(world.text("f"), "b");
}

/// A power cut that leaves a rename between two directories half done, as btrfs does: the file has both names.
#[test]
fn half_of_a_rename() {
    let mut world = World::new();
    world.put("f", "a");
    world.open_with(stop_at("P4 exchanged"));
    let plan = move_plan("/f", "/g");
    assert!(world.workspace().rename(&plan, &Unbounded).is_err());
    std::fs::hard_link(world.at("g"), world.at("f")).unwrap();
    world.open();
    assert!(is(&snapshot(&world), &[("g", "a")]), "{:?}", snapshot(&world));
    assert!(world.workspace().rename(&plan, &Unbounded).unwrap().replayed);

    world.open_with(stop_at("P4 exchanged"));
    let plan = remove_plan("/g");
    assert!(world.workspace().remove(&plan, &Unbounded).is_err());
    let staged = |world: &World| world.place.path().join("state").join(&world.staged()[0]);
    std::fs::hard_link(staged(&world), world.at("g")).unwrap();
    world.open();
    assert!(is(&snapshot(&world), &[]), "{:?}", snapshot(&world));
    assert!(world.workspace().remove(&plan, &Unbounded).unwrap().replayed);

    world.put("f", "a");
    world.open_with(stop_at("P4 exchanged"));
    let plan = edit("/f", "a", "aa");
    assert!(world.patch(&plan).is_err());
    let displaced = staged(&world);
    std::fs::remove_file(&displaced).unwrap();
    std::fs::hard_link(world.at("f"), displaced).unwrap();
    world.open();
    assert!(world.patch(&plan).unwrap().replayed);
    assert!(is(&snapshot(&world), &[("f", "aa")]), "{:?}", snapshot(&world));
}
