//! Random work on a mounted image, copied at random moments as a power cut would leave it: the reader's replay must show what
//! the kernel's shows. `DORMOUSE_WORK_FACTOR` multiplies the moments.

use std::{
    fs,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, lsetxattr};

use crate::{
    compare::check,
    image::{Image, Random, pattern},
};

/// One change; most of them may fail, for want of what they need.
fn step(random: &mut Random, root: &Path) {
    let mut path = |directories: usize| -> PathBuf {
        let folder = root.join(format!("d{}", random.below(directories)));
        folder.join(format!("{}{}", ["a", "name", "a-much-longer-name-for-a-file-"][random.below(3)], random.below(25)))
    };
    let (one, other) = (path(6), path(6));
    let folder = one.parent().expect("below the root").to_owned();
    let place = random.below(200_000) as u64;
    let data = pattern(random.below(40_000), place);
    let written = || fs::OpenOptions::new().write(true).create(true).truncate(false).open(&one);
    let _ = match random.below(16) {
        0 => fs::create_dir(&folder).map_err(drop),
        1 => fs::remove_dir_all(&folder).map_err(drop),
        2 | 3 => fs::write(&one, &data).map_err(drop),
        4 | 5 => written().and_then(|file| file.write_all_at(&data, place)).map_err(drop),
        6 => written().and_then(|file| file.set_len(place)).map_err(drop),
        7 => fs::rename(&one, &other).map_err(drop),
        8 => fs::remove_file(&one).map_err(drop),
        9 => fs::hard_link(&one, &other).map_err(drop),
        10 => symlink("t".repeat(1 + random.below(300)), &one).map_err(drop),
        11 => written().map_err(drop).and_then(|file| {
            let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let how = [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, punched][random.below(3)];
            fallocate(&file, how, place, 50_000).map_err(drop)
        }),
        12 => lsetxattr(&one, format!("user.x{}", random.below(4)), &data[..data.len().min(900)], XattrFlags::empty())
            .map_err(drop),
        13 => fs::create_dir(&one).map_err(drop),
        14 => fs::File::open(&folder).and_then(|folder| folder.sync_all()).map_err(drop),
        _ => fs::File::open(&one).and_then(|file| file.sync_all()).map_err(drop),
    };
}

fn work(options: &str, mount: &str, seed: u64) {
    let factor: usize = std::env::var("DORMOUSE_WORK_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let image = Image::make(options, "48M", None);
    let mounted = match image.mount(mount) {
        Err(said) => return eprintln!("skipped: {said}"),
        Ok(mounted) => mounted,
    };
    let mut random = Random::new(seed);
    for moment in 0..4 * factor {
        for _ in 0..20 + random.below(400) {
            step(&mut random, mounted.path());
        }
        eprintln!("{options}, seed {seed}, moment {moment}");
        check(&image.copy());
    }
    drop(mounted);
    check(&image);
}

macro_rules! works {
    ($($name:ident: $options:literal, $mount:literal, $seed:literal;)*) => {
        $(#[test] fn $name() { work($options, $mount, $seed) })*
    };
}

works! {
    of_4k: "-t ext4 -b 4096", "rw", 1;
    of_1k: "-t ext4 -b 1024 -J size=2", "rw", 2;
    data_in_the_log: "-t ext4 -b 1024 -J size=4", "rw,data=journal", 3;
    written_back: "-t ext4 -b 4096 -O ^metadata_csum,^64bit", "rw,data=writeback", 4;
    inline: "-t ext4 -b 4096 -O inline_data,ea_inode -I 512", "rw", 5;
    numbered: "-t ext3 -b 1024", "rw", 6;
    clustered: "-t ext4 -b 1024 -O bigalloc", "rw", 7;
}
