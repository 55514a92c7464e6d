//! The journal of a file system that was not unmounted, replayed in memory: the disk is never written.
//!
//! ```text
//! scan from the log's tail ──► end: the first transaction without a valid commit
//!   └► revokes, as they are found           (block → last transaction that revokes it)
//! replay up to the end ──► overlay          (block → the last copy of it in the log)
//! fast commits after the end ──► changes    (see `fast_commit`)
//! ```
//!
//! An incomplete transaction at the head of the log is its normal end. A transaction that was committed and does not match
//! its checksums is a refusal, as it is for the kernel. Nothing of the log is copied: the overlay holds places.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/journal.rst` and `fs/jbd2/recovery.c`.

mod fast_commit;
mod log;
mod replay;

use dormouse_files::tree::TreeError;

pub(crate) use self::fast_commit::Changes;

use super::{
    Ext4,
    checksum::crc32c,
    corrupt,
    fields::{be32, u8_at},
    overlay::{MAGIC, Overlay},
    superblock::compat,
};

/// Runs of blocks that a journal may consist of: it is made in one piece, so more is hostile.
const RUN_COUNT_MAX: usize = 65_536;

/// Features without which a journal cannot be read (`s_feature_incompat`).
mod feature {
    pub(super) const BIT64: u32 = 0x2;
    pub(super) const ASYNC_COMMIT: u32 = 0x4;
    pub(super) const CSUM_V2: u32 = 0x8;
    pub(super) const CSUM_V3: u32 = 0x10;
    pub(super) const FAST_COMMIT: u32 = 0x20;
    pub(super) const KNOWN: u32 = 0x3F;
    /// The one of `s_feature_compat`.
    pub(super) const CHECKSUM: u32 = 0x1;
}

/// How tags and blocks are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sums {
    None,
    /// A CRC-32 of the whole transaction in its commit block.
    Transaction,
    /// 16 bits of a CRC-32C in each tag, and one in each block of the journal's own.
    V2,
    /// The same with 32 bits in each tag.
    V3,
}

/// A journal that is open.
struct Journal<'a> {
    file_system: &'a Ext4,
    /// (first block in the journal, where it lies, blocks), ascending.
    runs: Vec<(u64, u64, u64)>,
    /// (where it lies, blocks), ascending.
    owned: Vec<(u64, u64)>,
    /// The log proper is this range of the journal's blocks, used as a ring.
    first: u64,
    last: u64,
    /// The fast commits' area, up to the journal's end.
    fast_first: u64,
    fast_last: u64,
    /// Where the oldest transaction begins, and its number.
    start: u64,
    sequence: u32,
    wide: bool,
    async_commit: bool,
    has_fast_commits: bool,
    sums: Sums,
    seed: u32,
}

/// What a replay found.
pub(crate) struct Replayed {
    pub(crate) overlay: Overlay,
    /// The number of the transaction that would have come next; nothing where the log was empty.
    pub(crate) next: Option<u32>,
}

/// Replays the journal of a file system whose superblock says that it must be.
///
/// # Errors
/// `Unavailable` for a journal of a kind that is not read here, `Corrupt` where a committed transaction does not hold,
/// `OverLimit` where the overlay would be larger than its bound.
pub(crate) fn replay(file_system: &Ext4) -> Result<Replayed, TreeError> {
    match Journal::open(file_system)? {
        Some(journal) => journal.replay(),
        None => Ok(Replayed { overlay: Overlay::new(), next: None }),
    }
}

/// What the fast commits after the last whole transaction say; asked once the overlay is in its place.
///
/// # Errors
/// As [`replay`].
pub(crate) fn fast_commits(file_system: &Ext4, next: u32) -> Result<Option<Changes>, TreeError> {
    match Journal::open(file_system)? {
        Some(journal) if journal.has_fast_commits => journal.fast_commits(next),
        _ => Ok(None),
    }
}

fn fault(what: &str) -> TreeError {
    corrupt(format!("journal: {what}"))
}

fn unavailable(what: impl Into<String>) -> TreeError {
    TreeError::Unavailable { what: what.into() }
}

impl<'a> Journal<'a> {
    /// Nothing where the log is empty.
    fn open(file_system: &'a Ext4) -> Result<Option<Self>, TreeError> {
        let superblock = &file_system.superblock;
        if !superblock.has_compat(compat::HAS_JOURNAL) {
            return Err(fault("there is none, but it needs recovery"));
        }
        if superblock.journal_device != 0 || superblock.journal_inode == 0 {
            return Err(unavailable("external_journal"));
        }
        let runs = runs_of(file_system, superblock.journal_inode)?;
        let mut owned: Vec<_> = runs.iter().map(|&(_, physical, length)| (physical, length)).collect();
        owned.sort_unstable();
        let mut journal = Self {
            file_system,
            runs,
            owned,
            first: 1,
            last: 1,
            fast_first: 0,
            fast_last: 0,
            start: 0,
            sequence: 0,
            wide: false,
            async_commit: false,
            has_fast_commits: false,
            sums: Sums::None,
            seed: 0,
        };
        let mut bytes = vec![0; superblock.block_bytes as usize];
        journal.read(0, &mut bytes)?;
        journal.take_superblock(&bytes)?;
        Ok((journal.start != 0).then_some(journal))
    }

