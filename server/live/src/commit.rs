//! Putting what is staged into place: one exchange or one rename, looked at afterwards, and taken back where what it
//! displaced was not what had been read.
//!
//! ```text
//! lease ─► still the base? ─► exchange ─► the base displaced, lease whole? ─► flush ─► lease still whole? ─► done
//!   │            └─ no: Changed               └─ no: exchange back  ◄──────────────── no ─┘
//!   └─ a writer has it open: try again, and Busy after some tries
//! ```
//! A read lease keeps everybody from opening the file for writing. Who wanted to while the exchange was made would go on
//! with the displaced file, so the exchange is taken back before the lease is released. It is held until the directories
//! are flushed: who opens the file by its name meets the new one and does not wait; only who had looked the name up before
//! the exchange does. A process that renames a file of its own over the name is noticed by the inode of what was displaced.
//!
//! What no call of the kernel prevents: where such a rename falls between the last look at the name and the exchange, two
//! system calls apart, the name shows the patch of the older content until that is taken back, some microseconds later.
//!
//! Nothing here knows keys or the journal.

use std::{fs::File, io, thread, time::Duration};

use dormouse_files::{
    Fault,
    path::TreePath,
    revision::{Hasher, Revision},
};
use dormouse_lease::{ReadLease, Refused};
use rustix::{
    fs::{self, AtFlags, RenameFlags},
    io::Errno,
};

use crate::{displaced::Settled, errno::fault, fail::Rule, locate::Place, read, state::State, tree::Identity};

/// Tries to get a lease, and to exchange under a whole one.
const LEASE_ATTEMPT_COUNT_MAX: u32 = 20;
/// Between two of them, doubled each time up to the longest: a writer is given time to close the file.
const LEASE_PAUSE_MIN: Duration = Duration::from_micros(100);
const LEASE_PAUSE_MAX: Duration = Duration::from_millis(10);
/// Exchanges back and forth with a process that renames over the same name, before it is taken for an endless fight.
const ROLL_BACK_COUNT_MAX: u32 = 64;
/// Bytes read at a time while comparing.
const COMPARE_PIECE_BYTES: usize = 64 << 10;
/// Bytes read at a time while hashing: as many as the file has, within these bounds.
const HASH_PIECE_BYTES_MIN: usize = 4 << 10;
const HASH_PIECE_BYTES_MAX: usize = 256 << 10;

/// The file that is to be replaced, as it was read.
pub(crate) struct Base {
    pub(crate) file: File,
    pub(crate) identity: Identity,
    pub(crate) revision: Revision,
    pub(crate) known: Known,
}

/// By what the base is known again at the commit.
pub(crate) enum Known {
    /// Its bytes: the quickest, and the lease is the shorter for it.
    Content(Vec<u8>),
    /// Its revision, computed once more.
    Revision,
    /// Its size and times, for a large file of which nothing was expected.
    Stamp(Stamp),
}

/// What changes when a file is written in place: size, and times down to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    size: i64,
    modified: (i64, u64),
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "the types of stat(2) differ between architectures")]
    pub(crate) fn of(stat: &fs::Stat) -> Self {
        Self { size: stat.st_size as i64, modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64) }
    }
}

/// What to do about a process that keeps the file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Wait a little, then refuse: a loss would go unnoticed.
    Refuse,
    /// Wait a little, then replace the file and say so.
    Tell,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// In place and durable; what was there has the staging name now, unless this mount cannot exchange.
    InPlace {
        /// A process kept the replaced file open for writing.
        open_writer: bool,
        /// It was an exchange or an exclusive rename, which a recovery can tell from what never happened.
        exact: bool,
        /// How the displaced file was then, where it is still there.
        displaced: Option<Settled>,
    },
    /// The name is not what it was; nothing was changed.
    Changed,
    /// A writer keeps the file open; nothing was changed.
    Busy,
}

impl Base {
    /// Whether the name is still this file with this content. The name is looked at last: reading takes time, in which
    /// another file can be renamed over it, while a lease keeps the content as it is.
    fn is_at(&self, place: &Place) -> Result<bool, Errno> {
        Ok(self.has_content()? && identity_at(&place.parent, &place.name)? == Some(self.identity))
    }

    fn has_content(&self) -> Result<bool, Errno> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match &self.known {
            Known::Content(content) => holds(&self.file, content).map_err(errno),
            Known::Revision => Ok(revision_of(&self.file).map_err(errno)? == self.revision),
            Known::Stamp(stamp) => Ok(Stamp::of(&fs::fstat(&self.file)?) == *stamp),
        }
    }
}

