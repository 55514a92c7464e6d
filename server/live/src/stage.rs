//! New content before it is visible: an unnamed file while it is written, then a name in the state directory, and only then
//! durable.
//!
//! ```text
//! Draft (O_TMPFILE in the target's directory) ──name──► Staged (state/sN) ──┬─► renamed or exchanged by `commit`
//!                                                         └─ dropped: gone  └─► or put into new directories first
//! ```
//! The unnamed file is made in the target's own directory, whose set-group-id bit and default list it inherits. It is
//! flushed after it has its name, and the state directory after that (btrfs flushes a new file with its name): so a staging
//! name that a recovery misses was moved away, and never was "not durable yet".

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Arc, atomic::AtomicBool},
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{
    attributes,
    beneath::open_beneath,
    fail::Rule,
    state::State,
    sweep,
    tree::{Identity, LiveDirectory},
};

/// Permission bits of directories made on the way to a file.
pub(crate) const PARENT_MODE: u32 = 0o755;

/// Content in the making.
pub(crate) struct Draft {
    state: Arc<State>,
    file: File,
    /// Where the file system has no unnamed files, the name comes first.
    named: Option<Named>,
}

/// A name in the state directory; deleted with all below when dropped.
struct Named {
    state: Arc<State>,
    name: String,
}

/// A file with a name in the state directory, or in new directories there.
pub(crate) struct Staged {
    file: File,
    identity: Identity,
    file_name: Named,
    /// It has had another name since it was made.
    was_renamed: bool,
    directories: Option<Directories>,
}

/// New directories, one within the other, the outermost with a name in the state directory.
pub(crate) struct Directories {
    named: Named,
    identity: Identity,
    /// The outermost first; at least one.
    held: Vec<OwnedFd>,
}

impl Drop for Named {
    fn drop(&mut self) {
        if !self.state.steps.may_tidy() || self.name.is_empty() {
            return;
        }
        // What cannot be deleted now is deleted when the workspace is opened again.
        if let Err(Errno::ISDIR | Errno::PERM) = fs::unlinkat(self.state.as_ref(), self.name.as_str(), AtFlags::empty())
        {
            let _ = sweep::delete_tree(&self.state, &self.name, &AtomicBool::new(false));
        }
    }
}

impl Named {
    /// The name belongs to somebody else from now on.
    fn give_up(mut self) -> String {
        std::mem::take(&mut self.name)
    }
}

impl Draft {
    /// An empty file for a name in `parent`.
    pub(crate) fn new(state: &Arc<State>, parent: &LiveDirectory) -> Result<Self, Errno> {
        let mode = Mode::RUSR | Mode::WUSR;
        match fs::openat(parent, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(file) => return Ok(Self { state: Arc::clone(state), file: file.into(), named: None }),
            // No unnamed files here (open(2), `O_TMPFILE`).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            // ext4 says so of a directory that is deleted and still held.
            Err(Errno::PERM) if fs::fstat(parent).is_ok_and(|stat| stat.st_nlink == 0) => return Err(Errno::NOENT),
            Err(errno) => return Err(errno),
        }
        let named = Named { state: Arc::clone(state), name: state.new_stage() };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(state.as_ref(), named.name.as_str(), flags, mode)?;
        Ok(Self { state: Arc::clone(state), file: file.into(), named: Some(named) })
    }

    /// The next piece of the content.
    pub(crate) fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)
    }

    /// Gives the file its name in the state directory. It is durable after [`Staged::sync`].
    pub(crate) fn name(mut self) -> Result<Staged, Errno> {
        if !self.state.steps.keeps(Rule::NameBeforeFlush) {
            fs::fsync(&self.file)?;
        }
        let file_name = match self.named.take() {
            Some(named) => named,
            None => {
                let name = self.state.new_stage();
                link(&self.file, &self.state, &name)?;
                Named { state: self.state, name }
            }
        };
        let identity = Identity::of(&fs::fstat(&self.file)?);
        Ok(Staged { file: self.file, identity, file_name, was_renamed: false, directories: None })
    }
}

