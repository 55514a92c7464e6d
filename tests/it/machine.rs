//! A real machine that is put to rest and woken: what the host says of its files is what the machine said before. Needs
//! QEMU and what `tests/machine/build` makes.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use dormouse_proto::{
    files::v1::{self as pb, Consistency, ErrorReason, ServedFrom, files_service_client::FilesServiceClient},
    guest::v1::{self as guest, guest_service_client::GuestServiceClient},
    host::v1::{self as host, WorkspaceState, host_service_client::HostServiceClient, workspace_spec::Files},
};
use dormouse_server::host::relay::{GUEST_WORKSPACE, TOKEN_METADATA};
use dormouse_tests::{
    ask,
    machine::{Kit, Machine, TOKEN, Wire},
    refusal::Refusal,
    site::{self, revision_of},
    world::{Setup, World},
};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

/// The workspace.
const NAME: &str = "vm/main";
/// Of the file whose read is under way when the machine wakes.
const BIG_BYTES: u64 = 500 << 20;
/// How much of it is read from the disk before.
const BIG_BYTES_BEFORE: usize = 470 << 20;
/// Files that a program of the machine writes and never syncs.
const UNSYNCED_COUNT: usize = 200;

/// A host, and a machine that it knows. What is dropped first ends first.
struct Rig {
    machine: Option<Machine>,
    world: World,
    runtime: Runtime,
    wire: Wire,
    kit: Kit,
    place: TempDir,
}

