//! A search by an index: the files of the index in path order, of which only those are opened that may match.
//!
//! What is counted is what a search that walks would count, file by file and in the same order.

use std::ops::Range;

use super::{
    file::{Outcome, Scratch, Search, Step},
    globs::Verdict,
    index::Treatment,
    indexed::Indexed,
};
use crate::{
    path::TreePath,
    tree::{Tree, TreeError},
};

/// The directory that a thread is in.
struct Here<D> {
    place: u32,
    verdict: Verdict,
    /// Held once a file of it is opened.
    held: Option<D>,
}

impl<T: Tree> Search<'_, T> {
    /// Deals with a run of an index's files.
    pub(super) fn scan_known(
        &self,
        indexed: &Indexed<'_>,
        files: Range<u32>,
        scratch: &mut Scratch,
    ) -> Outcome<T::Directory> {
        let index = indexed.index();
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
