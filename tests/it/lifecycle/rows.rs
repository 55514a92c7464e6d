//! What becomes of a workspace in each scenario that is known. Those that need a machine or its agent are in `machine.rs`
//! and in the tests of the server's package.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use dormouse_proto::{
    files::v1::{self as pb, Consistency, ErrorReason, ServedFrom},
    host::v1::{self as host, WorkspaceState},
};
use dormouse_tests::{ask, image, mount::Mount, skip};
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};

use super::{
    guest::Asked,
    rig::{Rig, root_disk, text},
};

/// Time enough for a step on a slow machine.
const LONG: Duration = Duration::from_secs(60);
const NAME: &str = "vm/one";

/// A sleeping machine with a disk and an agent.
fn asleep(rig: &Rig) -> std::path::PathBuf {
    let image = rig.image("disk");
    let made = rig.machine(NAME, &image, "none", WorkspaceState::Suspended);
    assert!(made.seal.is_some_and(|seal| seal.exact), "{}", made.note);
    check_read(rig);
    image
}

/// It answers from its disk, exactly.
#[track_caller]
fn check_read(rig: &Rig) {
    let read = rig.read(NAME, "/a").expect("it sleeps and answers");
    assert_eq!(read.bytes, b"one TODO\n");
    assert_eq!((read.origin.served_from(), read.origin.consistency()), (ServedFrom::Disk, Consistency::Exact));
}

/// It has been written: told once as changed, from then on as quarantined.
#[track_caller]
fn check_quarantined(rig: &Rig) {
    rig.read(NAME, "/a").expect_err("its disk was written").expect(ErrorReason::OfflineChanged);
    rig.read(NAME, "/a").expect_err("an operator must look").expect(ErrorReason::WorkspaceQuarantined);
    rig.patch(NAME, "/a").expect_err("an operator must look").expect(ErrorReason::WorkspaceQuarantined);
    let found = rig.get(NAME);
    assert_eq!(found.state(), WorkspaceState::Quarantined);
    assert!(!found.note.is_empty());
}

#[track_caller]
fn check_unavailable(rig: &Rig) {
    for path in ["/a", "/none"] {
        rig.stat(NAME, path).expect_err("its disk cannot answer").expect(ErrorReason::OfflineUnavailable);
    }
    assert_eq!(rig.get(NAME).state(), WorkspaceState::Suspended, "it sleeps on");
}

fn debugfs(image: &Path, request: &str) {
    image::run("debugfs", &["-w", "-R", request], &[image], &[]);
}

fn lock(file: &File, byte: i64) {
    let lock = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).expect("a lock is taken");
}

#[test]
fn a_machine_started_without_an_unseal_by_a_monitor_with_locks_is_quarantined() {
    let mut rig = Rig::new("");
    let image = asleep(&rig);
    let monitor = File::options().read(true).write(true).open(&image).expect("the monitor opens the disk");
    lock(&monitor, 100);
    check_read(&rig);
    lock(&monitor, 101);
    lock(&monitor, 103);
    check_quarantined(&rig);
    drop(monitor);
    rig.read(NAME, "/a").expect_err("an operator must look").expect(ErrorReason::WorkspaceQuarantined);
    rig.restart();
    rig.read(NAME, "/a").expect_err("nor does a restart help").expect(ErrorReason::WorkspaceQuarantined);
    // The way out.
    assert_eq!(rig.unseal(NAME).expect("it leads out").state(), WorkspaceState::Resuming);
    rig.seal(NAME, true).expect("the proof holds");
    check_read(&rig);
}

#[test]
fn a_machine_started_without_an_unseal_by_a_monitor_without_locks_is_quarantined_once_it_writes() {
    let rig = Rig::new("");
    let image = asleep(&rig);
    let monitor = File::options().read(true).write(true).open(&image).expect("the monitor opens the disk");
    check_read(&rig);
    drop(monitor);
    debugfs(&image, "mkdir /new");
    debugfs(&image, "feature needs_recovery");
    check_quarantined(&rig);
}

