//! From the log to the overlay.

use std::collections::HashMap;

use dormouse_files::tree::TreeError;

use super::{
    super::overlay::{Copied, Overlay},
    Journal, Replayed, fault,
    log::{Tag, Visitor, at_or_after},
};

/// The first pass: what is revoked, once its transaction is known to be complete.
struct Scan {
    revoked: HashMap<u64, u32>,
    pending: Vec<u64>,
    limit: usize,
    overlay_bytes_max: u64,
}

impl Visitor for Scan {
    fn tag(&mut self, _: u32, _: Tag) -> Result<(), TreeError> {
        Ok(())
    }

    fn revoke(&mut self, _: u32, target: u64) -> Result<(), TreeError> {
        if self.revoked.len() + self.pending.len() >= self.limit {
            return Err(over(self.overlay_bytes_max));
        }
        self.pending.push(target);
        Ok(())
    }

    fn committed(&mut self, sequence: u32) -> Result<(), TreeError> {
        // Transactions come in their order, so a later one replaces an earlier one.
        self.revoked.extend(self.pending.drain(..).map(|target| (target, sequence)));
        Ok(())
    }
}

fn over(limit: u64) -> TreeError {
    TreeError::OverLimit { what: "bytes of the replayed journal", limit }
}

/// The second pass: the last copy of every block that is not revoked.
struct Copy<'a> {
    journal: &'a Journal<'a>,
    revoked: HashMap<u64, u32>,
    overlay: Overlay,
    buffer: Vec<u8>,
    disk_block_count: u64,
    block_count_max: u64,
    overlay_bytes_max: u64,
}

impl Visitor for Copy<'_> {
    fn tag(&mut self, sequence: u32, tag: Tag) -> Result<(), TreeError> {
        if self.revoked.get(&tag.target).is_some_and(|&revoked| at_or_after(revoked, sequence)) {
            return Ok(());
        }
        // The file system may have grown in this very journal, so the disk bounds the target; a superblock that names fewer
        // blocks than are used is found out when it is read again.
        if tag.target >= self.disk_block_count || self.journal.owns(tag.target) {
            return Err(fault(&format!("a copy of block {}, which it cannot hold", tag.target)));
        }
        self.journal.read(tag.copy, &mut self.buffer)?;
        if !self.journal.tag_sum_holds(sequence, &tag, &self.buffer) {
            return Err(fault(&format!("the copy of block {} in transaction {sequence}: checksum", tag.target)));
        }
        let copied = Copied { physical: self.journal.place(tag.copy)?, escaped: tag.escaped };
        self.overlay.insert(tag.target, copied);
        if self.overlay.len() as u64 > self.block_count_max {
            return Err(over(self.overlay_bytes_max));
        }
        Ok(())
    }

    fn revoke(&mut self, _: u32, _: u64) -> Result<(), TreeError> {
        Ok(())
    }

    fn committed(&mut self, _: u32) -> Result<(), TreeError> {
        Ok(())
    }
}

impl Journal<'_> {
    pub(super) fn replay(&self) -> Result<Replayed, TreeError> {
        let limits = &self.file_system.limits;
        let mut scan = Scan {
            revoked: HashMap::new(),
            pending: Vec::new(),
            limit: limits.revoke_count_max,
            overlay_bytes_max: limits.overlay_bytes_max,
        };
        let end = self.walk(None, &mut scan)?;
        let block_bytes = u64::from(self.file_system.superblock.block_bytes);
        let mut copy = Copy {
            journal: self,
            revoked: scan.revoked,
            overlay: Overlay::new(),
            buffer: vec![0; block_bytes as usize],
            disk_block_count: self.file_system.blocks.disk_bytes() / block_bytes,
            block_count_max: limits.overlay_bytes_max / block_bytes,
            overlay_bytes_max: limits.overlay_bytes_max,
        };
        self.walk(Some(end), &mut copy)?;
        Ok(Replayed { overlay: copy.overlay, next: Some(end) })
    }
}
