//! Displaced files that linger: when each may go, and who sees to it.
//!
//! ```text
//! change ──add──► lingers ──its time is up, the journal durable──► taken by the thread
//!                    └─ too many, or their space is needed ──────► taken by a change itself
//! ```
//! The thread keeps the work off the way of a change's answer. It begins when the first file may go one day and ends when
//! there is none left, so an idle workspace has none. It takes all whose time is up a few times a second and not each at
//! its moment: whatever is deleted between two changes is part of the next one's flush, and many files of one directory
//! cost a flush little more than one.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    displaced::{Displaced, Watched},
    ledger::Ticket,
    limits::LiveLimits,
    state::State,
};

/// Between two rounds of the thread.
const PAUSE: Duration = Duration::from_millis(250);

/// Whether those that linger must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Until their time, or until there are too many.
    Linger,
    /// Their space is needed, or there is no later.
    Now,
}

/// Everything that was displaced and is still there. Shared by the changes and the thread.
pub(crate) struct Lingering {
    queues: Mutex<Queues>,
    /// The thread is to stop.
    stopped: Condvar,
    /// All that was taken has been dealt with.
    dealt: Condvar,
    lingering: Duration,
    count_max: usize,
    bytes_max: u64,
}

/// The oldest first in each. As long as the calls since the last flush, and those that linger.
#[derive(Default)]
struct Queues {
    unwatched: VecDeque<(Ticket, String)>,
    watched: VecDeque<Waiting>,
    watched_bytes: u64,
    /// Up to here the journal is known to be durable.
    flushed: Ticket,
    /// Files that were taken and are not dealt with yet.
    taken_count: usize,
    /// Somebody waits until they are.
    is_awaited: bool,
    has_thread: bool,
    stop: bool,
}

struct Waiting {
    ticket: Ticket,
    since: Instant,
    name: String,
    watched: Watched,
}

/// The thread, which ends before this does.
#[derive(Default)]
pub(crate) struct Caretaker(Mutex<Option<JoinHandle<()>>>);

/// A file that is to be dealt with now.
pub(crate) struct Taken<'a> {
    pub(crate) displaced: Displaced,
    lingering: &'a Lingering,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut queues = self.lingering.queues();
        queues.taken_count -= 1;
        if queues.taken_count == 0 && queues.is_awaited {
            self.lingering.dealt.notify_all();
        }
    }
}

impl Lingering {
    pub(crate) fn new(limits: &LiveLimits) -> Self {
        Self {
            queues: Mutex::default(),
            stopped: Condvar::new(),
            dealt: Condvar::new(),
            lingering: limits.lingering,
            count_max: limits.lingering_count_max,
            bytes_max: limits.lingering_bytes_max,
        }
    }

    /// May go when the journal is durable up to this ticket.
    pub(crate) fn add(&self, displaced: Displaced, ticket: Ticket) {
        let mut queues = self.queues();
        let Displaced { name, watched } = displaced;
        match watched {
            None => queues.unwatched.push_back((ticket, name)),
            Some(watched) => {
                queues.watched_bytes = queues.watched_bytes.saturating_add(watched.size_bytes());
                queues.watched.push_back(Waiting { ticket, since: Instant::now(), name, watched });
            }
        }
    }

    /// The journal is durable up to here.
    pub(crate) fn flushed(&self, ticket: Ticket) {
        let mut queues = self.queues();
        queues.flushed = queues.flushed.max(ticket);
    }

    /// What a change is to deal with itself: what nobody watches, what is too many, and in haste everything.
    pub(crate) fn take(&self, haste: Haste) -> Option<Taken<'_>> {
        let mut queues = self.queues();
        let flushed = queues.flushed;
        if queues.unwatched.front().is_some_and(|(ticket, _)| *ticket <= flushed) {
            let (_, name) = queues.unwatched.pop_front()?;
            return Some(self.taken(&mut queues, Displaced { name, watched: None }));
        }
        let too_many = queues.watched.len() > self.count_max || queues.watched_bytes > self.bytes_max;
        let must_go = haste == Haste::Now || too_many || self.lingering.is_zero();
        if must_go { self.take_watched(&mut queues) } else { None }
    }

    /// For the thread: what has lingered, waiting for it; nothing when there is none left, or it is to stop.
    pub(crate) fn take_in_time(&self, state: &State) -> Option<Taken<'_>> {
        let mut queues = self.queues();
        loop {
            let goes_on = !queues.stop && state.steps.may_tidy() && !state.has_failed();
            let front = queues.watched.front().filter(|front| goes_on && front.ticket <= queues.flushed);
            let Some(front) = front else {
                queues.has_thread = false;
                return None;
            };
            let left = self.lingering.saturating_sub(front.since.elapsed());
            if left.is_zero() {
                return self.take_watched(&mut queues);
            }
            queues = self.stopped.wait_timeout(queues, left.max(PAUSE)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn take_watched(&self, queues: &mut Queues) -> Option<Taken<'_>> {
        if queues.watched.front()?.ticket > queues.flushed {
            return None;
        }
        let Waiting { name, watched, .. } = queues.watched.pop_front()?;
        queues.watched_bytes = queues.watched_bytes.saturating_sub(watched.size_bytes());
        Some(self.taken(queues, Displaced { name, watched: Some(watched) }))
    }

    fn taken(&self, queues: &mut Queues, displaced: Displaced) -> Taken<'_> {
        queues.taken_count += 1;
        Taken { displaced, lingering: self }
    }

    /// Waits until whatever was taken is dealt with; whether there was anything.
    pub(crate) fn wait_for_taken(&self) -> bool {
        let mut queues = self.queues();
        let has_any = queues.taken_count > 0;
        while queues.taken_count > 0 {
            queues.is_awaited = true;
            queues = self.dealt.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.is_awaited = false;
        has_any
    }

    /// Lets the thread stop.
    pub(crate) fn stop(&self) {
        self.queues().stop = true;
        self.stopped.notify_all();
    }

    /// Whether a thread is to be started; whoever is told so starts it, or says that there is none.
    pub(crate) fn wants_thread(&self) -> bool {
        let mut queues = self.queues();
        let has_any = queues.watched.front().is_some_and(|front| front.ticket <= queues.flushed);
        let wants = has_any && !queues.has_thread && !queues.stop;
        queues.has_thread |= wants;
        wants
    }

    /// None was to be had: the next change tries again, and deals itself with what is too many.
    pub(crate) fn has_no_thread(&self) {
        self.queues().has_thread = false;
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Each change of it is one step, so a panic elsewhere leaves it whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caretaker {
    /// Starts the thread; an earlier one has left its loop. Whether there is one to be had.
    pub(crate) fn start(&self, run: impl FnOnce() + Send + 'static) -> bool {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = thread.take() {
            // It has left its loop, so this does not wait.
            let _ = ended.join();
        }
        *thread = std::thread::Builder::new().name("linger".to_owned()).spawn(run).ok();
        thread.is_some()
    }

    /// Waits for the thread, which has been told to stop.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
