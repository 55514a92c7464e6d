//! A process of the workspace exchanges a directory of a path with a symbolic link that leads out, as fast as it can, while
//! the workspace is read and changed through that path. No byte outside is read, and nothing outside is made or changed.

use std::{
    ops::ControlFlow,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::{Key, MakeDirectoryPlan, MovePlan, RemovePlan},
    patch::{Change, PatchPlan},
    path::TreePath,
    revision::Expected,
    tree::Tree,
};
use dormouse_live::{LiveLimits, Workspace};
use rustix::fs::{CWD, RenameFlags, renameat_with};

const RUN: Duration = Duration::from_secs(5);
const TURN_COUNT_MAX: u64 = 1_000_000;

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).expect("a path")
}

fn key(turn: u64) -> Key {
    Key::new(&format!("turn-{turn}"), [0; 32]).expect("a key")
}

#[test]
fn nothing_outside_is_reached() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (root, outside) = (place.path().join("root"), place.path().join("outside"));
    for directory in [&root, &outside, &root.join("d")] {
        std::fs::create_dir(directory).expect("a directory");
    }
    std::fs::write(root.join("d/f"), "inside").expect("a file");
    std::fs::write(outside.join("f"), "secret").expect("a file");
    symlink(&outside, root.join("l")).expect("a link");
    let workspace = Workspace::open(&root, &place.path().join("none"), LiveLimits::default()).expect("a workspace");
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + RUN);
    let (mut done, mut links, mut other, mut reads) = (0_u64, 0_u64, 0_u64, 0_u64);
    let swaps = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let mut swaps = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, root.join("d"), CWD, root.join("l"), RenameFlags::EXCHANGE).expect("a swap");
                swaps += 1;
            }
            swaps
        });
        let mut turn = 0;
        while Instant::now() < deadline && turn < TURN_COUNT_MAX {
            turn += 1;
            let result = match turn % 4 {
                0 => {
                    let plan = PatchPlan {
                        path: path("/d/f"),
                        change: Change::Content(Bytes::from(format!("inside {turn}"))),
                        expected: Expected::Any,
                        mode: None,
                        create_parents: true,
                        key: key(turn),
                        validate_only: false,
                    };
                    workspace.patch(&plan, &Unbounded).map(drop)
                }
                1 => {
                    let at = path(&format!("/d/made-{turn}"));
                    let plan = MakeDirectoryPlan { path: at, mode: None, create_parents: true, key: key(turn) };
                    workspace.make_directory(&plan).map(drop)
                }
                2 => {
                    let from = path(&format!("/d/made-{}", turn - 1));
                    let plan = RemovePlan { path: from, expected: Expected::Any, recursive: true, key: key(turn) };
                    workspace.remove(&plan, &Unbounded).map(drop)
                }
                _ => {
                    let plan = MovePlan {
                        path: path("/d/f"),
                        new_path: path("/d/g"),
                        replace: true,
                        expected: Expected::Any,
                        create_parents: false,
                        key: key(turn),
                    };
                    workspace.rename(&plan, &Unbounded).map(drop)
                }
            };
            match result {
                Ok(()) => done += 1,
                Err(Fault::Symlink { .. }) => links += 1,
                Err(_) => other += 1,
            }
            let tree = workspace.tree();
            let top = tree.root().expect("a root");
            if let Ok(directory) = tree.directory(&top, b"d") {
                let mut buffer = [0; 64];
                for name in [b"f", b"g"] {
                    if let Ok((file, _)) = tree.open(&directory, name) {
                        let count = tree.read_at(&file, 0, &mut buffer).expect("a read");
                        assert!(!buffer[..count].starts_with(b"secret"), "read from outside");
                        reads += 1;
                    }
                }
                let mut see = |name: dormouse_files::tree::Name<'_>| {
                    assert_ne!(name.bytes, b"marker", "listed the outside");
                    ControlFlow::Continue(())
                };
                tree.names(&directory, &mut see).expect("a listing");
            }
        }
        stop.store(true, Ordering::Relaxed);
        attacker.join().expect("the attacker ends")
    });
    println!("{swaps} swaps; {done} changes, {links} links refused, {other} other refusals, {reads} reads");
    assert!(swaps > 0 && done > 0 && links > 0 && reads > 0);
    let names: Vec<_> =
        std::fs::read_dir(&outside).expect("a listing").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["f"], "something was made or removed outside");
    assert_eq!(std::fs::read_to_string(outside.join("f")).expect("a file"), "secret");
}