/// Names an unnamed file. Without `CAP_DAC_READ_SEARCH` older kernels want the way through /proc (open(2), `O_TMPFILE`).
fn link(file: &File, state: &State, name: &str) -> Result<(), Errno> {
    match fs::linkat(file, "", state, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {}
        other => return other,
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::linkat(fs::CWD, path.as_str(), state, name, AtFlags::SYMLINK_FOLLOW)
}

impl Staged {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The name in the state directory of what is put into place.
    pub(crate) fn stage(&self) -> &str {
        self.directories.as_ref().map_or(&self.file_name.name, |directories| &directories.named.name)
    }

    /// Of what is put into place: the file, or the outermost new directory.
    pub(crate) fn identity(&self) -> Identity {
        self.directories.as_ref().map_or(self.identity, |directories| directories.identity)
    }

    /// Puts the file into new directories under its last name, where its path needs them.
    pub(crate) fn wrap(&mut self, directories: Directories, leaf: &[u8]) -> Result<(), Errno> {
        fs::renameat(self.file_name.state.as_ref(), self.file_name.name.as_str(), directories.innermost(), leaf)?;
        self.was_renamed = true;
        self.directories = Some(directories);
        Ok(())
    }

    /// Takes the file out of its new directories again, since another call has made some of them meanwhile.
    pub(crate) fn unwrap(&mut self, leaf: &[u8]) -> Result<(), Errno> {
        if let Some(directories) = self.directories.take() {
            fs::renameat(directories.innermost(), leaf, self.file_name.state.as_ref(), self.file_name.name.as_str())?;
        }
        Ok(())
    }

    /// Makes file, new directories and staging name durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let steps = &self.file_name.state.steps;
        if !steps.keeps(Rule::NameBeforeFlush) {
            return Ok(());
        }
        if steps.keeps(Rule::FileFlush) {
            self.file.sync_all()?;
        }
        if let Some(directories) = &self.directories {
            directories.sync()?;
        }
        let state = &self.file_name.state;
        if state.names_with_files && !self.was_renamed && steps.keeps(Rule::FileFlush) {
            // Its one name was given before its flush. btrfs's log of an inode holds the names that it got since the last
            // commit, and each further flush would cost two commands of the disk.
            return Ok(state.steps.disk.check()?);
        }
        Ok(state.sync()?)
    }

    /// It is in place, or what was displaced has its name: nothing here is to be deleted. Gives back the file and the name.
    pub(crate) fn give_up(self) -> (File, String) {
        let name = self.file_name.give_up();
        match self.directories {
            Some(directories) => (self.file, directories.named.give_up()),
            None => (self.file, name),
        }
    }
}

impl Directories {
    /// Makes directories one within the other, the first under a staging name, the rest under theirs. The innermost gets
    /// `last_mode`, the others [`PARENT_MODE`]; all belong to whom the first one's future parent says.
    pub(crate) fn make(
        state: &Arc<State>,
        names: &[Vec<u8>],
        last_mode: u32,
        parent: impl AsFd,
    ) -> Result<Self, Errno> {
        let stat = fs::fstat(&parent)?;
        let default_list = attributes::default_list(&parent)?;
        let named = Named { state: Arc::clone(state), name: state.new_stage() };
        let mut held: Vec<OwnedFd> = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let mode = if index + 1 == names.len() { last_mode } else { PARENT_MODE };
            let name = if index == 0 { named.name.as_bytes() } else { name };
            let above = held.last().map_or(state.as_ref().as_fd(), AsFd::as_fd);
            fs::mkdirat(above, name, Mode::RWXU)?;
            let directory = open_beneath(above, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
            if let Some(list) = &default_list {
                attributes::inherit(&directory, list)?;
            }
            attributes::found(&directory, mode, &stat, state.is_root)?;
            held.push(directory);
        }
        let outermost = held.first().ok_or(Errno::INVAL)?;
        let identity = Identity::of(&fs::fstat(outermost)?);
        Ok(Self { named, identity, held })
    }

    pub(crate) fn stage(&self) -> &str {
        &self.named.name
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The one that the last name is in, or is.
    pub(crate) fn innermost(&self) -> &OwnedFd {
        self.held.last().expect("`make` has put at least one directory in")
    }

    /// Makes them durable, from the innermost out.
    pub(crate) fn sync(&self) -> io::Result<()> {
        for directory in self.held.iter().rev() {
            fs::fsync(directory)?;
        }
        Ok(())
    }

    /// They are in place.
    pub(crate) fn give_up(self) -> Vec<OwnedFd> {
        self.named.give_up();
        self.held
    }
}
