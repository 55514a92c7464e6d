//! The readers that are compared: ours, the kernel's, and `rust-fs-ext4`. Each sums every byte in the same way.

use std::{
    fs::{self, File},
    io::Read as _,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
};

use dormouse_files::{
    meta::FileType,
    tree::{Name, Tree},
};

/// What a reader saw: files, bytes, and the sum of all words of 8 bytes, the last of a file filled up with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub(super) files: u64,
    pub(super) bytes: u64,
    sum: u64,
}

impl Seen {
    /// The sum does not tell how a file was cut: of all pieces but the last the lengths are multiples of 8.
    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        // The readers are to be seen here and not the adding: one addition for each vector of 16 bytes, and from four places
        // of the piece side by side, so that memory is not waited for one line after another.
        let (parts, rest) = piece.split_at(piece.len() / 256 * 256);
        let quarter = parts.len() / 4;
        let (front, back) = parts.split_at(2 * quarter);
        let ((first, second), (third, fourth)) = (front.split_at(quarter), back.split_at(quarter));
        let mut sums = [0_u64; 8];
        let front = first.chunks_exact(64).zip(second.chunks_exact(64));
        let back = third.chunks_exact(64).zip(fourth.chunks_exact(64));
        for (front, back) in front.zip(back) {
            for (index, sum) in sums.iter_mut().enumerate() {
                let at = 8 * index..8 * index + 8;
                let front = word(&front.0[at.clone()]).wrapping_add(word(&front.1[at.clone()]));
                let back = word(&back.0[at.clone()]).wrapping_add(word(&back.1[at]));
                *sum = sum.wrapping_add(front.wrapping_add(back));
            }
        }
        for last in rest.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..last.len()].copy_from_slice(last);
            sums[0] = sums[0].wrapping_add(u64::from_le_bytes(bytes));
        }
        self.sum = sums.iter().fold(self.sum, |total, sum| total.wrapping_add(*sum));
    }
}

/// Reads a whole tree by one thread, each directory before the next one beside it: listed, each file opened and summed.
pub(super) fn tree_read<T: Tree>(tree: &T) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 << 10];
    let mut waiting = vec![tree.root().expect("a root")];
    let (mut text, mut names, mut beneath) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(directory) = waiting.pop() {
        text.clear();
        names.clear();
        tree.names(&directory, &mut |name: Name<'_>| {
            let begin = text.len();
            text.extend_from_slice(name.bytes);
            names.push((begin..text.len(), name.kind));
            ControlFlow::Continue(())
        })
        .expect("a directory lists");
        for (name, kind) in names.drain(..) {
            let name = &text[name];
            match kind.unwrap_or_else(|| tree.stat(&directory, name).expect("it is there").kind) {
                FileType::Directory => beneath.push(tree.directory(&directory, name).expect("a directory")),
                FileType::Regular => {
                    let (file, meta) = tree.open(&directory, name).expect("a file opens");
                    seen.files += 1;
                    let mut offset = 0;
                    while offset < meta.size_bytes {
                        if let Some(lent) = tree.lend(&file, offset, 1 << 20).expect("it lends or not") {
                            seen.add(lent);
                            offset += lent.len() as u64;
                            continue;
                        }
                        let count = tree.read_at(&file, offset, &mut buffer).expect("a file reads");
                        assert!(count > 0, "a file does not end before its size");
                        seen.add(&buffer[..count]);
                        offset += count as u64;
                    }
                }
                _ => {}
            }
        }
        waiting.extend(beneath.drain(..).rev());
    }
    seen
}

/// Reads as many bytes from the image's beginning, in pieces of the mean size of a file, and does nothing with them.
pub(super) fn bare_read(image: &Path, bytes: u64) {
    let mut file = File::open(image).expect("the image opens");
    let mut buffer = vec![0; 17 << 10];
    let mut left = bytes;
    while left > 0 {
        let count = file.read(&mut buffer).expect("the image reads");
        assert!(count > 0, "the image is longer than its files");
        left = left.saturating_sub(count as u64);
    }
}

pub(super) fn kernel_read(root: &Path) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 << 10];
    let (mut waiting, mut beneath) = (vec![root.to_owned()], Vec::new());
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).expect("a directory lists") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                beneath.push(entry.path());
            } else if kind.is_file() {
                seen.files += 1;
                let mut file = File::open(entry.path()).expect("a file opens");
                loop {
                    let count = file.read(&mut buffer).expect("a file reads");
                    if count == 0 {
                        break;
                    }
                    seen.add(&buffer[..count]);
                }
            }
        }
        waiting.extend(beneath.drain(..).rev());
    }
    seen
}

/// By inode, as the crate reads fastest.
pub(super) fn crate_read(image: &Path) -> Seen {
    use fs_ext4::{block_io::FileDevice, fs::Filesystem};
    let device = FileDevice::open(image.to_str().expect("a path of text")).expect("the image opens");
    let volume = Filesystem::mount(Arc::new(device)).expect("the image mounts");
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 << 10];
    let (mut waiting, mut beneath) = (vec![2_u32], Vec::new());
    while let Some(directory) = waiting.pop() {
        for entry in volume.read_dir_ino(directory).expect("a directory lists") {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let inode = volume.stat_ino(entry.inode).expect("an inode");
            if FileType::from_mode(u32::from(inode.mode)) == Some(FileType::Directory) {
                beneath.push(entry.inode);
            } else if FileType::from_mode(u32::from(inode.mode)) == Some(FileType::Regular) {
                seen.files += 1;
                let mut offset = 0;
                while offset < inode.size {
                    let count = volume.read_ino(entry.inode, offset, &mut buffer).expect("a file reads");
                    assert!(count > 0, "a file does not end before its size");
                    seen.add(&buffer[..count]);
                    offset += count as u64;
                }
            }
        }
        waiting.extend(beneath.drain(..).rev());
    }
    seen
}
