//! Patch: what an edit means, what the answer says, who wins, and that nothing is half done.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use dormouse_proto::files::v1::{self as pb, ErrorReason};
use dormouse_tests::{
    ask::{self, edit},
    refusal::Refusal,
    site::{LIVE, Site, put, revision_of, snapshot},
    skip,
};
use tokio::task::JoinSet;

fn at(path: &str, old_text: &str, new_text: &str) -> pb::PatchRequest {
    ask::patch(LIVE, path, old_text, new_text)
}

fn pinned(request: pb::PatchRequest, revision: &str) -> pb::PatchRequest {
    pb::PatchRequest { expected_revision: Some(revision.to_owned()), ..request }
}

fn all(old_text: &str, new_text: &str) -> pb::Edit {
    pb::Edit { replace_all: true, ..edit(old_text, new_text) }
}

/// Asserts what edits make of a content.
#[track_caller]
fn check(site: &Site, before: &[u8], edits: Vec<pb::Edit>, after: &[u8], replacements: i32) {
    put(&site.root, "check", before);
    let answer = site.patch(ask::edits(LIVE, "/check", edits)).expect("it applies");
    assert_eq!(site.content("check").escape_ascii().to_string(), after.escape_ascii().to_string());
    assert_eq!(answer.replacements, replacements);
    assert_eq!(answer.revision, revision_of(after));
}

/// Asserts that a patch is refused and changes nothing at all: no byte, no mode, no time of the file, nothing new beside it.
#[track_caller]
fn check_refused(site: &Site, request: pb::PatchRequest, reason: ErrorReason) -> Refusal {
    let path = site.file(&request.path);
    let stamp = |path: &Path| path.symlink_metadata().ok().map(|meta| (meta.ino(), meta.mtime(), meta.mtime_nsec()));
    let before = (snapshot(&site.root), stamp(&path));
    let refusal = site.patch(request.clone()).map(|answer| panic!("{request:?}: {answer:?}")).expect_err("refused");
    assert_eq!((snapshot(&site.root), stamp(&path)), before, "a refused patch leaves everything alone: {refusal:?}");
    refusal.expect(reason)
}

#[test]
fn an_answer_tells_all_that_was_done() {
    let site = Site::live(|root| put(root, "a", "one two\n"));
    let answer = site.patch(at("/a", "two", "three")).expect("it applies");
    assert_eq!(answer.revision, revision_of(b"one three\n"));
    assert_eq!(answer.previous_revision, Some(revision_of(b"one two\n")));
    assert_eq!((answer.bytes_written, answer.replacements, answer.replayed), (10, 1, false));
    assert!(answer.durable && !answer.replaced_open_file);
    let file = answer.file.expect("the file");
    assert_eq!((file.path.as_str(), file.size_bytes), ("/a", 10));
    assert_eq!(file, site.file_info(LIVE, "/a"), "the file is what a Stat says");
}

#[test]
fn a_created_file_has_no_previous_revision() {
    let site = Site::live(|_| {});
    let answer = site.patch(ask::content(LIVE, "/a", &b"\0any bytes\xff"[..])).expect("it is created");
    assert_eq!((answer.previous_revision, answer.replacements), (None, 0));
    assert_eq!(answer.bytes_written, 11);
    assert_eq!(site.content("/a"), b"\0any bytes\xff");
    let answer = site.patch(ask::content(LIVE, "/a", &b""[..])).expect("it is replaced");
    assert_eq!(answer.previous_revision, Some(revision_of(b"\0any bytes\xff")));
    assert_eq!((answer.revision, answer.bytes_written), (revision_of(b""), 0));
    assert_eq!(site.content("/a"), b"");
}

#[test]
fn an_edit_changes_nothing_but_its_text() {
    let site = Site::live(|_| {});
    check(&site, b"a\r\nb\nc\rd", vec![edit("b", "B")], b"a\r\nB\nc\rd", 1);
    check(&site, b"\xef\xbb\xbfa b", vec![edit("b", "c")], b"\xef\xbb\xbfa c", 1);
    check(&site, b"a\0b", vec![edit("b", "c")], b"a\0c", 1);
    check(&site, b"x\n", vec![edit("x", r"$& \1 %s ${y}")], b"$& \\1 %s ${y}\n", 1);
    check(&site, b"one\r\ntwo\r\n", vec![edit("one\r\ntwo", "1\n2")], b"1\n2\r\n", 1);
    check(&site, b"gone stays", vec![edit("gone ", "")], b"stays", 1);
}

