//! One directory workspace as its host holds it: its files, and each verb on the file system that holds the path. How one
//! of those is opened and changed is in `inner`, which of them a path is on in `nested`.

use std::{path::Path, sync::Arc};

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{MakeDirectoryPlan, MovePlan, PlaceDone, RemoveDone, RemovePlan, WritePlan},
    patch::{PatchDone, PatchPlan},
    path::TreePath,
};
use rustix::fs::{self, Mode, OFlags};

pub use crate::write::{StagedWrite, WriteBegin};
use crate::{
    displaced::LateWriteListener,
    error::OpenError,
    fail::Steps,
    inner::Inner,
    limits::LiveLimits,
    mounts::Mounts,
    nested::{Holder, Nested},
    tree::LiveTree,
};

/// A directory workspace that is open. Shared by all calls; every method blocks.
pub struct Workspace {
    pub(crate) inner: Arc<Inner>,
    /// The file systems that are mounted beneath its root, where they belong to it.
    nested: Option<Nested>,
}

/// What a workspace counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Changes whose intent was written to the journal.
    pub intents: u64,
    /// Flushes of the journal.
    pub journal_flushes: u64,
    /// Displaced files that a process wrote to after that, or still may: see [`LateWrite`](crate::LateWrite).
    pub late_writes: u64,
}

impl Stats {
    /// Of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            intents: self.intents + other.intents,
            journal_flushes: self.journal_flushes + other.journal_flushes,
            late_writes: self.late_writes + other.late_writes,
        }
    }
}

