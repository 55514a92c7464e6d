//! Search beside ripgrep, in one run, page cache warm: `cargo bench -p dormouse-tests --bench search`.
//!
//! Makes its own tree: source-like text from the crates at hand, mutated by a seed, 66,000 files and 2 GB. Ours goes
//! through gRPC over a Unix socket and writes its matches to a file; ripgrep (environment `DORMOUSE_RG`, 15 or later, else
//! installed by cargo) searches the same files with equal filters and writes to a file too. Rounds alternate; the median
//! of the ratios ours ÷ theirs is printed with its least and most, wall and CPU (agent + client ÷ ripgrep).
//!
//! | section | ours | theirs |
//! |---|---|---|
//! | `live` | the directory | the directory |
//! | `fair` | a search over 100 files while the whole tree is searched in another workspace | the same search alone |
//! | `disk` | a suspended disk, an image of the tree, without an index | a loop mount of the image, warm |
//! | `fresh` | the same | a loop mount of the image, made for this search |
//! | `index` | a suspended disk with its index | a loop mount of the image, warm |
//!
//! The disk's sections need root. `DORMOUSE_BENCH_FILES` (66,000), `DORMOUSE_BENCH_ROUNDS` (15), `DORMOUSE_BENCH_SEED` (1)
//! change it; `DORMOUSE_BENCH_SECTIONS` names those that are wanted, `DORMOUSE_BENCH_IMAGES` a directory for the image: on
//! a file system with reflinks the agent may serve the disk from a clone.

