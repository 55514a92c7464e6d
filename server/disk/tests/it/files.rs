//! Files of every kind, made by the kernel on a mounted image.

use std::{
    fs,
    os::unix::fs::{FileExt, chown, symlink},
    path::Path,
};

use dormouse_disk::Volume;
use dormouse_files::{
    meta::Time,
    tree::{Tree, TreeError},
};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Timespec, Timestamps, XattrFlags, fallocate, lsetxattr, utimensat};

use crate::{
    compare::open,
    image::{Image, pattern, run},
    matrix::Row,
};

/// Fills a mounted image and unmounts it.
fn made(options: &str, size: &str, fill: impl FnOnce(&Path)) -> Option<Image> {
    Image::make(options, size, None).filled(fill)
}

pub fn rows() -> Vec<Row> {
    let row = |name: &str, make: fn() -> Option<Image>| Row::new("files", name, make);
    let mut rows = vec![
        row("times", timed),
        row("times without nanoseconds", || {
            made("-t ext4 -b 4096 -I 128", "16M", |root| fs::write(root.join("coarse"), b"").unwrap())
        }),
        row("owners, devices and links", owned),
        row("space that was never written", unwritten),
        row("2,000 fragments, and beyond 4 GiB", fragmented),
        row("inline content", inlined),
        row("attributes in the inode and a block", || {
            made("-t ext4 -b 4096", "16M", |root| attributes(root, &[1, 40, 200, 1_000, 3_500]))
        }),
        row("attributes in a block only", || {
            made("-t ext4 -b 4096 -I 128", "16M", |root| attributes(root, &[1, 1_000]))
        }),
        row("attributes beside inline data", || {
            made("-t ext4 -b 1024 -O inline_data -I 512", "16M", |root| attributes(root, &[1, 40, 200, 500]))
        }),
        row("attributes in inodes of their own", || {
            made("-t ext4 -b 4096 -O ea_inode", "16M", |root| attributes(root, &[1, 3_500, 5_000, 20_000, 65_536]))
        }),
        row("access lists", || made("-t ext4 -b 4096", "16M", access_lists)),
        row("a sealed file", || Some(sealed())).unopened(),
        row("names that fold", || Some(folding())),
        row("quotas", || {
            let content = crate::image::content();
            Some(Image::make("-t ext4 -b 4096 -O quota,project", "32M", Some(content.path())))
        }),
    ];
    for options in ["-t ext2 -b 1024", "-t ext3 -b 1024", "-t ext4 -b 1024 -O ^extent,^64bit"] {
        rows.push(Row::new("files", format!("three levels of numbers, {options}"), move || {
            made(options, "96M", three_levels)
        }));
    }
    rows
}

