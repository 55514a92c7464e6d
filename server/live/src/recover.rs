//! What a crash left: each intent without an end is asked of the files themselves, brought to one, and said so.
//!
//! | found | so |
//! |---|---|
//! | the name is what was staged | done |
//! | a replacement: the staging name still is what was staged, or is gone | it never happened |
//! | a replacement: the staging name is the base | done, and the name has been replaced since |
//! | a replacement: the name is what was staged, the staging name neither that nor the base | displaced something newer: exchanged back, unless the name was written to since |
//! | a create: the staging name is gone | done, and the name has been replaced or removed since |
//! | a removal: the name still is what was to go | it never happened |
//! | a move: the new name is what was to be moved | done; where the old name is it too, that goes |
//!
//! The name is asked before the staging name. Whatever it finds, it can be cut off and begun again.

use std::{io, ops::ControlFlow, os::fd::AsFd, sync::Arc};

use dormouse_files::{
    path::TreePath,
    tree::{Tree, TreeError},
};
use rustix::{
    fs::{self, AtFlags, RenameFlags},
    io::Errno,
};

use crate::{
    commit::{identity_at, revision_of},
    displaced,
    record::{Action, Answer, Intent},
    state::State,
    tree::{LiveDirectory, LiveTree, meta_of},
};

/// What an earlier run has left in the state directory.
#[derive(Default)]
pub(crate) struct Left {
    /// Staged and displaced files; new names begin after them.
    pub(crate) stages: Vec<String>,
    /// Displaced files that were kept.
    pub(crate) kept: Vec<String>,
}

/// Looks through the state directory.
pub(crate) fn left(state: &Arc<State>) -> io::Result<Left> {
    let mut left = Left::default();
    let listed = LiveTree::new(state.as_ref().as_fd().try_clone_to_owned()?, None);
    let mut see = |name: dormouse_files::tree::Name<'_>| {
        if State::is_stage(name.bytes) {
            state.stage_after(name.bytes);
            left.stages.extend(String::from_utf8(name.bytes.to_vec()));
        } else if name.bytes.starts_with(State::KEPT_PREFIX.as_bytes()) {
            left.kept.extend(String::from_utf8(name.bytes.to_vec()));
        }
        ControlFlow::Continue(())
    };
    listed.names(listed.root_directory(), &mut see).map_err(io::Error::other)?;
    Ok(left)
}

/// How an intent turned out: its answer, or nothing where it did not happen. Durable when it returns.
pub(crate) fn settle(tree: &LiveTree, state: &State, intent: &Intent) -> io::Result<Option<Answer>> {
    let parent = open_directory(tree, &intent.parent)?
        .filter(|parent| fs::fstat(parent).is_ok_and(|stat| inode_of(&stat) == intent.parent_inode));
    let target = inode_at(parent.as_ref(), &intent.name)?;
    let staged = identity_at(state, intent.stage.as_bytes())?.map(|identity| identity.inode);
    let is_done = match &intent.action {
        Action::Replace { base_inode, .. } => match staged {
            _ if target != Some(intent.inode) => {
                if staged.is_some_and(|inode| inode != intent.inode && inode != *base_inode) {
                    // Neither ours nor the base: whose it is nobody can tell any more, so it is not deleted.
                    keep(state, &intent.stage)?;
                }
                staged == Some(*base_inode)
            }
            None => true,
            Some(inode) if inode == *base_inode => true,
            // Half of the exchange is durable: what was displaced is gone, and ours has the staging name as a second one.
            Some(inode) if inode == intent.inode => true,
            // One that exchanges by renaming has no second name left; anything else was displaced, and is newer.
            Some(_) => !give_back(state, parent.as_ref(), intent)?,
        },
        Action::Create => target == Some(intent.inode) || staged.is_none(),
        Action::Remove => match staged {
            Some(inode) if inode == intent.inode => {
                target != Some(intent.inode) || forget_name(parent.as_ref(), &intent.name)? || {
                    keep(state, &intent.stage)?;
                    false
                }
            }
            Some(_) => {
                return_removed(state, parent.as_ref(), intent)?;
                false
            }
            None => false,
        },
        Action::RemoveEmpty => target != Some(intent.inode),
        Action::Move { new_parent, new_name } => {
            let new_parent = open_directory(tree, new_parent)?;
            let moved = inode_at(new_parent.as_ref(), new_name)? == Some(intent.inode)
                && (target != Some(intent.inode) || forget_name(parent.as_ref(), &intent.name)?);
            if let (true, Some(new_parent)) = (moved, &new_parent) {
                fs::fsync(new_parent)?;
            }
            moved
        }
    };
    if let Some(parent) = &parent {
        fs::fsync(parent)?;
    }
    state.sync()?;
    Ok(is_done.then(|| as_found(intent, parent.as_ref())))
}

