//! A disk that is open: what the server holds for each suspended workspace.

use std::{
    io,
    ops::{ControlFlow, Deref},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use dormouse_files::{
    meta::Meta,
    tree::{Name, Tree, TreeError},
};
use sha2::{Digest, Sha256};

use crate::{
    BlockSource, Consistency, DiskLimits, DiskSpec, Format, LayerStamp, OpenError, Unsealed, Xattr,
    ext4::{
        Ext4,
        ahead::Window,
        inode::{Inode, ROOT},
        superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock, compat, incompat},
    },
    partition,
    qcow2::Chain,
    source::{ClonedFile, RawFile},
};

/// Bytes at the beginning of a file system that every open asks for.
const BEGIN_BYTES: u64 = 8 << 10;

/// A disk that is open; implements [`Tree`]. Every method may be called by many threads at once.
pub struct Volume {
    file_system: Ext4,
    source: Arc<dyn BlockSource>,
    stamp: Vec<LayerStamp>,
    cloning: Cloning,
    superblock: [u8; SUPERBLOCK_BYTES],
    needs_recovery: bool,
    consistency: Consistency,
    reading_count: AtomicUsize,
}

/// A [`Volume`] that is read by one call, or by more that end together.
///
/// With the last of them the content goes that was read ahead or decoded, of which a volume holds at most 5 MiB and 4 MiB; who
/// reads a volume without one keeps that until the volume is dropped.
pub struct Reading(Arc<Volume>);

impl Reading {
    /// Begins to read.
    pub fn of(volume: Arc<Volume>) -> Self {
        volume.reading_count.fetch_add(1, Ordering::AcqRel);
        Self(volume)
    }
}

impl Deref for Reading {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // One that begins meanwhile loses a window at the most, and reads it again.
        if self.0.reading_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.file_system.forget_content();
        }
    }
}

/// What the superblock alone says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Without one a clear `needs_recovery` proves nothing.
    pub has_journal: bool,
    /// The journal holds changes that are not at their place yet.
    pub needs_recovery: bool,
    /// Of the file system.
    pub uuid: [u8; 16],
    /// SHA-256 of the 1,024 bytes of the superblock.
    pub superblock_sha256: [u8; 32],
    /// Of each layer, before the superblock was read.
    pub stamp: Vec<LayerStamp>,
}

/// A directory of a [`Volume`]: its inode's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryId(u32);

/// A regular file of a [`Volume`] that is open: its inode, with the root of its extents, and what was read ahead of it.
pub struct OpenFile {
    inode: Inode,
    window: OnceLock<Arc<Window>>,
}

/// The superblock of a source and where it came from.
struct Opened {
    source: Arc<dyn BlockSource>,
    stamp: Vec<LayerStamp>,
    cloning: Cloning,
    bytes: [u8; SUPERBLOCK_BYTES],
    superblock: Superblock,
    path: PathBuf,
}

/// Whether a disk's bytes are read from a private clone of its file.
#[derive(Debug)]
pub enum Cloning {
    /// They are not, and it was not tried: not asked for, or a disk of more than one raw file.
    None,
    /// They are.
    Done,
    /// They are not, because the file's file system or the system refused it.
    Refused(io::Error),
}

/// Whether to try for a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Clone,
    NoClone,
}

/// A source, what its layers looked like before any of its bytes was read, and what became of the wish for a clone.
type Layers = (Arc<dyn BlockSource>, Vec<LayerStamp>, Cloning);

/// The stamps are from before anything is read or cloned: what is read must be no older than its stamp.
fn open_layers(spec: &DiskSpec, wish: Wish, limits: &DiskLimits) -> Result<(Layers, PathBuf), OpenError> {
    let Some(first) = spec.layers.first() else {
        return Err(OpenError::Unavailable { what: "no_layers".to_owned() });
    };
    if spec.layers.len() > limits.layer_count_max {
        return Err(OpenError::Unavailable { what: "layer_count".to_owned() });
    }
    let layers: Layers = match first.format {
        Format::Qcow2 => {
            let chain = Chain::open(&spec.layers)?;
            let stamp = chain.opened();
            (Arc::new(chain), stamp, Cloning::None)
        }
        Format::Raw if spec.layers.len() > 1 => {
            return Err(OpenError::Unavailable { what: "raw_layer_with_backing".to_owned() });
        }
        Format::Raw => {
            let raw =
                RawFile::open(&first.path).map_err(|source| OpenError::Io { path: first.path.clone(), source })?;
            let stamp = raw.opened();
            match wish {
                Wish::NoClone => (Arc::new(raw), stamp, Cloning::None),
                Wish::Clone => match ClonedFile::of(raw) {
                    Ok(cloned) => (Arc::new(cloned), stamp, Cloning::Done),
                    Err((raw, error)) => (Arc::new(raw), stamp, Cloning::Refused(error)),
                },
            }
        }
    };
    Ok((layers, first.path.clone()))
}

