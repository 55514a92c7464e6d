//! What must survive a restart: one file for each workspace in `state_dir/workspaces`, and the lock that keeps a second
//! agent out of the same `state_dir`.
//!
//! A record is written beside its place, synced, renamed over it, and the directory synced (rename(2), fsync(2)): after
//! a crash the old record is there or the new one, never half of one.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use dormouse_files::revision::Revision;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use crate::host::{
    relay::machine::Frozen,
    seal::Seal,
    spec::Spec,
    state::{LastCall, State},
};

/// The shape of a record; one of another number is not read.
pub const SCHEMA: u32 = 1;
/// Longest record, in bytes: far above what a spec of many disks needs.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Longest spec as a record holds it, in bytes: the rest of the record, with the seal of its disk, is far below the other
/// half.
pub const SPEC_BYTES_MAX: u64 = RECORD_BYTES_MAX / 2;

/// A moment, since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub struct Moment {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Moment {
    /// By the system's clock; the epoch itself where that clock stands before it.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
    }
}

/// What is kept of one workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The workspace's name.
    pub name: String,
    /// What it is made of.
    pub spec: Spec,
    /// Where it is in its life.
    pub state: State,
    /// Of its last transition.
    pub generation: i64,
    /// Its last transition, so that a replay is known.
    pub last: Option<LastCall>,
    /// The proof of its disk, while it is at rest.
    pub seal: Option<Seal>,
    /// Why it is quarantined, or why its disk cannot answer; empty where there is nothing to say.
    pub note: String,
    /// Of its last transition.
    pub transition_time: Moment,
    /// What its machine told when it froze, until it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Frozen>,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another agent holds it.
    #[error("another agent runs on the state directory {}; stop it, or give this one its own with --state-dir", .path.display())]
    Held {
        /// The directory.
        path: PathBuf,
    },
    /// It would be gone after a restart.
    #[error("the state directory {} is on a file system in memory; choose one on a disk with --state-dir", .path.display())]
    Volatile {
        /// The directory.
        path: PathBuf,
    },
    /// A record does not parse.
    #[error("the record {} cannot be read: {what}; move it away, and register its workspace again", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The system failed.
    #[error("the state directory {} cannot be used", .path.display())]
    Io {
        /// The place.
        path: PathBuf,
        /// From the system.
        #[source]
        source: io::Error,
    },
}

/// The records on disk, and the lock on them.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    records: PathBuf,
    /// Held as long as the agent lives; the kernel drops it with the process (flock(2)).
    _lock: File,
}

/// Whether a state directory in memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volatile {
    /// It is refused: what must survive a restart would not.
    Refused,
    /// It is taken: a demonstration keeps nothing.
    Taken,
}

impl Store {
    /// Opens `state_dir`, making it (0700) where it is missing, and takes its lock.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(state_dir: &Path, volatile: Volatile) -> Result<Self, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { path, source }
        };
        let make = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        if volatile == Volatile::Refused {
            // Asked of what is there already, so that a refusal leaves nothing behind.
            let there = state_dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
            let kind = nix::sys::statfs::statfs(there).map_err(io::Error::from).map_err(failed(there))?;
            if kind.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC {
                return Err(StoreError::Volatile { path: state_dir.to_owned() });
            }
        }
        make(state_dir).map_err(failed(state_dir))?;
        let lock_path = state_dir.join("lock");
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OWN_FILE.bits())
            .open(&lock_path)
            .and_then(regular)
            .map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Held { path: state_dir.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(StoreError::Io { path: lock_path, source }),
        }
        let records = state_dir.join("workspaces");
        make(&records).map_err(failed(&records))?;
        Ok(Self { root: state_dir.to_owned(), records, _lock: lock })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All records, and the leftovers of a crash removed.
    ///
    /// # Errors
    /// `Record` for one that does not parse or has another schema, `Io`.
    pub fn load(&self) -> Result<Vec<Record>, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { path, source }
        };
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.records).map_err(failed(&self.records))? {
            let path = entry.map_err(failed(&self.records))?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => records.push(self.read(&path)?),
                Some("new") => fs::remove_file(&path).map_err(failed(&path))?,
                _ => {}
            }
        }
        records.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(records)
    }

    fn read(&self, path: &Path) -> Result<Record, StoreError> {
        let wrong = |what: String| StoreError::Record { path: path.to_owned(), what };
        let file = File::options()
            .read(true)
            .custom_flags(OWN_FILE.bits())
            .open(path)
            .and_then(regular)
            .map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
        let mut text = Vec::new();
        file.take(RECORD_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
        if text.len() as u64 > RECORD_BYTES_MAX {
            return Err(wrong(format!("it has more than {RECORD_BYTES_MAX} bytes")));
        }
        let schema = serde_json::from_slice::<serde_json::Value>(&text).map_err(|error| wrong(error.to_string()))?;
        let schema = schema.get("schema").and_then(serde_json::Value::as_u64);
        if schema != Some(u64::from(SCHEMA)) {
            return Err(wrong(format!("its schema is not {SCHEMA}")));
        }
        let record: Record = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if self.place(&record.name) != path {
            return Err(wrong(format!("it holds another workspace, {}", record.name)));
        }
        Ok(record)
    }

    /// Keeps a record; it is on stable storage when this returns.
    ///
    /// # Errors
    /// From the system; the old record then stands.
    pub fn save(&self, record: &Record) -> io::Result<()> {
        let place = self.place(&record.name);
        let staged = place.with_extension("new");
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
        if text.len() as u64 > RECORD_BYTES_MAX {
            // It would be kept, and then keep the next agent from starting.
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the record would have more than {RECORD_BYTES_MAX} bytes"),
            ));
        }
        let written = (|| {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&staged, &place)
        })();
        if let Err(error) = written {
            // What is left of the attempt goes; if even that fails, the next load removes it.
            let _ = fs::remove_file(&staged);
            return Err(error);
        }
        File::open(&self.records)?.sync_all()
    }

    /// Forgets a workspace's record.
    ///
    /// # Errors
    /// From the system.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.place(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        File::open(&self.records)?.sync_all()
    }

    /// Where a workspace's record is: names hold `/`, so it goes by the hash of the name.
    fn place(&self, name: &str) -> PathBuf {
        self.records.join(format!("{}.json", Revision::of(name.as_bytes())))
    }
}

