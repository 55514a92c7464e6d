//! The disk reader beside the kernel, `rust-fs-ext4` and `debugfs`, in one run, page cache warm: `cargo bench -p
//! dormouse-disk`. Needs root for the loop mounts, e2fsprogs, xfsprogs, and about 6 GiB under the temporary directory.
//!
//! Times alone prove nothing on a shared machine: every figure is a ratio, ours ÷ theirs, of rounds that alternate, and
//! the median over the rounds is printed with its least and most, beside the target. Every reader sums every byte in the
//! same way, and all sums must agree.
//!
//! Two tables: the image on the file system of the temporary directory, read with pread; and the same image on an xfs with
//! reflinks, made in a file, where the reader reads from a mapped clone. There the loop mounts, the crate and debugfs read
//! the same image on the same xfs.
//!
//! `DORMOUSE_BENCH_FILES` (50,000) and `DORMOUSE_BENCH_ROUNDS` (5) make it smaller.

use std::{
    fs::{self, File},
    io::Read as _,
    ops::ControlFlow,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use dormouse_disk::{Cloning, DiskLimits, DiskSpec, Format, Layer, Unsealed, Volume};
use dormouse_files::{
    budget::Unbounded,
    limits::Limits,
    meta::FileType,
    path::TreePath,
    stat::{self, Revisions, StatPlan},
    tree::{Name, Tree},
};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// What a reader saw: files, bytes, and the sum of all words of 8 bytes, the last of a file filled up with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    files: u64,
    bytes: u64,
    sum: u64,
}

impl Seen {
    /// The sum does not tell how a file was cut: of all pieces but the last the lengths are multiples of 8.
    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        // The readers are to be seen here and not the adding: one addition for each vector of 16 bytes, and from four places
        // of the piece side by side, so that memory is not waited for one line after another.
        let (parts, rest) = piece.split_at(piece.len() / 256 * 256);
        let quarter = parts.len() / 4;
        let (front, back) = parts.split_at(2 * quarter);
        let ((first, second), (third, fourth)) = (front.split_at(quarter), back.split_at(quarter));
        let mut sums = [0_u64; 8];
        let front = first.chunks_exact(64).zip(second.chunks_exact(64));
        let back = third.chunks_exact(64).zip(fourth.chunks_exact(64));
        for (front, back) in front.zip(back) {
            for (index, sum) in sums.iter_mut().enumerate() {
                let at = 8 * index..8 * index + 8;
                let front = word(&front.0[at.clone()]).wrapping_add(word(&front.1[at.clone()]));
                let back = word(&back.0[at.clone()]).wrapping_add(word(&back.1[at]));
                *sum = sum.wrapping_add(front.wrapping_add(back));
            }
        }
        for last in rest.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..last.len()].copy_from_slice(last);
            sums[0] = sums[0].wrapping_add(u64::from_le_bytes(bytes));
        }
        self.sum = sums.iter().fold(self.sum, |total, sum| total.wrapping_add(*sum));
    }
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let files = number("DORMOUSE_BENCH_FILES", 50_000);
    let rounds = number("DORMOUSE_BENCH_ROUNDS", 5);
    let directory = std::env::temp_dir().join(format!("dormouse-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a place for the image");
    let image = directory.join("disk.img");
    let paths = make(&directory, &image, files);
    bring_in(&image);
    let mount = directory.join("mnt");
    fs::create_dir_all(&mount).expect("a mount point");
    println!("image read with pread");
    let bench = Bench { image: image.clone(), mount: mount.clone(), paths: paths.clone(), rounds, way: Way::Pread };
    bench.run();
    let xfs = Xfs::make(&directory, &image);
    println!("image on xfs with reflinks, read from a mapped clone");
    Bench { image: xfs.image.clone(), mount, paths, rounds, way: Way::Clone }.run();
    drop(xfs);
    fs::remove_dir_all(&directory).expect("the bench cleans up");
}

