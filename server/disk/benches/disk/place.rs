//! What is read: an image of a tree, on the file system of the temporary directory and on an xfs with reflinks.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use dormouse_files::path::TreePath;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// Has the image in memory as read-ahead brings it there, and not in the small pieces in which it was written: as the files
/// of a mount are.
pub(super) fn bring_in(image: &Path) {
    let mut file = File::open(image).expect("the image opens");
    file.sync_all().expect("the image is written");
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("the image is let go");
    std::io::copy(&mut file, &mut std::io::sink()).expect("the image is read");
}

/// An xfs with reflinks in a file, that holds a copy of the image; unmounted when dropped.
pub(super) struct Xfs {
    root: PathBuf,
    pub(super) image: PathBuf,
}

impl Xfs {
    pub(super) fn make(directory: &Path, image: &Path) -> Self {
        let (file, root) = (directory.join("xfs.img"), directory.join("xfs"));
        let bytes = fs::metadata(image).expect("the image").len() + (1 << 30);
        File::create(&file).and_then(|file| file.set_len(bytes)).expect("a file of holes");
        fs::create_dir_all(&root).expect("a mount point");
        run(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&file), &[0]);
        run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&root), &[0]);
        let copy = root.join("disk.img");
        fs::copy(image, &copy).expect("a copy of the image");
        bring_in(&copy);
        Self { root, image: copy }
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.root), &[0]);
    }
}

/// Makes a tree of about 20 KiB a file, and its image with hashed directories; gives the paths of all files.
pub(super) fn make(directory: &Path, image: &Path, files: usize) -> Vec<TreePath> {
    let tree = directory.join("tree");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let pool: Vec<u8> = (0..(4 << 20)).map(|_| b' ' + (next() % 95) as u8).collect();
    let mut paths = Vec::with_capacity(files);
    for index in 0..files {
        let folder = format!("part-{:02}/package-{:03}", index / 2_500, index / 50);
        let path = format!("{folder}/module_{index:06}.rs");
        fs::create_dir_all(tree.join(&folder)).expect("a folder");
        let length = match next() % 100 {
            0..40 => next() % 4_096,
            40..90 => next() % 24_576,
            90..99 => next() % 98_304,
            _ => next() % 1_048_576,
        } as usize;
        let begin = next() as usize % (pool.len() - length);
        fs::write(tree.join(&path), &pool[begin..begin + length]).expect("a file");
        paths.push(TreePath::parse(format!("/{path}").as_bytes()).expect("a path"));
    }
    let size = format!("{}M", 512 + files * 26 / 1_024);
    run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree).arg(image).arg(size), &[0]);
    run(Command::new("e2fsck").args(["-fyD"]).arg(image), &[0, 1]);
    fs::remove_dir_all(&tree).expect("the tree is not needed any more");
    paths
}

pub(super) fn run(command: &mut Command, codes: &[i32]) -> Vec<u8> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).output().expect("the tool starts");
    let code = output.status.code();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
