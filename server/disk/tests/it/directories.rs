//! Directories: hashes of every kind, collisions, broken trees, cycles.

use std::{fs, ops::ControlFlow, path::Path};

use dormouse_disk::{DirectoryId, Volume};
use dormouse_files::tree::{Tree, TreeError};

use crate::{
    compare::{of_reader, open},
    image::{Image, run},
    matrix::Row,
};

/// A folder with `count` names, some of them not ASCII, in a subfolder `d`.
fn names(count: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("d");
    fs::create_dir(&folder).expect("a directory");
    for index in 0..count {
        let name = match index % 3 {
            0 => format!("plain-{index}"),
            1 => format!("größe-žluťoučký-{index}"),
            _ => format!("日本語の名前-{index}-{}", "ÿ".repeat(index % 40)),
        };
        fs::write(folder.join(name), index.to_string()).expect("a file is written");
    }
    place
}

/// Three thousand names in `/d`.
fn many_names(options: &str) -> Image {
    let content = names(3_000);
    Image::make(options, "64M", Some(content.path()))
}

/// The same, hashed; `debugfs` sets how.
fn hashed(options: &str, debugfs: &str) -> Image {
    let image = many_names(options);
    if !debugfs.is_empty() {
        image.debugfs(debugfs);
    }
    image.rehash();
    image
}

// `def_hash_version` takes the kind, `flags` says how bytes above 127 count.
const HASHES: &[(&str, &str, &str)] = &[
    ("half md4 signed", "-t ext4 -b 1024", "ssv def_hash_version half_md4\nssv flags 1\n"),
    ("half md4 unsigned", "-t ext4 -b 1024", "ssv def_hash_version half_md4\nssv flags 2\n"),
    ("legacy signed", "-t ext4 -b 1024", "ssv def_hash_version legacy\nssv flags 1\n"),
    ("legacy unsigned", "-t ext4 -b 1024", "ssv def_hash_version legacy\nssv flags 2\n"),
    ("tea signed", "-t ext4 -b 1024", "ssv def_hash_version tea\nssv flags 1\n"),
    ("tea unsigned", "-t ext4 -b 1024", "ssv def_hash_version tea\nssv flags 2\n"),
    ("of 4k", "-t ext4 -b 4096", ""),
    ("ext3", "-t ext3 -b 1024", ""),
    ("without a seed", "-t ext4 -b 1024", "ssv hash_seed null\n"),
];

pub fn rows() -> Vec<Row> {
    let row = |name: &str, make: fn() -> Option<Image>| Row::new("directories", name, make);
    let hashes = HASHES.iter().map(|&(name, options, debugfs)| {
        Row::new("directories", format!("hashed, {name}"), move || Some(hashed(options, debugfs)))
    });
    let broken_ones = BROKEN.iter().map(|&(name, at, value)| {
        Row::new("directories", format!("a broken tree, {name}"), move || Some(broken(at, value)))
    });
    let single = vec![
        row("50,000 names, a third removed", with_deletions),
        row("collisions across leaves", collided),
        row("a tree of three levels", three_levels),
        row("a second ..", || Some(twice_up())),
    ];
    hashes.chain(broken_ones).chain(single).collect()
}

#[test]
fn names_of_a_hash_whose_bytes_are_unsigned_are_found() {
    // The others are rows of the matrix, where every listed name is looked up as well.
    for (name, options, debugfs) in HASHES.iter().filter(|(name, ..)| name.ends_with("unsigned")) {
        let image = hashed(options, debugfs);
        // Finds every name that it lists.
        assert_eq!(of_reader(&open(&image.spec())).expect("it is read").len(), 3_003, "{name}");
        let volume = open(&image.spec());
        let directory = folder(&volume);
        for absent in ["plain-1", "größe", "", ".", "..", "a/b"] {
            assert!(matches!(volume.stat(&directory, absent.as_bytes()), Err(TreeError::NotFound)), "{absent:?}");
        }
    }
}

/// The directory `/d`.
fn folder(volume: &Volume) -> DirectoryId {
    volume.directory(&volume.root().expect("a root"), b"d").expect("a directory")
}

