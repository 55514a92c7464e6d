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

mod place;
mod readers;
mod rows;

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::PathBuf,
    process::Command,
};

use dormouse_disk::{Cloning, DiskLimits, DiskSpec, Format, Layer, Unsealed, Volume};
use dormouse_files::{
    budget::Unbounded,
    limits::Limits,
    path::TreePath,
    stat::{self, Revisions, StatPlan},
    tree::Tree as _,
};

use self::{
    place::{Xfs, bring_in, make, run},
    readers::{Seen, bare_read, crate_read, kernel_read, tree_read},
    rows::{Rows, time},
};

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

/// How the reader gets at the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Pread,
    Clone,
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
        println!("  (bare preads of as many bytes, a file's mean at a time, ÷ rust-fs-ext4: {floor:.3})");
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
    /// Closing it is in no time here, as unmounting is not.
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
            opened.add(opening + reading, &[mounted, debugfs]);
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

/// `RssAnon` of this process (proc_pid_status(5)), in KiB.
fn anonymous_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
