//! List: a directory's entries in path order, to a depth.

use std::collections::BTreeMap;

use crate::{
    budget::{Budget, Sink, Spent},
    error::Fault,
    limits::Limits,
    meta::FileType,
    order::{Part, Parts, Slots},
    path::TreePath,
    search::globs::{GlobSet, Verdict},
    stat::{Described, Entry, Revisions, describe},
    tree::{Identity, Tree, TreeError},
    walk,
};

/// A List whose shape was found sound.
#[derive(Debug, Clone)]
pub struct ListPlan {
    /// A directory; symbolic links on the way to it are followed inside the workspace.
    pub path: TreePath,
    /// 1 is the directory's own entries.
    pub depth: usize,
    /// Which files, relative to `path`; directories that lead to an included file are listed with it.
    pub globs: GlobSet,
    /// At least 1.
    pub entry_count_max: usize,
    /// Whether each regular file's revision is wanted.
    pub include_revision: bool,
    /// Only entries after this path.
    pub start_after: Option<TreePath>,
}

/// How a List ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListEnd {
    /// Entries pushed.
    pub entries_sent: u64,
    /// Why it was stopped, where it was.
    pub stop: Option<Stop>,
    /// Directories that could not be read.
    pub unreadable: u64,
}

/// Why an answer is not all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The match count asked for was met, and there is more.
    Matches,
    /// Time was up.
    Budget,
    /// The bytes of results were met.
    Bytes,
    /// The entry count asked for was met, and there is more.
    Entries,
}

/// Answers a List, pushing entries in path order.
///
/// # Errors
/// Before the first entry: everything of the path, `NotDirectory`. `Gone` when the sink broke.
pub fn run<T: Tree>(
    tree: &T,
    plan: &ListPlan,
    revisions: Revisions,
    limits: &Limits,
    budget: &dyn Budget,
    sink: &mut dyn Sink<Entry>,
) -> Result<ListEnd, Fault> {
    let (_, directory) = walk::resolve_directory(tree, &plan.path, limits)?;
    let mut listing = Listing {
        tree,
        plan,
        revisions: if plan.include_revision { revisions } else { Revisions::Never },
        limits,
        budget,
        end: ListEnd::default(),
        name_count: 0,
        within: Vec::new(),
        leads: BTreeMap::new(),
        buffer: Vec::new(),
    };
    let root = listing.enter(directory, plan.path.clone(), false).map_err(|error| Fault::at(&plan.path, error))?;
    listing.end.stop = match listing.walk(root, sink) {
        Ok(()) => None,
        Err(Ended::Stop(stop)) => Some(stop),
        Err(Ended::Fault(fault)) => return Err(fault),
    };
    tree.verify().map_err(|error| Fault::at(&plan.path, error))?;
    Ok(listing.end)
}

/// Why a walk ends before the last entry.
enum Ended {
    Stop(Stop),
    Fault(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A directory that the walk is in.
struct Frame<D> {
    directory: D,
    path: TreePath,
    /// Whether an include matches this directory or one above it, and so everything beneath.
    included: bool,
    slots: Slots,
    next: usize,
}

/// Where looking ahead into a directory led.
enum Lead {
    /// Nothing beneath is included.
    Nowhere,
    /// The first included path beneath: directories whose contents come before it, and do not hold it, lead nowhere.
    To(TreePath),
}

struct Listing<'a, T: Tree> {
    tree: &'a T,
    plan: &'a ListPlan,
    revisions: Revisions,
    limits: &'a Limits,
    budget: &'a dyn Budget,
    end: ListEnd,
    /// Slots held in all frames.
    name_count: usize,
    /// Of the directories the walk is in.
    within: Vec<Identity>,
    /// Of directories that were looked into ahead and whose contents are not done: their number is bounded by the depth
    /// and the length of a name, because those between an entry and its contents have its name as a beginning of theirs.
    leads: BTreeMap<TreePath, Lead>,
    buffer: Vec<u8>,
}

impl<T: Tree> Listing<'_, T> {
    fn ask(&self) -> Result<(), Ended> {
        match self.budget.spent() {
            Some(Spent::Gone) => Err(Ended::Fault(Fault::Gone)),
            Some(Spent::Time | Spent::Deadline) => Err(Ended::Stop(Stop::Budget)),
            None => Ok(()),
        }
    }

    fn depth_max(&self) -> usize {
        self.plan.depth.min(self.limits.walk_depth_max)
    }

