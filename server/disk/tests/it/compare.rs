//! One picture of a tree, taken by the reader and by the kernel, and their differences.

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::Path,
};

use dormouse_disk::{DiskLimits, DiskSpec, Unsealed, Volume, Xattr};
use dormouse_files::{
    meta::{FileType, Meta, Time},
    tree::{Tree, TreeError},
};
use sha2::{Digest, Sha256};

use crate::image::Image;

/// What is compared of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub meta: Meta,
    pub target: Option<Vec<u8>>,
    pub sha256: Option<String>,
    pub xattrs: Vec<Xattr>,
}

/// Every file by its path.
pub type Picture = BTreeMap<Vec<u8>, Node>;

/// The content of larger files is not compared here: they are all hole.
pub const SUMMED_BYTES_MAX: u64 = 1 << 30;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes the kernel's picture of a mounted tree.
///
/// # Errors
/// Where this kernel mounts a file system, but does not open one of its files.
pub fn of_kernel(root: &Path) -> Result<Picture, String> {
    let mut picture = Picture::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).expect("the kernel knows it");
        let kind = FileType::from_mode(meta.mode()).expect("a type");
        let time = |seconds, nanoseconds: i64| Time { seconds, nanoseconds: nanoseconds as u32 };
        let node = Node {
            meta: Meta {
                kind,
                size_bytes: meta.size(),
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
                link_count: meta.nlink() as u32,
                modify_time: time(meta.mtime(), meta.mtime_nsec()),
                change_time: time(meta.ctime(), meta.ctime_nsec()),
                inode: meta.ino(),
            },
            target: (kind == FileType::Symlink)
                .then(|| fs::read_link(&path).expect("a target").into_os_string().into_vec()),
            sha256: match kind {
                FileType::Regular if meta.size() < SUMMED_BYTES_MAX => Some(sum_of_file(&path)?),
                _ => None,
            },
            xattrs: xattrs_of(&path),
        };
        if kind == FileType::Directory {
            left.extend(fs::read_dir(&path).expect("it lists").map(|entry| entry.expect("an entry").path()));
        }
        let name = path.strip_prefix(root).expect("below the root").as_os_str().as_bytes().to_vec();
        picture.insert(name, node);
    }
    Ok(picture)
}

fn sum_of_file(path: &Path) -> Result<String, String> {
    let mut sum = Sha256::new();
    let mut file = fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut file, &mut buffer).expect("it reads") {
            0 => return Ok(hex(&sum.finalize())),
            count => sum.update(&buffer[..count]),
        }
    }
}

fn xattrs_of(path: &Path) -> Vec<Xattr> {
    let mut names = vec![0; 65_536];
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("its attributes are listed");
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut found: Vec<Xattr> = names
        .map(|name| {
            let mut value = vec![0; 65_536];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("a value");
            value.truncate(length);
            Xattr { name: name.to_vec(), value }
        })
        .collect();
    found.sort_unstable();
    found
}

/// Takes the reader's picture, and checks on the way that every listed name is found, as what it is listed.
pub fn of_reader(volume: &Volume) -> Result<Picture, (Vec<u8>, TreeError)> {
    let mut picture = Picture::new();
    let root = volume.root().map_err(|error| (Vec::new(), error))?;
    let meta = volume.stat_directory(&root).map_err(|error| (Vec::new(), error))?;
    let xattrs = volume.xattrs(meta.inode).map_err(|error| (Vec::new(), error))?;
    picture.insert(Vec::new(), Node { meta, target: None, sha256: None, xattrs });
    let mut left = vec![(Vec::new(), root)];
    while let Some((path, directory)) = left.pop() {
        let mut names = Vec::new();
        volume
            .names(&directory, &mut |name| {
                names.push((name.bytes.to_vec(), name.kind));
                ControlFlow::Continue(())
            })
            .map_err(|error| (path.clone(), error))?;
        for (name, kind) in names {
            let mut child = path.clone();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend(&name);
            let with = |error| (child.clone(), error);
            let meta = volume.stat(&directory, &name).map_err(with)?;
            assert!(
                kind.is_none_or(|kind| kind == meta.kind),
                "{:?} is listed as {kind:?}",
                child.escape_ascii().to_string()
            );
            let xattrs = volume.xattrs(meta.inode).map_err(with)?;
            let mut node = Node { meta, target: None, sha256: None, xattrs };
            match meta.kind {
                FileType::Directory => {
                    let inner = volume.directory(&directory, &name).map_err(with)?;
                    assert_eq!(volume.stat_directory(&inner).map_err(with)?, meta);
                    left.push((child.clone(), inner));
                }
                FileType::Symlink => node.target = Some(volume.link(&directory, &name).map_err(with)?),
                FileType::Regular if meta.size_bytes < SUMMED_BYTES_MAX => {
                    node.sha256 = Some(sum_of(volume, &directory, &name).map_err(with)?)
                }
                _ => (),
            }
            assert!(
                picture.insert(child.clone(), node).is_none(),
                "{:?} is listed twice",
                child.escape_ascii().to_string()
            );
        }
    }
    Ok(picture)
}

