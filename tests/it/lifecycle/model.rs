//! Transitions of fifty workspaces at random, beside readers, and beside a model that fits on a page; the agent is killed
//! again and again meanwhile: ten thousand transitions and two hundred kills.
//!
//! Each workspace has one file with a number in many places, which its machine (this test) changes in place whenever it runs.
//! No answer from a disk may show another number than the one at the Seal of the generation in its origin; no transition that
//! was acknowledged is lost with the agent; what the model refuses, the agent refuses, in the same words.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dormouse_proto::{
    files::v1::{ErrorReason, ServedFrom, files_service_client::FilesServiceClient},
    host::v1::{self as host, WorkspaceState as State, host_service_client::HostServiceClient, workspace_spec::Files},
};
use dormouse_tests::{
    ask, image,
    world::{Setup, World},
};
use tokio::{runtime::Runtime, sync::watch};
use tonic::{Status, transport::Channel};
use tonic_types::StatusExt as _;

use super::guest::Guest;

const WORKSPACE_COUNT: usize = 50;
/// Transitions between two kills.
const ROUND_COUNT: usize = 50;
/// Who ask for transitions, each with workspaces of its own.
const DRIVER_COUNT: usize = 5;
const READER_COUNT: usize = 4;
/// Of the file of each workspace.
const FILE_BYTES: usize = 2 << 20;
/// Between two places of its number.
const STEP_BYTES: usize = 64 << 10;
/// Before each place.
const TAG: &[u8; 8] = b"\xd0rm0use\n";
/// Most time from one kill to the next.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so long a quiesce may have ended by itself.
const QUIESCE_TIME: Duration = Duration::from_secs(60);

/// How often the agent is killed.
const KILL_COUNT: usize = 200;

/// A small generator (xorshift64*), so that a run can be had again by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Quiesce,
    Seal { parked: bool },
    Unseal,
    Open,
    Suspend { parked: bool },
    Resume,
}

impl Call {
    fn any(random: &mut Random) -> Self {
        let parked = random.below(2) == 0;
        match random.below(6) {
            0 => Self::Quiesce,
            1 => Self::Seal { parked },
            2 => Self::Unseal,
            3 => Self::Open,
            4 => Self::Suspend { parked },
            _ => Self::Resume,
        }
    }

    /// One that leads out of a state: there is one out of each.
    fn from(random: &mut Random, state: State) -> Self {
        loop {
            let call = Self::any(random);
            if call.leads().1.contains(&state) {
                return call;
            }
        }
    }

    /// Where it leads, and from where: the drawing, once more and by hand.
    fn leads(self) -> (State, &'static [State]) {
        use State::{Parked, Quarantined, Quiescing, Resuming, Running, Suspended};
        match self {
            Self::Quiesce => (Quiescing, &[Running]),
            Self::Seal { parked: false } | Self::Suspend { parked: false } => {
                (Suspended, &[Running, Quiescing, Resuming])
            }
            Self::Seal { parked: true } | Self::Suspend { parked: true } => (Parked, &[Running, Quiescing, Resuming]),
            Self::Unseal => (Resuming, &[Suspended, Parked, Quarantined]),
            Self::Open => (Running, &[Resuming, Quiescing]),
            Self::Resume => (Running, &[Suspended, Parked, Quarantined, Resuming, Quiescing]),
        }
    }

    async fn send(
        self,
        host: &mut HostServiceClient<Channel>,
        name: &str,
        generation: i64,
    ) -> Result<host::Workspace, Status> {
        let name = name.to_owned();
        let workspace = match self {
            Self::Quiesce => {
                let timeout = QUIESCE_TIME.try_into().ok();
                let request = host::QuiesceWorkspaceRequest { name, generation, timeout };
                host.quiesce_workspace(request).await?.into_inner().workspace
            }
            Self::Seal { parked } => {
                let request = host::SealWorkspaceRequest { name, generation, parked, require_exact: true };
                host.seal_workspace(request).await?.into_inner().workspace
            }
            Self::Unseal => {
                let request = host::UnsealWorkspaceRequest { name, generation };
                host.unseal_workspace(request).await?.into_inner().workspace
            }
            Self::Open => {
                let request = host::OpenWorkspaceRequest { name, generation, guest: None };
                host.open_workspace(request).await?.into_inner().workspace
            }
            Self::Suspend { parked } => {
                let request = host::SuspendWorkspaceRequest { name, generation, parked };
                host.suspend_workspace(request).await?.into_inner().workspace
            }
            Self::Resume => {
                let request = host::ResumeWorkspaceRequest { name, generation };
                host.resume_workspace(request).await?.into_inner().workspace
            }
        };
        Ok(workspace.expect("a workspace"))
    }
}

