//! Making an index: one walk over the tree in path order, which reads every file once.

use super::{
    super::{
        globs::{GlobSet, Verdict},
        scan,
    },
    Content, Directory, File, Index, Name,
    filter::Maker,
};
use crate::{
    budget::Budget,
    limits::Limits,
    meta::FileType,
    order::{Part, Parts, Slots},
    path::TreePath,
    tree::{Tree, TreeError},
    walk,
};

/// Bytes of an index that it may have however little text there is.
const BYTES_FREE: u64 = 1 << 20;

/// What an index is to hold.
#[derive(Debug, Clone)]
pub struct BuildPlan {
    /// A directory; links on the way to it are followed.
    pub root: TreePath,
    /// Directories that these exclude, relative to the root, are not entered.
    pub closed: GlobSet,
    /// Larger files are not looked into.
    pub file_bytes_max: u64,
    /// Whether the tree's root is a machine's "/".
    pub machine_root: bool,
    /// An index that would take more is not made.
    pub index_bytes_max: u64,
}

/// Why there is no index.
#[derive(Debug, thiserror::Error)]
pub enum NotBuilt {
    /// The budget was spent, or the tree changed.
    #[error("it was not finished")]
    Ended,
    /// A directory cannot be read, so a search must find out what is beneath.
    #[error("a directory cannot be read")]
    Directory(#[source] TreeError),
    /// It would be larger than it may be: by the plan, or more than 15 % of the text, or more than it can count.
    #[error("it would be too large")]
    TooLarge,
}

/// A directory that the walk is in.
struct Frame<D> {
    directory: D,
    slots: Slots,
    next: usize,
    place: u32,
    /// Of its path relative to the root.
    path_bytes: usize,
    inode: u64,
}

struct Build<'a, T: Tree> {
    tree: &'a T,
    plan: &'a BuildPlan,
    limits: &'a Limits,
    budget: &'a dyn Budget,
    index: Index,
    maker: Maker,
    buffer: Vec<u8>,
    /// Relative to the root, of what is looked at.
    path: Vec<u8>,
    is_top: bool,
}

impl Index {
    /// Makes the index of what lies beneath a directory.
    ///
    /// `pause` is called before each file and may wait, so that whoever is in a hurry goes first.
    ///
    /// # Errors
    /// See [`NotBuilt`].
    pub fn build<T: Tree>(
        tree: &T,
        plan: &BuildPlan,
        limits: &Limits,
        budget: &dyn Budget,
        pause: &mut dyn FnMut(),
    ) -> Result<Self, NotBuilt> {
        let (root, directory) =
            walk::resolve_directory(tree, &plan.root, limits).map_err(|_| NotBuilt::Directory(TreeError::NotFound))?;
        let is_top = root.is_root() && plan.machine_root;
        let index = Self {
            root,
            machine_root: plan.machine_root,
            text_bytes: 0,
            names: Vec::new(),
            directories: vec![Directory {
                above: 0,
                name: Name { start: 0, length: 0 },
                first: 0,
                end: 0,
                is_closed: false,
            }],
            files: Vec::new(),
            words: Vec::new(),
        };
        let (maker, buffer, path) = (Maker::new(), Vec::new(), Vec::new());
        let mut build = Build { tree, plan, limits, budget, index, maker, buffer, path, is_top };
        build.walk(directory, pause)?;
        tree.verify().map_err(|_| NotBuilt::Ended)?;
        build.check_size(true)?;
        Ok(build.index)
    }
}

