//! Whose search works now: as many pieces of work at once as the host has processors, handed out to the workspaces in
//! turn, so that a search over a hundred files does not stand behind the many searches of another workspace.
//!
//! ```text
//! take ──a slot is free──────────────────────────────► granted ──give──► the next workspace's first in line
//!   └──► waiting: by workspace, in line ──its turn───────┘
//! ```
//! A piece takes milliseconds. One that takes longer than the patience is stuck in its file system and no longer counts,
//! so that a tree which hangs does not hold up the others.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use dormouse_files::search;

/// A turn that lasts longer is not waited for.
const PATIENCE: Duration = Duration::from_millis(250);

/// The host's turns. Cheap to clone.
#[derive(Clone)]
pub struct Turns {
    inner: Arc<Inner>,
}

/// A workspace's part in them.
pub struct WorkspaceTurns {
    inner: Arc<Inner>,
    workspace: String,
}

struct Inner {
    slot_count: usize,
    patience: Duration,
    state: Mutex<State>,
    /// Told when nobody holds a turn any more.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Turns that are held, by their number.
    held: BTreeMap<u64, Instant>,
    /// Workspaces that wait, the next one first; each with those of it that wait.
    waiting: VecDeque<(String, VecDeque<(u64, Thread)>)>,
}

impl Turns {
    /// As many at once as there are processors.
    pub fn new() -> Self {
        Self::with(thread::available_parallelism().map_or(2, usize::from), PATIENCE)
    }

    fn with(slot_count: usize, patience: Duration) -> Self {
        Self { inner: Arc::new(Inner { slot_count, patience, state: Mutex::default(), idle: Condvar::new() }) }
    }

    /// Those of a workspace.
    pub fn of(&self, workspace: &str) -> WorkspaceTurns {
        WorkspaceTurns { inner: self.inner.clone(), workspace: workspace.to_owned() }
    }

    /// Waits until no search works, but not longer than this.
    pub fn wait_idle(&self, at_most: Duration) {
        let mut state = self.inner.lock();
        let until = Instant::now() + at_most;
        while !state.held.is_empty() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            state = self.inner.idle.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out what is free.
    fn serve(&self, state: &mut State) {
        let now = Instant::now();
        let counts = |since: &&Instant| now.saturating_duration_since(**since) < self.patience;
        let mut busy = state.held.values().filter(counts).count();
        while busy < self.slot_count {
            let Some((workspace, mut line)) = state.waiting.pop_front() else { return };
            if let Some((number, thread)) = line.pop_front() {
                state.held.insert(number, now);
                busy += 1;
                thread.unpark();
            }
            if !line.is_empty() {
                state.waiting.push_back((workspace, line));
            }
        }
    }
}

impl search::Turns for WorkspaceTurns {
    fn take(&self) -> u64 {
        let number = {
            let mut state = self.inner.lock();
            let number = state.next;
            state.next += 1;
            let me = (number, thread::current());
            match state.waiting.iter_mut().find(|(workspace, _)| *workspace == self.workspace) {
                Some((_, line)) => line.push_back(me),
                None => state.waiting.push_back((self.workspace.clone(), VecDeque::from([me]))),
            }
            self.inner.serve(&mut state);
            number
        };
        loop {
            {
                let mut state = self.inner.lock();
                // One who held a turn may have lost its claim meanwhile.
                self.inner.serve(&mut state);
                if state.held.contains_key(&number) {
                    return number;
                }
            }
            thread::park_timeout(self.inner.patience);
        }
    }

    fn give(&self, number: u64) {
        let mut state = self.inner.lock();
        state.held.remove(&number);
        self.inner.serve(&mut state);
        if state.held.is_empty() {
            self.inner.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use dormouse_files::search::Turns as _;

    use super::*;

    /// Waits for an event, not for a time.
    fn until(turns: &Turns, waiting: usize) {
        while turns.inner.lock().waiting.iter().map(|(_, line)| line.len()).sum::<usize>() != waiting {
            thread::yield_now();
        }
    }

    #[test]
    fn workspaces_are_served_in_turn_however_many_wait_of_one() {
        let turns = Turns::with(1, Duration::from_secs(3_600));
        let first = turns.of("z");
        let number = first.take();
        let (served, order) = mpsc::channel();
        let threads: Vec<_> = ["a", "a", "a", "a", "b", "b", "c"]
            .into_iter()
            .enumerate()
            .map(|(index, workspace)| {
                let (mine, served) = (turns.of(workspace), served.clone());
                let thread = thread::spawn(move || {
                    let number = mine.take();
                    served.send(workspace).unwrap();
                    mine.give(number);
                });
                until(&turns, index + 1);
                thread
            })
            .collect();
        first.give(number);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(served);
        assert_eq!(order.iter().collect::<Vec<_>>(), ["a", "b", "c", "a", "b", "a", "a"]);
        let state = turns.inner.lock();
        assert!(state.held.is_empty() && state.waiting.is_empty());
    }

    #[test]
    fn no_more_work_at_once_than_there_are_slots() {
        let turns = Turns::with(2, Duration::from_secs(3_600));
        let mine = turns.of("a");
        let numbers = [mine.take(), mine.take()];
        let third = thread::spawn({
            let other = turns.of("b");
            move || other.take()
        });
        until(&turns, 1);
        assert_eq!(turns.inner.lock().held.len(), 2);
        mine.give(numbers[0]);
        assert!(third.join().unwrap() > numbers[1]);
    }

    #[test]
    fn who_hangs_is_not_waited_for() {
        let turns = Turns::with(1, Duration::ZERO);
        let hangs = turns.of("a").take();
        // Would wait for ever if the first one still counted.
        let goes_on = turns.of("b").take();
        assert_ne!(hangs, goes_on);
        turns.wait_idle(Duration::ZERO);
        turns.of("a").give(hangs);
        turns.of("b").give(goes_on);
        turns.wait_idle(Duration::from_secs(3_600));
    }
}
