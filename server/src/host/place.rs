//! Where a workspace's files are now: a directory of this host, or a disk. One tree over both, so that an engine neither
//! knows nor asks which it is; and in front of it the lease, so that nothing is handed out from a disk that has moved.

use std::{io, ops::ControlFlow};

use dormouse_disk::{Reading, Volume};
use dormouse_files::{
    meta::{FileType, Meta},
    tree::{Identity, Name, Tree, TreeError},
};
use dormouse_live::LiveTree;

use crate::host::lease::Lease;

/// The files of one call.
pub struct Place {
    source: Source,
    /// Of a workspace at rest; a running one promises nothing beyond what its file system does.
    lease: Option<Lease>,
}

/// Which tree.
pub enum Source {
    /// A directory of this host.
    Live(LiveTree),
    /// A disk.
    Disk(Reading),
}

/// A directory that is held in a [`Place`].
#[derive(Clone)]
pub enum PlaceDirectory {
    /// Of a directory of this host.
    Live(<LiveTree as Tree>::Directory),
    /// Of a disk.
    Disk(<Volume as Tree>::Directory),
}

/// A file that is held open in a [`Place`].
pub enum PlaceFile {
    /// Of a directory of this host.
    Live(<LiveTree as Tree>::File),
    /// Of a disk.
    Disk(<Volume as Tree>::File),
}

impl Place {
    /// These files, under this lease.
    pub fn new(source: Source, lease: Option<Lease>) -> Self {
        Self { source, lease }
    }

    /// Whether its workspace has not moved on.
    pub fn still_mine(&self) -> bool {
        self.lease.as_ref().is_none_or(Lease::still_mine)
    }
}

/// The directory at a workspace's root in which the agent inside keeps its journal; live or on the disk no verb shows it.
const AGENT_NAME: &[u8] = b".dormouse";
/// Its permission: nobody else's directory of that name is likely to have it.
const AGENT_MODE: u32 = 0o700;

/// Whether a name on a disk is the agent's own directory.
fn hides(volume: &Volume, parent: &<Volume as Tree>::Directory, name: &[u8]) -> bool {
    name == AGENT_NAME
        && volume.root().is_ok_and(|root| root == *parent)
        && volume.stat(parent, name).is_ok_and(|meta| meta.kind == FileType::Directory && meta.mode == AGENT_MODE)
}

/// As a name that is there, or is not.
fn shown(volume: &Volume, parent: &<Volume as Tree>::Directory, name: &[u8]) -> Result<(), TreeError> {
    if hides(volume, parent, name) { Err(TreeError::NotFound) } else { Ok(()) }
}

/// What a directory or file of another place answers: a defect, told as an error so that no call can bring the host down.
fn foreign() -> TreeError {
    TreeError::Io(io::Error::other("it is held in another place"))
}

impl Tree for Place {
    type Directory = PlaceDirectory;
    type File = PlaceFile;

    fn root(&self) -> Result<PlaceDirectory, TreeError> {
        match &self.source {
            Source::Live(tree) => tree.root().map(PlaceDirectory::Live),
            Source::Disk(volume) => volume.root().map(PlaceDirectory::Disk),
        }
    }

    fn directory(&self, parent: &PlaceDirectory, name: &[u8]) -> Result<PlaceDirectory, TreeError> {
        match (&self.source, parent) {
            (Source::Live(tree), PlaceDirectory::Live(parent)) => {
                tree.directory(parent, name).map(PlaceDirectory::Live)
            }
            (Source::Disk(volume), PlaceDirectory::Disk(parent)) => {
                shown(volume, parent, name)?;
                volume.directory(parent, name).map(PlaceDirectory::Disk)
            }
            _ => Err(foreign()),
        }
    }

    fn stat(&self, parent: &PlaceDirectory, name: &[u8]) -> Result<Meta, TreeError> {
        match (&self.source, parent) {
            (Source::Live(tree), PlaceDirectory::Live(parent)) => tree.stat(parent, name),
            (Source::Disk(volume), PlaceDirectory::Disk(parent)) => {
                shown(volume, parent, name)?;
                volume.stat(parent, name)
            }
            _ => Err(foreign()),
        }
    }