    fn enter(
        &mut self,
        directory: T::Directory,
        path: TreePath,
        included: bool,
    ) -> Result<Frame<T::Directory>, TreeError> {
        let identity = self.tree.identify(&directory)?;
        // No directory lies within itself, but an image may say so.
        if self.within.contains(&identity) {
            let inode = identity.inode;
            return Err(TreeError::Corrupt { what: format!("directory inode {inode} lies within itself") });
        }
        let room = self.limits.directory_name_count_max.saturating_sub(self.name_count);
        let slots = Slots::of(self.tree, &directory, Parts::All, room)?;
        self.name_count += slots.len();
        self.within.push(identity);
        Ok(Frame { directory, path, included, slots, next: 0 })
    }

    fn leave(&mut self, frame: &Frame<T::Directory>) {
        self.name_count = self.name_count.saturating_sub(frame.slots.len());
        self.within.pop();
    }

    fn verdict(&self, path: &TreePath, kind: FileType, included: bool) -> Verdict {
        self.plan.globs.verdict(relative(&self.plan.path, path), kind == FileType::Directory, included)
    }

    fn count_unreadable(&mut self, path: &TreePath, error: TreeError) -> Result<(), Fault> {
        match error {
            TreeError::Changed => Err(Fault::at(path, error)),
            // It went away, or became something else, since it was listed.
            TreeError::NotFound | TreeError::NotDirectory(_) => Ok(()),
            _ => {
                self.end.unreadable += 1;
                Ok(())
            }
        }
    }

    fn walk(&mut self, root: Frame<T::Directory>, sink: &mut dyn Sink<Entry>) -> Result<(), Ended> {
        let mut frames = vec![root];
        while let Some(frame) = frames.last_mut() {
            self.ask()?;
            let Some(slot) = frame.slots.get(frame.next) else {
                self.leave(frame);
                self.leads.remove(&frame.path);
                frames.pop();
                continue;
            };
            frame.next += 1;
            let path = frame.path.join(slot.name);
            match slot.part {
                Part::Entry => {
                    if self.plan.start_after.as_ref().is_none_or(|start| path > *start) {
                        self.entry(path, slot.name, &frame.directory, frame.included, self.within.len(), sink)?;
                    }
                }
                Part::Contents => {
                    if let Some(inner) = self.contents(path, slot.name, &frame.directory, frame.included)? {
                        frames.push(inner);
                    }
                }
            }
        }
        Ok(())
    }

    /// Pushes the entry, if it is one of those asked for.
    fn entry(
        &mut self,
        path: TreePath,
        name: &[u8],
        parent: &T::Directory,
        included: bool,
        depth: usize,
        sink: &mut dyn Sink<Entry>,
    ) -> Result<(), Ended> {
        let meta = match self.tree.stat(parent, name) {
            Ok(meta) => meta,
            Err(error) => return Ok(self.count_unreadable(&path, error)?),
        };
        let wanted = match self.verdict(&path, meta.kind, included) {
            Verdict::Included => true,
            Verdict::Excluded => false,
            Verdict::Neither => meta.kind == FileType::Directory && self.leads_on(&path, name, parent, depth)?,
        };
        if !wanted {
            return Ok(());
        }
        if self.end.entries_sent >= self.plan.entry_count_max as u64 {
            return Err(Ended::Stop(Stop::Entries));
        }
        let described = Described { path: path.clone(), parent, name, meta };
        let described = describe(self.tree, described, self.revisions, self.limits, self.budget, &mut self.buffer);
        let entry = match described {
            Ok(entry) => entry,
            // It went away, or became something else, since it was looked at.
            Err(Fault::NotFound { .. } | Fault::Symlink { .. } | Fault::NotRegular { .. }) => return Ok(()),
            Err(Fault::OfflineBudget { .. } | Fault::DeadlineExceeded) => return Err(Ended::Stop(Stop::Budget)),
            Err(fault) => return Err(fault.into()),
        };
        self.tree.verify().map_err(|error| Fault::at(&path, error))?;
        if sink.push(entry).is_break() {
            return Err(Fault::Gone.into());
        }
        self.end.entries_sent += 1;
        Ok(())
    }

    /// Enters a directory, if what is asked for may lie beneath it.
    fn contents(
        &mut self,
        path: TreePath,
        name: &[u8],
        parent: &T::Directory,
        included: bool,
    ) -> Result<Option<Frame<T::Directory>>, Ended> {
        let verdict = self.verdict(&path, FileType::Directory, included);
        let pruned = verdict == Verdict::Excluded
            || self.within.len() >= self.depth_max()
            || self.is_before_start(&path)
            || (verdict == Verdict::Neither && self.known_lead(&path) == Some(false));
        if pruned {
            self.leads.remove(&path);
            return Ok(None);
        }
        let directory = self.tree.directory(parent, name);
        let entered = directory.and_then(|directory| self.enter(directory, path.clone(), verdict == Verdict::Included));
        match entered {
            Ok(frame) => Ok(Some(frame)),
            Err(error) => {
                self.leads.remove(&path);
                self.count_unreadable(&path, error)?;
                Ok(None)
            }
        }
    }