/// What a call is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Done, under this generation.
    Done(i64),
    /// It is so already, or was done before.
    Same,
    Refused(ErrorReason),
}

/// All that there is to know of a workspace.
#[derive(Debug, Clone, Copy)]
struct Model {
    state: State,
    generation: i64,
    /// The last transition, where it is known.
    last: Option<Call>,
    /// The number in its file.
    number: u64,
    /// Of the last transition.
    since: Instant,
}

impl Model {
    fn answer(&self, call: Call, generation: i64) -> Answer {
        let (target, sources) = call.leads();
        if generation != 0 && generation <= self.generation {
            let replay = generation == self.generation && self.last == Some(call);
            return if replay { Answer::Same } else { Answer::Refused(ErrorReason::StaleGeneration) };
        }
        if generation == 0 && self.state == target {
            return Answer::Same;
        }
        match sources.contains(&self.state) {
            true => Answer::Done(if generation == 0 { self.generation + 1 } else { generation }),
            false => Answer::Refused(ErrorReason::WrongState),
        }
    }
}

/// A workspace and its model.
struct Space {
    name: String,
    /// Where its number is.
    file: File,
    places: Vec<u64>,
    model: Mutex<Model>,
    /// The number at each Seal, by its generation.
    sealed: Mutex<HashMap<i64, u64>>,
}

impl Space {
    fn model(&self) -> Model {
        *self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, model: Model) {
        *self.model.lock().unwrap_or_else(PoisonError::into_inner) = model;
    }

    /// What the machine does while it runs.
    fn write(&self, number: u64) {
        for place in &self.places {
            self.file.write_all_at(&number.to_le_bytes(), *place).expect("the machine writes");
        }
    }

    fn sealed(&self, generation: i64) -> Option<u64> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).get(&generation).copied()
    }
}

/// A file that has its number, zero so far, in many places.
fn content() -> Vec<u8> {
    let mut bytes = vec![0_u8; FILE_BYTES];
    for place in (0..FILE_BYTES).step_by(STEP_BYTES) {
        bytes[place..place + 8].copy_from_slice(TAG);
        bytes[place + 8..place + 16].copy_from_slice(&(place as u64).to_le_bytes());
    }
    bytes
}

/// Where the number of a file of this content is, in a file or in a disk that holds it.
fn places(bytes: &[u8]) -> Vec<u64> {
    let found: Vec<u64> = (0..bytes.len())
        .step_by(1024)
        .filter(|place| bytes[*place..].starts_with(TAG))
        .map(|place| place as u64 + 16)
        .collect();
    assert_eq!(found.len(), FILE_BYTES / STEP_BYTES, "every place is found once");
    found
}

/// What a test of this kind found out.
#[derive(Default)]
struct Count {
    done: watch::Sender<usize>,
    refused: AtomicUsize,
    read: AtomicUsize,
    changed: AtomicUsize,
}

fn setup(place: &Path) -> Setup {
    let roots = place.join("roots");
    // A machine that is slow to answer, as on a busy host, is not what this is about.
    let guest = "[guest]\nconnect = \"60s\"\nping = \"60s\"\n";
    let config = format!("roots = [{roots:?}]\nsocket_roots = [{:?}]\n{guest}", place.join("sockets"));
    Setup::new().config(config).state(&place.join("state"))
}

fn register(name: &str, spec: Files) -> host::RegisterWorkspaceRequest {
    let spec = Some(host::WorkspaceSpec { files: Some(spec) });
    host::RegisterWorkspaceRequest { name: name.to_owned(), spec, generation: 1, ..Default::default() }
}

