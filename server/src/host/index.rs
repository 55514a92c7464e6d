//! Search indexes of disks at rest: made in the background after a search that had to read everything, kept in memory and
//! in `state_dir/search-index`, dropped when the workspace leaves its rest.
//!
//! ```text
//! search without one ──want──► queue ──one worker, behind all searches──► memory and file
//! search ──find──► memory ─or─► file, checked                Unseal, Release ──forget──► gone
//! ```
//! An index stands for one rest of one workspace: its key is made of the generation and the whole seal, and whoever asks
//! has just compared the disk with that seal. A file that does not fit, or is damaged, is removed and never believed.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use dormouse_files::{
    budget::{Budget, Spent},
    limits::Limits,
    path::TreePath,
    revision::Revision,
    search::{
        globs::GlobSet,
        index::{BuildPlan, Index},
    },
};
use nix::fcntl::OFlag;

use crate::host::{place::Place, seal::Seal, turns::Turns};

/// Bounds on what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSettings {
    /// Whether there are any.
    pub on: bool,
    /// Bytes of all in memory, and so the most that one may have.
    pub memory_bytes_max: u64,
    /// Bytes of all on disk.
    pub disk_bytes_max: u64,
}

/// Workspaces that wait for their index.
const QUEUE_LENGTH_MAX: usize = 64;
/// Indexes that are begun for one rest: a larger one may be needed when a later search asks for more.
const BUILD_COUNT_MAX: u32 = 4;
/// Longest wait before each file while others search.
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// One rest of one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// Of a workspace at rest with this seal.
    pub fn new(workspace: &str, generation: i64, seal: &Seal) -> Self {
        // A record holds the same: that it can be written is known.
        let seal = serde_json::to_string(seal).unwrap_or_default();
        let length = workspace.len();
        Self(*Revision::of(format!("{length} {workspace} {generation} {seal}").as_bytes()).digest())
    }
}

/// An index that is to be made.
pub struct Wanted {
    /// Whose.
    pub workspace: String,
    /// Of its rest.
    pub key: Key,
    /// Its files.
    pub place: Place,
    /// What the search without it began at, without links on the way.
    pub root: TreePath,
    /// What it left out.
    pub globs: GlobSet,
    /// Whether the workspace's root is a machine's "/".
    pub machine_root: bool,
}

/// The host's indexes.
pub struct Indexes {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    settings: IndexSettings,
    limits: Limits,
    turns: Turns,
    state: Mutex<State>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    known: HashMap<String, Known>,
    queue: VecDeque<Wanted>,
    is_working: bool,
    use_count: u64,
}

/// What is known of a workspace in one rest.
struct Known {
    key: Key,
    index: Option<Arc<Index>>,
    /// No file is worth looking for.
    is_looked_for: bool,
    build_count: u32,
    last_use: u64,
}

impl Known {
    fn new(key: Key) -> Self {
        Self { key, index: None, is_looked_for: false, build_count: 0, last_use: 0 }
    }
}

