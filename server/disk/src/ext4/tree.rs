//! The engines' questions, answered from an ext4 file system.

use std::{io, ops::ControlFlow};

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

fn encrypted(inode: &Inode) -> Result<(), TreeError> {
    if inode.has(flag::ENCRYPT) {
        return Err(TreeError::Unavailable { what: "encrypted".to_owned() });
    }
    Ok(())
}

/// An inode's number, as this file system has them.
fn number_of(meta: &Meta) -> u32 {
    // It came from one of 32 bits.
    meta.inode as u32
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
        let number = match self.names.get(parent, name) {
            Some(Lead::Entered(number)) => return Ok(number),
            Some(Lead::Known(meta)) => number_of(&meta),
            Some(Lead::Nowhere) => return Err(TreeError::NotFound),
            None => self.number(parent, name)?,
        };
        let child = self.named_inode(number)?;
        if child.kind != FileType::Directory {
            return Err(TreeError::NotDirectory(child.kind));
        }
        if child.number == ROOT || self.parent_of(&child)? != parent {
            return Err(child.corrupt(&format!("directory: found in inode {parent}, which is not its ..")));
        }
        self.names.put(parent, name, Lead::Entered(child.number));
        Ok(child.number)
    }

    /// Where a name leads, as the directory says; that it leads nowhere is kept.
    fn number(&self, parent: u32, name: &[u8]) -> Result<u32, TreeError> {
        let directory = self.directory_inode(parent)?;
        let found = self.lookup(&directory, name);
        if matches!(found, Err(TreeError::NotFound)) {
            self.names.put(parent, name, Lead::Nowhere);
        }
        found
    }

    pub(crate) fn stat(&self, parent: u32, name: &[u8]) -> Result<Meta, TreeError> {
        match self.names.get(parent, name) {
            Some(Lead::Known(meta)) => return Ok(meta),
            Some(Lead::Entered(number)) => return Ok(self.named_inode(number)?.meta()),
            Some(Lead::Nowhere) => return Err(TreeError::NotFound),
            None => (),
        }
        let meta = self.new_named_inode(self.number(parent, name)?)?.meta();
        self.names.put(parent, name, Lead::Known(meta));
        Ok(meta)
    }

    /// The inode of a name that is to be read. It is not kept: whoever reads all files of a disk must not drive out what is
    /// asked by its path again and again, and what is read by its path was looked at just before.
    fn child(&self, parent: u32, name: &[u8]) -> Result<Inode, TreeError> {
        let number = match self.names.get(parent, name) {
            Some(Lead::Known(meta)) => number_of(&meta),
            Some(Lead::Entered(number)) => number,
            Some(Lead::Nowhere) => return Err(TreeError::NotFound),
            None => self.number(parent, name)?,
        };
        self.new_named_inode(number)
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
        let inode = self.child(parent, name)?;
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

    pub(crate) fn open(&self, parent: u32, name: &[u8]) -> Result<Inode, TreeError> {
        let inode = self.child(parent, name)?;
        if inode.kind != FileType::Regular {
            return Err(TreeError::NotRegular(inode.kind));
        }
        encrypted(&inode)?;
        Ok(inode)
    }
}
