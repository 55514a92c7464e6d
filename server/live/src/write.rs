//! Write: a file of any size whose content arrives piece by piece, invisible until it is whole and durable.

use std::{fs::File, sync::Arc};

use dormouse_files::{
    Fault,
    budget::Budget,
    change::{WriteDone, WritePlan},
    revision::{Expected, Hasher, Revision},
};
use rustix::fs;

use crate::{
    commit::{Base, Known, Writers, revision_of},
    content::{Existing, Put, dress, entry, meta_now},
    errno::{fault, io_fault},
    inner::{ATTEMPT_COUNT_MAX, Changing, Finished, Inner, Recording},
    ledger::Claim,
    locate::{Place, locate},
    nested::Holder,
    patch::{check_budget, parents, refuse_root},
    record::Answer,
    stage::{Draft, Staged},
};

/// How a Write begins.
pub enum WriteBegin {
    /// It was done before: here is the stored answer, no data is needed.
    Replayed(WriteDone),
    /// Send the data.
    Staged(StagedWrite),
}

/// A Write whose data is arriving. Dropped before `finish`, it leaves nothing behind.
pub struct StagedWrite {
    inner: Arc<Inner>,
    /// Where the file system is whose words its failures and its answer are put into; nothing where they are right as they are.
    at: Option<Holder>,
    plan: WritePlan,
    /// Nothing where the key was done already, and the data is only compared.
    draft: Option<Draft>,
    hasher: Hasher,
    checksum: u32,
    size_bytes: u64,
}

/// What a Write found at its place.
struct Found {
    place: Place,
    existing: Option<Existing>,
    previous: Option<Revision>,
}

impl Inner {
    /// The key is only looked at here and claimed in [`StagedWrite::finish`], so that nobody waits for a stream.
    pub(crate) fn write(inner: &Arc<Self>, plan: &WritePlan) -> Result<WriteBegin, Fault> {
        let path = &plan.path;
        inner.in_place().map_err(|source| Fault::Io { path: path.clone(), source })?;
        let known = match inner.changing(path) {
            Ok(changing) => changing.ledger.peek(&plan.key),
            Err(_) => Ok(None),
        };
        let known = match known {
            Ok(Some(Answer::Write(done))) => Some(done),
            Ok(Some(_)) => return Err(Fault::Internal("a key's answer is of another call")),
            Ok(None) => None,
            Err(fault) => return inner.check_write_place(plan).and(Err(fault)),
        };
        let draft = match (known, plan.content_revision) {
            (Some(done), Some(revision)) if done.revision == revision => {
                return Ok(WriteBegin::Replayed(WriteDone { replayed: true, ..done }));
            }
            (Some(_), Some(_)) => return Err(Fault::KeyReused),
            (Some(_), None) => None,
            (None, _) => {
                inner.check_write_place(plan)?;
                let changing = inner.changing(path)?;
                let found = inner.find(plan, Hashing::WhereExpected)?;
                Some(Draft::new(&changing.state, &found.place.parent).map_err(|errno| fault(path, errno))?)
            }
        };
        Ok(WriteBegin::Staged(StagedWrite {
            inner: Arc::clone(inner),
            at: None,
            plan: plan.clone(),
            draft,
            hasher: Hasher::default(),
            checksum: 0,
            size_bytes: 0,
        }))
    }

    fn check_write_place(&self, plan: &WritePlan) -> Result<(), Fault> {
        refuse_root(&plan.path, plan.expected)?;
        locate(&self.tree, &plan.path, parents(plan.create_parents), &self.limits.files).map(drop)
    }