#[test]
fn an_agent_that_restarts_while_it_sleeps_verifies_the_seal_again() {
    let mut rig = Rig::new("");
    let image = asleep(&rig);
    rig.restart();
    check_read(&rig);
    rig.kill();
    debugfs(&image, "mkdir /new");
    debugfs(&image, "feature needs_recovery");
    rig.start_again();
    check_quarantined(&rig);
}

#[test]
fn killed_while_it_quiesces_an_open_thaws_it() {
    let mut rig = Rig::new("");
    let guest = rig.guest("g");
    rig.machine(NAME, &rig.image("disk"), "g", WorkspaceState::Running);
    rig.quiesce(NAME, LONG).expect("it freezes");
    rig.kill();
    rig.start_again();
    assert_eq!(rig.get(NAME).state(), WorkspaceState::Quiescing);
    rig.patch(NAME, "/a").expect_err("it is frozen").expect(ErrorReason::WorkspaceInTransition);
    assert_eq!(rig.open(NAME, LONG).expect("it goes on").state(), WorkspaceState::Running);
    assert_eq!(guest.asked().last(), Some(&Asked::Thaw));
}

#[test]
fn killed_between_the_seals_record_and_its_answer_the_replay_has_the_recorded_seal() {
    let mut rig = Rig::new("");
    rig.machine(NAME, &rig.image("disk"), "none", WorkspaceState::Running);
    let record = fs::read_dir(rig.at("state/workspaces")).expect("records").next().expect("one").expect("one").path();
    let text = || fs::read_to_string(&record).unwrap_or_default();
    let mut control = rig.control();
    let request =
        host::SealWorkspaceRequest { name: NAME.to_owned(), generation: 5, parked: false, require_exact: true };
    let call = rig.runtime.spawn(async move { control.seal_workspace(request).await });
    let began = Instant::now();
    while !text().contains("\"suspended\"") {
        assert!(began.elapsed() < LONG, "{}", text());
        std::thread::yield_now();
    }
    rig.kill();
    // It may have been answered all the same.
    let _ = rig.runtime.block_on(call);
    let kept: serde_json::Value = serde_json::from_str(&text()).expect("a record");
    rig.start_again();
    let replayed = rig.seal_at(NAME, 5, false, true).expect("it is done");
    let seal = replayed.seal.expect("a seal");
    assert_eq!(seal.superblock_sha256, kept["seal"]["superblock_sha256"].as_str().expect("a seal"));
    let time = seal.seal_time.expect("a time");
    assert_eq!(time.seconds, kept["seal"]["seal_time"]["seconds"].as_i64().expect("a time"));
    assert_eq!(i64::from(time.nanos), kept["seal"]["seal_time"]["nanoseconds"].as_i64().expect("a time"));
    assert_eq!(replayed.generation, 5);
    check_read(&rig);
}

#[test]
fn a_freeze_that_is_over_its_time_fails_and_it_runs_again() {
    let rig = Rig::new("");
    let guest = rig.guest("g");
    rig.machine(NAME, &rig.image("disk"), "g", WorkspaceState::Running);
    guest.silent(&[Asked::Freeze]);
    let refusal = rig.quiesce(NAME, Duration::from_secs(3)).expect_err("no freeze comes");
    refusal.expect(ErrorReason::GuestUnreachable);
    assert_eq!(rig.get(NAME).state(), WorkspaceState::Running);
    assert_eq!(guest.asked(), [Asked::Freeze, Asked::Thaw], "whatever froze unheard goes on");
    guest.silent(&[]);
    rig.quiesce(NAME, LONG).expect("it freezes");
}

