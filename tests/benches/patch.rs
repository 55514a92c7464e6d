//! Patches through gRPC beside the bare system calls that any durable, compared replacement needs, in one run:
//! `cargo bench -p dormouse-tests --bench patch`.
//!
//! The bare loop, for each patch: an unnamed file beside the target, written, given owner and mode, named in a state
//! directory, it and that directory made durable; a record in a preallocated file made durable; the exchange; both
//! directories made durable. The same files, sizes and file system, rounds that alternate, medians with least and most. What
//! the difference is made of is printed, too: the agent's own code called in this process, and a Stat's way there and back.
//! Between the parts the agent is given the time to delete what was displaced, about a second, so that none of them pays for
//! another; the bare loop deletes after its time is taken, too. In a round of some thousand patches most of the agent's
//! deletions are within its time.
//!
//! `DORMOUSE_BENCH_ROUNDS` (9) and `DORMOUSE_BENCH_PATCHES` (200, a round) change it.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::AsRawFd as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dormouse_files::{
    budget::Unbounded,
    change::Key,
    patch::{Change, Edit, PatchPlan, explain::diagnose},
    path::TreePath,
    revision::{Expected, Revision},
};
use dormouse_live::{LiveLimits, Workspace};
use dormouse_proto::files::v1 as pb;
use dormouse_tests::{processor, world::Setup};
use nix::{
    fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, renameat2},
    unistd::linkat,
};
use tonic::transport::Channel;

type Client = pb::files_service_client::FilesServiceClient<Channel>;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let rounds = number("DORMOUSE_BENCH_ROUNDS", 9);
    let patches = number("DORMOUSE_BENCH_PATCHES", 200);
    let directory = tempfile::tempdir().expect("a place for the files");
    let (root, state) = (directory.path().join("root"), directory.path().join("bare"));
    fs::create_dir(&root).and_then(|()| fs::create_dir(&state)).expect("two directories");
    for index in 0..64 {
        fs::write(root.join(format!("f{index}")), content(0)).expect("a file");
    }
    let world = Setup::new().directory("bench/tree", &root).start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let client = runtime.block_on(world.files());
    let counter = Arc::new(AtomicUsize::new(0));
    let (apart, agent) = (directory.path().join("apart"), directory.path().join("agent"));
    fs::create_dir(&apart).and_then(|()| fs::create_dir(&agent)).expect("two directories");
    fs::write(apart.join("f0"), content(0)).expect("a file");
    let workspace = Workspace::open(&apart, &agent, LiveLimits::default()).expect("a workspace");
    let mut parts = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];

    let (mut against_bare, mut wide, mut shares) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    for round in 0..=rounds {
        let bare = bare(&root, &state, patches);
        let live = live(&workspace, patches, &counter);
        let stats = runtime.block_on(stats(client.clone(), patches));
        quiet(&agent);
        let cpu = processor::of(world.process());
        let one = runtime.block_on(load(client.clone(), 1, patches, &counter));
        let share = (processor::of(world.process()) - cpu).as_secs_f64() / one.as_secs_f64();
        quiet(&world.state);
        let cpu = processor::of(world.process());
        let many = runtime.block_on(load(client.clone(), 64, patches * 8, &counter));
        let share_many = (processor::of(world.process()) - cpu).as_secs_f64() / many.as_secs_f64();
        runtime.block_on(load(client.clone(), 1, 1, &counter));
        quiet(&world.state);
        if round > 0 {
            against_bare.push(bare.as_secs_f64() / one.as_secs_f64());
            wide.push(8.0 * one.as_secs_f64() / many.as_secs_f64());
            shares.0.push(share);
            for (part, time) in parts.iter_mut().zip([bare, live, one, stats]) {
                part.push(time.as_secs_f64() * 1e6 / patches as f64);
            }
            shares.1.push(share_many);
        }
    }
    println!("{rounds} rounds of {patches} patches of 4 KiB; median (least-most)");
    print("patches/s with 1 client ÷ the bare system calls (target: at least 0.60)", &mut against_bare);
    print("patches/s with 64 clients on 64 files ÷ 1 client (target: at least 3.00)", &mut wide);
    print("  the agent's CPU ÷ wall, 1 client", &mut shares.0);
    print("  the agent's CPU ÷ wall, 64 clients", &mut shares.1);

    for (what, part) in
        ["bare", "the agent's own code without gRPC", "with gRPC", "a Stat with gRPC"].into_iter().zip(&mut parts)
    {
        print(&format!("  µs each, {what}"), part);
    }
    drop(workspace);
    drop(world);
    flushes(&root, patches, &counter);

    let world = Setup::new().directory("bench/tree", &root).start();
    let client = runtime.block_on(world.files());
    let big = root.join("big");
    let mut ratios = Vec::new();
    for round in 0..=rounds.min(5) {
        let text = format!("{}needle {round}\n{}", "line of text\n".repeat(1 << 20), "line of text\n".repeat(4 << 20));
        fs::write(&big, &text.as_bytes()[..(64 << 20) - 1]).expect("a file of 64 MiB");
        File::open(&big).and_then(|file| file.sync_all()).expect("it is durable");
        let begin = Instant::now();
        let bytes = fs::read(&big).expect("it reads");
        let revision = Revision::of(&bytes);
        let mut copy = File::create(directory.path().join("copy")).expect("a copy");
        copy.write_all(&bytes).and_then(|()| copy.sync_all()).expect("it is durable");
        let plain = begin.elapsed();
        let request = pb::PatchRequest {
            workspace: "bench/tree".to_owned(),
            path: "/big".to_owned(),
            change: Some(pb::patch_request::Change::Edits(pb::EditList {
                edits: vec![pb::Edit {
                    old_text: format!("needle {round}\n"),
                    new_text: format!("noodle {round}\n"),
                    replace_all: false,
                }],
            })),
            expected_revision: Some(revision.to_string()),
            idempotency_key: format!("big-{round}"),
            ..Default::default()
        };
        let begin = Instant::now();
        let done = runtime.block_on(client.clone().patch(request)).expect("the patch applies").into_inner();
        assert!(done.durable);
        if round > 0 {
            ratios.push(begin.elapsed().as_secs_f64() / plain.as_secs_f64());
        }
    }
    print("one edit of a 64 MiB file ÷ read + sha256 + write + fsync of it, wall", &mut ratios);
    explain();
}

