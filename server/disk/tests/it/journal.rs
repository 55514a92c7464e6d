//! Journals that need recovery: copies of images that are mounted, and logs that are written block by block.

use std::{fs, io::Write, os::unix::fs::FileExt, path::Path};

use dormouse_disk::{Consistency, DiskLimits, OpenError, Unsealed, Volume};
use dormouse_files::meta::FileType;

use crate::{
    compare::{Picture, check, check_but, open},
    image::{Image, fill, pattern, run},
    matrix::Row,
};

/// Fills a mounted image and copies it as it lies, as after a power cut; nothing where images cannot be mounted.
fn dirty(options: &str, size: &str, mount: &str, fill: impl FnOnce(&Path)) -> Option<Image> {
    let image = Image::make(options, size, None);
    match image.mount(mount) {
        Err(said) => {
            eprintln!("skipped: {said}");
            None
        }
        Ok(mount) => {
            fill(mount.path());
            Some(image.copy())
        }
    }
}

/// What a dirty image must be like whatever it holds.
fn check_dirty(image: &Image) -> Picture {
    is_dirty(image);
    check(image)
}

fn is_dirty(image: &Image) {
    let sealed = Volume::open(&image.spec(), Unsealed::Never, &DiskLimits::default());
    assert!(matches!(sealed, Err(OpenError::Unavailable { what }) if what == "needs_recovery"));
    let volume = open(&image.spec());
    assert!(volume.needs_recovery() && volume.has_journal());
    assert_eq!(volume.consistency(), Consistency::Crash);
}

/// Writes a file and waits until the log holds it.
fn write_synced(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::create(path).expect("a file");
    file.write_all(bytes).expect("written");
    file.sync_all().expect("synced");
}

/// Of this file system alone: others work beside it.
fn sync_system(root: &Path) {
    rustix::fs::syncfs(fs::File::open(root).expect("a directory")).expect("synced");
}

fn sync_directory(path: &Path) {
    fs::File::open(path).expect("a directory").sync_all().expect("synced");
}

fn busy(root: &Path) {
    fill(root, 200);
    sync_directory(root);
    for index in 0..60 {
        write_synced(&root.join(format!("synced-{index}")), &pattern(index * 977, index as u64));
    }
    fs::rename(root.join("length-4097"), root.join("renamed")).expect("renamed");
    fs::remove_dir_all(root.join("many")).expect("removed");
    fs::write(root.join("synced-3"), b"another content").expect("written");
    sync_directory(root);
    write_synced(&root.join("last"), b"last");
    // What is not synced may be there or not, and for both readers alike.
    fs::write(root.join("not-synced"), pattern(50_000, 3)).expect("written");
}

const ROWS: &[(&str, &str, &str)] = &[
    ("sums of the third kind", "-t ext4 -b 4096", "rw"),
    ("sums of the first kind", "-t ext4 -b 4096 -O ^metadata_csum", "rw,journal_checksum"),
    ("async commit", "-t ext4 -b 4096 -O ^metadata_csum", "rw,journal_async_commit,data=writeback"),
    ("async commit summed", "-t ext4 -b 4096", "rw,journal_async_commit,data=writeback"),
    ("no sums", "-t ext4 -b 4096 -O ^metadata_csum", "rw"),
    ("narrow", "-t ext4 -b 4096 -O ^64bit", "rw"),
    ("narrow without sums", "-t ext4 -b 4096 -O ^64bit,^metadata_csum", "rw"),
    ("ext3", "-t ext3 -b 1024", "rw"),
    ("blocks of 1k", "-t ext4 -b 1024", "rw"),
    ("writeback", "-t ext4 -b 4096", "rw,data=writeback"),
    ("data journalled", "-t ext4 -b 4096", "rw,data=journal"),
    ("data journalled 1k", "-t ext4 -b 1024 -J size=8", "rw,data=journal"),
    ("orphan file", "-t ext4 -b 4096 -O orphan_file", "rw"),
    ("bigalloc", "-t ext4 -b 1024 -O bigalloc", "rw"),
    ("inline data", "-t ext4 -b 4096 -O inline_data", "rw"),
];