#[test]
fn thawed_between_its_freeze_and_its_stop_it_is_suspended_and_not_exact() {
    let rig = Rig::new("");
    let _guest = rig.guest("g");
    let image = rig.image("disk");
    rig.machine(NAME, &image, "g", WorkspaceState::Running);
    rig.quiesce(NAME, LONG).expect("it freezes");
    debugfs(&image, "feature needs_recovery");
    let refusal = rig.seal(NAME, true).expect_err("it was thawed");
    refusal.expect(ErrorReason::NotQuiesced).with("what", "needs_recovery");
    assert_eq!(rig.get(NAME).state(), WorkspaceState::Quiescing, "what was refused changed nothing");
    let asleep = rig.seal(NAME, false).expect("it has stopped");
    assert!(asleep.seal.is_some_and(|seal| !seal.exact) && !asleep.note.is_empty());
    check_unavailable(&rig);
}

#[test]
fn stopped_without_a_freeze_it_is_suspended_and_read_as_the_policy_says() {
    for policy in ["never", "crash"] {
        let rig = Rig::new(match policy {
            "never" => "",
            _ => "[offline]\nserve_unsealed = \"crash\"\n",
        });
        let image = rig.image("disk");
        rig.machine(NAME, &image, "none", WorkspaceState::Running);
        debugfs(&image, "feature needs_recovery");
        assert_eq!(rig.seal(NAME, false).expect("it has stopped").state(), WorkspaceState::Suspended);
        match policy {
            "never" => check_unavailable(&rig),
            _ => {
                let read = rig.read(NAME, "/a").expect("the policy lets it");
                assert_eq!(read.bytes, b"one TODO\n");
                let origin = read.origin;
                assert_eq!((origin.served_from(), origin.consistency()), (ServedFrom::Disk, Consistency::Crash));
            }
        }
        let refusal = rig.patch(NAME, "/a").expect_err("it sleeps");
        refusal.expect(ErrorReason::WorkspaceNotRunning).with("state", "suspended");
    }
}

#[test]
fn a_resume_that_failed_is_sealed_again() {
    let rig = Rig::new("");
    asleep(&rig);
    let before = rig.unseal(NAME).expect("it may wake");
    rig.read(NAME, "/a").expect_err("it wakes").expect(ErrorReason::OfflineChanged);
    let again = rig.seal(NAME, true).expect("its machine did not start");
    assert_eq!((again.state(), again.generation), (WorkspaceState::Suspended, before.generation + 1));
    check_read(&rig);
}

#[test]
fn what_lies_on_another_file_system_is_unavailable_and_never_missing() {
    let rig = Rig::new("");
    let guest = rig.guest("g");
    let home = host::Disk { mount_path: "/home".to_owned(), ..root_disk(&rig.image("home")) };
    let disks = vec![root_disk(&rig.image("disk")), home];
    rig.try_machine(NAME, disks, Some("g"), WorkspaceState::Running).expect("it is registered");
    guest.mount("/tmp", "tmpfs", "");
    rig.suspend(NAME).expect("it sleeps");
    assert_eq!(rig.get(NAME).seal.expect("a seal").foreign_mount_paths, ["/home", "/tmp"]);
    check_read(&rig);
    for path in ["/tmp", "/tmp/below", "/tmp/none", "/home", "/home/below", "/home/none"] {
        rig.stat(NAME, path).expect_err("another disk holds it").expect(ErrorReason::OfflineUnavailable);
        rig.read(NAME, path).expect_err("another disk holds it").expect(ErrorReason::OfflineUnavailable);
        rig.list(ask::list(NAME, path)).expect_err("another disk holds it").expect(ErrorReason::OfflineUnavailable);
    }
    let deep = pb::ListRequest { depth: Some(3), ..ask::list(NAME, "/") };
    rig.list(deep).expect_err("it would pass there").expect(ErrorReason::OfflineUnavailable);
    let whole = rig.search(ask::search(NAME, "/", "TODO"));
    whole.expect_err("it would pass there").expect(ErrorReason::OfflineUnavailable);
    rig.stat(NAME, "/none").expect_err("it is nowhere").expect(ErrorReason::FileNotFound);
}

