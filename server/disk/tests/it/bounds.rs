//! Every bound of the reader is met by an image that goes beyond it.

use std::{fs, ops::ControlFlow, os::unix::fs::FileExt};

use dormouse_disk::{DiskLimits, OpenError, Unsealed, Volume};
use dormouse_files::tree::{Tree, TreeError};

use crate::{
    bodies::seal::Layout,
    compare::open,
    image::{Image, pattern, run},
};

/// 1k blocks without checksums, so that every change is believed.
struct Base {
    image: Image,
    layout: Layout,
}

impl Base {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let scattered = fs::File::create(root.join("scattered")).unwrap();
        for index in 0..40_u64 {
            scattered.write_all_at(&pattern(1024, index), index * 4096).unwrap();
        }
        std::os::unix::fs::symlink("t".repeat(300), root.join("link")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/plain"), b"x").unwrap();
        fs::write(root.join("attributed"), b"x").unwrap();
        let image = Image::make("-t ext4 -b 1024 -N 64 -O ^metadata_csum,ea_inode,large_dir", "16M", Some(root));
        let value = root.join("value");
        fs::write(&value, pattern(700, 3)).unwrap();
        image.debugfs(&format!("ea_set attributed user.a -f {}\nea_set attributed user.b short\n", value.display()));
        let layout = Layout::of(&fs::read(&image.path).unwrap()).expect("it is a file system");
        Self { image, layout }
    }

    /// Where an inode of the root directory begins.
    fn inode(&self, name: &str) -> u64 {
        let volume = open(&self.image.spec());
        let meta = volume.stat(&volume.root().unwrap(), name.as_bytes()).unwrap();
        self.layout.inode_at(meta.inode as usize) as u64
    }

    /// Where the first block below the root of its extents, or the first of its content, begins.
    fn first_block(&self, name: &str, entry: u64) -> u64 {
        let inode = self.inode(name);
        u64::from(self.le32(inode + 0x28 + 12 + entry)) * 1024
    }

    fn le32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.image.peek(at, 4).try_into().unwrap())
    }

    /// What reading a file says after a change.
    fn read(&self, name: &str) -> String {
        let volume = open(&self.image.spec());
        let root = volume.root().unwrap();
        let mut buffer = vec![0; 50_000];
        let read = volume.open(&root, name.as_bytes()).and_then(|(file, meta)| {
            volume.read_at(&file, meta.size_bytes.saturating_sub(50_000), &mut buffer)?;
            volume.read_at(&file, 0, &mut buffer)
        });
        read.map_or_else(|error| error.to_string(), |count| format!("{count} bytes"))
    }
}

fn check(name: &str, at: impl Fn(&Base) -> u64, bytes: &[u8], expect: &str) {
    let base = Base::new();
    base.image.poke(at(&base), bytes);
    let said = base.read(name);
    assert!(said.contains(expect), "{bytes:x?}: {said}, not {expect}");
}

#[test]
fn extents_fall_ascend_and_stay_inside() {
    let root = |base: &Base| base.inode("scattered") + 0x28;
    let node = |base: &Base| base.first_block("scattered", 4);
    check("scattered", root, &[0x0A, 0xF3], "50000 bytes");
    check("scattered", |base| root(base) + 6, &[6, 0], "too deep");
    check("scattered", |base| root(base) + 6, &[2, 0], "depth");
    check("scattered", |base| node(base) + 6, &[1, 0], "depth");
    check("scattered", |base| root(base) + 2, &[5, 0], "entry count");
    check("scattered", |base| node(base) + 2, &[0xFF, 0], "entry count");
    check("scattered", node, &[0, 0], "magic");
    // The second extent begins where the first does, inside it, and past the end of what the parent gives.
    check("scattered", |base| node(base) + 24, &[0, 0, 0, 0], "order");
    check("scattered", |base| node(base) + 12 + 4, &[5, 0], "order");
    check("scattered", |base| node(base) + 12 + 4, &[0, 0], "length");
    // Outside of the file system: content, and a node.
    check("scattered", |base| node(base) + 12 + 8, &[0xFF, 0xFF, 0xFF, 0x7F], "outside");
    check("scattered", |base| node(base) + 12 + 6, &[1, 0], "outside");
    check("scattered", |base| root(base) + 12 + 4, &[0xFF, 0xFF, 0xFF, 0], "outside");
    // A node that leads to itself: its depth no longer falls.
    let base = Base::new();
    let (at, own) = (node(&base), base.le32(root(&base) + 12 + 4));
    base.image.poke(root(&base) + 6, &[2, 0]);
    base.image.poke(at + 6, &[1, 0]);
    base.image.poke(at + 2, &[1, 0]);
    base.image.poke(at + 12 + 4, &own.to_le_bytes());
    base.image.poke(at + 12 + 8, &[0, 0]);
    assert!(base.read("scattered").contains("depth"), "{}", base.read("scattered"));
}

