//! A state directory beside a root belongs to that root and to no other that is later at its path: what the journal says of
//! one is not so of the other, and its keys have not been used there.
//!
//! ```text
//! state/root            which root the journal belongs to
//! state/before-<root>/  journal and staged files of a root that was there before; put back when it returns
//! ```
//! Every step can be cut off and is made again at the next opening. What was kept of late writes stays where it is.

use std::{
    fs::File,
    io::{self, Read, Write},
    ops::ControlFlow,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::AtomicBool,
};

use dormouse_files::tree::Tree;
use rustix::{
    fs::{self, AtFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::{beneath::open_beneath, journal, state::State, sweep, tree::LiveTree};

/// Names the root that the journal belongs to.
const ROOT_NAME: &str = "root";
const NEXT_NAME: &str = "root.next";
const BEFORE_PREFIX: &str = "before-";
/// Roots whose state is kept for their return; beyond that the first by name goes.
const BEFORE_COUNT_MAX: usize = 8;
/// Bytes of a root's name: three numbers.
const ROOT_BYTES_MAX: u64 = 64;

/// Makes `state` that of the root called so.
pub(crate) fn turn_to(state: &State, root: &str) -> io::Result<()> {
    match known_root(state)? {
        Some(known) if known == root => {}
        Some(other) => {
            put_aside(state, &other)?;
            note(state, root)?;
        }
        None => note(state, root)?,
    }
    put_back(state, root)
}

fn known_root(state: &State) -> io::Result<Option<String>> {
    let file: File = match open_beneath(state, ROOT_NAME.as_bytes(), OFlags::RDONLY | OFlags::NOFOLLOW) {
        Ok(file) => file.into(),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut text = String::new();
    file.take(ROOT_BYTES_MAX).read_to_string(&mut text)?;
    let is_name = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'.');
    // One that says nothing says nothing of another root either.
    Ok((!text.is_empty() && text.bytes().all(is_name)).then_some(text))
}

fn note(state: &State, root: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(state, NEXT_NAME, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(root.as_bytes())?;
    file.sync_all()?;
    fs::renameat(state, NEXT_NAME, state, ROOT_NAME)?;
    Ok(state.sync()?)
}

fn put_aside(state: &State, other: &str) -> io::Result<()> {
    let before = format!("{BEFORE_PREFIX}{other}");
    match fs::mkdirat(state, before.as_str(), Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let directory = hold(state, &before)?;
    for name in names(state.as_fd().try_clone_to_owned()?)? {
        if belongs_to_a_root(&name) {
            fs::renameat(state, name.as_slice(), &directory, name.as_slice())?;
        }
    }
    fs::fsync(&directory)?;
    state.sync()?;
    let mut befores = names(state.as_fd().try_clone_to_owned()?)?;
    befores.retain(|name| name.starts_with(BEFORE_PREFIX.as_bytes()) && *name != before.as_bytes());
    befores.sort();
    let too_many = (befores.len() + 1).saturating_sub(BEFORE_COUNT_MAX);
    for name in befores.iter().take(too_many).filter_map(|name| std::str::from_utf8(name).ok()) {
        sweep::delete_tree(state, name, &AtomicBool::new(false))?;
    }
    Ok(())
}

fn put_back(state: &State, root: &str) -> io::Result<()> {
    let before = format!("{BEFORE_PREFIX}{root}");
    let directory = match hold(state, &before) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    for name in names(directory.try_clone()?)? {
        match fs::renameat_with(&directory, name.as_slice(), state, name.as_slice(), RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // A mount that lacks the flag; nothing has been opened since the names were put aside.
            Err(Errno::INVAL) => fs::renameat(&directory, name.as_slice(), state, name.as_slice())?,
            Err(errno) => return Err(errno.into()),
        }
    }
    state.sync()?;
    fs::unlinkat(state, before.as_str(), AtFlags::REMOVEDIR)?;
    Ok(())
}

fn belongs_to_a_root(name: &[u8]) -> bool {
    State::is_stage(name) || journal::FILE_NAMES.iter().any(|journal| journal.as_bytes() == name)
}

fn hold(state: &State, name: &str) -> Result<OwnedFd, Errno> {
    open_beneath(state, name.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

/// As many as the directory holds.
fn names(directory: OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let listed = LiveTree::new(directory, None);
    let mut see = |name: dormouse_files::tree::Name<'_>| {
        names.push(name.bytes.to_vec());
        ControlFlow::Continue(())
    };
    listed.names(listed.root_directory(), &mut see).map_err(io::Error::other)?;
    Ok(names)
}