/// Has the image in memory as read-ahead brings it there, and not in the small pieces in which it was written: as the files
/// of a mount are.
fn bring_in(image: &Path) {
    let mut file = File::open(image).expect("the image opens");
    file.sync_all().expect("the image is written");
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("the image is let go");
    std::io::copy(&mut file, &mut std::io::sink()).expect("the image is read");
}

/// An xfs with reflinks in a file, that holds a copy of the image; unmounted when dropped.
struct Xfs {
    root: PathBuf,
    image: PathBuf,
}

impl Xfs {
    fn make(directory: &Path, image: &Path) -> Self {
        let (file, root) = (directory.join("xfs.img"), directory.join("xfs"));
        let bytes = fs::metadata(image).expect("the image").len() + (1 << 30);
        File::create(&file).and_then(|file| file.set_len(bytes)).expect("a file of holes");
        fs::create_dir_all(&root).expect("a mount point");
        run(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&file), &[0]);
        run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&root), &[0]);
        let copy = root.join("disk.img");
        fs::copy(image, &copy).expect("a copy of the image");
        bring_in(&copy);
        Self { root, image: copy }
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.root), &[0]);
    }
}

/// How the reader gets at the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Pread,
    Clone,
}

/// Makes a tree of about 20 KiB a file, and its image with hashed directories; gives the paths of all files.
fn make(directory: &Path, image: &Path, files: usize) -> Vec<TreePath> {
    let tree = directory.join("tree");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let pool: Vec<u8> = (0..(4 << 20)).map(|_| b' ' + (next() % 95) as u8).collect();
    let mut paths = Vec::with_capacity(files);
    for index in 0..files {
        let folder = format!("part-{:02}/package-{:03}", index / 2_500, index / 50);
        let path = format!("{folder}/module_{index:06}.rs");
        fs::create_dir_all(tree.join(&folder)).expect("a folder");
        let length = match next() % 100 {
            0..40 => next() % 4_096,
            40..90 => next() % 24_576,
            90..99 => next() % 98_304,
            _ => next() % 1_048_576,
        } as usize;
        let begin = next() as usize % (pool.len() - length);
        fs::write(tree.join(&path), &pool[begin..begin + length]).expect("a file");
        paths.push(TreePath::parse(format!("/{path}").as_bytes()).expect("a path"));
    }
    let size = format!("{}M", 512 + files * 26 / 1_024);
    run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree).arg(image).arg(size), &[0]);
    run(Command::new("e2fsck").args(["-fyD"]).arg(image), &[0, 1]);
    fs::remove_dir_all(&tree).expect("the tree is not needed any more");
    paths
}

fn run(command: &mut Command, codes: &[i32]) -> Vec<u8> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).output().expect("the tool starts");
    let code = output.status.code();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

struct Bench {
    image: PathBuf,
    mount: PathBuf,
    paths: Vec<TreePath>,
    rounds: usize,
    way: Way,
}

impl Bench {
    /// The target for this way of reading.
    fn target(&self, pread: f64, clone: f64) -> f64 {
        if self.way == Way::Pread { pread } else { clone }
    }

    fn volume(&self) -> Volume {
        let layers = vec![Layer { path: self.image.clone(), format: Format::Raw }];
        let spec = DiskSpec { layers, partition: None };
        let limits = DiskLimits::default();
        match self.way {
            Way::Pread => Volume::open(&spec, Unsealed::Never, &limits).expect("the image opens"),
            Way::Clone => {
                let volume = Volume::open_clone(&spec, Unsealed::Never, &limits).expect("the image opens");
                assert!(matches!(volume.cloning(), Cloning::Done), "{:?}", volume.cloning());
                volume
            }
        }
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop,ro"]).arg(&self.image).arg(&self.mount), &[0]);
    }

    fn unmount(&self) {
        run(Command::new("umount").arg(&self.mount), &[0]);
    }