#[test]
fn edits_apply_in_order_to_what_the_earlier_ones_left() {
    let site = Site::live(|_| {});
    check(&site, b"a\n", vec![edit("a", "b"), edit("b", "cc"), edit("cc", "d")], b"d\n", 3);
    check(&site, b"a a\n", vec![all("a", "b"), edit("b b", "b")], b"b\n", 3);
}

#[test]
fn every_occurrence_is_replaced_where_that_edit_says_so() {
    let site = Site::live(|_| {});
    check(&site, b"x y x y x\n", vec![all("x", "xx"), edit("y xx y", "z")], b"xx z xx\n", 4);
    check(&site, b"aaa", vec![all("aa", "b")], b"ba", 1);
    check(&site, b"x x", vec![all("x", "")], b" ", 2);
}

#[test]
fn a_text_that_is_not_there_is_refused_by_its_edit() {
    let site = Site::live(|root| put(root, "a", "one\ntwo\nthree\n"));
    let refusal = check_refused(
        &site,
        ask::edits(LIVE, "/a", vec![edit("one", "1"), edit("twenty", "2")]),
        ErrorReason::EditNoMatch,
    );
    refusal.with("edit_index", "1").with("path", "/a");
    let request = ask::edits(LIVE, "/a", vec![edit("one", "1"), edit("two", "2"), all("four", "4")]);
    check_refused(&site, request, ErrorReason::EditNoMatch).with("edit_index", "2");
    check_refused(&site, at("/a", "one\r\ntwo", "x"), ErrorReason::EditNoMatch).with("cause", "crlf");
    check_refused(&site, at("/a", "2| two\n3| three", "x"), ErrorReason::EditNoMatch)
        .with("cause", "line_number_prefix")
        .with("nearest_line", "2");
    check_refused(&site, at("/a", "one \ntwo", "x"), ErrorReason::EditNoMatch).with("cause", "trailing_whitespace");
    check_refused(&site, at("/a", "  two\n  three", "x"), ErrorReason::EditNoMatch).with("cause", "indentation");
    check_refused(&site, at("/a", "zwei\ndrei", "two\nthree"), ErrorReason::EditNoMatch)
        .with("cause", "already_applied");
}

#[test]
fn a_text_in_two_places_is_refused_with_its_lines() {
    let site = Site::live(|root| {
        put(root, "a", "x\ny x\nx\n");
        put(root, "one-line", "x x\n");
        put(root, "overlap", "aaa");
        put(root, "many", "x\n".repeat(30));
    });
    check_refused(&site, at("/a", "x", "z"), ErrorReason::EditNotUnique)
        .with("edit_index", "0")
        .with("occurrences", "3")
        .with("lines", "1,2,3");
    check_refused(&site, at("/one-line", "x", "z"), ErrorReason::EditNotUnique)
        .with("occurrences", "2")
        .with("lines", "1");
    check_refused(&site, at("/overlap", "aa", "b"), ErrorReason::EditNotUnique).with("occurrences", "2");
    check_refused(&site, at("/many", "x", "z"), ErrorReason::EditNotUnique)
        .with("occurrences", "30")
        .with("lines", "1,2,3,4,5,6,7,8,9,10");
}

#[test]
fn an_edit_of_nothing_or_to_the_same_is_refused() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    for edit in [edit("", "x"), all("", "x"), edit("one", "one"), all("one", "one")] {
        check_refused(&site, ask::edits(LIVE, "/a", vec![edit]), ErrorReason::InvalidRequest);
    }
}

#[test]
fn a_patch_is_edits_or_content_and_at_most_100_edits() {
    let site = Site::live(|root| put(root, "a", "0\n"));
    let neither = pb::PatchRequest { change: None, ..at("/a", "0", "1") };
    check_refused(&site, neither, ErrorReason::InvalidRequest);
    check_refused(&site, ask::edits(LIVE, "/a", vec![]), ErrorReason::InvalidRequest);
    let steps = |count: i32| (0..count).map(|step| edit(&format!("{step}\n"), &format!("{}\n", step + 1))).collect();
    let refusal = check_refused(&site, ask::edits(LIVE, "/a", steps(101)), ErrorReason::InvalidRequest);
    assert!(refusal.message.contains("100"), "the limit is named: {refusal:?}");
    let answer = site.patch(ask::edits(LIVE, "/a", steps(100))).expect("100 are fine");
    assert_eq!((answer.replacements, site.content("/a")), (100, b"100\n".to_vec()));
}

