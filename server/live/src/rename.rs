//! Move: one rename within the workspace.

use std::os::fd::OwnedFd;

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{MovePlan, PlaceDone},
    meta::{FileType, Meta},
    path::TreePath,
    revision::Expected,
    stat::Entry,
    tree::{Tree, TreeError},
};
use rustix::{
    fs::{self, AtFlags, RenameFlags},
    io::Errno,
};

use crate::{
    commit::identity_at,
    errno::{fault, io_fault},
    inner::{ATTEMPT_COUNT_MAX, Changing, Finished, Inner, Recording},
    ledger::Claim,
    locate::{Parents, Place, at_component, locate},
    patch::{check_budget, parents},
    record::{Action, Answer},
    stage::{Directories, PARENT_MODE},
    subject::Subject,
    tree::Identity,
};

impl Inner {
    pub(crate) fn rename(&self, plan: &MovePlan, budget: &dyn Budget) -> Result<PlaceDone, Fault> {
        if plan.path.is_root() {
            return Err(Fault::invalid("path", "the workspace's root cannot be moved"));
        }
        if plan.new_path.is_root() {
            return Err(Fault::invalid("new_path", "the workspace's root cannot be replaced"));
        }
        if plan.new_path.is_within(&plan.path) {
            return Err(Fault::invalid("new_path", "is the path itself or lies within it"));
        }
        if plan.expected == Expected::Absent {
            return Err(Fault::invalid("expected_revision", "what is to be moved cannot be expected absent"));
        }
        let check_path = || {
            locate(&self.tree, &plan.path, Parents::MustExist, &self.limits.files)?;
            locate(&self.tree, &plan.new_path, parents(plan.create_parents), &self.limits.files).map(drop)
        };
        let change = |changing: &Changing, claim: &mut Claim<'_>| self.rename_claimed(changing, claim, plan, budget);
        match self.once(&plan.path, &plan.key, budget, check_path, change)? {
            (Answer::Place(done), replayed) => Ok(PlaceDone { replayed, ..done }),
            _ => Err(Fault::Internal("a key's answer is of another call")),
        }
    }

    fn rename_claimed(
        &self,
        changing: &Changing,
        claim: &mut Claim<'_>,
        plan: &MovePlan,
        budget: &dyn Budget,
    ) -> Result<Finished, Fault> {
        let limits = &self.limits.files;
        for _ in 0..ATTEMPT_COUNT_MAX {
            check_budget(budget)?;
            let from = locate(&self.tree, &plan.path, Parents::MustExist, limits)?;
            let to = locate(&self.tree, &plan.new_path, parents(plan.create_parents), limits)?;
            let _locked = self.locks.two(from.slot(), to.slot());
            let again = locate(&self.tree, &plan.new_path, parents(plan.create_parents), limits)?;
            if again.slot() != to.slot() {
                continue;
            }
            let source = self.subject(&from, &plan.path, plan.expected, None)?;
            let target = self.target(plan, &to)?;
            if target == Some(source.identity) {
                // rename(2) of two names of one file does nothing and says it was done.
                return Err(Fault::invalid(
                    "new_path",
                    "is another name of the same file; remove the one that is to go",
                ));
            }
            if let Some(finished) = self.carry(changing, claim, plan, &from, to, &source, target.is_some())? {
                return Ok(finished);
            }
        }
        Err(Fault::BusyWriter { path: plan.path.clone() })
    }

    /// What is at the new path and may be replaced.
    fn target(&self, plan: &MovePlan, to: &Place) -> Result<Option<Identity>, Fault> {
        if !to.missing.is_empty() {
            return Ok(None);
        }
        let path = &plan.new_path;
        match self.tree.stat(&to.parent, &to.name) {
            Err(TreeError::NotFound) => Ok(None),
            Err(error) => Err(at_component(&self.tree, path, path, error, &self.limits.files)),
            Ok(meta) if meta.kind == FileType::Symlink => {
                let error = TreeError::NotRegular(FileType::Symlink);
                Err(at_component(&self.tree, path, path, error, &self.limits.files))
            }
            Ok(meta) if !plan.replace || meta.kind == FileType::Directory => {
                Err(Fault::AlreadyExists { path: path.clone(), kind: meta.kind })
            }
            Ok(_) => identity_at(&to.parent, &to.name).map_err(|errno| fault(path, errno)),
        }
    }