#[test]
fn a_chmod_or_a_hard_link_of_its_disk_changes_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let rig = Rig::new("");
    let image = asleep(&rig);
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).expect("a mode");
    check_read(&rig);
    fs::hard_link(&image, image.with_extension("link")).expect("a link");
    check_read(&rig);
    assert_eq!(rig.get(NAME).state(), WorkspaceState::Suspended);
}

#[test]
fn a_host_that_rebooted_meanwhile_reads_on() {
    let what = "a disk whose device number is another one";
    let place = tempfile::tempdir().expect("a temporary directory");
    let store = place.path().join("store.img");
    File::create(&store).and_then(|file| file.set_len(64 << 20)).expect("an image");
    image::run("mke2fs", &["-q", "-F", "-t", "ext4"], &[&store], &[]);
    fs::create_dir_all(place.path().join("roots")).expect("a directory");
    let loop_mount = || Mount::make(what, &["-o", "loop", &text(&store)], &place.path().join("roots"));
    let Some(mounted) = loop_mount() else { return };
    // Something that takes the loop device in between, so that the disk comes back on another one.
    let other = place.path().join("other.img");
    fs::copy(&store, &other).expect("an image");
    let (state, roots) = (place.path().join("state"), place.path().join("roots"));
    let device = || std::os::unix::fs::MetadataExt::dev(&fs::metadata(&roots).expect("a directory"));
    let before = device();
    let mut rig = Rig::with_state("", place, state);
    asleep(&rig);
    rig.kill();
    drop(mounted);
    let between = tempfile::tempdir().expect("a temporary directory");
    let taken = Mount::make(what, &["-o", "loop", &text(&other)], between.path());
    let mounted = Mount::make(what, &["-o", "loop", &text(&store)], &rig.at("roots"));
    if device() == before {
        skip::skip(what, "the disk came back under the same number");
    }
    rig.start_again();
    check_read(&rig);
    rig.kill();
    drop((mounted, taken));
}

#[test]
fn a_resume_without_a_thaw_fails_by_its_deadline_and_no_patch_hangs() {
    let rig = Rig::new("");
    let guest = rig.guest("g");
    rig.machine(NAME, &rig.image("disk"), "g", WorkspaceState::Running);
    rig.suspend(NAME).expect("it sleeps");
    rig.unseal(NAME).expect("it may wake");
    guest.silent(&[Asked::Thaw]);
    let refusal = rig.open(NAME, Duration::from_secs(8)).expect_err("it is not thawed");
    refusal.expect(ErrorReason::GuestUnreachable);
    assert_eq!(rig.get(NAME).state(), WorkspaceState::Resuming);
    let refusal = rig.patch(NAME, "/a").expect_err("it is not thawed");
    refusal.expect(ErrorReason::WorkspaceInTransition).with("state", "resuming").with("retryable", "true");
    guest.silent(&[]);
    assert_eq!(rig.open(NAME, LONG).expect("it runs").state(), WorkspaceState::Running);
}

#[test]
fn a_disk_that_vanished_or_was_replaced_or_shrank_is_unavailable() {
    let rig = Rig::new("");
    let image = asleep(&rig);
    let away = image.with_extension("away");
    // An unlinked file is never served, though the agent may have it open.
    fs::rename(&image, &away).expect("it goes");
    check_unavailable(&rig);
    assert!(!rig.get(NAME).note.is_empty(), "the control plane is told why");
    fs::copy(&away, &image).expect("another one comes");
    check_unavailable(&rig);
    fs::rename(&away, &image).expect("it comes back");
    check_read(&rig);
    assert_eq!(rig.get(NAME).note, "");
    let file = File::options().write(true).open(&image).expect("a disk");
    let bytes = file.metadata().expect("a disk").len();
    file.set_len(bytes / 2).expect("it shrinks");
    check_unavailable(&rig);
    file.set_len(bytes).expect("it grows");
    check_unavailable(&rig);
}