    fn find(&self, plan: &WritePlan, hashing: Hashing) -> Result<Found, Fault> {
        let path = &plan.path;
        let place = locate(&self.tree, path, parents(plan.create_parents), &self.limits.files)?;
        let existing = self.existing(&place, path, plan.expected)?;
        let wanted = hashing == Hashing::Always || matches!(plan.expected, Expected::Revision(_));
        let previous = match &existing {
            Some(existing) if wanted => Some(revision_of(&existing.file).map_err(|error| io_fault(path, error))?),
            _ => None,
        };
        if let Expected::Revision(expected) = plan.expected
            && previous != Some(expected)
        {
            return Err(Fault::RevisionMismatch { path: path.clone(), expected: plan.expected, actual: previous });
        }
        Ok(Found { place, existing, previous })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hashing {
    Always,
    WhereExpected,
}

impl StagedWrite {
    /// The next piece of the content.
    ///
    /// # Errors
    /// `DiskFull` and what the system says.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), Fault> {
        if let Some(draft) = &mut self.draft {
            draft.append(piece).map_err(|error| {
                let fault = io_fault(&self.plan.path, error);
                match &self.at {
                    Some(at) => at.fault(fault),
                    None => fault,
                }
            })?;
        }
        self.hasher.update(piece);
        self.checksum = crc32c::crc32c_append(self.checksum, piece);
        self.size_bytes = self.size_bytes.saturating_add(piece.len() as u64);
        Ok(())
    }

    /// Makes the whole visible and durable. `size_bytes` and `crc32c` are what the caller believes it sent.
    ///
    /// # Errors
    /// `Invalid` where they differ from what arrived, and as `ErrorReason` in files.proto says of Write.
    pub fn finish(mut self, size_bytes: u64, crc32c: Option<u32>, budget: &dyn Budget) -> Result<WriteDone, Fault> {
        let at = self.at.take();
        let done = self.complete(size_bytes, crc32c, budget);
        match at {
            Some(at) => at.told(done),
            None => done,
        }
    }

    /// As part of a larger workspace.
    pub(crate) fn told_by(self, at: Holder) -> Self {
        Self { at: Some(at), ..self }
    }

    fn complete(self, size_bytes: u64, crc32c: Option<u32>, budget: &dyn Budget) -> Result<WriteDone, Fault> {
        if size_bytes != self.size_bytes {
            let message = format!("{size_bytes} bytes were meant to be sent, and {} arrived", self.size_bytes);
            return Err(Fault::invalid("finish.size_bytes", message));
        }
        if crc32c.is_some_and(|checksum| checksum != self.checksum) {
            return Err(Fault::invalid("finish.crc32c", "is not the checksum of the data that arrived"));
        }
        let Self { inner, plan, draft, hasher, .. } = self;
        let revision = hasher.finish();
        if plan.content_revision.is_some_and(|expected| expected != revision) {
            return Err(Fault::invalid("start.content_revision", "is not the revision of the data that arrived"));
        }
        let check_path = || inner.check_write_place(&plan);
        let size = self.size_bytes;
        let change = |changing: &Changing, claim: &mut Claim<'_>| {
            // The stored answer that it was to be compared with has been forgotten since.
            let Some(draft) = draft else { return Err(Fault::KeyReused) };
            inner.write_claimed(changing, claim, &plan, draft, revision, size, budget)
        };
        match inner.once(&plan.path, &plan.key, budget, check_path, change)? {
            // The request's hash does not cover the content.
            (Answer::Write(done), true) if done.revision != revision => Err(Fault::KeyReused),
            (Answer::Write(done), replayed) => Ok(WriteDone { replayed, ..done }),
            _ => Err(Fault::Internal("a key's answer is of another call")),
        }
    }
}

impl Inner {
    #[allow(clippy::too_many_arguments, reason = "what a stream has gathered")]
    fn write_claimed(
        &self,
        changing: &Changing,
        claim: &mut Claim<'_>,
        plan: &WritePlan,
        draft: Draft,
        revision: Revision,
        size_bytes: u64,
        budget: &dyn Budget,
    ) -> Result<Finished, Fault> {
        let path = &plan.path;
        let answer = |found: &Found, meta, durable, bytes_written| {
            Answer::Write(WriteDone {
                revision,
                previous_revision: found.previous,
                bytes_written,
                durable,
                entry: entry(path, meta, revision),
                replayed: false,
            })
        };
        let named = draft.name().map_err(|errno| fault(path, errno))?;
        // A large file takes its time, and nobody else need wait for that: the name is not locked yet.
        named.file().sync_all().map_err(|error| io_fault(path, error))?;
        let mut staged: Option<Staged> = Some(named);
        for _ in 0..ATTEMPT_COUNT_MAX {
            check_budget(budget)?;
            let place = locate(&self.tree, path, parents(plan.create_parents), &self.limits.files)?;
            let _locked = self.locks.one(place.slot());
            let found = self.find(plan, Hashing::Always)?;
            if found.place.slot() != place.slot() {
                continue;
            }
            if let (Some(existing), true) = (&found.existing, found.previous == Some(revision)) {
                existing.file.sync_all().map_err(|error| io_fault(path, error))?;
                fs::fsync(&found.place.parent).map_err(|errno| fault(path, errno))?;
                let meta = meta_now(&existing.file, path)?;
                return Ok(Finished {
                    answer: answer(&found, meta, true, 0),
                    record: Recording::Unchanged,
                    displaced: None,
                });
            }
            // A staged file that was lost to a process in the workspace would have to be sent again.
            let Some(mut ours) = staged.take() else { break };
            ours.unwrap(&found.place.name).map_err(|errno| fault(path, errno))?;
            let old = found.existing.as_ref().map(|existing| &existing.file);
            claim.begin_staging();
            dress(&changing.state, &mut ours, &found.place, path, old, plan.mode)?;
            let predicted = answer(&found, meta_now(ours.file(), path)?, true, size_bytes);
            let base = self.base(plan, &found)?;
            let writers = if plan.expected == Expected::Any { Writers::Tell } else { Writers::Refuse };
            match changing.put(claim, &found.place, path, ours, base.as_ref(), writers, predicted)? {
                Put::Done { meta, record, displaced, .. } => {
                    let durable = record == Recording::Lazy;
                    return Ok(Finished { answer: answer(&found, meta, durable, size_bytes), record, displaced });
                }
                Put::Changed(still_ours) => staged = still_ours,
                Put::Busy => break,
            }
        }
        Err(Fault::BusyWriter { path: path.clone() })
    }

    fn base(&self, plan: &WritePlan, found: &Found) -> Result<Option<Base>, Fault> {
        let Some(existing) = &found.existing else { return Ok(None) };
        let file: File = existing.file.try_clone().map_err(|error| io_fault(&plan.path, error))?;
        let small = existing.meta.size_bytes <= self.limits.files.patch_file_bytes_max;
        Ok(Some(Base {
            file,
            identity: existing.identity,
            revision: found.previous.ok_or(Fault::Internal("a file that is there was not read"))?,
            known: if small || plan.expected != Expected::Any { Known::Revision } else { Known::Stamp(existing.stamp) },
        }))
    }
}