    fn run(&self) {
        let truth = {
            self.mount();
            let truth = kernel_read(&self.mount);
            self.unmount();
            truth
        };
        println!(
            "{} files, {:.2} GB, {} rounds; ours ÷ theirs, median (least-most)",
            truth.files,
            truth.bytes as f64 / 1e9,
            self.rounds
        );
        // First, while nothing that was freed can be used again.
        self.memory(truth);
        self.read_everything(truth);
        self.stat_at_random();
        self.first_byte();
    }

    fn read_everything(&self, truth: Seen) {
        let mut rows = Rows::new(
            "read everything",
            &[
                ("fresh loop mount + read", self.target(0.12, 0.08)),
                ("second pass over the mount", self.target(1.0, 0.6)),
                ("rust-fs-ext4", self.target(0.35, 0.2)),
            ],
        );
        let volume = self.volume();
        // A clone has a page cache of its own, which is warm only after a first pass.
        assert_eq!(tree_read(&volume), truth);
        let mut floors = Vec::new();
        for _ in 0..self.rounds {
            let ours = time(|| assert_eq!(tree_read(&volume), truth));
            let bare = time(|| bare_read(&self.image, truth.bytes));
            let fresh = time(|| {
                self.mount();
                assert_eq!(kernel_read(&self.mount), truth);
            });
            let second = time(|| assert_eq!(kernel_read(&self.mount), truth));
            self.unmount();
            let theirs = time(|| assert_eq!(crate_read(&self.image), truth));
            rows.add(ours, &[fresh, second, theirs]);
            floors.push(bare.as_secs_f64() / theirs.as_secs_f64());
        }
        rows.print();
        floors.sort_by(f64::total_cmp);
        let floor = floors[floors.len() / 2];
        println!("  (bare preads of as many bytes ÷ rust-fs-ext4: {floor:.3}: no reader by pread is quicker)");
    }

