//! ext4 images of a tree, made by e2fsprogs: no root, no mount.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// How a tree's directories are to lie on the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directories {
    /// Blocks of names in no order, as `mke2fs -d` writes them.
    Linear,
    /// With a hash tree where they fill more than one block, as `e2fsck -D` leaves them.
    Hashed,
}

/// Makes `directory/NAME.img` of the tree at `root`.
///
/// # Panics
/// Where e2fsprogs are missing or fail.
pub fn make(root: &Path, directory: &Path, directories: Directories, size: &str) -> PathBuf {
    let image = directory.join(format!("{directories:?}.img").to_lowercase());
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d"], &[root, &image], &[size]);
    if directories == Directories::Hashed {
        // e2fsck says 1 where it changed something, which is what it is asked for.
        run_to("e2fsck", &["-fyD"], &[&image], &[], &[0, 1]);
    }
    // The tree has no lost+found, and the root's own times are those of the making; e2fsck makes lost+found again.
    for request in ["rmdir lost+found", "set_inode_field / mtime @1700000000"] {
        run("debugfs", &["-w", "-R", request], &[&image], &[]);
    }
    image
}

/// Runs a tool of e2fsprogs and expects that it ends well.
pub fn run(tool: &str, flags: &[&str], paths: &[&Path], rest: &[&str]) {
    run_to(tool, flags, paths, rest, &[0]);
}

fn run_to(tool: &str, flags: &[&str], paths: &[&Path], rest: &[&str], codes: &[i32]) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(tool)
        .env("PATH", path)
        .args(flags)
        .args(paths)
        .args(rest)
        .output()
        .unwrap_or_else(|error| panic!("{tool} (Debian package e2fsprogs) does not start: {error}"));
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| codes.contains(&code)),
        "{tool} ended with {code:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