#[test]
fn edits_need_text() {
    let site = Site::live(|root| put(root, "a", b"caf\xe9 one\n"));
    check_refused(&site, at("/a", "one", "two"), ErrorReason::FileNotUtf8).with("offset", "3");
    site.patch(ask::content(LIVE, "/a", &b"caf\xe9"[..])).expect("content may be any bytes");
}

#[test]
fn only_the_expected_revision_is_patched() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let old = revision_of(b"one\n");
    site.patch(pinned(at("/a", "one", "two"), &old)).expect("it is that revision");
    check_refused(&site, pinned(at("/a", "two", "three"), &old), ErrorReason::RevisionMismatch)
        .with("path", "/a")
        .with("expected_revision", &old)
        .with("actual_revision", &revision_of(b"two\n"));
    // Its revision is looked at before its text: what is wrong first is told.
    check_refused(&site, pinned(at("/a", "nowhere", "three"), &old), ErrorReason::RevisionMismatch);
    check_refused(&site, pinned(at("/missing", "a", "b"), &old), ErrorReason::RevisionMismatch)
        .with("actual_revision", "absent");
    check_refused(&site, at("/missing", "a", "b"), ErrorReason::FileNotFound).with("missing", "/missing");
    for bad in ["", "Absent", &old[1..], &old.to_uppercase(), &format!("{old}0")] {
        check_refused(&site, pinned(at("/a", "two", "x"), bad), ErrorReason::InvalidRequest)
            .with("field", "expected_revision");
    }
}

#[test]
fn a_touch_is_no_change_and_a_formatter_is() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let before = site.file_info(LIVE, "/a");
    let second = nix::sys::time::TimeSpec::new(1_800_000_000, 0);
    nix::sys::stat::utimensat(
        nix::fcntl::AT_FDCWD,
        &site.file("/a"),
        &second,
        &second,
        nix::sys::stat::UtimensatFlags::FollowSymlink,
    )
    .expect("a touch");
    let touched = site.file_info(LIVE, "/a");
    assert_ne!(touched.etag, before.etag);
    assert_eq!(touched.revision, before.revision);
    let revision = before.revision.expect("asked for");
    let answer = site.patch(pinned(at("/a", "one", "two"), &revision)).expect("the content is the same");
    put(&site.root, "a", "two;\n");
    check_refused(&site, pinned(at("/a", "two", "three"), &answer.revision), ErrorReason::RevisionMismatch)
        .with("actual_revision", &revision_of(b"two;\n"));
}

#[test]
fn absent_means_that_nothing_is_there() {
    let site = Site::live(|root| {
        put(root, "a", "one\n");
        fs::create_dir(root.join("directory")).expect("a directory");
    });
    let absent = |path: &str| pinned(ask::content(LIVE, path, &b"new"[..]), "absent");
    check_refused(&site, absent("/a"), ErrorReason::RevisionMismatch)
        .with("expected_revision", "absent")
        .with("actual_revision", &revision_of(b"one\n"));
    check_refused(&site, absent("/directory"), ErrorReason::RevisionMismatch);
    check_refused(&site, pinned(at("/a", "one", "two"), "absent"), ErrorReason::InvalidRequest);
    site.patch(absent("/new")).expect("nothing is there");
    assert_eq!(site.content("/new"), b"new");
}

#[test]
fn of_many_who_create_one_wins() {
    let site = Site::live(|_| {});
    let won = site.wait(async {
        let mut calls = JoinSet::new();
        for number in 0..8 {
            let mut files = site.files.clone();
            let request = pinned(ask::content(LIVE, "/a", format!("{number}")), "absent");
            calls.spawn(async move { files.patch(request).await.map(|_| number).map_err(Refusal::from) });
        }
        calls.join_all().await
    });
    let winners: Vec<_> = won.iter().filter_map(|one| one.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1, "{won:?}");
    assert_eq!(site.content("/a"), winners[0].to_string().as_bytes());
    for loser in won.iter().filter_map(|one| one.as_ref().err()) {
        loser.clone().expect(ErrorReason::RevisionMismatch);
    }
}