    fn stat_directory(&self, directory: &PlaceDirectory) -> Result<Meta, TreeError> {
        match (&self.source, directory) {
            (Source::Live(tree), PlaceDirectory::Live(directory)) => tree.stat_directory(directory),
            (Source::Disk(volume), PlaceDirectory::Disk(directory)) => volume.stat_directory(directory),
            _ => Err(foreign()),
        }
    }

    fn identify(&self, directory: &PlaceDirectory) -> Result<Identity, TreeError> {
        match (&self.source, directory) {
            (Source::Live(tree), PlaceDirectory::Live(directory)) => tree.identify(directory),
            (Source::Disk(volume), PlaceDirectory::Disk(directory)) => volume.identify(directory),
            _ => Err(foreign()),
        }
    }

    fn names(
        &self,
        directory: &PlaceDirectory,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        match (&self.source, directory) {
            (Source::Live(tree), PlaceDirectory::Live(directory)) => tree.names(directory, visit),
            (Source::Disk(volume), PlaceDirectory::Disk(directory)) => {
                volume.names(directory, &mut |found: Name<'_>| match hides(volume, directory, found.bytes) {
                    true => ControlFlow::Continue(()),
                    false => visit(found),
                })
            }
            _ => Err(foreign()),
        }
    }

    fn link(&self, parent: &PlaceDirectory, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        match (&self.source, parent) {
            (Source::Live(tree), PlaceDirectory::Live(parent)) => tree.link(parent, name),
            (Source::Disk(volume), PlaceDirectory::Disk(parent)) => {
                shown(volume, parent, name)?;
                volume.link(parent, name)
            }
            _ => Err(foreign()),
        }
    }

    fn open(&self, parent: &PlaceDirectory, name: &[u8]) -> Result<(PlaceFile, Meta), TreeError> {
        match (&self.source, parent) {
            (Source::Live(tree), PlaceDirectory::Live(parent)) => {
                tree.open(parent, name).map(|(file, meta)| (PlaceFile::Live(file), meta))
            }
            (Source::Disk(volume), PlaceDirectory::Disk(parent)) => {
                shown(volume, parent, name)?;
                volume.open(parent, name).map(|(file, meta)| (PlaceFile::Disk(file), meta))
            }
            _ => Err(foreign()),
        }
    }

    fn stat_file(&self, file: &PlaceFile) -> Result<Meta, TreeError> {
        match (&self.source, file) {
            (Source::Live(tree), PlaceFile::Live(file)) => tree.stat_file(file),
            (Source::Disk(volume), PlaceFile::Disk(file)) => volume.stat_file(file),
            _ => Err(foreign()),
        }
    }

    fn read_at(&self, file: &PlaceFile, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        match (&self.source, file) {
            (Source::Live(tree), PlaceFile::Live(file)) => tree.read_at(file, offset, buffer),
            (Source::Disk(volume), PlaceFile::Disk(file)) => volume.read_at(file, offset, buffer),
            _ => Err(foreign()),
        }
    }

    fn read_rest(&self, file: &PlaceFile, offset: u64, end: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        match (&self.source, file) {
            (Source::Live(tree), PlaceFile::Live(file)) => tree.read_rest(file, offset, end, buffer),
            (Source::Disk(volume), PlaceFile::Disk(file)) => volume.read_rest(file, offset, end, buffer),
            _ => Err(foreign()),
        }
    }

    fn lend<'a>(&'a self, file: &'a PlaceFile, offset: u64, length: usize) -> Result<Option<&'a [u8]>, TreeError> {
        match (&self.source, file) {
            (Source::Live(tree), PlaceFile::Live(file)) => tree.lend(file, offset, length),
            (Source::Disk(volume), PlaceFile::Disk(file)) => volume.lend(file, offset, length),
            _ => Err(foreign()),
        }
    }

    fn verify(&self) -> Result<(), TreeError> {
        match &self.source {
            Source::Live(tree) => tree.verify()?,
            Source::Disk(volume) => volume.verify()?,
        }
        match &self.lease {
            Some(lease) if !lease.still_mine() => Err(TreeError::Changed),
            _ => Ok(()),
        }
    }
}
