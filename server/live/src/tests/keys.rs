//! The same key: once, with one answer, also after a restart and after somebody else's change.

use std::sync::Barrier;

use dormouse_files::revision::Revision;

use super::*;

#[test]
fn a_retry_gets_the_stored_answer() {
    let mut world = World::new();
    world.put("f", "a");
    let plan = edit("/f", "a", "b");
    let first = world.patch(&plan).unwrap();
    assert!(!first.replayed);
    let again = world.patch(&plan).unwrap();
    assert_eq!(again, PatchDone { replayed: true, ..first.clone() });
    world.put("f", "somebody else's");
    assert!(world.patch(&plan).unwrap().replayed);
    world.open();
    let restarted = world.patch(&plan).unwrap();
    assert_eq!(restarted, PatchDone { replayed: true, ..first });
    assert_eq!(world.text("f"), "somebody else's");
    refused(world.patch(&PatchPlan { key: named_key(plan.key.text(), 7), ..edit("/f", "s", "b") }), "KeyReused");
}

#[test]
fn every_verb_remembers() {
    let mut world = World::new();
    world.put("f", "a");
    let write = write_plan("/w");
    let (remove, directory) = (remove_plan("/f"), directory_plan("/d"));
    let first = world.write(&write, b"content").unwrap();
    world.workspace().remove(&remove, &Unbounded).unwrap();
    let made = world.workspace().make_directory(&directory).unwrap();
    let rename = move_plan("/w", "/d/w");
    let moved = world.workspace().rename(&rename, &Unbounded).unwrap();
    for _ in 0..2 {
        let again = world.write(&write, b"content").unwrap();
        assert_eq!(again, WriteDone { replayed: true, ..first.clone() });
        refused(world.write(&write, b"other content"), "KeyReused");
        let known = WritePlan { content_revision: Some(Revision::of(b"content")), ..write.clone() };
        assert!(matches!(world.workspace().write(&known), Ok(WriteBegin::Replayed(done)) if done.replayed));
        assert!(world.workspace().remove(&remove, &Unbounded).unwrap().replayed);
        let remade = world.workspace().make_directory(&directory).unwrap();
        assert_eq!((remade.replayed, remade.entry), (true, made.entry.clone()));
        let removed = world.workspace().rename(&rename, &Unbounded).unwrap();
        assert_eq!((removed.replayed, removed.entry), (true, moved.entry.clone()));
        assert_eq!(world.names(), ["d", "d/w"]);
        world.open();
    }
}

#[test]
fn the_same_key_at_the_same_time_waits_for_the_first() {
    let world = World::new();
    world.put("f", "a");
    let plan = PatchPlan {
        change: Change::Edits(vec![Edit { old_text: "a".into(), new_text: "aa".into(), replace_all: true }]),
        ..content("/f", b"")
    };
    let barrier = Barrier::new(8);
    let replayed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    world.patch(&plan).unwrap().replayed
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|replayed| *replayed).count()
    });
    assert_eq!((replayed, world.text("f").as_str()), (7, "aa"));
}

#[test]
fn parallel_edits_are_all_there_and_one_revision_wins_once() {
    let world = World::new();
    world.put("f", "-\n");
    std::thread::scope(|scope| {
        for number in 0..6 {
            let world = &world;
            scope.spawn(move || world.patch(&edit("/f", "-\n", &format!("{number}\n-\n"))).unwrap());
        }
    });
    let text = world.text("f");
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.pop(), Some("-"));
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2", "3", "4", "5"]);
    let expected = Expected::Revision(Revision::of(world.text("f").as_bytes()));
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let world = &world;
                scope.spawn(move || {
                    world.patch(&PatchPlan { expected, ..content("/f", format!("won by {number}").as_bytes()) })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for result in results.into_iter().filter(Result::is_err) {
        refused(result, "RevisionMismatch");
    }
}

#[test]
fn parallel_creates_share_new_parents() {
    let world = World::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let world = &world;
            scope.spawn(move || {
                let plan = PatchPlan { create_parents: true, ..content(&format!("/a/b/{number}"), b"x") };
                world.patch(&plan).unwrap();
            });
        }
    });
    assert_eq!(world.names().len(), 10);
}

#[test]
fn a_refusal_that_would_recur_is_remembered() {
    let mut world = World::new();
    world.put("f", "a");
    let plan = edit("/f", "x", "y");
    refused(world.patch(&plan), "EditNoMatch");
    world.put("f", "x");
    refused(world.patch(&plan), "EditNoMatch");
    refused(world.patch(&PatchPlan { key: named_key(plan.key.text(), 3), ..edit("/f", "x", "y") }), "KeyReused");
    let missing = edit("/none", "x", "y");
    refused(world.patch(&missing), "NotFound");
    world.put("none", "x");
    assert!(world.patch(&missing).is_ok());
    // In memory only.
    world.open();
    assert!(!world.patch(&plan).unwrap().replayed);
}

