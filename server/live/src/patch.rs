//! Patch: edits of a file's text, or its whole content.

use std::io;

use dormouse_files::{
    Fault,
    budget::{Budget, Spent},
    meta::{FileType, Meta, Time},
    patch::{Change, PatchDone, PatchPlan, apply::apply},
    path::TreePath,
    revision::{Expected, Revision},
};
use rustix::fs::{self, Access, AtFlags};

use crate::{
    commit::{Base, Known, Writers},
    content::{Existing, Put, dress, entry, meta_now},
    errno::{fault, io_fault},
    inner::{ATTEMPT_COUNT_MAX, Changing, Finished, Inner, Recording},
    ledger::Claim,
    lingering::Haste,
    locate::{Parents, Place, locate},
    record::Answer,
    stage::Draft,
};

/// What a patch makes of what is there now.
struct Outlook {
    place: Place,
    existing: Option<Existing>,
    previous: Option<Revision>,
    /// What is there now, where something is.
    old: Option<Vec<u8>>,
    /// The whole new content.
    content: Vec<u8>,
    revision: Revision,
    replacements: u32,
}

impl Outlook {
    fn is_unchanged(&self) -> bool {
        self.previous == Some(self.revision)
    }

    fn answer(&self, path: &TreePath, meta: Meta, durable: bool, replaced_open_file: bool) -> PatchDone {
        PatchDone {
            revision: self.revision,
            previous_revision: self.previous,
            bytes_written: if self.is_unchanged() { 0 } else { self.content.len() as u64 },
            durable,
            replacements: self.replacements,
            entry: entry(path, meta, self.revision),
            replayed: false,
            replaced_open_file,
        }
    }
}

pub(crate) fn parents(create_parents: bool) -> Parents {
    if create_parents { Parents::Make } else { Parents::MustExist }
}

/// The root is no file, whatever is wanted of it.
pub(crate) fn refuse_root(path: &TreePath, expected: Expected) -> Result<(), Fault> {
    match (path.is_root(), expected) {
        (false, _) => Ok(()),
        (true, Expected::Absent) => Err(Fault::RevisionMismatch { path: path.clone(), expected, actual: None }),
        (true, _) => Err(Fault::NotRegular { path: path.clone(), kind: FileType::Directory }),
    }
}

pub(crate) fn check_budget(budget: &dyn Budget) -> Result<(), Fault> {
    match budget.spent() {
        None => Ok(()),
        Some(Spent::Gone) => Err(Fault::Gone),
        Some(Spent::Time | Spent::Deadline) => Err(Fault::DeadlineExceeded),
    }
}

impl Inner {
    pub(crate) fn patch(&self, plan: &PatchPlan, budget: &dyn Budget) -> Result<PatchDone, Fault> {
        if plan.validate_only {
            return self.validate(plan, budget);
        }
        let check_path = || self.check_place(plan);
        let change = |changing: &Changing, claim: &mut Claim<'_>| self.patch_claimed(changing, claim, plan, budget);
        match self.once(&plan.path, &plan.key, budget, check_path, change)? {
            (Answer::Patch(done), replayed) => Ok(PatchDone { replayed, ..done }),
            _ => Err(Fault::Internal("a key's answer is of another call")),
        }
    }

    fn check_place(&self, plan: &PatchPlan) -> Result<(), Fault> {
        refuse_root(&plan.path, plan.expected)?;
        locate(&self.tree, &plan.path, parents(plan.create_parents), &self.limits.files).map(drop)
    }

    /// Everything of a patch but the patch.
    fn validate(&self, plan: &PatchPlan, budget: &dyn Budget) -> Result<PatchDone, Fault> {
        self.in_place().map_err(|source| Fault::Io { path: plan.path.clone(), source })?;
        self.check_place(plan)?;
        let outlook = self.outlook(plan, budget)?;
        let changing = self.changing(&plan.path)?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        fs::accessat(&outlook.place.parent, ".", access, AtFlags::EACCESS).map_err(|errno| fault(&plan.path, errno))?;
        let meta = match &outlook.existing {
            Some(existing) if outlook.is_unchanged() => existing.meta,
            Some(existing) => Meta { size_bytes: outlook.content.len() as u64, link_count: 1, ..existing.meta },
            None => {
                let parent = meta_now(&outlook.place.parent, &plan.path)?;
                let (uid, gid) = match changing.state.is_root {
                    true => (parent.uid, parent.gid),
                    false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
                };
                Meta {
                    kind: FileType::Regular,
                    size_bytes: outlook.content.len() as u64,
                    mode: plan.mode.unwrap_or(0o644),
                    uid,
                    gid,
                    link_count: 1,
                    modify_time: Time::default(),
                    change_time: Time::default(),
                    inode: 0,
                }
            }
        };
        Ok(outlook.answer(&plan.path, meta, true, false))
    }