/// CPU that the diagnosis of an old text that is nowhere costs on 64 MiB, on top of having looked for it.
fn explain() {
    let size = 64 << 20;
    let fill = |line: &str| line.repeat(size / line.len());
    let cases = [
        ("lines of text", fill("    line of text(1, 2);\n"), "    line of test(1, 2);\n    other\n".to_owned()),
        ("one line", fill("word "), "word wood word".to_owned()),
        ("empty lines", fill("\n"), "\n\n\nx\n".repeat(1_000)),
        ("numbered lines", fill("12| let a = 1;\n"), "12| let b = 1;\n13| let a = 1;\n".repeat(2_000)),
        ("other line ends", fill("abc\r\n"), "abc\nabc\nabd\n".repeat(1_000)),
        ("other forms", fill("    café “quoted” ﬁ\n"), "    café \"quoted\" fi\nnext".to_owned()),
    ];
    let mut worst = Duration::ZERO;
    for (name, text, old_text) in &cases {
        let edit = Edit { old_text: old_text.clone(), new_text: "new text".to_owned(), replace_all: false };
        assert!(!text.contains(old_text), "{name}");
        let begin = processor::of_thread();
        std::hint::black_box(diagnose(text, &edit));
        worst = worst.max(processor::of_thread() - begin);
    }
    println!("CPU of a diagnosis on 64 MiB, the worst of {}: {worst:.1?} (target: at most 100 ms)", cases.len());
}

/// Flushes of the journal that 64 clients cost, as the agent has counted them itself: nothing looks on meanwhile.
fn flushes(root: &Path, patches: usize, counter: &Arc<AtomicUsize>) {
    let mut world = Setup::new().directory("bench/tree", root).start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let client = runtime.block_on(world.files());
    runtime.block_on(load(client, 64, patches * 8, counter));
    let (status, _) = world.terminate();
    assert!(status.success());
    let log = world.log_text();
    let counted = log.lines().find(|line| line.contains("a workspace was changed")).expect("the agent has counted");
    let counted: serde_json::Value = serde_json::from_str(counted).expect("the log is JSON");
    let number = |name: &str| counted[name].as_f64().expect("a counter");
    println!(
        "flushes of the journal a patch, 64 clients on 64 files: {:.2} of {} patches (target: at most 0.20)",
        number("journal_flushes") / number("intents"),
        number("intents")
    );
}

fn print(what: &str, ratios: &mut [f64]) {
    ratios.sort_by(f64::total_cmp);
    println!("{what}: {:.2} ({:.2}-{:.2})", ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1]);
}

fn content(number: usize) -> Vec<u8> {
    let mut text = format!("{number:08}\n").into_bytes();
    text.resize(4_096, b'x');
    text
}

