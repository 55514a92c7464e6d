//! Every kind of image that is made here, each compared with the kernel's picture of a mounted copy, and with those of
//! other readers. One row is one recipe; the closing line counts them.
//!
//! `DORMOUSE_MATRIX=text` runs only the rows whose name holds the text.

use std::{
    any::Any,
    fs,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use sha2::{Digest, Sha256};

use crate::{
    compare::{Node, Picture, assert_same, of_kernel, of_reader, open},
    directories, files,
    image::Image,
    journal, layout, logs,
    others::{differs_from_crate, differs_from_debugfs, of_crate},
    sources,
};

/// How many images must be equal to the kernel's picture, where it can be asked.
const EQUAL_COUNT_MIN: usize = 65;

/// What a replay by the kernel changes by itself, and so is taken from our picture.
pub type Forgive = fn(&Node, &mut Node);

/// One recipe. It gives nothing where this machine lacks what it needs.
pub struct Row {
    pub group: &'static str,
    pub name: String,
    pub make: Box<dyn Fn() -> Option<Image> + Send + Sync>,
    pub forgive: Option<Forgive>,
    /// Whether a kernel may mount it and yet not open a file of it.
    pub unopened: bool,
}

impl Row {
    pub fn new(
        group: &'static str,
        name: impl Into<String>,
        make: impl Fn() -> Option<Image> + Send + Sync + 'static,
    ) -> Self {
        Self { group, name: name.into(), make: Box::new(make), forgive: None, unopened: false }
    }

    pub fn forgiving(self, forgive: Forgive) -> Self {
        Self { forgive: Some(forgive), ..self }
    }

    pub fn unopened(self) -> Self {
        Self { unopened: true, ..self }
    }
}

/// What one reader says beside ours.
enum Said {
    Equal,
    /// It was not asked, or gave no picture.
    Silent(String),
    Differs(String),
}

struct Judged {
    kernel: Said,
    others: Vec<(&'static str, Said)>,
}

fn sum(path: &Path) -> [u8; 32] {
    Sha256::digest(fs::read(path).expect("the image is read")).into()
}

fn ask_kernel(image: &Image, ours: &Picture, row: &Row) -> Said {
    let copy = image.copy();
    // The kernel replays a journal only where it may write.
    let mount = match copy.mount("ro").or_else(|_| copy.mount("rw,noatime")) {
        Err(said) => return Said::Silent(said),
        Ok(mount) => mount,
    };
    let mut kernels = match of_kernel(mount.path()) {
        Err(said) if row.unopened => return Said::Silent(said),
        Err(said) => return Said::Differs(said),
        Ok(kernels) => kernels,
    };
    if let Some(forgive) = row.forgive {
        for (name, node) in &mut kernels {
            if let Some(own) = ours.get(name) {
                forgive(own, node);
            }
        }
    }
    match catch_unwind(|| assert_same(ours, &kernels)) {
        Ok(()) => Said::Equal,
        Err(panic) => Said::Differs(text_of(panic.as_ref())),
    }
}

fn ask_crate(image: &Image, ours: &Picture, forgive: Option<Forgive>) -> Said {
    let seen = catch_unwind(|| of_crate(&image.path));
    match seen {
        Err(panic) => Said::Silent(format!("it panics: {}", text_of(panic.as_ref()))),
        Ok(Err(said)) => Said::Silent(said),
        Ok(Ok(mut crates)) => {
            for (name, node) in &mut crates {
                if let (Some(forgive), Some(own)) = (forgive, ours.get(name)) {
                    forgive(own, node);
                }
            }
            differs_from_crate(ours, &crates).map_or(Said::Equal, Said::Differs)
        }
    }
}

fn ask_debugfs(image: &Image, ours: &Picture) -> Said {
    match differs_from_debugfs(ours, image) {
        Err(said) => Said::Silent(said),
        Ok(difference) => difference.map_or(Said::Equal, Said::Differs),
    }
}

/// Reads one image in every way, and finds it as it was before.
fn judge(image: &Image, row: &Row) -> Result<Judged, String> {
    let before = sum(&image.path);
    let ours = of_reader(&open(&image.spec())).map_err(|(path, error)| format!("/{}: {error}", path.escape_ascii()))?;
    let kernel = ask_kernel(image, &ours, row);
    let mut others = vec![("rust-fs-ext4", ask_crate(image, &ours, row.forgive))];
    // It reads no journal, so it is asked of clean images only, and only where the kernel says nothing.
    if matches!(kernel, Said::Silent(_)) && !open(&image.spec()).needs_recovery() {
        others.push(("debugfs", ask_debugfs(image, &ours)));
    }
    if sum(&image.path) != before {
        return Err("the image was changed".to_owned());
    }
    Ok(Judged { kernel, others })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_else(|| "a panic".to_owned())
}

#[derive(Default)]
struct Counts {
    made: usize,
    kernel: usize,
    crates: usize,
    other_only: usize,
    skipped: Vec<String>,
    failed: Vec<String>,
}

impl Counts {
    fn take(&mut self, row: &Row, outcome: Result<Option<Judged>, String>) -> String {
        let name = format!("{}: {}", row.group, row.name);
        let judged = match outcome {
            Err(said) => {
                self.failed.push(format!("{name}: {said}"));
                return format!("{name}: FAILED");
            }
            Ok(None) => {
                self.skipped.push(format!("{name}: it cannot be made here (root, loop devices or a tool)"));
                return format!("{name}: not made");
            }
            Ok(Some(judged)) => judged,
        };
        self.made += 1;
        let mut words = Vec::new();
        let by_kernel = match judged.kernel {
            Said::Equal => {
                self.kernel += 1;
                words.push("equal to the kernel".to_owned());
                true
            }
            Said::Differs(difference) => {
                self.failed.push(format!("{name}: beside the kernel: {difference}"));
                words.push("DIFFERS from the kernel".to_owned());
                true
            }
            Said::Silent(said) => {
                let said = said.lines().next().unwrap_or_default().rsplit(": ").next().unwrap_or_default().to_owned();
                words.push(format!("not read by this kernel ({said})"));
                false
            }
        };
        let mut equals = 0;
        for (other, said) in judged.others {
            match said {
                Said::Equal => {
                    equals += 1;
                    self.crates += usize::from(other == "rust-fs-ext4");
                    words.push(format!("equal to {other}"));
                }
                Said::Silent(said) => words.push(format!("{other} refuses ({said})")),
                Said::Differs(difference) => {
                    // Where the kernel agrees with us, it is the other one that is wrong.
                    words.push(format!("differs from {other}"));
                    if !by_kernel {
                        self.failed.push(format!("{name}: beside {other}: {difference}"));
                    }
                }
            }
        }
        if !by_kernel {
            if equals > 0 {
                self.other_only += 1;
            } else {
                self.skipped.push(format!("{name}: nobody else reads it here"));
            }
        }
        format!("{name}: {}", words.join(", "))
    }
}

fn rows() -> Vec<Row> {
    let groups = [layout::rows(), journal::rows(), logs::rows(), files::rows(), directories::rows(), sources::rows()];
    let wanted = std::env::var("DORMOUSE_MATRIX").unwrap_or_default();
    groups.into_iter().flatten().filter(|row| format!("{}: {}", row.group, row.name).contains(&wanted)).collect()
}

#[test]
fn every_image_is_as_the_kernel_shows_it() {
    let rows = rows();
    let names: std::collections::BTreeSet<_> = rows.iter().map(|row| (row.group, &row.name)).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    let counts = Mutex::new(Counts::default());
    let next = AtomicUsize::new(0);
    // One more than there are processors: much of a row is waiting for mounts.
    let workers = std::thread::available_parallelism().map_or(3, |count| count.get().clamp(2, 8) + 1);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let outcome =
                        catch_unwind(AssertUnwindSafe(|| (row.make)().map(|image| judge(&image, row)).transpose()));
                    let outcome = outcome.unwrap_or_else(|panic| Err(text_of(panic.as_ref())));
                    let line = counts.lock().expect("no holder panics").take(row, outcome);
                    println!("{line} [{:.1} s]", begun.elapsed().as_secs_f32());
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no holder panics");
    for line in &counts.skipped {
        println!("skipped: {line}");
    }
    if let Some(path) = std::env::var_os("DORMOUSE_SKIPS").filter(|_| !counts.skipped.is_empty()) {
        let lines: String = counts.skipped.iter().map(|line| format!("skipped: {line}\n")).collect();
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(lines.as_bytes())).expect("the list of skips takes a line");
    }
    let closing = format!(
        "matrix: {} images made of {} recipes; {} equal to the kernel, {} equal to rust-fs-ext4, {} that this kernel does \
         not mount equal to another reader; {} skipped, {} failed",
        counts.made,
        rows.len(),
        counts.kernel,
        counts.crates,
        counts.other_only,
        counts.skipped.len(),
        counts.failed.len()
    );
    println!("{closing}");
    if let Some(path) = std::env::var_os("DORMOUSE_MATRIX_LINE") {
        fs::write(path, format!("{closing}\n")).expect("the closing line is written");
    }
    assert!(counts.failed.is_empty(), "{closing}\n{}", counts.failed.join("\n"));
    let whole = std::env::var_os("DORMOUSE_MATRIX").is_none();
    if whole && can_mount() {
        assert!(counts.kernel >= EQUAL_COUNT_MIN, "only {} images are equal to the kernel", counts.kernel);
    }
}

/// Whether this machine mounts an image at all.
fn can_mount() -> bool {
    Image::make("-t ext4 -b 4096", "16M", None).mount("ro").is_ok()
}
