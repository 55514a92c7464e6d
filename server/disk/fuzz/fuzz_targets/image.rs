//! Changes to a small image that mke2fs makes once: the first byte of the input picks the image, then come changes of an
//! offset (3 bytes), a length (1 byte, at most 16) and that many bytes.

#![no_main]

#[path = "../../tests/it/exercise.rs"]
mod exercise;

use std::{
    fs,
    process::Command,
    sync::{Arc, OnceLock},
};

use dormouse_disk::MemorySource;

const OPTIONS: [&str; 4] = [
    "^metadata_csum,inline_data",
    "^metadata_csum,^extent,^64bit",
    "bigalloc,^metadata_csum",
    "^has_journal,^metadata_csum,meta_bg,^resize_inode",
];

fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| OPTIONS.iter().map(|options| make(options)).collect())
}

fn make(options: &str) -> Vec<u8> {
    let place = tempfile::tempdir().expect("a temporary folder");
    let content = place.path().join("content");
    fs::create_dir_all(content.join("a/b/c")).expect("directories");
    for index in 0..120 {
        fs::write(content.join(format!("a/name-{index}-{}", "x".repeat(index))), vec![7; index * 40]).expect("a file");
    }
    std::os::unix::fs::symlink("t".repeat(100), content.join("link")).expect("a link");
    let image = place.path().join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "256", "-O", options, "-d"])
        .args([&content, &image])
        .arg("6M")
        .status()
        .expect("mke2fs runs");
    assert!(made.success());
    let _ = Command::new("e2fsck").args(["-fyD"]).arg(&image).output().expect("e2fsck runs");
    fs::read(image).expect("the image is read")
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&which, mut rest)) = input.split_first() else { return };
    let mut image = images()[usize::from(which) % OPTIONS.len()].clone();
    while let [low, middle, high, length, tail @ ..] = rest {
        let at = (usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16) % image.len();
        let length = (usize::from(*length) % 17).min(tail.len()).min(image.len() - at);
        image[at..at + length].copy_from_slice(&tail[..length]);
        rest = &tail[length..];
    }
    exercise::exercise(Arc::new(MemorySource::new(image)));
});
