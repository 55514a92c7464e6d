//! MakeDirectory: made with all its missing parents in the state directory, and renamed into place as one.

use crate::{
    commit::{self, Outcome},
    content::{Leave, meta_now},
    errno::{fault, io_fault},
    inner::{ATTEMPT_COUNT_MAX, Changing, Finished, Inner, Recording},
    ledger::Claim,
    locate::{at_component, locate},
    patch::parents,
    record::{Action, Answer},
    stage::{Directories, PARENT_MODE},
};
use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::{MakeDirectoryPlan, PlaceDone},
    meta::FileType,
    stat::Entry,
    tree::{Tree, TreeError},
};

impl Inner {
    pub(crate) fn make_directory(&self, plan: &MakeDirectoryPlan) -> Result<PlaceDone, Fault> {
        let path = &plan.path;
        let check_path = || {
            if path.is_root() {
                return Err(Fault::AlreadyExists { path: path.clone(), kind: FileType::Directory });
            }
            locate(&self.tree, path, parents(plan.create_parents), &self.limits.files).map(drop)
        };
        let change = |changing: &Changing, claim: &mut Claim<'_>| self.make_claimed(changing, claim, plan);
        match self.once(path, &plan.key, &Unbounded, check_path, change)? {
            (Answer::Place(done), replayed) => Ok(PlaceDone { replayed, ..done }),
            _ => Err(Fault::Internal("a key's answer is of another call")),
        }
    }

    fn make_claimed(
        &self,
        changing: &Changing,
        claim: &mut Claim<'_>,
        plan: &MakeDirectoryPlan,
    ) -> Result<Finished, Fault> {
        let (path, state) = (&plan.path, &changing.state);
        let answer = |meta, durable| {
            let entry = Entry { path: path.clone(), meta, link_target: None, revision: None };
            Answer::Place(PlaceDone { entry, durable, replayed: false })
        };
        for _ in 0..ATTEMPT_COUNT_MAX {
            let first = locate(&self.tree, path, parents(plan.create_parents), &self.limits.files)?;
            let _locked = self.locks.one(first.slot());
            let place = locate(&self.tree, path, parents(plan.create_parents), &self.limits.files)?;
            if place.slot() != first.slot() {
                continue;
            }
            if place.missing.is_empty() {
                match self.tree.stat(&place.parent, &place.name) {
                    Err(TreeError::NotFound) => {}
                    Ok(meta) if meta.kind == FileType::Symlink => {
                        let error = TreeError::NotDirectory(FileType::Symlink);
                        return Err(at_component(&self.tree, path, path, error, &self.limits.files));
                    }
                    Ok(meta) => return Err(Fault::AlreadyExists { path: path.clone(), kind: meta.kind }),
                    Err(error) => return Err(at_component(&self.tree, path, path, error, &self.limits.files)),
                }
            }
            claim.begin_staging();
            let names: Vec<Vec<u8>> = place.missing.iter().chain([&place.name]).cloned().collect();
            let made = Directories::make(state, &names, plan.mode.unwrap_or(PARENT_MODE), &place.parent)
                .map_err(|errno| fault(path, errno))?;
            made.sync().map_err(|error| io_fault(path, error))?;
            state.sync().map_err(|errno| fault(path, errno))?;
            state.steps.pass("P2")?;
            let predicted = answer(meta_now(made.innermost(), path)?, true);
            let (stage, identity) = (made.stage().to_owned(), made.identity());
            let made =
                changing.intend(claim, &place, path, Action::Create, stage.clone(), identity, predicted, made)?;
            let exact = match commit::create(state, &place, path, &stage, true) {
                Ok(Outcome::InPlace { exact, .. }) => exact,
                Ok(Outcome::Changed | Outcome::Busy) => {
                    drop(changing.abort(claim, path, made)?);
                    continue;
                }
                Err(fault) => {
                    if state.has_failed() || !state.steps.may_tidy() {
                        made.leave();
                    } else {
                        drop(changing.abort(claim, path, made)?);
                    }
                    return Err(fault);
                }
            };
            let held = made.give_up();
            let innermost = held.last().ok_or(Fault::Internal("no directory was made"))?;
            let meta = meta_now(innermost, path).map_err(|_| changing.outcome_unknown(path))?;
            let record = if exact { Recording::Lazy } else { Recording::AtOnce };
            return Ok(Finished { answer: answer(meta, exact), record, displaced: None });
        }
        Err(Fault::BusyWriter { path: path.clone() })
    }
}
