//! What was asked and how it ended: every key that is in flight, was done, or was refused for good, and the journal that
//! makes the first two survive a power cut.
//!
//! ```text
//! (free) ──claim──► busy ──done──────► done     kept at least `key_retention`
//!                    │ └──refuse─────► refused  in memory only
//!                    └──dropped──────► (free)
//! ```
//! The same key with another request is refused; the same key at the same time waits for the first. Records are appended
//! under the lock; flushing is done outside it, by one caller for all who wait. Before it flushes it gathers: it waits, for a
//! short time, for those calls that are about to append an intent. A lone call waits for nobody.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::BorrowedFd,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use dormouse_files::{
    Fault,
    budget::{Budget, Spent},
    change::Key,
    path::TreePath,
};

use crate::{
    fail::Disk,
    journal::{Journal, RestartError},
    limits::LiveLimits,
    record::{Answer, Done, Intent, Record},
    workspace::Stats,
};

/// Refusals that are remembered.
const REFUSAL_COUNT_MAX: usize = 4096;
/// How often a caller that waits for another asks its budget.
const WAIT_STEP: Duration = Duration::from_millis(20);
/// What an open intent's end may take: its `Done` is shorter than the intent itself, its `Abort` much shorter.
const END_BYTES: u64 = 128;

/// The keys and the journal of one workspace.
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
    /// A key is no longer in flight.
    turned: Condvar,
    /// A flush has ended.
    flush_ended: Condvar,
    /// All that the next flush waits for have come.
    gathered: Condvar,
    disk: Disk,
    gather: Duration,
    gather_count_max: u64,
    retention_seconds: u64,
    retention_max_seconds: u64,
}

struct Inner {
    slots: HashMap<String, Slot>,
    /// Keys that were done, the oldest first.
    done: VecDeque<String>,
    /// Keys that were refused, the oldest first.
    refused: VecDeque<String>,
    /// Encoded intents that have not ended, by key.
    open: HashMap<String, Vec<u8>>,
    /// Bytes to be left for how they end.
    reserved_bytes: u64,
    journal: Journal,
    appended: u64,
    flushed: u64,
    flushing: bool,
    /// Calls that have begun to stage something, and those of them whose intent was appended or that came to nothing.
    staging_begun: u64,
    staging_ended: u64,
    /// How many must have ended for the one who gathers to go on; 0 where nobody gathers.
    gather_until: u64,
    broken: bool,
    stats: Stats,
}

enum Slot {
    Busy { request: [u8; 32] },
    Done { done: Done },
    Refused { request: [u8; 32], fault: Fault },
}

impl Slot {
    fn request(&self) -> &[u8; 32] {
        match self {
            Self::Busy { request } | Self::Refused { request, .. } => request,
            Self::Done { done } => &done.request,
        }
    }
}

/// What a key turned out to be.
pub(crate) enum Claimed<'a> {
    /// Nothing is known of it: go on.
    Fresh(Claim<'a>),
    /// It was done.
    Answered(Answer),
}

/// A key that is in flight; free again when dropped before [`Claim::done`] or [`Claim::refuse`].
pub(crate) struct Claim<'a> {
    ledger: &'a Ledger,
    key: Key,
    settled: bool,
    staging: bool,
}