use std::{
    fs,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use dormouse_proto::files::v1 as pb;
use dormouse_tests::{
    oracle::Mounted,
    processor, skip,
    world::{Setup, World},
};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use tonic::transport::Channel;

type Client = pb::files_service_client::FilesServiceClient<Channel>;

/// One pattern, how it is asked of both, and how many matches come back.
struct Question {
    name: &'static str,
    pattern: &'static str,
    regex: bool,
    any_case: bool,
    max: i32,
    /// Whether ripgrep's output is sorted and cut at `max`, as ours is.
    cut: bool,
}

const QUESTIONS: &[Question] = &[
    Question {
        name: "very many hits, sorted, first 5,000",
        pattern: "import",
        regex: false,
        any_case: false,
        max: 5_000,
        cut: true,
    },
    Question { name: "TODO", pattern: "TODO", regex: false, any_case: false, max: 5_000, cut: false },
    Question { name: "rare literal", pattern: "zxqj_nowhere", regex: false, any_case: false, max: 5_000, cut: false },
    Question { name: r"def \w+_test", pattern: r"def \w+_test", regex: true, any_case: false, max: 5_000, cut: false },
    Question {
        name: r"[A-Z]{3,}_[0-9]{4}\b",
        pattern: r"[A-Z]{3,}_[0-9]{4}\b",
        regex: true,
        any_case: false,
        max: 5_000,
        cut: false,
    },
    Question {
        name: "-i authorization",
        pattern: "authorization",
        regex: false,
        any_case: true,
        max: 5_000,
        cut: false,
    },
    Question { name: "import, default 200", pattern: "import", regex: false, any_case: false, max: 200, cut: false },
    Question { name: "TODO, default 200", pattern: "TODO", regex: false, any_case: false, max: 200, cut: false },
];

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let rg = ripgrep();
    let rounds = number("DORMOUSE_BENCH_ROUNDS", 15);
    let sections = std::env::var("DORMOUSE_BENCH_SECTIONS").unwrap_or_else(|_| "live,fair,disk,fresh,index".to_owned());
    let wants = |section: &str| sections.split(',').any(|wanted| wanted == section);
    let directory = tempfile::tempdir().expect("a place for the tree");
    let root = directory.path().join("root");
    let (files, bytes) = corpus(&root, number("DORMOUSE_BENCH_FILES", 66_000), number("DORMOUSE_BENCH_SEED", 1) as u64);
    println!("{files} files, {:.2} GB, {rounds} rounds; ours ÷ ripgrep, median (least-most)", bytes as f64 / 1e9);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let makings = Makings { runtime: &runtime, rg: &rg, directory: directory.path() };
    if wants("live") || wants("fair") {
        let small = directory.path().join("small");
        corpus(&small, 100, 7);
        let world = Setup::new().directory("bench/tree", &root).directory("bench/small", &small).start();
        let bench = makings.bench(&world, "bench/tree");
        if wants("live") {
            println!("directory ÷ ripgrep over it");
            QUESTIONS.iter().for_each(|question| bench.compare(&Theirs::At(root.clone()), question, rounds));
        }
        if wants("fair") {
            makings.bench(&world, "bench/small").fairness(&bench, rounds);
        }
    }
    if !["disk", "fresh", "index"].into_iter().any(wants) {
        return;
    }
    if !skip::is_root() {
        return skip::skip("the benchmark of Search on a suspended disk", "mounting needs root");
    }
    let images = std::env::var_os("DORMOUSE_BENCH_IMAGES").map_or_else(|| directory.path().to_owned(), PathBuf::from);
    let image = images.join("dormouse-bench.img");
    let size = format!("{}M", 1_024 + bytes / (1 << 20) * 5 / 4);
    dormouse_tests::image::run("mke2fs", &["-q", "-F", "-t", "ext4", "-d"], &[&root, &image], &[&size]);
    bring_in(&image);
    let mounted = Mounted::copy_of(&image).expect("the image mounts");
    if wants("disk") || wants("fresh") {
        let world = Setup::new().argument("--search-index=off").disk("bench/disk", &image).start();
        let bench = makings.bench(&world, "bench/disk");
        if wants("disk") {
            println!("suspended disk ÷ ripgrep over a warm loop mount of it");
            QUESTIONS.iter().for_each(|question| bench.compare(&Theirs::At(mounted.root()), question, rounds));
        }
        if wants("fresh") {
            println!("suspended disk ÷ a loop mount made for the search, and ripgrep over it");
            let fresh = Theirs::Fresh(image.clone());
            QUESTIONS[1..3].iter().for_each(|question| bench.compare(&fresh, question, rounds));
        }
    }
    if wants("index") {
        let state = directory.path().join("state");
        // The first search of an agent, with an index to come and without.
        let first = |setup: Setup| {
            let world = setup.disk("bench/disk", &image).start();
            let wall = makings.bench(&world, "bench/disk").ours(&QUESTIONS[2]).wall;
            (world, wall)
        };
        let (mut plain, mut with) = (Vec::new(), Vec::new());
        for _ in 0..rounds.div_ceil(3) {
            plain.push(first(Setup::new().argument("--search-index=off")).1);
            with.push(first(Setup::new()).1);
        }
        let (world, wall) = first(Setup::new().state(&state));
        with.push(wall);
        let bench = makings.bench(&world, "bench/disk");
        plain.sort();
        with.sort();
        let built = Instant::now();
        let index_bytes = loop {
            let entries = fs::read_dir(state.join("search-index")).into_iter().flatten().flatten();
            let mut sizes = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "index"));
            match sizes.next().and_then(|entry| entry.metadata().ok()) {
                Some(meta) => break meta.len(),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        println!(
            "index: {:.1} MB, {:.1} % of the text; there {:.1} s after the first search, which took {:.2} s ({:.2} s \
             without an index to come)",
            index_bytes as f64 / 1e6,
            index_bytes as f64 / bytes as f64 * 100.0,
            built.elapsed().as_secs_f64(),
            with[with.len() / 2].as_secs_f64(),
            plain[plain.len() / 2].as_secs_f64(),
        );
        println!("suspended disk with its index ÷ ripgrep over a warm loop mount of it");
        QUESTIONS.iter().for_each(|question| bench.compare(&Theirs::At(mounted.root()), question, rounds));
    }
    if images != directory.path() {
        fs::remove_file(&image).expect("the image is removed");
    }
}

/// Has the image in memory as read-ahead brings it there, and not in the small pieces in which it was written: as the files
/// of the mount are.
fn bring_in(image: &Path) {
    let mut file = fs::File::open(image).expect("the image opens");
    file.sync_all().expect("the image is written");
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("the image is let go");
    std::io::copy(&mut file, &mut std::io::sink()).expect("the image is read");
}

/// What `DORMOUSE_RG` names, else what cargo installs beside this benchmark.
fn ripgrep() -> PathBuf {
    if let Some(rg) = std::env::var_os("DORMOUSE_RG") {
        return rg.into();
    }
    let place = std::env::temp_dir().join("dormouse-ripgrep-15");
    let rg = place.join("bin/rg");
    if !rg.exists() {
        let status = Command::new(env!("CARGO"))
            .args(["install", "--quiet", "--locked", "--version", "^15", "ripgrep", "--root"])
            .arg(&place)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "cargo installs ripgrep, or DORMOUSE_RG names it");
    }
    rg
}

/// What ripgrep searches.
enum Theirs {
    /// This directory.
    At(PathBuf),
    /// A mount of this image, made for the search; its time counts.
    Fresh(PathBuf),
}

/// What all sections share.
struct Makings<'a> {
    runtime: &'a tokio::runtime::Runtime,
    rg: &'a Path,
    directory: &'a Path,
}

