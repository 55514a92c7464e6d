//! A Read of 1 GiB beside a raw copy of the same bytes through a Unix socket, in one run, page cache warm:
//! `cargo bench -p dormouse-tests --bench transfer`.
//!
//! Rounds alternate; ratios are ours ÷ theirs in wall time, the median with its least and most. As root the suspended disk
//! is set beside `cat` from a warm loop mount of a copy of it into a Unix socket. Where others use the machine too, the
//! processor's time tells more: it is printed for each side, the least of the rounds, in ms.
//!
//! `DORMOUSE_BENCH_MIB` (1,024) and `DORMOUSE_BENCH_ROUNDS` (7) change it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use dormouse_proto::files::v1 as pb;
use dormouse_tests::{oracle::Mounted, processor, skip, world::Setup};
use tonic::transport::{Channel, Endpoint};

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let (mebibytes, rounds) = (number("DORMOUSE_BENCH_MIB", 1_024), number("DORMOUSE_BENCH_ROUNDS", 7));
    let directory = tempfile::tempdir().expect("a place for the file");
    let root = directory.path().join("root");
    fs::create_dir(&root).expect("a directory");
    make(&root.join("big"), mebibytes);
    let bytes = (mebibytes as u64) << 20;
    let image = directory.path().join("disk.img");
    let size = format!("{}M", mebibytes + 256);
    dormouse_tests::image::run("mke2fs", &["-q", "-F", "-t", "ext4", "-d"], &[&root, &image], &[&size]);
    let world = Setup::new().directory("bench/tree", &root).disk("bench/disk", &image).start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(connect(&world.unix));
    let read = |workspace: &str| {
        let begin = Cost::until_now(world.process());
        assert_eq!(runtime.block_on(read(client.clone(), workspace)), bytes);
        Cost::until_now(world.process()).since(&begin)
    };
    let timed = |copy: &dyn Fn() -> Duration| {
        let begin = Cost::until_now(world.process());
        let wall = copy();
        (wall, Cost::until_now(world.process()).since(&begin))
    };

    let mut pairs = Vec::new();
    for _ in 0..=rounds {
        pairs.push((read("bench/tree"), timed(&|| raw_copy(&root.join("big"), bytes))));
    }
    print("live directory ÷ raw copy through a Unix socket (256 KiB writes)", &pairs[1..]);

    if !skip::is_root() {
        return skip::skip("the benchmark of a Read from a disk", "mounting needs root");
    }
    let mounted = Mounted::copy_of(&image).expect("the image mounts");
    let mut pairs = Vec::new();
    for _ in 0..=rounds {
        pairs.push((read("bench/disk"), timed(&|| cat(&mounted.root().join("big"), bytes))));
    }
    print("suspended disk ÷ cat from a warm loop mount into a Unix socket", &pairs[1..]);
}

/// What something took: of the clock, and of the processor, which counts what all threads and commands of this process used,
/// and the agent.
#[derive(Clone, Copy)]
struct Cost {
    at: Instant,
    own: Duration,
    agent: Duration,
}

impl Cost {
    fn until_now(agent: u32) -> Self {
        let own = processor::own() + processor::children();
        Self { at: Instant::now(), own, agent: processor::of(agent) }
    }

    fn since(&self, begin: &Self) -> Spent {
        Spent { wall: self.at - begin.at, own: self.own - begin.own, agent: self.agent - begin.agent }
    }
}

#[derive(Clone, Copy)]
struct Spent {
    wall: Duration,
    own: Duration,
    agent: Duration,
}

/// A round: ours, and theirs with its own wall time.
type Pair = (Spent, (Duration, Spent));

fn print(what: &str, pairs: &[Pair]) {
    let ratio = |(ours, (theirs, _)): &Pair| ours.wall.as_secs_f64() / theirs.as_secs_f64();
    let mut ratios: Vec<f64> = pairs.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    let cheapest = |time: &dyn Fn(&Pair) -> Duration| pairs.iter().map(time).min().unwrap_or_default().as_millis();
    println!("{what}: wall {median:.2} ({least:.2}-{most:.2}), throughput {:.2}", 1.0 / median);
    println!(
        "  wall {} ÷ {}, processor: agent {}, its caller {}; theirs {}",
        cheapest(&|pair| pair.0.wall),
        cheapest(&|pair| pair.1.0),
        cheapest(&|pair| pair.0.agent),
        cheapest(&|pair| pair.0.own),
        cheapest(&|pair| pair.1.1.own),
    );
}

fn make(path: &Path, mebibytes: usize) {
    let mut state = 1_u64;
    let mut block = vec![0_u8; 1 << 20];
    for byte in &mut block {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    let mut file = File::create(path).expect("a file");
    for index in 0..mebibytes {
        block[..8].copy_from_slice(&(index as u64).to_le_bytes());
        file.write_all(&block).expect("a file");
    }
}

/// The settings of the Rust client: the receiver's windows and frames decide the speed of a Read.
async fn connect(socket: &Path) -> pb::files_service_client::FilesServiceClient<Channel> {
    let channel = Endpoint::from_shared(format!("unix:{}", socket.display()))
        .expect("an address")
        .max_frame_size(256 << 10)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .connect()
        .await
        .expect("a connection");
    pb::files_service_client::FilesServiceClient::new(channel).max_decoding_message_size(16 << 20)
}

async fn read(mut client: pb::files_service_client::FilesServiceClient<Channel>, workspace: &str) -> u64 {
    let request = pb::ReadRequest { workspace: workspace.to_owned(), path: "/big".to_owned(), ..Default::default() };
    let mut stream = client.read(request).await.expect("a read begins").into_inner();
    let (mut bytes, mut ended) = (0, false);
    while let Some(message) = stream.message().await.expect("a read goes on") {
        bytes += message.data.len() as u64;
        ended |= message.end.is_some();
    }
    assert!(ended, "the read is complete");
    bytes
}

/// Counts what arrives on a socket until its end.
fn count(mut socket: UnixStream) -> u64 {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        match socket.read(&mut buffer).expect("the socket reads") {
            0 => return bytes,
            count => bytes += count as u64,
        }
    }
}

fn raw_copy(path: &Path, bytes: u64) -> Duration {
    let begin = Instant::now();
    let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
    let counter = std::thread::spawn(move || count(far));
    let mut file = File::open(path).expect("the file");
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).expect("the file reads") {
            0 => break,
            count => near.write_all(&buffer[..count]).expect("the socket writes"),
        }
    }
    drop(near);
    assert_eq!(counter.join().expect("the counter counts"), bytes);
    begin.elapsed()
}

fn cat(path: &Path, bytes: u64) -> Duration {
    let begin = Instant::now();
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    let near: std::os::fd::OwnedFd = near.into();
    // The command goes at the end of the statement, and with it its copy of the socket.
    let mut child = Command::new("cat").arg(path).stdout(Stdio::from(near)).spawn().expect("cat starts");
    assert_eq!(count(far), bytes);
    assert!(child.wait().expect("cat ends").success());
    begin.elapsed()
}