#[test]
fn a_file_system_that_is_not_read_here_seals_with_a_note() {
    let rig = Rig::new("");
    let image = rig.at("roots/disk");
    // As a disk that is encrypted looks: nothing in it has a shape.
    let mut state = 1_u64;
    let bytes: Vec<u8> = (0..1_u32 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    fs::write(&image, bytes).expect("a disk");
    rig.machine(NAME, &image, "none", WorkspaceState::Running);
    let asleep = rig.seal(NAME, false).expect("it has stopped");
    assert_eq!(asleep.state(), WorkspaceState::Suspended);
    assert!(!asleep.note.is_empty());
    check_unavailable(&rig);

    let xfs = host::Disk { file_system: host::FileSystem::Xfs as i32, ..root_disk(&rig.image("xfs")) };
    rig.try_machine("vm/xfs", vec![xfs], None, WorkspaceState::Running).expect("it is registered");
    let asleep = rig.seal("vm/xfs", false).expect("it has stopped");
    assert!(asleep.note.contains("xfs"), "{}", asleep.note);
    rig.stat("vm/xfs", "/a").expect_err("it is not read").expect(ErrorReason::OfflineUnavailable);
}

#[test]
fn a_full_state_directory_refuses_transitions_and_reads_go_on() {
    let what = "a state directory that is full";
    let place = tempfile::tempdir().expect("a temporary directory");
    let store = place.path().join("store.img");
    File::create(&store).and_then(|file| file.set_len(4 << 20)).expect("an image");
    image::run("mke2fs", &["-q", "-F", "-t", "ext4", "-m", "0"], &[&store], &[]);
    let state = place.path().join("state");
    fs::create_dir(&state).expect("a directory");
    let Some(mounted) = Mount::make(what, &["-o", "loop", &text(&store)], &state) else { return };
    let mut rig = Rig::with_state("", place, state.clone());
    asleep(&rig);
    let before = rig.get(NAME);
    let filler = state.join("filler");
    let mut file = File::create(&filler).expect("a file");
    // Until not a byte goes in any more.
    for piece in [vec![0_u8; 4096], vec![0_u8; 1]] {
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
    }
    drop(file);
    let refusal = rig.unseal(NAME).expect_err("its record has no room");
    assert_eq!(refusal.code, tonic::Code::ResourceExhausted, "{refusal:?}");
    assert_eq!(rig.get(NAME), before, "it is not published");
    check_read(&rig);
    fs::remove_file(&filler).expect("there is room again");
    rig.unseal(NAME).expect("it may wake");
    rig.kill();
    drop(mounted);
}

#[test]
fn reads_of_a_sleeping_machine_are_nothing_that_a_meter_counts() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let state = place.path().join("state");
    // A resume would run this.
    let rig = Rig::with_state("[hooks]\nresume = [\"/bin/false\"]\n", place, state);
    let guest = rig.guest("g");
    let image = rig.image("disk");
    rig.machine(NAME, &image, "g", WorkspaceState::Running);
    rig.suspend(NAME).expect("it sleeps");
    let (before, asked) = (rig.get(NAME), guest.asked());
    let stamp = |path: &Path| {
        let meta = fs::metadata(path).expect("a disk");
        use std::os::unix::fs::MetadataExt as _;
        (meta.modified().expect("a time"), meta.ctime(), meta.ctime_nsec(), meta.len())
    };
    let disk = stamp(&image);
    for _ in 0..25 {
        check_read(&rig);
        rig.stat(NAME, "/a").expect("it sleeps and answers");
        rig.list(ask::list(NAME, "/")).expect("it sleeps and answers");
        rig.search(ask::search(NAME, "/", "TODO")).expect("it sleeps and answers");
    }
    assert_eq!(rig.get(NAME), before, "state, generation, times: nothing has moved");
    assert_eq!(guest.asked(), asked, "no word went to the machine");
    assert_eq!(stamp(&image), disk, "nor to its disk");
}

