//! Read: which bytes, with which promise, at which cost.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
};

use dormouse_proto::files::v1::{self as pb, ErrorReason, ServedFrom};
use dormouse_tests::{
    ask,
    site::{ASLEEP, LIVE, Site, put, revision_of},
    trace::{forget_peak, memory_kib},
    world::Setup,
};

/// Asserts what a range gives on both workspaces.
#[track_caller]
fn check(site: &Site, request: pb::ReadRequest, offset: i64, bytes: &[u8], line_count: Option<i64>) {
    for workspace in [LIVE, ASLEEP] {
        let request = pb::ReadRequest { workspace: workspace.to_owned(), ..request.clone() };
        let answer = site.read(request.clone()).unwrap_or_else(|refusal| panic!("{request:?}: {refusal:?}"));
        assert_eq!(answer.bytes.escape_ascii().to_string(), bytes.escape_ascii().to_string(), "{request:?}");
        if !bytes.is_empty() {
            assert_eq!(answer.offset, offset, "{request:?}");
        }
        assert_eq!((answer.end.line_count, answer.end.changed), (line_count, false), "{request:?}");
    }
}

/// Asserts why a Read is refused on both workspaces.
#[track_caller]
fn check_refused(site: &Site, request: pb::ReadRequest, reason: ErrorReason, key: &str, value: &str) {
    for workspace in [LIVE, ASLEEP] {
        let request = pb::ReadRequest { workspace: workspace.to_owned(), ..request.clone() };
        let refusal = site.read(request.clone()).map(|answer| panic!("{request:?}: {answer:?}")).expect_err("refused");
        refusal.expect(reason).with(key, value);
    }
}

#[test]
fn a_whole_file_comes_with_its_description_and_its_checksum() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|place| (place % 251) as u8).collect();
    let site = Site::both("16M", |root| {
        put(root, "a", &content);
        put(root, "empty", "");
    });
    for (workspace, served_from) in [(LIVE, ServedFrom::Workspace), (ASLEEP, ServedFrom::Disk)] {
        let answer = site.read(ask::read(workspace, "/a")).expect("it reads");
        assert_eq!(answer.bytes, content);
        assert_eq!((answer.file.path.as_str(), answer.file.size_bytes), ("/a", 3_000_000));
        assert_eq!(answer.origin.served_from(), served_from);
        assert_eq!((answer.end.revision, answer.end.line_count), (None, None), "not asked for");
        let request = pb::ReadRequest { include_revision: true, ..ask::bytes(workspace, "/a", 5, 10) };
        let answer = site.read(request).expect("it reads");
        assert_eq!(answer.bytes, content[5..15]);
        assert_eq!(answer.end.revision, Some(revision_of(&content)), "of the whole file, not of the range");
        let empty = pb::ReadRequest { include_revision: true, ..ask::read(workspace, "/empty") };
        let answer = site.read(empty).expect("it reads");
        assert_eq!((answer.bytes.len(), answer.end.revision), (0, Some(revision_of(b""))));
    }
}

#[test]
fn bytes_are_counted_from_either_end() {
    let site = Site::both("8M", |root| {
        put(root, "a", "0123456789");
        put(root, "empty", "");
    });
    let bytes = |offset, length| ask::bytes(LIVE, "/a", offset, length);
    check(&site, bytes(0, 0), 0, b"0123456789", None);
    check(&site, bytes(3, 4), 3, b"3456", None);
    check(&site, bytes(7, 0), 7, b"789", None);
    check(&site, bytes(7, 100), 7, b"789", None);
    check(&site, bytes(-3, 0), 7, b"789", None);
    check(&site, bytes(-3, 2), 7, b"78", None);
    check(&site, bytes(-100, 2), 0, b"01", None);
    check(&site, bytes(i64::MIN, i64::MAX), 0, b"0123456789", None);
    check(&site, bytes(10, 0), 10, b"", None);
    check(&site, ask::bytes(LIVE, "/empty", 0, 5), 0, b"", None);
    check_refused(&site, bytes(11, 0), ErrorReason::RangePastEnd, "size_bytes", "10");
    check_refused(&site, bytes(i64::MAX, 1), ErrorReason::RangePastEnd, "size_bytes", "10");
    for workspace in [LIVE, ASLEEP] {
        let refusal =
            site.read(ask::bytes(workspace, "/a", 0, -1)).expect_err("no length").expect(ErrorReason::InvalidRequest);
        assert!(refusal.value("field").contains("length"), "{refusal:?}");
    }
}

