//! The promise that a workspace at rest has not moved since a read of its disk began.
//!
//! A read of a disk is a sequence lock: the epoch and the stamps are compared before the first byte is read and again
//! before each piece, or each error, goes out. Unseal raises the epoch and waits for nobody; what a reader holds then is
//! never sent.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::host::{
    seal::{self, Seal},
    spec::Disk,
};

/// Counts the transitions of one workspace.
#[derive(Debug, Clone, Default)]
pub struct Epoch(Arc<AtomicU64>);

impl Epoch {
    /// A transition took place: every lease of before is over.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A lease that ends with the next transition.
    pub fn lease(&self, disk: Option<(Disk, Seal)>) -> Lease {
        Lease { epoch: self.clone(), taken_at: self.0.load(Ordering::SeqCst), disk: disk.map(Arc::new) }
    }
}

/// Held by a read of a workspace at rest.
#[derive(Debug, Clone)]
pub struct Lease {
    epoch: Epoch,
    taken_at: u64,
    /// The disk and what it looked like when it was sealed; nothing for a directory.
    disk: Option<Arc<(Disk, Seal)>>,
}

impl Lease {
    /// Whether the workspace has stood still since: no transition, and a disk with its stamps.
    pub fn still_mine(&self) -> bool {
        let same_epoch = || self.epoch.0.load(Ordering::SeqCst) == self.taken_at;
        let stands = self.disk.as_deref().is_none_or(|(disk, seal)| seal::stands(disk, seal));
        same_epoch() && stands
    }

    /// The transitions that were seen when it was taken.
    pub fn taken_at(&self) -> u64 {
        self.taken_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_the_next_transition() {
        let epoch = Epoch::default();
        let lease = epoch.lease(None);
        assert!(lease.still_mine());
        epoch.advance();
        assert!(!lease.still_mine());
        assert!(epoch.lease(None).still_mine());
    }
}