impl Makings<'_> {
    fn bench<'a>(&'a self, world: &'a World, workspace: &'static str) -> Bench<'a> {
        let client = self.runtime.block_on(world.files());
        Bench { client, world, runtime: self.runtime, rg: self.rg, directory: self.directory, workspace }
    }
}

struct Bench<'a> {
    world: &'a World,
    client: Client,
    runtime: &'a tokio::runtime::Runtime,
    rg: &'a Path,
    directory: &'a Path,
    workspace: &'static str,
}

impl Bench<'_> {
    fn compare(&self, theirs: &Theirs, question: &Question, rounds: usize) {
        // The first round of each warms its caches and is not counted.
        let mut ratios = (Vec::new(), Vec::new());
        let mut found = (0, 0);
        for round in 0..=rounds {
            let ours = self.ours(question);
            let theirs = match theirs {
                Theirs::At(root) => self.theirs(root, question),
                Theirs::Fresh(image) => self.theirs_fresh(image, question),
            };
            found = (ours.lines, theirs.lines);
            if round > 0 {
                ratios.0.push(ours.wall.as_secs_f64() / theirs.wall.as_secs_f64());
                ratios.1.push(ours.cpu.as_secs_f64() / theirs.cpu.as_secs_f64());
            }
        }
        for list in [&mut ratios.0, &mut ratios.1] {
            list.sort_by(f64::total_cmp);
        }
        let show = |list: &[f64]| format!("{:.3} ({:.3}-{:.3})", list[list.len() / 2], list[0], list[list.len() - 1]);
        println!(
            "  {:<38} wall {}  cpu {}  matches {} / {}",
            question.name,
            show(&ratios.0),
            show(&ratios.1),
            found.0,
            found.1
        );
        if !question.cut && question.max == 5_000 && found.1 <= 5_000 {
            assert_eq!(found.0, found.1, "both find the same lines");
        }
    }

    /// How long a search here takes while `other` is searched all the time, over how long it takes alone.
    fn fairness(&self, other: &Bench<'_>, rounds: usize) {
        let question = &QUESTIONS[2];
        let median = |count: usize| {
            let mut times: Vec<Duration> = (0..count).map(|_| self.ours(question).wall).collect();
            times.sort();
            times[count / 2]
        };
        median(20);
        let alone = median(rounds * 5);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let (beside, searched) = std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                let client = runtime.block_on(other.world.files());
                let mut count = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let stream = runtime.block_on(ask(client.clone(), other.workspace, question));
                    runtime.block_on(count_matches(stream));
                    count += 1;
                }
                count
            });
            let beside = median(rounds * 5);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            (beside, busy.join().expect("the other one ends"))
        });
        println!(
            "a search over 100 files: {:.2} ms alone, {:.2} ms beside one over the whole tree ({searched} of those): {:.1}×",
            alone.as_secs_f64() * 1e3,
            beside.as_secs_f64() * 1e3,
            beside.as_secs_f64() / alone.as_secs_f64()
        );
    }

    fn ours(&self, question: &Question) -> Run {
        let path = self.directory.join("ours.txt");
        let (agent, client) = (processor::of(self.world.process()), processor::own());
        let begin = Instant::now();
        let lines = self.runtime.block_on(async {
            let mut stream = ask(self.client.clone(), self.workspace, question).await;
            let mut out = BufWriter::new(fs::File::create(&path).expect("the output"));
            let mut lines = 0;
            while let Some(message) = stream.message().await.expect("a search goes on") {
                for one in message.matches {
                    writeln!(out, "{}:{}:{}:{}", one.path, one.line, one.column, one.text).expect("a line");
                    lines += 1;
                }
            }
            out.flush().expect("the output");
            lines
        });
        Run {
            wall: begin.elapsed(),
            cpu: processor::of(self.world.process()) - agent + processor::own() - client,
            lines,
        }
    }

    fn theirs_fresh(&self, image: &Path, question: &Question) -> Run {
        let place = self.directory.join("fresh");
        fs::create_dir_all(&place).expect("a mount point");
        let before = processor::children();
        let begin = Instant::now();
        let mount = Command::new("mount").args(["-o", "loop,ro,noload"]).arg(image).arg(&place).status();
        assert!(mount.is_ok_and(|status| status.success()), "the image mounts");
        let lines = self.theirs(&place, question).lines;
        let (wall, cpu) = (begin.elapsed(), processor::children() - before);
        let unmount = Command::new("umount").arg(&place).status();
        assert!(unmount.is_ok_and(|status| status.success()), "the image is unmounted");
        Run { wall, cpu, lines }
    }

    fn theirs(&self, root: &Path, question: &Question) -> Run {
        let path = self.directory.join("theirs.txt");
        let out = fs::File::create(&path).expect("the output");
        let before = processor::children();
        let begin = Instant::now();
        let mut command = Command::new(self.rg);
        command.args(["--no-config", "--no-ignore", "--hidden", "-g", "!.git", "-g", "!node_modules"]);
        command.args(["--max-filesize", "1M", "-n", "--column", "--color", "never", "--no-heading"]);
        if question.any_case {
            command.arg("-i");
        }
        if !question.regex {
            command.arg("-F");
        }
        if question.cut {
            command.args(["--sort", "path"]);
        }
        command.args(["-e", question.pattern]).arg(root);
        if question.cut {
            let mut child = command.stdout(Stdio::piped()).spawn().expect("rg starts");
            let input = child.stdout.take().expect("its output is piped");
            let head = Command::new("head").args(["-n", &question.max.to_string()]).stdin(input).stdout(out).status();
            assert!(head.expect("head runs").success());
            child.wait().expect("rg ends");
        } else {
            command.stdout(out).status().expect("rg runs");
        }
        let (wall, cpu) = (begin.elapsed(), processor::children() - before);
        let lines = fs::read(&path).expect("the output").iter().filter(|&&byte| byte == b'\n').count();
        Run { wall, cpu, lines }
    }
}