/// The answer, with what the name is now where that is still what the change put there.
fn as_found(intent: &Intent, parent: Option<&LiveDirectory>) -> Answer {
    let mut answer = intent.answer.clone();
    let entry = match &mut answer {
        Answer::Patch(done) => &mut done.entry,
        Answer::Write(done) => &mut done.entry,
        Answer::Place(_) | Answer::Remove(_) => return answer,
    };
    let name = entry.path.name().unwrap_or_default();
    let stat = parent
        .filter(|_| name == intent.name)
        .and_then(|parent| fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok());
    if let Some(meta) = stat.as_ref().and_then(meta_of).filter(|meta| meta.inode == entry.meta.inode) {
        entry.meta = meta;
    }
    answer
}

/// The crash came before anybody looked at what the exchange displaced, and it was not the base: a process of the workspace
/// had put a newer file there. It goes back, unless ours has been written to since; then both are kept.
fn give_back(state: &State, parent: Option<&LiveDirectory>, intent: &Intent) -> io::Result<bool> {
    let Some(parent) = parent else { return Ok(false) };
    let ours = match &intent.answer {
        Answer::Patch(done) => done.revision,
        Answer::Write(done) => done.revision,
        Answer::Place(_) | Answer::Remove(_) => return Ok(false),
    };
    let flags = fs::OFlags::RDONLY | fs::OFlags::NOFOLLOW | fs::OFlags::NONBLOCK;
    let is_unwritten = match crate::beneath::open_beneath(parent, &intent.name, flags) {
        Ok(file) => revision_of(&file.into())? == ours,
        Err(_) => false,
    };
    let (stage, name) = (intent.stage.as_str(), intent.name.as_slice());
    if is_unwritten {
        fs::renameat_with(state, stage, parent, name, RenameFlags::EXCHANGE)?;
        return Ok(true);
    }
    keep(state, stage)?;
    Ok(false)
}

/// A file system may have made durable that a name was given and not that another was taken (btrfs does, where only the new
/// directory was flushed): then the second name of the file goes. Whether it did: a directory cannot have two.
fn forget_name(parent: Option<&LiveDirectory>, name: &[u8]) -> io::Result<bool> {
    let Some(parent) = parent else { return Ok(true) };
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// What was taken away was not what was to go.
fn return_removed(state: &State, parent: Option<&LiveDirectory>, intent: &Intent) -> io::Result<()> {
    let stage = intent.stage.as_str();
    let Some(parent) = parent else { return keep(state, stage) };
    match fs::renameat_with(state, stage, parent, intent.name.as_slice(), RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::EXIST) => keep(state, stage),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives a displaced file a name under which nothing deletes it but newer ones like it.
fn keep(state: &State, stage: &str) -> io::Result<()> {
    displaced::keep(state, stage)?;
    Ok(())
}

fn inode_at(parent: Option<&LiveDirectory>, name: &[u8]) -> io::Result<Option<u64>> {
    match parent {
        None => Ok(None),
        Some(parent) => Ok(identity_at(parent, name)?.map(|identity| identity.inode)),
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types of stat(2) differ between architectures")]
fn inode_of(stat: &fs::Stat) -> u64 {
    stat.st_ino as u64
}

/// The directory under a path whose components are no links; nothing where there is none any more.
fn open_directory(tree: &LiveTree, path: &TreePath) -> io::Result<Option<LiveDirectory>> {
    let mut directory = tree.root_directory().clone();
    for name in path.components() {
        match tree.directory(&directory, name) {
            Ok(next) => directory = next,
            Err(TreeError::NotFound | TreeError::NotDirectory(_) | TreeError::Outside) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(Some(directory))
}
