//! Whole changes on real directories.

mod crash;
mod failures;
mod keys;
mod late;
mod refusals;
mod verbs;

use std::{
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::{Key, MakeDirectoryPlan, MovePlan, RemovePlan, WriteDone, WritePlan},
    patch::{Change, Edit, PatchDone, PatchPlan},
    path::TreePath,
    revision::Expected,
};

use crate::{
    LiveLimits, Workspace, WriteBegin,
    fail::{Steps, StopHook},
};

/// A workspace in a directory of its own: `root` is what it sees, `state` lies beside it.
pub(super) struct World {
    pub(super) place: tempfile::TempDir,
    workspace: Option<Workspace>,
}

static KEYS: AtomicU32 = AtomicU32::new(0);

pub(super) fn key() -> Key {
    named_key(&format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed)), 0)
}

pub(super) fn named_key(text: &str, request: u8) -> Key {
    Key::new(text, [request; 32]).unwrap()
}

pub(super) fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

pub(super) fn content(at: &str, content: &[u8]) -> PatchPlan {
    PatchPlan {
        path: path(at),
        change: Change::Content(Bytes::copy_from_slice(content)),
        expected: Expected::Any,
        mode: None,
        create_parents: false,
        key: key(),
        validate_only: false,
    }
}

pub(super) fn edit(at: &str, old: &str, new: &str) -> PatchPlan {
    let edit = Edit { old_text: old.to_owned(), new_text: new.to_owned(), replace_all: false };
    PatchPlan { change: Change::Edits(vec![edit]), ..content(at, b"") }
}

pub(super) fn write_plan(at: &str) -> WritePlan {
    WritePlan {
        path: path(at),
        expected: Expected::Any,
        mode: None,
        create_parents: false,
        key: key(),
        content_revision: None,
    }
}

pub(super) fn remove_plan(at: &str) -> RemovePlan {
    RemovePlan { path: path(at), expected: Expected::Any, recursive: false, key: key() }
}

pub(super) fn move_plan(from: &str, to: &str) -> MovePlan {
    MovePlan {
        path: path(from),
        new_path: path(to),
        replace: false,
        expected: Expected::Any,
        create_parents: false,
        key: key(),
    }
}

pub(super) fn directory_plan(at: &str) -> MakeDirectoryPlan {
    MakeDirectoryPlan { path: path(at), mode: None, create_parents: false, key: key() }
}

/// The name of a fault's variant.
pub(super) fn name_of(fault: &Fault) -> String {
    let debug = format!("{fault:?}");
    debug.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Fault>, expect: &str) -> Fault {
    let fault = result.expect_err(expect);
    assert_eq!(name_of(&fault), expect, "{fault:?}");
    fault
}

impl World {
    pub(super) fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    /// In memory where that may be, for tests of many changes that are not about durability.
    pub(super) fn in_memory() -> Self {
        Self::in_directory(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    pub(super) fn in_directory(place: tempfile::TempDir) -> Self {
        std::fs::create_dir(place.path().join("root")).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(place.path().join("state")).unwrap();
        let mut world = Self { place, workspace: None };
        world.open();
        world
    }

    pub(super) fn open(&mut self) {
        self.close();
        self.workspace =
            Some(Workspace::open(&self.root(), &self.place.path().join("none"), LiveLimits::default()).unwrap());
    }

    pub(super) fn open_with(&mut self, hook: StopHook) {
        self.close();
        let none = self.place.path().join("none");
        self.workspace = Some(Workspace::open_with_stops(&self.root(), &none, LiveLimits::default(), hook).unwrap());
    }

    pub(super) fn open_on(&mut self, steps: Steps) {
        self.close();
        let none = self.place.path().join("none");
        self.workspace = Some(Workspace::open_at(&self.root(), &none, LiveLimits::default(), steps).unwrap());
    }

    pub(super) fn close(&mut self) {
        self.workspace = None;
    }

    pub(super) fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(super) fn workspace(&self) -> &Workspace {
        self.workspace.as_ref().unwrap()
    }

    pub(super) fn put(&self, path: &str, content: &str) {
        std::fs::write(self.at(path), content).unwrap();
    }

    pub(super) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap()
    }

    pub(super) fn patch(&self, plan: &PatchPlan) -> Result<PatchDone, Fault> {
        self.workspace().patch(plan, &Unbounded)
    }

    pub(super) fn write(&self, plan: &WritePlan, content: &[u8]) -> Result<WriteDone, Fault> {
        match self.workspace().write(plan)? {
            WriteBegin::Replayed(done) => Ok(done),
            WriteBegin::Staged(mut staged) => {
                for piece in content.chunks(1000) {
                    staged.append(piece)?;
                }
                staged.finish(content.len() as u64, Some(crc32c::crc32c(content)), &Unbounded)
            }
        }
    }

    /// What lies in the state directory beside journal and lock.
    pub(super) fn staged(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.place.path().join("state"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("journal.") && name != "lock" && name != "root")
            .collect();
        names.sort();
        names
    }

    /// All paths below the root.
    pub(super) fn names(&self) -> Vec<String> {
        fn below(at: &std::path::Path, names: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(at).unwrap() {
                let entry = entry.unwrap();
                names.push(entry.path());
                if entry.file_type().unwrap().is_dir() {
                    below(&entry.path(), names);
                }
            }
        }
        let mut names = Vec::new();
        below(&self.root(), &mut names);
        let root = self.root();
        let mut names: Vec<String> =
            names.iter().map(|name| name.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}