#[test]
fn lines_are_counted_from_one_to_the_last() {
    let site = Site::both("8M", |root| {
        put(root, "a", "one\ntwo\r\nthree");
        put(root, "ended", "one\ntwo\n");
        put(root, "empty", "");
    });
    let lines = |path, start, end| ask::lines(LIVE, path, start, end);
    check(&site, lines("/a", 0, 0), 0, b"one\ntwo\r\nthree", Some(3));
    check(&site, lines("/a", 1, 1), 0, b"one\n", Some(3));
    check(&site, lines("/a", 2, 2), 4, b"two\r\n", Some(3));
    check(&site, lines("/a", 2, 99), 4, b"two\r\nthree", Some(3));
    check(&site, lines("/a", 3, 0), 9, b"three", Some(3));
    check(&site, lines("/ended", 2, 0), 4, b"two\n", Some(2));
    check_refused(&site, lines("/a", 4, 0), ErrorReason::RangePastEnd, "line_count", "3");
    check_refused(&site, lines("/ended", 3, 3), ErrorReason::RangePastEnd, "line_count", "2");
    for (start, end) in [(-1, 0), (1, -1), (3, 2)] {
        for workspace in [LIVE, ASLEEP] {
            let refusal = site.read(ask::lines(workspace, "/a", start, end)).expect_err("no range of lines");
            assert!(refusal.value("field").contains("line_range"), "{refusal:?}");
        }
    }
}

#[test]
fn only_the_expected_file_is_read() {
    let site = Site::both("8M", |root| put(root, "a", "one"));
    let other = revision_of(b"two");
    for workspace in [LIVE, ASLEEP] {
        let file = site.file_info(workspace, "/a");
        let revision = file.revision.expect("asked for");
        let pinned = pb::ReadRequest {
            expected_revision: Some(revision.clone()),
            expected_etag: Some(file.etag.clone()),
            ..ask::bytes(workspace, "/a", 1, 0)
        };
        assert_eq!(site.read(pinned).expect("it is the same").bytes, b"ne");
        let pinned = pb::ReadRequest { expected_revision: Some(other.clone()), ..ask::read(workspace, "/a") };
        site.read(pinned)
            .expect_err("it is another")
            .expect(ErrorReason::RevisionMismatch)
            .with("expected_revision", &other)
            .with("actual_revision", &revision);
        let pinned = pb::ReadRequest { expected_etag: Some("other".to_owned()), ..ask::read(workspace, "/a") };
        site.read(pinned).expect_err("it is another").expect(ErrorReason::RevisionMismatch);
        for bad in ["", "absent", "x"] {
            let pinned = pb::ReadRequest { expected_revision: Some(bad.to_owned()), ..ask::read(workspace, "/a") };
            site.read(pinned)
                .expect_err("no revision")
                .expect(ErrorReason::InvalidRequest)
                .with("field", "expected_revision");
        }
    }
    let old = site.file_info(LIVE, "/a");
    put(&site.root, "a", "three");
    let pinned = pb::ReadRequest { expected_etag: Some(old.etag), ..ask::read(LIVE, "/a") };
    site.read(pinned).expect_err("it has changed").expect(ErrorReason::RevisionMismatch);
}

