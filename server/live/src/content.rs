//! Putting a file's new content under its path: what Patch and Write have in common.

use std::{fs::File, sync::Arc};

use dormouse_files::{
    Fault,
    meta::{FileType, Meta},
    path::TreePath,
    revision::Expected,
    stat::Entry,
    tree::{Tree, TreeError},
};
use rustix::fs;

use crate::{
    attributes,
    commit::{self, Base, Outcome, Stamp, Writers, identity_at, revision_of},
    displaced::{Displaced, Watched},
    errno::{fault, io_fault},
    fail::Rule,
    inner::{Changing, Inner, Recording},
    ledger::{Claim, now},
    locate::{Place, at_component},
    read,
    record::{Action, Answer, Intent},
    stage::{Directories, PARENT_MODE, Staged},
    state::State,
    tree::{Identity, meta_of},
};

/// A regular file that is there.
pub(crate) struct Existing {
    pub(crate) file: File,
    pub(crate) meta: Meta,
    pub(crate) identity: Identity,
    pub(crate) stamp: Stamp,
}

/// How putting content under a path went.
pub(crate) enum Put {
    /// It is there and durable.
    Done {
        meta: Meta,
        open_writer: bool,
        record: Recording,
        /// What was there.
        displaced: Option<Displaced>,
    },
    /// What is there is not what it was: read it again. The staged file, where it is still ours.
    Changed(Option<Staged>),
    /// A writer keeps the file open.
    Busy,
}

impl Inner {
    /// The regular file at a place, opened; nothing where there is none.
    ///
    /// # Errors
    /// `RevisionMismatch` for anything at all where it is expected absent; else `Symlink` and `NotRegular`.
    pub(crate) fn existing(
        &self,
        place: &Place,
        path: &TreePath,
        expected: Expected,
    ) -> Result<Option<Existing>, Fault> {
        if !place.missing.is_empty() {
            return Ok(None);
        }
        let at_name = |error| at_component(&self.tree, path, path, error, &self.limits.files);
        if expected == Expected::Absent {
            return match self.tree.stat(&place.parent, &place.name) {
                Err(TreeError::NotFound) => Ok(None),
                Err(error) => Err(at_name(error)),
                Ok(meta) => {
                    let small =
                        meta.kind == FileType::Regular && meta.size_bytes <= self.limits.files.patch_file_bytes_max;
                    let opened = small.then(|| self.tree.open(&place.parent, &place.name).ok()).flatten();
                    let actual = opened.and_then(|(file, _)| revision_of(file.file()).ok());
                    Err(Fault::RevisionMismatch { path: path.clone(), expected, actual })
                }
            };
        }
        match self.tree.open(&place.parent, &place.name) {
            Err(TreeError::NotFound) => Ok(None),
            // Its directory is inside: what lies behind a mount is the name itself.
            Err(TreeError::Outside) => Err(Fault::MountPoint { path: path.clone() }),
            Err(error) => Err(at_name(error)),
            Ok((file, meta)) => {
                let stat = fs::fstat(file.file()).map_err(|errno| fault(path, errno))?;
                let (identity, stamp) = (Identity::of(&stat), Stamp::of(&stat));
                Ok(Some(Existing { file: file.into_file(), meta, identity, stamp }))
            }
        }
    }
}

impl Existing {
    /// Its content, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `TooLarge` where there are more, whatever its size was said to be.
    pub(crate) fn content(&self, path: &TreePath, bytes_max: u64) -> Result<Vec<u8>, Fault> {
        let too_large =
            |size_bytes| Fault::TooLarge { path: path.clone(), size_bytes, limit_bytes: bytes_max, instead: "Write" };
        if self.meta.size_bytes > bytes_max {
            return Err(too_large(self.meta.size_bytes));
        }
        // One byte more than it should have: a file that grows while it is read is seen to.
        let mut content = vec![0; usize::try_from(self.meta.size_bytes).unwrap_or(0) + 1];
        let count = read::full_at(&self.file, 0, &mut content).map_err(|error| io_fault(path, error))?;
        if count as u64 > bytes_max {
            return Err(too_large(count as u64));
        }
        content.truncate(count);
        Ok(content)
    }
}

/// An answer's file.
pub(crate) fn entry(path: &TreePath, meta: Meta, revision: dormouse_files::revision::Revision) -> Entry {
    Entry { path: path.clone(), meta, link_target: None, revision: Some(revision) }
}

/// What an open file or directory is now.
pub(crate) fn meta_now(file: impl std::os::fd::AsFd, path: &TreePath) -> Result<Meta, Fault> {
    let stat = fs::fstat(file).map_err(|errno| fault(path, errno))?;
    meta_of(&stat).ok_or(Fault::Internal("an open file has no type"))
}

