//! Changes on the file systems that are mounted beneath a workspace's root: each happens on the one that holds its name, by
//! that one's own journal, in `.dormouse` at its own root.
//!
//! ```text
//! path ─► the deepest mount on the way to its last name ─┬─ the root's own ─► the workspace itself
//!                                                        └─ another one    ─► opened, changed, closed when it is idle
//! ```
//! The last name is never stepped into: a mount point is a name of the directory that it lies in.
//!
//! One that is open cannot be unmounted, so it is closed soon after its last change; what its journal knows is read again by
//! the next. No rename leads from one into another, and nothing is ever copied.

use std::{
    borrow::Cow,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use dormouse_files::{
    Fault,
    beneath::Beneath,
    change::MovePlan,
    path::TreePath,
    tree::{Tree, TreeError},
};
use rustix::fs::OFlags;

use crate::{
    beneath::open_beneath,
    displaced::{LateWrite, LateWriteListener},
    errno::fault,
    error::OpenError,
    fail::Steps,
    inner::Inner,
    limits::LiveLimits,
    locate::{Parents, locate, resolved},
    mounts::Mounts,
    patch::parents,
    tree::{LiveDirectory, LiveTree},
    workspace::Stats,
};

/// The file systems beneath one workspace's root.
pub(crate) struct Nested {
    /// The workspace's files with theirs.
    pub(crate) files: LiveTree,
    mounts: Arc<dyn Mounts>,
    root: PathBuf,
    agent_state: PathBuf,
    limits: LiveLimits,
    open: Mutex<Open>,
    /// How many are open, for who must not wait for those that are being opened.
    open_count: AtomicUsize,
}

#[derive(Default)]
struct Open {
    /// At most `nested_count_max`.
    entries: Vec<Entry>,
    listener: Option<LateWriteListener>,
    /// What those counted that are closed again.
    ended: Stats,
}

struct Entry {
    mount: u64,
    above: TreePath,
    inner: Arc<Inner>,
    /// When it was last seen in use.
    used: Instant,
}

/// A mount, and where it is.
struct Spot {
    mount: u64,
    above: TreePath,
    directory: LiveDirectory,
}

/// The file system on which a change happens. While this is held it stays open.
pub(crate) struct Holder {
    pub(crate) inner: Arc<Inner>,
    /// Where it is mounted; `/` for the root's own.
    above: TreePath,
    /// All files, where there are other file systems than one.
    files: Option<LiveTree>,
}

impl Holder {
    /// The root's own file system, in a workspace that has no other.
    pub(crate) fn only(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner), above: TreePath::root(), files: None }
    }

    fn path(&self, path: &TreePath) -> Result<TreePath, Fault> {
        path.within(&self.above).ok_or(Fault::Internal("a path is on another file system than its holder"))
    }

    /// A plan as this file system sees it.
    ///
    /// # Errors
    /// Only `Internal`.
    pub(crate) fn plan<'a, P: Clone>(
        &self,
        plan: &'a P,
        path: impl Fn(&mut P) -> &mut TreePath,
    ) -> Result<Cow<'a, P>, Fault> {
        if self.above.is_root() {
            return Ok(Cow::Borrowed(plan));
        }
        let mut own = plan.clone();
        *path(&mut own) = self.path(path(&mut own))?;
        Ok(Cow::Owned(own))
    }

    /// As [`Holder::plan`], for the two paths of a Move.
    ///
    /// # Errors
    /// Only `Internal`.
    pub(crate) fn move_plan<'a>(&self, plan: &'a MovePlan) -> Result<Cow<'a, MovePlan>, Fault> {
        let mut own = self.plan(plan, |plan| &mut plan.path)?;
        if let Cow::Owned(own) = &mut own {
            own.new_path = self.path(&own.new_path)?;
        }
        Ok(own)
    }

    /// Its failure in the words of the whole workspace.
    pub(crate) fn fault(&self, fault: Fault) -> Fault {
        let Some(files) = &self.files else { return fault };
        match fault.beneath(&self.above) {
            Fault::Symlink { path, link, .. } => {
                let resolved = resolved(files, &path, &self.inner.limits.files);
                Fault::Symlink { path, link, resolved }
            }
            fault => fault,
        }
    }

    /// Its answer in the words of the whole workspace.
    pub(crate) fn told<D: Beneath>(&self, done: Result<D, Fault>) -> Result<D, Fault> {
        done.map(|done| done.beneath(&self.above)).map_err(|fault| self.fault(fault))
    }

    /// Why a rename from here leads to no other file system.
    pub(crate) fn refuse_move(&self, to: &Self, plan: &MovePlan) -> Fault {
        let find = |holder: &Self, path: &TreePath, parents| {
            let found = locate(&holder.inner.tree, &holder.path(path)?, parents, &holder.inner.limits.files);
            found.map(drop).map_err(|fault| holder.fault(fault))
        };
        let found = find(self, &plan.path, Parents::MustExist);
        match found.and_then(|()| find(to, &plan.new_path, parents(plan.create_parents))) {
            Err(fault) => fault,
            Ok(()) => Fault::invalid(
                "new_path",
                format!(
                    "is on another file system (mounted at {}) than the path (at {}), and a move is one rename: write \
                     the content there, then remove it here",
                    to.above, self.above
                ),
            ),
        }
    }
}

