//! Remove: renamed into the state directory as one, then deleted when that is durable. An empty directory is removed where
//! it is, since rmdir(2) itself refuses one that is not empty.

use std::ops::ControlFlow;

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{RemoveDone, RemovePlan},
    meta::FileType,
    revision::Expected,
    tree::{Tree, TreeError},
};
use rustix::{
    fs::{self, AtFlags, RenameFlags},
    io::Errno,
};

use crate::{
    commit::identity_at,
    displaced::{Displaced, Settled, Watched},
    errno::fault,
    inner::{ATTEMPT_COUNT_MAX, Changing, Finished, Inner, Recording},
    ledger::Claim,
    locate::{Parents, Place, locate},
    patch::check_budget,
    record::{Action, Answer},
    subject::{self, Subject},
};

/// Up to this size a removed file's revision is told unasked.
const UNASKED_REVISION_BYTES_MAX: u64 = 1 << 20;

impl Inner {
    pub(crate) fn remove(&self, plan: &RemovePlan, budget: &dyn Budget) -> Result<RemoveDone, Fault> {
        if plan.path.is_root() {
            return Err(Fault::invalid("path", "the workspace's root cannot be removed"));
        }
        if plan.expected == Expected::Absent {
            return Err(Fault::invalid("expected_revision", "what is to be removed cannot be expected absent"));
        }
        let check_path = || locate(&self.tree, &plan.path, Parents::MustExist, &self.limits.files).map(drop);
        let change = |changing: &Changing, claim: &mut Claim<'_>| self.remove_claimed(changing, claim, plan, budget);
        match self.once(&plan.path, &plan.key, budget, check_path, change)? {
            (Answer::Remove(done), replayed) => Ok(RemoveDone { replayed, ..done }),
            _ => Err(Fault::Internal("a key's answer is of another call")),
        }
    }

    fn remove_claimed(
        &self,
        changing: &Changing,
        claim: &mut Claim<'_>,
        plan: &RemovePlan,
        budget: &dyn Budget,
    ) -> Result<Finished, Fault> {
        for _ in 0..ATTEMPT_COUNT_MAX {
            check_budget(budget)?;
            let place = locate(&self.tree, &plan.path, Parents::MustExist, &self.limits.files)?;
            let _locked = self.locks.one(place.slot());
            let doomed = self.doomed(plan, &place)?;
            if let Some(finished) = take_away(changing, claim, plan, &place, &doomed)? {
                return Ok(finished);
            }
        }
        Err(Fault::BusyWriter { path: plan.path.clone() })
    }

    fn doomed(&self, plan: &RemovePlan, place: &Place) -> Result<Subject, Fault> {
        let path = &plan.path;
        let doomed = self.subject(place, path, plan.expected, Some(UNASKED_REVISION_BYTES_MAX))?;
        if doomed.meta.kind == FileType::Directory && !plan.recursive {
            let failed = |error| subject::failed(self, path, error);
            let directory = self.tree.directory(&place.parent, &place.name).map_err(failed)?;
            let mut is_empty = true;
            let mut see = |_: dormouse_files::tree::Name<'_>| {
                is_empty = false;
                ControlFlow::Break(())
            };
            match self.tree.names(&directory, &mut see) {
                // rmdir(2) itself knows.
                Ok(()) | Err(TreeError::PermissionDenied) => {}
                Err(error) => return Err(failed(error)),
            }
            if !is_empty {
                return Err(Fault::NotEmpty { path: path.clone() });
            }
        }
        Ok(doomed)
    }
}

/// P3 to P6; nothing where what was looked at is not there any more.
fn take_away(
    changing: &Changing,
    claim: &mut Claim<'_>,
    plan: &RemovePlan,
    place: &Place,
    doomed: &Subject,
) -> Result<Option<Finished>, Fault> {
    let (path, state) = (&plan.path, &changing.state);
    let previous_revision = doomed.read.as_ref().map(|(_, revision)| *revision);
    let answer = Answer::Remove(RemoveDone { previous_revision, durable: true, replayed: false });
    let in_place = doomed.meta.kind == FileType::Directory && !plan.recursive;
    let action = if in_place { Action::RemoveEmpty } else { Action::Remove };
    let stage = state.new_stage();
    changing.intend(claim, place, path, action, stage.clone(), doomed.identity, answer.clone(), ())?;
    state.steps.pass("P4")?;
    let gone = if in_place {
        match fs::unlinkat(&place.parent, place.name.as_slice(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(Some(None)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::EXIST) => Err(Fault::NotEmpty { path: path.clone() }),
            Err(errno) => Err(fault(path, errno)),
        }
    } else {
        displace(changing, plan, place, doomed, &stage)
    };
    let watched = match gone {
        Ok(Some(watched)) => watched,
        Ok(None) => {
            changing.abort(claim, path, ())?;
            return Ok(None);
        }
        Err(fault) => {
            if state.steps.may_tidy() && !state.has_failed() {
                changing.abort(claim, path, ())?;
            }
            return Err(fault);
        }
    };
    state.steps.pass("P5")?;
    if fs::fsync(&place.parent).is_err() || (!in_place && state.sync().is_err()) {
        return Err(changing.outcome_unknown(path));
    }
    state.steps.pass("P6")?;
    Ok(Some(Finished {
        answer,
        record: Recording::Lazy,
        displaced: (!in_place).then_some(Displaced { name: stage, watched }),
    }))
}

/// Renames what is to go into the state directory, and back where it is something else. Where it is gone, and was expected
/// to have a revision: by what a late write to it is noticed.
fn displace(
    changing: &Changing,
    plan: &RemovePlan,
    place: &Place,
    doomed: &Subject,
    stage: &str,
) -> Result<Option<Option<Watched>>, Fault> {
    let (path, state) = (&plan.path, &changing.state);
    let Some(guard) = doomed.guard(path)? else { return Ok(None) };
    // The staging name is new, so a plain rename displaces nothing.
    match fs::renameat(&place.parent, place.name.as_slice(), state.as_ref(), stage) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(fault(path, errno)),
    }
    state.steps.pass("P4 exchanged")?;
    let watched = doomed.guarded().and_then(|(file, revision)| {
        let settled = Settled::of(&fs::fstat(file).ok()?);
        Some(Watched { path: path.clone(), settled, revision: *revision })
    });
    if guard.is_whole() && identity_at(state.as_ref(), stage.as_bytes()) == Ok(Some(doomed.identity)) {
        return Ok(Some(watched));
    }
    // Something newer stands there by now: what was taken away was replaced anyway, and its replacement stays.
    match fs::renameat_with(state.as_ref(), stage, &place.parent, place.name.as_slice(), RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => return Err(changing.outcome_unknown(path)),
    }
    // That it never happened must be true after a crash too.
    match fs::fsync(&place.parent).and_then(|()| state.sync()) {
        Ok(()) => Ok(None),
        Err(_) => Err(changing.outcome_unknown(path)),
    }
}