pub fn rows() -> Vec<Row> {
    let row = |name: &str, make: fn() -> Option<Image>| Row::new("journal", name, make);
    let busy_ones = ROWS
        .iter()
        .map(|&(name, options, mount)| Row::new("journal", name, move || dirty(options, "64M", mount, busy)));
    let orphaned_ones =
        ORPHANED.iter().map(|&options| Row::new("journal", format!("orphans of {options}"), move || orphaned(options)));
    let wrapped_ones = WRAPPED.iter().map(|&(options, mount)| {
        Row::new("journal", format!("wrapped, {options} {mount}"), move || wrapped(options, mount, 1)?.pop())
    });
    let single = vec![
        row("nothing committed yet", nothing_committed),
        row("revoked in a later transaction", revoked_later),
        row("a full revoke block", full_revoke_block),
        row("an escaped block", escaped),
        row("overwritten in the log only", overwritten),
        row("grown in the journal", grown),
        row("a truncate that is pending", pending_truncate).forgiving(forgive_new_times),
        row("no fast commit is pending", || dirty(FAST, "64M", "rw", nothing_fast)).forgiving(forgive_fast),
        row("pending fast commits", || dirty(FAST, "64M", "rw", all_fast)).forgiving(forgive_fast),
        row("superseded fast commits", superseded_fast).forgiving(forgive_fast),
    ];
    busy_ones.chain(orphaned_ones).chain(wrapped_ones).chain(single).collect()
}

fn nothing_committed() -> Option<Image> {
    dirty("-t ext4 -b 4096", "32M", "rw", |_| ())
}

#[test]
fn mounted_and_nothing_committed() {
    if let Some(image) = nothing_committed() {
        check_dirty(&image);
    }
}

#[test]
fn revoked_in_a_later_transaction() {
    if let Some(image) = revoked_later() {
        assert!(longest_revoke(&image, 4096) > 16, "the log revokes nothing");
        check_dirty(&image);
    }
}

/// Bytes that the longest revoke block of an image says it uses, its header among them.
fn longest_revoke(image: &Image, block_bytes: usize) -> usize {
    let disk = fs::read(&image.path).expect("the image is read");
    let revokes = disk.chunks(block_bytes).filter(|block| block[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 5]);
    revokes.map(|block| u32::from_be_bytes(block[12..16].try_into().expect("four bytes")) as usize).max().unwrap_or(0)
}

fn revoked_later() -> Option<Image> {
    let fill = |root: &Path| {
        let folder = root.join("gone");
        fs::create_dir(&folder).expect("a directory");
        for index in 0..60 {
            fs::write(folder.join(format!("{index:03}-{}", "n".repeat(240))), b"").expect("a file");
        }
        sync_directory(&folder);
        fs::remove_dir_all(&folder).expect("removed");
        sync_directory(root);
        // Until the disk is full, so that the directory's blocks are used again, for data that the log does not hold.
        for index in 0.. {
            let written = fs::File::create(root.join(format!("full-{index}"))).and_then(|mut file| {
                file.write_all(&pattern(1 << 20, index))?;
                file.sync_all()
            });
            if written.is_err() {
                break;
            }
        }
    };
    dirty("-t ext4 -m 0 -b 4096 -J size=16", "80M", "rw", fill)
}

#[test]
fn a_full_revoke_block() {
    if let Some(image) = full_revoke_block() {
        // Eight bytes a block, between the header and the checksum.
        assert_eq!(longest_revoke(&image, 1024), 16 + (1024 - 16 - 4) / 8 * 8, "no revoke block is full");
        check_dirty(&image);
    }
}

fn full_revoke_block() -> Option<Image> {
    let fill = |root: &Path| {
        let folder = root.join("gone");
        fs::create_dir(&folder).expect("a directory");
        for index in 0..400 {
            fs::write(folder.join(format!("{index:03}-{}", "n".repeat(210))), b"").expect("a file");
        }
        sync_directory(&folder);
        fs::remove_dir_all(&folder).expect("removed");
        sync_directory(root);
        for index in 0.. {
            let written = fs::File::create(root.join(format!("full-{index}"))).and_then(|mut file| {
                file.write_all(&pattern(1 << 19, index))?;
                file.sync_all()
            });
            if written.is_err() {
                break;
            }
        }
    };
    dirty("-t ext4 -m 0 -b 1024", "48M", "rw", fill)
}

