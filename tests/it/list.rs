//! List: which entries, in which order, and how a cut listing goes on.

use std::{fs, os::unix::fs::symlink};

use dormouse_proto::files::v1::{self as pb, ErrorReason, StopReason};
use dormouse_tests::{
    ask,
    site::{ASLEEP, LIVE, Site, put, revision_of},
};

/// Asserts what a listing of both workspaces holds. An image's `lost+found` is taken away when it is made.
#[track_caller]
fn check(site: &Site, request: pb::ListRequest, paths: &[&str]) {
    for workspace in [LIVE, ASLEEP] {
        let request = pb::ListRequest { workspace: workspace.to_owned(), ..request.clone() };
        let answer = site.list(request.clone()).unwrap_or_else(|refusal| panic!("{request:?}: {refusal:?}"));
        assert_eq!(answer.paths(), paths, "{request:?}");
        assert_eq!((answer.end.truncated, answer.end.unreadable), (false, 0), "{request:?}");
    }
}

#[track_caller]
fn check_refused(site: &Site, request: pb::ListRequest, reason: ErrorReason, key: &str, value: &str) {
    for workspace in [LIVE, ASLEEP] {
        let request = pb::ListRequest { workspace: workspace.to_owned(), ..request.clone() };
        let refusal = site.list(request.clone()).map(|answer| panic!("{request:?}: {answer:?}")).expect_err("refused");
        refusal.expect(reason).with(key, value);
    }
}

fn deep(path: &str, depth: i32) -> pb::ListRequest {
    pb::ListRequest { depth: Some(depth), ..ask::list(LIVE, path) }
}

fn tree() -> Site {
    Site::both("8M", |root| {
        for path in ["a/z", "a/b/c/d.py", "a.b", "a-", "m.ts", "n/o.py", "n/.git/config"] {
            put(root, path, "x");
        }
        fs::create_dir(root.join("empty")).expect("a directory");
        symlink("a", root.join("link")).expect("a link");
    })
}

#[test]
fn entries_come_in_path_order_to_a_depth() {
    let site = tree();
    check(&site, ask::list(LIVE, "/"), &["/a", "/a-", "/a.b", "/empty", "/link", "/m.ts", "/n"]);
    check(&site, deep("/a", 1), &["/a/b", "/a/z"]);
    check(&site, deep("/a", 2), &["/a/b", "/a/b/c", "/a/z"]);
    let all = [
        "/a",
        "/a-",
        "/a.b",
        "/a/b",
        "/a/b/c",
        "/a/b/c/d.py",
        "/a/z",
        "/empty",
        "/link",
        "/m.ts",
        "/n",
        "/n/.git",
        "/n/.git/config",
        "/n/o.py",
    ];
    check(&site, deep("/", 64), &all);
    check(&site, ask::list(LIVE, "/empty"), &[]);
    check(&site, ask::list(LIVE, "/a/"), &["/a/b", "/a/z"]);
}