/// P2, its second half: the staged file gets what it carries beside its content, and the directories that its path needs.
pub(crate) fn dress(
    state: &Arc<State>,
    staged: &mut Staged,
    place: &Place,
    path: &TreePath,
    old: Option<&File>,
    mode: Option<u32>,
) -> Result<(), Fault> {
    let mut dress = || {
        if let Some(old) = old {
            return attributes::copy(staged.file(), old);
        }
        let parent = fs::fstat(&place.parent)?;
        attributes::found(staged.file(), mode.unwrap_or(0o644), &parent, state.is_root)?;
        if !place.missing.is_empty() {
            let directories = Directories::make(state, &place.missing, PARENT_MODE, &place.parent)?;
            staged.wrap(directories, &place.name)?;
        }
        Ok(())
    };
    dress().map_err(|errno| fault(path, errno))?;
    state.steps.pass("P2 named")?;
    staged.sync().map_err(|error| io_fault(path, error))?;
    state.steps.pass("P2")
}

impl Changing {
    /// P3 to P6: from an intent to content that is in place and durable. `predicted` is the answer as far as it is known.
    #[allow(clippy::too_many_arguments, reason = "what is put where, and for whom")]
    pub(crate) fn put(
        &self,
        claim: &mut Claim<'_>,
        place: &Place,
        path: &TreePath,
        staged: Staged,
        base: Option<&Base>,
        writers: Writers,
        predicted: Answer,
    ) -> Result<Put, Fault> {
        let action = match base {
            Some(base) => Action::Replace { base: base.revision, base_inode: base.identity.inode },
            None => Action::Create,
        };
        // Cheaper to find out before the intent; what changes after this is found at the exchange.
        let now = identity_at(&place.parent, place.changed_name()).map_err(|errno| fault(path, errno))?;
        if now != base.map(|base| base.identity) {
            return Ok(Put::Changed(Some(staged)));
        }
        let (stage, identity) = (staged.stage().to_owned(), staged.identity());
        let staged = self.intend(claim, place, path, action, stage.clone(), identity, predicted, staged)?;
        let outcome = match base {
            Some(base) => commit::replace(&self.state, place, path, &stage, identity, base, writers),
            None => commit::create(&self.state, place, path, &stage, !place.missing.is_empty()),
        };
        let (open_writer, exact, settled) = match outcome {
            Ok(Outcome::InPlace { open_writer, exact, displaced }) => (open_writer, exact, displaced),
            Ok(other) => {
                let staged = self.abort(claim, path, staged)?;
                if other == Outcome::Busy {
                    return Ok(Put::Busy);
                }
                let is_ours = identity_at(self.state.as_ref(), stage.as_bytes()) == Ok(Some(identity));
                return Ok(Put::Changed(is_ours.then_some(staged)));
            }
            Err(fault) => {
                if self.state.has_failed() || !self.state.steps.may_tidy() {
                    staged.give_up();
                } else {
                    drop(self.abort(claim, path, staged)?);
                }
                return Err(fault);
            }
        };
        // What has the staging name now is not ours to delete before `done` is durable.
        let (file, name) = staged.give_up();
        let meta = meta_now(&file, path).map_err(|_| self.outcome_unknown(path))?;
        let record = if exact { Recording::Lazy } else { Recording::AtOnce };
        let displaced = base.map(|base| {
            let revision = base.revision;
            let watched = settled.map(|settled| Watched { path: path.clone(), settled, revision });
            Displaced { name, watched }
        });
        Ok(Put::Done { meta, open_writer, record, displaced })
    }

    /// P3. Where the journal fails, what was staged stays for the recovery to judge: the intent may be durable.
    #[allow(clippy::too_many_arguments, reason = "an intent's own fields")]
    pub(crate) fn intend<S: Leave>(
        &self,
        claim: &mut Claim<'_>,
        place: &Place,
        path: &TreePath,
        action: Action,
        stage: String,
        identity: Identity,
        answer: Answer,
        staged: S,
    ) -> Result<S, Fault> {
        let intent = Intent {
            key: claim.key().text().to_owned(),
            request: *claim.key().request(),
            at: now(),
            action,
            parent: place.parent_path.clone(),
            parent_inode: place.parent_identity.inode,
            name: place.changed_name().to_vec(),
            stage,
            inode: identity.inode,
            answer,
        };
        self.state.steps.pass("P3")?;
        if !self.state.steps.keeps(Rule::Intent) {
            return Ok(staged);
        }
        if let Err(fault) = claim.intend(intent, path) {
            if self.ledger.is_broken() {
                staged.leave();
            }
            return Err(fault);
        }
        self.state.steps.pass("P3 durable")?;
        Ok(staged)
    }

    /// The intent came to nothing. Only when that is durable may what was staged be used again or deleted: a recovery takes
    /// a staging name that is gone for one that was renamed into place.
    pub(crate) fn abort<S: Leave>(&self, claim: &mut Claim<'_>, path: &TreePath, staged: S) -> Result<S, Fault> {
        match claim.abort() {
            Ok(()) => Ok(staged),
            Err(error) => {
                self.state.fail();
                staged.leave();
                Err(io_fault(path, error))
            }
        }
    }
}

/// Something staged that can be left where it is.
pub(crate) trait Leave {
    fn leave(self);
}

impl Leave for Staged {
    fn leave(self) {
        self.give_up();
    }
}

impl Leave for Directories {
    fn leave(self) {
        self.give_up();
    }
}

impl Leave for () {
    fn leave(self) {}
}
