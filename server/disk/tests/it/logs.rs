//! Logs that debugfs writes block by block, so that what each holds is known, and damage to them.

use std::fs;

use dormouse_disk::{Consistency, DiskLimits, OpenError, Unsealed, Volume};

use crate::{
    compare::{check, open},
    image::{Image, run},
    matrix::Row,
};

pub fn rows() -> Vec<Row> {
    let row = |name: &str, make: fn() -> Option<Image>| Row::new("logs", name, make);
    let written_ones = LOGS.iter().flat_map(|&(name, requests)| {
        OPENS.map(|open| {
            Row::new("logs", format!("{open}: {name}"), move || {
                Some(written_log(open, "-t ext4 -b 4096", requests).image)
            })
        })
    });
    let single = vec![
        row("numbers that wrap", || Some(renumbered(u32::MAX).image)),
        row("an empty log with the flag", || Some(emptied().image)),
        row("a torn tail", || Some(torn().image)),
        row("left from another time behind the head", || Some(stale().image)),
    ];
    written_ones.chain(single).collect()
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

/// The ways in which debugfs sums a log.
const OPENS: [&str; 3] = ["jo", "jo -c -v 2", "jo -c -v 3"];

/// Logs by name; `$n` is the nth block of the file, `@x` a file of one block of that letter.
const LOGS: &[(&str, &str)] = &[
    ("one copy", "jw -b $0 @a"),
    ("two copies", "jw -b $0,$1 @both"),
    ("copied twice", "jw -b $0,$1 @both\njw -b $1 @c"),
    ("revoked in a later transaction", "jw -b $0 @a\njw -r $0"),
    ("revoked in the same", "jw -r $0 -b $0 @a"),
    ("revoked in an earlier one", "jw -r $0\njw -b $0 @a"),
    ("journalled again after a revoke", "jw -b $0 @a\njw -r $0\njw -b $0 @b"),
    ("a copy that is not committed", "jw -b $0 @a\njw -c -b $1 @b"),
    ("a revoke that is not committed", "jw -b $0 @a\njw -c -r $0"),
];

fn written_log(open: &str, options: &str, requests: &str) -> Written {
    let log = Written::new(options);
    let requests = (0..3).fold(requests.to_owned(), |text, logical| {
        text.replace(&format!("${logical}"), &log.block(logical).to_string())
    });
    log.log(&format!("{open}\n{requests}\njc\n"));
    log
}

#[test]
fn logs_that_are_written_block_by_block() {
    let expected =
        ["aooooooo", "aboooooo", "acoooooo", "oooooooo", "oooooooo", "aooooooo", "booooooo", "aooooooo", "aooooooo"];
    for open in OPENS {
        // debugfs sums a journal in the second and third way only where metadata is summed.
        let narrow =
            if open == "jo" { "-t ext4 -b 4096 -O ^metadata_csum,^64bit" } else { "-t ext4 -b 4096 -O ^64bit" };
        for ((name, requests), expect) in LOGS.iter().zip(expected) {
            assert_eq!(written_log(open, narrow, requests).read(), expect, "{open}: {name}");
        }
    }
}

/// A log of two committed transactions with one copied block each, then one that is not committed; where its first block
/// lies.
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

fn torn() -> Written {
    let (log, first) = two_transactions("jo -c -v 3", "-t ext4 -b 4096");
    log.image.poke(first + 5 * 4096, &[0; 12]);
    log
}

/// A transaction of an earlier time, complete and with a number that is not its turn, follows the head.
fn stale() -> Written {
    let (log, first) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum");
    for block in [3, 5] {
        let number = u32::from_be_bytes(log.image.peek(first + block * 4096 + 8, 4).try_into().unwrap());
        log.image.poke(first + block * 4096 + 8, &number.wrapping_sub(7).to_be_bytes());
    }
    log
}

#[test]
fn what_is_left_behind_the_head_is_not_replayed() {
    assert_eq!(stale().read(), "aooooooo");
}

/// Two transactions whose numbers begin at `start`.
fn renumbered(start: u32) -> Written {
    let (log, first) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum");
    // The journal's superblock lies before its first block.
    log.image.poke(first - 4096 + 0x18, &start.to_be_bytes());
    for (block, transaction) in [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2)] {
        log.image.poke(first + block * 4096 + 8, &start.wrapping_add(transaction).to_be_bytes());
    }
    log
}

#[test]
fn numbers_near_their_end_wrap() {
    for start in [u32::MAX, u32::MAX - 1, 0x7FFF_FFFF] {
        assert_eq!(renumbered(start).read(), "aboooooo", "from {start:#x}");
    }
}

fn emptied() -> Written {
    let (log, first) = two_transactions("jo", "-t ext4 -b 4096 -O ^metadata_csum");
    log.image.poke(first - 4096 + 0x1C, &[0; 4]);
    log
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
    let log = emptied();
    assert_eq!(log.read(), "oooooooo");
    assert_eq!(open(&log.image.spec()).consistency(), Consistency::Crash);
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
