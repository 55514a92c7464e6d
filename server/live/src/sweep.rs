//! Deleting what was displaced or removed: in the state directory only, after the journal no longer needs it.
//!
//! A tree is deleted without recursion and without a path: a directory in it that is not empty is first renamed up into
//! the state directory and then takes its turn, so depth costs neither stack nor descriptors.

use std::{
    collections::VecDeque,
    mem::MaybeUninit,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags, RawDir},
    io::Errno,
};

use crate::{beneath::open_beneath, state::State};

/// Bytes that one getdents64(2) call fills.
const NAMES_BUFFER_BYTES: usize = 32 << 10;

/// Deletes trees on a thread of its own, which ends when there is none left.
#[derive(Default)]
pub(crate) struct Sweeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    /// Names in the state directory. Each stands for a directory that is there, so the disk bounds them.
    names: Mutex<Queue>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<String>,
    running: bool,
}

impl Sweeper {
    /// Deletes one name of the state directory: a file now, a tree in the background.
    pub(crate) fn delete(&self, state: &Arc<State>, name: &str) {
        // What cannot be deleted now is deleted when the workspace is opened again.
        if let Err(Errno::ISDIR | Errno::PERM) = fs::unlinkat(state.as_ref(), name, AtFlags::empty()) {
            self.later(state, name.to_owned());
        }
    }

    /// Whether there is something left to delete.
    pub(crate) fn is_running(&self) -> bool {
        self.shared.names.lock().unwrap_or_else(PoisonError::into_inner).running
    }

    fn later(&self, state: &Arc<State>, name: String) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.shared.names.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(name);
        if queue.running {
            return;
        }
        queue.running = true;
        drop(queue);
        if let Some(ended) = thread.take() {
            // It has left its loop, so this does not wait.
            let _ = ended.join();
        }
        let (state, shared) = (Arc::clone(state), Arc::clone(&self.shared));
        match std::thread::Builder::new().name("sweep".to_owned()).spawn(move || shared.run(&state)) {
            Ok(started) => *thread = Some(started),
            // No thread to be had: the next removal tries again, or the next opening of the workspace.
            Err(_) => self.shared.names.lock().unwrap_or_else(PoisonError::into_inner).running = false,
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, state: &State) {
        loop {
            let name = {
                let mut queue = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                match queue.waiting.pop_front() {
                    Some(name) if !self.stop.load(Ordering::SeqCst) => name,
                    _ => {
                        queue.running = false;
                        return;
                    }
                }
            };
            // What is left stays in the state directory, where the next opening finds it.
            let _ = delete_tree(state, &name, &self.stop);
        }
    }
}

/// Deletes a directory of the state directory and all it holds.
pub(crate) fn delete_tree(state: &State, name: &str, stop: &AtomicBool) -> Result<(), Errno> {
    let mut turn = vec![name.to_owned()];
    while let Some(name) = turn.last().cloned() {
        if stop.load(Ordering::SeqCst) {
            return Err(Errno::INTR);
        }
        let mut risen = Vec::new();
        empty(state, &name, stop, &mut risen)?;
        fs::unlinkat(state, name.as_str(), AtFlags::REMOVEDIR)?;
        turn.pop();
        turn.append(&mut risen);
    }
    Ok(())
}

/// Empties one directory; those in it that are not empty come out under the names in `risen`.
fn empty(state: &State, name: &str, stop: &AtomicBool, risen: &mut Vec<String>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let directory = match open_beneath(state, name.as_bytes(), flags) {
        Err(Errno::ACCESS) => {
            // Ours, but closed to ourselves: its owner may open it again.
            fs::chmodat(state, name, Mode::RWXU, AtFlags::empty())?;
            open_beneath(state, name.as_bytes(), flags)?
        }
        other => other?,
    };
    // Deleting while listing may hide names from the listing, so it is listed until there is nothing left.
    loop {
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); NAMES_BUFFER_BYTES];
        let own = open_beneath(&directory, b".", flags)?;
        let mut listing = RawDir::new(own, &mut buffer);
        let mut seen = false;
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let bytes = entry.file_name();
            if matches!(bytes.to_bytes(), b"." | b"..") {
                continue;
            }
            if stop.load(Ordering::SeqCst) {
                return Err(Errno::INTR);
            }
            seen = true;
            delete_entry(state, &directory, bytes, risen)?;
        }
        if !seen {
            return Ok(());
        }
    }
}

fn delete_entry(
    state: &State,
    directory: impl AsFd,
    name: &std::ffi::CStr,
    risen: &mut Vec<String>,
) -> Result<(), Errno> {
    match fs::unlinkat(&directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::ACCESS) => {
            fs::fchmod(&directory, Mode::RWXU)?;
            return delete_entry_again(&directory, name);
        }
        Err(errno) => return Err(errno),
    }
    match fs::unlinkat(&directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let up = state.new_stage();
            fs::renameat(&directory, name, state, up.as_str())?;
            risen.push(up);
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// After the directory was opened to its owner again; what is a directory itself takes another listing.
fn delete_entry_again(directory: impl AsFd, name: &std::ffi::CStr) -> Result<(), Errno> {
    match fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno),
    }
}
