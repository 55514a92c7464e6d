//! The order of a search: which work is done next, by which thread, and in which order its results go out.
//!
//! ```text
//! pending: by key ──first──► thread (scan a run, or list a directory ──► more pending)
//!                               └──► done: by key ──first, once nothing before it is open──► emitter ──► sink
//! ```
//! A key is the path of a run's first file, or a directory's path and a `/`. Keys in byte order are path order, whatever
//! depth they are at, so the next result to go out is the smallest key of all. The thread that called is the emitter, and
//! works itself while it waits. Threads always take the smallest key that is open, so an early stop wastes little; they
//! stop taking any while the results waiting for the emitter fill their bound, all but the emitter, for which the first
//! key of all is always open. One task holds at most one answer's worth of results.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{
    Match, SearchEnd,
    file::{End, Outcome, Scratch, Search, Task},
};
use crate::{
    budget::{Sink, Spent},
    error::Fault,
    list::Stop,
    tree::Tree,
};

/// How long the emitter waits for a thread before it asks the budget again.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

struct Board<D> {
    /// Not begun.
    pending: BTreeMap<Vec<u8>, Task<D>>,
    /// Begun, and done where there is an outcome.
    begun: BTreeMap<Vec<u8>, Option<Outcome<D>>>,
    /// Bytes of all outcomes here.
    waiting_bytes: u64,
    /// Matches in them.
    waiting_count: usize,
}

pub(super) struct Schedule<'a, T: Tree> {
    search: &'a Search<'a, T>,
    board: Mutex<Board<T::Directory>>,
    changed: Condvar,
}

/// What the emitter does next.
enum Next<D> {
    /// Sends this.
    Send(Outcome<D>),
    /// Does this itself; it is marked as begun.
    Work(Vec<u8>, Task<D>),
    /// Looks again.
    Look,
    /// Nothing is left.
    End,
}

impl<'a, T: Tree> Schedule<'a, T> {
    pub(super) fn new(search: &'a Search<'a, T>, first: Outcome<T::Directory>) -> Self {
        let mut board = Board { pending: BTreeMap::new(), begun: BTreeMap::new(), waiting_bytes: 0, waiting_count: 0 };
        // Before every path.
        board.put(Vec::new(), first);
        Self { search, board: Mutex::new(board), changed: Condvar::new() }
    }

