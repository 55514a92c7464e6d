//! Images that somebody changed on purpose: no panic, no endless loop, bounded memory.
//!
//! Changes are drawn from a seed, so a failure names the run that repeats it. Most naive changes die at a checksum, so
//! half of the runs are on file systems without checksums, and others seal the checksums again. A few hundred runs take
//! seconds; `DORMOUSE_MUTATION_FACTOR` multiplies them.

use std::{
    fs, io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use dormouse_disk::{BlockSource, LayerStamp};

use crate::{
    bodies::exercise::exercise,
    image::{Image, Random, fill, pattern, run},
};

/// An image in memory with a few changes over it.
struct Changed {
    base: Arc<Vec<u8>>,
    changes: Vec<(usize, Vec<u8>)>,
}

impl BlockSource for Changed {
    fn len(&self) -> u64 {
        self.base.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|&end| end <= self.len());
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let start = offset as usize;
        buffer.copy_from_slice(&self.base[start..start + buffer.len()]);
        for (at, bytes) in &self.changes {
            for (place, byte) in (*at..).zip(bytes) {
                if let Some(target) = place.checked_sub(start).and_then(|index| buffer.get_mut(index)) {
                    *target = *byte;
                }
            }
        }
        Ok(())
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        Ok(Vec::new())
    }
}

/// The blocks worth changing: those that hold something, with file content left out.
fn interesting(base: &[u8]) -> Vec<usize> {
    let is_content = |block: &[u8]| {
        let zeros = block.iter().filter(|&&byte| byte == 0).count();
        zeros < block.len() / 64
    };
    let blocks = base.chunks_exact(1024).enumerate();
    blocks
        .filter(|(_, block)| block.iter().any(|&byte| byte != 0) && !is_content(block))
        .map(|(index, _)| index * 1024)
        .collect()
}

fn change(random: &mut Random, base: &[u8], blocks: &[usize]) -> (usize, Vec<u8>) {
    let block = blocks[random.below(blocks.len())];
    // The first bytes of a block hold its most telling fields.
    let within = if random.below(2) == 0 { random.below(64) } else { random.below(1024) };
    let at = block + within;
    let held = base[at];
    let bytes = match random.below(8) {
        0 => vec![held ^ 1 << random.below(8)],
        1 => vec![0xFF; 1 + random.below(4)],
        2 => vec![0; 1 + random.below(8)],
        3 => (random.next() as u32).to_le_bytes().to_vec(),
        4 => (random.below(9_000) as u32).to_le_bytes().to_vec(),
        5 => (random.below(64) as u16).to_le_bytes().to_vec(),
        6 => vec![held.wrapping_add(1)],
        // Another block's bytes in this one's place, which makes cycles and shared blocks.
        _ => {
            let other = blocks[random.below(blocks.len())];
            return (block, base[other..other + 1024].to_vec());
        }
    };
    let room = base.len() - at;
    (at, bytes.into_iter().take(room).collect())
}

fn raw(start: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!start, bytes)
}

/// Seals the superblock and the inodes of the first group again after changes to them.
fn seal(source: &mut Changed) {
    let mut superblock = vec![0; 1024];
    source.read_at(1024, &mut superblock).unwrap();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let sum = raw(!0, &superblock[..0x3FC]);
    source.changes.push((1024 + 0x3FC, sum.to_le_bytes().to_vec()));
    let seed = raw(!0, &superblock[0x68..0x78]);
    // The recipe's own geometry: 1k blocks, so descriptors lie in block 2, and inodes have 256 bytes.
    let table = word(&source.base, 2048 + 8) as usize * 1024;
    let changed: Vec<usize> = source.changes.iter().map(|(at, _)| *at).collect();
    for at in changed {
        let Some(index) = at.checked_sub(table).map(|distance| distance / 256).filter(|index| *index < 1000) else {
            continue;
        };
        for index in [index, index + 1, index + 2, index + 3] {
            let mut inode = vec![0; 256];
            source.read_at((table + index * 256) as u64, &mut inode).unwrap();
            inode[0x7C..0x7E].fill(0);
            inode[0x82..0x84].fill(0);
            let start = raw(raw(seed, &(index as u32 + 1).to_le_bytes()), &inode[0x64..0x68]);
            let sum = raw(start, &inode).to_le_bytes();
            source.changes.push((table + index * 256 + 0x7C, sum[..2].to_vec()));
            source.changes.push((table + index * 256 + 0x82, sum[2..].to_vec()));
        }
    }
}