impl Nested {
    /// Beneath this workspace.
    pub(crate) fn new(inner: &Inner, agent_state: PathBuf, mounts: Arc<dyn Mounts>) -> Self {
        Self {
            files: inner.tree.across(Arc::clone(&mounts)),
            mounts,
            root: inner.root_path().to_owned(),
            agent_state,
            limits: inner.limits.clone(),
            open: Mutex::default(),
            open_count: AtomicUsize::new(0),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change of it is one step, so a panic elsewhere leaves it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file system on which a change of the path's last name happens; opened, where it is not the root's own.
    ///
    /// # Errors
    /// What keeps it from being opened.
    pub(crate) fn holder(&self, root: &Arc<Inner>, path: &TreePath) -> Result<Holder, Fault> {
        let files = Some(self.files.clone());
        let parent = path.parent().unwrap_or_else(TreePath::root);
        match self.deepest(&parent)? {
            None => Ok(Holder { inner: Arc::clone(root), above: TreePath::root(), files }),
            Some(spot) => Ok(Holder { inner: self.opened(&spot)?, above: spot.above, files }),
        }
    }

    /// The last mount on the way along this path, as far as that leads: what is wrong with the rest is for the change to say.
    fn deepest(&self, path: &TreePath) -> Result<Option<Spot>, Fault> {
        let mut directory = self.files.root_directory().clone();
        let mut here = TreePath::root();
        let mut deepest = None;
        for name in path.components() {
            here = here.join(name);
            let next = match self.files.directory(&directory, name) {
                Ok(next) => next,
                Err(error @ TreeError::Io(_)) => return Err(Fault::at(&here, error)),
                Err(_) => break,
            };
            match next.entered_mount() {
                Some(mount) if directory.entered_mount() != Some(mount) => {
                    deepest = Some(Spot { mount, above: here.clone(), directory: next.clone() });
                }
                _ => {}
            }
            directory = next;
        }
        Ok(deepest)
    }

    /// Opens the file system that is mounted at this path as the next change of it would: what a crash left there is brought
    /// to an end. Tells why it can only be read, where that is so.
    ///
    /// # Errors
    /// `Outside` where no file system that is served is mounted there, and what keeps it from being opened.
    pub(crate) fn recover(&self, path: &TreePath) -> Result<Option<String>, Fault> {
        match self.deepest(path)?.filter(|spot| spot.above == *path) {
            Some(spot) => Ok(self.opened(&spot)?.closed()),
            None => Err(Fault::Outside { path: path.to_string() }),
        }
    }

    fn opened(&self, spot: &Spot) -> Result<Arc<Inner>, Fault> {
        let mut open = self.open();
        let is_it = |entry: &Entry| entry.mount == spot.mount && entry.above == spot.above;
        // One that is mounted elsewhere by now, and one that must be opened again.
        open.close(|entry| entry.mount == spot.mount && (entry.above != spot.above || !entry.may_go_on()));
        if let Some(entry) = open.entries.iter_mut().find(|entry| is_it(entry)) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.inner));
        }
        if open.entries.len() >= self.limits.nested_count_max {
            let oldest = open.entries.iter().filter(|entry| entry.is_unused()).min_by_key(|entry| entry.used);
            let oldest = oldest.map(|entry| entry.mount);
            open.close(|entry| Some(entry.mount) == oldest);
        }
        if open.entries.iter().any(|entry| entry.mount == spot.mount)
            || open.entries.len() >= self.limits.nested_count_max
        {
            return Err(Fault::Overloaded { what: "file systems that are open for changes" });
        }
        let inner = Arc::new(self.open_one(spot)?);
        if let Some(listener) = &open.listener {
            inner.on_late_write(listener_at(&spot.above, listener));
        }
        let entry =
            Entry { mount: spot.mount, above: spot.above.clone(), inner: Arc::clone(&inner), used: Instant::now() };
        open.entries.push(entry);
        self.open_count.store(open.entries.len(), Ordering::Relaxed);
        Ok(inner)
    }

    fn open_one(&self, spot: &Spot) -> Result<Inner, Fault> {
        // By the directory that the walk holds, and not by its path: that may lead to what lies under the mount by now.
        let held = open_beneath(&spot.directory, b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|errno| fault(&spot.above, errno))?;
        let inside = spot.above.as_bytes().strip_prefix(b"/").unwrap_or_default();
        let path = self.root.join(OsStr::from_bytes(inside));
        Inner::open(&path, held, &self.agent_state, self.limits.clone(), Steps::default()).map_err(|error| {
            let source = match &error {
                OpenError::Root { source, .. } | OpenError::State { source, .. } => format!(": {source}"),
                OpenError::Kernel { .. } => String::new(),
            };
            Fault::Io { path: spot.above.clone(), source: io::Error::other(format!("{error}{source}")) }
        })
    }

    /// Refuses to take away a directory in which something is mounted: the mount would go with it, to where nobody sees it.
    ///
    /// # Errors
    /// `MountPoint`, and what the system says.
    pub(crate) fn check_no_mount(&self, path: &TreePath) -> Result<(), Fault> {
        match self.mounts.any_at(path) {
            Ok(None) => Ok(()),
            Ok(Some(mount)) => Err(Fault::MountPoint { path: mount }),
            Err(source) => Err(Fault::Io { path: path.clone(), source }),
        }
    }

    /// Whether any is open. Never blocks.
    pub(crate) fn has_open(&self) -> bool {
        self.open_count.load(Ordering::Relaxed) > 0
    }

    /// Closes those that nobody has changed for a while.
    pub(crate) fn close_idle(&self) {
        // What lingers must have had its time.
        let idle = self.limits.nested_idle.max(self.limits.lingering);
        let mut open = self.open();
        for entry in open.entries.iter_mut().filter(|entry| !entry.is_unused()) {
            entry.used = Instant::now();
        }
        open.close(|entry| entry.used.elapsed() >= idle || !entry.may_go_on());
        self.open_count.store(open.entries.len(), Ordering::Relaxed);
    }

    /// From now on `listener` is told of late writes on each of them.
    pub(crate) fn listen(&self, listener: LateWriteListener) {
        let mut open = self.open();
        for entry in &open.entries {
            entry.inner.on_late_write(listener_at(&entry.above, &listener));
        }
        open.listener = Some(listener);
    }

    /// What all of them have counted.
    pub(crate) fn stats(&self) -> Stats {
        let open = self.open();
        open.entries.iter().fold(open.ended, |sum, entry| sum.and(entry.inner.stats()))
    }
}

impl Open {
    /// Closes those of a kind that nobody uses, and that have nothing left to do.
    fn close(&mut self, is_of_kind: impl Fn(&Entry) -> bool) {
        let ended = &mut self.ended;
        self.entries.retain(|entry| {
            let closes = is_of_kind(entry) && entry.is_unused() && entry.inner.has_settled();
            if closes {
                *ended = ended.and(entry.inner.stats());
            }
            !closes
        });
    }
}

impl Entry {
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// Whether opening it again would not help.
    fn may_go_on(&self) -> bool {
        self.inner.is_sound()
    }
}

/// Tells a listener of the whole workspace's paths.
fn listener_at(above: &TreePath, listener: &LateWriteListener) -> LateWriteListener {
    let (above, listener) = (above.clone(), Arc::clone(listener));
    Arc::new(move |late| listener(&LateWrite { path: late.path.beneath(&above), kept: late.kept.clone() }))
}
