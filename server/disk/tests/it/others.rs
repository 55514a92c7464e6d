//! What other readers say of an image: the crate `rust-fs-ext4`, and debugfs. Neither needs root.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use dormouse_disk::Xattr;
use dormouse_files::meta::{FileType, Meta, Time};
use fs_ext4::{block_io::FileDevice, fs::Filesystem};
use sha2::{Digest, Sha256};

use crate::{
    compare::{Node, Picture, SUMMED_BYTES_MAX, hex, of_kernel},
    image::{Image, run},
};

/// The crate's picture of an image, or why it gives none. It replays a journal in memory where it may only read.
pub fn of_crate(image: &Path) -> Result<Picture, String> {
    let said = |error: fs_ext4::Error| error.to_string();
    let device = FileDevice::open_path(image).map_err(said)?;
    let volume = Filesystem::mount(Arc::new(device)).map_err(said)?;
    let mut picture = Picture::new();
    let mut left = vec![(Vec::new(), 2_u32)];
    let mut listed = 0;
    while let Some((path, number)) = left.pop() {
        let (inode, raw) = volume.read_inode_verified(number).map_err(said)?;
        let kind = FileType::from_mode(u32::from(inode.mode)).ok_or("no type")?;
        let mut sha256 = None;
        if kind == FileType::Regular && inode.size < SUMMED_BYTES_MAX {
            let mut sum = Sha256::new();
            let mut buffer = vec![0; 256 << 10];
            let mut offset = 0;
            while offset < inode.size {
                let count = volume.read_ino(number, offset, &mut buffer).map_err(said)?;
                if count == 0 {
                    return Err(format!("/{} ends before its size", path.escape_ascii()));
                }
                sum.update(&buffer[..count]);
                offset += count as u64;
            }
            sha256 = Some(hex(&sum.finalize()));
        }
        let target = match kind {
            FileType::Symlink => Some(volume.read_link(number).map_err(said)?),
            _ => None,
        };
        let held = fs_ext4::xattr::read_all_resolved(&volume, &inode, &raw).map_err(said)?;
        let mut xattrs: Vec<Xattr> =
            held.into_iter().map(|entry| Xattr { name: entry.name.into_bytes(), value: entry.value }).collect();
        xattrs.sort_unstable();
        if kind == FileType::Directory {
            for entry in volume.read_dir_ino(number).map_err(said)? {
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                listed += 1;
                if listed > 1_000_000 {
                    return Err("more names than any of these images has".to_owned());
                }
                let child = if path.is_empty() { entry.name } else { [&path[..], b"/", &entry.name].concat() };
                left.push((child, entry.inode));
            }
        }
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        let meta = Meta {
            kind,
            size_bytes: inode.size,
            mode: u32::from(inode.mode) & 0o7777,
            uid: inode.uid,
            gid: inode.gid,
            link_count: u32::from(inode.links_count),
            modify_time: time(inode.mtime, inode.mtime_nsec),
            change_time: time(inode.ctime, inode.ctime_nsec),
            inode: u64::from(number),
        };
        picture.insert(path, Node { meta, target, sha256, xattrs });
    }
    Ok(picture)
}

/// What both pictures tell: an access list is told in another form by the crate, and what only file systems know is not
/// told by ours.
fn plain(node: &Node) -> Node {
    let told = |xattr: &&Xattr| !xattr.name.starts_with(b"system.") && xattr.name.contains(&b'.');
    Node { xattrs: node.xattrs.iter().filter(told).cloned().collect(), ..node.clone() }
}

/// Compares with the crate: nothing where they are equal, else the first difference.
pub fn differs_from_crate(ours: &Picture, crates: &Picture) -> Option<String> {
    difference(ours, crates, plain)
}

fn difference(ours: &Picture, others: &Picture, told: impl Fn(&Node) -> Node) -> Option<String> {
    let names: BTreeMap<_, _> = ours.keys().chain(others.keys()).map(|name| (name, ())).collect();
    names.into_keys().find_map(|name| {
        let (own, other) = (ours.get(name).map(&told), others.get(name).map(&told));
        (own != other).then(|| format!("/{}: {own:?} here, {other:?} there", name.escape_ascii()))
    })
}

/// Compares with what `rdump` of debugfs writes: names, types, modes, owners, sizes, times in seconds, content.
pub fn differs_from_debugfs(ours: &Picture, image: &Image) -> Result<Option<String>, String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let request = format!("rdump / {}", place.path().display());
    // It says on the way what it cannot do, such as make a FIFO, and ends well.
    run("debugfs", &["-R", &request, &image.path.display().to_string()])?;
    let dumped = of_kernel(place.path())?;
    let is_root = nix::unistd::geteuid().is_root();
    // The root itself is not dumped, and special files are not made.
    let kept = |(name, node): (&Vec<u8>, &Node)| {
        let plain = matches!(node.meta.kind, FileType::Regular | FileType::Directory | FileType::Symlink);
        (plain && !name.is_empty()).then(|| (name.clone(), node.clone()))
    };
    let told = |node: &Node| {
        let mut node = Node { xattrs: Vec::new(), ..node.clone() };
        let zero = Time { seconds: 0, nanoseconds: 0 };
        let kind = node.meta.kind;
        node.meta.modify_time = match kind {
            FileType::Regular => Time { nanoseconds: 0, ..node.meta.modify_time },
            // Filled after its time was set, or a link whose own time is not set.
            _ => zero,
        };
        (node.meta.change_time, node.meta.inode, node.meta.link_count) = (zero, 0, 0);
        if kind != FileType::Regular {
            node.meta.size_bytes = 0;
        }
        // It sets the owner last, and that clears the bits that run a file as its owner or group.
        node.meta.mode &= if kind == FileType::Symlink { 0 } else { 0o1777 };
        if !is_root {
            (node.meta.uid, node.meta.gid) = (0, 0);
        }
        node
    };
    let ours: Picture = ours.iter().filter_map(kept).collect();
    let dumped: Picture = dumped.iter().filter_map(kept).collect();
    Ok(difference(&ours, &dumped, told))
}
