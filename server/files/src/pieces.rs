//! A file's bytes in order, piece by piece: lent by the tree where they lie in memory, read into one buffer elsewhere. So
//! what a file costs in memory does not depend on its size.

use std::ops::{ControlFlow, Deref, Range};

use crate::{
    budget::{Budget, Spent},
    error::Fault,
    limits::Limits,
    meta::Meta,
    path::TreePath,
    revision::{Hasher, Revision},
    tree::Tree,
};

/// How often a file that changes while it is read is read again for its revision.
const REVISION_ATTEMPT_COUNT_MAX: usize = 3;

/// Takes the next piece and its offset.
type Visit<'a> = &'a mut dyn FnMut(u64, Held<'_>) -> Result<ControlFlow<()>, Fault>;

/// The bytes of one piece, wherever they lie.
#[derive(Debug)]
pub enum Held<'a> {
    /// In the tree's own memory.
    Lent(&'a [u8]),
    /// In the reader's buffer, from its start.
    Read {
        /// May be taken, with another left in its place; the longer that one is, the less of it has to be made.
        buffer: &'a mut Vec<u8>,
        /// How many bytes of it are the piece.
        length: usize,
    },
}

impl Deref for Held<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Read { buffer, length } => &buffer[..*length],
        }
    }
}

/// One open file, with what is needed to read it.
pub(crate) struct Content<'a, T: Tree> {
    pub(crate) tree: &'a T,
    pub(crate) file: &'a T::File,
    pub(crate) path: &'a TreePath,
    pub(crate) limits: &'a Limits,
    pub(crate) budget: &'a dyn Budget,
}

/// The end of a call whose budget is spent.
pub(crate) fn refuse(spent: Spent, limits: &Limits) -> Fault {
    match spent {
        Spent::Time => Fault::OfflineBudget {
            limit: u64::try_from(limits.offline_budget.as_millis()).unwrap_or(u64::MAX),
            unit: "ms",
        },
        Spent::Deadline => Fault::DeadlineExceeded,
        Spent::Gone => Fault::Gone,
    }
}

impl<T: Tree> Content<'_, T> {
    /// Visits the bytes of `range` in pieces of at most `read_piece_bytes_max`, each with its offset, and ends early at
    /// the file's end or when the visitor breaks. `buffer` is kept for the next call.
    pub(crate) fn visit(&self, range: Range<u64>, buffer: &mut Vec<u8>, visit: Visit<'_>) -> Result<(), Fault> {
        let piece_bytes_max = self.limits.read_piece_bytes_max.max(1);
        let mut offset = range.start;
        while offset < range.end {
            if let Some(spent) = self.budget.spent() {
                return Err(refuse(spent, self.limits));
            }
            let length = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(piece_bytes_max);
            let lent = self.tree.lend(self.file, offset, length).map_err(|error| Fault::at(self.path, error))?;
            let piece = match lent {
                Some(piece) => Held::Lent(&piece[..piece.len().min(length)]),
                None => {
                    if buffer.len() < length {
                        buffer.resize(length, 0);
                    }
                    let count = self
                        .tree
                        .read_at(self.file, offset, &mut buffer[..length])
                        .map_err(|error| Fault::at(self.path, error))?;
                    Held::Read { length: count.min(length), buffer }
                }
            };
            let count = piece.len();
            if count == 0 || visit(offset, piece)?.is_break() {
                return Ok(());
            }
            offset += count as u64;
        }
        Ok(())
    }

    /// What the file is now.
    pub(crate) fn meta(&self) -> Result<Meta, Fault> {
        self.tree.stat_file(self.file).map_err(|error| Fault::at(self.path, error))
    }

    /// Whether the tree still stands behind what was read.
    pub(crate) fn verify(&self) -> Result<(), Fault> {
        self.tree.verify().map_err(|error| Fault::at(self.path, error))
    }

    /// The revision of the whole file, and what it is; nothing where it would not hold still.
    pub(crate) fn revision(&self, buffer: &mut Vec<u8>) -> Result<(Meta, Option<Revision>), Fault> {
        let mut meta = self.meta()?;
        for _ in 0..REVISION_ATTEMPT_COUNT_MAX {
            let mut hasher = Hasher::default();
            self.visit(0..meta.size_bytes, buffer, &mut |_, piece| {
                hasher.update(&piece);
                Ok(ControlFlow::Continue(()))
            })?;
            self.verify()?;
            let after = self.meta()?;
            let still = after.etag() == meta.etag();
            meta = after;
            if still {
                return Ok((meta, Some(hasher.finish())));
            }
        }
        Ok((meta, None))
    }
}