impl Workspace {
    /// Opens the directory `root`; `agent_state` is where the agent may keep what belongs to no workspace's file system.
    /// What a crash left unfinished is brought to an end first. Where the state directory is full or not to be written, or its
    /// journal is damaged, it opens for reading, and each change is refused with that reason until it is opened again.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(root: &Path, agent_state: &Path, limits: LiveLimits) -> Result<Self, OpenError> {
        Self::open_at(root, agent_state, limits, Steps::default())
    }

    /// As [`Workspace::open`], with the file systems that are mounted beneath the root and that `mounts` says are served: each
    /// has a journal of its own, in a directory at its own root that no call shows.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_across(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        mounts: Arc<dyn Mounts>,
    ) -> Result<Self, OpenError> {
        let Self { inner, .. } = Self::open_at(root, agent_state, limits, Steps::default())?;
        let nested = Some(Nested::new(&inner, agent_state.to_owned(), mounts));
        Ok(Self { inner, nested })
    }

    /// As [`Workspace::open`]; `hook` is asked at each step of a change whether everything stops there.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(any(test, feature = "failpoints"))]
    #[doc(hidden)]
    pub fn open_with_stops(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        hook: crate::fail::StopHook,
    ) -> Result<Self, OpenError> {
        Self::open_at(root, agent_state, limits, Steps::with_hook(hook))
    }

    /// As [`Workspace::open`], with one rule of the commit left out: for negative controls.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(any(test, feature = "failpoints"))]
    #[doc(hidden)]
    pub fn open_without(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        rule: crate::fail::Rule,
    ) -> Result<Self, OpenError> {
        Self::open_at(root, agent_state, limits, Steps::without(rule))
    }

    pub(crate) fn open_at(
        root: &Path,
        agent_state: &Path,
        limits: LiveLimits,
        steps: Steps,
    ) -> Result<Self, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = fs::openat(fs::CWD, root, flags, Mode::empty())
            .map_err(|errno| OpenError::Root { root: root.to_owned(), source: errno.into() })?;
        let inner = Arc::new(Inner::open(root, held, agent_state, limits, steps)?);
        Ok(Self { inner, nested: None })
    }

    /// Its files, for reading.
    pub fn tree(&self) -> &LiveTree {
        self.nested.as_ref().map_or(&self.inner.tree, |nested| &nested.files)
    }

    /// Whether it is still what its path leads to, and can be changed. Where not, opening it again may help.
    pub fn is_sound(&self) -> bool {
        self.inner.is_sound()
    }

    /// From now on `listener` is told of each [`LateWrite`](crate::LateWrite), at first of those before it. The last may come when the
    /// workspace is closed. Only one listens: the one who asked last.
    pub fn on_late_write(&self, listener: LateWriteListener) {
        if let Some(nested) = &self.nested {
            nested.listen(Arc::clone(&listener));
        }
        self.inner.on_late_write(listener);
    }

    /// What it has counted since it was opened.
    pub fn stats(&self) -> Stats {
        let own = self.inner.stats();
        self.nested.as_ref().map_or(own, |nested| own.and(nested.stats()))
    }

    /// Why it can be read and not changed, where that is known since it was opened.
    pub fn closed(&self) -> Option<String> {
        self.inner.closed()
    }

    /// Opens the file system that is mounted at this path of it as the next change there would: what a crash left is brought to
    /// an end. Tells why it can be read and not changed, where that is so.
    ///
    /// # Errors
    /// `Outside` where nothing that is served is mounted there, and what keeps it from being opened.
    pub fn recover_mounted(&self, path: &TreePath) -> Result<Option<String>, Fault> {
        match &self.nested {
            Some(nested) => nested.recover(path),
            None => Err(Fault::Outside { path: path.to_string() }),
        }
    }

    /// Whether a file system that is mounted beneath its root is open for changes, and so cannot be unmounted. Never blocks.
    pub fn has_open_mounts(&self) -> bool {
        self.nested.as_ref().is_some_and(Nested::has_open)
    }

    /// Closes those that were not changed for `nested_idle`. Changes their disks, so it must not be called while they are
    /// frozen.
    pub fn close_idle_mounts(&self) {
        if let Some(nested) = &self.nested {
            nested.close_idle();
        }
    }

    /// It will not be opened again: where its state lies in the agent's own directory, that is deleted when the last call on
    /// it has ended, but for what was kept of late writes.
    pub fn forget(&self) {
        self.inner.forget();
    }

    fn holder(&self, path: &TreePath) -> Result<Holder, Fault> {
        match &self.nested {
            None => Ok(Holder::only(&self.inner)),
            Some(nested) => nested.holder(&self.inner, path),
        }
    }

    /// Replaces text in a file, or its whole content.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Patch.
    pub fn patch(&self, plan: &PatchPlan, budget: &dyn Budget) -> Result<PatchDone, Fault> {
        let at = self.holder(&plan.path)?;
        let plan = at.plan(plan, |plan| &mut plan.path)?;
        at.told(at.inner.patch(&plan, budget))
    }

    /// Begins a Write: checks everything that can be checked before the data.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Write.
    pub fn write(&self, plan: &WritePlan) -> Result<WriteBegin, Fault> {
        let at = self.holder(&plan.path)?;
        let plan = at.plan(plan, |plan| &mut plan.path)?;
        match Inner::write(&at.inner, &plan) {
            Ok(WriteBegin::Staged(staged)) => Ok(WriteBegin::Staged(staged.told_by(at))),
            Ok(WriteBegin::Replayed(done)) => at.told(Ok(done)).map(WriteBegin::Replayed),
            Err(fault) => Err(at.fault(fault)),
        }
    }

    /// Removes a file, a link, an empty directory, or with `recursive` a whole one.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Remove.
    pub fn remove(&self, plan: &RemovePlan, budget: &dyn Budget) -> Result<RemoveDone, Fault> {
        let at = self.holder(&plan.path)?;
        if let Some(nested) = self.nested.as_ref().filter(|_| plan.recursive && !at.inner.has_answer(&plan.key)) {
            nested.check_no_mount(&plan.path)?;
        }
        let plan = at.plan(plan, |plan| &mut plan.path)?;
        at.told(at.inner.remove(&plan, budget))
    }

    /// Renames a file or directory within the workspace.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of Move.
    pub fn rename(&self, plan: &MovePlan, budget: &dyn Budget) -> Result<PlaceDone, Fault> {
        // The root itself is refused as any workspace refuses it.
        let to_root = plan.new_path.is_root();
        let at = self.holder(if to_root { &plan.new_path } else { &plan.path })?;
        if !plan.path.is_root() && !to_root {
            let to = self.holder(&plan.new_path)?;
            if !Arc::ptr_eq(&at.inner, &to.inner) {
                return Err(at.refuse_move(&to, plan));
            }
        }
        let plan = at.move_plan(plan)?;
        at.told(at.inner.rename(&plan, budget))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `ErrorReason` in files.proto says of MakeDirectory.
    pub fn make_directory(&self, plan: &MakeDirectoryPlan) -> Result<PlaceDone, Fault> {
        let at = self.holder(&plan.path)?;
        let plan = at.plan(plan, |plan| &mut plan.path)?;
        at.told(at.inner.make_directory(&plan))
    }
}