/// So many patches of whole content by so many clients, each on files of its own.
async fn load(client: Client, clients: usize, patches: usize, counter: &Arc<AtomicUsize>) -> Duration {
    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..clients {
        let (mut client, counter) = (client.clone(), Arc::clone(counter));
        tasks.spawn(async move {
            for _ in 0..patches / clients {
                let number = counter.fetch_add(1, Ordering::Relaxed);
                let request = pb::PatchRequest {
                    workspace: "bench/tree".to_owned(),
                    path: format!("/f{task}"),
                    change: Some(pb::patch_request::Change::Content(content(number).into())),
                    idempotency_key: format!("key-{number}"),
                    ..Default::default()
                };
                let done = client.patch(request).await.expect("the patch applies").into_inner();
                assert!(done.durable && !done.replayed);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a client ends well");
    }
    begin.elapsed()
}

/// The same by the agent's own code, in this thread.
fn live(workspace: &Workspace, patches: usize, counter: &AtomicUsize) -> Duration {
    let begin = Instant::now();
    for _ in 0..patches {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let plan = PatchPlan {
            path: TreePath::parse(b"/f0").expect("a path"),
            change: Change::Content(content(number).into()),
            expected: Expected::Any,
            mode: None,
            create_parents: false,
            key: Key::new(&format!("live-{number}"), [0; 32]).expect("a key"),
            validate_only: false,
        };
        let done = workspace.patch(&plan, &Unbounded).expect("the patch applies");
        assert!(done.durable && !done.replayed);
    }
    begin.elapsed()
}

/// Waits until what was displaced is gone, but for the last file, which waits for the next patch.
fn quiet(state: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    let is_displaced = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"s");
    for directory in fs::read_dir(state.join("live")).expect("the workspaces' state").map(|entry| entry.expect("one")) {
        let count = || {
            let names = fs::read_dir(directory.path()).expect("a state directory").map(|entry| entry.expect("a name"));
            names.filter(|entry| is_displaced(&entry.file_name())).count()
        };
        while count() > 1 {
            assert!(Instant::now() < until, "displaced files stay in {}", directory.path().display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// So many calls that do next to nothing.
async fn stats(mut client: Client, count: usize) -> Duration {
    let begin = Instant::now();
    for _ in 0..count {
        let request =
            pb::StatRequest { workspace: "bench/tree".to_owned(), path: "/f0".to_owned(), ..Default::default() };
        client.stat(request).await.expect("a file");
    }
    begin.elapsed()
}

/// The same by bare system calls.
fn bare(root: &Path, state: &Path, patches: usize) -> Duration {
    let (root_file, state_file) = (File::open(root).expect("the root"), File::open(state).expect("the state"));
    let journal =
        File::options().create(true).truncate(false).write(true).open(state.join("journal")).expect("a journal");
    journal.write_all_at(&vec![0; 1 << 20], 0).and_then(|()| journal.sync_all()).expect("it is preallocated");
    let begin = Instant::now();
    for number in 0..patches {
        let target = root.join("f0");
        let old = fs::read(&target).expect("the file reads");
        let _ = Revision::of(&old);
        let bytes = content(number + 1_000_000);
        let record = [Revision::of(&bytes).digest().as_slice(), &[0; 480]].concat();
        let file =
            File::options().write(true).mode(0o644).custom_flags(OFlag::O_TMPFILE.bits()).open(root).expect("a file");
        (&file).write_all(&bytes).expect("it takes the bytes");
        let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
        nix::unistd::fchown(&file, Some(user), Some(group)).expect("an owner");
        nix::sys::stat::fchmod(&file, nix::sys::stat::Mode::from_bits_truncate(0o644)).expect("a mode");
        let name = format!("t{number}");
        let magic = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(AT_FDCWD, magic.as_str(), &state_file, name.as_str(), AtFlags::AT_SYMLINK_FOLLOW).expect("a name");
        file.sync_all().and_then(|()| state_file.sync_all()).expect("they are durable");
        journal
            .write_all_at(&record, (number % 1_024 * 512) as u64)
            .and_then(|()| journal.sync_data())
            .expect("a record");
        renameat2(&state_file, name.as_str(), &root_file, "f0", RenameFlags::RENAME_EXCHANGE).expect("an exchange");
        root_file.sync_all().and_then(|()| state_file.sync_all()).expect("they are durable");
    }
    let elapsed = begin.elapsed();
    for number in 0..patches {
        fs::remove_file(state.join(format!("t{number}"))).expect("the old one goes");
    }
    state_file.sync_all().expect("they are gone for good");
    elapsed
}
