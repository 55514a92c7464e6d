//! The log, transaction by transaction: which blocks belong to it, and where it ends.

use dormouse_files::tree::TreeError;

use super::{
    super::{
        checksum::{crc32_be, crc32c},
        fields::{be16, be32, be64, join, u8_at},
        overlay::MAGIC,
    },
    Journal, Sums, fault,
};

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const REVOKE: u32 = 5;

mod flag {
    pub(super) const ESCAPED: u16 = 1;
    pub(super) const SAME_UUID: u16 = 2;
    pub(super) const LAST: u16 = 8;
}

/// One copied block of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    /// The block of the file system that was copied.
    pub(super) target: u64,
    /// The block of the journal that holds the copy.
    pub(super) copy: u64,
    pub(super) escaped: bool,
    pub(super) sum: u32,
}

/// Asked about everything in the log, in its order. The number is that of the transaction.
pub(super) trait Visitor {
    /// A copied block.
    fn tag(&mut self, sequence: u32, tag: Tag) -> Result<(), TreeError>;
    /// A block whose copies up to this transaction must not be used.
    fn revoke(&mut self, sequence: u32, target: u64) -> Result<(), TreeError>;
    /// The transaction is complete.
    fn committed(&mut self, sequence: u32) -> Result<(), TreeError>;
}

/// Whether `one` comes at or after `other`; numbers wrap.
pub(super) fn at_or_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) >= 0
}