fn escaped() -> Option<Image> {
    dirty("-t ext4 -b 4096", "32M", "rw,data=journal", |root| {
        let mut bytes = pattern(40_000, 5);
        for block in bytes.chunks_mut(4096) {
            block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        }
        write_synced(&root.join("magic"), &bytes);
    })
}

#[test]
fn an_escaped_block() {
    if let Some(image) = escaped() {
        let logged = fs::read(&image.path).expect("the image is read");
        let escaped =
            logged.chunks(4096).filter(|block| block[..4] == [0; 4] && block[4..20] == pattern(20, 5)[4..]).count();
        assert!(escaped > 0, "the log holds no escaped block");
        check_dirty(&image);
    }
}

fn overwritten() -> Option<Image> {
    dirty("-t ext4 -b 4096", "32M", "rw,data=journal", |root| {
        write_synced(&root.join("file"), &pattern(300_000, 1));
        let file = fs::OpenOptions::new().write(true).open(root.join("file")).expect("it opens");
        for index in (0..70).step_by(3) {
            file.write_all_at(&pattern(4096, 100 + index), index * 4096).expect("written");
        }
        file.sync_all().expect("synced");
    })
}

/// Overlaid data that is read in pieces which begin and end inside blocks.
#[test]
fn overwritten_in_the_log_only() {
    if let Some(image) = overwritten() {
        check_dirty(&image);
        let volume = open(&image.spec());
        use dormouse_files::tree::Tree;
        let (file, meta) = volume.open(&volume.root().unwrap(), b"file").unwrap();
        let mut whole = vec![0; meta.size_bytes as usize];
        volume.read_at(&file, 0, &mut whole).unwrap();
        for (offset, length) in [(0, 1), (1, 4095), (4095, 2), (100, 9_000), (12_287, 4_098), (8_190, 100_001)] {
            let mut piece = vec![0; length];
            volume.read_at(&file, offset as u64, &mut piece).unwrap();
            assert_eq!(piece, whole[offset..offset + length], "{length} bytes from {offset}");
        }
    }
}

#[test]
fn a_file_system_that_grew_in_its_journal() {
    if let Some(image) = grown() {
        check_dirty(&image);
    }
}

/// What a resize changes lies in the log only: a copy is resized, and the blocks in which it differs are journalled. A file
/// lies in the new part, and its inode in the old one, since the kernel counts groups before it replays.
fn grown() -> Option<Image> {
    const BLOCK: usize = 1024;
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::write(place.path().join("old"), pattern(100_000, 1)).expect("written");
    let image = Image::make("-t ext4 -b 1024 -J size=4", "16M", Some(place.path()));
    let resized = image.copy();
    run("resize2fs", &[resized.path.as_os_str(), "48M".as_ref()]).expect("resize2fs");
    // Most of what is left of the old part is taken, so that the next file lies in the new one.
    fs::write(place.path().join("new"), pattern(20 << 20, 2)).expect("written");
    resized.debugfs(&format!("write {} new\n", place.path().join("new").display()));
    let (before, after) = (fs::read(&image.path).expect("read"), fs::read(&resized.path).expect("read"));
    let own = run("debugfs", &["-R", "blocks <8>", &image.path.display().to_string()]).expect("debugfs");
    let own: std::collections::BTreeSet<usize> = own.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let file = run("debugfs", &["-R", "blocks /new", &resized.path.display().to_string()]).expect("debugfs");
    let content: std::collections::BTreeSet<usize> =
        file.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(content.iter().any(|&block| block * BLOCK >= before.len()), "nothing of the file lies in the new part");
    fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("it opens")
        .set_len(after.len() as u64)
        .expect("longer");
    let mut requests = "jo -c -v 3\n".to_owned();
    for (number, block) in after.chunks(BLOCK).enumerate() {
        let held = before.get(number * BLOCK..(number + 1) * BLOCK).unwrap_or(&[0; BLOCK]);
        if held == block || own.contains(&number) {
            continue;
        }
        if content.contains(&number) {
            image.poke((number * BLOCK) as u64, block);
            continue;
        }
        let copied = place.path().join(format!("block-{number}"));
        fs::write(&copied, block).expect("written");
        requests.push_str(&format!("jw -b {number} {}\n", copied.display()));
    }
    image.debugfs(&format!("{requests}jc\n"));
    Some(image)
}

