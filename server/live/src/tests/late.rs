//! A process that looked a name up before the exchange and opens the file only after the lease: it writes to what was
//! displaced. That is noticed, what it wrote is kept, and it is told.

use std::{
    fs::File,
    io::Write,
    os::fd::AsRawFd,
    sync::{Arc, Mutex},
};

use super::*;
use crate::LateWrite;

type Told = Arc<Mutex<Vec<LateWrite>>>;

fn listen(world: &World) -> Told {
    let told = Told::default();
    let kept = Arc::clone(&told);
    world.workspace().on_late_write(Arc::new(move |late: &LateWrite| kept.lock().unwrap().push(late.clone())));
    told
}

/// What a process that slept between its lookup and the kernel's counting it as a writer has: the file, by no name.
fn open_late(looked_up: &File) -> File {
    File::options().write(true).open(format!("/proc/self/fd/{}", looked_up.as_raw_fd())).unwrap()
}

/// Calls `late` once, with the file that had the name before, when the change's lease is released and nothing is answered.
fn when_released(world: &mut World, late: impl Fn(&File) + Send + Sync + 'static) -> Told {
    let looked_up = Mutex::new(Some(File::open(world.at("f")).unwrap()));
    world.open_with(Arc::new(move |step| {
        if step == "P7"
            && let Some(looked_up) = looked_up.lock().unwrap().take()
        {
            late(&looked_up);
        }
        false
    }));
    listen(world)
}

fn kept_text(late: &LateWrite) -> String {
    std::fs::read_to_string(late.kept.as_ref().unwrap()).unwrap()
}

#[test]
fn a_late_write_is_kept_and_told() {
    type Change = fn(&World);
    let changes: [Change; 4] = [
        |world| drop(world.patch(&edit("/f", "a", "b")).unwrap()),
        |world| drop(world.patch(&content("/f", b"b")).unwrap()),
        |world| drop(world.write(&write_plan("/f"), b"b").unwrap()),
        |world| {
            let expected = Expected::Revision(dormouse_files::revision::Revision::of(b"a"));
            world.workspace().remove(&RemovePlan { expected, ..remove_plan("/f") }, &Unbounded).unwrap();
        },
    ];
    for change in changes {
        let mut world = World::new();
        world.put("f", "a");
        let told = when_released(&mut world, |file| open_late(file).write_all(b"late").unwrap());
        change(&world);
        assert!(told.lock().unwrap().is_empty(), "it still lingers");
        world.close();
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((&told[0].path, kept_text(&told[0]).as_str()), (&path("/f"), "late"));
        assert_eq!(world.staged().len(), 1);
        // It outlives the workspace's next opening.
        world.open();
        world.close();
        assert_eq!(kept_text(&told[0]), "late");
    }
}

#[test]
fn a_file_that_somebody_still_has_open_is_kept() {
    let mut world = World::new();
    world.put("f", "a");
    let writer = Arc::new(Mutex::new(None));
    let held = Arc::clone(&writer);
    let told = when_released(&mut world, move |file| *held.lock().unwrap() = Some(open_late(file)));
    world.patch(&edit("/f", "a", "b")).unwrap();
    world.close();
    writer.lock().unwrap().take().unwrap().write_all(b"later still").unwrap();
    assert_eq!(kept_text(&told.lock().unwrap()[0]), "later still");
}

/// The size and, on a kernel that tells times by the tick, the times may be the same.
#[test]
fn a_late_write_shows_even_where_its_times_do_not() {
    let mut world = World::new();
    world.put("f", "a");
    let told = when_released(&mut world, |file| {
        let modified = file.metadata().unwrap().modified().unwrap();
        let late = open_late(file);
        (&late).write_all(b"z").unwrap();
        late.set_modified(modified).unwrap();
    });
    world.patch(&edit("/f", "a", "b")).unwrap();
    world.close();
    assert_eq!(kept_text(&told.lock().unwrap()[0]), "z");
}

#[test]
fn what_is_no_late_write_is_deleted() {
    type Touch = fn(&File);
    let touches: [Touch; 3] = [
        |_| {},
        // Looked at, and closed again.
        |file| drop(open_late(file)),
        |file| file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap(),
    ];
    for touch in touches {
        let mut world = World::new();
        world.put("f", "a");
        let told = when_released(&mut world, touch);
        world.patch(&edit("/f", "a", "b")).unwrap();
        world.close();
        assert!(told.lock().unwrap().is_empty() && world.staged().is_empty());
    }
    // Under its other name it is not lost.
    let mut world = World::new();
    world.put("f", "a");
    std::fs::hard_link(world.at("f"), world.at("g")).unwrap();
    let told = when_released(&mut world, |file| open_late(file).write_all(b"late").unwrap());
    world.patch(&edit("/f", "a", "b")).unwrap();
    world.close();
    assert_eq!((told.lock().unwrap().len(), world.text("g").as_str()), (0, "late"));
    assert!(world.staged().is_empty());
}