fn mutate(name: &str, base: Vec<u8>, runs: u64, sealed: bool) {
    let factor = std::env::var("DORMOUSE_MUTATION_FACTOR").ok().and_then(|text| text.parse().ok());
    let runs = runs * factor.unwrap_or(1);
    let blocks = interesting(&base);
    let base = Arc::new(base);
    assert!(
        exercise(Arc::new(Changed { base: Arc::clone(&base), changes: Vec::new() })).is_some_and(|seen| seen > 50),
        "{name}"
    );
    let (mut opened, mut longest) = (0, Duration::ZERO);
    for run in 0..runs {
        let mut random = Random::new(run);
        let changes = (0..1 + random.below(6)).map(|_| change(&mut random, &base, &blocks)).collect();
        let mut source = Changed { base: Arc::clone(&base), changes };
        if sealed {
            seal(&mut source);
        }
        let begun = Instant::now();
        let seen = std::panic::catch_unwind(|| exercise(Arc::new(source)));
        longest = longest.max(begun.elapsed());
        match seen {
            Ok(seen) => opened += u64::from(seen.is_some()),
            Err(_) => panic!("{name}: run {run} panics"),
        }
    }
    eprintln!("{name}: {opened} of {runs} opened, the longest took {longest:?}");
    assert!(opened > runs / 10, "{name}: only {opened} of {runs} images opened");
    assert!(longest < Duration::from_secs(20), "{name}: a run took {longest:?}");
}

/// A small image with everything in it.
fn rich(options: &str) -> Image {
    let content = tempfile::tempdir().unwrap();
    fill(content.path(), 150);
    let scattered = content.path().join("scattered");
    let file = fs::File::create(&scattered).unwrap();
    for index in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&file, &pattern(1024, index), index * 4096).unwrap();
    }
    for (index, size) in [3, 60, 700].into_iter().enumerate() {
        let path = content.path().join(format!("attributed-{index}"));
        fs::write(&path, b"x").unwrap();
        // Where the temporary folder takes no attributes the image has none.
        let _ = rustix::fs::lsetxattr(&path, "user.value", &pattern(size, 1), rustix::fs::XattrFlags::empty());
    }
    fs::remove_file(content.path().join("length-1500000")).unwrap();
    let image = Image::make(options, "6M", Some(content.path()));
    image.rehash();
    image
}

/// Puts a log into the image, so that its replay is changed too.
fn logged(image: &Image) {
    let block = |name: &str| {
        let said = run("debugfs", &["-R", &format!("bmap {name} 0"), &image.path.display().to_string()]).unwrap();
        said.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap()
    };
    let (first, second) = (block("length-70000"), block("length-4096"));
    let data: &Path = &image.path.with_file_name("data");
    fs::write(data, vec![b'x'; 4096]).unwrap();
    let data = data.display();
    image.debugfs(&format!("jo\njw -b {first} {data}\njw -r {first}\njw -b {second},{first} {data}\njc\n"));
}

#[test]
fn without_checksums() {
    let image = rich("-t ext4 -b 1024 -N 512 -O ^metadata_csum,inline_data");
    mutate("without checksums", fs::read(&image.path).unwrap(), 300, false);
}

#[test]
fn with_checksums() {
    let image = rich("-t ext4 -b 1024 -N 512");
    mutate("with checksums", fs::read(&image.path).unwrap(), 100, false);
    mutate("sealed again", fs::read(&image.path).unwrap(), 200, true);
}

#[test]
fn with_a_log() {
    let image = rich("-t ext4 -b 1024 -N 512 -O ^metadata_csum");
    logged(&image);
    mutate("with a log", fs::read(&image.path).unwrap(), 200, false);
}

#[test]
fn with_block_numbers() {
    let image = rich("-t ext2 -b 1024 -N 512");
    mutate("with block numbers", fs::read(&image.path).unwrap(), 300, false);
}

#[test]
fn with_fast_commits() {
    let image = rich("-t ext4 -b 1024 -N 512 -O ^metadata_csum,fast_commit -J size=1,fast_commit_size=64");
    let copy = match image.mount("rw") {
        Err(said) => return eprintln!("skipped: {said}"),
        Ok(mount) => {
            rustix::fs::syncfs(fs::File::open(mount.path()).unwrap()).unwrap();
            for index in 0..8 {
                let file = fs::File::create(mount.path().join(format!("fast-{index}"))).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &pattern(5_000, index), 0).unwrap();
                file.sync_all().unwrap();
                fs::remove_file(mount.path().join("hard-2")).ok();
            }
            image.copy()
        }
    };
    mutate("with fast commits", fs::read(&copy.path).unwrap(), 300, false);
}