#[test]
fn a_size_is_no_allocation() {
    // Almost 2^63 bytes, of which all but the beginning is hole.
    let base = Base::new();
    let inode = base.inode("scattered");
    base.image.poke(inode + 0x6C, &[0xFF, 0xFF, 0xFF, 0x7F]);
    assert_eq!(base.read("scattered"), "50000 bytes");
    base.image.poke(inode + 0x6C, &[0xFF, 0xFF, 0xFF, 0xFF]);
    assert!(base.read("scattered").contains("size"), "{}", base.read("scattered"));
    // A directory of 2^60 bytes of hole.
    let base = Base::new();
    base.image.poke(base.inode("d") + 0x6C, &[0, 0, 0, 0x10]);
    let limits = DiskLimits { directory_bytes_max: 1 << 20, ..DiskLimits::default() };
    let volume = Volume::open(&base.image.spec(), Unsealed::Never, &limits).unwrap_or_else(|error| panic!("{error}"));
    let directory = volume.directory(&volume.root().unwrap(), b"d").unwrap();
    assert!(volume.stat(&directory, b"plain").is_ok());
    assert!(matches!(volume.stat(&directory, b"absent"), Err(TreeError::OverLimit { limit: 1_048_576, .. })));
    let listed = volume.names(&directory, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(listed, Err(TreeError::OverLimit { limit: 1_048_576, .. })));
    // A journal that says it has 2^32 blocks.
    let base = Base::new();
    let said = run("debugfs", &["-R", "bmap <8> 0", &base.image.path.display().to_string()]).unwrap();
    let journal = said.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap() * 1024;
    base.image.poke(1024 + 0x60, &[base.image.peek(1024 + 0x60, 1)[0] | 4]);
    base.image.poke(journal + 0x10, &[0xFF; 4]);
    base.image.poke(journal + 0x1C, &[0, 0, 0, 1]);
    let opened = Volume::open(&base.image.spec(), Unsealed::Crash, &DiskLimits::default());
    assert!(opened.err().unwrap().to_string().contains("superblock: size"));
}

#[test]
fn names_that_no_path_can_hold_are_told() {
    for byte in [b'/', 0] {
        let base = Base::new();
        let block = base.first_block("d", 8);
        let held = base.image.peek(block, 1024);
        let at = held.windows(5).position(|five| five == b"plain").unwrap() as u64;
        base.image.poke(block + at + 2, &[byte]);
        let volume = open(&base.image.spec());
        let directory = volume.directory(&volume.root().unwrap(), b"d").unwrap();
        let listed = volume.names(&directory, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(&listed, Err(TreeError::Corrupt { what }) if what.contains("no path")), "{listed:?}");
    }
    // An entry whose name is longer than the entry, and one that ends past its block.
    for (field, bytes) in [(6, &[0xFF][..]), (4, &[0xFC, 0xFF]), (4, &[0, 0]), (4, &[7, 0])] {
        let base = Base::new();
        let block = base.first_block("d", 8);
        base.image.poke(block + 24 + field, bytes);
        let volume = open(&base.image.spec());
        let directory = volume.directory(&volume.root().unwrap(), b"d").unwrap();
        assert!(volume.names(&directory, &mut |_| ControlFlow::Continue(())).is_err(), "{bytes:x?} at {field}");
    }
}

#[test]
fn attributes_are_bounded() {
    let xattrs = |base: &Base, limits: &DiskLimits| {
        let volume =
            Volume::open(&base.image.spec(), Unsealed::Never, limits).unwrap_or_else(|error| panic!("{error}"));
        let meta = volume.stat(&volume.root().unwrap(), b"attributed").unwrap();
        volume.xattrs(meta.inode).map_or_else(|error| error.to_string(), |held| format!("{} attributes", held.len()))
    };
    let plain = DiskLimits::default();
    let base = Base::new();
    assert_eq!(xattrs(&base, &plain), "2 attributes");
    let said = xattrs(&base, &DiskLimits { xattr_bytes_max: 500, ..plain.clone() });
    assert!(said.contains("extended attributes"), "{said}");
    let block = u64::from(base.le32(base.inode("attributed") + 0x68)) * 1024;
    assert_ne!(block, 0, "the long value lies in a block");
    // The first entry of the block: its value's inode, its value's length, its value's place.
    for (field, bytes, expect) in [
        (8_u64, 65_537_u32.to_le_bytes().to_vec(), "too long"),
        (8, 5_000_u32.to_le_bytes().to_vec(), "past the end"),
        (2, vec![0xFF, 0x03], "past the end"),
        // A value in an inode that is none of attributes: the root directory, itself, one that is not there.
        (4, 2_u32.to_le_bytes().to_vec(), "the inode of a value"),
        (4, 60_000_u32.to_le_bytes().to_vec(), "no inode"),
    ] {
        let copy = Base { image: base.image.copy(), layout: Layout::of(&fs::read(&base.image.path).unwrap()).unwrap() };
        copy.image.poke(block + 32 + field, &bytes);
        let said = xattrs(&copy, &plain);
        assert!(said.contains(expect), "{bytes:x?} at {field}: {said}, not {expect}");
    }
}