#[test]
fn six_parallel_patches_are_all_there_unless_each_expects_the_same() {
    let site = Site::live(|root| put(root, "a", "0 1 2 3 4 5\n"));
    let run = |from: &'static str, to: &'static str, revision: Option<String>| {
        site.wait(async {
            let mut calls = JoinSet::new();
            for number in 0..6 {
                let mut files = site.files.clone();
                let request = at("/a", &format!("{from}{number}"), &format!("{to}{number}"));
                let request = pb::PatchRequest { expected_revision: revision.clone(), ..request };
                calls.spawn(async move { files.patch(request).await.map_err(Refusal::from) });
            }
            calls.join_all().await
        })
    };
    for answer in run("", "x", None) {
        answer.expect("each finds its own text");
    }
    assert_eq!(site.content("/a"), b"x0 x1 x2 x3 x4 x5\n");
    let revision = revision_of(&site.content("/a"));
    let answers = run("x", "y", Some(revision.clone()));
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    for refusal in answers.into_iter().filter_map(Result::err) {
        refusal.expect(ErrorReason::RevisionMismatch).with("expected_revision", &revision);
    }
    assert_eq!(site.content("/a").iter().filter(|byte| **byte == b'y').count(), 1);
}

#[test]
fn readers_see_the_old_or_the_new_and_nothing_else() {
    let site = Site::live(|root| put(root, "a", "a".repeat(300_000)));
    let (whole, torn) = site.wait(async {
        let writer = {
            let mut files = site.files.clone();
            tokio::spawn(async move {
                for number in 0..100 {
                    let letter = if number % 2 == 0 { "b" } else { "a" };
                    let request = ask::content(LIVE, "/a", letter.repeat(300_000));
                    files.patch(request).await.expect("it applies");
                }
            })
        };
        let (mut whole, mut torn) = (0, 0);
        while !writer.is_finished() || whole < 100 {
            let mut files = site.files.clone();
            let mut stream = files.read(ask::read(LIVE, "/a")).await.expect("it is there at all times").into_inner();
            let mut bytes = Vec::new();
            while let Some(message) = stream.message().await.expect("it reads on") {
                bytes.extend_from_slice(&message.data);
            }
            if bytes.len() == 300_000 && bytes.iter().all(|byte| *byte == bytes[0]) { whole += 1 } else { torn += 1 }
        }
        writer.await.expect("the writer ends well");
        (whole, torn)
    });
    assert_eq!(torn, 0, "of {} reads", whole + torn);
}

#[test]
fn an_existing_file_keeps_what_it_is() {
    let site = Site::live(|root| {
        put(root, "run.sh", "one\n");
        put(root, "setuid", "one\n");
        if skip::is_root() {
            for name in ["run.sh", "setuid"] {
                std::os::unix::fs::chown(root.join(name), Some(1_000), Some(1_001)).expect("an owner");
            }
        }
        fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::set_permissions(root.join("setuid"), fs::Permissions::from_mode(0o6711)).expect("a mode");
    });
    for (path, mode) in [("/run.sh", 0o755), ("/setuid", 0o6711)] {
        let before = site.file(path).metadata().expect("it is there");
        site.patch(pb::PatchRequest { mode: Some(0o600), ..at(path, "one", "two") }).expect("it applies");
        site.patch(ask::content(LIVE, path, &b"three"[..])).expect("it applies");
        let after = site.file(path).metadata().expect("it is there");
        assert_eq!((after.mode() & 0o7777, after.uid(), after.gid()), (mode, before.uid(), before.gid()), "{path}");
    }
}

#[test]
fn an_existing_file_keeps_its_attributes() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let set =
        std::process::Command::new("setfattr").args(["-n", "user.colour", "-v", "red"]).arg(site.file("/a")).output();
    if !matches!(&set, Ok(output) if output.status.success()) {
        return skip::skip("extended attributes over a patch", &format!("setfattr (Debian package attr): {set:?}"));
    }
    site.patch(at("/a", "one", "two")).expect("it applies");
    let got = std::process::Command::new("getfattr")
        .args(["--only-values", "-n", "user.colour"])
        .arg(site.file("/a"))
        .output()
        .expect("getfattr starts");
    assert_eq!(got.stdout, b"red");
}