/// The change after it makes durable how it ended. When its time is up later, no other change is needed to hear of it.
#[test]
fn a_late_write_is_told_when_its_time_is_up() {
    let mut world = World::new();
    world.put("f", "a");
    world.close();
    let looked_up = Mutex::new(Some(File::open(world.at("f")).unwrap()));
    let hook: StopHook = Arc::new(move |step| {
        if step == "P7"
            && let Some(looked_up) = looked_up.lock().unwrap().take()
        {
            open_late(&looked_up).write_all(b"late").unwrap();
        }
        false
    });
    let limits = LiveLimits { lingering: std::time::Duration::from_millis(1), ..LiveLimits::default() };
    let none = world.place.path().join("none");
    let workspace = Workspace::open_with_stops(&world.root(), &none, limits, hook).unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    workspace.on_late_write(Arc::new(move |late: &LateWrite| {
        sender.lock().unwrap().send((late.clone(), std::thread::current().id())).unwrap();
    }));
    workspace.patch(&edit("/f", "a", "b"), &Unbounded).unwrap();
    // With its own intent it makes durable how the first one ended.
    workspace.patch(&content("/g", b"g"), &Unbounded).unwrap();
    let (late, thread) = told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(kept_text(&late), "late");
    assert_ne!(thread, std::thread::current().id());
    drop(workspace);
    assert!(told.recv().is_err(), "it is told once");
    assert_eq!(world.staged().len(), 1);
}

/// Until the journal says durably how a change ended, a recovery may have to look at what it displaced.
#[test]
fn what_the_last_change_displaced_stays() {
    let mut world = World::new();
    world.put("f", "0");
    world.close();
    let limits = LiveLimits { lingering: std::time::Duration::from_millis(1), ..LiveLimits::default() };
    let none = world.place.path().join("none");
    let workspace = Workspace::open(&world.root(), &none, limits).unwrap();
    for turn in 1..=5_u8 {
        workspace.patch(&content("/f", &[turn]), &Unbounded).unwrap();
        let staged = world.staged();
        let last = staged.iter().max_by_key(|name| u64::from_str_radix(&name[1..], 16).unwrap()).unwrap();
        let state = world.place.path().join("state");
        assert_eq!(std::fs::read(state.join(last)).unwrap(), if turn == 1 { b"0".to_vec() } else { vec![turn - 1] });
    }
    drop(workspace);
    assert!(world.staged().is_empty());
}

#[test]
fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
    let place = World::new();
    place.put("f", "0");
    let looked_up = Arc::new(Mutex::new(File::open(place.at("f")).unwrap()));
    let (late, at) = (Arc::clone(&looked_up), place.at("f"));
    let hook: StopHook = Arc::new(move |step| {
        if step == "P7" {
            let mut file = late.lock().unwrap();
            open_late(&file).write_all(b"late").unwrap();
            *file = File::open(&at).unwrap();
        }
        false
    });
    let limits = LiveLimits {
        lingering: std::time::Duration::ZERO,
        kept_count_max: 3,
        kept_bytes_max: 10,
        ..LiveLimits::default()
    };
    let mut world = place;
    world.close();
    let none = world.place.path().join("none");
    let open = || Workspace::open_with_stops(&world.root(), &none, limits.clone(), Arc::clone(&hook)).unwrap();
    for round in 1..=2 {
        let workspace = open();
        let told = Told::default();
        let kept = Arc::clone(&told);
        for turn in 0..5 {
            // As long as what is written over it.
            workspace.patch(&content("/f", format!("{round:02}{turn:02}").as_bytes()), &Unbounded).unwrap();
        }
        workspace.on_late_write(Arc::new(move |late: &LateWrite| kept.lock().unwrap().push(late.clone())));
        let early = told.lock().unwrap().len();
        assert!((1..=3).contains(&early), "what came before is told, as far as it was kept: {early}");
        workspace.patch(&content("/f", b"longer than all that is kept"), &Unbounded).unwrap();
        workspace.patch(&content("/f", b"last"), &Unbounded).unwrap();
        assert!(workspace.stats().late_writes >= 4);
        drop(workspace);
        let told = told.lock().unwrap();
        let last = told.last().unwrap();
        assert_eq!((&last.path, &last.kept), (&path("/f"), &None), "too large to be kept");
        let names = world.staged();
        assert!(names.iter().all(|name| name.starts_with("kept-")), "{names:?}");
        assert_eq!(names.len(), 2, "three times four bytes are more than ten: {names:?}");
        let newest = told.iter().rev().find_map(|late| late.kept.as_ref()).unwrap();
        assert_eq!(std::fs::read_to_string(newest).unwrap(), "late");
    }
}
