//! Where a change happens: the directory that is there already, the directories to be made in it, and the last name.
//!
//! No component may be a symbolic link; one that is met is refused, with the place it leads to where that is inside the
//! workspace. Reading never comes this way.

use dormouse_files::{
    Fault,
    limits::Limits,
    path::TreePath,
    tree::{Tree, TreeError},
};
use rustix::fs;

use crate::{
    errno::fault,
    lock::Slot,
    tree::{Identity, LiveDirectory, LiveTree},
};

/// A name to be changed, and the directory that holds it or will.
pub(crate) struct Place {
    /// Held open: the last directory of the path that exists.
    pub(crate) parent: LiveDirectory,
    pub(crate) parent_path: TreePath,
    pub(crate) parent_identity: Identity,
    /// The directories to be made in it, the outermost first.
    pub(crate) missing: Vec<Vec<u8>>,
    /// The path's last name.
    pub(crate) name: Vec<u8>,
}

/// What to do where a directory on the way is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parents {
    Make,
    MustExist,
}

impl Place {
    /// The name that changes in `parent`: the outermost directory to be made, or the path's last name.
    pub(crate) fn changed_name(&self) -> &[u8] {
        self.missing.first().unwrap_or(&self.name)
    }

    /// What must be locked.
    pub(crate) fn slot(&self) -> Slot {
        (self.parent_identity, self.changed_name().to_vec())
    }
}

/// Finds the place of a path that is not `/`.
pub(crate) fn locate(tree: &LiveTree, path: &TreePath, parents: Parents, limits: &Limits) -> Result<Place, Fault> {
    let mut names: Vec<&[u8]> = path.components().collect();
    let Some(name) = names.pop() else { return Err(Fault::Internal("the root has no place in a directory")) };
    let mut parent = tree.root_directory().clone();
    let mut parent_path = TreePath::root();
    let mut missing: Vec<Vec<u8>> = Vec::new();
    for component in names {
        if !missing.is_empty() {
            missing.push(component.to_vec());
            continue;
        }
        let here = parent_path.join(component);
        match tree.directory(&parent, component) {
            Ok(directory) => (parent, parent_path) = (directory, here),
            Err(TreeError::NotFound) if parents == Parents::Make && !tree.hides(&parent, component) => {
                missing.push(component.to_vec());
            }
            Err(TreeError::NotFound) => return Err(Fault::NotFound { path: path.clone(), missing: here }),
            Err(error) => return Err(at_component(tree, path, &here, error, limits)),
        }
    }
    // A directory that cannot be flushed cannot be changed durably.
    if parent.is_path_only() || (missing.is_empty() && tree.hides(&parent, name)) {
        return Err(Fault::PermissionDenied { path: path.clone() });
    }
    let identity = Identity::of(&fs::fstat(&parent).map_err(|errno| fault(path, errno))?);
    Ok(Place { parent, parent_path, parent_identity: identity, missing, name: name.to_vec() })
}

/// A tree's failure at one component of a path, as the whole path's.
pub(crate) fn at_component(
    tree: &LiveTree,
    path: &TreePath,
    here: &TreePath,
    error: TreeError,
    limits: &Limits,
) -> Fault {
    match Fault::at(here, error) {
        Fault::Symlink { link, .. } => {
            Fault::Symlink { path: path.clone(), link, resolved: resolved(tree, path, limits) }
        }
        Fault::NotFound { missing, .. } => Fault::NotFound { path: path.clone(), missing },
        Fault::NotRegular { kind, .. } => Fault::NotRegular { path: path.clone(), kind },
        Fault::Outside { .. } => Fault::Outside { path: path.to_string() },
        other => other,
    }
}

/// Where a path leads when its links are followed, where that is inside the workspace: an absolute target begins at the
/// workspace's root. What does not exist is taken by its spelling. Nothing where it leads out, or follows too many links.
pub(crate) fn resolved(tree: &LiveTree, path: &TreePath, limits: &Limits) -> Option<TreePath> {
    let mut pending: Vec<Vec<u8>> = path.components().rev().map(<[u8]>::to_vec).collect();
    let mut held: Vec<(Vec<u8>, Option<LiveDirectory>)> = Vec::new();
    let mut hops = 0;
    let mut steps = 0;
    while let Some(name) = pending.pop() {
        steps += 1;
        // A link's target has at most 2,048 names, and so many links are followed.
        if steps > 2_048 * (limits.link_hop_count_max + 1) {
            return None;
        }
        match name.as_slice() {
            b"" | b"." => continue,
            b".." => {
                held.pop()?;
                continue;
            }
            _ => {}
        }
        let parent = match held.last() {
            None => Some(tree.root_directory().clone()),
            Some((_, directory)) => directory.clone(),
        };
        let target = parent.as_ref().and_then(|parent| {
            let meta = tree.stat(parent, &name).ok()?;
            (meta.kind == dormouse_files::meta::FileType::Symlink).then(|| tree.link(parent, &name).ok()).flatten()
        });
        match target {
            Some(target) => {
                hops += 1;
                if hops > limits.link_hop_count_max {
                    return None;
                }
                if target.starts_with(b"/") {
                    held.clear();
                }
                pending.extend(target.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
            }
            None => {
                let directory = parent.and_then(|parent| tree.directory(&parent, &name).ok());
                held.push((name, directory));
            }
        }
    }
    let whole: Vec<u8> = held.iter().flat_map(|(name, _)| [b"/".as_slice(), name].concat()).collect();
    if whole.is_empty() { Some(TreePath::root()) } else { TreePath::parse(&whole).ok() }
}