/// Whether an open file holds these bytes and no more.
fn holds(file: &File, content: &[u8]) -> io::Result<bool> {
    let mut piece = vec![0; COMPARE_PIECE_BYTES.min(content.len() + 1)];
    let mut offset = 0;
    loop {
        let count = read::full_at(file, offset as u64, &mut piece)?;
        let expect = &content[offset..content.len().min(offset + piece.len())];
        if piece[..count] != *expect {
            return Ok(false);
        }
        if count < piece.len() {
            return Ok(true);
        }
        offset += count;
    }
}

/// The revision of an open file's whole content.
pub(crate) fn revision_of(file: &File) -> io::Result<Revision> {
    let mut hasher = Hasher::default();
    // No more than a small file needs: one byte beyond its end shows that it is the end.
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut piece = vec![0; size.saturating_add(1).clamp(HASH_PIECE_BYTES_MIN, HASH_PIECE_BYTES_MAX)];
    let mut offset = 0;
    loop {
        let count = read::full_at(file, offset, &mut piece)?;
        hasher.update(&piece[..count]);
        if count < piece.len() {
            return Ok(hasher.finish());
        }
        offset += count as u64;
    }
}

/// Which inode a name is, if it is one; a symbolic link is itself.
pub(crate) fn identity_at(parent: impl std::os::fd::AsFd, name: &[u8]) -> Result<Option<Identity>, Errno> {
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Identity::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Exchanges a staged file with the base at its place.
pub(crate) fn replace(
    state: &State,
    place: &Place,
    path: &TreePath,
    stage: &str,
    staged: Identity,
    base: &Base,
    writers: Writers,
) -> Result<Outcome, Fault> {
    let mut pause = LEASE_PAUSE_MIN;
    for attempt in 1..=LEASE_ATTEMPT_COUNT_MAX {
        if attempt > 1 {
            // The kernel tells nobody that a file may be leased now; the tries bound the waiting to about 0.15 s.
            thread::sleep(pause);
            pause = (pause * 2).min(LEASE_PAUSE_MAX);
        }
        let is_last = attempt == LEASE_ATTEMPT_COUNT_MAX;
        let (lease, open_writer) = match ReadLease::take(&base.file) {
            Ok(lease) => (Some(lease), false),
            Err(Refused::Writer) if !is_last => continue,
            Err(Refused::Writer) if writers == Writers::Refuse => return Ok(Outcome::Busy),
            Err(Refused::Writer) => (None, true),
            Err(Refused::Unsupported(_)) => (None, false),
        };
        if !base.is_at(place).map_err(|errno| fault(path, errno))? {
            return Ok(Outcome::Changed);
        }
        state.steps.pass("P4")?;
        if !state.can_exchange() {
            return replace_by_rename(state, place, path, stage, open_writer);
        }
        match fs::renameat_with(state, stage, &place.parent, place.name.as_slice(), RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Outcome::Changed),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                state.cannot_exchange();
                return replace_by_rename(state, place, path, stage, open_writer);
            }
            Err(errno) => return Err(fault(path, errno)),
        }
        state.steps.pass("P4 exchanged")?;
        let same_file = identity_at(state, stage.as_bytes()) == Ok(Some(base.identity));
        // Under a whole lease nobody has written; where a writer is known, what it writes is the caller's to lose.
        let is_base = || match &lease {
            Some(lease) => lease.is_whole(),
            None => open_writer || base.has_content() == Ok(true),
        };
        if !same_file {
            roll_back(state, place, path, stage, staged)?;
            return Ok(Outcome::Changed);
        }
        if is_base() {
            state.steps.pass("P5")?;
            flush(state, place, path)?;
            state.steps.pass("P6")?;
            // Whoever had looked the name up before the exchange and opens it for writing only now comes to the displaced
            // file. While the lease is held it waits there, and is seen. Who comes later still is seen by what it changes
            // of what is noted here.
            let displaced = fs::fstat(&base.file).ok().as_ref().map(Settled::of);
            if is_base() {
                return Ok(Outcome::InPlace { open_writer, exact: true, displaced });
            }
        }
        roll_back(state, place, path, stage, staged)?;
        if lease.is_none() {
            return Ok(Outcome::Changed);
        }
    }
    Ok(Outcome::Busy)
}