/// Where a block of `/d` lies on the disk.
fn block_of(image: &Image, logical: u64) -> u64 {
    let said = run("debugfs", &["-R", &format!("bmap /d {logical}"), &image.path.display().to_string()]);
    let said = said.expect("debugfs");
    let number = said.lines().find_map(|line| line.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no block number in {said:?}"))
}

/// Bytes of the root of a tree that cannot be true.
const BROKEN: &[(&str, u64, &[u8])] =
    &[("its hash", 28, &[9]), ("its depth", 30, &[7]), ("its count", 34, &[0, 0xFF]), ("its own length", 29, &[3])];

fn broken(at: u64, value: &[u8]) -> Image {
    let content = names(400);
    let image = Image::make("-t ext4 -b 1024 -O ^metadata_csum", "64M", Some(content.path()));
    image.rehash();
    image.poke(block_of(&image, 0) * 1024 + at, value);
    image
}

#[test]
fn a_broken_tree_is_read_name_by_name() {
    for (name, at, value) in BROKEN {
        let image = broken(*at, value);
        assert_eq!(of_reader(&open(&image.spec())).expect("it is read").len(), 403, "{name}");
    }
}

/// Names of 255 bytes: so many fill more blocks than two levels of hashes lead to.
const LONG_COUNT: usize = 30_000;

fn long_name(index: usize) -> String {
    format!("{index:06}-{}", "n".repeat(248))
}

/// A tree with two levels of hashes below its root, which only large_dir allows: names of one file that are so long that
/// three fill a block.
fn three_levels() -> Option<Image> {
    let image = Image::make("-t ext4 -b 1024 -O large_dir -N 64", "64M", None);
    image.filled(|root| {
        let folder = root.join("d");
        fs::create_dir(&folder).expect("a directory");
        let file = folder.join("file");
        fs::write(&file, b"many names").expect("a file");
        for index in 0..LONG_COUNT {
            fs::hard_link(&file, folder.join(long_name(index))).expect("a name");
        }
    })
}

#[test]
fn a_large_directory_has_three_levels() {
    if let Some(image) = three_levels() {
        let root = block_of(&image, 0) * 1024;
        assert_eq!(image.peek(root + 30, 1), [2], "levels below the root's");
        // All of them are looked up where the matrix takes its picture.
        let volume = open(&image.spec());
        let directory = folder(&volume);
        for index in (0..LONG_COUNT).step_by(97) {
            assert!(volume.stat(&directory, long_name(index).as_bytes()).is_ok(), "name {index}");
        }
        let absent = volume.stat(&directory, long_name(LONG_COUNT).as_bytes());
        assert!(matches!(absent, Err(TreeError::NotFound)));
    }
}

/// A directory with a `..` at its beginning and another among its names.
fn twice_up() -> Image {
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(place.path().join("d")).expect("directories");
    fs::write(place.path().join("d/ab"), b"x").expect("a file");
    fs::write(place.path().join("d/cd"), b"y").expect("a file");
    let image = Image::make("-t ext4 -b 1024 -O ^metadata_csum", "16M", Some(place.path()));
    let block = block_of(&image, 0) * 1024;
    let held = image.peek(block, 1024);
    let at = held.windows(2).position(|two| two == b"ab").expect("the name is there") as u64;
    image.poke(block + at, b"..");
    image
}

#[test]
fn a_second_dotdot_leads_nowhere() {
    let image = twice_up();
    let picture = of_reader(&open(&image.spec())).expect("it is read");
    assert!(picture.contains_key(&b"d/cd"[..]) && !picture.contains_key(&b"d/.."[..]));
    let volume = open(&image.spec());
    let directory = folder(&volume);
    assert!(matches!(volume.stat(&directory, b".."), Err(TreeError::NotFound)));
    assert!(matches!(volume.open(&directory, b"..").err(), Some(TreeError::NotFound)));
}

#[test]
fn a_bad_sum_is_told() {
    let image = hashed("-t ext4 -b 1024", "");
    for block in [0, 1, 40].map(|logical| block_of(&image, logical)) {
        let copy = image.copy();
        let at = block * 1024 + 40;
        copy.poke(at, &[copy.peek(at, 1)[0] ^ 4]);
        let (path, error) = of_reader(&open(&copy.spec())).expect_err("the sum does not hold");
        assert!(path.starts_with(b"d"), "{}", path.escape_ascii());
        assert!(matches!(&error, TreeError::Corrupt { what } if what.contains("checksum")), "{error}");
    }
}

#[test]
fn a_name_is_found_again_and_again_in_blocks_that_are_indexed_meanwhile() {
    for (options, rehash) in [("-t ext4 -b 1024", true), ("-t ext4 -b 4096", false), ("-t ext3 -b 2048", true)] {
        let image = many_names(options);
        if rehash {
            image.rehash();
        }
        let volume = open(&image.spec());
        let directory = folder(&volume);
        let mut listed = Vec::new();
        volume
            .names(&directory, &mut |name| {
                listed.push(name.bytes.to_vec());
                ControlFlow::Continue(())
            })
            .expect("it lists");
        assert_eq!(listed.len(), 3_000);
        // Names that were opened are not remembered, so each of these looks into the directory.
        let found = |name: &Vec<u8>| volume.open(&directory, name).map(|(_, meta)| meta.inode).expect("it is there");
        let first: Vec<u64> = listed.iter().map(found).collect();
        let mut second: Vec<u64> = listed.iter().rev().map(found).collect();
        second.reverse();
        assert_eq!(first, second, "{options}");
        let stat = |name: &Vec<u8>| volume.stat(&directory, name).expect("it is there").inode;
        assert_eq!(first, listed.iter().map(stat).collect::<Vec<u64>>(), "{options}");
        let absent = volume.open(&directory, b"plain-1").err();
        assert!(matches!(absent, Some(TreeError::NotFound)), "{absent:?}");
    }
}

#[test]
fn a_directory_is_entered_from_its_own_parent_only() {
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(place.path().join("a/b/c")).expect("directories");
    fs::create_dir_all(place.path().join("other")).expect("directories");
    let image = Image::make("-t ext4", "16M", Some(place.path()));
    image.debugfs("link /a /a/b/c/again\nlink / /a/top\nlink /a/b /other/b\n");
    let volume = open(&image.spec());
    let walk = |path: &str| -> Result<_, TreeError> {
        let components = path.split('/').map(str::as_bytes);
        components.into_iter().try_fold(volume.root()?, |parent, name| volume.directory(&parent, name))
    };
    assert!(walk("a/b/c").is_ok());
    for path in ["a/b/c/again", "a/top", "other/b"] {
        let error = walk(path).expect_err("no way leads back");
        assert!(matches!(&error, TreeError::Corrupt { what } if what.contains("..")), "{path}: {error}");
    }
    // Its names can still be listed and described.
    let mut listed = 0;
    let directory = walk("a/b/c").unwrap();
    volume
        .names(&directory, &mut |_| {
            listed += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(listed, 1);
}

fn fill_mounted(root: &Path) {
    let folder = root.join("d");
    fs::create_dir(&folder).expect("a directory");
    for index in 0..50_000 {
        fs::write(folder.join(format!("file-{index:08}")), b"").expect("a file is written");
    }
    for index in (0..50_000).step_by(3) {
        fs::remove_file(folder.join(format!("file-{index:08}"))).expect("a file is removed");
    }
}

fn with_deletions() -> Option<Image> {
    let image = Image::make("-t ext4 -b 1024 -N 60000", "96M", None);
    image.filled(fill_mounted)
}

/// Names of one legacy hash that are too long for one block, so that a lookup has to go on to the next.
fn collided() -> Option<Image> {
    const ENDS: [&str; 5] = ["64koha", "uul3ia", "b79xua", "d2haeb", "hymcob"];
    let image = Image::make("-t ext4 -b 1024 -N 4000", "32M", None);
    image.debugfs("ssv def_hash_version legacy\nssv flags 1\n");
    let names = ENDS.map(|end| format!("{}{end}", "c".repeat(240)));
    let image = image.filled(|root| {
        let folder = root.join("d");
        fs::create_dir(&folder).expect("a directory");
        for index in 0..200 {
            fs::write(folder.join(format!("filler-{index}-{}", "f".repeat(60))), b"").expect("a file");
        }
        for name in &names {
            fs::write(folder.join(name), b"").expect("a file");
        }
    })?;
    let tree = run("debugfs", &["-R", "htree_dump /d", &image.path.display().to_string()]).expect("debugfs");
    let leaves = tree.matches("0xd0ddbe7").count();
    assert!(leaves > names.len(), "the hash is in one leaf only: {leaves}");
    Some(image)
}

#[test]
fn a_directory_beyond_its_bound_is_refused() {
    let image = many_names("-t ext4 -b 1024");
    let limits = dormouse_disk::DiskLimits { directory_bytes_max: 20 << 10, ..Default::default() };
    let volume = Volume::open(&image.spec(), dormouse_disk::Unsealed::Never, &limits).expect("it opens");
    let directory = folder(&volume);
    let listed = volume.names(&directory, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(listed, Err(TreeError::OverLimit { limit: 20_480, .. })));
}
