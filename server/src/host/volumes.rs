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

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;
    use crate::host::{
        spec::{DiskFormat, DiskLayer, FileSystem, Spec},
        state::State,
        store::{Moment, Record, SCHEMA},
    };

    fn make(place: &Path, name: &str) -> (Arc<Workspace>, Disk) {
        let path = place.join(name);
        let tools = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let mut make = Command::new("mke2fs");
        make.env("PATH", tools).args(["-q", "-F", "-t", "ext4"]).arg(&path).arg("8M");
        assert!(make.status().expect("mke2fs (Debian package e2fsprogs) starts").success());
        let layers = vec![DiskLayer { path, format: DiskFormat::Raw }];
        let (partition, mount_path) = (None, "/".to_owned());
        let disk = Disk { layers, partition, file_system: FileSystem::Ext4, mount_path, flushes: true };
        let record = Record {
            schema: SCHEMA,
            name: name.to_owned(),
            spec: Spec::Machine { guest: None, disks: vec![disk.clone()] },
            state: State::Suspended,
            generation: 1,
            last: None,
            seal: None,
            note: String::new(),
            transition_time: Moment::now(),
            frozen: None,
        };
        (Arc::new(Workspace::new(record, None)), disk)
    }

    fn open(volumes: &Volumes, (workspace, disk): &(Arc<Workspace>, Disk)) -> OpenVolume {
        let lease = workspace.epoch().lease(None);
        let limits = DiskLimits::default();
        volumes.open(workspace, disk, Unsealed::Never, &lease, &limits).unwrap_or_else(|error| panic!("{error}"))
    }

    fn is_open((workspace, _): &(Arc<Workspace>, Disk)) -> bool {
        workspace.held().volume.is_some()
    }

    #[test]
    fn the_least_recently_read_disk_is_closed() {
        let place = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(VolumeSettings { volume_count_max: 2, ..VolumeSettings::default() });
        let all = ["a", "b", "c"].map(|name| make(place.path(), name));
        let first = open(&volumes, &all[0]);
        assert!(Arc::ptr_eq(&first.volume, &open(&volumes, &all[0]).volume), "one for each rest");
        open(&volumes, &all[1]);
        open(&volumes, &all[0]);
        open(&volumes, &all[2]);
        assert_eq!(all.each_ref().map(is_open), [true, false, true]);
        // A transition lets go of the disk; nobody else holds it.
        let held = Arc::downgrade(&first.volume);
        drop(first);
        all[0].0.held().volume = None;
        assert!(held.upgrade().is_none());
        open(&volumes, &all[1]);
        assert_eq!(all.each_ref().map(is_open), [false, true, true]);
    }

    #[test]
    fn the_bytes_of_all_disks_have_a_bound() {
        let place = tempfile::tempdir().unwrap();
        let all = ["a", "b", "c", "d"].map(|name| make(place.path(), name));
        let one = open(&Volumes::new(VolumeSettings::default()), &all[0]).volume.held_bytes();
        assert!(one > 0);
        all[0].0.held().volume = None;
        let settings = VolumeSettings { volume_bytes_max: one * 5 / 2, ..VolumeSettings::default() };
        let volumes = Volumes::new(settings.clone());
        for workspace in all.iter().cycle().take(20) {
            open(&volumes, workspace);
            let volumes = all.iter().filter_map(|(workspace, _)| workspace.held().volume.clone());
            let bytes: usize = volumes.map(|open| open.volume.held_bytes()).sum();
            assert!((one..=settings.volume_bytes_max).contains(&bytes), "{bytes} of {}", settings.volume_bytes_max);
        }
        // One disk beyond the bound is still read.
        let volumes = Volumes::new(VolumeSettings { volume_bytes_max: 0, ..settings });
        for workspace in &all {
            workspace.0.held().volume = None;
        }
        open(&volumes, &all[0]);
        open(&volumes, &all[1]);
        assert_eq!(all.each_ref().map(is_open), [false, true, false, false]);
    }
}