/// Everything in the state directory was made by an agent: no link is followed, and no FIFO's other end waited for.
const OWN_FILE: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, generation: i64) -> Record {
        Record {
            schema: SCHEMA,
            name: name.to_owned(),
            spec: Spec::Directory { root: "/srv/a".into() },
            state: State::Suspended,
            generation,
            last: None,
            seal: None,
            note: String::new(),
            transition_time: Moment { seconds: 1, nanoseconds: 2 },
            frozen: None,
        }
    }

    #[test]
    fn knows_after_a_restart_what_it_knew() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Volatile::Taken).unwrap();
        store.save(&record("b/main", 1)).unwrap();
        store.save(&record("a/main", 1)).unwrap();
        store.save(&record("b/main", 7)).unwrap();
        store.save(&record("c", 1)).unwrap();
        store.remove("c").unwrap();
        fs::write(directory.path().join("workspaces/half.new"), b"{").unwrap();
        drop(store);
        let store = Store::open(directory.path(), Volatile::Taken).unwrap();
        assert_eq!(store.load().unwrap(), [record("a/main", 1), record("b/main", 7)]);
        assert!(!directory.path().join("workspaces/half.new").exists());
    }

    #[test]
    fn a_record_that_could_not_be_read_again_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Volatile::Taken).unwrap();
        store.save(&record("a", 1)).unwrap();
        let long = Record { note: "x".repeat(RECORD_BYTES_MAX as usize), ..record("a", 2) };
        assert_eq!(store.save(&long).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(store.load().unwrap(), [record("a", 1)]);
    }

    #[test]
    fn a_second_agent_is_kept_out() {
        let directory = tempfile::tempdir().unwrap();
        let first = Store::open(directory.path(), Volatile::Taken).unwrap();
        let second = Store::open(directory.path(), Volatile::Taken);
        assert!(matches!(second, Err(StoreError::Held { .. })));
        drop(first);
        assert!(Store::open(directory.path(), Volatile::Taken).is_ok());
    }

    #[test]
    fn what_no_agent_made_is_refused_by_name_and_not_waited_for() {
        let check = |name: &'static str, make: fn(&Path)| {
            let (told, tell) = std::sync::mpsc::channel();
            // Bounded, so that a wait fails this test instead of holding the whole run.
            std::thread::spawn(move || {
                let directory = tempfile::tempdir().unwrap();
                fs::create_dir(directory.path().join("workspaces")).unwrap();
                make(&directory.path().join(name));
                let found = Store::open(directory.path(), Volatile::Taken).and_then(|store| store.load());
                let made = directory.path().join("elsewhere").exists();
                told.send((found.unwrap_err().to_string(), made))
            });
            let (found, made) = tell.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
            assert!(found.contains(name), "{found}");
            assert!(!made, "a link was followed");
        };
        let fifo: fn(&Path) = |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let link: fn(&Path) = |path| std::os::unix::fs::symlink(path.with_file_name("elsewhere"), path).unwrap();
        check("lock", fifo);
        check("lock", link);
        check("workspaces/x.json", fifo);
        check("workspaces/x.json", link);
    }

    #[test]
    fn another_schema_or_a_torn_record_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Volatile::Taken).unwrap();
        for text in ["{\"schema\":2}", "{", "{\"schema\":1}"] {
            fs::write(directory.path().join("workspaces/x.json"), text).unwrap();
            let found = store.load().unwrap_err().to_string();
            assert!(found.contains("x.json"), "{found}");
        }
    }
}