impl Indexes {
    /// Those of a host with this state directory.
    pub fn new(state_dir: &Path, settings: IndexSettings, limits: Limits, turns: Turns) -> Self {
        let directory = state_dir.join("search-index");
        let (state, is_over) = (Mutex::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { directory, settings, limits, turns, state, is_over }) }
    }

    /// Removes every file that belongs to none of these workspaces.
    pub fn sweep<'a>(&self, workspaces: impl Iterator<Item = &'a str>) {
        let kept: Vec<PathBuf> = workspaces.map(|name| self.shared.path(name)).collect();
        for path in self.shared.files().into_iter().map(|(path, ..)| path) {
            if !self.shared.settings.on || !kept.contains(&path) {
                remove(&path);
            }
        }
    }

    /// The index of a workspace in this rest, where there is one. May read a file.
    pub fn find(&self, workspace: &str, key: Key) -> Option<Arc<Index>> {
        if !self.shared.settings.on {
            return None;
        }
        {
            let mut state = self.shared.lock();
            state.use_count += 1;
            let use_count = state.use_count;
            let known = state.of(workspace, key);
            known.last_use = use_count;
            if known.index.is_some() || known.is_looked_for {
                return known.index.clone();
            }
        }
        // No lock is held while a file is read; two who look at once both read it.
        let index = self.shared.read(workspace, key).map(Arc::new);
        let mut state = self.shared.lock();
        let known = state.of(workspace, key);
        known.is_looked_for = true;
        if known.index.is_none() {
            known.index = index;
        }
        let found = known.index.clone();
        self.shared.make_room(&mut state, workspace);
        found
    }

    /// Has an index made, unless enough were begun for this rest.
    pub fn want(&self, mut wanted: Wanted) {
        if !self.shared.settings.on {
            return;
        }
        let mut state = self.shared.lock();
        let waits = state.queue.iter().any(|other| other.workspace == wanted.workspace);
        let is_full = state.queue.len() >= QUEUE_LENGTH_MAX;
        let known = state.of(&wanted.workspace, wanted.key);
        if waits || is_full || known.build_count >= BUILD_COUNT_MAX {
            return;
        }
        known.build_count += 1;
        if let Some(index) = &known.index {
            // What served one search and not the other: the next one serves both.
            wanted.root = shared_root(index.root(), &wanted.root);
            wanted.globs = everything(&self.shared.limits);
        }
        state.queue.push_back(wanted);
        if !state.is_working {
            let shared = self.shared.clone();
            let spawned = thread::Builder::new().name("search-index".to_owned()).spawn(move || shared.work());
            match spawned {
                Ok(_) => state.is_working = true,
                // Without an index searches take longer, and a later one asks again.
                Err(error) => {
                    tracing::warn!(%error, "no thread for a search index");
                    state.queue.clear();
                }
            }
        }
    }

    /// The workspace has left its rest, or is gone.
    pub fn forget(&self, workspace: &str) {
        let mut state = self.shared.lock();
        state.queue.retain(|wanted| wanted.workspace != workspace);
        state.known.remove(workspace);
        drop(state);
        remove(&self.shared.path(workspace));
    }
}

impl Drop for Indexes {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// Spent when the host is gone, or the workspace has left its rest.
struct Rest<'a> {
    shared: &'a Shared,
    place: &'a Place,
}

impl Budget for Rest<'_> {
    fn spent(&self) -> Option<Spent> {
        let is_over = self.shared.is_over.load(Ordering::Relaxed) || !self.place.still_mine();
        is_over.then_some(Spent::Gone)
    }
}

