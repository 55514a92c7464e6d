//! Putting what is staged into place: one exchange or one rename, looked at afterwards, and taken back where what it
//! displaced was not what had been read.
//!
//! ```text
//! lease ─► still the base? ─► exchange ─► lease whole, and the base displaced? ─► done
//!   │            └─ no: Changed               └─ no: exchange back ─► try again, or Changed
//!   └─ a writer has it open: try again, and Busy after some tries
//! ```
//! A read lease keeps everybody from opening the file for writing. Who wanted to while the exchange was made would go on
//! with the displaced file, so the exchange is taken back before the lease is released. A process that renames a file of
//! its own over the name is noticed by the inode of what was displaced.
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

use crate::{
    errno::fault,
    locate::Place,
    state::State,
    tree::{Identity, read_full_at},
};

/// Tries to get a lease, and to exchange under a whole one.
const LEASE_ATTEMPT_COUNT_MAX: u32 = 20;
/// Between two of them, doubled each time up to the longest: a writer is given time to close the file.
const LEASE_PAUSE_MIN: Duration = Duration::from_micros(100);
const LEASE_PAUSE_MAX: Duration = Duration::from_millis(10);
/// Exchanges back and forth with a process that renames over the same name, before it is taken for an endless fight.
const ROLL_BACK_COUNT_MAX: u32 = 64;
/// Bytes read at a time while hashing.
const HASH_PIECE_BYTES: usize = 256 << 10;

/// The file that is to be replaced, as it was read.
pub(crate) struct Base {
    pub(crate) file: File,
    pub(crate) identity: Identity,
    pub(crate) revision: Revision,
    /// Whether the content is compared once more at the commit, and not only size and times.
    pub(crate) compare_content: bool,
    pub(crate) stamp: Stamp,
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
    /// In place; what was there has the staging name now, unless this mount cannot exchange.
    InPlace {
        /// A process kept the replaced file open for writing.
        open_writer: bool,
        /// It was an exchange or an exclusive rename, which a recovery can tell from what never happened.
        exact: bool,
    },
    /// The name is not what it was; nothing was changed.
    Changed,
    /// A writer keeps the file open; nothing was changed.
    Busy,
}

impl Base {
    /// Whether the name is still this file with this content.
    fn is_at(&self, place: &Place) -> Result<bool, Errno> {
        Ok(identity_at(&place.parent, &place.name)? == Some(self.identity) && self.has_content()?)
    }

    fn has_content(&self) -> Result<bool, Errno> {
        if self.compare_content {
            let revision =
                revision_of(&self.file).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            return Ok(revision == self.revision);
        }
        Ok(Stamp::of(&fs::fstat(&self.file)?) == self.stamp)
    }
}

/// The revision of an open file's whole content.
pub(crate) fn revision_of(file: &File) -> io::Result<Revision> {
    let mut hasher = Hasher::default();
    let mut piece = vec![0; HASH_PIECE_BYTES];
    let mut offset = 0;
    loop {
        let count = read_full_at(file, offset, &mut piece)?;
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
        let whole = lease.as_ref().is_none_or(ReadLease::is_whole);
        let same_file = identity_at(state, stage.as_bytes()) == Ok(Some(base.identity));
        // Under a whole lease nobody has written; where a writer is known, what it writes is the caller's to lose.
        let same_content = lease.is_some() || open_writer || base.has_content() == Ok(true);
        if whole && same_file && same_content {
            state.steps.pass("P5")?;
            return Ok(Outcome::InPlace { open_writer, exact: true });
        }
        roll_back(state, place, path, stage, staged)?;
        if whole {
            return Ok(Outcome::Changed);
        }
        if is_last {
            return Ok(Outcome::Busy);
        }
    }
    Ok(Outcome::Busy)
}

/// Takes an exchange back. What leaves the name must be what was put there last; else it is newer still, and goes back.
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
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(unknown(errno)),
        }
        if identity_at(state, stage.as_bytes()).map_err(unknown)? == Some(put) {
            return Ok(());
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
    Ok(Outcome::InPlace { open_writer, exact: false })
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
    let in_place = |exact| Ok(Outcome::InPlace { open_writer: false, exact });
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
    outcome
}