#[test]
fn a_hard_link_keeps_the_old_bytes() {
    let site = Site::live(|root| {
        put(root, "a", "one\n");
        fs::hard_link(root.join("a"), root.join("b")).expect("a hard link");
    });
    site.patch(at("/a", "one", "two")).expect("it applies");
    assert_eq!((site.content("/a"), site.content("/b")), (b"two\n".to_vec(), b"one\n".to_vec()));
}

#[test]
fn equal_content_leaves_the_file_alone() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let before = site.file("/a").metadata().expect("it is there");
    let answer = site.patch(ask::content(LIVE, "/a", &b"one\n"[..])).expect("it is so already");
    let after = site.file("/a").metadata().expect("it is there");
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    assert_eq!((answer.bytes_written, answer.durable), (0, true));
    assert_eq!(answer.previous_revision.as_ref(), Some(&answer.revision));
}

#[test]
fn directories_are_made_where_that_is_asked_and_none_is_left_by_a_failure() {
    let site = Site::live(|root| put(root, "file", ""));
    let plain = ask::content(LIVE, "/d/e/f", &b"new"[..]);
    let parents = pb::PatchRequest { create_parents: true, ..plain.clone() };
    check_refused(&site, plain, ErrorReason::FileNotFound).with("path", "/d/e/f").with("missing", "/d");
    // What was refused under a key is remembered with it, so each try has its own.
    let other = pb::PatchRequest { idempotency_key: ask::key(), ..parents.clone() };
    check_refused(&site, pinned(other, &"0".repeat(64)), ErrorReason::RevisionMismatch);
    let edits = pb::PatchRequest { create_parents: true, ..at("/d/e/f", "a", "b") };
    check_refused(&site, edits, ErrorReason::FileNotFound);
    let beneath = pb::PatchRequest { create_parents: true, ..ask::content(LIVE, "/file/x", &b"new"[..]) };
    check_refused(&site, beneath, ErrorReason::NotADirectory);
    let long = format!("/d/e/{}", "n".repeat(256));
    let long = pb::PatchRequest { create_parents: true, ..ask::content(LIVE, &long, &b"new"[..]) };
    check_refused(&site, long, ErrorReason::InvalidRequest).with("field", "path");
    let answer = site.patch(parents).expect("its parents are made");
    assert_eq!(answer.file.expect("the file").path, "/d/e/f");
    for path in ["/d", "/d/e"] {
        assert_eq!(site.file(path).metadata().expect("it is made").mode() & 0o7777, 0o755, "{path}");
    }
}

#[test]
fn to_validate_is_to_answer_and_change_nothing() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let only = |request| pb::PatchRequest { validate_only: true, ..request };
    let before = snapshot(&site.root);
    let request = at("/a", "one", "three");
    let answer = site.patch(only(request.clone())).expect("it would apply");
    assert_eq!((answer.revision, answer.bytes_written, answer.replacements), (revision_of(b"three\n"), 6, 1));
    assert_eq!(answer.previous_revision, Some(revision_of(b"one\n")));
    let new = pb::PatchRequest { create_parents: true, ..ask::content(LIVE, "/d/new", &b"x"[..]) };
    let answer = site.patch(only(new)).expect("it would be created");
    assert_eq!((answer.revision, answer.previous_revision), (revision_of(b"x"), None));
    check_refused(&site, only(at("/a", "two", "x")), ErrorReason::EditNoMatch);
    check_refused(&site, only(pinned(at("/a", "one", "x"), &"0".repeat(64))), ErrorReason::RevisionMismatch);
    assert_eq!(snapshot(&site.root), before);
    // The key is not remembered: the same request is then done for the first time.
    let answer = site.patch(request.clone()).expect("it applies");
    assert!(!answer.replayed);
    // Nor is it read: what was done before is checked afresh.
    check_refused(&site, only(request), ErrorReason::EditNoMatch);
}