impl State {
    /// What is known of this rest; of another one nothing is.
    fn of(&mut self, workspace: &str, key: Key) -> &mut Known {
        let known = self.known.entry(workspace.to_owned()).or_insert_with(|| Known::new(key));
        if known.key != key {
            *known = Known::new(key);
        }
        known
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a workspace's index is: names hold `/`, so it goes by the hash of the name.
    fn path(&self, workspace: &str) -> PathBuf {
        self.directory.join(format!("{}.index", Revision::of(workspace.as_bytes())))
    }

    /// Makes what is wanted, until nothing is.
    fn work(&self) {
        loop {
            let wanted = {
                let mut state = self.lock();
                let next = state.queue.pop_front().filter(|_| !self.is_over.load(Ordering::Relaxed));
                if next.is_none() {
                    state.is_working = false;
                    return;
                }
                next
            };
            if let Some(wanted) = wanted {
                self.make(wanted);
            }
        }
    }

    fn make(&self, wanted: Wanted) {
        let begin = Instant::now();
        let plan = BuildPlan {
            root: wanted.root,
            closed: wanted.globs,
            file_bytes_max: self.limits.search_file_bytes_default,
            machine_root: wanted.machine_root,
            index_bytes_max: self.settings.memory_bytes_max.min(self.settings.disk_bytes_max),
        };
        let rest = Rest { shared: self, place: &wanted.place };
        let mut pause = || self.turns.wait_idle(PAUSE_MAX);
        let workspace = wanted.workspace.as_str();
        let index = match Index::build(&wanted.place, &plan, &self.limits, &rest, &mut pause) {
            Ok(index) => index,
            Err(error) => return tracing::info!(workspace, %error, "no search index is made"),
        };
        tracing::info!(
            workspace,
            files = index.file_count(),
            bytes = index.memory_bytes(),
            text_bytes = index.text_bytes(),
            milliseconds = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
            "a search index is made"
        );
        let bytes = index.encode();
        {
            let mut state = self.lock();
            // Forgotten meanwhile, or known in another rest: nobody would ask for it.
            let Some(known) = state.known.get_mut(workspace).filter(|known| known.key == wanted.key) else { return };
            known.index = Some(Arc::new(index));
            self.make_room(&mut state, workspace);
        }
        if let Err(error) = self.write(workspace, wanted.key, &bytes) {
            tracing::info!(workspace, %error, "a search index is not kept beyond this process");
        }
        // Left while it was written: what was removed then may be back.
        let is_known = self.lock().known.get(workspace).is_some_and(|known| known.key == wanted.key);
        if !is_known {
            remove(&self.path(workspace));
        }
    }

    /// Lets go of those not used for longest, but not of this one, while all take more than they may.
    fn make_room(&self, state: &mut State, but: &str) {
        let bytes = |known: &Known| known.index.as_ref().map_or(0, |index| index.memory_bytes());
        let mut total: u64 = state.known.values().map(bytes).sum();
        while total > self.settings.memory_bytes_max {
            let others = state.known.iter_mut().filter(|(name, known)| *name != but && known.index.is_some());
            let Some((_, oldest)) = others.min_by_key(|(_, known)| known.last_use) else { return };
            total -= bytes(oldest);
            oldest.index = None;
            oldest.is_looked_for = false;
        }
    }

    /// Its path, size and time of each file.
    fn files(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let sized = entries.flatten().filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some((entry.path(), meta.len(), meta.modified().unwrap_or(SystemTime::UNIX_EPOCH)))
        });
        sized.collect()
    }

    fn read(&self, workspace: &str, key: Key) -> Option<Index> {
        let path = self.path(workspace);
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let file = match File::options().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::info!(workspace, %error, "a search index cannot be read");
                return None;
            }
        };
        let mut bytes = Vec::new();
        let bound = self.settings.memory_bytes_max.saturating_add(FRAME_BYTES_MAX);
        if file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= bound)
            && file.take(bound).read_to_end(&mut bytes).is_ok()
            && let Some((stamp, body)) = bytes.split_first_chunk::<32>()
            && *stamp == key.0
            && let Some(index) = Index::decode(body)
        {
            return Some(index);
        }
        tracing::info!(workspace, "a search index is of another rest, or damaged; it is removed");
        remove(&path);
        None
    }

    /// Not synced: after a crash of the system the checksum tells whether it is whole.
    fn write(&self, workspace: &str, key: Key, bytes: &[u8]) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.path(workspace);
        let length = bytes.len() as u64 + key.0.len() as u64;
        let mut others: Vec<_> = self.files().into_iter().filter(|(other, ..)| *other != path).collect();
        others.sort_by_key(|(_, _, time)| *time);
        let mut total: u64 = others.iter().map(|(_, length, _)| length).sum();
        for (other, other_length, _) in &others {
            if total.saturating_add(length) <= self.settings.disk_bytes_max {
                break;
            }
            total -= other_length;
            remove(other);
        }
        let staged = path.with_extension("new");
        let written = (|| {
            let mut options = File::options();
            let flags = OFlag::O_NOFOLLOW.bits();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&staged)?;
            file.write_all(&key.0)?;
            file.write_all(bytes)?;
            fs::rename(&staged, &path)
        })();
        if written.is_err() {
            remove(&staged);
        }
        written
    }
}

/// More than an encoding needs beside what the index takes in memory.
const FRAME_BYTES_MAX: u64 = 64 << 10;

/// Nothing is lost if it stays: what does not fit is not believed.
fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::info!(%error, "a search index cannot be removed");
        }
        _ => {}
    }
}

/// The deepest directory that holds both.
fn shared_root(left: &TreePath, right: &TreePath) -> TreePath {
    let both = left.components().zip(right.components());
    both.take_while(|(left, right)| left == right).fold(TreePath::root(), |path, (name, _)| path.join(name))
}

