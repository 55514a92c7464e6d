//! Remove, Move and MakeDirectory: what they change, what they answer, and what they leave alone.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
};

use dormouse_proto::files::v1::{self as pb, ErrorReason, FileType};
use dormouse_tests::{
    ask,
    refusal::Refusal,
    site::{LIVE, Site, put, revision_of, snapshot},
};

/// Asserts that a call is refused and changes nothing.
#[track_caller]
fn check_refused<T: std::fmt::Debug>(
    site: &Site,
    call: impl FnOnce(&Site) -> Result<T, Refusal>,
    reason: ErrorReason,
) -> Refusal {
    let before = snapshot(&site.root);
    let refusal = call(site).expect_err("it is refused");
    assert_eq!(snapshot(&site.root), before, "a refused change leaves everything alone: {refusal:?}");
    refusal.expect(reason)
}

fn remove(path: &str) -> pb::RemoveRequest {
    ask::remove(LIVE, path)
}

fn rename(path: &str, new_path: &str) -> pb::MoveRequest {
    ask::rename(LIVE, path, new_path)
}

fn make(path: &str) -> pb::MakeDirectoryRequest {
    ask::make_directory(LIVE, path)
}

#[test]
fn a_removed_file_is_gone_once() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let request = remove("/a");
    let answer = site.remove(request.clone()).expect("it is removed");
    assert_eq!(answer.previous_revision, Some(revision_of(b"one\n")));
    assert!(answer.durable && !answer.replayed);
    assert_eq!(snapshot(&site.root), [""; 0]);
    let again = site.remove(request.clone()).expect("the stored answer");
    assert!(again.replayed);
    // Also where somebody has made another file since: that one stays.
    put(&site.root, "a", "another\n");
    assert!(site.remove(request).expect("the stored answer").replayed);
    assert_eq!(site.content("/a"), b"another\n");
    let missing = check_refused(&site, |site| site.remove(remove("/b/c")), ErrorReason::FileNotFound);
    missing.with("path", "/b/c").with("missing", "/b");
}

#[test]
fn only_the_expected_revision_is_removed() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    let pinned = |revision: &str| pb::RemoveRequest { expected_revision: Some(revision.to_owned()), ..remove("/a") };
    check_refused(&site, |site| site.remove(pinned(&revision_of(b"two"))), ErrorReason::RevisionMismatch)
        .with("actual_revision", &revision_of(b"one\n"));
    check_refused(&site, |site| site.remove(pinned("")), ErrorReason::InvalidRequest)
        .with("field", "expected_revision");
    site.remove(pinned(&revision_of(b"one\n"))).expect("it is that revision");
}

#[test]
fn a_directory_is_removed_empty_or_with_all_that_is_in_it() {
    let site = Site::live(|root| {
        fs::create_dir(root.join("empty")).expect("a directory");
        put(root, "full/sub/a", "");
        put(root, "kept", "one\n");
        symlink("../kept", root.join("full/link")).expect("a link");
    });
    let answer = site.remove(remove("/empty")).expect("it is empty");
    assert_eq!(answer.previous_revision, None);
    check_refused(&site, |site| site.remove(remove("/full")), ErrorReason::DirectoryNotEmpty).with("path", "/full");
    site.remove(pb::RemoveRequest { recursive: true, ..remove("/full") }).expect("a whole directory");
    assert_eq!(fs::read_dir(&site.root).expect("it lists").count(), 1);
    assert_eq!(site.content("/kept"), b"one\n", "what a link pointed to stays");
    for path in ["/", "/.."] {
        let request = pb::RemoveRequest { recursive: true, ..remove(path) };
        assert!(site.remove(request).is_err(), "{path} stays");
    }
    assert_eq!(site.content("/kept"), b"one\n");
}

#[test]
fn a_removal_through_a_link_is_refused_and_of_a_link_takes_the_link() {
    let site = Site::live(|root| {
        put(root, "real/a", "one\n");
        symlink("real", root.join("link")).expect("a link");
        symlink("nowhere", root.join("dangling")).expect("a link");
    });
    let request = pb::RemoveRequest { recursive: true, ..remove("/link/a") };
    check_refused(&site, |site| site.remove(request), ErrorReason::SymlinkRefused).with("link", "/link");
    for path in ["/link", "/dangling"] {
        site.remove(pb::RemoveRequest { recursive: true, ..remove(path) }).expect("the link itself");
    }
    assert_eq!(fs::read_dir(&site.root).expect("it lists").count(), 1);
    assert_eq!(site.content("/real/a"), b"one\n", "what it pointed to stays");
}

#[test]
fn a_moved_file_is_the_same_file_elsewhere() {
    let site = Site::live(|root| {
        put(root, "a", "one\n");
        fs::create_dir(root.join("d")).expect("a directory");
    });
    let inode = site.file("/a").metadata().expect("it is there").ino();
    let request = rename("/a", "/d/b");
    let answer = site.rename(request.clone()).expect("it is moved");
    assert!(answer.durable && !answer.replayed);
    assert_eq!(answer.file.expect("the file").path, "/d/b");
    assert_eq!(site.file("/d/b").metadata().expect("it is there").ino(), inode);
    assert!(!site.file("/a").exists());
    assert!(site.rename(request).expect("the stored answer").replayed);
    check_refused(&site, |site| site.rename(rename("/a", "/c")), ErrorReason::FileNotFound).with("missing", "/a");
    // A directory moves with all that is in it, but not into itself.
    assert!(site.rename(rename("/d", "/d/e")).is_err());
    site.rename(rename("/d", "/e")).expect("it is moved");
    assert_eq!(site.content("/e/b"), b"one\n");
}