/// A place in the journal; durable once the journal was flushed up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ledger {
    /// Reads the journal in the state directory; `settle` is asked how each intent that has not ended turns out, and makes
    /// it so. When this returns, what it said is durable.
    pub(crate) fn open(
        directory: BorrowedFd<'_>,
        disk: &Disk,
        limits: &LiveLimits,
        mut settle: impl FnMut(&Intent) -> io::Result<Option<Answer>>,
    ) -> io::Result<Self> {
        let (journal, records) = Journal::open(directory, limits.journal_bytes_max)?;
        let mut open: HashMap<String, Intent> = HashMap::new();
        let mut order: Vec<String> = Vec::new();
        let mut dones: Vec<Done> = Vec::new();
        for bytes in records {
            // The checksum holds, so bytes that do not decode were written by a newer agent: going on would forget keys.
            let record = Record::decode(&bytes).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the journal holds a record of unknown form")
            })?;
            match record {
                Record::Intent(intent) => {
                    order.push(intent.key.clone());
                    open.insert(intent.key.clone(), intent);
                }
                Record::Done(done) => {
                    open.remove(&done.key);
                    dones.push(done);
                }
                Record::Abort { key } => {
                    open.remove(&key);
                }
            }
        }
        for key in order {
            let Some(intent) = open.remove(&key) else { continue };
            if let Some(answer) = settle(&intent)? {
                dones.push(Done { key: intent.key, request: intent.request, at: intent.at, answer });
            }
        }
        let ledger = Self {
            inner: Mutex::new(Inner {
                slots: HashMap::new(),
                done: VecDeque::new(),
                refused: VecDeque::new(),
                open: HashMap::new(),
                reserved_bytes: 0,
                journal,
                appended: 0,
                flushed: 0,
                flushing: false,
                staging_begun: 0,
                staging_ended: 0,
                gather_until: 0,
                broken: false,
                stats: Stats::default(),
            }),
            turned: Condvar::new(),
            flush_ended: Condvar::new(),
            gathered: Condvar::new(),
            disk: disk.clone(),
            gather: limits.gather,
            gather_count_max: limits.gather_count_max,
            retention_seconds: limits.key_retention.as_secs(),
            retention_max_seconds: limits.key_retention_max.as_secs().max(limits.key_retention.as_secs()),
        };
        {
            let mut inner = ledger.lock();
            dones.sort_by_key(|done| done.at);
            for done in dones {
                inner.keep(done);
            }
            match ledger.restart(&mut inner, 0) {
                Ok(()) => {}
                Err(RestartError::Full) => return Err(io::Error::from(io::ErrorKind::OutOfMemory)),
                Err(RestartError::Io(error)) => return Err(error),
            }
        }
        Ok(ledger)
    }

    /// What is known of a key, without claiming it and without waiting.
    ///
    /// # Errors
    /// `KeyReused`, and a refusal that is remembered.
    pub(crate) fn peek(&self, key: &Key) -> Result<Option<Answer>, Fault> {
        match self.lock().slots.get(key.text()) {
            None => Ok(None),
            Some(slot) if slot.request() != key.request() => Err(Fault::KeyReused),
            Some(Slot::Busy { .. }) => Ok(None),
            Some(Slot::Done { done }) => Ok(Some(done.answer.clone())),
            Some(Slot::Refused { fault, .. }) => Err(remembered(fault).unwrap_or(Fault::KeyReused)),
        }
    }

    /// Takes the key for one call, waiting while another call of the same request has it.
    ///
    /// # Errors
    /// `KeyReused`, a refusal that is remembered, and what the budget says while waiting.
    pub(crate) fn claim(&self, key: &Key, budget: &dyn Budget) -> Result<Claimed<'_>, Fault> {
        let mut inner = self.lock();
        inner.forget_older_than(now().saturating_sub(self.retention_max_seconds));
        loop {
            match inner.slots.get(key.text()) {
                None => break,
                Some(slot) if slot.request() != key.request() => return Err(Fault::KeyReused),
                Some(Slot::Done { done }) => return Ok(Claimed::Answered(done.answer.clone())),
                Some(Slot::Refused { fault, .. }) => return Err(remembered(fault).unwrap_or(Fault::KeyReused)),
                Some(Slot::Busy { .. }) => {}
            }
            match budget.spent() {
                Some(Spent::Gone) => return Err(Fault::Gone),
                Some(Spent::Time | Spent::Deadline) => return Err(Fault::DeadlineExceeded),
                None => {}
            }
            inner = self.turned.wait_timeout(inner, WAIT_STEP).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.slots.insert(key.text().to_owned(), Slot::Busy { request: *key.request() });
        Ok(Claimed::Fresh(Claim { ledger: self, key: key.clone(), settled: false, staging: false }))
    }

    /// Makes durable what was appended up to this ticket. One caller flushes for all that wait.
    pub(crate) fn flush(&self, ticket: Ticket) -> io::Result<()> {
        let mut inner = self.lock();
        loop {
            if inner.broken {
                return Err(broken());
            }
            if inner.flushed >= ticket.0 {
                return Ok(());
            }
            if inner.flushing {
                inner = self.flush_ended.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            inner.flushing = true;
            inner = self.gather(inner);
            let (upto, file) = (inner.appended, inner.journal.file());
            drop(inner);
            let result = self.disk.check().map_err(io::Error::from).and_then(|()| file.sync_data());
            inner = self.lock();
            inner.flushing = false;
            inner.stats.journal_flushes += 1;
            match result {
                Ok(()) => inner.flushed = inner.flushed.max(upto),
                // The kernel may have dropped what it could not write: a second flush would lie (fsync(2)).
                Err(_) => inner.broken = true,
            }
            self.flush_ended.notify_all();
            result?;
        }
    }

    /// Waits for those who are staging something now, as many as may be, and as long as may be.
    fn gather<'a>(&self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        let coming = (inner.staging_begun - inner.staging_ended).min(self.gather_count_max);
        inner.gather_until = inner.staging_ended + coming;
        let until = Instant::now() + self.gather;
        while inner.staging_ended < inner.gather_until {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            inner = self.gathered.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.gather_until = 0;
        inner
    }

    /// Whether its disk has failed: what was appended may be durable or not, and nobody can find out but a recovery.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// What it has counted.
    pub(crate) fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// Everything up to here is durable.
    pub(crate) fn flushed(&self) -> Ticket {
        Ticket(self.lock().flushed)
    }

    /// Everything that was appended.
    pub(crate) fn appended(&self) -> Ticket {
        Ticket(self.lock().appended)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No call between two changes of it can panic half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a record and for how it ends; begins a new generation where there is none.
    fn make_room(&self, inner: &mut Inner, bytes: u64, path: &TreePath) -> Result<(), Fault> {
        if inner.broken {
            return Err(Fault::Io { path: path.clone(), source: broken() });
        }
        let room = bytes.saturating_add(inner.reserved_bytes);
        if inner.journal.fits(room) {
            return Ok(());
        }
        match self.restart(inner, room) {
            Ok(()) => {
                inner.flushed = inner.appended;
                self.flush_ended.notify_all();
                Ok(())
            }
            Err(RestartError::Full) => Err(Fault::Overloaded { what: "idempotency keys" }),
            Err(RestartError::Io(error)) if error.kind() == io::ErrorKind::StorageFull => {
                Err(Fault::DiskFull { path: path.clone() })
            }
            Err(RestartError::Io(source)) => {
                inner.broken = true;
                Err(Fault::Io { path: path.clone(), source })
            }
        }
    }

    /// A new generation with what still counts; where it would not fit, the oldest keys that may go are forgotten.
    fn restart(&self, inner: &mut Inner, room: u64) -> Result<(), RestartError> {
        let may_go = now().saturating_sub(self.retention_seconds);
        loop {
            let records = inner.records();
            match inner.journal.restart(&records, room) {
                Err(RestartError::Full) => {}
                other => return other,
            }
            // An eighth at a time, so that a full journal is not written once for each key.
            let before = inner.done.len();
            inner.forget_oldest((before / 8).max(1), may_go);
            if inner.done.len() == before {
                return Err(RestartError::Full);
            }
        }
    }
}

impl Inner {
    fn append(&mut self, record: &[u8]) -> io::Result<Ticket> {
        if let Err(error) = self.journal.append(record) {
            self.broken = true;
            return Err(error);
        }
        self.appended += 1;
        Ok(Ticket(self.appended))
    }

    fn keep(&mut self, done: Done) {
        self.done.push_back(done.key.clone());
        self.slots.insert(done.key.clone(), Slot::Done { done });
    }

    fn records(&self) -> Vec<Vec<u8>> {
        let done = self.done.iter().filter_map(|key| match self.slots.get(key) {
            Some(Slot::Done { done }) => Some(Record::Done(done.clone()).encode()),
            _ => None,
        });
        done.chain(self.open.values().cloned()).collect()
    }

    fn forget_older_than(&mut self, moment: u64) {
        self.forget_oldest(usize::MAX, moment);
    }

    fn forget_oldest(&mut self, count: usize, older_than: u64) {
        for _ in 0..count {
            let Some(key) = self.done.front() else { return };
            if let Some(Slot::Done { done }) = self.slots.get(key) {
                if done.at >= older_than {
                    return;
                }
                self.slots.remove(&done.key.clone());
            }
            self.done.pop_front();
        }
    }
}

impl Claim<'_> {
    /// The key that was claimed.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// An intent of this key is on its way: who is about to flush waits for it a little.
    pub(crate) fn begin_staging(&mut self) {
        if !self.staging {
            self.staging = true;
            self.ledger.lock().staging_begun += 1;
        }
    }

    fn end_staging(&mut self, inner: &mut Inner) {
        if self.staging {
            self.staging = false;
            inner.staging_ended += 1;
            if inner.staging_ended == inner.gather_until {
                self.ledger.gathered.notify_all();
            }
        }
    }

    /// Makes an intent durable.
    ///
    /// # Errors
    /// `Overloaded` where no key may be forgotten for it, `DiskFull`, and `Io` where the journal's disk fails.
    pub(crate) fn intend(&mut self, intent: Intent, path: &TreePath) -> Result<(), Fault> {
        let bytes = Record::Intent(intent).encode();
        let space = Journal::space_of(bytes.len());
        let ledger = self.ledger;
        let ticket = {
            let mut inner = ledger.lock();
            ledger.make_room(&mut inner, space.saturating_mul(2).saturating_add(END_BYTES), path)?;
            let ticket = inner.append(&bytes).map_err(|source| Fault::Io { path: path.clone(), source })?;
            inner.reserved_bytes += space + END_BYTES;
            inner.stats.intents += 1;
            self.end_staging(&mut inner);
            inner.open.insert(self.key.text().to_owned(), bytes);
            ticket
        };
        self.ledger.flush(ticket).map_err(|source| Fault::Io { path: path.clone(), source })
    }

    /// The intent came to nothing; durable when this returns, so that what was staged may go.
    pub(crate) fn abort(&mut self) -> io::Result<()> {
        let ticket = {
            let mut inner = self.ledger.lock();
            let ticket = inner.append(&Record::Abort { key: self.key.text().to_owned() }.encode())?;
            self.close(&mut inner);
            ticket
        };
        self.ledger.flush(ticket)
    }

    /// It was done: from now on this is the key's answer. Durable with the next flush.
    pub(crate) fn done(mut self, answer: Answer, path: &TreePath) -> Result<Ticket, Fault> {
        let done = Done { key: self.key.text().to_owned(), request: *self.key.request(), at: now(), answer };
        let bytes = Record::Done(done.clone()).encode();
        let mut inner = self.ledger.lock();
        if !inner.open.contains_key(self.key.text()) {
            // Nothing was reserved, since there was no intent.
            self.ledger.make_room(&mut inner, Journal::space_of(bytes.len()), path)?;
        }
        let ticket = inner.append(&bytes).map_err(|source| Fault::Io { path: path.clone(), source })?;
        self.close(&mut inner);
        inner.keep(done);
        drop(inner);
        self.settled = true;
        self.ledger.turned.notify_all();
        Ok(ticket)
    }

    /// It was refused, and would be again: whoever sends it again is told the same while this agent runs.
    pub(crate) fn refuse(mut self, fault: &Fault) {
        let Some(fault) = remembered(fault) else { return };
        let mut inner = self.ledger.lock();
        let key = self.key.text().to_owned();
        inner.slots.insert(key.clone(), Slot::Refused { request: *self.key.request(), fault });
        inner.refused.push_back(key);
        if inner.refused.len() > REFUSAL_COUNT_MAX
            && let Some(oldest) = inner.refused.pop_front()
            && matches!(inner.slots.get(&oldest), Some(Slot::Refused { .. }))
        {
            inner.slots.remove(&oldest);
        }
        drop(inner);
        self.settled = true;
        self.ledger.turned.notify_all();
    }

    fn close(&self, inner: &mut Inner) {
        if let Some(bytes) = inner.open.remove(self.key.text()) {
            inner.reserved_bytes = inner.reserved_bytes.saturating_sub(Journal::space_of(bytes.len()) + END_BYTES);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let ledger = self.ledger;
        if !self.settled || self.staging {
            let mut inner = ledger.lock();
            self.end_staging(&mut inner);
            if !self.settled {
                inner.slots.remove(self.key.text());
                ledger.turned.notify_all();
            }
        }
    }
}

/// A refusal that the same request on the same files would meet again, for keeping; nothing of any other failure.
fn remembered(fault: &Fault) -> Option<Fault> {
    Some(match fault {
        Fault::RevisionMismatch { path, expected, actual } => {
            Fault::RevisionMismatch { path: path.clone(), expected: *expected, actual: *actual }
        }
        Fault::EditNoMatch { path, edit_index, diagnosis } => {
            Fault::EditNoMatch { path: path.clone(), edit_index: *edit_index, diagnosis: diagnosis.clone() }
        }
        Fault::EditNotUnique { path, edit_index, occurrences, lines } => Fault::EditNotUnique {
            path: path.clone(),
            edit_index: *edit_index,
            occurrences: *occurrences,
            lines: lines.clone(),
        },
        _ => return None,
    })
}

/// Seconds since 1970; 0 where the clock says less.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn broken() -> io::Error {
    io::Error::other("an earlier flush of the journal failed")
}

#[cfg(test)]
mod tests;
