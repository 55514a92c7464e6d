//! Where the bytes of a file lie, whichever of the three ways its inode tells it: extents, block numbers, or inline.

use std::sync::{Arc, OnceLock};

use dormouse_files::{meta::FileType, tree::TreeError};

use super::{
    Ext4,
    ahead::Window,
    extents, indirect, inline,
    inode::{Inode, flag},
    run::Run,
};

impl Ext4 {
    /// The run that begins at the file's block `logical`.
    pub(crate) fn run(&self, inode: &Inode, logical: u64) -> Result<Run, TreeError> {
        let told = match &self.changes {
            // Blocks of directories are read as the blocks describe them.
            Some(changes) if inode.kind != FileType::Directory => changes.run(inode.number, logical),
            _ => Err(u64::MAX),
        };
        let most = match told {
            Ok(run) => return Ok(run),
            Err(most) => most,
        };
        let mut run = if inode.has(flag::EXTENTS) {
            extents::find(self, inode, logical)?
        } else {
            indirect::find(self, inode, logical)?
        };
        run.length = run.length.min(most);
        if run.physical.is_some_and(|start| !self.blocks.contain(start, run.length)) {
            return Err(inode.corrupt("content outside the file system"));
        }
        Ok(run)
    }

    /// Reads a file's bytes: as many as there are up to the buffer's length.
    pub(crate) fn read_inode(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        let left = inode.size_bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..wanted];
        if inode.has(flag::INLINE_DATA) {
            inline::read(self, inode, offset, buffer)?;
            return Ok(wanted);
        }
        let size = u64::from(self.superblock.block_bytes);
        let mut done = 0;
        // Every turn fills at least one block, or what is left of one.
        while done < wanted {
            let place = offset + done as u64;
            let within = place % size;
            let run = self.run(inode, place / size)?;
            let run_bytes = run.length.saturating_mul(size) - within;
            let piece = usize::try_from(run_bytes).unwrap_or(usize::MAX).min(wanted - done);
            let target = &mut buffer[done..done + piece];
            match run.physical {
                Some(start) => self.blocks.read(start, within, target)?,
                None => target.fill(0),
            }
            done += piece;
        }
        Ok(wanted)
    }

    /// Lends bytes of a file that lie together in memory, or were read there ahead of who reads such files in a row: then
    /// `held` keeps them for as long as the file is open.
    pub(crate) fn lend_inode<'a>(
        &'a self,
        inode: &Inode,
        held: &'a OnceLock<Arc<Window>>,
        offset: u64,
        length: usize,
    ) -> Result<Option<&'a [u8]>, TreeError> {
        let left = inode.size_bytes.saturating_sub(offset);
        if inode.has(flag::INLINE_DATA) || left == 0 || length == 0 {
            return Ok(None);
        }
        let size = u64::from(self.superblock.block_bytes);
        let run = self.run(inode, offset / size)?;
        let Some(start) = run.physical else { return Ok(None) };
        let within = offset % size;
        let most = left.min(run.length.saturating_mul(size) - within);
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(length);
        if let Some(lent) = self.blocks.lend(start, within, length) {
            return Ok(Some(lent));
        }
        // Both are inside the file system, whose length in bytes has 64 bits.
        let place = start * size + within;
        let piece = place..place + length as u64;
        if let Some(lent) = held.get().and_then(|window| window.get(piece.clone())) {
            return Ok(Some(lent));
        }
        let read = |place: u64, buffer: &mut [u8]| self.blocks.read(place / size, place % size, buffer).is_ok();
        match self.ahead.window(piece.clone(), self.blocks.end_bytes(), read) {
            Some(window) => Ok(held.get_or_init(|| window).get(piece)),
            None => Ok(None),
        }
    }
}