fn read(volume: &Volume, name: &str) -> Vec<u8> {
    let (file, meta) = volume.open(&volume.root().unwrap(), name.as_bytes()).unwrap();
    let mut bytes = vec![0; meta.size_bytes as usize];
    assert_eq!(volume.read_at(&file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Seconds and nanoseconds, to the ends of what can be kept.
const MOMENTS: [(i64, i64); 8] = [
    (-2_147_483_648, 0),
    (-1, 999_999_999),
    (0, 0),
    (2_147_483_647, 999_999_999),
    (2_147_483_648, 5),
    (4_294_967_296, 0),
    (6_442_450_943, 123_456_789),
    (15_032_385_535, 0),
];

fn timed() -> Option<Image> {
    made("-t ext4 -b 4096", "16M", |root| {
        for (index, (seconds, nanoseconds)) in MOMENTS.into_iter().enumerate() {
            let path = root.join(format!("time-{index}"));
            fs::write(&path, b"").unwrap();
            let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        }
    })
}

#[test]
fn times() {
    if let Some(image) = timed() {
        let volume = open(&image.spec());
        for (index, (seconds, nanoseconds)) in MOMENTS.into_iter().enumerate() {
            let meta = volume.stat(&volume.root().unwrap(), format!("time-{index}").as_bytes()).unwrap();
            assert_eq!(meta.modify_time, Time { seconds, nanoseconds: nanoseconds as u32 });
        }
    }
}

fn owned() -> Option<Image> {
    made("-t ext4 -b 4096", "32M", |root| {
        for (name, uid, gid) in [("a", 70_000, 3_000_000_000), ("b", 4_294_967_294, 65_536), ("c", 501, 501)] {
            fs::write(root.join(name), b"x").unwrap();
            chown(root.join(name), Some(uid), Some(gid)).unwrap();
        }
        use nix::sys::stat::{Mode, SFlag, makedev, mknod};
        for (name, kind) in [("character", SFlag::S_IFCHR), ("block", SFlag::S_IFBLK)] {
            if let Err(error) = mknod(&root.join(name), kind, Mode::S_IRUSR, makedev(300, 70_000)) {
                eprintln!("skipped {name}: {error}");
            }
        }
        symlink("x".repeat(4_095), root.join("longest")).unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        symlink("../../..", root.join("escaping")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for index in 0..300 {
            fs::create_dir(root.join(format!("directory-{index}"))).unwrap();
        }
    })
}

fn unwritten() -> Option<Image> {
    let secret = b"the deleted secret of another tenant ";
    let fill = |root: &Path| {
        // The whole disk once holds the secret.
        let junk = root.join("junk");
        let _ = fs::write(&junk, secret.repeat(48 << 20 >> 5));
        fs::File::open(&junk).unwrap().sync_all().unwrap();
        fs::remove_file(&junk).unwrap();
        rustix::fs::syncfs(fs::File::open(root).unwrap()).unwrap();
        let file = fs::File::create(root.join("unwritten")).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 4 << 20).unwrap();
        for place in [0, 5_000, 1 << 20, (4 << 20) - 10] {
            file.write_all_at(b"written", place).unwrap();
        }
        let kept = fs::File::create(root.join("kept")).unwrap();
        fallocate(&kept, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
        kept.write_all_at(&pattern(10_000, 2), 0).unwrap();
        let punched = fs::File::create(root.join("punched")).unwrap();
        punched.write_all_at(&pattern(1 << 20, 3), 0).unwrap();
        fallocate(&punched, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100_000, 300_000).unwrap();
        let zeroed = fs::File::create(root.join("zeroed")).unwrap();
        zeroed.write_all_at(&pattern(1 << 20, 4), 0).unwrap();
        fallocate(&zeroed, FallocateFlags::ZERO_RANGE, 100_000, 300_000).unwrap();
    };
    made("-t ext4 -b 4096 -m 0", "64M", fill)
}

#[test]
fn space_that_was_never_written_reads_as_zeros() {
    if let Some(image) = unwritten() {
        // Without it this would prove nothing.
        let path = image.path.display().to_string();
        run("grep", &["-q", "-a", "-F", "the deleted secret of another tenant", &path])
            .expect("the disk holds the secret");
        let seen = read(&open(&image.spec()), "unwritten");
        assert!(seen.iter().filter(|&&byte| byte != 0).count() <= 4 * b"written".len());
    }
}

fn fragmented() -> Option<Image> {
    let fill = |root: &Path| {
        let one = fs::File::create(root.join("one")).unwrap();
        // Every second block only, and backwards, so that each is an extent of its own.
        for index in (0..2_000).rev() {
            one.write_all_at(&pattern(4096, index), index * 8192).unwrap();
            if index % 100 == 0 {
                one.sync_all().unwrap();
            }
        }
        let far = fs::File::create(root.join("far")).unwrap();
        far.write_all_at(b"beyond four GiB", (4 << 30) + 12_345).unwrap();
    };
    made("-t ext4 -b 4096", "64M", fill)
}

#[test]
fn fragments_and_far_places() {
    if let Some(image) = fragmented() {
        let said = run("debugfs", &["-R", "dump_extents -l one", &image.path.display().to_string()]).unwrap();
        assert!(said.lines().count() >= 2_000, "only {} extents", said.lines().count());
        let volume = open(&image.spec());
        let (file, meta) = volume.open(&volume.root().unwrap(), b"far").unwrap();
        let mut end = [0; 15];
        assert_eq!(volume.read_at(&file, meta.size_bytes - 15, &mut end).unwrap(), 15);
        assert_eq!(&end, b"beyond four GiB");
        assert_eq!(volume.read_at(&file, meta.size_bytes, &mut end).unwrap(), 0);
        assert_eq!(volume.read_at(&file, u64::MAX, &mut end).unwrap(), 0);
        assert_eq!(volume.read_at(&file, meta.size_bytes - 3, &mut end).unwrap(), 3);
    }
}

fn three_levels(root: &Path) {
    let file = fs::File::create(root.join("file")).unwrap();
    // In the inode, and behind one, two and three levels.
    for place in [0_u64, 11, 12, 200, 267, 268, 5_000, 65_803, 65_804, 70_000].map(|block| block << 10) {
        file.write_all_at(&pattern(3_000, place), place).unwrap();
    }
}

fn attributes(root: &Path, sizes: &[usize]) {
    for &size in sizes {
        let path = root.join(format!("value-{size}"));
        fs::write(&path, b"x").unwrap();
        lsetxattr(&path, "user.small", b"value", XattrFlags::empty()).unwrap();
        lsetxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
        lsetxattr(&path, "trusted.other", &pattern(20, 1), XattrFlags::empty()).unwrap();
        lsetxattr(&path, "user.long", &pattern(size, 7), XattrFlags::empty()).unwrap();
    }
    fs::create_dir(root.join("directory")).unwrap();
    symlink("nowhere", root.join("link")).unwrap();
    lsetxattr(root.join("link"), "trusted.of-a-link", b"y", XattrFlags::empty()).unwrap();
}

/// An access list as setxattr(2) takes it: version 2, then (kind, rights, id) for the owner, a user, the group, a group,
/// the mask and all others.
fn access_list(user: u32, group: u32) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (kind, rights, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 6, user),
        (4, 4, u32::MAX),
        (8, 4, group),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        list.extend([kind.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

fn access_lists(root: &Path) {
    fs::write(root.join("file"), b"x").unwrap();
    fs::create_dir(root.join("directory")).unwrap();
    let set = |name: &str, kind: &str, list: &[u8]| {
        lsetxattr(root.join(name), kind, list, XattrFlags::empty()).unwrap();
    };
    set("file", "system.posix_acl_access", &access_list(1234, 77));
    set("directory", "system.posix_acl_default", &access_list(5, 4_000_000_000));
    fs::write(root.join("directory/heir"), b"x").unwrap();
}

fn inlined() -> Option<Image> {
    made("-t ext4 -b 4096 -O inline_data -I 1024", "16M", |root| {
        for size in [0, 1, 59, 60, 61, 100, 150, 500, 700, 800, 900, 5_000] {
            fs::write(root.join(format!("size-{size}")), pattern(size, 8)).unwrap();
        }
        for count in [0, 1, 3, 10, 40] {
            let folder = root.join(format!("directory-{count}"));
            fs::create_dir(&folder).unwrap();
            for index in 0..count {
                fs::create_dir(folder.join(format!("entry-{index}"))).unwrap();
            }
        }
        let cut = fs::File::create(root.join("cut")).unwrap();
        cut.write_all_at(&pattern(400, 1), 0).unwrap();
        cut.set_len(70).unwrap();
        cut.set_len(300).unwrap();
    })
}

/// Sets bits of an inode's flags, as a feature that the kernel here does not mount would.
fn set_flags(image: &Image, name: &str, bits: u32) {
    let path = image.path.display().to_string();
    let said = run("debugfs", &["-R", &format!("stat {name}"), &path]).unwrap();
    let flags = said.split("Flags: 0x").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("flags");
    let flags = u32::from_str_radix(flags, 16).unwrap() | bits;
    image.debugfs(&format!("sif {name} flags {flags:#x}\n"));
}

#[test]
fn what_is_encrypted_is_told() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("closed")).unwrap();
    fs::write(place.path().join("closed/inner"), b"x").unwrap();
    fs::write(place.path().join("sibling"), b"plain").unwrap();
    fs::write(place.path().join("file"), b"cipher").unwrap();
    symlink("target", place.path().join("link")).unwrap();
    let image = Image::make("-t ext4 -b 4096 -O encrypt", "16M", Some(place.path()));
    for name in ["closed", "file", "link"] {
        set_flags(&image, name, 0x800);
    }
    let volume = open(&image.spec());
    let root = volume.root().unwrap();
    assert_eq!(read(&volume, "sibling"), b"plain");
    assert!(volume.stat(&root, b"closed").is_ok() && volume.stat(&root, b"file").is_ok());
    let closed = volume.directory(&root, b"closed").unwrap();
    let encrypted =
        |error: Option<TreeError>| matches!(error, Some(TreeError::Unavailable { what }) if what == "encrypted");
    assert!(encrypted(volume.names(&closed, &mut |_| std::ops::ControlFlow::Continue(())).err()));
    assert!(encrypted(volume.stat(&closed, b"inner").err()));
    assert!(encrypted(volume.open(&root, b"file").err()));
    assert!(encrypted(volume.link(&root, b"link").err()));
}

/// Directories that fold, short and long, and hashed where they are long.
fn folding() -> Image {
    let place = tempfile::tempdir().unwrap();
    for folder in ["short", "long"] {
        fs::create_dir(place.path().join(folder)).unwrap();
    }
    for name in ["ReadMe.TXT", "Grüße", "Ångström", "한글", "ΣΊΣΥΦΟΣ", "soft\u{AD}ware", "A\u{A7C0}"] {
        fs::write(place.path().join("short").join(name), b"x").unwrap();
    }
    use std::os::unix::ffi::OsStrExt;
    fs::write(place.path().join("short").join(std::ffi::OsStr::from_bytes(b"Bytes\xFF")), b"x").unwrap();
    for index in 0..500 {
        fs::write(place.path().join(format!("long/Straße-ŽLUŤOUČKÝ-{index}")), b"x").unwrap();
    }
    let image = Image::make("-t ext4 -b 1024 -O casefold", "16M", Some(place.path()));
    for folder in ["short", "long"] {
        set_flags(&image, folder, 0x4000_0000);
    }
    image.rehash();
    image
}

#[test]
fn names_that_fold() {
    let image = folding();
    let said = run("debugfs", &["-R", "htree_dump /long", &image.path.display().to_string()]).unwrap();
    assert!(said.contains("Root node dump"), "{said}");
    let volume = open(&image.spec());
    let find = |folder: &str, name: &[u8]| {
        let directory = volume.directory(&volume.root().unwrap(), folder.as_bytes()).unwrap();
        match volume.stat(&directory, name) {
            Ok(_) => "found".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    for (folder, name, expect) in [
        ("short", "ReadMe.TXT", "found"),
        ("short", "README.txt", "found"),
        ("short", "readme", "no such file"),
        ("short", "Grüße", "found"),
        ("short", "GRÜSSE", "found"),
        ("short", "gru\u{308}sse", "found"),
        ("short", "Gruße", "no such file"),
        ("short", "ÅNGSTRÖM", "found"),
        ("short", "\u{212B}ngstro\u{308}m", "found"),
        ("short", "\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF}", "found"),
        ("short", "σίσυφος", "found"),
        ("short", "software", "found"),
        ("short", "a\u{A7C0}", "found"),
        ("short", "A\u{A7C1}", "no such file"),
        ("long", "STRASSE-žluťoučký-77", "found"),
        ("long", "STRASSE-žluťoučký-500", "no such file"),
        // The root does not fold.
        (".", "SHORT", "no such file"),
    ] {
        let seen = match folder {
            "." => volume.stat(&volume.root().unwrap(), name.as_bytes()).err().map(|error| error.to_string()),
            _ => Some(find(folder, name.as_bytes())),
        };
        assert_eq!(seen.as_deref(), Some(expect), "{folder}/{name}");
    }
    // As they are written, names are found by their hash: to read all of them would be over this bound.
    let limits = dormouse_disk::DiskLimits { directory_bytes_max: 3 << 10, ..Default::default() };
    let bounded = Volume::open(&image.spec(), dormouse_disk::Unsealed::Never, &limits);
    let bounded = bounded.unwrap_or_else(|error| panic!("{error}"));
    let long = bounded.directory(&bounded.root().unwrap(), b"long").unwrap();
    for index in 0..500 {
        let name = format!("Straße-ŽLUŤOUČKÝ-{index}");
        assert!(bounded.stat(&long, name.as_bytes()).is_ok(), "{name}");
    }
    assert!(matches!(bounded.stat(&long, "STRASSE".as_bytes()), Err(TreeError::OverLimit { .. })));
    assert_eq!(find("short", b"Bytes\xFF"), "found");
    assert_eq!(find("short", b"bytes\xFF"), "no such file");
}

fn sealed() -> Image {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("sealed"), pattern(10_000, 4)).unwrap();
    let image = Image::make("-t ext4 -b 4096 -O verity", "16M", Some(place.path()));
    set_flags(&image, "sealed", 0x10_0000);
    image
}

#[test]
fn a_sealed_file_is_read_without_its_tree() {
    assert_eq!(read(&open(&sealed().spec()), "sealed"), pattern(10_000, 4));
}

#[test]
fn what_is_asked_of_the_wrong_type() {
    let content = crate::image::content();
    let image = Image::make("-t ext4 -b 4096", "32M", Some(content.path()));
    let volume = open(&image.spec());
    let root = volume.root().unwrap();
    let said = |error: Option<TreeError>| error.map_or_else(|| "nothing".to_owned(), |error| error.to_string());
    assert_eq!(said(volume.directory(&root, b"hard-1").err()), "not a directory but a regular");
    assert_eq!(said(volume.directory(&root, b"link-1").err()), "not a directory but a symlink");
    assert_eq!(said(volume.open(&root, b"link-1").err()), "not a regular file but a symlink");
    assert_eq!(said(volume.open(&root, b"fifo").err()), "not a regular file but a fifo");
    assert_eq!(said(volume.open(&root, b"many").err()), "not a regular file but a directory");
    assert_eq!(said(volume.link(&root, b"hard-1").err()), "input/output error");
    for name in [&b"absent"[..], b"", b".", b"..", b"many/name", b"nul\0", &[b'n'; 256]] {
        assert_eq!(said(volume.stat(&root, name).err()), "no such file");
        assert_eq!(said(volume.directory(&root, name).err()), "no such file");
    }
    let mut names = 0;
    let mut stop = |_: dormouse_files::tree::Name<'_>| {
        names += 1;
        if names < 5 { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
    };
    volume.names(&root, &mut stop).unwrap();
    assert_eq!(names, 5);
}

#[test]
fn many_threads_read_at_once() {
    let content = crate::image::content();
    let image = Image::make("-t ext4 -b 1024", "32M", Some(content.path()));
    image.rehash();
    // A cache so small that blocks come and go.
    let limits = dormouse_disk::DiskLimits { cache_bytes_max: 40 << 10, ..Default::default() };
    let volume =
        Volume::open(&image.spec(), dormouse_disk::Unsealed::Never, &limits).unwrap_or_else(|error| panic!("{error}"));
    let expect = crate::compare::of_reader(&volume).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| crate::compare::assert_same(&crate::compare::of_reader(&volume).unwrap(), &expect));
        }
    });
}
