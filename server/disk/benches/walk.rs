//! How fast a disk answers, beside the kernel's own mount of the same image where that can be had.
//!
//! `cargo bench -p dormouse-disk`; `DORMOUSE_BENCH_IMAGE` names an image to be read instead of one that is made here.

use std::{
    fs,
    hint::black_box,
    io::Read,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use dormouse_disk::{DirectoryId, DiskLimits, DiskSpec, Format, Layer, Unsealed, Volume};
use dormouse_files::{meta::FileType, tree::Tree};

fn main() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let image = std::env::var_os("DORMOUSE_BENCH_IMAGE").map(PathBuf::from).unwrap_or_else(|| make(place.path()));
    let open = || {
        let layers = vec![Layer { path: image.clone(), format: Format::Raw }];
        match Volume::open(&DiskSpec { layers, partition: None }, Unsealed::Crash, &DiskLimits::default()) {
            Ok(volume) => volume,
            Err(error) => panic!("the image opens: {error}"),
        }
    };
    let volume = open();
    let (files, bytes, _) = read_all(&volume);
    let best = (0..3).map(|_| read_all(&volume).2).min().expect("three runs");
    println!("read everything: {files} files, {bytes} bytes: {best:?}");

    let paths = paths(&volume);
    let begun = Instant::now();
    let mut state = 1_usize;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        black_box(stat(&volume, &paths[(state >> 33) % paths.len()]));
    }
    println!("20,000 random stats by path: {:?}", begun.elapsed());

    let first = &paths[paths.len() / 2];
    let begun = Instant::now();
    for _ in 0..100 {
        let volume = open();
        let (directory, name) = walk(&volume, first);
        let (file, _) = volume.open(&directory, name).expect("it opens");
        black_box(volume.read_at(&file, 0, &mut [0]).expect("it reads"));
    }
    println!("open to first byte: {:?}", begun.elapsed() / 100);

    if let Some(mount) = Mounted::new(&image, place.path()) {
        kernel(&mount.0, &paths);
    }
}

fn make(place: &Path) -> PathBuf {
    let content = place.join("content");
    for directory in 0..200 {
        let directory = content.join(format!("group-{}/directory-{directory}", directory % 14));
        fs::create_dir_all(&directory).expect("a directory");
        for file in 0..100 {
            let length = (file * 997 + 13) % 24_000 + if file == 0 { 400_000 } else { 0 };
            fs::write(directory.join(format!("some-file-name-{file}.txt")), vec![b'a' + (file % 26) as u8; length])
                .expect("a file");
        }
    }
    let image = place.join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d"])
        .args([&content, &image])
        .arg("1G")
        .status();
    assert!(made.expect("mke2fs runs").success());
    let checked = Command::new("e2fsck").arg("-fyD").arg(&image).output().expect("e2fsck runs");
    assert!(checked.status.code().is_some_and(|code| code <= 1));
    image
}

fn read_all(volume: &Volume) -> (u64, u64, Duration) {
    let begun = Instant::now();
    let (mut files, mut bytes) = (0, 0);
    let mut buffer = vec![0; 256 << 10];
    let mut left = vec![volume.root().expect("a root")];
    while let Some(directory) = left.pop() {
        for (name, kind) in names(volume, &directory) {
            match kind {
                Some(FileType::Directory) => left.push(volume.directory(&directory, &name).expect("it is entered")),
                Some(FileType::Regular) => {
                    let (file, meta) = volume.open(&directory, &name).expect("it opens");
                    let mut offset = 0;
                    while offset < meta.size_bytes {
                        offset += volume.read_at(&file, offset, &mut buffer).expect("it reads") as u64;
                    }
                    files += 1;
                    bytes += offset;
                }
                _ => (),
            }
        }
    }
    (files, bytes, begun.elapsed())
}

fn names(volume: &Volume, directory: &DirectoryId) -> Vec<(Vec<u8>, Option<FileType>)> {
    let mut names = Vec::new();
    let listed = volume.names(directory, &mut |name| {
        names.push((name.bytes.to_vec(), name.kind));
        ControlFlow::Continue(())
    });
    listed.expect("it lists");
    names
}

fn paths(volume: &Volume) -> Vec<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut left = vec![(Vec::new(), volume.root().expect("a root"))];
    while let Some((path, directory)) = left.pop() {
        for (name, kind) in names(volume, &directory) {
            let mut path: Vec<Vec<u8>> = path.clone();
            path.push(name.clone());
            match kind {
                Some(FileType::Directory) => {
                    left.push((path, volume.directory(&directory, &name).expect("it is entered")))
                }
                Some(FileType::Regular) => found.push(path),
                _ => (),
            }
        }
    }
    found
}

fn walk<'a>(volume: &Volume, path: &'a [Vec<u8>]) -> (DirectoryId, &'a [u8]) {
    let (name, parents) = path.split_last().expect("no path is empty");
    let root = volume.root().expect("a root");
    let directory = parents.iter().fold(root, |parent, name| volume.directory(&parent, name).expect("it is entered"));
    (directory, name)
}

fn stat(volume: &Volume, path: &[Vec<u8>]) -> u64 {
    let (directory, name) = walk(volume, path);
    volume.stat(&directory, name).expect("it is there").size_bytes
}

struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, place: &Path) -> Option<Self> {
        let at = place.join("mounted");
        fs::create_dir(&at).ok()?;
        let copy = place.join("copy");
        fs::copy(image, &copy).ok()?;
        let mounted = Command::new("mount").args(["-o", "loop,ro"]).args([&copy, &at]).status().ok()?;
        mounted.success().then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn kernel(root: &Path, paths: &[Vec<Vec<u8>>]) {
    let full = |path: &[Vec<u8>]| {
        path.iter().fold(root.to_owned(), |path, name| {
            path.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name))
        })
    };
    let mut buffer = vec![0; 256 << 10];
    for pass in 1..=2 {
        let begun = Instant::now();
        for path in paths {
            let mut file = fs::File::open(full(path)).expect("it opens");
            while file.read(&mut buffer).expect("it reads") > 0 {}
        }
        println!("kernel, pass {pass}: {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    for index in 0..20_000 {
        black_box(fs::symlink_metadata(full(&paths[index * 7_919 % paths.len()])).expect("it is there").len());
    }
    println!("kernel, 20,000 random stats: {:?}", begun.elapsed());
}