fn everything(limits: &Limits) -> GlobSet {
    GlobSet::new(&[], &[], limits).expect("no globs are sound")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use dormouse_files::{budget::Unbounded, memory::MemoryTree};

    use super::*;

    fn index(text: &str) -> Index {
        let limits = Limits::default();
        let plan = BuildPlan {
            root: TreePath::root(),
            closed: everything(&limits),
            file_bytes_max: 1 << 20,
            machine_root: true,
            index_bytes_max: 1 << 20,
        };
        Index::build(&MemoryTree::default().file("/f", text), &plan, &limits, &Unbounded, &mut || {}).unwrap()
    }

    fn indexes(place: &Path, memory_bytes_max: u64, disk_bytes_max: u64) -> Indexes {
        let settings = IndexSettings { on: true, memory_bytes_max, disk_bytes_max };
        Indexes::new(place, settings, Limits::default(), Turns::new())
    }

    fn key(number: u8) -> Key {
        Key([number; 32])
    }

    #[test]
    fn a_file_is_believed_only_under_its_key_and_whole() {
        let place = tempfile::tempdir().unwrap();
        let keep = || {
            let indexes = indexes(place.path(), 1 << 20, 1 << 20);
            indexes.shared.write("w", key(1), &index("text").encode()).unwrap();
            indexes
        };
        let path = keep().shared.path("w");
        assert_eq!(keep().find("w", key(1)).as_deref(), Some(&index("text")));
        assert_eq!(keep().find("other", key(1)), None);
        assert_eq!(keep().find("w", key(2)), None);
        assert!(!path.exists(), "one of another rest is removed");
        let indexes = keep();
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(indexes.find("w", key(1)), None);
        assert!(!path.exists(), "a damaged one is removed");
        let indexes = keep();
        assert!(indexes.find("w", key(1)).is_some());
        indexes.forget("w");
        assert!(!path.exists());
        assert_eq!(indexes.find("w", key(1)), None);
    }

    #[test]
    fn a_link_or_a_fifo_in_its_place_is_no_index() {
        let place = tempfile::tempdir().unwrap();
        let indexes = indexes(place.path(), 1 << 20, 1 << 20);
        indexes.shared.write("w", key(1), &index("text").encode()).unwrap();
        let path = indexes.shared.path("w");
        fs::rename(&path, place.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(place.path().join("elsewhere"), &path).unwrap();
        assert_eq!(indexes.shared.read("w", key(1)), None);
        indexes.forget("w");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(indexes.shared.read("w", key(1)), None);
    }

    #[test]
    fn the_oldest_files_make_room_and_strangers_are_swept() {
        let place = tempfile::tempdir().unwrap();
        let bytes = index("text").encode();
        let indexes = indexes(place.path(), 1 << 20, (bytes.len() as u64 + 32) * 2);
        let there = |name: &str| indexes.shared.path(name).exists();
        for (number, name) in ["b", "a", "c"].into_iter().enumerate() {
            indexes.shared.write(name, key(1), &bytes).unwrap();
            let file = File::options().write(true).open(indexes.shared.path(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(number as u64)).unwrap();
        }
        assert_eq!(["a", "b", "c"].map(there), [true, false, true]);
        indexes.sweep(["c", "d"].into_iter());
        assert_eq!(["a", "b", "c"].map(there), [false, false, true]);
    }

    #[test]
    fn those_not_used_for_longest_leave_memory() {
        let place = tempfile::tempdir().unwrap();
        let one = index("text");
        let indexes = indexes(place.path(), one.memory_bytes() * 2, 1 << 20);
        let names = ["a", "b", "c"];
        for name in names {
            indexes.shared.write(name, key(1), &one.encode()).unwrap();
        }
        assert!(["a", "b", "a", "c"].iter().all(|name| indexes.find(name, key(1)).is_some()));
        let held = |name: &str| indexes.shared.lock().known[name].index.is_some();
        assert_eq!(names.map(held), [true, false, true]);
        assert!(indexes.find("b", key(1)).is_some(), "it is read again");
        assert_eq!(names.map(held), [false, true, true]);
    }

    #[test]
    fn two_roots_share_the_deepest_directory_above_both() {
        let shared = |left: &str, right: &str| {
            let parse = |path: &str| TreePath::parse(path.as_bytes()).unwrap();
            shared_root(&parse(left), &parse(right)).to_string()
        };
        assert_eq!(shared("/a/b/c", "/a/b/d/e"), "/a/b");
        assert_eq!(shared("/a/b", "/a/b/c"), "/a/b");
        assert_eq!(shared("/a", "/ab"), "/");
    }
}
