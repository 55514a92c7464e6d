//! Directories: hashes of every kind, collisions, broken trees, cycles.

use std::{fs, ops::ControlFlow, path::Path};

use dormouse_files::tree::{Tree, TreeError};

use crate::{
    compare::{check, of_reader, open},
    image::Image,
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

fn hashed(options: &str, debugfs: &str) {
    let content = names(3_000);
    let image = Image::make(options, "64M", Some(content.path()));
    if !debugfs.is_empty() {
        image.debugfs(debugfs);
    }
    image.rehash();
    let picture = check(&image);
    assert_eq!(picture.len(), 3_003);
    let volume = open(&image.spec());
    let directory = volume.directory(&volume.root().unwrap(), b"d").unwrap();
    for absent in ["plain-1", "größe", "", ".", "..", "a/b"] {
        assert!(matches!(volume.stat(&directory, absent.as_bytes()), Err(TreeError::NotFound)), "{absent:?}");
    }
}

macro_rules! hashes {
    ($($name:ident: $options:literal, $debugfs:literal;)*) => {
        $(#[test] fn $name() { hashed($options, $debugfs) })*
    };
}

// `def_hash_version` takes the kind, `flags` says how bytes above 127 count.
hashes! {
    half_md4_signed: "-t ext4 -b 1024", "ssv def_hash_version half_md4\nssv flags 1\n";
    half_md4_unsigned: "-t ext4 -b 1024", "ssv def_hash_version half_md4\nssv flags 2\n";
    legacy_signed: "-t ext4 -b 1024", "ssv def_hash_version legacy\nssv flags 1\n";
    legacy_unsigned: "-t ext4 -b 1024", "ssv def_hash_version legacy\nssv flags 2\n";
    tea_signed: "-t ext4 -b 1024", "ssv def_hash_version tea\nssv flags 1\n";
    tea_unsigned: "-t ext4 -b 1024", "ssv def_hash_version tea\nssv flags 2\n";
    of_4k: "-t ext4 -b 4096", "";
    ext3: "-t ext3 -b 1024", "";
    without_a_seed: "-t ext4 -b 1024", "ssv hash_seed null\n";
}

/// Where a block of `/d` lies on the disk.
fn block_of(image: &Image, logical: u64) -> u64 {
    let said = crate::image::run("debugfs", &["-R", &format!("bmap /d {logical}"), &image.path.display().to_string()]);
    let said = said.expect("debugfs");
    let number = said.lines().find_map(|line| line.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no block number in {said:?}"))
}

#[test]
fn a_broken_tree_is_read_name_by_name() {
    let content = names(400);
    let image = Image::make("-t ext4 -b 1024 -O ^metadata_csum", "64M", Some(content.path()));
    image.rehash();
    let root = block_of(&image, 0) * 1024;
    // The hash kind, the depth, the count of entries, the length of the description.
    for (at, value) in [(28, 9), (30, 7), (34, 0), (29, 3)] {
        let copy = image.copy();
        copy.poke(root + at, &[value]);
        if at == 34 {
            copy.poke(root + at + 1, &[0xFF]);
        }
        assert_eq!(of_reader(&open(&copy.spec())).expect("it is read").len(), 403, "byte {at} of the root");
    }
}

#[test]
fn a_bad_sum_is_told() {
    let content = names(3_000);
    let image = Image::make("-t ext4 -b 1024", "64M", Some(content.path()));
    image.rehash();
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

#[test]
fn filled_by_the_kernel_with_deletions() {
    let image = Image::make("-t ext4 -b 1024 -N 60000", "96M", None);
    match image.mount("rw") {
        Err(said) => return eprintln!("skipped: {said}"),
        Ok(mount) => fill_mounted(mount.path()),
    }
    assert_eq!(check(&image).len(), 33_333 + 3);
}

/// Names of one legacy hash that are too long for one block, so that a lookup has to go on to the next.
#[test]
fn collisions_across_leaves() {
    const ENDS: [&str; 5] = ["64koha", "uul3ia", "b79xua", "d2haeb", "hymcob"];
    let image = Image::make("-t ext4 -b 1024 -N 4000", "32M", None);
    image.debugfs("ssv def_hash_version legacy\nssv flags 1\n");
    let names = ENDS.map(|end| format!("{}{end}", "c".repeat(240)));
    match image.mount("rw") {
        Err(said) => return eprintln!("skipped: {said}"),
        Ok(mount) => {
            let folder = mount.path().join("d");
            fs::create_dir(&folder).expect("a directory");
            for index in 0..200 {
                fs::write(folder.join(format!("filler-{index}-{}", "f".repeat(60))), b"").expect("a file");
            }
            for name in &names {
                fs::write(folder.join(name), b"").expect("a file");
            }
        }
    }
    let tree =
        crate::image::run("debugfs", &["-R", "htree_dump /d", &image.path.display().to_string()]).expect("debugfs");
    let leaves = tree.matches("0xd0ddbe7").count();
    assert!(leaves > names.len(), "the hash is in one leaf only: {leaves}");
    check(&image);
}

#[test]
fn a_directory_beyond_its_bound_is_refused() {
    let content = names(3_000);
    let image = Image::make("-t ext4 -b 1024", "64M", Some(content.path()));
    let limits = dormouse_disk::DiskLimits { directory_bytes_max: 20 << 10, ..Default::default() };
    let volume = dormouse_disk::Volume::open(&image.spec(), dormouse_disk::Unsealed::Never, &limits).expect("it opens");
    let directory = volume.directory(&volume.root().unwrap(), b"d").unwrap();
    let listed = volume.names(&directory, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(listed, Err(TreeError::OverLimit { limit: 20_480, .. })));
}
