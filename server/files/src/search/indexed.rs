//! A search by an index: the files of the index in path order, of which only those are opened that may match.
//!
//! What is counted is what a search that walks would count, file by file and in the same order.

use std::{
    ops::Range,
    sync::atomic::{AtomicU8, Ordering},
};

use super::{
    SearchPlan,
    file::{Outcome, Scratch, Search, Step, Task},
    globs::Verdict,
    index::{Index, Treatment},
};
use crate::{
    path::TreePath,
    tree::{Tree, TreeError},
};

/// Files that one thread takes at once.
const RUN_FILE_COUNT_MAX: usize = 256;

const NOT_ASKED: u8 = 0;
const EXCLUDED: u8 = 1;
const NEITHER: u8 = 2;
const INCLUDED: u8 = 3;

/// An index that serves a search.
pub(super) struct Indexed<'a> {
    index: &'a Index,
    /// Where the search begins.
    root: u32,
    /// Of each directory, as far as it was asked for.
    verdicts: Vec<AtomicU8>,
}

/// The directory that a thread is in.
struct Here<D> {
    place: u32,
    verdict: Verdict,
    /// Held once a file of it is opened.
    held: Option<D>,
}

impl<'a> Indexed<'a> {
    /// Nothing where the index does not know all that the search asks for.
    pub(super) fn new(index: &'a Index, plan: &SearchPlan, root: &TreePath) -> Option<Self> {
        let root = index.find(root, plan.machine_root)?;
        let verdicts = (0..index.directory_count()).map(|_| AtomicU8::new(NOT_ASKED)).collect();
        let indexed = Self { index, root, verdicts };
        let files = index.files_of(root);
        let mut path = Vec::new();
        let is_served = index.closed().all(|closed| {
            let at = index.files_of(closed).start;
            // One without files may stand at either end of those that are asked for.
            let is_far = at < files.start || at > files.end;
            is_far || !indexed.is_beneath(closed) || indexed.verdict(closed, plan, &mut path) == Verdict::Excluded
        });
        is_served.then_some(indexed)
    }

    /// Runs of files, in order.
    pub(super) fn tasks<D>(&self) -> Vec<(Vec<u8>, Task<D>)> {
        let files = self.index.files_of(self.root);
        let starts = files.clone().step_by(RUN_FILE_COUNT_MAX);
        let run = |start: u32| start..files.end.min(start.saturating_add(RUN_FILE_COUNT_MAX as u32));
        starts.map(|start| (start.to_be_bytes().to_vec(), Task::Known(run(start)))).collect()
    }

    fn is_beneath(&self, directory: u32) -> bool {
        let mut at = directory;
        // Those above come before, so this ends.
        while at > self.root {
            at = self.index.above(at).0;
        }
        at == self.root
    }

    /// The names from the root of the search down to a directory beneath it.
    fn names(&self, directory: u32) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut at = directory;
        while at > self.root {
            let (above, name) = self.index.above(at);
            names.push(name);
            at = above;
        }
        names.reverse();
        names
    }

    /// A directory's path relative to the root of the search, with a `/` at its end unless that is the root itself.
    fn path(&self, directory: u32, path: &mut Vec<u8>) {
        path.clear();
        for name in self.names(directory) {
            path.extend_from_slice(name);
            path.push(b'/');
        }
    }

    /// What the globs say of a directory and those above it; `path` is written over.
    fn verdict(&self, directory: u32, plan: &SearchPlan, path: &mut Vec<u8>) -> Verdict {
        let known = |directory: u32| match self.verdicts[directory as usize].load(Ordering::Relaxed) {
            EXCLUDED => Some(Verdict::Excluded),
            NEITHER => Some(Verdict::Neither),
            INCLUDED => Some(Verdict::Included),
            _ => None,
        };
        let mut unknown = Vec::new();
        let mut at = directory;
        let mut verdict = loop {
            // A directory that does not lie beneath leads up past the root, as only a forged index can say.
            if at <= self.root {
                break Verdict::Neither;
            }
            if let Some(verdict) = known(at) {
                break verdict;
            }
            unknown.push(at);
            at = self.index.above(at).0;
        };
        while let Some(next) = unknown.pop() {
            if verdict != Verdict::Excluded {
                self.path(next, path);
                path.pop();
                verdict = plan.globs.verdict(path, true, verdict == Verdict::Included);
            }
            let kept = match verdict {
                Verdict::Excluded => EXCLUDED,
                Verdict::Neither => NEITHER,
                Verdict::Included => INCLUDED,
            };
            self.verdicts[next as usize].store(kept, Ordering::Relaxed);
        }
        verdict
    }
}

impl<T: Tree> Search<'_, T> {
    /// Deals with a run of an index's files.
    pub(super) fn scan_known(
        &self,
        indexed: &Indexed<'_>,
        files: Range<u32>,
        scratch: &mut Scratch,
    ) -> Outcome<T::Directory> {
        let index = indexed.index;
        let query = self.plan.pattern.query();
        let mut outcome = Outcome::new();
        let mut step = Step::default();
        let mut here: Option<Here<T::Directory>> = None;
        let mut path = std::mem::take(&mut scratch.path);
        let mut path_bytes = 0;
        for file in files {
            let entry = index.entry(file);
            let is_here = here.as_ref().is_some_and(|here| here.place == entry.directory);
            if !is_here {
                outcome.end = self.ended();
                if outcome.end.is_some() {
                    break;
                }
                let verdict = indexed.verdict(entry.directory, self.plan, &mut path);
                indexed.path(entry.directory, &mut path);
                path_bytes = path.len();
                here = Some(Here { place: entry.directory, verdict, held: None });
            }
            let Some(here) = &mut here else { break };
            if here.verdict == Verdict::Excluded {
                continue;
            }
            path.truncate(path_bytes);
            path.extend_from_slice(entry.name);
            let verdict = self.plan.globs.verdict(&path, entry.is_directory, here.verdict == Verdict::Included);
            if verdict == Verdict::Excluded || (verdict == Verdict::Neither && !entry.is_directory) {
                continue;
            }
            match index.treatment(file, query, self.plan.file_bytes_max) {
                Treatment::NoMatch => step.files_scanned += 1,
                Treatment::Binary => step.skipped.binary += 1,
                Treatment::TooLarge => step.skipped.too_large += 1,
                Treatment::Special => step.skipped.special += 1,
                Treatment::Open => {
                    outcome.end = self.ended();
                    if outcome.end.is_some() {
                        break;
                    }
                    let shown = || TreePath::parse(&[self.prefix().as_slice(), &path].concat()).ok();
                    let opened = self.held(indexed, here).and_then(|held| self.tree.open(held, entry.name));
                    if self.scan_opened(opened, &shown, scratch, &mut step, &mut outcome).is_break() {
                        break;
                    }
                }
            }
        }
        scratch.path = path;
        outcome.steps.push(step);
        outcome
    }

    fn held<'a>(&self, indexed: &Indexed<'_>, here: &'a mut Here<T::Directory>) -> Result<&'a T::Directory, TreeError> {
        let held = match here.held.take() {
            Some(held) => held,
            None => {
                let names = indexed.names(here.place);
                names.into_iter().try_fold(self.root.clone(), |above, name| self.tree.directory(&above, name))?
            }
        };
        Ok(here.held.insert(held))
    }
}
