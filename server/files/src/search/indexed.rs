//! What an index says of one search: which of its files are asked for, in path order, and under which verdicts of the globs.

use std::{
    ops::Range,
    sync::atomic::{AtomicU8, Ordering},
};

use super::{SearchPlan, globs::Verdict, index::Index};
use crate::path::TreePath;

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

    /// The index itself.
    pub(super) fn index(&self) -> &'a Index {
        self.index
    }

    /// Runs of files, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u32>> {
        let files = self.index.files_of(self.root);
        let end = files.end;
        files
            .step_by(RUN_FILE_COUNT_MAX)
            .map(move |start| start..end.min(start.saturating_add(RUN_FILE_COUNT_MAX as u32)))
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
    pub(super) fn names(&self, directory: u32) -> Vec<&[u8]> {
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
    pub(super) fn path(&self, directory: u32, path: &mut Vec<u8>) {
        path.clear();
        for name in self.names(directory) {
            path.extend_from_slice(name);
            path.push(b'/');
        }
    }

    /// What the globs say of a directory and those above it; `path` is written over.
    pub(super) fn verdict(&self, directory: u32, plan: &SearchPlan, path: &mut Vec<u8>) -> Verdict {
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
