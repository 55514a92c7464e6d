//! The engines' questions, answered from an ext4 file system.

use std::{io, ops::ControlFlow, sync::Arc};

use dormouse_files::{
    meta::{FileType, Meta},
    tree::{Name, TreeError},
};

use super::{
    Ext4,
    inode::{Inode, ROOT, flag},
    names::Lead,
};

/// PATH_MAX without the final NUL.
const LINK_BYTES_MAX: u64 = 4_095;

/// Whether what was found is kept for the next one who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Keep,
    Leave,
}

fn encrypted(inode: &Inode) -> Result<(), TreeError> {
    if inode.has(flag::ENCRYPT) {
        return Err(TreeError::Unavailable { what: "encrypted".to_owned() });
    }
    Ok(())
}

impl Ext4 {
    /// The root directory's number.
    pub(crate) fn root(&self) -> Result<u32, TreeError> {
        let root = self.directory_inode(ROOT)?;
        if self.parent_of(&root)? != ROOT {
            return Err(root.corrupt("directory: the root's .. does not lead to the root"));
        }
        Ok(ROOT)
    }

    /// A directory in a directory.
    ///
    /// A child is entered only where its own `..` names the directory it was found in, and never where it is the root. Since
    /// every directory has one `..` and the root's is the root, each directory can then be entered from one parent only,
    /// and no way down leads back to a directory that it came through. The kernel keeps `..` true on every rename.
    pub(crate) fn directory(&self, parent: u32, name: &[u8]) -> Result<u32, TreeError> {
        // Kept below, once it is known that it may be entered.
        let child = match self.lead(parent, name, Memory::Leave)? {
            Lead::Entered(number) => return Ok(number),
            Lead::Inode(inode) => inode,
            Lead::Nowhere => return Err(TreeError::NotFound),
        };
        if child.kind != FileType::Directory {
            return Err(TreeError::NotDirectory(child.kind));
        }
        if child.number == ROOT || self.parent_of(&child)? != parent {
            return Err(child.corrupt(&format!("directory: found in inode {parent}, which is not its ..")));
        }
        self.names.put(parent, name, Lead::Entered(child.number));
        Ok(child.number)
    }

    /// Where a name leads: as it was found before, or as the directory says.
    fn lead(&self, parent: u32, name: &[u8], memory: Memory) -> Result<Lead, TreeError> {
        if let Some(lead) = self.names.get(parent, name) {
            return Ok(lead);
        }
        let directory = self.directory_inode(parent)?;
        let lead = match self.lookup(&directory, name) {
            Ok(number) => Lead::Inode(self.new_named_inode(number)?),
            Err(TreeError::NotFound) => Lead::Nowhere,
            Err(error) => return Err(error),
        };
        if memory == Memory::Keep || matches!(lead, Lead::Nowhere) {
            self.names.put(parent, name, lead.clone());
        }
        Ok(lead)
    }

    pub(crate) fn stat(&self, parent: u32, name: &[u8]) -> Result<Meta, TreeError> {
        Ok(self.child(parent, name, Memory::Keep)?.meta())
    }

    pub(crate) fn list(
        &self,
        directory: u32,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let inode = self.directory_inode(directory)?;
        self.for_each_name(&inode, &mut |entry| visit(entry.into()))
    }

    pub(crate) fn link(&self, parent: u32, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        let inode = self.child(parent, name, Memory::Keep)?;
        if inode.kind != FileType::Symlink {
            // What readlink(2) says of it.
            return Err(TreeError::Io(io::ErrorKind::InvalidInput.into()));
        }
        encrypted(&inode)?;
        if inode.size_bytes == 0 || inode.size_bytes > LINK_BYTES_MAX {
            return Err(inode.corrupt("symbolic link: length"));
        }
        let mut target = vec![0; inode.size_bytes as usize];
        self.read_link(&inode, &mut target)?;
        if target.contains(&0) {
            return Err(inode.corrupt("symbolic link: a NUL in its target"));
        }
        Ok(target)
    }

    fn read_link(&self, inode: &Inode, target: &mut [u8]) -> Result<(), TreeError> {
        // A fast link: its target is where the map would be, with at least one NUL behind it.
        let fast = target.len() < inode.map.len() && !inode.has(flag::EXTENTS) && !inode.has(flag::INLINE_DATA);
        match inode.map.get(..target.len()).filter(|_| fast) {
            Some(held) => target.copy_from_slice(held),
            None => {
                self.read_inode(inode, 0, target)?;
            }
        }
        Ok(())
    }

    pub(crate) fn open(&self, parent: u32, name: &[u8]) -> Result<Arc<Inode>, TreeError> {
        // Whoever reads all files of a disk must not drive out what is asked by its path again and again, and what is
        // opened by its path was looked at just before.
        let inode = self.child(parent, name, Memory::Leave)?;
        if inode.kind != FileType::Regular {
            return Err(TreeError::NotRegular(inode.kind));
        }
        encrypted(&inode)?;
        Ok(inode)
    }

    fn child(&self, parent: u32, name: &[u8], memory: Memory) -> Result<Arc<Inode>, TreeError> {
        match self.lead(parent, name, memory)? {
            Lead::Inode(inode) => Ok(inode),
            Lead::Entered(number) => self.named_inode(number),
            Lead::Nowhere => Err(TreeError::NotFound),
        }
    }
}