/// Names a file system that is known but not read here.
fn other_file_system(source: &dyn BlockSource) -> Option<&'static str> {
    let holds = |offset, magic: &[u8]| {
        let mut bytes = vec![0; magic.len()];
        source.read_at(offset, &mut bytes).is_ok() && bytes == magic
    };
    if holds(0, b"XFSB") {
        return Some("xfs");
    }
    holds(0x1_0040, b"_BHRfS_M").then_some("btrfs")
}

impl Opened {
    fn from_spec(spec: &DiskSpec, wish: Wish, limits: &DiskLimits) -> Result<Self, OpenError> {
        let ((whole, stamp, cloning), path) = open_layers(spec, wish, limits)?;
        let source = match &spec.partition {
            Some(wanted) => partition::select(whole, wanted)?,
            None => whole,
        };
        Self::from_source((source, stamp, cloning), path)
    }

    fn from_source((source, stamp, cloning): Layers, path: PathBuf) -> Result<Self, OpenError> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        if source.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
            return Err(OpenError::Corrupt { what: "the disk is too short for a superblock".to_owned() });
        }
        if source.is_fresh() {
            // The superblock and, behind it, the first descriptors of groups: one wait for a device in place of two.
            source.will_need(0, BEGIN_BYTES);
        }
        source.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|source| match source.kind() {
            // A layer's own format does not hold.
            io::ErrorKind::InvalidData => OpenError::Corrupt { what: source.to_string() },
            _ => OpenError::Io { path: path.clone(), source },
        })?;
        let superblock = Superblock::parse(&bytes, source.len()).map_err(|error| match error {
            TreeError::Unavailable { what } if what == "unknown_file_system" => OpenError::Unavailable {
                what: other_file_system(source.as_ref()).unwrap_or("unknown_file_system").to_owned(),
            },
            error => OpenError::from_tree(error, &path),
        })?;
        Ok(Self { source, stamp, cloning, bytes, superblock, path })
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Reads the superblock and nothing else: what a seal needs to know.
///
/// # Errors
/// As [`Volume::open`], except those of the journal.
pub fn probe(spec: &DiskSpec, limits: &DiskLimits) -> Result<Probe, OpenError> {
    let opened = Opened::from_spec(spec, Wish::NoClone, limits)?;
    Ok(Probe {
        has_journal: opened.superblock.has_compat(compat::HAS_JOURNAL),
        needs_recovery: opened.superblock.has_incompat(incompat::RECOVER),
        uuid: opened.superblock.uuid,
        superblock_sha256: sha256(&opened.bytes),
        stamp: opened.stamp,
    })
}

impl Volume {
    /// Opens the file system on a disk.
    ///
    /// # Errors
    /// See [`OpenError`]. A disk whose journal needs recovery is `Unavailable` with `needs_recovery`, unless `unsealed`
    /// allows it.
    pub fn open(spec: &DiskSpec, unsealed: Unsealed, limits: &DiskLimits) -> Result<Self, OpenError> {
        Self::from_opened(Opened::from_spec(spec, Wish::NoClone, limits)?, unsealed, limits)
    }