/// Half of them directories, half machines.
fn spaces(place: &Path, world: &World, runtime: &Runtime) -> Vec<Arc<Space>> {
    let tree = place.join("tree");
    fs::create_dir_all(&tree).expect("a directory");
    fs::write(tree.join("number"), content()).expect("a file");
    let template = image::make(&tree, place, image::Directories::Linear, "8M");
    let mut control = runtime.block_on(world.host());
    (0..WORKSPACE_COUNT)
        .map(|index| {
            let name = format!("w/{index:02}");
            let root = place.join("roots").join(format!("{index}"));
            let (path, spec) = if index % 2 == 0 {
                fs::create_dir(&root).expect("a directory");
                fs::copy(tree.join("number"), root.join("number")).expect("a file");
                (root.join("number"), Files::Directory(host::Directory { root: text(&root) }))
            } else {
                fs::copy(&template, &root).expect("a disk");
                let layers = vec![host::DiskLayer { path: text(&root), format: host::DiskFormat::Raw as i32 }];
                let disk = host::Disk {
                    layers,
                    file_system: host::FileSystem::Ext4 as i32,
                    flushes: true,
                    ..Default::default()
                };
                let address = Some(host::guest::Address::UnixPath(text(&place.join("sockets/guest"))));
                let guest = Some(host::Guest { address, ..Default::default() });
                (root.clone(), Files::Machine(host::Machine { guest, disks: vec![disk] }))
            };
            runtime.block_on(control.register_workspace(register(&name, spec))).expect("it is registered");
            let places = places(&fs::read(&path).expect("it is there"));
            let file = File::options().write(true).open(&path).expect("the machine opens its disk");
            let model = Model { state: State::Running, generation: 1, last: None, number: 0, since: Instant::now() };
            Arc::new(Space { name, file, places, model: Mutex::new(model), sealed: Mutex::default() })
        })
        .collect()
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of text").to_owned()
}

fn reason(status: &Status) -> Option<ErrorReason> {
    ErrorReason::from_wire_name(&status.get_details_error_info()?.reason)
}

/// A call of a driver whose answer never came: the agent was killed.
struct Open {
    space: Arc<Space>,
    call: Call,
    generation: i64,
    /// The model if it was done.
    after: Option<Model>,
}

