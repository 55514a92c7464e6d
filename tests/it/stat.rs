//! Stat: what a file is, awake and asleep alike.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
};

use dormouse_proto::files::v1::{self as pb, Consistency, ErrorReason, FileType, ReadSource, ServedFrom};
use dormouse_tests::{
    ask,
    site::{ASLEEP, LIVE, Site, put, revision_of},
    world::Setup,
};

#[test]
fn a_file_is_what_the_kernel_says() {
    let site = Site::both("8M", |root| {
        put(root, "a", "hello\n");
        fs::hard_link(root.join("a"), root.join("b")).expect("a hard link");
    });
    let truth = site.file("/a").metadata().expect("it is there");
    for (workspace, served_from, consistency) in
        [(LIVE, ServedFrom::Workspace, Consistency::Unspecified), (ASLEEP, ServedFrom::Disk, Consistency::Exact)]
    {
        let answer = site.stat(ask::stat(workspace, "/a")).expect("it is there");
        let file = answer.file.expect("a file");
        assert_eq!((file.path.as_str(), file.r#type(), file.size_bytes), ("/a", FileType::Regular, 6));
        assert_eq!((file.mode, file.uid, file.gid), (truth.mode() & 0o7777, truth.uid(), truth.gid()));
        assert_eq!(file.link_count, 2);
        assert_eq!(file.modify_time.expect("a time").seconds, truth.mtime());
        assert!(file.raw_path.is_empty() && file.symlink_target.is_empty() && !file.etag.is_empty());
        assert_eq!(file.revision, None, "not asked for");
        let origin = answer.origin.expect("an origin");
        assert_eq!((origin.served_from(), origin.consistency()), (served_from, consistency));
    }
}

#[test]
fn a_revision_is_the_sha_256_of_the_content() {
    let site = Site::both("8M", |root| {
        put(root, "a", "hello\n");
        put(root, "empty", "");
        symlink("a", root.join("link")).expect("a link");
    });
    for workspace in [LIVE, ASLEEP] {
        let of = |path| site.file_info(workspace, path).revision;
        assert_eq!(of("/a").as_deref(), Some("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"));
        assert_eq!(of("/empty").as_deref(), Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
        assert_eq!((of("/link"), of("/")), (None, None), "only regular files have one");
    }
}

#[test]
fn a_running_directory_gives_revisions_of_any_size_and_a_disk_up_to_its_limit() {
    let setup = Setup::new().config("[limits]\noffline_revision_bytes_max = 1000\n");
    let large = vec![b'x'; (65 << 20) + 1];
    let site = Site::both_with(setup, "80M", |root| {
        put(root, "large", &large);
        put(root, "exact", &large[..1_000]);
        put(root, "more", &large[..1_001]);
    });
    let of = |workspace, path| site.file_info(workspace, path).revision;
    assert_eq!(of(LIVE, "/large"), Some(revision_of(&large)));
    assert_eq!(of(LIVE, "/more"), Some(revision_of(&large[..1_001])));
    assert_eq!(of(ASLEEP, "/exact"), Some(revision_of(&large[..1_000])));
    assert_eq!((of(ASLEEP, "/more"), of(ASLEEP, "/large")), (None, None));
}

#[test]
fn an_etag_moves_with_the_file_and_is_the_same_asleep() {
    let site = Site::both("8M", |root| {
        put(root, "a", "one");
        // An image keeps whole seconds.
        let second = nix::sys::time::TimeSpec::new(1_700_000_000, 0);
        let follow = nix::sys::stat::UtimensatFlags::FollowSymlink;
        nix::sys::stat::utimensat(nix::fcntl::AT_FDCWD, &root.join("a"), &second, &second, follow).expect("a time");
    });
    let etag = |workspace| site.stat(ask::stat(workspace, "/a")).expect("it is there").file.expect("a file").etag;
    let first = etag(LIVE);
    assert_eq!(etag(LIVE), first);
    put(&site.root, "a", "two");
    assert_ne!(etag(LIVE), first);
}

#[test]
fn a_link_at_the_end_is_described_and_those_before_are_followed_inside() {
    let site = Site::both("8M", |root| {
        put(root, "real/a", "one");
        symlink("real", root.join("link")).expect("a link");
        symlink("/real", root.join("absolute")).expect("a link");
        symlink("nowhere", root.join("dangling")).expect("a link");
        symlink("../../../../../..", root.join("out")).expect("a link");
        symlink("loop", root.join("loop")).expect("a link");
    });
    for workspace in [LIVE, ASLEEP] {
        let file = |path: &str| site.stat(ask::stat(workspace, path)).expect("it is there").file.expect("a file");
        for (path, target) in [("/link", "real"), ("/dangling", "nowhere"), ("/out", "../../../../../..")] {
            assert_eq!((file(path).r#type(), file(path).symlink_target.as_str()), (FileType::Symlink, target));
            assert_eq!(file(path).path, path);
        }
        for path in ["/link/a", "/absolute/a", "/out/real/a"] {
            assert_eq!((file(path).r#type(), file(path).size_bytes), (FileType::Regular, 3), "{path}");
        }
        let refuse = |path: &str| site.stat(ask::stat(workspace, path)).expect_err("nothing is there");
        refuse("/out/etc").expect(ErrorReason::FileNotFound);
        refuse("/dangling/a").expect(ErrorReason::FileNotFound);
        refuse("/loop/a").expect(ErrorReason::SymlinkRefused).with("link", "/loop");
    }
}

#[test]
fn what_is_not_there_is_told_by_its_first_missing_component() {
    let site = Site::both("8M", |root| put(root, "d/file", "one"));
    for workspace in [LIVE, ASLEEP] {
        for (path, missing) in [("/x", "/x"), ("/d/x/y/z", "/d/x"), ("/D/file", "/D")] {
            let refusal = site.stat(ask::stat(workspace, path)).expect_err("nothing is there");
            refusal.expect(ErrorReason::FileNotFound).with("path", path).with("missing", missing);
        }
        let refusal = site.stat(ask::stat(workspace, "/d/file/x")).expect_err("a file has nothing beneath");
        refusal.expect(ErrorReason::NotADirectory).with("type", "regular");
    }
}

#[test]
fn a_name_of_any_bytes_is_told_in_both_forms() {
    let name = std::ffi::OsStr::new("x");
    let site = Site::both("8M", |root| {
        use std::os::unix::ffi::OsStrExt as _;
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "one").expect("a file");
        symlink(std::ffi::OsStr::from_bytes(b"caf\xe9"), root.join(name)).expect("a link");
    });
    for workspace in [LIVE, ASLEEP] {
        let raw =
            pb::StatRequest { path: String::new(), raw_path: (&b"/caf\xe9"[..]).into(), ..ask::stat(workspace, "") };
        let file = site.stat(raw).expect("it is there").file.expect("a file");
        assert_eq!((file.path.as_str(), &file.raw_path[..]), ("/caf\u{fffd}", &b"/caf\xe9"[..]));
        let link = site.stat(ask::stat(workspace, "/x")).expect("it is there").file.expect("a file");
        assert_eq!((link.symlink_target.as_str(), &link.raw_symlink_target[..]), ("caf\u{fffd}", &b"caf\xe9"[..]));
        // A true name may be given as bytes too, and comes back as text alone.
        let raw = pb::StatRequest { path: String::new(), raw_path: (&b"/x"[..]).into(), ..ask::stat(workspace, "") };
        let file = site.stat(raw).expect("it is there").file.expect("a file");
        assert_eq!((file.path.as_str(), file.raw_path.is_empty()), ("/x", true));
    }
}

#[test]
fn a_caller_may_say_where_the_answer_must_come_from() {
    let site = Site::both("8M", |root| put(root, "a", "one"));
    let from = |workspace, source: ReadSource| {
        site.stat(pb::StatRequest { source: source as i32, ..ask::stat(workspace, "/a") })
    };
    assert!(from(LIVE, ReadSource::Workspace).is_ok());
    assert!(from(ASLEEP, ReadSource::Disk).is_ok());
    from(LIVE, ReadSource::Disk)
        .expect_err("it runs")
        .expect(ErrorReason::WrongState)
        .with("workspace", LIVE)
        .with("state", "running");
    from(ASLEEP, ReadSource::Workspace)
        .expect_err("it sleeps")
        .expect(ErrorReason::WorkspaceNotRunning)
        .with("workspace", ASLEEP)
        .with("state", "suspended");
    let unknown = pb::StatRequest { source: 9, ..ask::stat(LIVE, "/a") };
    site.stat(unknown).expect_err("no such source").expect(ErrorReason::InvalidRequest).with("field", "source");
}