    /// P2 to P6; nothing where what was looked at is not there any more.
    #[allow(clippy::too_many_arguments, reason = "two places and what is at them")]
    fn carry(
        &self,
        changing: &Changing,
        claim: &mut Claim<'_>,
        plan: &MovePlan,
        from: &Place,
        to: Place,
        source: &Subject,
        replaces: bool,
    ) -> Result<Option<Finished>, Fault> {
        if replaces && source.meta.kind == FileType::Directory {
            return Err(Fault::AlreadyExists { path: plan.new_path.clone(), kind: FileType::Regular });
        }
        let (path, state) = (&plan.path, &changing.state);
        let Some(made) = NewParents::make(changing, &to, &plan.new_path)? else { return Ok(None) };
        let entry = self.moved_entry(&plan.new_path, source.meta, from)?;
        let answer = |entry| Answer::Place(PlaceDone { entry, durable: true, replayed: false });
        let action = Action::Move { new_parent: made.path.clone(), new_name: to.name.clone() };
        let predicted = answer(entry.clone());
        changing.intend(claim, from, path, action, String::new(), source.identity, predicted, ())?;
        state.steps.pass("P4")?;
        match move_over(changing, plan, from, &made.innermost, &to.name, source, replaces) {
            Ok(true) => {}
            Ok(false) => {
                changing.abort(claim, path, ())?;
                made.take_back();
                return Ok(None);
            }
            Err(fault) => {
                if state.steps.may_tidy() && !state.has_failed() {
                    changing.abort(claim, path, ())?;
                    made.take_back();
                }
                return Err(fault);
            }
        }
        state.steps.pass("P5")?;
        // The old directory first: btrfs then makes the whole rename durable, and never only the new name.
        if fs::fsync(&from.parent).is_err() || fs::fsync(&made.innermost).is_err() {
            return Err(changing.outcome_unknown(path));
        }
        state.steps.pass("P6")?;
        let stat = fs::statat(&made.innermost, to.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        let meta = stat.ok().and_then(|stat| crate::tree::meta_of(&stat)).unwrap_or(entry.meta);
        // A recovery only asks the new name, which somebody may have changed by then.
        Ok(Some(Finished { answer: answer(Entry { meta, ..entry }), record: Recording::AtOnce, displaced: None }))
    }

    fn moved_entry(&self, path: &TreePath, meta: Meta, from: &Place) -> Result<Entry, Fault> {
        let link_target = match meta.kind {
            FileType::Symlink => {
                let target = self.tree.link(&from.parent, &from.name);
                Some(target.map_err(|error| Fault::at(path, error))?)
            }
            _ => None,
        };
        Ok(Entry { path: path.clone(), meta, link_target, revision: None })
    }
}

/// Renames, and back where it was something else. Whether it was moved.
fn move_over(
    changing: &Changing,
    plan: &MovePlan,
    from: &Place,
    to: &OwnedFd,
    to_name: &[u8],
    source: &Subject,
    replaces: bool,
) -> Result<bool, Fault> {
    let path = &plan.path;
    let Some(guard) = source.guard(path)? else { return Ok(false) };
    if identity_at(&from.parent, &from.name).map_err(|errno| fault(path, errno))? != Some(source.identity) {
        return Ok(false);
    }
    let name = from.name.as_slice();
    let renamed = if replaces {
        fs::renameat(&from.parent, name, to, to_name)
    } else {
        rename_to_free(&from.parent, name, to, to_name)
    };
    match renamed {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => return Ok(false),
        Err(Errno::INVAL) => return Err(Fault::invalid("new_path", "lies within the directory that is to be moved")),
        Err(errno) => return Err(fault(path, errno)),
    }
    changing.state.steps.pass("P4 exchanged")?;
    if guard.is_whole() && identity_at(to, to_name) == Ok(Some(source.identity)) {
        return Ok(true);
    }
    // That it never happened must be true after a crash too.
    let back = rename_to_free(to, to_name, &from.parent, name);
    match back.and_then(|()| fs::fsync(&from.parent)).and_then(|()| fs::fsync(to)) {
        Ok(()) => Ok(false),
        Err(_) => Err(changing.outcome_unknown(path)),
    }
}

/// To a name that is free; where a mount lacks the flag for that, it is looked at just before.
fn rename_to_free(
    from: impl std::os::fd::AsFd,
    name: &[u8],
    to: impl std::os::fd::AsFd,
    to_name: &[u8],
) -> Result<(), Errno> {
    match fs::renameat_with(&from, name, &to, to_name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        other => return other,
    }
    if identity_at(&to, to_name)?.is_some() {
        return Err(Errno::EXIST);
    }
    fs::renameat(from, name, to, to_name)
}

/// The directory of the new name, and those on the way to it that were made for it.
struct NewParents {
    innermost: OwnedFd,
    /// Of `innermost`.
    path: TreePath,
    /// Each with the directory that it is in, the outermost first.
    made: Vec<(OwnedFd, Vec<u8>)>,
}

impl NewParents {
    /// They become visible before the move does: one that fails takes them back. Nothing where somebody else has just made
    /// one of them.
    fn make(changing: &Changing, to: &Place, path: &TreePath) -> Result<Option<Self>, Fault> {
        let state = &changing.state;
        let hold = |directory: &dyn std::os::fd::AsFd| {
            directory.as_fd().try_clone_to_owned().map_err(|error| io_fault(path, error))
        };
        let mut here = to.parent_path.clone();
        for name in &to.missing {
            here = here.join(name);
        }
        if to.missing.is_empty() {
            return Ok(Some(Self { innermost: hold(&to.parent)?, path: here, made: Vec::new() }));
        }
        let directories =
            Directories::make(state, &to.missing, PARENT_MODE, &to.parent).map_err(|errno| fault(path, errno))?;
        directories.sync().map_err(|error| io_fault(path, error))?;
        let first = to.changed_name();
        match rename_to_free(state.as_ref(), directories.stage().as_bytes(), &to.parent, first) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(errno) => return Err(fault(path, errno)),
        }
        let held = directories.give_up();
        let mut made = vec![(hold(&to.parent)?, first.to_vec())];
        for (above, name) in held.iter().zip(&to.missing[1..]) {
            made.push((hold(above)?, name.clone()));
        }
        let synced = fs::fsync(&to.parent).and_then(|()| state.sync());
        let innermost = held.last().ok_or(Fault::Internal("no directory was made"))?;
        let parents = Self { innermost: hold(innermost)?, path: here, made };
        match synced {
            Ok(()) => Ok(Some(parents)),
            Err(errno) => {
                parents.take_back();
                Err(fault(path, errno))
            }
        }
    }

    /// Removes what was made and is still empty.
    fn take_back(&self) {
        for (above, name) in self.made.iter().rev() {
            if fs::unlinkat(above, name.as_slice(), AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }
}
