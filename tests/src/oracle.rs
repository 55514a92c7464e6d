//! What the kernel sees of an image: a copy of it, mounted read-only on a loop device. Needs root.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use dormouse_files::{meta::FileType, revision::Revision};
use tempfile::TempDir;

/// A copy of an image, mounted; unmounted when dropped.
pub struct Mounted {
    directory: TempDir,
}

impl Mounted {
    /// Copies and mounts an image; an error where this machine cannot mount it.
    ///
    /// # Errors
    /// What mount(8) says.
    pub fn copy_of(image: &Path) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let copy = directory.path().join("copy.img");
        fs::copy(image, &copy)?;
        let root = directory.path().join("root");
        fs::create_dir(&root)?;
        let output = Command::new("mount").args(["-o", "loop,ro"]).arg(&copy).arg(&root).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(Self { directory })
    }

    /// Its root directory.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.root()).status();
        assert!(matches!(&status, Ok(status) if status.success()), "the copy is unmounted: {status:?}");
    }
}

/// Everything under a directory as the kernel tells it, a line a file, in path order. `lost+found` is left out, whose
/// content only root may list.
///
/// # Panics
/// Where the kernel refuses.
pub fn kernel_view(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory lists") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("an entry is there");
            let kind = FileType::from_mode(meta.mode()).expect("one of seven types");
            let relative = path.strip_prefix(root).expect("it is beneath the root").as_os_str().as_bytes();
            if kind == FileType::Directory {
                directories.push(path.clone());
            }
            let content = match kind {
                FileType::Regular => Revision::of(&fs::read(&path).expect("a file reads")).to_string(),
                FileType::Symlink => {
                    fs::read_link(&path).expect("a link reads").as_os_str().as_bytes().escape_ascii().to_string()
                }
                _ => String::new(),
            };
            lines.push(format!(
                "/{} {kind} {} {:o} {}:{} {} {}.{:09} {content}",
                relative.escape_ascii(),
                meta.size(),
                meta.mode() & 0o7777,
                meta.uid(),
                meta.gid(),
                meta.nlink(),
                meta.mtime(),
                meta.mtime_nsec()
            ));
        }
    }
    lines.sort();
    lines
}