impl<T: Tree> Build<'_, T> {
    fn walk(&mut self, root: T::Directory, pause: &mut dyn FnMut()) -> Result<(), NotBuilt> {
        let mut frames = vec![self.enter(root, 0, &[])?];
        while let Some(frame) = frames.last_mut() {
            pause();
            if self.budget.spent().is_some() {
                return Err(NotBuilt::Ended);
            }
            self.path.truncate(frame.path_bytes);
            let Some(slot) = frame.slots.get(frame.next) else {
                self.index.directories[frame.place as usize].end = count(self.index.files.len())?;
                frames.pop();
                continue;
            };
            frame.next += 1;
            let kind = match slot.kind {
                Some(kind) => kind,
                None => match self.tree.stat(&frame.directory, slot.name) {
                    Ok(meta) => meta.kind,
                    Err(_) if slot.part == Part::Contents => continue,
                    Err(_) => FileType::Regular,
                },
            };
            let is_directory = kind == FileType::Directory;
            if kind == FileType::Symlink || is_directory != (slot.part == Part::Contents) {
                continue;
            }
            let name = name(&mut self.index.names, slot.name)?;
            let place = frame.place;
            if !is_directory {
                let is_told = slot.kind.is_some_and(|kind| kind != FileType::Regular);
                let content = if is_told { Content::Special } else { self.content(&frame.directory, slot.name)? };
                self.index.files.push(File { directory: place, name, content });
                self.check_size(false)?;
                continue;
            }
            if self.is_top && place == 0 && matches!(slot.name, b"proc" | b"sys") {
                self.index.files.push(File { directory: place, name, content: Content::Kernel });
                continue;
            }
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(slot.name);
            let is_closed = self.plan.closed.verdict(&self.path, true, false) == Verdict::Excluded;
            let first = count(self.index.files.len())?;
            let beneath = count(self.index.directories.len())?;
            self.index.directories.push(Directory { above: place, name, first, end: first, is_closed });
            self.check_size(false)?;
            if is_closed {
                continue;
            }
            if frames.len() > self.limits.walk_depth_max {
                return Err(NotBuilt::TooLarge);
            }
            let above = &frames[frames.len() - 1];
            let directory =
                self.tree.directory(&above.directory, self.index.name(name)).map_err(NotBuilt::Directory)?;
            let frame = self.enter(directory, beneath, &frames)?;
            frames.push(frame);
        }
        Ok(())
    }

    fn enter(
        &self,
        directory: T::Directory,
        place: u32,
        frames: &[Frame<T::Directory>],
    ) -> Result<Frame<T::Directory>, NotBuilt> {
        let inode = self.tree.stat_directory(&directory).map_err(NotBuilt::Directory)?.inode;
        if frames.iter().any(|frame| frame.inode == inode) {
            let what = format!("directory inode {inode} lies within itself");
            return Err(NotBuilt::Directory(TreeError::Corrupt { what }));
        }
        let slots = Slots::of(self.tree, &directory, Parts::Leaves, self.limits.directory_name_count_max)
            .map_err(NotBuilt::Directory)?;
        Ok(Frame { directory, slots, next: 0, place, path_bytes: self.path.len(), inode })
    }

    /// What a search that opens the file would find.
    fn content(&mut self, directory: &T::Directory, name: &[u8]) -> Result<Content, NotBuilt> {
        let (file, meta) = match self.tree.open(directory, name) {
            Ok(opened) => opened,
            Err(TreeError::Changed) => return Err(NotBuilt::Ended),
            Err(_) => return Ok(Content::Unknown),
        };
        let size_bytes = meta.size_bytes;
        if size_bytes > self.plan.file_bytes_max {
            return Ok(Content::Large { size_bytes });
        }
        let size = usize::try_from(size_bytes).map_err(|_| NotBuilt::TooLarge)?;
        let lent = if size == 0 { Ok(None) } else { self.tree.lend(&file, 0, size) };
        let text = match lent {
            Ok(Some(lent)) if lent.len() == size => lent,
            Ok(_) => {
                // One byte more than it says: a tree that stands still has no file that grows.
                self.buffer.resize(self.buffer.len().max(size + 1), 0);
                match self.tree.read_at(&file, 0, &mut self.buffer[..=size]) {
                    Ok(filled) if filled == size => &self.buffer[..filled],
                    Err(TreeError::Changed) => return Err(NotBuilt::Ended),
                    _ => return Ok(Content::Unknown),
                }
            }
            Err(TreeError::Changed) => return Err(NotBuilt::Ended),
            Err(_) => return Ok(Content::Unknown),
        };
        if scan::is_binary(text) {
            return Ok(Content::Binary { size_bytes });
        }
        let first = self.index.words.len();
        self.maker.make(text, &mut self.index.words);
        let words_log2 = (self.index.words.len() - first).trailing_zeros() as u8;
        self.index.text_bytes += size_bytes;
        Ok(Content::Text { size_bytes, first: count(first)?, words_log2 })
    }

    /// The share of the text counts at the end only, when all text is known.
    fn check_size(&self, is_whole: bool) -> Result<(), NotBuilt> {
        let bytes = self.index.memory_bytes();
        let share = (self.index.text_bytes / 100 * 15).max(BYTES_FREE);
        if bytes > self.plan.index_bytes_max || (is_whole && bytes > share) {
            return Err(NotBuilt::TooLarge);
        }
        Ok(())
    }
}

fn count(length: usize) -> Result<u32, NotBuilt> {
    u32::try_from(length).map_err(|_| NotBuilt::TooLarge)
}

fn name(names: &mut Vec<u8>, name: &[u8]) -> Result<Name, NotBuilt> {
    let start = count(names.len())?;
    let length = u8::try_from(name.len()).map_err(|_| NotBuilt::TooLarge)?;
    names.extend_from_slice(name);
    Ok(Name { start, length })
}
