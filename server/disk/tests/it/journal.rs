//! Journals that need recovery: copies of images that are mounted, and logs that are written block by block.

use std::{fs, io::Write, os::unix::fs::FileExt, path::Path};

use dormouse_disk::{Consistency, DiskLimits, OpenError, Unsealed, Volume};
use dormouse_files::meta::FileType;

use crate::{
    compare::{Picture, check, check_but, open},
    image::{Image, fill, pattern, run},
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

fn layout(options: &str, mount: &str) {
    if let Some(image) = dirty(options, "64M", mount, busy) {
        let picture = check_dirty(&image);
        assert!(picture.contains_key(&b"last"[..]) && picture.contains_key(&b"renamed"[..]));
    }
}

macro_rules! layouts {
    ($($name:ident: $options:literal, $mount:literal;)*) => {
        $(#[test] fn $name() { layout($options, $mount) })*
    };
}

layouts! {
    sums_of_the_third_kind: "-t ext4 -b 4096", "rw";
    sums_of_the_first_kind: "-t ext4 -b 4096 -O ^metadata_csum", "rw,journal_checksum";
    async_commit: "-t ext4 -b 4096 -O ^metadata_csum", "rw,journal_async_commit,data=writeback";
    async_commit_summed: "-t ext4 -b 4096", "rw,journal_async_commit,data=writeback";
    no_sums: "-t ext4 -b 4096 -O ^metadata_csum", "rw";
    narrow: "-t ext4 -b 4096 -O ^64bit", "rw";
    narrow_without_sums: "-t ext4 -b 4096 -O ^64bit,^metadata_csum", "rw";
    ext3: "-t ext3 -b 1024", "rw";
    blocks_of_1k: "-t ext4 -b 1024", "rw";
    writeback: "-t ext4 -b 4096", "rw,data=writeback";
    data_journalled: "-t ext4 -b 4096", "rw,data=journal";
    data_journalled_1k: "-t ext4 -b 1024 -J size=8", "rw,data=journal";
    orphan_file: "-t ext4 -b 4096 -O orphan_file", "rw";
    bigalloc: "-t ext4 -b 1024 -O bigalloc", "rw";
    inline_data: "-t ext4 -b 4096 -O inline_data", "rw";
}

#[test]
fn mounted_and_nothing_committed() {
    if let Some(image) = dirty("-t ext4 -b 4096", "32M", "rw", |_| ()) {
        check_dirty(&image);
    }
}

#[test]
fn revoked_in_a_later_transaction() {
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
    if let Some(image) = dirty("-t ext4 -m 0 -b 4096 -J size=16", "80M", "rw", fill) {
        check_dirty(&image);
    }
}

#[test]
fn a_full_revoke_block() {
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
    if let Some(image) = dirty("-t ext4 -m 0 -b 1024", "48M", "rw", fill) {
        check_dirty(&image);
    }
}

#[test]
fn an_escaped_block() {
    let fill = |root: &Path| {
        let mut bytes = pattern(40_000, 5);
        for block in bytes.chunks_mut(4096) {
            block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        }
        write_synced(&root.join("magic"), &bytes);
    };
    if let Some(image) = dirty("-t ext4 -b 4096", "32M", "rw,data=journal", fill) {
        let logged = fs::read(&image.path).expect("the image is read");
        let escaped =
            logged.chunks(4096).filter(|block| block[..4] == [0; 4] && block[4..20] == pattern(20, 5)[4..]).count();
        assert!(escaped > 0, "the log holds no escaped block");
        check_dirty(&image);
    }
}

/// Overlaid data that is read in pieces which begin and end inside blocks.
#[test]
fn overwritten_in_the_log_only() {
    let fill = |root: &Path| {
        write_synced(&root.join("file"), &pattern(300_000, 1));
        let file = fs::OpenOptions::new().write(true).open(root.join("file")).expect("it opens");
        for index in (0..70).step_by(3) {
            file.write_all_at(&pattern(4096, 100 + index), index * 4096).expect("written");
        }
        file.sync_all().expect("synced");
    };
    if let Some(image) = dirty("-t ext4 -b 4096", "32M", "rw,data=journal", fill) {
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

/// A log that debugfs writes: the requests, and whether it can be read.
struct Written {
    image: Image,
    place: tempfile::TempDir,
}

impl Written {
    fn new(options: &str) -> Self {
        let place = tempfile::tempdir().expect("a temporary folder");
        for (name, byte) in [("a", b'a'), ("b", b'b'), ("c", b'c')] {
            fs::write(place.path().join(name), vec![byte; 4096]).expect("written");
        }
        fs::write(place.path().join("both"), [[b'a'; 4096], [b'b'; 4096]].concat()).expect("written");
        let content = tempfile::tempdir().expect("a temporary folder");
        fs::write(content.path().join("file"), vec![b'o'; 8 * 4096]).expect("written");
        Self { image: Image::make(options, "32M", Some(content.path())), place }
    }

    /// The block of `/file` that transactions write over.
    fn block(&self, logical: u64) -> u64 {
        let said = run("debugfs", &["-R", &format!("bmap /file {logical}"), &self.image.path.display().to_string()]);
        let said = said.expect("debugfs");
        said.lines().find_map(|line| line.trim().parse().ok()).expect("a block number")
    }

    fn log(&self, requests: &str) {
        let requests = ["a", "both", "b", "c"].iter().fold(requests.to_owned(), |text, name| {
            text.replace(&format!("@{name}\n"), &format!("{}\n", self.place.path().join(name).display()))
        });
        self.image.debugfs(&requests);
    }

    /// The first byte of each of the file's blocks.
    fn read(&self) -> String {
        use dormouse_files::tree::Tree;
        check(&self.image);
        let volume = open(&self.image.spec());
        let (file, meta) = volume.open(&volume.root().unwrap(), b"file").unwrap();
        let mut whole = vec![0; meta.size_bytes as usize];
        volume.read_at(&file, 0, &mut whole).unwrap();
        whole.chunks(4096).map(|block| char::from(block[0])).collect()
    }
}

fn written(open: &str, requests: &str, expect: &str) {
    // debugfs sums a journal in the second and third way only where metadata is summed.
    let narrow = if open == "jo" { "-t ext4 -b 4096 -O ^metadata_csum,^64bit" } else { "-t ext4 -b 4096 -O ^64bit" };
    for options in ["-t ext4 -b 4096", narrow] {
        let log = Written::new(options);
        let requests = (0..3).fold(requests.to_owned(), |text, logical| {
            text.replace(&format!("${logical}"), &log.block(logical).to_string())
        });
        log.log(&format!("{open}\n{requests}\njc\n"));
        assert_eq!(log.read(), expect, "{options}: {requests}");
    }
}

#[test]
fn logs_that_are_written_block_by_block() {
    for open in ["jo", "jo -c -v 2", "jo -c -v 3"] {
        written(open, "jw -b $0 @a", "aooooooo");
        written(open, "jw -b $0,$1 @both", "aboooooo");
        written(open, "jw -b $0,$1 @both\njw -b $1 @c", "acoooooo");
        // Revoked in a later transaction, and in the same.
        written(open, "jw -b $0 @a\njw -r $0", "oooooooo");
        written(open, "jw -r $0 -b $0 @a", "oooooooo");
        // Revoked in an earlier one, then journalled again.
        written(open, "jw -r $0\njw -b $0 @a", "aooooooo");
        written(open, "jw -b $0 @a\njw -r $0\njw -b $0 @b", "booooooo");
        // Not committed.
        written(open, "jw -b $0 @a\njw -c -b $1 @b", "aooooooo");
        written(open, "jw -b $0 @a\njw -c -r $0", "aooooooo");
    }
}

/// A log of one committed transaction with one copied block, then one that is not committed; where its first block lies.
fn two_transactions(open: &str, options: &str) -> (Written, u64) {
    let log = Written::new(options);
    let requests =
        format!("{open}\njw -b {} @a\njw -b {} @b\njw -c -b {} @c\njc\n", log.block(0), log.block(1), log.block(2));
    log.log(&requests);
    let said = run("debugfs", &["-R", "bmap <8> 1", &log.image.path.display().to_string()]).expect("debugfs");
    let first = said.lines().find_map(|line| line.trim().parse::<u64>().ok()).expect("a block number");
    (log, first * 4096)
}

/// What the reader says of an image whose journal must be refused; the kernel must refuse it too.
fn refused(image: &Image) -> String {
    let copy = image.copy();
    if copy.mount("ro").is_err() && nix::unistd::geteuid().is_root() {
        assert!(copy.mount("rw,noatime").is_err(), "the kernel takes it");
    }
    match Volume::open(&image.spec(), Unsealed::Crash, &DiskLimits::default()) {
        Ok(_) => "it opens".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_committed_transaction_that_is_damaged_is_refused() {
    for (open, options) in [
        ("jo -c -v 2", "-t ext4 -b 4096"),
        ("jo -c -v 3", "-t ext4 -b 4096"),
        ("jo -c", "-t ext4 -b 4096 -O ^metadata_csum"),
    ] {
        // Of the first transaction: its descriptor, its copied block, its commit block; and the second's commit block.
        for at in [20, 4096 + 100, 2 * 4096 + 0x12, 5 * 4096 + 0x12] {
            let (log, first) = two_transactions(open, options);
            log.image.poke(first + at, &[log.image.peek(first + at, 1)[0] ^ 0x40]);
            let said = refused(&log.image);
            assert!(said.contains("checksum"), "{open}, byte {at}: {said}");
        }
    }
}

#[test]
fn a_torn_tail_is_the_end() {
    for (open, options) in [("jo -c -v 3", "-t ext4 -b 4096"), ("jo", "-t ext4 -b 4096 -O ^metadata_csum")] {
        let (log, first) = two_transactions(open, options);
        assert_eq!(log.read(), "aboooooo");
        // The second commit block was never written, or is left from another time.
        log.image.poke(first + 5 * 4096, &[0; 12]);
        assert_eq!(log.read(), "aooooooo");
    }
}

#[test]
fn numbers_near_their_end_wrap() {
    for start in [u32::MAX, u32::MAX - 1, 0x7FFF_FFFF] {
        let (log, first) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum");
        // The journal's superblock lies before its first block.
        let superblock = first - 4096;
        log.image.poke(superblock + 0x18, &start.to_be_bytes());
        for (block, transaction) in [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2)] {
            let sequence = start.wrapping_add(transaction);
            log.image.poke(first + block * 4096 + 8, &sequence.to_be_bytes());
        }
        assert_eq!(log.read(), "aboooooo", "from {start:#x}");
    }
}

#[test]
fn targets_that_no_copy_can_have() {
    let (log, first) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum,^64bit");
    for target in [u32::MAX, 32 * 256, (first / 4096) as u32, (first / 4096) as u32 - 1] {
        log.image.poke(first + 12, &target.to_be_bytes());
        let opened = Volume::open(&log.image.spec(), Unsealed::Crash, &DiskLimits::default());
        let said = opened.err().expect("it is refused").to_string();
        assert!(said.contains(&format!("block {target}")), "{said}");
    }
}

#[test]
fn the_overlay_is_bounded() {
    let (log, _) = two_transactions("jo -c -v 3", "-t ext4 -b 4096");
    let limits = DiskLimits { overlay_bytes_max: 4096, ..DiskLimits::default() };
    let opened = Volume::open(&log.image.spec(), Unsealed::Crash, &limits);
    assert!(matches!(opened, Err(OpenError::OverlayTooLarge { limit_bytes: 4096 })));
    let limits = DiskLimits { overlay_bytes_max: 8192, ..DiskLimits::default() };
    assert!(Volume::open(&log.image.spec(), Unsealed::Crash, &limits).is_ok());
}

#[test]
fn an_empty_log_with_the_flag_is_read() {
    let (log, first) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum");
    log.image.poke(first - 4096 + 0x1C, &[0; 4]);
    assert_eq!(log.read(), "oooooooo");
    assert_eq!(open(&log.image.spec()).consistency(), Consistency::Crash);
}

#[test]
fn a_file_system_that_grew_in_its_journal() {
    let image = Image::make("-t ext4 -b 1024", "32M", None);
    fs::OpenOptions::new().write(true).open(&image.path).expect("it opens").set_len(96 << 20).expect("longer");
    let grown = match image.mount("rw") {
        Err(said) => return eprintln!("skipped: {said}"),
        Ok(mount) => {
            let device =
                run("findmnt", &["-no".as_ref(), "SOURCE".as_ref(), mount.path().as_os_str()]).expect("findmnt");
            if let Err(said) = run("resize2fs", &[device.trim()]) {
                return eprintln!("skipped: {said}");
            }
            for index in 0..40 {
                write_synced(&mount.path().join(format!("file-{index}")), &pattern(1_000_000, index));
            }
            image.copy()
        }
    };
    check_dirty(&grown);
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

/// Changes that reach the disk by fast commits only.
fn fast(options: &str, fill: impl FnOnce(&Path)) {
    let Some(image) = dirty(options, "64M", "rw", fill) else { return };
    let area = run("debugfs", &["-R", "logdump -S", &image.path.display().to_string()]).expect("debugfs");
    assert!(area.contains("fast_commit") || area.contains("Fast commit"), "{area}");
    is_dirty(&image);
    let begun =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    check_but(&image, |own, kernels| {
        // The kernel stamps what it replays with the time of the replay, where no fast commit says it.
        if kernels.meta.change_time.seconds >= begun {
            kernels.meta.change_time = own.meta.change_time;
            if kernels.meta.modify_time.seconds >= begun {
                kernels.meta.modify_time = own.meta.modify_time;
            }
        }
        // Its replay gives a new directory one link, where the running kernel gave it two.
        if own.meta.kind == FileType::Directory && kernels.meta.link_count == 1 {
            assert_eq!(own.meta.link_count, 2);
            kernels.meta.link_count = 2;
        }
    });
}

#[test]
fn no_fast_commit_is_pending() {
    fast("-t ext4 -b 4096 -O fast_commit", |root| {
        busy(root);
        rustix::fs::sync();
    });
}

#[test]
fn fast_commits_that_are_pending() {
    let fill = |root: &Path| {
        fs::create_dir(root.join("folder")).expect("a directory");
        fs::create_dir(root.join("folder/inner")).expect("a directory");
        for index in 0..20 {
            write_synced(&root.join(format!("folder/file-{index}")), &pattern(index * 3_000, index as u64));
        }
        rustix::fs::sync();
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
    };
    fast("-t ext4 -b 4096 -O fast_commit", fill);
}

/// A fast commit that was cut off, and one that is damaged.
#[test]
fn fast_commits_count_as_a_whole() {
    let fill = |root: &Path| {
        rustix::fs::sync();
        for index in 0..3 {
            write_synced(&root.join(format!("file-{index}")), &pattern(3_000, index));
        }
    };
    let Some(image) = dirty("-t ext4 -b 4096 -O fast_commit", "64M", "rw", fill) else { return };
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

/// The superblock is read again through the log, and so is everything else.
#[test]
fn a_superblock_that_only_the_log_holds() {
    let (log, _) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum");
    let mut block = log.image.peek(0, 4096);
    block[1024 + 0x68..1024 + 0x78].copy_from_slice(b"another identity");
    fs::write(log.place.path().join("a"), &block).expect("written");
    log.log("jo\njw -b 0 @a\njc\n");
    let volume = open(&log.image.spec());
    assert_eq!(&volume.uuid(), b"another identity");
    // Its sum is of what lies on the disk, as a seal sees it.
    let sealed = dormouse_disk::probe(&log.image.spec(), &DiskLimits::default()).expect("it is probed");
    assert_eq!(sealed.superblock_sha256, volume.superblock_sha256());
    assert_ne!(sealed.uuid, volume.uuid());
    // One that names more blocks than the disk has is refused.
    block[1024 + 4..1024 + 8].copy_from_slice(&9_000_u32.to_le_bytes());
    fs::write(log.place.path().join("a"), &block).expect("written");
    log.log("jo\njw -b 0 @a\njc\n");
    let opened = Volume::open(&log.image.spec(), Unsealed::Crash, &DiskLimits::default());
    assert!(opened.err().expect("it is refused").to_string().contains("larger than its disk"));
}

/// Files that were unlinked or cut while they were open.
#[test]
fn orphans() {
    for options in ["-t ext4 -b 4096", "-t ext4 -b 4096 -O orphan_file", "-t ext3 -b 1024"] {
        let mut held = Vec::new();
        let image = dirty(options, "32M", "rw", |root| {
            for index in 0..20 {
                let path = root.join(format!("open-{index}"));
                write_synced(&path, &pattern(50_000, index));
                held.push(fs::File::open(&path).expect("it opens"));
                fs::remove_file(&path).expect("removed");
            }
            sync_directory(root);
            write_synced(&root.join("kept"), b"kept");
            drop(std::mem::take(&mut held));
        });
        if let Some(image) = image {
            assert!(!check_dirty(&image).contains_key(&b"open-3"[..]));
        }
    }
}

/// Small changes until the live part of the log runs over its end, at every offset of a few: so that a descriptor, a copied
/// block and a commit block come to lie across it.
#[test]
fn a_log_that_wraps() {
    for (options, mount) in [
        ("-t ext4 -b 1024 -J size=1", "rw"),
        ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum", "rw,data=journal"),
        ("-t ext4 -b 4096 -J size=4", "rw"),
    ] {
        let image = Image::make(options, "64M", None);
        let mounted = match image.mount(mount) {
            Err(said) => return eprintln!("skipped: {said}"),
            Ok(mounted) => mounted,
        };
        let mut wrapped = 0;
        for index in 0..4_000 {
            let path = mounted.path().join(format!("file-{}", index % 40));
            write_synced(&path, &pattern(index % 3_000, index as u64));
            if index % 3 == 0 {
                fs::remove_file(&path).expect("removed");
            }
            if index % 4 == 0 && runs_over_its_end(&image) {
                wrapped += 1;
                check_dirty(&image.copy());
                if wrapped == 6 {
                    break;
                }
            }
        }
        assert!(wrapped > 0, "{options}: the log never ran over its end");
    }
}

/// Whether blocks of the live log lie before its tail, as debugfs lists them.
fn runs_over_its_end(image: &Image) -> bool {
    let said = run("debugfs", &["-R", "logdump", &image.path.display().to_string()]).expect("debugfs");
    let number = |line: &str, before: &str| {
        line.split(before).nth(1).and_then(|rest| rest.split([',', ' ', ':']).next()?.parse::<u64>().ok())
    };
    let tail = said.lines().find_map(|line| number(line, "Journal starts at block "));
    let places = said
        .lines()
        .filter(|line| line.starts_with("Found expected sequence"))
        .filter_map(|line| number(line, "at block "));
    tail.is_some_and(|tail| places.min().is_some_and(|place| place < tail))
}

#[test]
fn a_revoke_block_that_cannot_be_one() {
    let log = Written::new("-t ext4 -b 4096 -O ^metadata_csum");
    log.log(&format!("jo\njw -b {} @a\njw -r {}\njc\n", log.block(0), log.block(1)));
    let said = run("debugfs", &["-R", "bmap <8> 1", &log.image.path.display().to_string()]).expect("debugfs");
    let first = said.lines().find_map(|line| line.trim().parse::<u64>().ok()).expect("a block number") * 4096;
    // The second transaction is a revoke block and a commit block.
    log.image.poke(first + 3 * 4096 + 12, &0x7FFF_FFFF_u32.to_be_bytes());
    assert!(refused(&log.image).contains("revoke block"), "{}", refused(&log.image));
    log.image.poke(first + 4 * 4096, &[0; 12]);
    assert_eq!(log.read(), "aooooooo");
}