    fn stat_at_random(&self) {
        let mut opened = Rows::new("20,000 random stats by path, disk just opened", &[("fresh loop mount", 0.2)]);
        let mut again =
            Rows::new("20,000 random stats by path, again", &[("fresh loop mount", 0.2), ("warm dcache", 1.0)]);
        let mut state = 7_usize;
        let picks: Vec<&TreePath> = (0..20_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                &self.paths[(state >> 33) % self.paths.len()]
            })
            .collect();
        let limits = Limits::default();
        // Both sides find their questions ready and one behind the other: what is to be seen are the answers.
        let plan = |path: &&TreePath| StatPlan { path: (*path).clone(), include_revision: false };
        let plans: Vec<StatPlan> = picks.iter().map(plan).collect();
        let path = |path: &&TreePath| self.mount.join(std::ffi::OsStr::from_bytes(&path.as_bytes()[1..]));
        let paths: Vec<PathBuf> = picks.iter().map(path).collect();
        let mut floors = Vec::new();
        for _ in 0..self.rounds {
            let volume = self.volume();
            let ours = || {
                let mut sizes = 0;
                for plan in &plans {
                    let entry = stat::run(&volume, plan, Revisions::Never, &limits, &Unbounded).expect("it is there");
                    sizes += entry.meta.size_bytes;
                }
                assert!(sizes > 0);
            };
            let (first, second) = (time(ours), time(ours));
            let look = || fs::metadata(&self.image).expect("it is there").size();
            let looks = time(|| assert!(picks.iter().map(|_| look()).sum::<u64>() > 0));
            let kernel = || {
                let mut sizes = 0;
                for path in &paths {
                    sizes += fs::symlink_metadata(path).expect("it is there").size();
                }
                assert!(sizes > 0);
            };
            let fresh = time(|| {
                self.mount();
                kernel();
            });
            let warm = time(kernel);
            self.unmount();
            opened.add(first, &[fresh]);
            again.add(second, &[fresh, warm]);
            floors.push(looks.as_secs_f64() / fresh.as_secs_f64());
        }
        opened.print();
        again.print();
        floors.sort_by(f64::total_cmp);
        let floor = floors[floors.len() / 2];
        println!("  (looks at whether the disk has changed, one for each answer, ÷ fresh loop mount: {floor:.3})");
    }

    /// A disk that is read from a clone is opened, and cloned, when it is sealed: its first reader finds it open. Opening it
    /// counts where the agent was started again meanwhile, or the disk was closed for others, and always without a clone.
    fn first_byte(&self) {
        let targets = [("loop mount", 0.03), ("debugfs", 0.1)];
        let what = match self.way {
            Way::Pread => "cold open to first byte",
            Way::Clone => "cold open with its clone to first byte",
        };
        let mut opened = Rows::new(what, &targets);
        let mut sealed = Rows::new("first byte of a disk that was opened when it was sealed", &targets);
        let path = &self.paths[self.paths.len() / 2];
        let relative = std::ffi::OsStr::from_bytes(&path.as_bytes()[1..]);
        for _ in 0..self.rounds * 4 {
            let mut volume = None;
            let opening = time(|| volume = Some(self.volume()));
            let volume = volume.expect("it was just opened");
            let reading = time(|| {
                let mut directory = volume.root().expect("a root");
                let names: Vec<&[u8]> = path.components().collect();
                for name in &names[..names.len() - 1] {
                    directory = volume.directory(&directory, name).expect("a directory");
                }
                let (file, _) = volume.open(&directory, names[names.len() - 1]).expect("a file");
                let mut byte = [0];
                volume.read_at(&file, 0, &mut byte).expect("a byte");
            });
            let closing = time(|| drop(volume));
            let mounted = time(|| {
                self.mount();
                let mut byte = [0];
                let _ =
                    File::open(self.mount.join(relative)).and_then(|mut file| file.read(&mut byte)).expect("a byte");
            });
            self.unmount();
            let request = format!("cat {path}");
            let debugfs = time(|| {
                run(Command::new("debugfs").arg("-R").arg(&request).arg(&self.image), &[0]);
            });
            opened.add(opening + reading + closing, &[mounted, debugfs]);
            sealed.add(reading, &[mounted, debugfs]);
        }
        opened.print();
        if self.way == Way::Clone {
            sealed.print();
        }
    }

    fn memory(&self, truth: Seen) {
        let before = anonymous_kilobytes();
        let volume = self.volume();
        assert_eq!(tree_read(&volume), truth);
        let grown = anonymous_kilobytes().saturating_sub(before);
        println!("growth of anonymous memory while all of it is read: {:.1} MiB (target 64)", grown as f64 / 1_024.0);
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// `RssAnon` of this process (proc_pid_status(5)), in KiB.
fn anonymous_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Rounds of one comparison.
struct Rows {
    what: &'static str,
    /// Each with its target.
    against: Vec<(&'static str, f64)>,
    ratios: Vec<Vec<f64>>,
    ours: Vec<Duration>,
}

impl Rows {
    fn new(what: &'static str, against: &[(&'static str, f64)]) -> Self {
        Self { what, against: against.to_vec(), ratios: vec![Vec::new(); against.len()], ours: Vec::new() }
    }

    fn add(&mut self, ours: Duration, theirs: &[Duration]) {
        self.ours.push(ours);
        for (ratios, other) in self.ratios.iter_mut().zip(theirs) {
            ratios.push(ours.as_secs_f64() / other.as_secs_f64());
        }
    }

    fn print(&mut self) {
        self.ours.sort();
        println!("{} (ours: {:.3} ms)", self.what, self.ours[self.ours.len() / 2].as_secs_f64() * 1e3);
        for ((name, target), ratios) in self.against.iter().zip(&mut self.ratios) {
            ratios.sort_by(f64::total_cmp);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let median = ratios[ratios.len() / 2];
            let met = if median <= *target { "met" } else { "NOT MET" };
            println!("  ÷ {name}: {median:.3} ({least:.3}-{most:.3}), target {target}: {met}");
        }
    }
}

