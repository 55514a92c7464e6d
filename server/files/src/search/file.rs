//! One file or one directory of a search: opened and scanned; or listed and sorted into work.

use std::{
    ops::{ControlFlow, Range},
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
};

use super::{
    Match, SearchPlan, Skipped, Turns,
    content::{self, Buffer, Content},
    held::{Held, HeldCount, Place},
    indexed::Indexed,
    pattern::Searcher,
    scan::{self, Bounds, Scanned},
    size::encoded_bytes,
};
use crate::{
    budget::{Budget, Spent},
    error::Fault,
    limits::Limits,
    meta::{FileType, Meta},
    order::{Part, Parts, Slots},
    path::TreePath,
    search::globs::Verdict,
    tree::{Tree, TreeError},
};

/// Files that one thread takes at once.
const RUN_FILE_COUNT_MAX: usize = 32;

/// What every thread of one search shares and never changes.
pub(super) struct Search<'a, T: Tree> {
    pub(super) tree: &'a T,
    pub(super) plan: &'a SearchPlan,
    pub(super) limits: &'a Limits,
    pub(super) budget: &'a dyn Budget,
    /// Where the search begins.
    pub(super) root: T::Directory,
    /// Where that is without links on the way, to know a machine's /proc and /sys.
    pub(super) root_path: TreePath,
    pub(super) held_count: HeldCount,
    /// Nobody wants further results.
    pub(super) is_over: AtomicBool,
    /// Where an index tells which files there are.
    pub(super) indexed: Option<Indexed<'a>>,
    /// Where there is work for more searches than the host has processors.
    pub(super) turns: &'a dyn Turns,
}

/// What one thread keeps for itself.
pub(super) struct Scratch {
    buffer: Buffer,
    pub(super) path: Vec<u8>,
    searcher: Searcher,
}

impl Scratch {
    pub(super) fn new(plan: &SearchPlan) -> Self {
        Self { buffer: Buffer::default(), path: Vec::new(), searcher: Searcher::new(&plan.pattern) }
    }
}

/// Work on one place in path order.
pub(super) enum Task<D> {
    /// Files of one directory with nothing between them.
    Run {
        directory: Arc<Listed<D>>,
        /// Their slots.
        files: Vec<u32>,
    },
    /// A directory to be listed.
    List {
        /// The directory it lies in.
        above: Arc<Listed<D>>,
        /// Its slot there.
        slot: u32,
        included: bool,
    },
    /// Files of the index.
    Known(Range<u32>),
}

/// A directory whose names are known.
pub(super) struct Listed<D> {
    place: Arc<Place>,
    held: Held<D>,
    slots: Slots,
    /// Its path and a `/`.
    prefix: Vec<u8>,
}

/// What came of a task.
#[derive(Default)]
pub(super) struct Outcome<D> {
    /// In path order.
    pub(super) steps: Vec<Step>,
    /// What is to be done instead, each with its key.
    pub(super) tasks: Vec<(Vec<u8>, Task<D>)>,
    /// Bytes of the matches.
    pub(super) bytes: u64,
    /// Why it is not complete.
    pub(super) end: Option<End>,
}

impl<D> Outcome<D> {
    pub(super) fn new() -> Self {
        Self { steps: Vec::new(), tasks: Vec::new(), bytes: 0, end: None }
    }

    /// Matches in it.
    pub(super) fn match_count(&self) -> usize {
        self.steps.iter().map(|step| step.matches.len()).sum()
    }
}

/// Why a task was not finished.
#[derive(Debug)]
pub(super) enum End {
    /// There is no time left, or nobody waits.
    Spent(Spent),
    /// Nobody wants further results.
    Over,
    /// It alone holds more than the answer may.
    Full,
    /// The tree cannot be relied on.
    Fault(Fault),
}

/// Files that were dealt with, the last of which may have matches.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) files_scanned: u64,
    pub(super) skipped: Skipped,
    /// Each with its encoded size.
    pub(super) matches: Vec<(Match, u64)>,
}