#[test]
fn a_move_replaces_only_where_that_is_asked() {
    let site = Site::live(|root| {
        put(root, "a", "one\n");
        put(root, "b", "two\n");
    });
    check_refused(&site, |site| site.rename(rename("/a", "/b")), ErrorReason::FileAlreadyExists)
        .with("path", "/b")
        .with("type", "regular");
    let pinned =
        pb::MoveRequest { replace: true, expected_revision: Some(revision_of(b"two\n")), ..rename("/a", "/b") };
    check_refused(&site, |site| site.rename(pinned), ErrorReason::RevisionMismatch)
        .with("actual_revision", &revision_of(b"one\n"));
    site.rename(pb::MoveRequest { replace: true, ..rename("/a", "/b") }).expect("it replaces");
    assert_eq!(snapshot(&site.root), [format!("b 644 {}", revision_of(b"one\n"))]);
}

#[test]
fn a_move_makes_parents_where_that_is_asked() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    check_refused(&site, |site| site.rename(rename("/a", "/d/e/b")), ErrorReason::FileNotFound).with("missing", "/d");
    let parents = |path: &str| pb::MoveRequest { create_parents: true, ..rename(path, "/d/e/b") };
    check_refused(&site, |site| site.rename(parents("/missing")), ErrorReason::FileNotFound);
    site.rename(parents("/a")).expect("its parents are made");
    assert_eq!(site.content("/d/e/b"), b"one\n");
}

#[test]
fn a_move_through_a_link_or_out_is_refused() {
    let site = Site::live(|root| {
        put(root, "real/a", "one\n");
        symlink("real", root.join("link")).expect("a link");
        symlink("..", root.join("out")).expect("a link");
    });
    for (path, new_path, link) in
        [("/link/a", "/b", "/link"), ("/real/a", "/link/b", "/link"), ("/real/a", "/out/b", "/out")]
    {
        check_refused(&site, |site| site.rename(rename(path, new_path)), ErrorReason::SymlinkRefused)
            .with("link", link);
    }
    check_refused(&site, |site| site.rename(rename("/real/a", "/../b")), ErrorReason::PathOutsideWorkspace);
}

#[test]
fn a_directory_is_made_once() {
    let site = Site::live(|root| put(root, "file", ""));
    let request = make("/d");
    let answer = site.make_directory(request.clone()).expect("it is made");
    let file = answer.file.expect("the directory");
    assert_eq!((file.r#type(), file.mode, file.path.as_str()), (FileType::Directory, 0o755, "/d"));
    assert!(answer.durable && !answer.replayed);
    assert!(site.make_directory(request).expect("the stored answer").replayed);
    check_refused(&site, |site| site.make_directory(make("/d")), ErrorReason::FileAlreadyExists)
        .with("type", "directory");
    check_refused(&site, |site| site.make_directory(make("/file")), ErrorReason::FileAlreadyExists)
        .with("type", "regular");
    check_refused(&site, |site| site.make_directory(make("/x/y")), ErrorReason::FileNotFound).with("missing", "/x");
    let deep = pb::MakeDirectoryRequest { create_parents: true, mode: Some(0o700), ..make("/x/y") };
    site.make_directory(deep).expect("its parents are made");
    let mode = |path: &str| site.file(path).metadata().expect("it is made").mode() & 0o7777;
    assert_eq!((mode("/x"), mode("/x/y")), (0o755, 0o700));
    let strange = pb::MakeDirectoryRequest { mode: Some(0o2755), ..make("/z") };
    check_refused(&site, |site| site.make_directory(strange), ErrorReason::InvalidRequest).with("field", "mode");
}

#[test]
fn what_is_made_in_a_setgid_directory_has_its_group() {
    if !dormouse_tests::skip::is_root() {
        return dormouse_tests::skip::skip("owners of new files", "giving files away needs root");
    }
    let site = Site::live(|root| {
        let directory = root.join("team");
        fs::create_dir(&directory).expect("a directory");
        std::os::unix::fs::chown(&directory, Some(1_000), Some(2_000)).expect("an owner");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).expect("a mode");
    });
    site.patch(ask::content(LIVE, "/team/file", &b"x"[..])).expect("it is created");
    let deep = pb::MakeDirectoryRequest { create_parents: true, ..make("/team/a/b") };
    site.make_directory(deep).expect("it is made");
    site.patch(ask::content(LIVE, "/team/a/b/file", &b"x"[..])).expect("it is created");
    for path in ["/team/file", "/team/a", "/team/a/b", "/team/a/b/file"] {
        let meta = site.file(path).metadata().expect("it is there");
        assert_eq!((meta.uid(), meta.gid()), (1_000, 2_000), "{path}");
        assert_eq!(meta.mode() & 0o2000 != 0, meta.is_dir(), "directories hand the group on: {path}");
    }
}

#[test]
fn modes_are_what_was_asked_whatever_the_umask() {
    // The agent's own umask is the test's: a child has its parent's (umask(2)).
    let old = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let site = Site::live(|_| {});
    nix::sys::stat::umask(old);
    site.patch(ask::content(LIVE, "/default", &b"x"[..])).expect("it is created");
    site.patch(pb::PatchRequest { mode: Some(0o666), ..ask::content(LIVE, "/asked", &b"x"[..]) })
        .expect("it is created");
    let start = pb::WriteStart { create_parents: true, ..ask::write(LIVE, "/d/written") };
    site.write(start, vec![], pb::WriteFinish::default()).expect("it is written");
    site.make_directory(make("/made")).expect("it is made");
    for (path, mode) in [("/default", 0o644), ("/asked", 0o666), ("/d", 0o755), ("/d/written", 0o644), ("/made", 0o755)]
    {
        assert_eq!(site.file(path).metadata().expect("it is there").mode() & 0o7777, mode, "{path}");
    }
}