#[test]
fn links_are_no_longer_than_a_path() {
    for (size, expect) in [(300_u32, "300 bytes"), (0, "length"), (4_096, "length"), (u32::MAX, "length")] {
        let base = Base::new();
        base.image.poke(base.inode("link") + 4, &size.to_le_bytes());
        let volume = open(&base.image.spec());
        let read = volume.link(&volume.root().unwrap(), b"link");
        let said = read.map_or_else(|error| error.to_string(), |target| format!("{} bytes", target.len()));
        assert!(said.contains(expect), "{size}: {said}");
    }
}

/// A log that is one ring of descriptors or revoke blocks of one transaction: nothing in it says where it ends.
#[test]
fn a_log_without_an_end_is_walked_once() {
    for (kind, rest) in [(1_u32, [0, 0, 0x10, 0, 0, 0, 0, 8]), (5, [0, 0, 0, 20, 0, 0, 0, 9])] {
        let base = Base::new();
        let said = run("debugfs", &["-R", "blocks <8>", &base.image.path.display().to_string()]).unwrap();
        let blocks: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let length = u64::from(u32::from_be_bytes(base.image.peek(blocks[0] * 1024 + 0x10, 4).try_into().unwrap()));
        let mut own = vec![0; 1024];
        own[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        own[4..8].copy_from_slice(&kind.to_be_bytes());
        own[11] = 1;
        own[12..20].copy_from_slice(&rest);
        for block in &blocks[1..length as usize] {
            base.image.poke(block * 1024, &own);
        }
        base.image.poke(blocks[0] * 1024 + 0x18, &[0, 0, 0, 1, 0, 0, 0, 1]);
        base.image.poke(1024 + 0x60, &[base.image.peek(1024 + 0x60, 1)[0] | 4]);
        match Volume::open(&base.image.spec(), Unsealed::Crash, &DiskLimits::default()) {
            // Nothing of it is committed, so nothing of it counts.
            Ok(volume) => assert!(volume.stat(&volume.root().unwrap(), b"link").is_ok()),
            Err(error) => assert!(error.to_string().contains("longer than its place"), "{error}"),
        }
    }
}

#[test]
fn revokes_are_bounded() {
    let base = Base::new();
    let revokes: String = (0..20).map(|index| format!("jw -r {}\n", 5_000 + index)).collect();
    base.image.debugfs(&format!("jo\n{revokes}jc\n"));
    let open = |limits: DiskLimits| Volume::open(&base.image.spec(), Unsealed::Crash, &limits);
    assert!(open(DiskLimits { revoke_count_max: 20, ..DiskLimits::default() }).is_ok());
    let over = open(DiskLimits { revoke_count_max: 19, ..DiskLimits::default() });
    assert!(matches!(over, Err(OpenError::OverlayTooLarge { .. })));
}

#[test]
fn fast_commits_are_bounded() {
    let image = Image::make("-t ext4 -b 1024 -O fast_commit", "32M", None);
    let copy = match image.mount("rw") {
        Err(said) => return eprintln!("skipped: {said}"),
        Ok(mount) => {
            for index in 0..10 {
                let file = fs::File::create(mount.path().join(format!("file-{index}"))).unwrap();
                file.sync_all().unwrap();
            }
            image.copy()
        }
    };
    let open = |limits: DiskLimits| Volume::open(&copy.spec(), Unsealed::Crash, &limits);
    assert!(open(DiskLimits::default()).is_ok());
    let over = open(DiskLimits { fast_commit_count_max: 3, ..DiskLimits::default() });
    assert!(matches!(over, Err(OpenError::OverlayTooLarge { limit_bytes: 3 })));
}