#[test]
fn an_external_journal_is_refused() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let journal = place.path().join("journal");
    run("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "1024", &journal.display().to_string(), "4M"])
        .expect("mke2fs");
    let spec = crate::image::spec_of(&journal);
    let opened = Volume::open(&spec, Unsealed::Crash, &DiskLimits::default());
    assert!(matches!(opened, Err(OpenError::Unavailable { what }) if what == "journal_dev"));
    let image = Image::make("-t ext4 -b 1024 -O ^metadata_csum", "16M", None);
    // A device where the inode's number would be, and the flag.
    image.poke(1024 + 0xE0, &[0, 0, 0, 0, 1, 7, 0, 0]);
    image.poke(1024 + 0x60, &[image.peek(1024 + 0x60, 1)[0] | 4]);
    let opened = Volume::open(&image.spec(), Unsealed::Crash, &DiskLimits::default());
    assert!(matches!(opened, Err(OpenError::Unavailable { what }) if what == "external_journal"));
}

const FAST: &str = "-t ext4 -b 4096 -O fast_commit";

/// The kernel stamps what it replays with the time of the replay, where nothing in the log says it; nothing that was made
/// here is as new as the comparison.
fn forgive_new_times(own: &crate::compare::Node, kernels: &mut crate::compare::Node) {
    if kernels.meta.change_time > own.meta.change_time {
        kernels.meta.change_time = own.meta.change_time;
        kernels.meta.modify_time = own.meta.modify_time;
    }
}

/// The same, and a new directory has one link after the kernel's replay, where the running kernel gave it two.
fn forgive_fast(own: &crate::compare::Node, kernels: &mut crate::compare::Node) {
    forgive_new_times(own, kernels);
    if own.meta.kind == FileType::Directory && kernels.meta.link_count == 1 && own.meta.link_count == 2 {
        kernels.meta.link_count = 2;
    }
}

/// Changes that reach the disk by fast commits only.
fn fast(fill: impl FnOnce(&Path)) {
    let Some(image) = dirty(FAST, "64M", "rw", fill) else { return };
    let area = run("debugfs", &["-R", "logdump -S", &image.path.display().to_string()]).expect("debugfs");
    assert!(area.contains("fast_commit") || area.contains("Fast commit"), "{area}");
    is_dirty(&image);
    check_but(&image, forgive_fast);
}

fn nothing_fast(root: &Path) {
    busy(root);
    sync_system(root);
}

#[test]
fn no_fast_commit_is_pending() {
    fast(nothing_fast);
}

fn all_fast(root: &Path) {
    fs::create_dir(root.join("folder")).expect("a directory");
    fs::create_dir(root.join("folder/inner")).expect("a directory");
    for index in 0..20 {
        write_synced(&root.join(format!("folder/file-{index}")), &pattern(index * 3_000, index as u64));
    }
    sync_system(root);
    // From here on nothing but fsync.
    write_synced(&root.join("folder/new"), &pattern(100_000, 7));
    let grown = fs::OpenOptions::new().write(true).open(root.join("folder/file-5")).expect("it opens");
    grown.write_all_at(&pattern(50_000, 9), 10_000).expect("written");
    grown.sync_all().expect("synced");
    fs::rename(root.join("folder/file-6"), root.join("renamed")).expect("renamed");
    fs::remove_file(root.join("folder/file-7")).expect("removed");
    fs::hard_link(root.join("folder/file-8"), root.join("folder/inner/linked")).expect("linked");
    let cut = fs::OpenOptions::new().write(true).open(root.join("folder/file-9")).expect("it opens");
    cut.set_len(5_000).expect("cut");
    cut.sync_all().expect("synced");
    fs::create_dir(root.join("folder/made")).expect("a directory");
    write_synced(&root.join("folder/made/in-it"), b"inside");
    write_synced(&root.join("folder/last"), b"last");
}

