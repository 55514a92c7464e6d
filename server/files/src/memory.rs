//! A tree in memory, for tests: of the engines here, and of every package that serves them.

use std::{
    collections::BTreeMap,
    io,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    meta::{FileType, Meta, Time},
    path::TreePath,
    tree::{Name, Tree, TreeError},
};

/// How a tree hands out bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lending {
    /// By copying only.
    #[default]
    Never,
    /// At most so many bytes at once.
    UpTo(usize),
}

/// What happens when a node is opened or listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Permission denied.
    Denied,
    /// The system fails.
    Fails,
    /// Reading its content finds it one byte longer each time it is looked at.
    Grows,
}

/// A tree in memory. Built by chaining; missing directories are made on the way.
#[derive(Debug, Default)]
pub struct MemoryTree {
    nodes: Vec<MemoryNode>,
    lending: Lending,
    kinds_hidden: bool,
    open_count: AtomicU64,
    held: Arc<AtomicU64>,
    held_max: AtomicU64,
    stale_after: Option<u64>,
    verify_count: AtomicU64,
}

#[derive(Debug)]
struct MemoryNode {
    kind: FileType,
    names: BTreeMap<Vec<u8>, usize>,
    content: Vec<u8>,
    /// Zeros behind the content.
    hole_bytes: u64,
    trouble: Option<Trouble>,
    look_count: AtomicU64,
}

impl MemoryNode {
    fn new(kind: FileType) -> Self {
        Self {
            kind,
            names: BTreeMap::new(),
            content: Vec::new(),
            hole_bytes: 0,
            trouble: None,
            look_count: AtomicU64::new(0),
        }
    }
}

/// A held directory or open file; how many there are is counted.
#[derive(Debug)]
pub struct MemoryHandle {
    index: usize,
    held: Arc<AtomicU64>,
}

impl Clone for MemoryHandle {
    fn clone(&self) -> Self {
        self.held.fetch_add(1, Ordering::Relaxed);
        Self { index: self.index, held: Arc::clone(&self.held) }
    }
}

impl Drop for MemoryHandle {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MemoryTree {
    /// With a regular file.
    ///
    /// # Panics
    /// As all of these: where the path is none, or runs through something that is no directory.
    pub fn file(self, path: impl AsRef<[u8]>, content: impl Into<Vec<u8>>) -> Self {
        self.node(path.as_ref(), FileType::Regular, content.into())
    }

    /// With a regular file of that many zeros behind its content.
    pub fn sparse(mut self, path: impl AsRef<[u8]>, content: impl Into<Vec<u8>>, hole_bytes: u64) -> Self {
        self = self.node(path.as_ref(), FileType::Regular, content.into());
        let index = self.find(path.as_ref());
        self.nodes[index].hole_bytes = hole_bytes;
        self
    }

    /// With a directory.
    pub fn directory(self, path: impl AsRef<[u8]>) -> Self {
        self.node(path.as_ref(), FileType::Directory, Vec::new())
    }

    /// With a symbolic link.
    pub fn link(self, path: impl AsRef<[u8]>, target: impl Into<Vec<u8>>) -> Self {
        self.node(path.as_ref(), FileType::Symlink, target.into())
    }

    /// With a FIFO, socket or device.
    pub fn special(self, path: impl AsRef<[u8]>, kind: FileType) -> Self {
        self.node(path.as_ref(), kind, Vec::new())
    }

    /// With a second name for an existing directory, as only a hostile image has.
    pub fn alias(mut self, path: impl AsRef<[u8]>, existing: impl AsRef<[u8]>) -> Self {
        let target = self.find(existing.as_ref());
        let (parent, name) = self.place(path.as_ref());
        self.nodes[parent].names.insert(name, target);
        self
    }

    /// With trouble at an existing node.
    pub fn trouble(mut self, path: impl AsRef<[u8]>, trouble: Trouble) -> Self {
        let index = self.find(path.as_ref());
        self.nodes[index].trouble = Some(trouble);
        self
    }

    /// Lending its bytes.
    pub fn lending(mut self, lending: Lending) -> Self {
        self.lending = lending;
        self
    }

    /// Without types in its listings.
    pub fn kinds_hidden(mut self) -> Self {
        self.kinds_hidden = true;
        self
    }

    /// Saying `Changed` from that call of `verify` on, counted from 0.
    pub fn stale_after(mut self, verify_count: u64) -> Self {
        self.stale_after = Some(verify_count);
        self
    }

    /// Files opened so far.
    pub fn open_count(&self) -> u64 {
        self.open_count.load(Ordering::Relaxed)
    }

    /// The most directories and files that were held at once, the root's first handle counted.
    pub fn held_max(&self) -> u64 {
        self.held_max.load(Ordering::Relaxed)
    }