impl Rig {
    /// A machine on a disk of its own, running.
    fn new(kit: Kit, disk: impl FnOnce(&Path)) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let roots = place.path().join("roots");
        fs::create_dir(&roots).expect("a directory");
        let image = roots.join("disk.img");
        disk(&image);
        let began = Instant::now();
        let machine = Machine::boot(&kit, &image, place.path());
        eprintln!("the machine boots in {:?}", began.elapsed());
        let runtime = Runtime::new().expect("a runtime");
        let wire = runtime.block_on(Wire::new(machine.port));
        // On a busy host a machine without acceleration may be slow to answer even a PING.
        let guest = "[guest]\nconnect = \"60s\"\nping = \"30s\"\n";
        let config = format!("roots = [{roots:?}]\nguest_tcp_ports = \"1024-65535\"\n{guest}");
        // Guests that are gone, and freezes that end by themselves, are a part of this.
        let world = Setup::new().config(config).expect_warnings().start();
        let mut rig = Self { machine: Some(machine), world, runtime, wire, kit, place };
        let made = rig.register(NAME, &image, Some(rig.wire.address.to_string()), WorkspaceState::Running);
        assert_eq!(made.state(), WorkspaceState::Running);
        rig
    }

    fn image(&self) -> PathBuf {
        self.place.path().join("roots/disk.img")
    }

    fn memory(&self) -> PathBuf {
        self.place.path().join("memory")
    }

    fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("the machine is in memory")
    }

    fn files(&self) -> FilesServiceClient<Channel> {
        self.runtime.block_on(self.world.files())
    }

    fn control(&self) -> HostServiceClient<Channel> {
        self.runtime.block_on(self.world.host())
    }

    fn wait<T>(&self, call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Refusal> {
        Ok(self.runtime.block_on(call)?.into_inner())
    }

    fn register(&mut self, name: &str, image: &Path, tcp: Option<String>, state: WorkspaceState) -> host::Workspace {
        let path = image.to_str().expect("a path of text").to_owned();
        let layers = vec![host::DiskLayer { path, format: host::DiskFormat::Raw as i32 }];
        let disk =
            host::Disk { layers, file_system: host::FileSystem::Ext4 as i32, flushes: true, ..Default::default() };
        let guest =
            tcp.map(|tcp| host::Guest { address: Some(host::guest::Address::Tcp(tcp)), guest_token: TOKEN.to_owned() });
        let request = host::RegisterWorkspaceRequest {
            name: name.to_owned(),
            spec: Some(host::WorkspaceSpec { files: Some(Files::Machine(host::Machine { guest, disks: vec![disk] })) }),
            state: state as i32,
            ..Default::default()
        };
        let answer = self.wait(self.control().register_workspace(request)).expect("it is registered");
        answer.workspace.expect("a workspace")
    }

    fn quiesce(&self) {
        let timeout = Duration::from_secs(60).try_into().ok();
        let request = host::QuiesceWorkspaceRequest { name: NAME.to_owned(), generation: 0, timeout };
        self.wait(self.control().quiesce_workspace(request)).expect("it freezes");
    }

    fn seal(&self, parked: bool, require_exact: bool) -> Result<host::Workspace, Refusal> {
        let request = host::SealWorkspaceRequest { name: NAME.to_owned(), generation: 0, parked, require_exact };
        Ok(self.wait(self.control().seal_workspace(request))?.workspace.expect("a workspace"))
    }

    fn unseal(&self) {
        let request = host::UnsealWorkspaceRequest { name: NAME.to_owned(), generation: 0 };
        let answer = self.wait(self.control().unseal_workspace(request)).expect("it may wake");
        assert_eq!(answer.workspace.expect("a workspace").state(), WorkspaceState::Resuming);
    }

    fn open(&self) {
        let mut request =
            Request::new(host::OpenWorkspaceRequest { name: NAME.to_owned(), generation: 0, guest: None });
        request.set_timeout(Duration::from_secs(120));
        let answer = self.wait(self.control().open_workspace(request)).expect("it runs");
        assert_eq!(answer.workspace.expect("a workspace").state(), WorkspaceState::Running);
    }

    /// Frozen, stopped, sealed with the proof demanded. A parked machine stays in memory; of another the monitor is gone.
    fn put_to_rest(&mut self, rest: Rest) -> host::Workspace {
        self.quiesce();
        match rest {
            Rest::Parked => self.machine().pause(),
            Rest::Suspended => {
                let memory = self.memory();
                self.machine.take().expect("the machine is in memory").save(&memory);
            }
        }
        let asleep = self.seal(rest == Rest::Parked, true).expect("the proof holds");
        let seal = asleep.seal.as_ref().expect("a seal");
        assert!(seal.exact, "{asleep:?}");
        assert_eq!(seal.foreign_mount_paths, ["/tmp"]);
        asleep
    }

    /// What follows an Unseal: the machine goes on, and is served from.
    fn wake(&mut self) {
        match &mut self.machine {
            Some(machine) => machine.go_on(),
            None => {
                let mut machine = Machine::from_memory(&self.kit, &self.image(), self.place.path(), &self.memory());
                self.wire.lead_to(machine.port);
                machine.go_on();
                self.machine = Some(machine);
            }
        }
        self.open();
    }

    /// Asks the agent inside to thaw, past the host.
    fn thaw(&self) {
        let request = inside(guest::ThawRequest {});
        self.wait(async { GuestServiceClient::new(self.agent().await).thaw(request).await }).expect("it thaws");
    }

    /// Asks the agent inside for the same change as the host does, past the host.
    fn patch_inside(&self, request: pb::PatchRequest) -> pb::PatchResponse {
        let request = inside(pb::PatchRequest { workspace: GUEST_WORKSPACE.to_owned(), ..request });
        self.wait(async { FilesServiceClient::new(self.agent().await).patch(request).await }).expect("it answers")
    }

    async fn agent(&self) -> Channel {
        let port = self.machine.as_ref().expect("the machine is in memory").port;
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
        endpoint.connect().await.expect("the monitor takes connections")
    }

    fn stat(&self, path: &str) -> Result<pb::StatResponse, Refusal> {
        let request = pb::StatRequest { include_revision: true, ..ask::stat(NAME, path) };
        self.wait(self.files().stat(request))
    }

    fn read(&self, path: &str) -> Result<site::ReadAnswer, Refusal> {
        Ok(self.runtime.block_on(site::read(self.files(), Request::new(ask::read(NAME, path))))?)
    }

    fn list(&self, path: &str) -> Result<site::ListAnswer, Refusal> {
        Ok(self.runtime.block_on(site::list(self.files(), Request::new(ask::list(NAME, path))))?)
    }

    fn search(&self, path: &str, pattern: &str) -> Result<site::SearchAnswer, Refusal> {
        Ok(self.runtime.block_on(site::search(self.files(), Request::new(ask::search(NAME, path, pattern))))?)
    }

    fn patch(&self, request: pb::PatchRequest) -> Result<pb::PatchResponse, Refusal> {
        self.wait(self.files().patch(request))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Parked,
    Suspended,
}

/// A request that shows the machine's token.
fn inside<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(TOKEN_METADATA, TOKEN.parse().expect("a token is ASCII"));
    request
}