impl Journal<'_> {
    /// Walks the log from its tail up to `end`, or to the first transaction that was not committed; gives the number of the
    /// transaction that would come next.
    pub(super) fn walk(&self, end: Option<u32>, visitor: &mut dyn Visitor) -> Result<u32, TreeError> {
        let mut bytes = vec![0; self.file_system.superblock.block_bytes as usize];
        let mut sequence = self.sequence;
        let mut place = self.start;
        // The log is a ring: a walk that is longer than it would meet itself.
        let mut left = self.last - self.first;
        let (mut suspect, mut broken, mut last_time, mut sum) = (false, false, 0, !0);
        while end != Some(sequence) {
            self.read(place, &mut bytes)?;
            if be32(&bytes, 0) != MAGIC || be32(&bytes, 8) != sequence {
                break;
            }
            left = left.checked_sub(1).ok_or_else(|| fault("the log is longer than its place"))?;
            place = self.after(place);
            match be32(&bytes, 4) {
                DESCRIPTOR => {
                    // What looks like a descriptor may be older than the log; its commit's time tells.
                    suspect |= !self.tail_sum_holds(&bytes);
                    let mut over = false;
                    if self.sums == Sums::Transaction && end.is_none() {
                        sum = crc32_be(sum, &bytes);
                    }
                    for mut tag in self.tags(&bytes) {
                        tag.copy = place;
                        match left.checked_sub(1) {
                            Some(less) => left = less,
                            None => {
                                over = true;
                                break;
                            }
                        }
                        if self.sums == Sums::Transaction && end.is_none() {
                            let mut data = vec![0; bytes.len()];
                            self.read(place, &mut data)?;
                            sum = crc32_be(sum, &data);
                        }
                        place = self.after(place);
                        if !suspect {
                            visitor.tag(sequence, tag)?;
                        }
                    }
                    if over {
                        // The kernel would walk on into what it has read; nothing there can be committed.
                        break;
                    }
                }
                REVOKE => {
                    suspect |= !self.tail_sum_holds(&bytes);
                    if !suspect {
                        broken |= !self.revoked(&bytes, |target| visitor.revoke(sequence, target))?;
                    }
                }
                COMMIT => {
                    let time = be64(&bytes, 0x30);
                    let holds = match self.sums {
                        Sums::None => true,
                        Sums::Transaction => end.is_some() || transaction_sum_holds(&bytes, sum),
                        Sums::V2 | Sums::V3 => self.commit_sum_holds(&bytes),
                    };
                    if suspect || !holds {
                        if time < last_time || !suspect && self.async_commit {
                            break;
                        }
                        return Err(fault(&format!(
                            "transaction {sequence} was committed, but its checksum does not hold"
                        )));
                    }
                    if broken {
                        return Err(fault(&format!("transaction {sequence} was committed with a broken revoke block")));
                    }
                    (last_time, sum) = (time, !0);
                    visitor.committed(sequence)?;
                    sequence = sequence.wrapping_add(1);
                }
                _ => break,
            }
        }
        Ok(sequence)
    }

    fn tail_bytes(&self) -> usize {
        if self.sums_blocks() { 4 } else { 0 }
    }

    /// Descriptors and revoke blocks end with their checksum.
    fn tail_sum_holds(&self, bytes: &[u8]) -> bool {
        let Some(at) = bytes.len().checked_sub(self.tail_bytes()).filter(|_| self.sums_blocks()) else { return true };
        let sum = crc32c(crc32c(self.seed, bytes.get(..at).unwrap_or_default()), &[0; 4]);
        sum == be32(bytes, at)
    }

    /// A commit block is summed as a whole, or, as some writers did it, as if nothing followed its header.
    fn commit_sum_holds(&self, bytes: &[u8]) -> bool {
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let head = crc32c(crc32c(self.seed, part(0, 0x10)), &[0; 4]);
        let whole = crc32c(head, part(0x14, bytes.len()));
        let alone = || crc32c(crc32c(head, part(0x14, 0x40)), &vec![0; bytes.len().saturating_sub(0x40)]);
        let held = be32(bytes, 0x10);
        whole == held || alone() == held
    }

    /// The tags of a descriptor, without their place in the log.
    fn tags<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = Tag> + use<'b> {
        let (sums, wide) = (self.sums, self.wide);
        let tag_bytes = match sums {
            Sums::V3 => 16,
            Sums::V2 => {
                if wide {
                    14
                } else {
                    10
                }
            }
            Sums::None | Sums::Transaction => {
                if wide {
                    12
                } else {
                    8
                }
            }
        };
        let end = bytes.len() - self.tail_bytes();
        let mut next = Some(12);
        std::iter::from_fn(move || {
            let at = next.filter(|at| at + tag_bytes <= end)?;
            let flags = be16(bytes, at + 6);
            let uuid = if flags & flag::SAME_UUID == 0 { 16 } else { 0 };
            next = (flags & flag::LAST == 0).then_some(at + tag_bytes + uuid);
            Some(Tag {
                target: join(be32(bytes, at), if wide { be32(bytes, at + 8) } else { 0 }),
                copy: 0,
                escaped: flags & flag::ESCAPED != 0,
                sum: match sums {
                    Sums::V3 => be32(bytes, at + 12),
                    Sums::V2 => u32::from(be16(bytes, at + 4)),
                    Sums::None | Sums::Transaction => 0,
                },
            })
        })
    }

    /// Whether a copied block matches its tag; it is summed as it lies in the log.
    pub(super) fn tag_sum_holds(&self, sequence: u32, tag: &Tag, bytes: &[u8]) -> bool {
        let sum = || crc32c(crc32c(self.seed, &sequence.to_be_bytes()), bytes);
        match self.sums {
            Sums::V3 => sum() == tag.sum,
            Sums::V2 => sum() & 0xFFFF == tag.sum,
            Sums::None | Sums::Transaction => true,
        }
    }

    /// Visits what a revoke block names; false where it cannot be one, which matters only if its transaction is complete.
    fn revoked(&self, bytes: &[u8], mut visit: impl FnMut(u64) -> Result<(), TreeError>) -> Result<bool, TreeError> {
        // The count is of bytes, those of the block's own header among them.
        let end = be32(bytes, 12) as usize;
        if end > bytes.len() - self.tail_bytes() {
            return Ok(false);
        }
        let each = if self.wide { 8 } else { 4 };
        for at in (16..end).step_by(each).filter(|at| at + each <= end) {
            visit(if self.wide { be64(bytes, at) } else { u64::from(be32(bytes, at)) })?;
        }
        Ok(true)
    }
}

/// Where nothing was summed, kind, size and value are all 0.
fn transaction_sum_holds(bytes: &[u8], sum: u32) -> bool {
    match (u8_at(bytes, 0x0C), u8_at(bytes, 0x0D), be32(bytes, 0x10)) {
        (0, 0, 0) => true,
        (1, 4, held) => held == sum,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        assert!(at_or_after(5, 5));
        assert!(at_or_after(6, 5));
        assert!(!at_or_after(4, 5));
        assert!(at_or_after(1, u32::MAX));
        assert!(!at_or_after(u32::MAX, 1));
    }
}