    /// The same, reading from a private clone of the disk where it is one raw file on a file system that can clone it, and
    /// from the disk elsewhere: [`Volume::cloning`] tells. The clone has no name, takes space only where the disk is
    /// written later, and is gone with the volume. Whether the disk has changed is still asked of the disk.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_clone(spec: &DiskSpec, unsealed: Unsealed, limits: &DiskLimits) -> Result<Self, OpenError> {
        Self::from_opened(Opened::from_spec(spec, Wish::Clone, limits)?, unsealed, limits)
    }

    /// Opens the file system that fills a source; for sources that no [`DiskSpec`] describes.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn from_source(
        source: Arc<dyn BlockSource>,
        unsealed: Unsealed,
        limits: &DiskLimits,
    ) -> Result<Self, OpenError> {
        let path = PathBuf::new();
        let stamp = source.stamp().map_err(|source| OpenError::Io { path: path.clone(), source })?;
        Self::from_opened(Opened::from_source((source, stamp, Cloning::None), path)?, unsealed, limits)
    }

    fn from_opened(opened: Opened, unsealed: Unsealed, limits: &DiskLimits) -> Result<Self, OpenError> {
        let Opened { source, stamp, cloning, bytes, superblock, path } = opened;
        let needs_recovery = superblock.has_incompat(incompat::RECOVER);
        if needs_recovery && unsealed == Unsealed::Never {
            return Err(OpenError::Unavailable { what: "needs_recovery".to_owned() });
        }
        let consistency = if needs_recovery { Consistency::Crash } else { Consistency::Exact };
        let mut file_system = Ext4::new(Arc::clone(&source), superblock, limits);
        if needs_recovery {
            file_system.replay().map_err(|error| OpenError::from_tree(error, &path))?;
        }
        let volume = Self {
            file_system,
            source,
            stamp,
            cloning,
            superblock: bytes,
            needs_recovery,
            consistency,
            reading_count: AtomicUsize::new(0),
        };
        // A disk whose root cannot be read answers nothing: say so now.
        volume.file_system.root().map_err(|error| OpenError::from_tree(error, &path))?;
        Ok(volume)
    }

    /// How true its answers are.
    pub fn consistency(&self) -> Consistency {
        self.consistency
    }

    /// Whether a clone of the disk is read in its place.
    pub fn cloning(&self) -> &Cloning {
        &self.cloning
    }

    /// What each layer looked like before the first byte of it was read.
    pub fn stamp(&self) -> &[LayerStamp] {
        &self.stamp
    }

    /// Whether the disk may have been written since it was opened. Where only the time of an inode's change moved, as a hard
    /// link or a chmod of the image moves it, the superblock decides; on a block device it is asked as well.
    pub fn changed(&self) -> bool {
        let Ok(now) = self.source.stamp() else { return true };
        if now == self.stamp && self.source.stamp_tells() {
            return false;
        }
        let but_change_time = |stamp: &LayerStamp| LayerStamp { change_time: Default::default(), ..stamp.clone() };
        if !now.iter().map(but_change_time).eq(self.stamp.iter().map(but_change_time)) {
            return true;
        }
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.source.read_layers_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() || bytes != self.superblock
    }

    /// SHA-256 of the 1,024 bytes of the superblock, as they lay on the disk when it was opened.
    pub fn superblock_sha256(&self) -> [u8; 32] {
        sha256(&self.superblock)
    }

    /// The identity of the file system.
    pub fn uuid(&self) -> [u8; 16] {
        self.file_system.superblock.uuid
    }

    /// The extended attributes of an inode, sorted by name, as a process with every right sees them; of attributes that only
    /// file systems know, such as inline data, none. Inodes are numbered as in [`Meta::inode`].
    ///
    /// # Errors
    /// As a read of the inode.
    pub fn xattrs(&self, inode: u64) -> Result<Vec<Xattr>, TreeError> {
        let number = u32::try_from(inode).map_err(|_| TreeError::NotFound)?;
        let inode = self.file_system.named_inode(number)?;
        self.file_system.xattrs(&inode)
    }

    /// Bytes of memory that it holds: they grow while it is read, up to the bounds of its limits.
    pub fn held_bytes(&self) -> usize {
        self.file_system.held_bytes()
    }

    /// Whether the journal held changes that were not at their place when the disk was opened.
    pub fn needs_recovery(&self) -> bool {
        self.needs_recovery
    }

    /// Whether it has a journal: without one a clear `needs_recovery` proves nothing.
    pub fn has_journal(&self) -> bool {
        self.file_system.superblock.has_compat(compat::HAS_JOURNAL)
    }
}

impl Tree for Volume {
    type Directory = DirectoryId;
    type File = OpenFile;

    fn root(&self) -> Result<DirectoryId, TreeError> {
        // It was found sound when the disk was opened.
        Ok(DirectoryId(ROOT))
    }

    fn directory(&self, parent: &DirectoryId, name: &[u8]) -> Result<DirectoryId, TreeError> {
        self.file_system.directory(parent.0, name).map(DirectoryId)
    }

    fn stat(&self, parent: &DirectoryId, name: &[u8]) -> Result<Meta, TreeError> {
        self.file_system.stat(parent.0, name)
    }

    fn stat_directory(&self, directory: &DirectoryId) -> Result<Meta, TreeError> {
        Ok(self.file_system.directory_inode(directory.0)?.meta())
    }

    fn names(
        &self,
        directory: &DirectoryId,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        self.file_system.list(directory.0, visit)
    }

    fn link(&self, parent: &DirectoryId, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        self.file_system.link(parent.0, name)
    }

    fn open(&self, parent: &DirectoryId, name: &[u8]) -> Result<(OpenFile, Meta), TreeError> {
        let inode = self.file_system.open(parent.0, name)?;
        let meta = inode.meta();
        Ok((OpenFile { inode, window: OnceLock::new() }, meta))
    }

    fn stat_file(&self, file: &OpenFile) -> Result<Meta, TreeError> {
        Ok(file.inode.meta())
    }

    fn read_at(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        self.file_system.read_inode(&file.inode, offset, buffer)
    }

    fn lend<'a>(&'a self, file: &'a OpenFile, offset: u64, length: usize) -> Result<Option<&'a [u8]>, TreeError> {
        self.file_system.lend_inode(&file.inode, &file.window, offset, length)
    }

    fn verify(&self) -> Result<(), TreeError> {
        if self.changed() { Err(TreeError::Changed) } else { Ok(()) }
    }
}