#[test]
fn a_link_in_a_listing_is_an_entry_and_as_the_root_is_followed() {
    let site = tree();
    check(&site, ask::list(LIVE, "/link"), &["/link/b", "/link/z"]);
    for workspace in [LIVE, ASLEEP] {
        let answer = site.list(ask::list(workspace, "/")).expect("it lists");
        let link = answer.entries.iter().find(|entry| entry.path == "/link").expect("it is listed");
        assert_eq!((link.r#type(), link.symlink_target.as_str()), (pb::FileType::Symlink, "a"));
    }
}

#[test]
fn globs_choose_and_the_directories_that_lead_there_come_along() {
    let site = tree();
    let with = |include: &[&str], exclude: Option<pb::GlobList>| pb::ListRequest {
        include: include.iter().map(|glob| (*glob).to_owned()).collect(),
        exclude,
        ..deep("/", 64)
    };
    check(&site, with(&["*.py"], None), &["/a", "/a/b", "/a/b/c", "/a/b/c/d.py", "/n", "/n/o.py"]);
    check(&site, with(&["*.{ts,py}"], ask::globs(&["/a"])), &["/m.ts", "/n", "/n/o.py"]);
    check(&site, with(&[], ask::globs(&["/a", ".git", "a*", "link"])), &["/empty", "/m.ts", "/n", "/n/o.py"]);
    check(&site, with(&[], ask::globs(&["/a/", "n/", "empty/"])), &["/a-", "/a.b", "/link", "/m.ts"]);
}

#[test]
fn pages_are_the_whole() {
    let site = Site::both("16M", |root| {
        for number in 0..300 {
            put(root, &format!("d{}/f{number}", number % 7), "x");
            put(root, &format!("d{}.x", number % 11), "x");
        }
    });
    for workspace in [LIVE, ASLEEP] {
        let request = |max, start_after: &str| pb::ListRequest {
            workspace: workspace.to_owned(),
            max_entries: Some(max),
            start_after: start_after.to_owned(),
            ..deep("/", 64)
        };
        let whole = site.list(request(10_000, "")).expect("it lists");
        assert_eq!(whole.entries.len(), 300 + 7 + 11);
        for size in [1, 37, 317] {
            let mut paged: Vec<pb::FileInfo> = Vec::new();
            loop {
                let after = paged.last().map(|entry| entry.path.clone()).unwrap_or_default();
                let page = site.list(request(size, &after)).expect("it lists");
                paged.extend(page.entries);
                assert!(paged.len() <= whole.entries.len(), "each page goes on after the last: {after:?}");
                if !page.end.truncated {
                    break;
                }
                assert_eq!(page.end.stop_reason(), StopReason::MaxEntries);
                assert_eq!(page.end.entries_sent, i64::from(size));
            }
            assert_eq!(paged, whole.entries, "pages of {size}");
        }
        let exact = site.list(request(318, "")).expect("it lists");
        assert_eq!((exact.end.truncated, exact.entries.len()), (false, 318), "exactly so many is not cut");
        let cut = site.list(request(317, "")).expect("it lists");
        assert_eq!((cut.end.truncated, cut.entries.len()), (true, 317));
        // The place to go on from need not exist, and may lie anywhere.
        let after = site.list(request(10_000, "/d3/f")).expect("it lists");
        assert_eq!(after.paths(), whole.paths().into_iter().filter(|path| *path > "/d3/f").collect::<Vec<_>>());
        let after = site.list(request(10_000, "/d3.x")).expect("it lists");
        assert_eq!(after.paths(), whole.paths().into_iter().filter(|path| *path > "/d3.x").collect::<Vec<_>>());
    }
}

#[test]
fn revisions_come_where_they_are_asked_for() {
    let site = tree();
    for workspace in [LIVE, ASLEEP] {
        let plain = site.list(ask::list(workspace, "/")).expect("it lists");
        assert!(plain.entries.iter().all(|entry| entry.revision.is_none()));
        let request = pb::ListRequest { include_revision: true, ..ask::list(workspace, "/") };
        for entry in site.list(request).expect("it lists").entries {
            let expect = (entry.r#type() == pb::FileType::Regular).then(|| revision_of(b"x"));
            assert_eq!(entry.revision, expect, "{}", entry.path);
            let stat = site.file_info(workspace, &entry.path);
            assert_eq!(entry, stat, "an entry is what a Stat says");
        }
    }
}

#[test]
fn what_is_no_listing_is_refused() {
    let site = tree();
    check_refused(&site, ask::list(LIVE, "/a/z"), ErrorReason::NotADirectory, "type", "regular");
    check_refused(&site, ask::list(LIVE, "/x/y"), ErrorReason::FileNotFound, "missing", "/x");
    for depth in [0, -1, 65] {
        check_refused(&site, deep("/", depth), ErrorReason::InvalidRequest, "field", "depth");
    }
    for max in [0, -1, 1_000_001] {
        let request = pb::ListRequest { max_entries: Some(max), ..ask::list(LIVE, "/") };
        check_refused(&site, request, ErrorReason::InvalidRequest, "field", "max_entries");
    }
    let both =
        pb::ListRequest { start_after: "/a".to_owned(), raw_start_after: (&b"/a"[..]).into(), ..ask::list(LIVE, "/") };
    let refusal = site.list(both).expect_err("one of the two").expect(ErrorReason::InvalidRequest);
    assert!(refusal.value("field").contains("start_after"), "{refusal:?}");
}