#[test]
fn a_key_is_one_change() {
    let site = Site::live(|root| put(root, "a", "x\n"));
    let request = ask::edits(LIVE, "/a", vec![edit("x", "xx")]);
    let first = site.patch(request.clone()).expect("it applies");
    let again = site.patch(request.clone()).expect("the stored answer");
    assert!(!first.replayed && again.replayed);
    assert_eq!(pb::PatchResponse { replayed: false, ..again }, first);
    assert_eq!(site.content("/a"), b"xx\n");
    // Also after somebody else's change.
    put(&site.root, "a", "mine\n");
    let again = site.patch(request.clone()).expect("the stored answer");
    assert_eq!((again.revision, site.content("/a")), (first.revision, b"mine\n".to_vec()));
    let other = pb::PatchRequest { idempotency_key: request.idempotency_key.clone(), ..at("/a", "mine", "yours") };
    check_refused(&site, other, ErrorReason::IdempotencyKeyReused);
    let other = pb::PatchRequest { mode: Some(0o600), ..request.clone() };
    check_refused(&site, other, ErrorReason::IdempotencyKeyReused);
    let other = pb::RemoveRequest { idempotency_key: request.idempotency_key, ..ask::remove(LIVE, "/a") };
    site.remove(other).expect_err("another method is another request").expect(ErrorReason::IdempotencyKeyReused);
}

#[test]
fn the_same_key_from_many_at_once_is_applied_once() {
    let site = Site::live(|root| put(root, "a", "x\n"));
    let request = ask::edits(LIVE, "/a", vec![edit("x", "xx")]);
    let answers = site.wait(async {
        let mut calls = JoinSet::new();
        for _ in 0..8 {
            let (mut files, request) = (site.files.clone(), request.clone());
            calls.spawn(async move { files.patch(request).await.expect("it is one change").into_inner() });
        }
        calls.join_all().await
    });
    assert_eq!(site.content("/a"), b"xx\n");
    assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.revision == revision_of(b"xx\n")));
}

#[test]
fn a_key_is_1_to_64_printable_characters() {
    let site = Site::live(|root| put(root, "a", "x\n"));
    for key in ["", "a b\n", "k\u{e9}y", "\x7f", &"k".repeat(65)] {
        let request = pb::PatchRequest { idempotency_key: key.to_owned(), ..at("/a", "x", "y") };
        check_refused(&site, request, ErrorReason::InvalidRequest).with("field", "idempotency_key");
    }
    let longest = pb::PatchRequest { idempotency_key: "!".repeat(64), ..at("/a", "x", "y") };
    site.patch(longest).expect("64 are fine");
}

#[test]
fn a_link_refuses_a_change_wherever_it_stands() {
    let site = Site::live(|root| {
        put(root, "real/a", "one\n");
        put(root.parent().expect("a parent"), "outside/a", "one\n");
        symlink("real/a", root.join("link")).expect("a link");
        symlink("real", root.join("directory")).expect("a link");
        symlink("nowhere", root.join("dangling")).expect("a link");
        symlink("../outside", root.join("escaping")).expect("a link");
        symlink("../../outside/a", root.join("real/escaping")).expect("a link");
    });
    let outside = snapshot(&site.place().join("outside"));
    for (path, link, resolved) in [
        ("/link", "/link", Some("/real/a")),
        ("/directory/a", "/directory", Some("/real/a")),
        ("/dangling", "/dangling", None),
        ("/escaping/a", "/escaping", None),
        ("/real/escaping", "/real/escaping", None),
    ] {
        for request in [at(path, "one", "two"), ask::content(LIVE, path, &b"two"[..])] {
            let request = pb::PatchRequest { create_parents: true, ..request };
            let refusal = check_refused(&site, request, ErrorReason::SymlinkRefused).with("link", link);
            if let Some(resolved) = resolved {
                refusal.with("resolved_path", resolved);
            } else if path.contains("escaping") {
                assert!(!format!("{refusal:?}").contains("outside"), "nothing outside is named: {refusal:?}");
            }
        }
    }
    check_refused(&site, pinned(ask::content(LIVE, "/dangling", &b""[..]), "absent"), ErrorReason::RevisionMismatch);
    assert_eq!(snapshot(&site.place().join("outside")), outside);
}

#[test]
fn only_a_regular_file_is_patched() {
    let site = Site::live(|root| {
        fs::create_dir(root.join("directory")).expect("a directory");
        nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
    });
    for (path, kind) in [("/directory", "directory"), ("/fifo", "fifo")] {
        check_refused(&site, at(path, "a", "b"), ErrorReason::NotARegularFile).with("type", kind);
        check_refused(&site, ask::content(LIVE, path, &b"b"[..]), ErrorReason::NotARegularFile).with("type", kind);
    }
}