#[test]
fn fast_commits_that_are_pending() {
    fast(all_fast);
}

/// Fast commits of before a whole commit, which they no longer add to.
fn superseded_fast() -> Option<Image> {
    dirty(FAST, "64M", "rw", |root| {
        sync_system(root);
        for index in 0..5 {
            write_synced(&root.join(format!("file-{index}")), &pattern(3_000, index));
        }
        fs::remove_file(root.join("file-2")).expect("removed");
        sync_system(root);
    })
}

/// A fast commit that was cut off, and one that is damaged.
#[test]
fn fast_commits_count_as_a_whole() {
    let fill = |root: &Path| {
        sync_system(root);
        for index in 0..3 {
            write_synced(&root.join(format!("file-{index}")), &pattern(3_000, index));
        }
    };
    let Some(image) = dirty(FAST, "64M", "rw", fill) else { return };
    let disk = fs::read(&image.path).expect("the image is read");
    // A head: tag 9 with 8 bytes, and no feature.
    let blocks = disk.chunks(4096).enumerate();
    let heads: Vec<usize> =
        blocks.filter(|(_, block)| block[..8] == [9, 0, 8, 0, 0, 0, 0, 0]).map(|(index, _)| index * 4096).collect();
    let first = *heads.first().expect("there is a fast commit");
    let picture = check_but(&image, |own, kernels| kernels.meta = own.meta);
    assert!(picture.contains_key(&b"file-2"[..]));
    let copy = image.copy();
    copy.poke(first as u64 + 30, &[disk[first + 30] ^ 0x40]);
    let opened = Volume::open(&copy.spec(), Unsealed::Crash, &DiskLimits::default());
    let said = opened.err().expect("it is refused").to_string();
    assert!(said.contains("fast commit"), "{said}");
    // Of another transaction: it was superseded.
    let copy = image.copy();
    copy.poke(first as u64 + 8, &[disk[first + 8].wrapping_add(1)]);
    let picture = check_but(&copy, |own, kernels| kernels.meta = own.meta);
    assert!(!picture.contains_key(&b"file-2"[..]));
    // A feature that is not known.
    let copy = image.copy();
    copy.poke(first as u64 + 4, &[1]);
    let opened = Volume::open(&copy.spec(), Unsealed::Crash, &DiskLimits::default());
    assert!(matches!(opened, Err(OpenError::Unavailable { what }) if what == "fast_commit_feature"));
}

const ORPHANED: &[&str] = &["-t ext4 -b 4096", "-t ext4 -b 4096 -O orphan_file", "-t ext3 -b 1024"];

/// Files that were unlinked while they were open.
fn orphaned(options: &str) -> Option<Image> {
    let mut held = Vec::new();
    dirty(options, "32M", "rw", |root| {
        for index in 0..20 {
            let path = root.join(format!("open-{index}"));
            write_synced(&path, &pattern(50_000, index));
            held.push(fs::File::open(&path).expect("it opens"));
            fs::remove_file(&path).expect("removed");
        }
        sync_directory(root);
        write_synced(&root.join("kept"), b"kept");
        drop(std::mem::take(&mut held));
    })
}

#[test]
fn orphans() {
    for options in ORPHANED {
        if let Some(image) = orphaned(options) {
            assert!(!check_dirty(&image).contains_key(&b"open-3"[..]));
        }
    }
}

/// Bytes that are left of the file whose truncate is pending.
const CUT_BYTES: usize = 5_000;