#[test]
fn links_are_followed_and_never_out() {
    let site = Site::both("8M", |root| {
        put(root, "etc/hostname", "inside");
        put(root.parent().expect("a parent"), "secret", "outside");
        for (target, name) in [
            ("etc/hostname", "plain"),
            ("/etc/hostname", "absolute"),
            ("../../../../etc/hostname", "climbing"),
            ("../secret", "out"),
            ("nowhere", "dangling"),
            ("b", "a"),
            ("a", "b"),
        ] {
            symlink(target, root.join(name)).expect("a link");
        }
        fs::create_dir(root.join("directory")).expect("a directory");
        nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
    });
    for path in ["/plain", "/absolute", "/climbing"] {
        check(&site, ask::read(LIVE, path), 0, b"inside", None);
    }
    check_refused(&site, ask::read(LIVE, "/out"), ErrorReason::FileNotFound, "path", "/out");
    check_refused(&site, ask::read(LIVE, "/dangling"), ErrorReason::FileNotFound, "path", "/dangling");
    check_refused(&site, ask::read(LIVE, "/a"), ErrorReason::SymlinkRefused, "path", "/a");
    check_refused(&site, ask::read(LIVE, "/directory"), ErrorReason::NotARegularFile, "type", "directory");
    check_refused(&site, ask::read(LIVE, "/fifo"), ErrorReason::NotARegularFile, "type", "fifo");
    check_refused(&site, ask::read(LIVE, "/../secret"), ErrorReason::PathOutsideWorkspace, "path", "/../secret");
}

#[test]
fn a_disk_answers_reads_up_to_its_limit_and_lists_and_searches_beyond() {
    let setup = Setup::new().config("[limits]\noffline_read_bytes_max = 1048576\n");
    let site = Site::both_with(setup, "16M", |root| {
        put(root, "a", vec![b'x'; 2 << 20]);
        put(root, "half", vec![b'x'; 1 << 19]);
        put(root, "exact", vec![b'x'; 1 << 20]);
    });
    site.read(ask::read(ASLEEP, "/a"))
        .expect_err("too large for a disk")
        .expect(ErrorReason::OfflineBudget)
        .with("workspace", ASLEEP)
        .with("limit_bytes", "1048576");
    for (path, size) in [("/half", 1 << 19), ("/exact", 1 << 20)] {
        assert_eq!(site.read(ask::read(ASLEEP, path)).expect("it reads").bytes.len(), size);
    }
    // What counts is what would be sent.
    let part = site.read(ask::bytes(ASLEEP, "/a", 5, 1 << 20)).expect("it reads");
    assert_eq!(part.bytes.len(), 1 << 20);
    assert_eq!(site.read(ask::read(LIVE, "/a")).expect("it runs").bytes.len(), 2 << 20);
    assert_eq!(site.list(ask::list(ASLEEP, "/")).expect("it lists").paths().len(), 3);
    let all = pb::SearchRequest { max_file_bytes: Some(4 << 20), ..ask::search(ASLEEP, "/", "x") };
    assert_eq!(site.search(all).expect("it searches").matches.len(), 3);
}

/// Bytes of the large file that are read: 2 GiB, or all of it where time is no matter.
const LARGE: i64 = 10 << 30;

/// Reads without keeping anything, and says how much came.
fn drain(site: &Site, workspace: &str, length: i64) -> i64 {
    let zeros = vec![0; 1 << 20];
    site.wait(async {
        let request = ask::bytes(workspace, "/large", 0, length);
        let mut stream = site.files.clone().read(request).await.expect("it begins").into_inner();
        let mut sum = 0;
        while let Some(message) = stream.message().await.expect("it goes on") {
            assert!(message.data == zeros[..message.data.len()], "a hole is zeros");
            sum += message.data.len() as i64;
            if let Some(end) = message.end {
                assert_eq!(end.bytes_sent, sum);
            }
        }
        sum
    })
}

#[test]
fn a_large_read_takes_no_memory() {
    let length = if std::env::var_os("DORMOUSE_LONG").is_some() { LARGE } else { 2 << 30 };
    let setup = Setup::new().config(format!("[limits]\noffline_read_bytes_max = {LARGE}\n"));
    let site = Site::both_with(setup, "64M", |root| {
        File::create(root.join("large")).and_then(|file| file.set_len(LARGE as u64)).expect("a sparse file");
    });
    for workspace in [LIVE, ASLEEP] {
        drain(&site, workspace, 64 << 20);
        forget_peak(&site.world);
        let before = memory_kib(&site.world, "VmRSS");
        assert_eq!(drain(&site, workspace, length), length, "{workspace}");
        let grown = memory_kib(&site.world, "VmHWM").saturating_sub(before);
        assert!(grown < 16 << 10, "{workspace}: a Read of {length} bytes took {grown} KiB");
    }
}