    /// Directories and files held now.
    pub fn held_count(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn root_node(&mut self) -> usize {
        if self.nodes.is_empty() {
            self.nodes.push(MemoryNode::new(FileType::Directory));
        }
        0
    }

    fn place(&mut self, path: &[u8]) -> (usize, Vec<u8>) {
        let path = TreePath::parse(path).expect("tests give sound paths");
        let mut at = self.root_node();
        for name in path.parent().expect("tests make no root").components() {
            at = match self.nodes[at].names.get(name) {
                Some(&next) => next,
                None => {
                    let next = self.nodes.len();
                    self.nodes.push(MemoryNode::new(FileType::Directory));
                    self.nodes[at].names.insert(name.to_vec(), next);
                    next
                }
            };
            assert_eq!(self.nodes[at].kind, FileType::Directory, "{path} runs through no directory");
        }
        (at, path.name().expect("not the root").to_vec())
    }

    fn find(&self, path: &[u8]) -> usize {
        let path = TreePath::parse(path).expect("tests give sound paths");
        path.components().fold(0, |at, name| self.nodes[at].names[name])
    }

    fn node(mut self, path: &[u8], kind: FileType, content: Vec<u8>) -> Self {
        let (parent, name) = self.place(path);
        if self.nodes[parent].names.contains_key(&name) && kind == FileType::Directory {
            return self;
        }
        let mut node = MemoryNode::new(kind);
        node.content = content;
        let index = self.nodes.len();
        self.nodes.push(node);
        self.nodes[parent].names.insert(name, index);
        self
    }

    fn hold(&self, index: usize) -> MemoryHandle {
        let held = self.held.fetch_add(1, Ordering::Relaxed) + 1;
        self.held_max.fetch_max(held, Ordering::Relaxed);
        MemoryHandle { index, held: Arc::clone(&self.held) }
    }

    fn meta(&self, index: usize) -> Meta {
        let node = &self.nodes[index];
        let mut size_bytes = node.content.len() as u64 + node.hole_bytes;
        if node.trouble == Some(Trouble::Grows) {
            size_bytes += node.look_count.fetch_add(1, Ordering::Relaxed);
        }
        Meta {
            kind: node.kind,
            size_bytes,
            mode: if node.kind == FileType::Directory { 0o755 } else { 0o644 },
            uid: 1000,
            gid: 1000,
            link_count: 1,
            modify_time: Time { seconds: 1_700_000_000, nanoseconds: 0 },
            change_time: Time { seconds: 1_700_000_000, nanoseconds: 0 },
            inode: index as u64 + 2,
        }
    }

    fn child(&self, parent: &MemoryHandle, name: &[u8]) -> Result<usize, TreeError> {
        self.nodes[parent.index].names.get(name).copied().ok_or(TreeError::NotFound)
    }

    fn check(&self, index: usize) -> Result<(), TreeError> {
        match self.nodes[index].trouble {
            Some(Trouble::Denied) => Err(TreeError::PermissionDenied),
            Some(Trouble::Fails) => Err(TreeError::Io(io::Error::other("made to fail"))),
            _ => Ok(()),
        }
    }
}

impl Tree for MemoryTree {
    type Directory = MemoryHandle;
    type File = MemoryHandle;

    fn root(&self) -> Result<MemoryHandle, TreeError> {
        if self.nodes.is_empty() {
            return Err(TreeError::NotFound);
        }
        Ok(self.hold(0))
    }

    fn directory(&self, parent: &MemoryHandle, name: &[u8]) -> Result<MemoryHandle, TreeError> {
        let index = self.child(parent, name)?;
        match self.nodes[index].kind {
            FileType::Directory => self.check(index).map(|()| self.hold(index)),
            kind => Err(TreeError::NotDirectory(kind)),
        }
    }

    fn stat(&self, parent: &MemoryHandle, name: &[u8]) -> Result<Meta, TreeError> {
        self.child(parent, name).map(|index| self.meta(index))
    }

    fn stat_directory(&self, directory: &MemoryHandle) -> Result<Meta, TreeError> {
        Ok(self.meta(directory.index))
    }

    fn names(
        &self,
        directory: &MemoryHandle,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        // Backwards, so that nobody relies on an order.
        for (name, &index) in self.nodes[directory.index].names.iter().rev() {
            let kind = (!self.kinds_hidden).then(|| self.nodes[index].kind);
            if visit(Name { bytes: name, kind }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn link(&self, parent: &MemoryHandle, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        let index = self.child(parent, name)?;
        match self.nodes[index].kind {
            FileType::Symlink => Ok(self.nodes[index].content.clone()),
            _ => Err(TreeError::NotFound),
        }
    }

    fn open(&self, parent: &MemoryHandle, name: &[u8]) -> Result<(MemoryHandle, Meta), TreeError> {
        let index = self.child(parent, name)?;
        match self.nodes[index].kind {
            FileType::Regular => {
                self.check(index)?;
                self.open_count.fetch_add(1, Ordering::Relaxed);
                Ok((self.hold(index), self.meta(index)))
            }
            kind => Err(TreeError::NotRegular(kind)),
        }
    }

    fn stat_file(&self, file: &MemoryHandle) -> Result<Meta, TreeError> {
        Ok(self.meta(file.index))
    }

    fn read_at(&self, file: &MemoryHandle, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        let node = &self.nodes[file.index];
        let size_bytes = self.meta(file.index).size_bytes;
        let count = usize::try_from(size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(node.content.len());
        let real = (node.content.len() - start).min(count);
        buffer[..real].copy_from_slice(&node.content[start..start + real]);
        buffer[real..count].fill(0);
        Ok(count)
    }

    fn lend<'a>(&'a self, file: &'a MemoryHandle, offset: u64, length: usize) -> Result<Option<&'a [u8]>, TreeError> {
        let Lending::UpTo(count_max) = self.lending else { return Ok(None) };
        let content = &self.nodes[file.index].content;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = (content.len() - start).min(length).min(count_max);
        Ok((count > 0).then(|| &content[start..start + count]))
    }

    fn verify(&self) -> Result<(), TreeError> {
        let count = self.verify_count.fetch_add(1, Ordering::Relaxed);
        match self.stale_after {
            Some(limit) if count >= limit => Err(TreeError::Changed),
            _ => Ok(()),
        }
    }
}