#[test]
fn many_keys_outlive_many_generations_of_the_journal() {
    let mut world = World::in_memory();
    let plans: Vec<PatchPlan> = (0..600).map(|number| content("/f", format!("{number}").as_bytes())).collect();
    for plan in &plans {
        world.patch(plan).unwrap();
    }
    world.open();
    for plan in &plans {
        assert!(world.patch(plan).unwrap().replayed);
    }
    assert_eq!(world.text("f"), "599");
}

#[test]
fn keys_are_refused_rather_than_forgotten_too_soon() {
    let mut world = World::in_memory();
    world.close();
    let limits = LiveLimits { journal_bytes_max: 512 << 10, ..LiveLimits::default() };
    let open = |limits: &LiveLimits| Workspace::open(&world.root(), &world.root(), limits.clone()).unwrap();
    let workspace = open(&limits);
    let first = content("/f", b"first");
    workspace.patch(&first, &Unbounded).unwrap();
    let mut refusal = None;
    for number in 0..2_000 {
        if let Err(fault) = workspace.patch(&content("/f", format!("{number}").as_bytes()), &Unbounded) {
            refusal = Some(fault);
            break;
        }
    }
    assert_eq!(refusal.as_ref().map(name_of).as_deref(), Some("Overloaded"));
    assert!(workspace.patch(&first, &Unbounded).unwrap().replayed);
    drop(workspace);
    // With no retention the oldest go instead.
    let forgetful = LiveLimits { key_retention: std::time::Duration::ZERO, ..limits };
    let workspace = open(&forgetful);
    // What was done within the current second stays even so: then it is tried until the next one.
    for number in 0..400 {
        let plan = content("/f", format!("more {number}").as_bytes());
        assert!((0..1_000_000).any(|_| workspace.patch(&plan, &Unbounded).is_ok()));
    }
    let forgotten = (0..1_000_000).find_map(|_| workspace.patch(&first, &Unbounded).ok()).unwrap();
    assert!(!forgotten.replayed);
}

/// The state directory beside a root is that root's: another one at its path begins with no keys, and the first finds its own
/// again when it returns.
#[test]
fn keys_belong_to_the_root_that_they_were_used_in() {
    let mut world = World::new();
    let plan = content("/f", b"a");
    world.patch(&plan).unwrap();
    world.close();
    let first = world.place.path().join("first");
    std::fs::rename(world.root(), &first).unwrap();
    std::fs::create_dir(world.root()).unwrap();
    for is_replayed in [false, true] {
        world.open();
        assert_eq!(world.patch(&plan).unwrap().replayed, is_replayed);
        assert_eq!(world.text("f"), "a");
        world.close();
    }
    // A crash in the middle of putting back: the root is noted, and its journal is still aside.
    std::fs::remove_dir_all(world.root()).unwrap();
    std::fs::rename(&first, world.root()).unwrap();
    for _ in 0..2 {
        world.open();
        assert!(world.patch(&plan).unwrap().replayed);
        world.close();
        let (state, names) = (world.place.path().join("state"), world.staged());
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].starts_with("before-"));
        let own = format!("before-{}", std::fs::read_to_string(state.join("root")).unwrap());
        std::fs::DirBuilder::new().mode(0o700).create(state.join(&own)).unwrap();
        for name in ["journal.0", "journal.1"] {
            std::fs::rename(state.join(name), state.join(&own).join(name)).unwrap();
        }
    }
    world.open();
    assert!(world.patch(&plan).unwrap().replayed);
    // Of many roots the state of only so many is kept.
    for number in 0..12 {
        world.close();
        std::fs::rename(world.root(), world.place.path().join(format!("root {number}"))).unwrap();
        std::fs::create_dir(world.root()).unwrap();
        world.open();
    }
    assert_eq!(world.staged().len(), 8, "{:?}", world.staged());
}

/// What the agent keeps of a released workspace in its own directory goes, but for what was kept of late writes.
#[test]
fn a_workspace_that_is_forgotten_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (work, agent) = (place.path().join("work"), place.path().join("agent"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&agent).unwrap();
    let open = || Workspace::open(&work, &agent, LiveLimits::default()).unwrap();
    let count = || std::fs::read_dir(agent.join("live")).unwrap().count();
    let plan = content("/f", b"a");
    for forget in [false, true] {
        let workspace = open();
        assert!(!workspace.patch(&PatchPlan { key: key(), ..content("/f", b"b") }, &Unbounded).unwrap().replayed);
        assert_eq!(workspace.patch(&plan, &Unbounded).unwrap().replayed, forget);
        if forget {
            workspace.forget();
        }
        drop(workspace);
        assert_eq!(count(), usize::from(!forget));
    }
    let workspace = open();
    assert!(!workspace.patch(&plan, &Unbounded).unwrap().replayed);
    let state = std::fs::read_dir(agent.join("live")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(state.join("kept-1-s1"), "late").unwrap();
    workspace.forget();
    drop(workspace);
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1);
    assert!(!open().patch(&plan, &Unbounded).unwrap().replayed);
}
