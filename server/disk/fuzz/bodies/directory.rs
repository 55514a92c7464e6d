//! The content of one directory, of any kind: hashed or not, folding or not, inline.
//!
//! ```text
//! flags of the inode (1 byte) │ features (1 byte) │ kind of hash bytes (1 byte) │ the directory's blocks, packed as a disk is
//! ```

use std::{ops::ControlFlow, sync::Arc};

use dormouse_disk::{MemorySource, Unsealed, Volume};
use dormouse_files::tree::{Tree, TreeError};

use super::{exercise::limits, packed::unpack, seal::Layout};

/// 1k blocks, no checksums, and a directory `/d` of a few blocks that lie together.
const BASE: &[u8] = include_bytes!("../seeds/base/directory");
const NAME_COUNT_MAX: usize = 300;

pub fn body(input: &[u8]) {
    let [flags, features, hashing, rest @ ..] = input else { return };
    let content = unpack(rest);
    let mut disk = unpack(BASE);
    let Some(layout) = Layout::of(&disk) else { panic!("the base is a file system") };
    // debugfs made it the first of the inodes that are not reserved.
    let inode = layout.inode_at(12);
    let Some(place) = layout.runs(&disk, 12).first().copied() else { panic!("the base has its directory") };
    let mut set = |at: usize, bits: u32| {
        for (index, byte) in bits.to_le_bytes().into_iter().enumerate() {
            disk[at + index] |= byte;
        }
    };
    let bit = |byte: u8, index: u8, value: u32| if byte >> index & 1 != 0 { value } else { 0 };
    set(inode + 0x20, bit(*flags, 0, 0x1000) | bit(*flags, 1, 0x4000_0000) | bit(*flags, 2, 0x1000_0000));
    set(1024 + 0x60, bit(*features, 0, 0x4000) | bit(*features, 1, 0x2_0000) | bit(*features, 2, 0x8000));
    set(1024 + 0x160, u32::from(*hashing & 3));
    if flags & 4 != 0 {
        // Inline: the first bytes lie in the inode itself.
        let head = content.len().min(60);
        disk[inode + 0x28..inode + 0x28 + head].copy_from_slice(&content[..head]);
    }
    let length = content.len().min(place.1);
    disk[place.0..place.0 + length].copy_from_slice(&content[..length]);

    let Ok(volume) = Volume::from_source(Arc::new(MemorySource::new(disk)), Unsealed::Crash, &limits()) else { return };
    let Ok(directory) = volume.root().and_then(|root| volume.directory(&root, b"d")) else { return };
    let mut names = Vec::new();
    let listed = volume.names(&directory, &mut |name| {
        names.push(name.bytes.to_vec());
        if names.len() < NAME_COUNT_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    for name in &names {
        let found = volume.stat(&directory, name);
        let hashed = flags & 1 != 0;
        // Where the directory is sound and read name by name, whatever it lists is there, though it may lead nowhere.
        assert!(hashed || listed.is_err() || !matches!(found, Err(TreeError::NotFound)), "{}", name.escape_ascii());
    }
    for absent in [&b"absent"[..], b"\xFF\xFE", "STRASSE\u{301}".as_bytes(), &[b'n'; 255]] {
        let _ = volume.stat(&directory, absent);
        let _ = volume.directory(&directory, absent);
    }
}