/// A file in so many pieces that cutting it takes more than one transaction, of which the last is not committed.
fn pending_truncate() -> Option<Image> {
    dirty("-t ext4 -b 1024 -J size=1 -N 200", "64M", "rw", |root| {
        let file = fs::File::create(root.join("cut")).expect("a file");
        let block = pattern(1024, 4);
        for index in 0..20_000 {
            file.write_all_at(&block, index * 2048).expect("written");
        }
        file.sync_all().expect("synced");
        sync_directory(root);
        file.set_len(CUT_BYTES as u64).expect("cut");
        // The size and the place in the list of orphans are in the log before the last of its blocks is free; whatever of it
        // is committed when the copy is taken, both readers must show one size.
        sync_directory(root);
    })
}

#[test]
fn a_truncate_that_is_pending() {
    // As it lies on the disk: the size is cut, the blocks are not, and the superblock begins the list of orphans.
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::write(place.path().join("cut"), pattern(100_000, 6)).expect("written");
    let image = Image::make("-t ext4 -b 4096", "16M", Some(place.path()));
    let said = run("debugfs", &["-R", "stat cut", &image.path.display().to_string()]).expect("debugfs");
    let number = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a number");
    image.debugfs(&format!("sif cut size {CUT_BYTES}\nssv last_orphan {number}\n"));
    let picture = check(&image);
    assert_eq!(picture[&b"cut"[..]].meta.size_bytes, CUT_BYTES as u64);
    let copy = image.copy();
    match copy.mount("rw,noatime") {
        Err(said) => eprintln!("skipped: {said}"),
        Ok(mount) => {
            // Now the kernel has finished it.
            assert_eq!(fs::read(mount.path().join("cut")).expect("read"), pattern(100_000, 6)[..CUT_BYTES]);
        }
    }
    if let Some(image) = pending_truncate() {
        is_dirty(&image);
        let picture = check_but(&image, forgive_new_times);
        assert_eq!(picture[&b"cut"[..]].meta.size_bytes, CUT_BYTES as u64);
    }
}

const WRAPPED: &[(&str, &str)] = &[
    ("-t ext4 -b 1024 -J size=1", "rw"),
    ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum", "rw,data=journal"),
    ("-t ext4 -b 4096 -J size=4", "rw"),
];

/// Small changes until the live part of the log runs over its end, at every offset of a few: so that a descriptor, a copied
/// block and a commit block come to lie across it. Gives a copy of each such moment.
fn wrapped(options: &str, mount: &str, most: usize) -> Option<Vec<Image>> {
    let image = Image::make(options, "64M", None);
    let mounted = match image.mount(mount) {
        Ok(mounted) => mounted,
        Err(said) => {
            eprintln!("skipped: {said}");
            return None;
        }
    };
    let said = run("debugfs", &["-R", "bmap <8> 0", &image.path.display().to_string()]).expect("debugfs");
    let first = said.lines().find_map(|line| line.trim().parse().ok()).expect("a block number");
    let block_bytes = if options.contains("1024") { 1024 } else { 4096 };
    let mut copies = Vec::new();
    for index in 0..20_000 {
        let path = mounted.path().join(format!("file-{}", index % 40));
        write_synced(&path, &pattern(index % 3_000, index as u64));
        if index % 3 == 0 {
            fs::remove_file(&path).expect("removed");
        }
        if index % 4 == 0 && runs_over_its_end(&image, first, block_bytes) {
            copies.push(image.copy());
            if copies.len() == most {
                break;
            }
        }
    }
    assert!(!copies.is_empty(), "{options}: the log never ran over its end");
    Some(copies)
}

#[test]
fn a_log_that_wraps() {
    for (options, mount) in WRAPPED {
        for image in wrapped(options, mount, 6).unwrap_or_default() {
            check_dirty(&image);
        }
    }
}

/// Whether blocks of the live log lie before its tail; the journal lies in one piece from `first` on.
fn runs_over_its_end(image: &Image, first: u64, block_bytes: u64) -> bool {
    let numbers = |block: u64, at: u64| {
        let bytes = image.peek((first + block) * block_bytes + at, 12);
        [0, 4, 8].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
    };
    let [_, oldest, tail] = numbers(0, 0x14);
    let is_live =
        |block| matches!(numbers(block, 0), [0xC03B_3998, _, number] if number.wrapping_sub(oldest) < 1 << 31);
    (1..u64::from(tail)).any(is_live)
}