/// P6: makes a change of the name durable.
fn flush(state: &State, place: &Place, path: &TreePath) -> Result<(), Fault> {
    if !state.steps.keeps(Rule::DirectoryFlush) {
        return Ok(());
    }
    fs::fsync(&place.parent).and_then(|()| state.sync()).map_err(|_| {
        state.fail();
        Fault::OutcomeUnknown { path: path.clone() }
    })
}

/// Takes an exchange back, durably: whoever then says that it never happened must be right after a crash too. What leaves
/// the name must be what was put there last; else it is newer still, and goes back.
fn roll_back(state: &State, place: &Place, path: &TreePath, stage: &str, staged: Identity) -> Result<(), Fault> {
    let unknown = |_: Errno| {
        state.fail();
        Fault::OutcomeUnknown { path: path.clone() }
    };
    let mut put = staged;
    for _ in 0..ROLL_BACK_COUNT_MAX {
        let returned = identity_at(state, stage.as_bytes()).map_err(unknown)?;
        match fs::renameat_with(state, stage, &place.parent, place.name.as_slice(), RenameFlags::EXCHANGE) {
            Ok(()) => {}
            // Whoever removed the name removed what we had put there: there is nothing to give back.
            Err(Errno::NOENT) => return flush(state, place, path),
            Err(errno) => return Err(unknown(errno)),
        }
        if identity_at(state, stage.as_bytes()).map_err(unknown)? == Some(put) {
            return flush(state, place, path);
        }
        let Some(returned) = returned else { return Err(unknown(Errno::NOENT)) };
        put = returned;
    }
    Err(unknown(Errno::AGAIN))
}

/// For mounts that know no exchange: what is displaced is lost, and a recovery cannot look at it.
fn replace_by_rename(
    state: &State,
    place: &Place,
    path: &TreePath,
    stage: &str,
    open_writer: bool,
) -> Result<Outcome, Fault> {
    fs::renameat(state, stage, &place.parent, place.name.as_slice()).map_err(|errno| fault(path, errno))?;
    state.steps.pass("P4 exchanged")?;
    flush(state, place, path)?;
    state.steps.pass("P6")?;
    Ok(Outcome::InPlace { open_writer, exact: false, displaced: None })
}

/// Renames what is staged to a name that is free, and does nothing where it is not.
pub(crate) fn create(
    state: &State,
    place: &Place,
    path: &TreePath,
    stage: &str,
    is_directory: bool,
) -> Result<Outcome, Fault> {
    state.steps.pass("P4")?;
    let name = place.changed_name();
    let in_place = |exact| Ok(Outcome::InPlace { open_writer: false, exact, displaced: None });
    let outcome = match fs::renameat_with(state, stage, &place.parent, name, RenameFlags::NOREPLACE) {
        Ok(()) => in_place(true),
        Err(Errno::EXIST) => return Ok(Outcome::Changed),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if is_directory => {
            if identity_at(&place.parent, name).map_err(|errno| fault(path, errno))?.is_some() {
                return Ok(Outcome::Changed);
            }
            fs::renameat(state, stage, &place.parent, name).map_err(|errno| fault(path, errno))?;
            in_place(false)
        }
        // A hard link is as exclusive as the flag that this mount lacks.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match fs::linkat(state, stage, &place.parent, name, AtFlags::empty()) {
                Ok(()) => {
                    let _ = fs::unlinkat(state, stage, AtFlags::empty());
                    in_place(false)
                }
                Err(Errno::EXIST) => return Ok(Outcome::Changed),
                Err(errno) => return Err(fault(path, errno)),
            }
        }
        Err(errno) => return Err(fault(path, errno)),
    };
    state.steps.pass("P4 exchanged")?;
    flush(state, place, path)?;
    state.steps.pass("P6")?;
    outcome
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_holds_its_bytes_and_no_others() {
        for size in [0, 1, 100, COMPARE_PIECE_BYTES - 1, COMPARE_PIECE_BYTES, 3 * COMPARE_PIECE_BYTES + 5] {
            let mut file = tempfile::tempfile().unwrap();
            let content = vec![7; size];
            file.write_all(&content).unwrap();
            assert!(holds(&file, &content).unwrap(), "{size}");
            assert_eq!(revision_of(&file).unwrap(), Revision::of(&content));
            assert!(!holds(&file, &vec![7; size + 1]).unwrap(), "{size}");
            file.write_all(&[8]).unwrap();
            assert!(!holds(&file, &content).unwrap(), "{size}");
        }
    }
}