    fn take_superblock(&mut self, bytes: &[u8]) -> Result<(), TreeError> {
        let kind = be32(bytes, 4);
        if be32(bytes, 0) != MAGIC || !(3..=4).contains(&kind) {
            return Err(fault("superblock: magic"));
        }
        // The first kind of superblock ends before its features.
        let features = |at| if kind == 4 { be32(bytes, at) } else { 0 };
        let incompat = features(0x28);
        if incompat & !feature::KNOWN != 0 {
            return Err(unavailable(format!("journal_feature_{:#x}", incompat & !feature::KNOWN)));
        }
        self.sums = match (incompat & feature::CSUM_V2 != 0, incompat & feature::CSUM_V3 != 0) {
            (true, true) => return Err(fault("superblock: two kinds of checksums")),
            (true, false) => Sums::V2,
            (false, true) => Sums::V3,
            (false, false) if features(0x24) & feature::CHECKSUM != 0 => Sums::Transaction,
            (false, false) => Sums::None,
        };
        if self.sums_blocks() {
            if u8_at(bytes, 0x50) != 4 {
                return Err(unavailable("journal_checksum_type"));
            }
            let mut summed = bytes.get(..1024).unwrap_or_default().to_vec();
            if let Some(field) = summed.get_mut(0xFC..0x100) {
                field.fill(0);
            }
            if crc32c(!0, &summed) != be32(bytes, 0xFC) {
                return Err(fault("superblock: checksum"));
            }
            self.seed = crc32c(!0, bytes.get(0x30..0x40).unwrap_or_default());
        }
        self.wide = incompat & feature::BIT64 != 0;
        self.async_commit = incompat & feature::ASYNC_COMMIT != 0;
        self.has_fast_commits = incompat & feature::FAST_COMMIT != 0;
        let length = u64::from(be32(bytes, 0x10));
        if be32(bytes, 0x0C) != self.file_system.superblock.block_bytes || length > self.length() {
            return Err(fault("superblock: size"));
        }
        self.first = u64::from(be32(bytes, 0x14));
        self.last = length;
        if self.has_fast_commits {
            let fast = match be32(bytes, 0x54) {
                0 => 256,
                count => u64::from(count),
            };
            self.last = length.saturating_sub(fast);
            // One block is left between the two areas.
            (self.fast_first, self.fast_last) = (self.last + 1, length);
        }
        self.start = u64::from(be32(bytes, 0x1C));
        self.sequence = be32(bytes, 0x18);
        let inside = |block: u64| block >= self.first && block < self.last;
        if self.first == 0 || self.first >= self.last || self.start != 0 && !inside(self.start) {
            return Err(fault("superblock: the log's place"));
        }
        Ok(())
    }

    /// Whether blocks of the journal's own are summed.
    fn sums_blocks(&self) -> bool {
        matches!(self.sums, Sums::V2 | Sums::V3)
    }

    /// Blocks of the journal's file.
    fn length(&self) -> u64 {
        self.runs.last().map_or(0, |&(logical, _, length)| logical + length)
    }

    /// Where one of the journal's blocks lies on the disk.
    fn place(&self, block: u64) -> Result<u64, TreeError> {
        let index = self.runs.partition_point(|&(logical, ..)| logical <= block);
        index
            .checked_sub(1)
            .and_then(|index| self.runs.get(index))
            .filter(|(logical, _, length)| block - logical < *length)
            .map(|(logical, physical, _)| physical + (block - logical))
            .ok_or_else(|| fault("a block past its end"))
    }

    fn read(&self, block: u64, buffer: &mut [u8]) -> Result<(), TreeError> {
        self.file_system.blocks.read(self.place(block)?, 0, buffer)
    }

    /// Whether a block of the file system belongs to the journal itself.
    fn owns(&self, number: u64) -> bool {
        let index = self.owned.partition_point(|&(physical, _)| physical <= number);
        let before = index.checked_sub(1).and_then(|index| self.owned.get(index));
        before.is_some_and(|(physical, length)| number - physical < *length)
    }

    /// The block that follows in the ring.
    fn after(&self, block: u64) -> u64 {
        if block + 1 >= self.last { self.first } else { block + 1 }
    }
}

fn runs_of(file_system: &Ext4, number: u32) -> Result<Vec<(u64, u64, u64)>, TreeError> {
    let inode = file_system.inode(number)?;
    if inode.kind != dormouse_files::meta::FileType::Regular || inode.has(super::inode::flag::INLINE_DATA) {
        return Err(fault("its inode is no plain file"));
    }
    let count = inode.size_bytes / u64::from(file_system.superblock.block_bytes);
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    let mut logical = 0;
    while logical < count {
        let run = file_system.run(&inode, logical)?;
        let Some(physical) = run.physical else { return Err(fault("a hole in its file")) };
        let length = run.length.min(count - logical);
        match runs.last_mut() {
            Some((_, start, held)) if *start + *held == physical => *held += length,
            _ => runs.push((logical, physical, length)),
        }
        if runs.len() > RUN_COUNT_MAX {
            return Err(fault("too many pieces"));
        }
        logical += length;
    }
    Ok(runs)
}