/// Reads a whole tree by one thread, each directory before the next one beside it: listed, each file opened and summed.
fn tree_read<T: Tree>(tree: &T) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 << 10];
    let mut waiting = vec![tree.root().expect("a root")];
    let (mut text, mut names, mut beneath) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(directory) = waiting.pop() {
        text.clear();
        names.clear();
        tree.names(&directory, &mut |name: Name<'_>| {
            let begin = text.len();
            text.extend_from_slice(name.bytes);
            names.push((begin..text.len(), name.kind));
            ControlFlow::Continue(())
        })
        .expect("a directory lists");
        for (name, kind) in names.drain(..) {
            let name = &text[name];
            match kind.unwrap_or_else(|| tree.stat(&directory, name).expect("it is there").kind) {
                FileType::Directory => beneath.push(tree.directory(&directory, name).expect("a directory")),
                FileType::Regular => {
                    let (file, meta) = tree.open(&directory, name).expect("a file opens");
                    seen.files += 1;
                    let mut offset = 0;
                    while offset < meta.size_bytes {
                        if let Some(lent) = tree.lend(&file, offset, 1 << 20).expect("it lends or not") {
                            seen.add(lent);
                            offset += lent.len() as u64;
                            continue;
                        }
                        let count = tree.read_at(&file, offset, &mut buffer).expect("a file reads");
                        assert!(count > 0, "a file does not end before its size");
                        seen.add(&buffer[..count]);
                        offset += count as u64;
                    }
                }
                _ => {}
            }
        }
        waiting.extend(beneath.drain(..).rev());
    }
    seen
}

/// Reads as many bytes from the image's beginning, in pieces of the mean size of a file, and does nothing with them.
fn bare_read(image: &Path, bytes: u64) {
    let mut file = File::open(image).expect("the image opens");
    let mut buffer = vec![0; 17 << 10];
    let mut left = bytes;
    while left > 0 {
        let count = file.read(&mut buffer).expect("the image reads");
        assert!(count > 0, "the image is longer than its files");
        left = left.saturating_sub(count as u64);
    }
}

fn kernel_read(root: &Path) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 << 10];
    let (mut waiting, mut beneath) = (vec![root.to_owned()], Vec::new());
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).expect("a directory lists") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                beneath.push(entry.path());
            } else if kind.is_file() {
                seen.files += 1;
                let mut file = File::open(entry.path()).expect("a file opens");
                loop {
                    let count = file.read(&mut buffer).expect("a file reads");
                    if count == 0 {
                        break;
                    }
                    seen.add(&buffer[..count]);
                }
            }
        }
        waiting.extend(beneath.drain(..).rev());
    }
    seen
}

/// By inode, as the crate reads fastest.
fn crate_read(image: &Path) -> Seen {
    use fs_ext4::{block_io::FileDevice, fs::Filesystem};
    let device = FileDevice::open(image.to_str().expect("a path of text")).expect("the image opens");
    let volume = Filesystem::mount(Arc::new(device)).expect("the image mounts");
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 << 10];
    let (mut waiting, mut beneath) = (vec![2_u32], Vec::new());
    while let Some(directory) = waiting.pop() {
        for entry in volume.read_dir_ino(directory).expect("a directory lists") {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let inode = volume.stat_ino(entry.inode).expect("an inode");
            if FileType::from_mode(u32::from(inode.mode)) == Some(FileType::Directory) {
                beneath.push(entry.inode);
            } else if FileType::from_mode(u32::from(inode.mode)) == Some(FileType::Regular) {
                seen.files += 1;
                let mut offset = 0;
                while offset < inode.size {
                    let count = volume.read_ino(entry.inode, offset, &mut buffer).expect("a file reads");
                    assert!(count > 0, "a file does not end before its size");
                    seen.add(&buffer[..count]);
                    offset += count as u64;
                }
            }
        }
        waiting.extend(beneath.drain(..).rev());
    }
    seen
}