    fn patch_claimed(
        &self,
        changing: &Changing,
        claim: &mut Claim<'_>,
        plan: &PatchPlan,
        budget: &dyn Budget,
    ) -> Result<Finished, Fault> {
        for _ in 0..ATTEMPT_COUNT_MAX {
            check_budget(budget)?;
            let place = locate(&self.tree, &plan.path, parents(plan.create_parents), &self.limits.files)?;
            let _locked = self.locks.one(place.slot());
            // P1. Another call may have made a directory of the path while this one waited.
            let mut outlook = self.outlook(plan, budget)?;
            if outlook.place.slot() != place.slot() {
                continue;
            }
            if outlook.is_unchanged() {
                return unchanged(&outlook, plan);
            }
            match replace(changing, claim, plan, &mut outlook) {
                Ok(Some(finished)) => return Ok(finished),
                Ok(None) => {}
                // Displaced files that only linger are no reason to refuse.
                Err(Fault::DiskFull { .. }) if changing.tidy(Haste::Now) => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::BusyWriter { path: plan.path.clone() })
    }

    /// P1: what is there, whether it is what was expected, and what becomes of it.
    fn outlook(&self, plan: &PatchPlan, budget: &dyn Budget) -> Result<Outlook, Fault> {
        let (path, limits) = (&plan.path, &self.limits.files);
        let place = locate(&self.tree, path, parents(plan.create_parents), limits)?;
        let existing = self.existing(&place, path, plan.expected)?;
        let old = match &existing {
            Some(existing) => Some(existing.content(path, limits.patch_file_bytes_max)?),
            None => None,
        };
        let previous = old.as_deref().map(Revision::of);
        if let Expected::Revision(expected) = plan.expected
            && previous != Some(expected)
        {
            return Err(Fault::RevisionMismatch { path: path.clone(), expected: plan.expected, actual: previous });
        }
        let (content, replacements) = match (&plan.change, &old) {
            (Change::Content(content), _) => (content.to_vec(), 0),
            (Change::Edits(edits), Some(old)) => {
                let applied = apply(path, old, edits, limits, budget)?;
                (applied.content, applied.replacements)
            }
            (Change::Edits(_), None) => {
                let missing = match place.missing.first() {
                    Some(name) => place.parent_path.join(name),
                    None => path.clone(),
                };
                return Err(Fault::NotFound { path: path.clone(), missing });
            }
        };
        let size_bytes = content.len() as u64;
        if size_bytes > limits.patch_file_bytes_max {
            let limit_bytes = limits.patch_file_bytes_max;
            return Err(Fault::TooLarge { path: path.clone(), size_bytes, limit_bytes, instead: "Write" });
        }
        let revision = Revision::of(&content);
        Ok(Outlook { place, existing, previous, old, content, revision, replacements })
    }
}

/// The content is there already: no inode and no time changes, but the answer says `durable`, so it is made so.
fn unchanged(outlook: &Outlook, plan: &PatchPlan) -> Result<Finished, Fault> {
    let path = &plan.path;
    let Some(existing) = &outlook.existing else { return Err(Fault::Internal("nothing is there, and unchanged")) };
    existing.file.sync_all().map_err(|error| io_fault(path, error))?;
    fs::fsync(&outlook.place.parent).map_err(|errno| fault(path, errno))?;
    let meta = meta_now(&existing.file, path)?;
    let answer = Answer::Patch(outlook.answer(path, meta, true, false));
    Ok(Finished { answer, record: Recording::Unchanged, displaced: None })
}

/// P2 to P6; nothing where what had been read is not there any more.
fn replace(
    changing: &Changing,
    claim: &mut Claim<'_>,
    plan: &PatchPlan,
    outlook: &mut Outlook,
) -> Result<Option<Finished>, Fault> {
    let old_content = outlook.old.take();
    let (path, place, state) = (&plan.path, &outlook.place, &changing.state);
    claim.begin_staging();
    let staged = || -> io::Result<_> {
        let mut draft = Draft::new(state, &place.parent)?;
        draft.append(&outlook.content)?;
        Ok(draft.name()?)
    };
    let mut staged = staged().map_err(|error| io_fault(path, error))?;
    let old = outlook.existing.as_ref().map(|existing| &existing.file);
    dress(state, &mut staged, place, path, old, plan.mode)?;
    let predicted = Answer::Patch(outlook.answer(path, meta_now(staged.file(), path)?, true, false));
    let base = match (&outlook.existing, old_content) {
        (None, _) | (_, None) => None,
        (Some(existing), Some(old)) => Some(Base {
            file: existing.file.try_clone().map_err(|error| io_fault(path, error))?,
            identity: existing.identity,
            revision: outlook.previous.ok_or(Fault::Internal("a file that is there was not read"))?,
            known: Known::Content(old),
        }),
    };
    let content_for_any = matches!(plan.change, Change::Content(_)) && plan.expected == Expected::Any;
    let writers = if content_for_any { Writers::Tell } else { Writers::Refuse };
    match changing.put(claim, place, path, staged, base.as_ref(), writers, predicted)? {
        Put::Done { meta, open_writer, record, displaced } => {
            let durable = record == Recording::Lazy;
            let answer = Answer::Patch(outlook.answer(path, meta, durable, open_writer));
            Ok(Some(Finished { answer, record, displaced }))
        }
        Put::Changed(_) => Ok(None),
        Put::Busy => Err(Fault::BusyWriter { path: path.clone() }),
    }
}
