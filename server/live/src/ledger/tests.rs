//! Keys and records, without any file being changed.

use std::{os::fd::AsFd, sync::Barrier};

use dormouse_files::{
    budget::Unbounded,
    change::{PlaceDone, RemoveDone},
};

use super::*;
use crate::record::{Action, tests::entry};

fn ledger(place: &std::path::Path, settle: impl FnMut(&Intent) -> io::Result<Option<Answer>>) -> Ledger {
    let directory = std::fs::File::open(place).unwrap();
    Ledger::open(directory.as_fd(), &Disk::default(), &LiveLimits::default(), settle).unwrap()
}

fn answer() -> Answer {
    Answer::Place(PlaceDone { entry: entry("/f"), durable: true, replayed: false })
}

fn intent(key: &Key) -> Intent {
    Intent {
        key: key.text().to_owned(),
        request: *key.request(),
        at: now(),
        action: Action::Create,
        parent: TreePath::root(),
        parent_inode: 1,
        name: b"f".to_vec(),
        stage: "s0".to_owned(),
        inode: 2,
        answer: answer(),
    }
}

fn claim<'a>(ledger: &'a Ledger, key: &Key) -> Claim<'a> {
    match ledger.claim(key, &Unbounded).unwrap() {
        Claimed::Fresh(claim) => claim,
        Claimed::Answered(_) => panic!("answered before"),
    }
}

fn key(number: usize) -> Key {
    Key::new(&format!("key-{number}"), [1; 32]).unwrap()
}

#[test]
fn one_flush_serves_all_that_wait() {
    let place = tempfile::tempdir().unwrap();
    let ledger = ledger(place.path(), |_| panic!("nothing to settle"));
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (ledger, barrier) = (&ledger, &barrier);
            scope.spawn(move || {
                let ticket = claim(ledger, &key(number)).done(answer(), &TreePath::root()).unwrap();
                barrier.wait();
                ledger.flush(ticket).unwrap();
                assert!(ledger.flushed() >= ticket);
            });
        }
    });
    assert_eq!(ledger.stats().journal_flushes, 1);
}

#[test]
fn what_has_not_ended_is_settled_once() {
    for outcome in [None, Some(answer())] {
        let place = tempfile::tempdir().unwrap();
        let path = TreePath::root();
        {
            let ledger = ledger(place.path(), |_| panic!("nothing to settle"));
            let mut open = claim(&ledger, &key(0));
            open.intend(intent(&key(0)), &path).unwrap();
            let mut ended = claim(&ledger, &key(1));
            ended.intend(intent(&key(1)), &path).unwrap();
            let ticket = ended.done(answer(), &path).unwrap();
            let mut aborted = claim(&ledger, &key(2));
            aborted.intend(intent(&key(2)), &path).unwrap();
            aborted.abort().unwrap();
            ledger.flush(ticket).unwrap();
        }
        let mut asked = Vec::new();
        let settled = ledger(place.path(), |intent| {
            asked.push(intent.key.clone());
            Ok(outcome.clone())
        });
        assert_eq!(asked, ["key-0"]);
        assert_eq!(settled.peek(&key(0)).unwrap(), outcome);
        assert_eq!(settled.peek(&key(1)).unwrap(), Some(answer()));
        assert_eq!(settled.peek(&key(2)).unwrap(), None);
        drop(settled);
        let again = ledger(place.path(), |_| panic!("it was settled"));
        assert_eq!(again.peek(&key(0)).unwrap(), outcome);
    }
}

#[test]
fn an_answer_outlives_its_journals_generations_and_an_old_key_does_not() {
    let place = tempfile::tempdir().unwrap();
    let path = TreePath::root();
    let removed = Answer::Remove(RemoveDone { previous_revision: None, durable: true, replayed: false });
    {
        let ledger = ledger(place.path(), |_| panic!("nothing to settle"));
        claim(&ledger, &key(0)).done(removed.clone(), &path).unwrap();
        let mut inner = ledger.lock();
        let old = Done { key: "old".into(), request: [1; 32], at: now() - 25 * 60 * 60, answer: answer() };
        inner.keep(old);
        inner.done.rotate_right(1);
        for _ in 0..5 {
            ledger.restart(&mut inner, 0).unwrap();
        }
    }
    let ledger = ledger(place.path(), |_| panic!("nothing to settle"));
    assert_eq!(ledger.peek(&key(0)).unwrap(), Some(removed));
    assert!(ledger.lock().slots.contains_key("old"));
    drop(claim(&ledger, &key(1)));
    assert!(!ledger.lock().slots.contains_key("old"));
    assert!(ledger.peek(&Key::new("key-0", [2; 32]).unwrap()).is_err());
}

/// Whoever flushes waits for an intent that is on its way, and for nobody where none is.
#[test]
fn the_one_who_flushes_gathers() {
    let place = tempfile::tempdir().unwrap();
    let directory = std::fs::File::open(place.path()).unwrap();
    // So long that a wait for nobody would hang the test, and one that is too short would be seen.
    let limits = LiveLimits { gather: Duration::from_secs(3600), ..LiveLimits::default() };
    let ledger = Ledger::open(directory.as_fd(), &Disk::default(), &limits, |_| panic!("nothing to settle")).unwrap();
    let path = TreePath::root();
    claim(&ledger, &key(0)).intend(intent(&key(0)), &path).unwrap();
    assert_eq!(ledger.stats().journal_flushes, 1);
    std::thread::scope(|scope| {
        let mut late = claim(&ledger, &key(1));
        late.begin_staging();
        let mut never = claim(&ledger, &key(2));
        never.begin_staging();
        let (ledger, path) = (&ledger, &path);
        let leader = scope.spawn(move || claim(ledger, &key(3)).intend(intent(&key(3)), path).unwrap());
        while ledger.lock().gather_until == 0 {
            std::thread::yield_now();
        }
        assert_eq!(ledger.stats().journal_flushes, 1);
        drop(never);
        assert!(!leader.is_finished());
        late.intend(intent(&key(1)), path).unwrap();
        leader.join().unwrap();
    });
    assert_eq!((ledger.stats().journal_flushes, ledger.stats().intents), (2, 3));
}

#[test]
fn gathering_has_an_end() {
    let place = tempfile::tempdir().unwrap();
    let ledger = ledger(place.path(), |_| panic!("nothing to settle"));
    let mut never = claim(&ledger, &key(0));
    never.begin_staging();
    claim(&ledger, &key(1)).intend(intent(&key(1)), &TreePath::root()).unwrap();
    assert_eq!(ledger.stats().journal_flushes, 1);
}
