//! The table of states and calls: what each call on files and each transition is answered in each state, every cell of it.

use std::{cell::Cell, fs, os::unix::fs::MetadataExt as _, time::Duration};

use dormouse_proto::{
    files::v1::{self as pb, ErrorReason as R, ReadSource},
    host::v1::WorkspaceState as S,
};
use dormouse_tests::{ask, refusal::Refusal, site};

use super::rig::Rig;

const LONG: Duration = Duration::from_secs(60);
const STATES: [S; 6] = [S::Running, S::Quiescing, S::Parked, S::Suspended, S::Resuming, S::Quarantined];
const READS: [&str; 4] = ["stat", "read", "list", "search"];
const CHANGES: [&str; 5] = ["patch", "write", "remove", "move", "make directory"];
const TRANSITIONS: [&str; 6] = ["quiesce", "seal", "unseal", "open", "suspend", "resume"];

/// A read's row: without a wish, of the workspace alone, of the disk alone.
fn read_row(state: S) -> [Result<(), R>; 3] {
    match state {
        S::Running | S::Quiescing => [Ok(()), Ok(()), Err(R::WrongState)],
        S::Parked | S::Suspended => [Ok(()), Err(R::WorkspaceNotRunning), Ok(())],
        S::Resuming => [Err(R::OfflineChanged); 3],
        _ => [Err(R::WorkspaceQuarantined); 3],
    }
}

fn change_row(state: S) -> Result<(), R> {
    match state {
        S::Running => Ok(()),
        S::Quiescing | S::Resuming => Err(R::WorkspaceInTransition),
        S::Parked | S::Suspended => Err(R::WorkspaceNotRunning),
        _ => Err(R::WorkspaceQuarantined),
    }
}

/// A transition's row, in the order of [`TRANSITIONS`]: where it leads. A call without a generation whose target state holds
/// is answered as done.
fn transition_row(state: S) -> [Result<S, R>; 6] {
    const NO: Result<S, R> = Err(R::WrongState);
    match state {
        S::Running => [Ok(S::Quiescing), Ok(S::Suspended), NO, Ok(S::Running), Ok(S::Suspended), Ok(S::Running)],
        S::Quiescing => [Ok(S::Quiescing), Ok(S::Suspended), NO, Ok(S::Running), Ok(S::Suspended), Ok(S::Running)],
        S::Parked => [NO, NO, Ok(S::Resuming), NO, NO, Ok(S::Running)],
        S::Suspended => [NO, Ok(S::Suspended), Ok(S::Resuming), NO, Ok(S::Suspended), Ok(S::Running)],
        S::Resuming => [NO, Ok(S::Suspended), Ok(S::Resuming), Ok(S::Running), Ok(S::Suspended), Ok(S::Running)],
        _ => [NO, NO, Ok(S::Resuming), NO, NO, Ok(S::Running)],
    }
}

struct Table {
    rig: Rig,
    next: Cell<usize>,
}

impl Table {
    /// A workspace in this state: a directory, or a machine where only a machine can be in it.
    fn enter(&self, state: S) -> String {
        self.next.set(self.next.get() + 1);
        let name = format!("t/{}", self.next.get());
        let rig = &self.rig;
        if state == S::Quarantined {
            let image = rig.image(&name.replace('/', "-"));
            rig.machine(&name, &image, "g", S::Suspended);
            rig.read(&name, "/a").expect("it sleeps and answers");
            // A monitor that writes it: the superblock's time of the last mount, and the file's own.
            use std::os::unix::fs::FileExt as _;
            let file = fs::File::options().write(true).open(&image).expect("a disk");
            file.write_all_at(b"\x01\x02\x03\x04", 1024 + 0x2c).expect("it is written");
            assert!(file.metadata().expect("a disk").size() > 0);
            rig.read(&name, "/a").expect_err("its disk was written").expect(R::OfflineChanged);
        } else {
            rig.directory(&name);
            match state {
                S::Quiescing => drop(rig.quiesce(&name, LONG).expect("it quiesces")),
                S::Parked => drop(rig.seal_at(&name, 0, true, true).expect("it is parked")),
                S::Suspended => drop(rig.seal(&name, true).expect("it sleeps")),
                S::Resuming => {
                    rig.seal(&name, true).expect("it sleeps");
                    rig.unseal(&name).expect("it may wake");
                }
                _ => {}
            }
        }
        assert_eq!(rig.get(&name).state(), state);
        name
    }