/// An ext4 file system that fills a disk of so many MiB, with what lies in a directory.
fn disk(image: &Path, mebibytes: u64, tree: Option<&Path>) {
    fs::File::create(image).and_then(|file| file.set_len(mebibytes << 20)).expect("an image");
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("mke2fs");
    command.env("PATH", path).args(["-q", "-t", "ext4", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    assert!(command.arg(image).status().expect("mke2fs starts").success());
}

/// Numbers, so that no piece is like another; gives its SHA-256.
fn numbers(path: &Path, bytes: u64) -> String {
    let mut file = std::io::BufWriter::new(fs::File::create(path).expect("a file"));
    let mut hash = Sha256::new();
    let mut piece = Vec::with_capacity(1 << 20);
    for begin in (0..bytes).step_by(1 << 20) {
        piece.clear();
        for number in (begin..(begin + (1 << 20)).min(bytes)).step_by(8) {
            piece.extend_from_slice(&number.to_le_bytes());
        }
        hash.update(&piece);
        file.write_all(&piece).expect("a file takes bytes");
    }
    file.flush().expect("a file takes bytes");
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn from_disk(origin: &pb::Origin, generation: i64) {
    assert_eq!((origin.served_from(), origin.consistency()), (ServedFrom::Disk, Consistency::Exact));
    assert_eq!(origin.generation, generation);
}

fn unsynced_text(round: usize, number: usize) -> String {
    format!("round {round} file {number}\n")
}

#[test]
fn a_machine_sleeps_and_wakes_three_times_and_its_disk_tells_what_it_told() {
    let Some(kit) = Kit::find("a real machine that sleeps and wakes") else { return };
    let mut sha256 = String::new();
    let mut rig = Rig::new(kit, |image| {
        let tree = tempfile::tempdir().expect("a temporary directory");
        sha256 = numbers(&tree.path().join("big"), BIG_BYTES);
        disk(image, 1024, Some(tree.path()));
    });
    rig.machine().command("echo secret > /ws/tmp/hidden; mkdir -p /ws/unsynced /ws/src");
    for (round, rest) in [Rest::Parked, Rest::Suspended, Rest::Suspended].into_iter().enumerate() {
        let began = Instant::now();
        // Awake: written, patched, searched.
        let path = format!("/src/round-{round}.txt");
        let text = format!("one TODO-{round}\ntwo\n");
        let start = pb::WriteStart { create_parents: true, ..ask::write(NAME, &path) };
        let finish = pb::WriteFinish { size_bytes: text.len() as i64, crc32c: None };
        let messages = site::write_messages(start, vec![text.into()], Some(finish));
        let written = rig.wait(rig.files().write(tokio_stream::iter(messages))).expect("it is written");
        let patch =
            pb::PatchRequest { expected_revision: Some(written.revision), ..ask::patch(NAME, &path, "two", "2") };
        let patched = rig.patch(patch).expect("it is patched");
        let found = rig.search("/src", &format!("TODO-{round}")).expect("it is searched");
        assert_eq!((found.paths(), found.origin.served_from()), (vec![path.as_str()], ServedFrom::Workspace));
        // A program beside the agent writes, and syncs nothing.
        rig.machine().command(&format!(
            "i=0; while [ $i -lt {UNSYNCED_COUNT} ]; do echo round {round} file $i > /ws/unsynced/$i; i=$((i+1)); done"
        ));

        let asleep = rig.put_to_rest(rest);
        eprintln!("round {round}: {rest:?} after {:?}", began.elapsed());
        let stat = rig.stat(&path).expect("it sleeps and answers");
        assert_eq!(stat.file.expect("a file").revision, Some(patched.revision.clone()));
        from_disk(&stat.origin.expect("an origin"), asleep.generation);
        let read = rig.read(&path).expect("it sleeps and answers");
        assert_eq!(read.bytes, format!("one TODO-{round}\n2\n").into_bytes());
        assert_eq!(revision_of(&read.bytes), patched.revision);
        from_disk(&read.origin, asleep.generation);
        let found = rig.search("/src", "TODO-").expect("it sleeps and answers");
        assert_eq!(found.matches.len(), round + 1);
        from_disk(&found.origin, asleep.generation);
        let listed = rig.list("/unsynced").expect("it sleeps and answers");
        assert_eq!(listed.entries.len(), UNSYNCED_COUNT);
        from_disk(&listed.origin, asleep.generation);
        for number in 0..UNSYNCED_COUNT {
            let read = rig.read(&format!("/unsynced/{number}")).expect("it sleeps and answers");
            assert_eq!(read.bytes, unsynced_text(round, number).into_bytes());
            from_disk(&read.origin, asleep.generation);
        }
        // What lies on another file system of the machine, and what lies nowhere.
        rig.stat("/tmp/hidden").expect_err("it is in memory").expect(ErrorReason::OfflineUnavailable);
        rig.stat("/tmp/none").expect_err("nobody knows").expect(ErrorReason::OfflineUnavailable);
        rig.search("/", "secret").expect_err("it would pass there").expect(ErrorReason::OfflineUnavailable);
        rig.stat("/none").expect_err("it is nowhere").expect(ErrorReason::FileNotFound);
        rig.stat("/.dormouse").expect_err("it is the agent's own").expect(ErrorReason::FileNotFound);
        let state = if rest == Rest::Parked { "parked" } else { "suspended" };
        let refused = rig.patch(ask::patch(NAME, &path, "2", "3")).expect_err("it sleeps");
        refused.expect(ErrorReason::WorkspaceNotRunning).with("state", state);

        if round == 2 {
            wakes_under_a_read(&mut rig, &sha256, asleep.generation);
        } else {
            rig.unseal();
            rig.stat(&path).expect_err("it wakes").expect(ErrorReason::OfflineChanged);
            rig.wake();
        }
        let stat = rig.stat(&path).expect("it runs");
        assert_eq!(stat.file.expect("a file").revision, Some(patched.revision));
        assert_eq!(stat.origin.expect("an origin").served_from(), ServedFrom::Workspace);
        assert_eq!(rig.read("/tmp/hidden").map(|read| read.bytes).ok(), None, "the agent stays on its file system");
        eprintln!("round {round}: over after {:?}", began.elapsed());
    }
}

/// A Read of a large file is under way when the machine wakes: it ends as changed, and goes on where it was, from there.
fn wakes_under_a_read(rig: &mut Rig, sha256: &str, generation: i64) {
    let mut files = rig.files();
    let mut hash = Sha256::new();
    let (etag, mut offset) = rig.runtime.block_on(async {
        let mut control = rig.world.host().await;
        let mut stream = files.read(ask::read(NAME, "/big")).await.expect("it begins").into_inner();
        let first = stream.message().await.expect("it goes on").expect("a header");
        from_disk(&first.origin.expect("an origin"), generation);
        let etag = first.file.expect("a file").etag;
        let mut offset = first.data.len();
        hash.update(&first.data);
        while offset < BIG_BYTES_BEFORE {
            let message = stream.message().await.expect("it goes on").expect("there is more");
            hash.update(&message.data);
            offset += message.data.len();
        }
        let request = host::UnsealWorkspaceRequest { name: NAME.to_owned(), generation: 0 };
        control.unseal_workspace(request).await.expect("it may wake");
        let unsealed = Instant::now();
        let mut late = 0;
        let status = loop {
            match stream.message().await {
                Ok(Some(message)) => {
                    assert!(message.end.is_none(), "what has moved on is not complete");
                    hash.update(&message.data);
                    offset += message.data.len();
                    late += message.data.len();
                }
                Ok(None) => panic!("a stream without an end that ends well"),
                Err(status) => break status,
            }
        };
        let after = unsealed.elapsed();
        Refusal::from(status).expect(ErrorReason::OfflineChanged);
        eprintln!("a Read under way ends {after:?} after the Unseal, with {late} bytes that were on their way");
        // What was sent before the fence and waited in the windows of the connection, never the rest of the file.
        assert!(late <= 16 << 20, "{late} bytes came after the Unseal");
        (etag, offset)
    });
    rig.wake();
    let began = Instant::now();
    let before = offset;
    rig.runtime.block_on(async {
        let request = pb::ReadRequest {
            expected_etag: Some(etag),
            ..ask::bytes(NAME, "/big", offset as i64, BIG_BYTES as i64 - offset as i64)
        };
        let mut stream = files.read(request).await.expect("the etag is the same").into_inner();
        while let Some(message) = stream.message().await.expect("it goes on") {
            if let Some(origin) = message.origin {
                assert_eq!(origin.served_from(), ServedFrom::Workspace);
            }
            assert!(message.data.is_empty() || message.offset == offset as i64);
            hash.update(&message.data);
            offset += message.data.len();
        }
    });
    eprintln!("{} bytes more from the machine in {:?}", offset - before, began.elapsed());
    assert_eq!(offset as u64, BIG_BYTES);
    assert_eq!(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>(), sha256);
}

#[test]
fn a_machine_that_only_stopped_is_not_believed_and_its_cut_patch_is_found_again() {
    let Some(kit) = Kit::find("a real machine that stops without a freeze") else { return };
    let mut rig = Rig::new(kit, |image| disk(image, 256, None));
    // Nothing is committed but what a sync commits.
    rig.machine().command("mount -o remount,commit=900 /ws");
    let synced = rig.patch(ask::content(NAME, "/synced", "synced\n")).expect("it is written");
    rig.patch(ask::content(NAME, "/f", "one one\n")).expect("it is written");
    // A patch whose answer is still on its way when the machine stops.
    rig.wire.swallow(true);
    let cut = pb::PatchRequest {
        change: Some(pb::patch_request::Change::Edits(pb::EditList {
            edits: vec![pb::Edit { replace_all: true, ..ask::edit("one", "one one") }],
        })),
        ..ask::edits(NAME, "/f", Vec::new())
    };
    let mut files = rig.files();
    let answer = rig.runtime.spawn({
        let cut = cut.clone();
        async move { files.patch(cut).await }
    });
    rig.machine().command("until grep -q 'one one one one' /ws/f; do :; done");
    // Past the host: the agent inside is through with it, the last flush of its journal included.
    let done = rig.patch_inside(cut.clone());
    assert!(done.replayed, "{done:?}");
    rig.machine().command("echo unsynced > /ws/unsynced; echo new > /ws/synced.new; mv /ws/synced.new /ws/synced");
    rig.machine().pause();
    // Its connections end with it, as those of a monitor that exits.
    rig.wire.cut();
    rig.wire.swallow(false);
    let lost = rig.runtime.block_on(answer).expect("the call ends").expect_err("it is cut off");
    Refusal::from(lost).expect(ErrorReason::GuestUnreachable).with("workspace", NAME);

    let refused = rig.seal(true, true).expect_err("nothing froze");
    refused.expect(ErrorReason::NotQuiesced).with("what", "needs_recovery");
    let asleep = rig.seal(true, false).expect("it has stopped");
    assert_eq!(asleep.state(), WorkspaceState::Parked);
    assert!(asleep.seal.is_some_and(|seal| !seal.exact) && !asleep.note.is_empty(), "{}", asleep.note);
    rig.stat("/synced").expect_err("nothing is proved").expect(ErrorReason::OfflineUnavailable);
    rig.stat("/none").expect_err("nothing is proved").expect(ErrorReason::OfflineUnavailable);
    rig.patch(ask::content(NAME, "/g", "g")).expect_err("it sleeps").expect(ErrorReason::WorkspaceNotRunning);

    // Another host, whose operator lets it answer with what the journal holds.
    let copy = rig.place.path().join("roots/copy.img");
    fs::copy(rig.image(), &copy).expect("a copy of the disk");
    let believing = Setup::new().config("[offline]\nserve_unsealed = \"crash\"\n").disk("crashed", &copy).start();
    let files = rig.runtime.block_on(believing.files());
    let stat = |path: &str| {
        let request = pb::StatRequest { include_revision: true, ..ask::stat("crashed", path) };
        rig.wait(files.clone().stat(request))
    };
    let found = stat("/synced").expect("the journal holds it");
    assert_eq!(found.file.expect("a file").revision, Some(synced.revision));
    let origin = found.origin.expect("an origin");
    assert_eq!((origin.served_from(), origin.consistency()), (ServedFrom::Disk, Consistency::Crash));
    stat("/unsynced").expect_err("nobody synced it").expect(ErrorReason::FileNotFound);
    let request = Request::new(ask::read("crashed", "/f"));
    let read = rig.runtime.block_on(site::read(files.clone(), request)).expect("the journal holds it");
    assert_eq!(read.bytes, b"one one one one\n");
    let request = Request::new(ask::list("crashed", "/"));
    let listed = rig.runtime.block_on(site::list(files.clone(), request)).expect("an answer");
    let names: Vec<_> = listed.paths().into_iter().filter(|path| *path != "/lost+found").collect();
    assert_eq!((names, listed.origin.consistency()), (vec!["/f", "/synced", "/tmp"], Consistency::Crash));
    drop(believing);

    rig.unseal();
    rig.wake();
    let again = rig.patch(cut).expect("its key is known");
    assert!(again.replayed && again.replacements == 2, "{again:?}");
    assert_eq!(rig.read("/f").expect("it runs").bytes, b"one one one one\n", "applied once");
    assert_eq!(rig.read("/unsynced").expect("it runs").bytes, b"unsynced\n");
    // The freeze that nobody missed then: now the proof holds.
    rig.put_to_rest(Rest::Parked);
    assert_eq!(rig.read("/synced").expect("it sleeps and answers").bytes, b"new\n");
    // It goes on behind the host's back: the disk has moved, and nothing more is said of it.
    rig.machine().go_on();
    rig.thaw();
    rig.machine().command("echo more > /ws/more; sync");
    let refused = rig.stat("/more").expect_err("the disk was written");
    assert!(matches!(refused.reason, ErrorReason::OfflineChanged | ErrorReason::WorkspaceQuarantined), "{refused:?}");
    rig.stat("/more").expect_err("an operator must look").expect(ErrorReason::WorkspaceQuarantined);
}