#[test]
fn what_a_spec_must_not_name_is_refused_with_its_field() {
    let rig = Rig::new("");
    let image = rig.image("disk");
    let outside = rig.at("outside.img");
    fs::copy(&image, &outside).expect("a disk");
    let link = rig.at("roots/link");
    std::os::unix::fs::symlink(&outside, &link).expect("a link");
    let check = |disk: host::Disk, socket: &str, field: &str, next: &str| {
        let refused = rig.try_machine("vm/bad", vec![disk], Some(socket), WorkspaceState::Running);
        let refusal = refused.expect_err(field).expect(ErrorReason::InvalidRequest).with("field", field);
        assert!(refusal.message.contains(next), "{refusal:?}");
    };
    let path = "spec.machine.disks[0].layers[0].path";
    check(root_disk(&outside), "g", path, "roots");
    check(root_disk(&link), "g", path, "roots");
    check(root_disk(&rig.at("roots/../outside.img")), "g", path, "roots");
    check(root_disk(Path::new("../x")), "g", path, "absolute");
    check(root_disk(&rig.at("roots/none")), "g", path, "No such file");
    check(root_disk(&image), "../outside", "spec.machine.guest", "socket_roots");
    let part = |partition| host::Disk { partition: Some(partition), ..root_disk(&image) };
    let (number, guid) = ("spec.machine.disks[0].partition_number", "spec.machine.disks[0].partition_guid");
    check(part(host::disk::Partition::PartitionNumber(0)), "g", number, "numbered from 1");
    check(part(host::disk::Partition::PartitionNumber(7)), "g", number, "partition");
    check(part(host::disk::Partition::PartitionGuid("x".to_owned())), "g", guid, "partition");
    check(
        host::Disk { mount_path: "home".to_owned(), ..root_disk(&image) },
        "g",
        "spec.machine.disks[0].mount_path",
        "",
    );
    check(host::Disk { layers: Vec::new(), ..root_disk(&image) }, "g", "spec.machine.disks[0].layers", "");
    rig.machine("vm/first", &image, "g", WorkspaceState::Suspended);
    fs::hard_link(&image, rig.at("roots/same")).expect("a link");
    check(root_disk(&image), "g", "spec.machine.disks", "vm/first");
    check(root_disk(&rig.at("roots/same")), "g", "spec.machine.disks", "vm/first");
    let refused = rig.suspend("nobody/here").expect_err("there is none");
    refused.expect(ErrorReason::WorkspaceNotFound);
    let request = host::SuspendWorkspaceRequest { name: "nobody/here".to_owned(), generation: -1, parked: false };
    let refusal = rig.wait(rig.control().suspend_workspace(request)).expect_err("no generation is below zero");
    refusal.expect(ErrorReason::InvalidRequest).with("field", "generation");
}

#[test]
fn a_machine_without_an_agent_is_read_and_never_said_to_run() {
    let rig = Rig::new("");
    let image = rig.image("disk");
    rig.try_machine(NAME, vec![root_disk(&image)], None, WorkspaceState::Suspended).expect("it is registered");
    let before = rig.get(NAME);
    let refusal = rig.resume(NAME).expect_err("nothing could answer");
    refusal.expect(ErrorReason::InvalidRequest).with("field", "spec.machine.guest");
    assert_eq!(rig.get(NAME), before, "nothing was begun");
    check_read(&rig);
    rig.unseal(NAME).expect("its machine may start");
    rig.open(NAME, LONG).expect_err("nothing could answer").expect(ErrorReason::InvalidRequest);
    // A control plane that knows the agent by now.
    let guest = rig.guest("g");
    let address = Some(host::guest::Address::UnixPath(text(&rig.at("sockets/g"))));
    let request = host::OpenWorkspaceRequest {
        name: NAME.to_owned(),
        generation: 0,
        guest: Some(host::Guest { address, ..Default::default() }),
    };
    rig.wait(rig.control().open_workspace(request)).expect("it runs");
    assert_eq!(guest.asked(), [Asked::GetGuest, Asked::Thaw]);
}
