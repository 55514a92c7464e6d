//! The directories that a search is in: which lie in which, and which of them are held.
//!
//! Holding a directory costs a descriptor, so only so many are; another is opened again, name by name, when one of its
//! files is opened.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::tree::{Identity, Tree, TreeError};

/// Directories held at once by one search, besides its root and what each thread opens for the moment.
const HELD_COUNT_MAX: usize = 128;

/// A directory's place beneath the root of the search.
pub(super) struct Place {
    /// Nothing for the root.
    above: Option<(Arc<Place>, Box<[u8]>)>,
    identity: Identity,
    /// Directories above it.
    pub(super) depth: usize,
    /// Whether an include matches this directory or one above it, and so everything beneath.
    pub(super) included: bool,
}

impl Place {
    /// The root of the search.
    pub(super) fn root(identity: Identity) -> Self {
        Self { above: None, identity, depth: 0, included: false }
    }

    /// The directory `name` in `above`.
    ///
    /// # Errors
    /// `Corrupt` where it is one of those that it lies in, which no sound file system says.
    pub(super) fn beneath(
        above: &Arc<Self>,
        name: &[u8],
        identity: Identity,
        included: bool,
    ) -> Result<Self, TreeError> {
        let mut next = Some(above);
        while let Some(place) = next {
            if place.identity == identity {
                let inode = identity.inode;
                return Err(TreeError::Corrupt { what: format!("directory inode {inode} lies within itself") });
            }
            next = place.above.as_ref().map(|(above, _)| above);
        }
        Ok(Self { above: Some((Arc::clone(above), name.into())), identity, depth: above.depth + 1, included })
    }

    /// Opens it from the root, following no link.
    fn open<T: Tree>(&self, tree: &T, root: &T::Directory) -> Result<T::Directory, TreeError> {
        let mut names = Vec::with_capacity(self.depth);
        let mut next = self;
        while let Some((above, name)) = &next.above {
            names.push(name);
            next = above;
        }
        names.into_iter().rev().try_fold(root.clone(), |directory, name| tree.directory(&directory, name))
    }
}

impl Drop for Place {
    /// Without calling itself for every directory above, of which a hostile image may have many.
    fn drop(&mut self) {
        let mut next = self.above.take();
        while let Some((place, _)) = next {
            next = Arc::into_inner(place).and_then(|mut place| place.above.take());
        }
    }
}

/// How many directories are held.
#[derive(Debug, Default)]
pub(super) struct HeldCount(Arc<AtomicUsize>);

/// A directory that is held while there is room for it.
pub(super) struct Held<D> {
    directory: Option<D>,
    count: Arc<AtomicUsize>,
}

impl HeldCount {
    /// Holds a directory, or lets it go if too many are.
    pub(super) fn hold<D>(&self, directory: D) -> Held<D> {
        let is_room = self.0.fetch_add(1, Ordering::Relaxed) < HELD_COUNT_MAX;
        if !is_room {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        Held { directory: is_room.then_some(directory), count: Arc::clone(&self.0) }
    }
}

impl<D: Clone> Held<D> {
    /// The directory, opened again if it was let go.
    pub(super) fn get<T: Tree<Directory = D>>(&self, tree: &T, root: &D, place: &Place) -> Result<D, TreeError> {
        match &self.directory {
            Some(directory) => Ok(directory.clone()),
            None => place.open(tree, root),
        }
    }
}

impl<D> Drop for Held<D> {
    fn drop(&mut self) {
        if self.directory.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