    fn read(&self, call: &str, name: &str, source: ReadSource) -> Result<(), Refusal> {
        let (rig, source) = (&self.rig, source as i32);
        match call {
            "stat" => rig.wait(rig.files().stat(pb::StatRequest { source, ..ask::stat(name, "/a") })).map(drop),
            "read" => {
                let request = tonic::Request::new(pb::ReadRequest { source, ..ask::read(name, "/a") });
                Ok(rig.runtime.block_on(site::read(rig.files(), request)).map(drop)?)
            }
            "list" => rig.list(pb::ListRequest { source, ..ask::list(name, "/") }).map(drop),
            _ => rig.search(pb::SearchRequest { source, ..ask::search(name, "/", "TODO") }).map(drop),
        }
    }

    fn change(&self, call: &str, name: &str) -> Result<(), Refusal> {
        let rig = &self.rig;
        let mut files = rig.files();
        match call {
            "patch" => rig.wait(files.patch(ask::content(name, "/new", "new"))).map(drop),
            "write" => {
                let finish = pb::WriteFinish { size_bytes: 3, crc32c: None };
                let messages = site::write_messages(ask::write(name, "/written"), vec!["new".into()], Some(finish));
                rig.wait(files.write(tokio_stream::iter(messages))).map(drop)
            }
            "move" => rig.wait(files.r#move(ask::rename(name, "/a", "/b"))).map(drop),
            "make directory" => rig.wait(files.make_directory(ask::make_directory(name, "/d"))).map(drop),
            _ => rig.wait(files.remove(ask::remove(name, "/a"))).map(drop),
        }
    }

    fn transition(&self, call: &str, name: &str) -> Result<S, Refusal> {
        let rig = &self.rig;
        let found = match call {
            "quiesce" => rig.quiesce(name, LONG),
            "seal" => rig.seal(name, false),
            "unseal" => rig.unseal(name),
            "open" => rig.open(name, LONG),
            "suspend" => rig.suspend(name),
            _ => rig.resume(name),
        };
        found.map(|workspace| workspace.state())
    }
}

#[test]
fn every_call_in_every_state() {
    let rig = Rig::new("");
    let _guest = rig.guest("g");
    let table = Table { rig, next: Cell::new(0) };
    let mut cells = 0;
    for state in STATES {
        let resting = table.enter(state);
        for call in READS {
            let sources = [ReadSource::Unspecified, ReadSource::Workspace, ReadSource::Disk];
            for (source, expected) in sources.into_iter().zip(read_row(state)) {
                let found = table.read(call, &resting, source).map_err(|refusal| refusal.reason);
                assert_eq!(found, expected, "{call} of {source:?} in {state:?}");
                cells += 1;
            }
        }
        for call in CHANGES {
            let name = if state == S::Running { table.enter(state) } else { resting.clone() };
            let found = table.change(call, &name).map_err(|refusal| refusal.reason);
            assert_eq!(found, change_row(state), "{call} in {state:?}");
            cells += 1;
        }
        for (call, expected) in TRANSITIONS.into_iter().zip(transition_row(state)) {
            let name = if expected.is_ok() { table.enter(state) } else { resting.clone() };
            let found = table.transition(call, &name).map_err(|refusal| refusal.reason);
            assert_eq!(found, expected, "{call} in {state:?}");
            cells += 1;
        }
        assert_eq!(table.rig.get(&resting).state(), state, "what was refused changed nothing");
    }
    assert_eq!(cells, STATES.len() * (READS.len() * 3 + CHANGES.len() + TRANSITIONS.len()));
}