impl<T: Tree> Search<'_, T> {
    fn bounds(&self) -> Bounds {
        Bounds {
            context_line_count: self.plan.context_line_count,
            line_search_bytes_max: self.limits.line_search_bytes_max,
            line_text_bytes_max: self.limits.line_text_bytes_max,
        }
    }

    /// Why a thread must not go on.
    pub(super) fn ended(&self) -> Option<End> {
        if self.is_over.load(Ordering::Relaxed) {
            return Some(End::Over);
        }
        self.budget.spent().map(End::Spent)
    }

    pub(super) fn run(&self, task: Task<T::Directory>, scratch: &mut Scratch) -> Outcome<T::Directory> {
        let _turn = Turn::take(self.turns);
        match task {
            Task::Known(files) => match &self.indexed {
                Some(indexed) => self.scan_known(indexed, files, scratch),
                None => Outcome::new(),
            },
            Task::Run { directory, files } => self.scan_files(&directory, &files, scratch),
            Task::List { above, slot, included } => {
                let mut outcome = Outcome::new();
                match self.enter(&above, slot, included) {
                    Ok(listed) => self.plan_directory(listed, &mut outcome, scratch),
                    Err(error) => refuse(error, &mut outcome),
                }
                outcome
            }
        }
    }

    /// The root of the search.
    pub(super) fn begin(&self, scratch: &mut Scratch) -> Result<Outcome<T::Directory>, Fault> {
        let mut outcome = Outcome::new();
        if let Some(indexed) = &self.indexed {
            let task = |run: Range<u32>| (run.start.to_be_bytes().to_vec(), Task::Known(run));
            outcome.tasks = indexed.runs().map(task).collect();
            return Ok(outcome);
        }
        let fault = |error| Fault::at(&self.plan.path, error);
        let identity = self.tree.identify(&self.root).map_err(fault)?;
        let held = self.held_count.hold(self.root.clone());
        let place = Arc::new(Place::root(identity));
        let prefix = self.prefix();
        let slots = self.slots(&self.root).map_err(fault)?;
        self.plan_directory(Listed { place, held, slots, prefix }, &mut outcome, scratch);
        Ok(outcome)
    }

    /// How the paths of the answer begin.
    pub(super) fn prefix(&self) -> Vec<u8> {
        let mut prefix = self.plan.path.as_bytes().to_vec();
        if !self.plan.path.is_root() {
            prefix.push(b'/');
        }
        prefix
    }

    fn slots(&self, directory: &T::Directory) -> Result<Slots, TreeError> {
        Slots::of(self.tree, directory, Parts::Leaves, self.limits.directory_name_count_max)
    }

    fn enter(
        &self,
        above: &Arc<Listed<T::Directory>>,
        slot: u32,
        included: bool,
    ) -> Result<Listed<T::Directory>, TreeError> {
        let name = above.slots.get(slot as usize).map(|slot| slot.name).unwrap_or_default();
        if above.place.depth + 1 > self.limits.walk_depth_max {
            let limit = self.limits.walk_depth_max as u64;
            return Err(TreeError::OverLimit { what: "directories within each other", limit });
        }
        let parent = above.held.get(self.tree, &self.root, &above.place)?;
        let directory = self.tree.directory(&parent, name)?;
        let identity = self.tree.identify(&directory)?;
        let place = Arc::new(Place::beneath(&above.place, name, identity, included)?);
        let slots = self.slots(&directory)?;
        let prefix = [above.prefix.as_slice(), name, b"/"].concat();
        Ok(Listed { place, held: self.held_count.hold(directory), slots, prefix })
    }

    /// Whether a true place is where a machine's kernel shows itself (proc(5), sysfs(5)).
    pub(super) fn is_kernel(&self, path: &TreePath) -> bool {
        let first = path.components().next();
        self.plan.machine_root && matches!(first, Some(b"proc" | b"sys"))
    }

    /// Sorts a directory's names into runs of files and directories to be listed.
    fn plan_directory(&self, listed: Listed<T::Directory>, outcome: &mut Outcome<T::Directory>, scratch: &mut Scratch) {
        let listed = Arc::new(listed);
        let shown = self.plan.path.as_bytes().len() + usize::from(!self.plan.path.is_root());
        let key = |name: &[u8], end: &[u8]| [listed.prefix.as_slice(), name, end].concat();
        let mut run: Vec<u32> = Vec::new();
        let close = |run: &mut Vec<u32>, outcome: &mut Outcome<T::Directory>| {
            let Some(first) = run.first().and_then(|&first| listed.slots.get(first as usize)) else { return };
            let task = Task::Run { directory: Arc::clone(&listed), files: std::mem::take(run) };
            outcome.tasks.push((key(first.name, b""), task));
        };
        for index in 0..u32::try_from(listed.slots.len()).unwrap_or(u32::MAX) {
            if index % 1024 == 1023
                && let Some(end) = self.ended()
            {
                outcome.end = Some(end);
                return;
            }
            let Some(slot) = listed.slots.get(index as usize) else { break };
            let kind = match slot.kind {
                Some(kind) => kind,
                None => match self.kind(&listed, slot.name) {
                    Ok(kind) => kind,
                    // Counted where the file itself would be opened, not twice.
                    Err(_) if slot.part == Part::Contents => continue,
                    Err(_) => FileType::Regular,
                },
            };
            let is_directory = kind == FileType::Directory;
            if kind == FileType::Symlink || is_directory != (slot.part == Part::Contents) {
                continue;
            }
            scratch.path.clear();
            scratch.path.extend_from_slice(&listed.prefix[shown..]);
            scratch.path.extend_from_slice(slot.name);
            let verdict = self.plan.globs.verdict(&scratch.path, is_directory, listed.place.included);
            match (is_directory, verdict) {
                (_, Verdict::Excluded) | (false, Verdict::Neither) => {}
                (false, Verdict::Included) => {
                    run.push(index);
                    if run.len() >= RUN_FILE_COUNT_MAX {
                        close(&mut run, outcome);
                    }
                }
                (true, verdict) => {
                    close(&mut run, outcome);
                    let is_top = listed.place.depth == 0 && self.root_path.is_root();
                    if is_top && self.is_kernel(&self.root_path.join(slot.name)) {
                        // A run of one that is no file is counted in its place.
                        run.push(index);
                        close(&mut run, outcome);
                        continue;
                    }
                    let included = verdict == Verdict::Included;
                    let task = Task::List { above: Arc::clone(&listed), slot: index, included };
                    outcome.tasks.push((key(slot.name, b"/"), task));
                }
            }
        }
        close(&mut run, outcome);
    }

    fn kind(&self, listed: &Listed<T::Directory>, name: &[u8]) -> Result<FileType, TreeError> {
        let directory = listed.held.get(self.tree, &self.root, &listed.place)?;
        self.tree.stat(&directory, name).map(|meta| meta.kind)
    }

    fn scan_files(&self, listed: &Listed<T::Directory>, files: &[u32], scratch: &mut Scratch) -> Outcome<T::Directory> {
        let mut outcome = Outcome::new();
        let directory = match listed.held.get(self.tree, &self.root, &listed.place) {
            Ok(directory) => directory,
            Err(error) => {
                refuse(error, &mut outcome);
                return outcome;
            }
        };
        let mut step = Step::default();
        for &index in files {
            outcome.end = self.ended();
            let Some(slot) = listed.slots.get(index as usize).filter(|_| outcome.end.is_none()) else { break };
            let opened = match slot.kind {
                None | Some(FileType::Regular) => self.tree.open(&directory, slot.name),
                Some(kind) => Err(TreeError::NotRegular(kind)),
            };
            let path = || TreePath::parse(&[listed.prefix.as_slice(), slot.name].concat()).ok();
            if self.scan_opened(opened, &path, scratch, &mut step, &mut outcome).is_break() {
                break;
            }
        }
        outcome.steps.push(step);
        outcome
    }

    /// Searches a file that was opened, or counts why it was not; `path` is asked for only if something is found. Breaks
    /// where nothing more is to be searched.
    pub(super) fn scan_opened(
        &self,
        opened: Result<(T::File, Meta), TreeError>,
        path: &dyn Fn() -> Option<TreePath>,
        scratch: &mut Scratch,
        step: &mut Step,
        outcome: &mut Outcome<T::Directory>,
    ) -> ControlFlow<()> {
        let scanned = opened.and_then(|(file, meta)| self.scan_file(&file, &meta, path, scratch, step, outcome));
        if let Err(error) = scanned {
            count(error, step, outcome);
        }
        if !step.matches.is_empty() {
            outcome.steps.push(std::mem::take(step));
        }
        if outcome.end.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Searches one open file.
    pub(super) fn scan_file(
        &self,
        file: &T::File,
        meta: &Meta,
        path: &dyn Fn() -> Option<TreePath>,
        scratch: &mut Scratch,
        step: &mut Step,
        outcome: &mut Outcome<T::Directory>,
    ) -> Result<(), TreeError> {
        let bytes = match content::read(self.tree, file, meta, self.plan.file_bytes_max, &mut scratch.buffer)? {
            Content::Text(bytes) => bytes,
            Content::Binary => {
                step.skipped.binary += 1;
                return Ok(());
            }
            Content::TooLarge => {
                step.skipped.too_large += 1;
                return Ok(());
            }
        };
        let bounds = self.bounds();
        // One more than is wanted shows that there is more.
        let match_count_max = self.plan.match_count_max.saturating_add(1);
        let (mut shown, mut end) = (None, None);
        let mut ended = None;
        let done = scan::scan(
            bytes,
            &mut scratch.searcher,
            &bounds,
            &mut || {
                ended = self.ended();
                if ended.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
            &mut |hit| {
                if shown.is_none() {
                    shown = path();
                }
                let Some(path) = &shown else { return ControlFlow::Break(()) };
                let found = scan::materialize(bytes, &hit, path, &bounds);
                let size = encoded_bytes(&found);
                outcome.bytes += size;
                step.matches.push((found, size));
                let is_full = step.matches.len() >= match_count_max
                    || outcome.bytes > self.limits.search_result_bytes_max.saturating_add(size);
                if is_full {
                    end = Some(End::Full);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        );
        if done == Scanned::All || !step.matches.is_empty() {
            step.files_scanned += 1;
        }
        if done == Scanned::Failed {
            end = Some(End::Fault(Fault::Internal("the automaton of a pattern failed")));
        }
        outcome.end = end.or(ended);
        Ok(())
    }
}

/// Counts a file that could not be opened or read.
fn count<D>(error: TreeError, step: &mut Step, outcome: &mut Outcome<D>) {
    match error {
        // It went away, or became a link or a directory, since it was listed.
        TreeError::NotFound | TreeError::NotDirectory(_) => {}
        TreeError::NotRegular(FileType::Symlink) => {}
        TreeError::NotRegular(_) => step.skipped.special += 1,
        TreeError::Changed => outcome.end = Some(End::Fault(Fault::OfflineChanged)),
        _ => step.skipped.unreadable += 1,
    }
}

/// A turn that is given back.
struct Turn<'a> {
    turns: &'a dyn Turns,
    number: u64,
}

impl<'a> Turn<'a> {
    fn take(turns: &'a dyn Turns) -> Self {
        Self { turns, number: turns.take() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.give(self.number);
    }
}

/// Counts a directory that could not be opened or listed.
fn refuse<D>(error: TreeError, outcome: &mut Outcome<D>) {
    let mut step = Step::default();
    count(error, &mut step, outcome);
    outcome.steps.push(step);
}
