//! Somebody in the workspace works against the agent: no byte outside the root is read, changed or created.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dormouse_proto::files::v1::{self as pb, ErrorReason};
use dormouse_tests::{
    ask,
    refusal::Refusal,
    site::{self, LIVE, Site, put, snapshot},
};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use tonic::Request;

/// How long the attack goes on.
fn patience() -> Duration {
    Duration::from_secs(if std::env::var_os("DORMOUSE_LONG").is_some() { 60 } else { 5 })
}

#[test]
fn a_link_to_the_root_and_dots_lead_nowhere() {
    let site = Site::live(|root| {
        put(root, "etc/hostname", "inside\n");
        put(root.parent().expect("a parent"), "outside/secret", "outside\n");
        symlink("/", root.join("d")).expect("a link");
        symlink("../outside", root.join("e")).expect("a link");
    });
    let outside = snapshot(&site.place().join("outside"));
    assert_eq!(site.read(ask::read(LIVE, "/d/etc/hostname")).expect("it is inside").bytes, b"inside\n");
    for path in ["/e/secret", "/d/outside/secret"] {
        site.read(ask::read(LIVE, path)).expect_err("it is outside").expect(ErrorReason::FileNotFound);
    }
    for path in ["/../outside/secret", "/d/../../outside/secret", "/etc/../../outside/secret"] {
        site.read(ask::read(LIVE, path)).expect_err("it is outside").expect(ErrorReason::PathOutsideWorkspace);
        let refusal = site.patch(ask::content(LIVE, path, &b"x"[..])).expect_err("it is outside");
        refusal.expect(ErrorReason::PathOutsideWorkspace);
    }
    for path in ["/e/new", "/d/new"] {
        let request = pb::PatchRequest { create_parents: true, ..ask::content(LIVE, path, &b"x"[..]) };
        site.patch(request).expect_err("through a link").expect(ErrorReason::SymlinkRefused);
    }
    assert_eq!(snapshot(&site.place().join("outside")), outside);
}

#[test]
fn a_directory_that_turns_into_a_link_leads_nowhere() {
    let site = Site::live(|root| {
        put(root, "d/file", "inside");
        put(root.parent().expect("a parent"), "outside/file", "outside");
        symlink("../outside", root.join("link")).expect("a link");
    });
    let outside = site.place().join("outside");
    let stop = Arc::new(AtomicBool::new(false));
    let swaps = Arc::new(AtomicU64::new(0));
    let attacker = {
        let (root, stop, swaps) = (site.root.clone(), stop.clone(), swaps.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &root.join("d"), AT_FDCWD, &root.join("link"), RenameFlags::RENAME_EXCHANGE)
                    .expect("the attacker owns the workspace");
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let (done, refused) = site.wait(async {
        let (mut done, mut refused) = (0_u64, 0_u64);
        let begin = Instant::now();
        let mut number = 0_u64;
        while begin.elapsed() < patience() {
            number += 1;
            let files = site.files.clone();
            let read = site::read(files, Request::new(ask::read(LIVE, "/d/file"))).await;
            let search = site::search(site.files.clone(), Request::new(ask::search(LIVE, "/d", "side"))).await;
            let patch = site.files.clone().patch(ask::content(LIVE, "/d/file", &b"inside"[..])).await.map(|_| ());
            let new = pb::PatchRequest {
                create_parents: true,
                ..ask::content(LIVE, &format!("/d/new-{}/file", number % 50), format!("inside {number}"))
            };
            let new = site.files.clone().patch(new).await.map(|_| ());
            let made = site.files.clone().make_directory(ask::make_directory(LIVE, &format!("/d/made-{number}"))).await;
            let removed = site.files.clone().remove(ask::remove(LIVE, &format!("/d/made-{number}"))).await;
            if let Ok(answer) = &read {
                assert_eq!(answer.bytes, b"inside", "a byte from outside");
            }
            if let Ok(answer) = &search {
                assert!(answer.matches.iter().all(|one| one.text.starts_with("inside")), "{answer:?}");
            }
            let answers = [read.map(|_| ()), search.map(|_| ()), patch, new, made.map(|_| ()), removed.map(|_| ())];
            for answer in answers {
                match answer {
                    Ok(()) => done += 1,
                    Err(status) => {
                        let refusal = Refusal::from(status);
                        let fair = [
                            ErrorReason::SymlinkRefused,
                            ErrorReason::FileNotFound,
                            ErrorReason::FileAlreadyExists,
                            ErrorReason::OfflineChanged,
                            ErrorReason::BusyWriter,
                            ErrorReason::NotADirectory,
                        ];
                        assert!(fair.contains(&refusal.reason), "{refusal:?}");
                        refused += 1;
                    }
                }
            }
        }
        (done, refused)
    });
    stop.store(true, Ordering::Relaxed);
    attacker.join().expect("the attacker ends");
    assert!(swaps.load(Ordering::Relaxed) > 100 && done > 20 && refused > 20, "a race: {done} done, {refused} refused");
    assert_eq!(fs::read(outside.join("file")).expect("it is there"), b"outside");
    assert_eq!(snapshot(&outside).len(), 1, "nothing was created outside: {:?}", snapshot(&outside));
}