async fn ask(mut client: Client, workspace: &str, question: &Question) -> tonic::Streaming<pb::SearchResponse> {
    let request = pb::SearchRequest {
        workspace: workspace.to_owned(),
        path: "/".to_owned(),
        pattern: question.pattern.to_owned(),
        regex: question.regex,
        case_insensitive: question.any_case,
        max_matches: Some(question.max),
        ..Default::default()
    };
    client.search(request).await.expect("a search begins").into_inner()
}

async fn count_matches(mut stream: tonic::Streaming<pb::SearchResponse>) -> usize {
    let mut count = 0;
    while let Some(message) = stream.message().await.expect("a search goes on") {
        count += message.matches.len();
    }
    count
}

struct Run {
    wall: Duration,
    cpu: Duration,
    lines: usize,
}

/// Writes about 31 KB a file from the Rust sources of the crates at hand, with words swapped by a seed; gives the count and
/// the bytes.
fn corpus(root: &Path, files: usize, seed: u64) -> (usize, u64) {
    let sources = crate_sources();
    assert!(sources.len() > 200, "the cargo home holds sources");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let swaps = [("use ", "import "), ("fn ", "def "), ("let ", "var "), ("// ", "# "), ("pub ", "export ")];
    let (mut count, mut bytes) = (0, 0_u64);
    while count < files {
        let text = &sources[next() as usize % sources.len()];
        // A window of lines of the source, so that no two files are the same.
        let lines: Vec<&str> = text.lines().collect();
        let begin = next() as usize % lines.len().max(1);
        let mut content = String::new();
        // Each is in one of sixteen files: as rare as in real trees, and below the most that one search returns.
        for planted in PLANTED {
            if next() % 16 == 0 {
                content.push_str(planted);
            }
        }
        for line in lines[begin..].iter().chain(&lines[..begin]) {
            let pick = next();
            let (from, to) = swaps[(pick >> 8) as usize % swaps.len()];
            match pick % 100 {
                0..8 => content.push_str(&line.replacen(from, to, 1)),
                _ => content.push_str(line),
            }
            content.push('\n');
            if content.len() > 40 << 10 {
                break;
            }
        }
        let folder = root.join(format!("group-{:02}/package-{:03}/src", count / 4_000, count / 40));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("file_{count:06}.rs")), &content).expect("a file");
        count += 1;
        bytes += content.len() as u64;
    }
    (count, bytes)
}

/// What some of the questions look for: in the tree it is only where it was planted, so that both sides search all of it.
const PLANTED: [&str; 3] =
    ["// TODO: mend this\n", "const LIMIT_2048: u32 = 7;\n", "    headers.insert(Authorization, token);\n"];

/// Rust sources of 20 to 200 KiB of the crates that cargo has unpacked, without what is to be planted.
fn crate_sources() -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .expect("a cargo home");
    let mut waiting = vec![home.join("registry/src")];
    let mut paths = Vec::new();
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let size = |path: &PathBuf| fs::metadata(path).map(|meta| meta.len()).unwrap_or_default();
    let texts = paths.iter().filter(|path| (20 << 10..200 << 10).contains(&size(path)));
    let planted = regex::Regex::new(r"TODO|[A-Z]{3,}_[0-9]{4}\b|(?i:authorization)").expect("a pattern");
    let texts = texts.filter_map(|path| fs::read_to_string(path).ok());
    texts.filter(|text| !planted.is_match(text)).take(3_000).collect()
}
