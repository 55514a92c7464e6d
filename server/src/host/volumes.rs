//! The disks that are open, over all workspaces: opened once for each rest, from a clone where the host's file system can
//! make one, and bounded in number and in bytes of memory. What was not read for longest is closed first; its next read
//! opens it anew, which takes less than a millisecond.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use dormouse_disk::{Cloning, DiskLimits, OpenError, Unsealed, Volume};

use crate::host::{
    lease::Lease,
    spec::Disk,
    workspace::{OpenVolume, Workspace},
};

/// Whether a sealed disk is read from a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clones {
    /// Where the host's file system can make one.
    Auto,
    /// Never.
    Never,
}

/// How disks are kept open.
#[derive(Debug, Clone)]
pub struct VolumeSettings {
    /// Whether they are read from clones.
    pub clones: Clones,
    /// Disks that stay open, each with a file descriptor or two.
    pub volume_count_max: usize,
    /// Bytes of memory that all of them hold together; the one that is being read stays open beyond it.
    pub volume_bytes_max: usize,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        Self { clones: Clones::Auto, volume_count_max: 256, volume_bytes_max: 256 << 20 }
    }
}

/// The disks that are open.
pub struct Volumes {
    settings: VolumeSettings,
    /// The one that was used last at the end. A volume belongs to its workspace; this only knows of it.
    used: Mutex<VecDeque<Used>>,
}

struct Used {
    workspace: Weak<Workspace>,
    volume: Weak<Volume>,
}

impl Volumes {
    /// None yet.
    pub fn new(settings: VolumeSettings) -> Self {
        Self { settings, used: Mutex::default() }
    }

    /// Whether disks are read from clones where that is possible.
    pub fn clones(&self) -> Clones {
        self.settings.clones
    }

    /// The workspace's disk as this lease has it: from the workspace, where another call of this rest has opened it.
    /// Blocks.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open(
        &self,
        workspace: &Arc<Workspace>,
        disk: &Disk,
        unsealed: Unsealed,
        lease: &Lease,
        limits: &DiskLimits,
    ) -> Result<OpenVolume, OpenError> {
        let epoch = lease.taken_at();
        let known = workspace.held().volume.clone();
        if let Some(known) = known.filter(|known| known.epoch == epoch) {
            self.used(workspace, &known.volume);
            return Ok(known);
        }
        // Two first readers may both open it; one of the two is kept. No lock is held while a disk is read.
        let volume = match self.settings.clones {
            Clones::Auto => Volume::open_clone(&disk.to_reader(), unsealed, limits)?,
            Clones::Never => Volume::open(&disk.to_reader(), unsealed, limits)?,
        };
        if let Cloning::Refused(error) = volume.cloning() {
            tracing::debug!(workspace = workspace.name(), %error, "the disk is read without a clone");
        }
        let opened = OpenVolume { epoch, consistency: volume.consistency(), volume: Arc::new(volume) };
        {
            let mut held = workspace.held();
            if !lease.still_mine() || held.released {
                return Ok(opened);
            }
            held.volume = Some(opened.clone());
        }
        self.used(workspace, &opened.volume);
        Ok(opened)
    }

    /// Remembers that a volume was used, and closes those that are over the bounds.
    fn used(&self, workspace: &Arc<Workspace>, volume: &Arc<Volume>) {
        for closed in self.over(workspace, volume) {
            let (Some(workspace), Some(volume)) = (closed.workspace.upgrade(), closed.volume.upgrade()) else {
                continue;
            };
            let mut held = workspace.held();
            let same = |open: &mut OpenVolume| Arc::ptr_eq(&open.volume, &volume);
            // Dropped after the lock: to close a disk may take a moment.
            let gone = held.volume.take_if(same);
            drop(held);
            drop(gone);
        }
    }

    fn over(&self, workspace: &Arc<Workspace>, volume: &Arc<Volume>) -> Vec<Used> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let this = Arc::downgrade(volume);
        used.retain(|other| other.volume.strong_count() > 0 && !other.volume.ptr_eq(&this));
        used.push_back(Used { workspace: Arc::downgrade(workspace), volume: this });
        let held_bytes = |used: &Used| used.volume.upgrade().map_or(0, |volume| volume.held_bytes());
        let mut bytes: usize = used.iter().map(held_bytes).sum();
        let mut closed = Vec::new();
        while used.len() > 1 && (used.len() > self.settings.volume_count_max || bytes > self.settings.volume_bytes_max)
        {
            let Some(oldest) = used.pop_front() else { break };
            bytes = bytes.saturating_sub(held_bytes(&oldest));
            closed.push(oldest);
        }
        closed
    }
}