#[test]
fn a_mode_has_permission_bits_only() {
    let site = Site::live(|_| {});
    let with = |path: &str, mode| pb::PatchRequest { mode: Some(mode), ..ask::content(LIVE, path, &b"x"[..]) };
    for mode in [0o1000, 0o4755, 0o100_644, u32::MAX] {
        check_refused(&site, with("/a", mode), ErrorReason::InvalidRequest).with("field", "mode");
    }
    for mode in [0, 0o600, 0o777] {
        let path = format!("/{mode:o}");
        site.patch(with(&path, mode)).expect("it is created");
        assert_eq!(site.file(&path).metadata().expect("it is there").mode() & 0o7777, mode);
    }
}

#[test]
fn content_of_every_size_is_what_is_read_back() {
    let site = Site::live(|_| {});
    for size in [0, 1, (18 << 10) + 1, 1 << 20, (7 << 20) - 4_096] {
        let content: Vec<u8> = (0..size).map(|place: usize| (place * 31 % 251) as u8).collect();
        let answer = site.patch(ask::content(LIVE, "/a", content.clone())).expect("it is written");
        let read = site.read(pb::ReadRequest { include_revision: true, ..ask::read(LIVE, "/a") }).expect("it reads");
        assert_eq!(read.bytes, content);
        assert_eq!(answer.revision, revision_of(&read.bytes));
        assert_eq!(read.end.revision, Some(answer.revision));
        assert_eq!(answer.bytes_written, if size == 0 { 0 } else { size as i64 });
    }
}

#[test]
fn a_patched_file_has_at_most_64_mib_before_and_after() {
    let limit = 64 << 20;
    let site = Site::live(|root| {
        for (name, size) in [("exact", limit), ("more", limit + 1)] {
            put(root, name, [&b"old"[..], &vec![b'x'; size - 3]].concat());
        }
    });
    check_refused(&site, at("/more", "old", "new"), ErrorReason::FileTooLarge)
        .with("path", "/more")
        .with("size_bytes", &(limit + 1).to_string())
        .with("limit_bytes", &limit.to_string());
    let refusal = check_refused(&site, at("/exact", "old", "olds"), ErrorReason::FileTooLarge);
    assert!(refusal.message.contains("Write"), "the call that can is named: {refusal:?}");
    let bomb = ask::edits(LIVE, "/exact", vec![all("x", "yy"), all("yy", "x")]);
    check_refused(&site, bomb, ErrorReason::FileTooLarge);
    site.patch(at("/exact", "old", "new")).expect("64 MiB are fine");
    assert_eq!(&site.content("/exact")[..4], b"newx");
}

#[test]
fn a_path_that_leaves_is_refused_by_its_words() {
    let site = Site::live(|root| put(root, "a", "x"));
    for path in ["/../a", "/b/../a", "/.."] {
        check_refused_path(&site, path, ErrorReason::PathOutsideWorkspace);
    }
    for path in ["", "a", "./a", "/a/", "/a\0b", &format!("/{}", "d/".repeat(2_100))] {
        check_refused_path(&site, path, ErrorReason::InvalidRequest);
    }
    let both = pb::PatchRequest { raw_path: "/a".into(), ..at("/a", "x", "y") };
    let refusal = site.patch(both).expect_err("one of the two").expect(ErrorReason::InvalidRequest);
    assert!(refusal.value("field").contains("path"), "{refusal:?}");
    let raw =
        pb::PatchRequest { path: String::new(), raw_path: (&b"/\xff"[..]).into(), ..ask::content(LIVE, "", &b"y"[..]) };
    let file = site.patch(raw).expect("a name of any bytes").file.expect("the file");
    assert_eq!((file.path.as_str(), &file.raw_path[..]), ("/\u{fffd}", &b"/\xff"[..]));
}

#[track_caller]
fn check_refused_path(site: &Site, path: &str, reason: ErrorReason) {
    let refusal = site.patch(ask::content(LIVE, path, &b"y"[..])).expect_err("no path").expect(reason);
    if reason == ErrorReason::InvalidRequest {
        refusal.with("field", "path");
    }
    assert_eq!(snapshot(&site.root).len(), 1, "nothing is created for {path:?}");
}