/// Reads in pieces of an odd length, so that pieces begin and end inside blocks; by lending where the volume lends.
fn sum_of(volume: &Volume, directory: &<Volume as Tree>::Directory, name: &[u8]) -> Result<String, TreeError> {
    let (file, meta) = volume.open(directory, name)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1_000_003];
    let mut offset = 0;
    loop {
        if let Some(lent) = volume.lend(&file, offset, buffer.len())? {
            assert!(!lent.is_empty() && lent.len() <= buffer.len(), "{} bytes are lent", lent.len());
            sum.update(lent);
            offset += lent.len() as u64;
            continue;
        }
        let count = volume.read_at(&file, offset, &mut buffer)?;
        assert_eq!(count as u64, (meta.size_bytes - offset).min(buffer.len() as u64), "a piece is short");
        if count == 0 {
            return Ok(hex(&sum.finalize()));
        }
        sum.update(&buffer[..count]);
        offset += count as u64;
    }
}

/// Opens a disk, whether sealed or not.
pub fn open(spec: &DiskSpec) -> Volume {
    match Volume::open(spec, Unsealed::Crash, &DiskLimits::default()) {
        Ok(volume) => volume,
        Err(error) => panic!("the disk opens: {error}"),
    }
}

/// The reader's picture of an image must equal the kernel's of a copy, and the image must be untouched.
pub fn check(image: &Image) -> Picture {
    check_but(image, |_, _| ())
}

/// The same, after `adjust` has been given each of the reader's nodes with the kernel's.
pub fn check_but(image: &Image, adjust: impl Fn(&Node, &mut Node)) -> Picture {
    let before = fs::read(&image.path).expect("the image is read");
    let ours = match of_reader(&open(&image.spec())) {
        Ok(picture) => picture,
        Err((path, error)) => panic!("/{}: {error}", path.escape_ascii()),
    };
    assert!(before == fs::read(&image.path).expect("the image is read"), "the image was changed");
    let copy = image.copy();
    // The kernel replays a journal only where it may write.
    match copy.mount("ro").or_else(|_| copy.mount("rw,noatime")) {
        Ok(mount) => {
            let mut kernels = of_kernel(mount.path()).expect("it opens every file");
            for (name, node) in &mut kernels {
                if let Some(own) = ours.get(name) {
                    adjust(own, node);
                }
            }
            assert_same(&ours, &kernels);
        }
        Err(said) => eprintln!("skipped the comparison with the kernel: {said}"),
    }
    ours
}

/// Names the first differences.
pub fn assert_same(ours: &Picture, kernels: &Picture) {
    let names = |picture: &Picture| picture.keys().cloned().collect::<std::collections::BTreeSet<_>>();
    let lists: Vec<String> =
        names(ours).symmetric_difference(&names(kernels)).map(|name| name.escape_ascii().to_string()).collect();
    assert!(
        lists.is_empty(),
        "{} names are in one picture only, such as {:?}",
        lists.len(),
        &lists[..lists.len().min(5)]
    );
    for (name, node) in ours {
        assert_eq!(node, &kernels[name], "/{}", name.escape_ascii());
    }
}