    /// Whether everything beneath `directory` comes before what is asked for.
    fn is_before_start(&self, directory: &TreePath) -> bool {
        let Some(start) = &self.plan.start_after else { return false };
        let first = beneath(directory);
        first.as_slice() < start.as_bytes() && !start.as_bytes().starts_with(&first)
    }

    /// What is already known of whether something included lies beneath `directory`.
    fn known_lead(&self, directory: &TreePath) -> Option<bool> {
        let mut above = Some(directory.clone());
        while let Some(place) = above.filter(|place| place.is_within(&self.plan.path)) {
            match self.leads.get(&place) {
                Some(Lead::Nowhere) => return Some(false),
                Some(Lead::To(target)) if target.is_within(directory) => return Some(true),
                // Its contents come at its name and a `/`, which may be behind the target though its name is before it.
                Some(Lead::To(target)) => return (beneath(directory).as_slice() < target.as_bytes()).then_some(false),
                None => above = place.parent(),
            }
        }
        None
    }

    /// Whether something included lies beneath `directory`, within the depth asked for.
    fn leads_on(
        &mut self,
        directory: &TreePath,
        name: &[u8],
        parent: &T::Directory,
        depth: usize,
    ) -> Result<bool, Ended> {
        if let Some(known) = self.known_lead(directory) {
            return Ok(known);
        }
        if depth >= self.depth_max() {
            return Ok(false);
        }
        let held = self.within.len();
        let found = self.look_ahead(directory, name, parent);
        self.within.truncate(held);
        let (target, complete) = found?;
        let leads = target.is_some();
        match target {
            Some(target) => drop(self.leads.insert(directory.clone(), Lead::To(target))),
            // A directory that cannot be read is met again, and counted, when its turn comes.
            None if complete => drop(self.leads.insert(directory.clone(), Lead::Nowhere)),
            None => {}
        }
        Ok(leads)
    }

    /// The first included path beneath `directory`, and whether all of it could be read.
    fn look_ahead(
        &mut self,
        directory: &TreePath,
        name: &[u8],
        parent: &T::Directory,
    ) -> Result<(Option<TreePath>, bool), Ended> {
        let entered = self.tree.directory(parent, name);
        let Ok(first) = entered.and_then(|held| self.enter(held, directory.clone(), false)) else {
            return Ok((None, false));
        };
        let (mut frames, mut complete, mut target) = (vec![first], true, None);
        while let Some(frame) = frames.last_mut().filter(|_| target.is_none()) {
            self.ask()?;
            let Some(slot) = frame.slots.get(frame.next) else {
                self.leave(frame);
                frames.pop();
                continue;
            };
            frame.next += 1;
            let path = frame.path.join(slot.name);
            let kind = match slot.kind {
                Some(kind) => kind,
                None => match self.tree.stat(&frame.directory, slot.name) {
                    Ok(meta) => meta.kind,
                    Err(_) => continue,
                },
            };
            match (slot.part, self.verdict(&path, kind, false)) {
                (_, Verdict::Excluded) => {}
                (_, Verdict::Included) => target = Some(path),
                (Part::Contents, Verdict::Neither) if kind == FileType::Directory => {
                    if self.within.len() >= self.depth_max() {
                        continue;
                    }
                    let inner = self.tree.directory(&frame.directory, slot.name);
                    match inner.and_then(|inner| self.enter(inner, path, false)) {
                        Ok(inner) => frames.push(inner),
                        Err(_) => complete = false,
                    }
                }
                _ => {}
            }
        }
        for frame in &frames {
            self.name_count = self.name_count.saturating_sub(frame.slots.len());
        }
        Ok((target, complete))
    }
}

/// What every path beneath `directory` begins with.
fn beneath(directory: &TreePath) -> Vec<u8> {
    [directory.as_bytes(), b"/"].concat()
}

/// A path beneath `root` as globs see it, without a leading `/`.
pub(crate) fn relative<'a>(root: &TreePath, path: &'a TreePath) -> &'a [u8] {
    let cut = if root.is_root() { 1 } else { root.as_bytes().len() + 1 };
    path.as_bytes().get(cut..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