    /// Runs the search with so many threads, this one included.
    pub(super) fn run(
        &self,
        thread_count: usize,
        scratch: &mut Scratch,
        sink: &mut dyn Sink<Match>,
    ) -> Result<SearchEnd, Fault> {
        thread::scope(|scope| {
            let _over = Over(self);
            for _ in 1..thread_count {
                // With fewer threads the answer is the same.
                let spawned = thread::Builder::new().name("search".to_owned()).spawn_scoped(scope, || self.work());
                if spawned.is_err() {
                    break;
                }
            }
            self.emit(scratch, sink)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Board<T::Directory>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more may be found before what was found goes out: more than the answer takes is not worth finding.
    fn is_room(&self, board: &Board<T::Directory>) -> bool {
        board.waiting_bytes < self.search.limits.search_buffer_bytes_max as u64
            && board.waiting_count <= self.search.plan.match_count_max
    }

    /// What every thread but the emitter does.
    fn work(&self) {
        let mut scratch = Scratch::new(self.search.plan);
        loop {
            let (key, task) = {
                let mut board = self.lock();
                loop {
                    // Of time that is up the emitter finds out itself, between any two things that it does.
                    if self.search.ended().is_some() {
                        return;
                    }
                    if let Some(work) = self.is_room(&board).then(|| board.take()).flatten() {
                        break work;
                    }
                    board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.perform(key, task, &mut scratch);
        }
    }

    fn perform(&self, key: Vec<u8>, task: Task<T::Directory>, scratch: &mut Scratch) {
        let mut unfinished = Unfinished { schedule: self, key: Some(key) };
        let outcome = self.search.run(task, scratch);
        if let Some(key) = unfinished.key.take() {
            self.lock().put(key, outcome);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Next<T::Directory> {
        let mut board = self.lock();
        let first_begun = board.begun.first_key_value().map(|(key, outcome)| (key, outcome.is_some()));
        let first_pending = board.pending.keys().next();
        let is_begun_first = match (first_begun, first_pending) {
            (None, None) => return Next::End,
            (None, Some(_)) => false,
            (Some(_), None) => true,
            (Some((begun, _)), Some(pending)) => begun < pending,
        };
        if is_begun_first && first_begun.is_some_and(|(_, is_done)| is_done) {
            let Some((_, Some(outcome))) = board.begun.pop_first() else { return Next::Look };
            board.waiting_bytes = board.waiting_bytes.saturating_sub(outcome.bytes);
            board.waiting_count = board.waiting_count.saturating_sub(outcome.match_count());
            // There may be room again for what waits.
            self.changed.notify_all();
            return Next::Send(outcome);
        }
        // The first key of all is begun by nobody, or there is room for more to wait behind it.
        if (!is_begun_first || self.is_room(&board))
            && let Some((key, task)) = board.take()
        {
            return Next::Work(key, task);
        }
        let waited = self.changed.wait_timeout(board, ASK_INTERVAL);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Next::Look
    }

    fn emit(&self, scratch: &mut Scratch, sink: &mut dyn Sink<Match>) -> Result<SearchEnd, Fault> {
        let mut tally = Tally::default();
        loop {
            let next = self.next();
            // What is done and in order goes out even when time is up.
            if let (Next::Work(..) | Next::Look, Some(end)) = (&next, self.search.ended()) {
                return tally.ended(end);
            }
            match next {
                Next::End => return Ok(tally.all),
                Next::Work(key, task) => self.perform(key, task, scratch),
                Next::Look => {}
                Next::Send(outcome) => {
                    if let Some(end) = self.send(outcome, &mut tally, sink)? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// Sends what came of one task; says how the search ends, if it ends here.
    fn send(
        &self,
        outcome: Outcome<T::Directory>,
        tally: &mut Tally,
        sink: &mut dyn Sink<Match>,
    ) -> Result<Option<SearchEnd>, Fault> {
        let plan = self.search.plan;
        if let Some((first, _)) = outcome.steps.iter().find_map(|step| step.matches.first()) {
            // All of it was read before this.
            self.search.tree.verify().map_err(|error| Fault::at(&first.path, error))?;
        }
        for step in outcome.steps {
            tally.all.files_scanned += step.files_scanned;
            tally.all.skipped.add(step.skipped);
            for (found, size) in step.matches {
                if tally.match_count >= plan.match_count_max as u64 {
                    return Ok(Some(tally.stopped(Stop::Matches)));
                }
                if tally.bytes.saturating_add(size) > self.search.limits.search_result_bytes_max {
                    return Ok(Some(tally.stopped(Stop::Bytes)));
                }
                if sink.push(found).is_break() {
                    return Err(Fault::Gone);
                }
                tally.match_count += 1;
                tally.bytes += size;
                tally.at_last_match.clone_from(&tally.all);
            }
        }
        outcome.end.map(|end| tally.ended(end)).transpose()
    }
}

/// What went out so far.
#[derive(Default)]
struct Tally {
    match_count: u64,
    bytes: u64,
    /// Of all that was looked at.
    all: SearchEnd,
    /// Up to the file that holds the last match that went out.
    at_last_match: SearchEnd,
}

impl Tally {
    /// What lies behind the last match is the look-ahead, which threads and luck decide.
    fn stopped(&mut self, stop: Stop) -> SearchEnd {
        SearchEnd { stop: Some(stop), ..self.at_last_match.clone() }
    }

    fn ended(&self, end: End) -> Result<SearchEnd, Fault> {
        match end {
            End::Spent(Spent::Time | Spent::Deadline) => Ok(SearchEnd { stop: Some(Stop::Budget), ..self.all.clone() }),
            End::Spent(Spent::Gone) => Err(Fault::Gone),
            End::Fault(fault) => Err(fault),
            // Only the emitter ends a search, and what one answer cannot hold is cut off before.
            End::Over | End::Full => Err(Fault::Internal("a search went on behind its end")),
        }
    }
}

impl<D> Board<D> {
    /// Begins the first open task.
    fn take(&mut self) -> Option<(Vec<u8>, Task<D>)> {
        let (key, task) = self.pending.pop_first()?;
        self.begun.insert(key.clone(), None);
        Some((key, task))
    }

    fn put(&mut self, key: Vec<u8>, mut outcome: Outcome<D>) {
        self.pending.extend(std::mem::take(&mut outcome.tasks));
        self.waiting_bytes = self.waiting_bytes.saturating_add(outcome.bytes);
        self.waiting_count = self.waiting_count.saturating_add(outcome.match_count());
        self.begun.insert(key, Some(outcome));
    }
}

/// Ends all threads, however the emitter ends.
struct Over<'a, 'b, T: Tree>(&'a Schedule<'b, T>);

impl<T: Tree> Drop for Over<'_, '_, T> {
    fn drop(&mut self) {
        // Under the lock, so that no thread looks before and sleeps after.
        let _board = self.0.lock();
        self.0.search.is_over.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

/// A task that is being done; if that panics, the emitter is told instead of waiting for ever.
struct Unfinished<'a, 'b, T: Tree> {
    schedule: &'a Schedule<'b, T>,
    key: Option<Vec<u8>>,
}

impl<T: Tree> Drop for Unfinished<'_, '_, T> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let end = Some(End::Fault(Fault::Internal("a thread of a search panicked")));
            self.schedule.lock().put(key, Outcome { end, ..Outcome::new() });
            self.schedule.changed.notify_all();
        }
    }
}