/// Asks for transitions of these workspaces until enough were done, or the agent is gone.
async fn drive(
    spaces: Vec<Arc<Space>>,
    mut host: HostServiceClient<Channel>,
    mut random: Random,
    count: Arc<Count>,
    enough: usize,
) -> Option<Open> {
    while *count.done.borrow() < enough {
        let space = &spaces[random.below(spaces.len())];
        let mut model = space.model();
        if model.state == State::Quiescing && model.since.elapsed() > QUIESCE_TIME / 2 {
            // On a slow machine it may have ended by itself.
            let request = host::GetWorkspaceRequest { name: space.name.clone() };
            let Ok(answer) = host.get_workspace(request).await else { return None };
            let found = answer.into_inner().workspace.expect("a workspace");
            assert_eq!(found.generation, model.generation);
            assert!(matches!(found.state(), State::Quiescing | State::Running), "{found:?}");
            if found.state() == State::Running {
                model = Model { state: State::Running, last: None, ..model };
                space.set(model);
            }
        }
        let replayed = model.last.filter(|_| random.below(8) == 0);
        let (call, generation) = match (replayed, random.below(16)) {
            (Some(call), _) => (call, model.generation),
            (None, 0) => (Call::any(&mut random), random.below(model.generation as usize) as i64 + 1),
            (None, 1..=3) => (Call::any(&mut random), 0),
            (None, 4..=5) => (Call::any(&mut random), model.generation + 1 + random.below(3) as i64),
            (None, _) => (Call::from(&mut random, model.state), model.generation + 1 + random.below(3) as i64),
        };
        let expected = model.answer(call, generation);
        let after = match expected {
            Answer::Done(generation) => {
                let mut after =
                    Model { state: call.leads().0, generation, last: Some(call), since: Instant::now(), ..model };
                if matches!(call, Call::Seal { .. } | Call::Suspend { .. } | Call::Quiesce)
                    && matches!(model.state, State::Running | State::Resuming)
                {
                    after.number += 1;
                    space.write(after.number);
                }
                if matches!(call, Call::Seal { .. } | Call::Suspend { .. }) {
                    let mut sealed = space.sealed.lock().unwrap_or_else(PoisonError::into_inner);
                    sealed.insert(generation, after.number);
                }
                Some(after)
            }
            Answer::Same | Answer::Refused(_) => None,
        };
        // Kept before the answer comes: the number is in the file already.
        space.set(Model { number: after.map_or(model.number, |after| after.number), ..model });
        match call.send(&mut host, &space.name, generation).await {
            Ok(found) => {
                let now = match (expected, after) {
                    (Answer::Done(_), Some(after)) => {
                        count.done.send_modify(|done| *done += 1);
                        after
                    }
                    (Answer::Same, _) => model,
                    _ => panic!("{call:?} at {generation} was done; the model is {model:?}"),
                };
                assert_eq!((found.state(), found.generation), (now.state, now.generation), "{call:?}, {model:?}");
                space.set(now);
            }
            Err(status) if reason(&status).is_none() => {
                return Some(Open { space: space.clone(), call, generation, after });
            }
            Err(status) => {
                let found = Answer::Refused(reason(&status).expect("it was looked at"));
                assert_eq!(found, expected, "{call:?} at {generation}, {model:?}: {status:?}");
                count.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    None
}

/// Reads whatever sleeps, and says what it saw, until it is told to stop or the agent is gone.
async fn read(
    spaces: Vec<Arc<Space>>,
    mut files: FilesServiceClient<Channel>,
    mut random: Random,
    count: Arc<Count>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::SeqCst) {
        let space = &spaces[random.below(spaces.len())];
        let status = match files.read(ask::read(&space.name, "/number")).await {
            Err(status) => status,
            Ok(stream) => match seen(space, stream.into_inner()).await {
                Ok(true) => {
                    count.read.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                Ok(false) => continue,
                Err(status) => status,
            },
        };
        match reason(&status) {
            // The agent was killed.
            None => return,
            Some(ErrorReason::OfflineChanged) => {
                count.changed.fetch_add(1, Ordering::SeqCst);
            }
            // A running machine: its agent is of few words here.
            Some(ErrorReason::HostFeatureUnavailable | ErrorReason::GuestUnreachable) => {}
            Some(_) => panic!("{status:?}"),
        }
    }
}

/// A whole answer; whether it came from a disk.
async fn seen(
    space: &Space,
    mut stream: tonic::Streaming<dormouse_proto::files::v1::ReadResponse>,
) -> Result<bool, Status> {
    let (mut expected, mut bytes) = (None, 0);
    while let Some(message) = stream.message().await? {
        if let Some(origin) = message.origin {
            if origin.served_from() != ServedFrom::Disk {
                return Ok(false);
            }
            let number = space.sealed(origin.generation);
            expected = Some((origin.generation, number.expect("a disk answers for a generation that was sealed")));
        }
        let (generation, number) = expected.expect("the first message has an origin");
        let begin = message.offset as usize;
        for place in (0..FILE_BYTES).step_by(STEP_BYTES) {
            let Some(at) = (place + 16).checked_sub(begin) else { continue };
            let Some(found) = message.data.get(at..at + 8) else { continue };
            let found = u64::from_le_bytes(found.try_into().expect("eight bytes"));
            assert_eq!(found, number, "{} at {place} of what was sealed as {generation}", space.name);
        }
        bytes += message.data.len();
    }
    assert_eq!(bytes, FILE_BYTES, "an answer that ends well is whole");
    Ok(true)
}

/// Every workspace is as its model says.
async fn compare(spaces: &[Arc<Space>], host: &mut HostServiceClient<Channel>) {
    for space in spaces {
        let request = host::GetWorkspaceRequest { name: space.name.clone() };
        let found = host.get_workspace(request).await.expect("it is known").into_inner().workspace.expect("it is");
        let model = space.model();
        assert_eq!((found.state(), found.generation), (model.state, model.generation), "{}", space.name);
    }
}

#[test]
fn transitions_at_random_beside_readers_and_kills_lose_and_mix_nothing() {
    let began = Instant::now();
    let place = tempfile::tempdir().expect("a temporary directory");
    for name in ["roots", "sockets"] {
        fs::create_dir(place.path().join(name)).expect("a directory");
    }
    let runtime = Runtime::new().expect("a runtime");
    let socket: PathBuf = place.path().join("sockets/guest");
    let _guest = runtime.block_on(async { Guest::serve(&socket) });
    let mut agent = Some(setup(place.path()).start());
    let spaces = spaces(place.path(), agent.as_ref().expect("it runs"), &runtime);
    let count = Arc::new(Count::default());
    let mut random = Random(0x5eed_11fe);
    let mut found_unheard = 0;
    // One round for each kill, and one that nobody disturbs.
    for round in 1..=KILL_COUNT + 1 {
        let world = agent.take().expect("it runs");
        let (stop, enough) = (Arc::new(AtomicBool::new(false)), ROUND_COUNT * round);
        let (mut drivers, mut readers) = (Vec::new(), Vec::new());
        for driver in 0..DRIVER_COUNT {
            let own: Vec<_> = spaces.iter().skip(driver).step_by(DRIVER_COUNT).cloned().collect();
            let host = runtime.block_on(world.host());
            let random = Random((round * DRIVER_COUNT + driver) as u64 * 0x9e37_79b9 + 1);
            // All but the last round go on until the agent is killed under them.
            let enough = if round > KILL_COUNT { enough } else { usize::MAX };
            drivers.push(runtime.spawn(drive(own, host, random, count.clone(), enough)));
        }
        for reader in 0..READER_COUNT {
            let files = runtime.block_on(world.files());
            let random = Random((round * READER_COUNT + reader) as u64 * 0x85eb_ca6b + 1);
            readers.push(runtime.spawn(read(spaces.clone(), files, random, count.clone(), stop.clone())));
        }
        let world = if round > KILL_COUNT {
            Some(world)
        } else {
            let (mut done, until) = (count.done.subscribe(), enough + random.below(8));
            runtime.block_on(async {
                // Where no driver goes on, one has failed, and says so below.
                let _ = tokio::time::timeout(PATIENCE, done.wait_for(|done| *done >= until)).await;
            });
            world.kill();
            None
        };
        let open: Vec<Open> =
            drivers.into_iter().filter_map(|driver| runtime.block_on(driver).expect("no driver fails")).collect();
        stop.store(true, Ordering::SeqCst);
        for reader in readers {
            runtime.block_on(reader).expect("no reader fails");
        }
        if let Some(world) = world {
            assert!(open.is_empty(), "nobody killed the last one");
            runtime.block_on(async { compare(&spaces, &mut world.host().await).await });
            break;
        }
        let world = setup(place.path()).start();
        let mut host = runtime.block_on(world.host());
        for Open { space, call, generation, after } in open {
            let Some(after) = after else { continue };
            let model = space.model();
            let request = host::GetWorkspaceRequest { name: space.name.clone() };
            let now = runtime.block_on(host.get_workspace(request)).expect("it is known").into_inner();
            let now = now.workspace.expect("a workspace");
            assert!([model.generation, after.generation].contains(&now.generation), "{call:?}: {now:?}");
            found_unheard += usize::from(now.generation == after.generation);
            // Under its own generation it is done, or carried on; without one it is asked for as if for the first time.
            let generation = if generation == 0 { after.generation } else { generation };
            let found = runtime.block_on(call.send(&mut host, &space.name, generation)).expect("its replay is done");
            assert_eq!((found.state(), found.generation), (after.state, after.generation), "{call:?}");
            space.set(after);
        }
        runtime.block_on(compare(&spaces, &mut host));
        agent = Some(world);
    }
    let [refused, read, changed] =
        [&count.refused, &count.read, &count.changed].map(|count| count.load(Ordering::SeqCst));
    let done = *count.done.borrow();
    eprintln!(
        "{done} transitions, {refused} refused, {} kills, {found_unheard} transitions found that nobody had heard of, {read} \
         whole reads of a disk, {changed} that had moved, in {:?}",
        KILL_COUNT,
        began.elapsed()
    );
    assert!(done >= ROUND_COUNT * KILL_COUNT && refused > 0 && read > 0, "nothing was shown");
}
