//! Remove: renamed into the state directory as one, then deleted when that is durable. An empty directory is removed where
//! it is, since rmdir(2) itself refuses one that is not empty.

use std::{fs::File, ops::ControlFlow};

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{RemoveDone, RemovePlan},
    meta::FileType,
    revision::{Expected, Revision},
    tree::{Tree, TreeError},
};
use dormouse_lease::{ReadLease, Refused};
use rustix::{
    fs::{self, AtFlags, RenameFlags},
    io::Errno,
};

use crate::{
    commit::{identity_at, revision_of},
    errno::{fault, io_fault},
    ledger::Claim,
    locate::{Parents, Place, at_component, locate},
    patch::check_budget,
    record::{Action, Answer},
    tree::Identity,
    workspace::{ATTEMPT_COUNT_MAX, Changing, Finished, Inner, Recording},
};

/// Up to this size a removed file's revision is told unasked.
const UNASKED_REVISION_BYTES_MAX: u64 = 1 << 20;

/// What is to go.
struct Doomed {
    identity: Identity,
    kind: FileType,
    /// Of a regular file that was read.
    read: Option<(File, Revision)>,
}

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

    fn doomed(&self, plan: &RemovePlan, place: &Place) -> Result<Doomed, Fault> {
        let path = &plan.path;
        let failed = |error| match error {
            // Its directory is inside: what lies behind a mount is the name itself.
            TreeError::Outside => Fault::MountPoint { path: path.clone() },
            error => at_component(&self.tree, path, path, error, &self.limits.files),
        };
        let meta = self.tree.stat(&place.parent, &place.name).map_err(failed)?;
        let asked = matches!(plan.expected, Expected::Revision(_));
        if meta.kind != FileType::Regular && asked {
            return Err(Fault::NotRegular { path: path.clone(), kind: meta.kind });
        }
        let read = match meta.kind {
            FileType::Regular if asked || meta.size_bytes <= UNASKED_REVISION_BYTES_MAX => {
                match self.tree.open(&place.parent, &place.name) {
                    Ok((file, _)) => {
                        let file = file.into_file();
                        let revision = revision_of(&file).map_err(|error| io_fault(path, error))?;
                        Some((file, revision))
                    }
                    Err(TreeError::PermissionDenied) if !asked => None,
                    Err(error) => return Err(failed(error)),
                }
            }
            _ => None,
        };
        if let Expected::Revision(expected) = plan.expected {
            let actual = read.as_ref().map(|(_, revision)| *revision);
            if actual != Some(expected) {
                return Err(Fault::RevisionMismatch { path: path.clone(), expected: plan.expected, actual });
            }
        }
        if meta.kind == FileType::Directory && !plan.recursive {
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
        let identity = match &read {
            Some((file, _)) => Identity::of(&fs::fstat(file).map_err(|errno| fault(path, errno))?),
            None => match identity_at(&place.parent, &place.name).map_err(|errno| fault(path, errno))? {
                Some(identity) => identity,
                None => return Err(failed(TreeError::NotFound)),
            },
        };
        Ok(Doomed { identity, kind: meta.kind, read })
    }
}

/// P3 to P6; nothing where what was looked at is not there any more.
fn take_away(
    changing: &Changing,
    claim: &mut Claim<'_>,
    plan: &RemovePlan,
    place: &Place,
    doomed: &Doomed,
) -> Result<Option<Finished>, Fault> {
    let (path, state) = (&plan.path, &changing.state);
    let previous_revision = doomed.read.as_ref().map(|(_, revision)| *revision);
    let answer = Answer::Remove(RemoveDone { previous_revision, durable: true, replayed: false });
    let in_place = doomed.kind == FileType::Directory && !plan.recursive;
    let action = if in_place { Action::RemoveEmpty } else { Action::Remove };
    let stage = state.new_stage();
    changing.intend(claim, place, path, action, stage.clone(), doomed.identity, answer.clone(), ())?;
    state.steps.pass("P4")?;
    let gone = if in_place {
        match fs::unlinkat(&place.parent, place.name.as_slice(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(Errno::EXIST) => Err(Fault::NotEmpty { path: path.clone() }),
            Err(errno) => Err(fault(path, errno)),
        }
    } else {
        displace(changing, plan, place, doomed, &stage)
    };
    match gone {
        Ok(true) => {}
        Ok(false) => {
            changing.abort(claim, path, ())?;
            return Ok(None);
        }
        Err(fault) => {
            if state.steps.may_tidy() && !state.has_failed() {
                changing.abort(claim, path, ())?;
            }
            return Err(fault);
        }
    }
    state.steps.pass("P5")?;
    if fs::fsync(&place.parent).is_err() || (!in_place && state.sync().is_err()) {
        return Err(changing.outcome_unknown(path));
    }
    state.steps.pass("P6")?;
    Ok(Some(Finished { answer, record: Recording::Lazy, displaced: (!in_place).then_some(stage) }))
}

/// Renames what is to go into the state directory, and back where it is something else. Whether it is gone.
fn displace(
    changing: &Changing,
    plan: &RemovePlan,
    place: &Place,
    doomed: &Doomed,
    stage: &str,
) -> Result<bool, Fault> {
    let (path, state) = (&plan.path, &changing.state);
    let guarded = matches!(plan.expected, Expected::Revision(_));
    let lease = match &doomed.read {
        Some((file, revision)) if guarded => {
            let lease = match ReadLease::take(file) {
                Ok(lease) => Some(lease),
                Err(Refused::Writer) => return Err(Fault::BusyWriter { path: path.clone() }),
                Err(Refused::Unsupported(_)) => None,
            };
            if revision_of(file).map_err(|error| io_fault(path, error))? != *revision {
                return Ok(false);
            }
            lease
        }
        _ => None,
    };
    // The staging name is new, so a plain rename displaces nothing.
    match fs::renameat(&place.parent, place.name.as_slice(), state.as_ref(), stage) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(fault(path, errno)),
    }
    state.steps.pass("P4 exchanged")?;
    let whole = lease.as_ref().is_none_or(ReadLease::is_whole);
    if whole && identity_at(state.as_ref(), stage.as_bytes()) == Ok(Some(doomed.identity)) {
        return Ok(true);
    }
    // Something newer stands there by now: what was taken away was replaced anyway, and its replacement stays.
    match fs::renameat_with(state.as_ref(), stage, &place.parent, place.name.as_slice(), RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => return Err(changing.outcome_unknown(path)),
    }
    // That it never happened must be true after a crash too.
    match fs::fsync(&place.parent).and_then(|()| state.sync()) {
        Ok(()) => Ok(false),
        Err(_) => Err(changing.outcome_unknown(path)),
    }
}
