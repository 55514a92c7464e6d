//! Searches a real directory and prints every match, so that it can be measured beside another tool:
//! `benches/against_rg.py`. The tree here is the standard library's, by whole paths; the agent's own is not in this
//! package.
//!
//! Usage: `search <root> <pattern> literal|regex|fold <matches at most> [threads]`.

// The one place in this package that reads files; nothing but this program is built from it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::{
    env,
    fs::{self, File},
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::PathBuf,
    sync::Arc,
};

use dormouse_files::{
    budget::Unbounded,
    limits::Limits,
    meta::{FileType, Meta, Time},
    path::TreePath,
    search::{
        self, Match, SearchPlan,
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
    },
    tree::{Name, Tree, TreeError},
};

/// `O_NOFOLLOW | O_NONBLOCK | O_NOCTTY` of Linux on x86-64 and most others.
const OPEN_FLAGS: i32 = 0o400_000 | 0o4_000 | 0o400;

struct Directory(PathBuf);

fn failed(error: io::Error) -> TreeError {
    match error.kind() {
        io::ErrorKind::NotFound => TreeError::NotFound,
        io::ErrorKind::PermissionDenied => TreeError::PermissionDenied,
        _ => TreeError::Io(error),
    }
}

fn meta(from: &fs::Metadata) -> Meta {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
    Meta {
        kind: FileType::from_mode(from.mode()).unwrap_or(FileType::Fifo),
        size_bytes: from.len(),
        mode: from.mode() & 0o7777,
        uid: from.uid(),
        gid: from.gid(),
        link_count: u32::try_from(from.nlink()).unwrap_or(u32::MAX),
        modify_time: time(from.mtime(), from.mtime_nsec()),
        change_time: time(from.ctime(), from.ctime_nsec()),
        inode: from.ino(),
    }
}

fn kind(from: fs::FileType) -> Option<FileType> {
    Some(match from {
        kind if kind.is_file() => FileType::Regular,
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_fifo() => FileType::Fifo,
        kind if kind.is_socket() => FileType::Socket,
        _ => return None,
    })
}

impl Directory {
    fn join(&self, name: &[u8]) -> PathBuf {
        self.0.join(std::ffi::OsStr::from_bytes(name))
    }
}

impl Tree for Directory {
    type Directory = Arc<PathBuf>;
    type File = File;

    fn root(&self) -> Result<Arc<PathBuf>, TreeError> {
        Ok(Arc::new(self.0.clone()))
    }

    fn directory(&self, parent: &Arc<PathBuf>, name: &[u8]) -> Result<Arc<PathBuf>, TreeError> {
        match self.stat(parent, name)?.kind {
            FileType::Directory => Ok(Arc::new(parent.join(std::ffi::OsStr::from_bytes(name)))),
            kind => Err(TreeError::NotDirectory(kind)),
        }
    }

    fn stat(&self, parent: &Arc<PathBuf>, name: &[u8]) -> Result<Meta, TreeError> {
        Ok(meta(&fs::symlink_metadata(parent.join(std::ffi::OsStr::from_bytes(name))).map_err(failed)?))
    }

    fn stat_directory(&self, directory: &Arc<PathBuf>) -> Result<Meta, TreeError> {
        Ok(meta(&fs::metadata(directory.as_path()).map_err(failed)?))
    }

    fn names(
        &self,
        directory: &Arc<PathBuf>,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        for entry in fs::read_dir(directory.as_path()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().ok().and_then(kind);
            if visit(Name { bytes: entry.file_name().as_bytes(), kind }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn link(&self, parent: &Arc<PathBuf>, name: &[u8]) -> Result<Vec<u8>, TreeError> {
        let target = fs::read_link(parent.join(std::ffi::OsStr::from_bytes(name))).map_err(failed)?;
        Ok(target.into_os_string().into_vec())
    }

    fn open(&self, parent: &Arc<PathBuf>, name: &[u8]) -> Result<(File, Meta), TreeError> {
        let path = Directory(parent.to_path_buf()).join(name);
        let file = File::options().read(true).custom_flags(OPEN_FLAGS).open(path).map_err(failed)?;
        let meta = self.stat_file(&file)?;
        if meta.kind == FileType::Regular { Ok((file, meta)) } else { Err(TreeError::NotRegular(meta.kind)) }
    }

    fn stat_file(&self, file: &File) -> Result<Meta, TreeError> {
        Ok(meta(&file.metadata().map_err(failed)?))
    }

    fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize, TreeError> {
        // A regular file gives fewer bytes than asked for only at its end.
        file.read_at(buffer, offset).map_err(failed)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().filter(|argument| argument != "--bench").collect();
    let [_, root, pattern, mode, count, rest @ ..] = arguments.as_slice() else {
        // Run among all benches, without arguments: nothing to measure.
        return Ok(());
    };
    let (syntax, case) = match mode.as_str() {
        "literal" => (Syntax::Literal, Case::Sensitive),
        "fold" => (Syntax::Literal, Case::Insensitive),
        _ => (Syntax::Regex, Case::Sensitive),
    };
    let mut limits = Limits { search_result_bytes_max: u64::MAX, ..Limits::default() };
    if let [threads] = rest {
        limits.search_thread_count = threads.parse()?;
    }
    let excludes = [".git".to_owned(), "node_modules".to_owned()];
    let plan = SearchPlan {
        path: TreePath::root(),
        pattern: Pattern::new(pattern, syntax, case, &limits)?,
        globs: GlobSet::new(&[], &excludes, &limits)?,
        context_line_count: 0,
        match_count_max: count.parse()?,
        file_bytes_max: 1 << 20,
        machine_root: false,
    };
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let end = search::run(&Directory(root.into()), &plan, &limits, &Unbounded, &mut |found: Match| {
        let head = format!(":{}:{}:", found.line, found.column);
        let written = out
            .write_all(found.path.as_bytes())
            .and_then(|()| out.write_all(head.as_bytes()))
            .and_then(|()| out.write_all(&found.text.bytes))
            .and_then(|()| out.write_all(b"\n"));
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    eprintln!("{end:?}");
    Ok(())
}
