//! Patches race with a process of the workspace that writes the same file in each of four ways. What a writer has completed
//! must still be there when it looks again: a patch may refuse, but never lose somebody's update.
//!
//! `R` writes another file and renames it over; `I` opens, writes and closes; `H` holds the file open for 300 µs; `L` writes
//! 20 times between opening and closing. Each run is bounded by time and by counts, and prints what it counted.

use std::{
    fs::OpenOptions,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::Key,
    patch::{Change, Edit, PatchPlan},
    path::TreePath,
    revision::Expected,
};
use dormouse_live::{LiveLimits, Workspace};

const RUN: Duration = Duration::from_secs(5);
const PATCH_COUNT_MAX: u64 = 20_000;
const UPDATE_COUNT_MAX: u64 = 2_000_000;
/// `W=` and `P=` with ten digits each, and padding up to 8 KiB.
const WRITER_AT: u64 = 2;
const PATCHES_AT: usize = 15;
const FILE_BYTES: usize = 8 << 10;

#[derive(Debug, Clone, Copy)]
enum Writer {
    Rename,
    InPlace,
    Held,
    Long,
}

fn number_at(text: &[u8], at: usize) -> Option<u64> {
    std::str::from_utf8(text.get(at..at + 10)?).ok()?.parse().ok()
}

/// One update: the writer's number becomes `next`.
fn update(writer: Writer, root: &Path, next: u64) -> std::io::Result<()> {
    let file = root.join("f");
    let digits = format!("{next:010}");
    match writer {
        Writer::Rename => {
            let mut text = std::fs::read(&file)?;
            text[WRITER_AT as usize..WRITER_AT as usize + 10].copy_from_slice(digits.as_bytes());
            std::fs::write(root.join("other"), text)?;
            std::fs::rename(root.join("other"), &file)
        }
        Writer::InPlace => OpenOptions::new().write(true).open(file)?.write_all_at(digits.as_bytes(), WRITER_AT),
        Writer::Held => {
            let held = OpenOptions::new().write(true).open(file)?;
            std::thread::sleep(Duration::from_micros(300));
            held.write_all_at(digits.as_bytes(), WRITER_AT)
        }
        Writer::Long => {
            let held = OpenOptions::new().write(true).open(file)?;
            for step in 0..20 {
                let digits = format!("{:010}", next - 19 + step);
                held.write_all_at(digits.as_bytes(), WRITER_AT)?;
            }
            Ok(())
        }
    }
}

fn race(writer: Writer, with_revision: bool) {
    // In memory, where a flush costs nothing: the more commits, the more races. Nothing here is about durability.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let root = place.path().join("root");
    std::fs::create_dir(&root).expect("a root");
    let mut text = format!("W={:010}\nP={:010}\n", 0, 0).into_bytes();
    text.resize(FILE_BYTES, b'.');
    std::fs::write(root.join("f"), text).expect("a file");
    let workspace = Workspace::open(&root, place.path(), LiveLimits::default()).expect("a workspace");
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + RUN);
    // Held for the length of one patch: the writer takes it to look when no patch is under way.
    let patching = Mutex::new(());
    let (mut patched, mut refused, mut busy) = (0_u64, 0_u64, 0_u64);
    let (updates, lost, glimpses) = std::thread::scope(|scope| {
        let updater = scope.spawn(|| {
            let (mut completed, mut updates, mut lost, mut glimpses) = (0, 0, 0, 0_u64);
            let step = if matches!(writer, Writer::Long) { 20 } else { 1 };
            while !stop.load(Ordering::Relaxed) && updates < UPDATE_COUNT_MAX {
                let read = || std::fs::read(root.join("f")).ok().and_then(|text| number_at(&text, WRITER_AT as usize));
                let Some(mut found) = read() else { continue };
                if found < completed {
                    // Between an exchange and its being taken back, the name shows the patch of what was there before. Once that
                    // patch has answered, what is seen is what is so; a time-out instead would call a slow machine a loss.
                    let _none_under_way = patching.lock().expect("no patch panics");
                    found = read().expect("the file is always there");
                    glimpses += 1;
                }
                if found < completed {
                    lost += 1;
                    completed = found;
                }
                update(writer, &root, completed + step).expect("an update");
                completed += step;
                updates += 1;
                // Bursts and rests: one that never rests would only ever be told to wait for, and no patch would be tested.
                if updates % 8 == 0 {
                    std::thread::sleep(Duration::from_micros(updates * 37 % 5_000));
                }
            }
            (updates, lost, glimpses)
        });
        let mut turn = 0_u64;
        while Instant::now() < deadline && turn < PATCH_COUNT_MAX {
            turn += 1;
            let text = std::fs::read(root.join("f")).expect("the file is always there");
            let Some(count) = number_at(&text, PATCHES_AT) else { continue };
            let edit = Edit {
                old_text: format!("P={count:010}"),
                new_text: format!("P={:010}", count + 1),
                replace_all: false,
            };
            let revision = dormouse_files::revision::Revision::of(&text);
            let plan = PatchPlan {
                path: TreePath::parse(b"/f").expect("a path"),
                change: Change::Edits(vec![edit]),
                expected: if with_revision { Expected::Revision(revision) } else { Expected::Any },
                mode: None,
                create_parents: false,
                key: Key::new(&format!("turn-{turn}"), [0; 32]).expect("a key"),
                validate_only: false,
            };
            let answer = {
                let _under_way = patching.lock().expect("no writer panics");
                workspace.patch(&plan, &Unbounded)
            };
            match answer {
                Ok(_) => patched += 1,
                Err(Fault::BusyWriter { .. }) => busy += 1,
                Err(Fault::RevisionMismatch { .. } | Fault::EditNoMatch { .. }) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        updater.join().expect("the writer ends")
    });
    println!(
        "{writer:?}: {updates} updates, {lost} lost, {glimpses} not seen at once; {patched} patches, {busy} busy, {refused} refused"
    );
    assert_eq!(lost, 0, "{writer:?}");
    assert!(updates > 0 && patched > 0, "{writer:?}");
    assert_eq!(std::fs::metadata(root.join("f")).expect("the file").len(), FILE_BYTES as u64);
}

#[test]
fn with_one_that_renames() {
    race(Writer::Rename, false);
}

#[test]
fn with_one_that_renames_and_a_revision() {
    race(Writer::Rename, true);
}

#[test]
fn with_one_that_writes_in_place() {
    race(Writer::InPlace, false);
}

#[test]
fn with_one_that_holds_the_file_open() {
    race(Writer::Held, false);
}

#[test]
fn with_one_that_writes_often() {
    race(Writer::Long, false);
}
