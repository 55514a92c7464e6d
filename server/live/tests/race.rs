//! Patches race with a process of the workspace that writes the same file in each of four ways. What a writer has completed
//! must still be there when it looks again, or be told: a patch may refuse, but never lose somebody's update in silence.
//!
//! `R` writes another file and renames it over; `I` opens, writes and closes; `H` holds the file open for 300 µs; `L` writes
//! 20 times between opening and closing. Each run is bounded by time and by counts, and prints what it counted.
//!
//! An update can be lost in one way: the writer looked the name up before the exchange, and slept until after the answer
//! before the kernel opened the file for it. The workspace notices that (`late_writes`), so as many must be noticed as were
//! lost, on any machine. Content without a revision replaces whatever is there; there the answer must say what it replaced,
//! or that the file was open.
//!
//! `DORMOUSE_RACE_SECONDS` (2) is the length of each run.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::Key,
    patch::{Change, Edit, PatchDone, PatchPlan},
    path::TreePath,
    revision::{Expected, Revision},
};
use dormouse_live::{LateWrite, LiveLimits, Workspace};

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

/// One update: the writer's number becomes `next`. What is about to be renamed over the file is told to `renames` before.
fn update(writer: Writer, root: &Path, next: u64, renames: impl FnOnce(&[u8])) -> std::io::Result<()> {
    let file = root.join("f");
    let digits = format!("{next:010}");
    match writer {
        Writer::Rename => {
            let mut text = std::fs::read(&file)?;
            text[WRITER_AT as usize..WRITER_AT as usize + 10].copy_from_slice(digits.as_bytes());
            renames(&text);
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

/// How the patch changes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Edits,
    EditsAtRevision,
    Content,
    ContentAtRevision,
}

/// The whole file.
fn text_of(writer: u64, patches: u64) -> Vec<u8> {
    let mut text = format!("W={writer:010}\nP={patches:010}\n").into_bytes();
    text.resize(FILE_BYTES, b'.');
    text
}

/// What the patches came to.
#[derive(Debug, Default)]
struct Patches {
    patched: u64,
    busy: u64,
    refused: u64,
    /// Content that replaced an update of which its answer does not tell.
    untold: u64,
    /// Answers that say `replaced_open_file`.
    open: u64,
}

/// What the writer saw.
#[derive(Debug, Default)]
struct Updates {
    updates: u64,
    lost: u64,
    not_seen_at_once: u64,
}

/// One race.
struct Race {
    writer: Writer,
    how: How,
    root: std::path::PathBuf,
    /// The number of the last update that the writer has completed.
    completed: AtomicU64,
    /// What a writer that renames has put in place, since it may bring any older count of patches back: its update by the
    /// revision. As long as its updates.
    renamed: Mutex<HashMap<Revision, u64>>,
    /// Held for the length of one patch: the writer takes it to look when no patch is under way.
    patching: Mutex<()>,
    stop: AtomicBool,
}

fn run_time() -> Duration {
    let seconds = std::env::var("DORMOUSE_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

fn race(writer: Writer, how: How) {
    // In memory, where a flush costs nothing: the more commits, the more races. Nothing here is about durability.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let root = place.path().join("root");
    std::fs::create_dir(&root).expect("a root");
    std::fs::write(root.join("f"), text_of(0, 0)).expect("a file");
    let workspace = Workspace::open(&root, place.path(), LiveLimits::default()).expect("a workspace");
    let late = Arc::new(AtomicU64::new(0));
    let noticed = Arc::clone(&late);
    workspace.on_late_write(Arc::new(move |_: &LateWrite| {
        noticed.fetch_add(1, Ordering::Relaxed);
    }));
    let race = Race {
        writer,
        how,
        root,
        completed: AtomicU64::new(0),
        renamed: Mutex::default(),
        patching: Mutex::new(()),
        stop: AtomicBool::new(false),
    };
    let (updates, patches) = std::thread::scope(|scope| {
        let updater = scope.spawn(|| race.update());
        let patches = race.patch(&workspace);
        race.stop.store(true, Ordering::Relaxed);
        (updater.join().expect("the writer ends"), patches)
    });
    // Everything that was displaced is looked at by then.
    drop(workspace);
    let late = late.load(Ordering::Relaxed);
    println!("{writer:?}, {how:?}: {updates:?}, {late} noticed late; {patches:?}");
    match how {
        How::Content => assert!(patches.untold <= late + patches.open, "{writer:?}: {patches:?}, {late} late"),
        _ => assert_eq!(updates.lost, late, "{writer:?}, {how:?}: lost, and noticed late"),
    }
    assert_eq!(std::fs::metadata(race.root.join("f")).expect("the file").len(), FILE_BYTES as u64);
}

impl Race {
    fn update(&self) -> Updates {
        // No number comes twice: an update that is told of is known by its number.
        let (mut last, mut completed, mut seen) = (0, 0, Updates::default());
        let step = if matches!(self.writer, Writer::Long) { 20 } else { 1 };
        let read = || std::fs::read(self.root.join("f")).ok().and_then(|text| number_at(&text, WRITER_AT as usize));
        let look = |completed: u64, seen: &mut Updates| {
            let mut found = read()?;
            if found < completed {
                // Between an exchange and its being taken back, the name shows the patch of what was there before. Once that
                // patch has answered, what is seen is what is so; a time-out instead would call a slow machine a loss.
                let _none_under_way = self.patching.lock().expect("no patch panics");
                found = read()?;
                seen.not_seen_at_once += 1;
            }
            seen.lost += u64::from(found < completed);
            Some(found)
        };
        while !self.stop.load(Ordering::Relaxed) && seen.updates < UPDATE_COUNT_MAX {
            if look(completed, &mut seen).is_none() {
                continue;
            }
            last += step;
            let renames = |text: &[u8]| {
                self.renamed.lock().expect("nobody panics").insert(Revision::of(text), last);
            };
            update(self.writer, &self.root, last, renames).expect("an update");
            completed = last;
            self.completed.store(completed, Ordering::SeqCst);
            seen.updates += 1;
            // Bursts and rests: one that never rests would only ever be told to wait for, and no patch would be tested.
            if seen.updates % 8 == 0 {
                std::thread::sleep(Duration::from_micros(seen.updates * 37 % 5_000));
            }
        }
        // The last one may have been lost, too.
        look(completed, &mut seen).expect("the file is always there");
        seen
    }

    fn patch(&self, workspace: &Workspace) -> Patches {
        let (mut turn, mut told, mut seen) = (0_u64, 0_u64, Patches::default());
        let deadline = Instant::now() + run_time();
        // On a busy machine a run is longer rather than about nothing.
        let goes_on = |seen: &Patches| {
            Instant::now() < deadline || seen.patched == 0 || self.completed.load(Ordering::SeqCst) == 0
        };
        while turn < PATCH_COUNT_MAX && goes_on(&seen) {
            turn += 1;
            let text = std::fs::read(self.root.join("f")).expect("the file is always there");
            let (Some(count), Some(writer)) = (number_at(&text, PATCHES_AT), number_at(&text, WRITER_AT as usize))
            else {
                continue;
            };
            let plan = self.plan(turn, &text, writer, count);
            let before = self.completed.load(Ordering::SeqCst);
            let answer = {
                let _under_way = self.patching.lock().expect("no writer panics");
                workspace.patch(&plan, &Unbounded)
            };
            match answer {
                Ok(done) => {
                    seen.patched += 1;
                    seen.open += u64::from(done.replaced_open_file);
                    if self.how == How::Content {
                        // What was read is known, too, and is put there again.
                        told = told.max(writer);
                        told = told.max(self.told_by(&done, told, count).unwrap_or(0));
                        if told < before {
                            seen.untold += 1;
                            told = before;
                        }
                    }
                }
                Err(Fault::BusyWriter { .. }) => seen.busy += 1,
                Err(Fault::RevisionMismatch { .. } | Fault::EditNoMatch { .. }) => seen.refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(seen.patched > 0, "{:?}, {:?}: {seen:?}", self.writer, self.how);
        seen
    }

    fn plan(&self, turn: u64, text: &[u8], writer: u64, count: u64) -> PatchPlan {
        let change = match self.how {
            How::Edits | How::EditsAtRevision => Change::Edits(vec![Edit {
                old_text: format!("P={count:010}"),
                new_text: format!("P={:010}", count + 1),
                replace_all: false,
            }]),
            How::Content | How::ContentAtRevision => Change::Content(text_of(writer, count + 1).into()),
        };
        let expected = match self.how {
            How::Edits | How::Content => Expected::Any,
            How::EditsAtRevision | How::ContentAtRevision => Expected::Revision(Revision::of(text)),
        };
        PatchPlan {
            path: TreePath::parse(b"/f").expect("a path"),
            change,
            expected,
            mode: None,
            create_parents: false,
            key: Key::new(&format!("turn-{turn}"), [0; 32]).expect("a key"),
            validate_only: false,
        }
    }

    /// The update that the replaced revision of an answer has, where it is this one or a later one.
    fn told_by(&self, done: &PatchDone, update: u64, count: u64) -> Option<u64> {
        let renamed =
            done.previous_revision.and_then(|old| self.renamed.lock().expect("nobody panics").get(&old).copied());
        if renamed.is_some_and(|writer| writer >= update) {
            return renamed;
        }
        let last = self.completed.load(Ordering::SeqCst) + 20;
        let counts = || (count.saturating_sub(2)..=count + 1).rev();
        (update..=last).find(|writer| {
            counts().any(|patches| done.previous_revision == Some(Revision::of(&text_of(*writer, patches))))
        })
    }
}

#[test]
fn edits_and_one_that_renames() {
    race(Writer::Rename, How::Edits);
}

#[test]
fn edits_at_a_revision_and_one_that_renames() {
    race(Writer::Rename, How::EditsAtRevision);
}

#[test]
fn content_and_one_that_renames() {
    race(Writer::Rename, How::Content);
}

#[test]
fn content_at_a_revision_and_one_that_renames() {
    race(Writer::Rename, How::ContentAtRevision);
}

#[test]
fn edits_and_one_that_writes_in_place() {
    race(Writer::InPlace, How::Edits);
}

#[test]
fn edits_at_a_revision_and_one_that_writes_in_place() {
    race(Writer::InPlace, How::EditsAtRevision);
}

#[test]
fn content_and_one_that_writes_in_place() {
    race(Writer::InPlace, How::Content);
}

#[test]
fn content_at_a_revision_and_one_that_writes_in_place() {
    race(Writer::InPlace, How::ContentAtRevision);
}

#[test]
fn edits_and_one_that_holds_the_file_open() {
    race(Writer::Held, How::Edits);
}

#[test]
fn edits_at_a_revision_and_one_that_holds_the_file_open() {
    race(Writer::Held, How::EditsAtRevision);
}

#[test]
fn content_and_one_that_holds_the_file_open() {
    race(Writer::Held, How::Content);
}

#[test]
fn content_at_a_revision_and_one_that_holds_the_file_open() {
    race(Writer::Held, How::ContentAtRevision);
}

#[test]
fn edits_and_one_that_writes_often() {
    race(Writer::Long, How::Edits);
}

#[test]
fn edits_at_a_revision_and_one_that_writes_often() {
    race(Writer::Long, How::EditsAtRevision);
}

#[test]
fn content_and_one_that_writes_often() {
    race(Writer::Long, How::Content);
}

#[test]
fn content_at_a_revision_and_one_that_writes_often() {
    race(Writer::Long, How::ContentAtRevision);
}
