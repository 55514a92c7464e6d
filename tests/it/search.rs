//! Search: what matches, where it is, what is left out, and when it stops.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use dormouse_proto::files::v1::{self as pb, ErrorReason, ServedFrom, StopReason};
use dormouse_tests::{
    ask,
    mount::Mount,
    site::{self, ASLEEP, LIVE, Site, put},
    trace,
    world::Setup,
};
use nix::sys::stat::Mode;
use tonic::Request;

/// Asserts where a search on both workspaces finds something, as `path:line:column`.
#[track_caller]
fn check(site: &Site, request: pb::SearchRequest, places: &[&str]) {
    for workspace in [LIVE, ASLEEP] {
        let request = pb::SearchRequest { workspace: workspace.to_owned(), ..request.clone() };
        let answer = site.search(request.clone()).unwrap_or_else(|refusal| panic!("{request:?}: {refusal:?}"));
        assert_eq!(answer.places(), places, "{request:?}");
    }
}

/// Asserts why a search is refused on both workspaces, and which field is named.
#[track_caller]
fn check_refused(site: &Site, request: pb::SearchRequest, reason: ErrorReason, field: &str) {
    for workspace in [LIVE, ASLEEP] {
        let request = pb::SearchRequest { workspace: workspace.to_owned(), ..request.clone() };
        match site.search(request.clone()) {
            Ok(answer) => panic!("{request:?} is answered: {answer:?}"),
            Err(refusal) => refusal.expect(reason).with("field", field),
        };
    }
}

fn todo(path: &str) -> pb::SearchRequest {
    ask::search(LIVE, path, "TODO")
}

fn regex(pattern: &str) -> pb::SearchRequest {
    pb::SearchRequest { regex: true, ..ask::search(LIVE, "/", pattern) }
}

#[test]
fn an_answer_says_where_it_came_from_and_that_it_is_whole() {
    let site = Site::both("8M", |root| put(root, "a", "TODO\n"));
    for (workspace, served_from) in [(LIVE, ServedFrom::Workspace), (ASLEEP, ServedFrom::Disk)] {
        let answer = site.search(ask::search(workspace, "/", "TODO")).expect("an answer");
        assert_eq!(answer.origin.served_from(), served_from);
        assert_eq!((answer.end.truncated, answer.end.stop_reason()), (false, StopReason::Unspecified));
        assert_eq!(answer.end.files_scanned, 1);
        assert_eq!(answer.end.skipped.unwrap_or_default(), pb::SkippedFiles::default());
    }
}

#[test]
fn no_hits_are_no_error() {
    let site = Site::both("8M", |root| put(root, "a", "nothing\n"));
    check(&site, todo("/"), &[]);
}

#[test]
fn a_pattern_is_literal_unless_it_is_called_a_regex() {
    let site = Site::both("8M", |root| put(root, "a", "axb(\na.b(\na.b\n"));
    check(&site, ask::search(LIVE, "/", "a.b("), &["/a:2:1"]);
    check(&site, regex("a.b"), &["/a:1:1", "/a:2:1", "/a:3:1"]);
}

#[test]
fn a_regex_is_what_re2_takes() {
    let site = Site::both("8M", |root| {
        put(root, "a", "1+1\n\u{661}\nKelvin \u{212a}\nx{,3}\nab\n[[a]\n");
    });
    for (pattern, places) in [
        (r"\Q1+1\E", ["/a:1:1"].as_slice()),
        (r"^\d$", &[]),
        (r"^\d\+", &["/a:1:1"]),
        (r"x{,3}", &["/a:4:1"]),
        (r"(?i)^KELVIN k$", &["/a:3:1"]),
        (r"[[a]{3}", &["/a:6:1"]),
        (r"^\pL+$", &["/a:5:1"]),
        (r"(?P<n>a)b", &["/a:5:1"]),
        (r"\141b", &["/a:5:1"]),
        (r"\x{61}b", &["/a:5:1"]),
    ] {
        check(&site, regex(pattern), places);
    }
    for pattern in [
        "a{1001}",
        "(?x)a b",
        "(a)\\1",
        "(?=a)",
        "(?<!a)b",
        "(a{32}){32}",
        "a**",
        r"\u0041",
        r"\C",
        "[a--b]",
        "f(",
        "*",
    ] {
        check_refused(&site, regex(pattern), ErrorReason::InvalidPattern, "pattern");
    }
}

#[test]
fn a_broken_regex_is_refused_at_its_place_and_literal_mode_is_named() {
    let site = Site::both("8M", |_| {});
    let refusal = site.search(regex("ok f(")).expect_err("no regex").expect(ErrorReason::InvalidPattern);
    let position: usize = refusal.value("position").parse().expect("a number");
    assert!((3..=5).contains(&position), "{refusal:?}");
    assert!(refusal.message.contains("literal"), "{refusal:?}");
}

#[test]
fn a_pattern_is_one_line_of_at_least_one_byte_and_at_most_4_kib() {
    let site = Site::both("8M", |root| put(root, "a", "x".repeat(5_000)));
    for pattern in ["", "a\nb", &"x".repeat(4_097)] {
        let refusal = site.search(ask::search(LIVE, "/", pattern)).expect_err("no pattern");
        assert!(matches!(refusal.reason, ErrorReason::InvalidPattern | ErrorReason::InvalidRequest), "{refusal:?}");
        assert_eq!(refusal.value("field"), "pattern");
    }
    check_refused(&site, regex(r"a\nb"), ErrorReason::InvalidPattern, "pattern");
    check(&site, ask::search(LIVE, "/", &"x".repeat(4_096)), &["/a:1:1"]);
}

#[test]
fn case_is_ignored_where_that_is_asked() {
    let site = Site::both("8M", |root| put(root, "a", "a TODO\nb.todo\n\u{c9}t\u{e9}\n"));
    let any = |request| pb::SearchRequest { case_insensitive: true, ..request };
    check(&site, ask::search(LIVE, "/", "todo"), &["/a:2:3"]);
    check(&site, any(ask::search(LIVE, "/", "todo")), &["/a:1:3", "/a:2:3"]);
    check(&site, any(ask::search(LIVE, "/", "B.TODO")), &["/a:2:1"]);
    check(&site, any(ask::search(LIVE, "/", "\u{e9}T\u{c9}")), &["/a:3:1"]);
    check(&site, any(regex("b.ToDo$")), &["/a:2:1"]);
}

#[test]
fn a_path_may_be_one_file() {
    let site = Site::both("8M", |root| {
        put(root, "src/a.py", "TODO\n");
        put(root, "src/b.py", "TODO\n");
    });
    check(&site, todo("/src/a.py"), &["/src/a.py:1:1"]);
    // Globs choose among what is beneath the path, never the path itself.
    check(&site, pb::SearchRequest { include: vec!["*.md".to_owned()], ..todo("/src/a.py") }, &["/src/a.py:1:1"]);
    for workspace in [LIVE, ASLEEP] {
        let refusal = site.search(ask::search(workspace, "/src/missing/x", "TODO")).expect_err("nothing is there");
        refusal.expect(ErrorReason::FileNotFound).with("path", "/src/missing/x").with("missing", "/src/missing");
    }
}

#[test]
fn matches_come_in_path_order_the_same_fifty_times() {
    let site = Site::both("16M", |root| {
        for number in 0..1_000 {
            put(root, &format!("d{:02}/{}/f{number}", number % 37, number % 3), "TODO\nno\nTODO\n");
        }
        put(root, "d00.txt", "TODO\n");
        put(root, "d00-x", "TODO\n");
    });
    for (workspace, runs) in [(LIVE, 50), (ASLEEP, 20)] {
        let request = pb::SearchRequest { max_matches: Some(5_000), ..ask::search(workspace, "/", "TODO") };
        let first = site.search(request.clone()).expect("an answer");
        assert_eq!(first.matches.len(), 2_002);
        assert_eq!(first.end.files_scanned, 1_002);
        let paths = first.paths();
        assert!(paths.is_sorted_by_key(|path| path.as_bytes()), "byte order of whole paths");
        let place = |path: &str| paths.iter().position(|one| *one == path).expect("it is found");
        assert!(place("/d00-x") < place("/d00.txt") && place("/d00.txt") < place("/d00/0/f0"), "`-` < `.` < `/`");
        let cut = pb::SearchRequest { max_matches: Some(301), ..request.clone() };
        let first_cut = site.search(cut.clone()).expect("an answer");
        assert_eq!(first_cut.matches, first.matches[..301]);
        for _ in 0..runs {
            assert_eq!(site.search(request.clone()).expect("an answer").matches, first.matches);
            let again = site.search(cut.clone()).expect("an answer");
            assert_eq!((again.matches, again.end), (first_cut.matches.clone(), first_cut.end));
        }
    }
}

#[test]
fn lines_and_byte_columns_are_counted_from_one() {
    let site = Site::both("8M", |root| {
        put(root, "a", "TODO\n");
        put(root, "b", "\u{e9} TODO\n");
        put(root, "c", b"\n\xff TODO TODO");
        put(root, "d", "\u{feff}TODO\n");
    });
    check(&site, todo("/"), &["/a:1:1", "/b:1:4", "/c:2:3", "/d:1:4"]);
    for workspace in [LIVE, ASLEEP] {
        let answer = site.search(ask::search(workspace, "/c", "TODO")).expect("an answer");
        let one = &answer.matches[0];
        assert_eq!(one.end_column, 7);
        assert_eq!((one.text.as_str(), &one.raw_text[..]), ("\u{fffd} TODO TODO", &b"\xff TODO TODO"[..]));
        let answer = site.search(ask::search(workspace, "/b", "TODO")).expect("an answer");
        assert!(answer.matches[0].raw_text.is_empty(), "text that is true has no raw twin");
    }
    check(&site, regex("^TODO"), &["/a:1:1", "/d:1:4"]);
}

#[test]
fn every_line_that_hits_is_one_match_of_at_most_1000_bytes() {
    let wide = format!("TODO{}\n", "\u{e9}".repeat(600));
    let site = Site::both("8M", |root| {
        put(root, "a", "TODO TODO TODO\nTODO\n");
        put(root, "b", &wide);
        put(root, "c", format!("{}TODO\n", "x".repeat(995)));
        put(root, "d", format!("{}TODO\n", "x".repeat(996)));
        put(root, "e", format!("{}TODO\n", "x".repeat(1_196)));
    });
    check(&site, todo("/"), &["/a:1:1", "/a:2:1", "/b:1:1", "/c:1:996", "/d:1:997", "/e:1:1197"]);
    for workspace in [LIVE, ASLEEP] {
        let answer = site.search(ask::search(workspace, "/", "TODO")).expect("an answer");
        let of = |path: &str| answer.matches.iter().find(|one| one.path == path).expect("it is found");
        assert_eq!((of("/b").text.as_str(), of("/b").text_clipped), (&wide[..1_000], true));
        assert_eq!((of("/c").text.len(), of("/c").text_clipped), (999, false));
        assert_eq!((of("/d").text.len(), of("/d").text_clipped), (1_000, false));
        assert_eq!((of("/e").text.len(), of("/e").text_clipped), (1_000, true));
    }
}

#[test]
fn a_cut_falls_before_a_character_that_does_not_fit() {
    let line = format!("TODO{}\u{20ac}\u{20ac}", "x".repeat(995));
    let site = Site::both("8M", |root| put(root, "a", &line));
    for workspace in [LIVE, ASLEEP] {
        let one = &site.search(ask::search(workspace, "/", "TODO")).expect("an answer").matches[0];
        assert_eq!((one.text.as_str(), one.text_clipped, one.raw_text.is_empty()), (&line[..999], true, true));
    }
}

#[test]
fn a_very_long_line_is_clipped_and_never_dropped() {
    let site = Site::both("8M", |root| {
        put(root, "a", format!("{}TODO{}\nTODO\n", "y".repeat(324_500), "y".repeat(324_500)));
        put(root, "b", format!("{}\nTODO on two\n", "z".repeat(70 << 10)));
    });
    check(&site, todo("/"), &["/a:1:324501", "/a:2:1", "/b:2:1"]);
    for workspace in [LIVE, ASLEEP] {
        let one = &site.search(ask::search(workspace, "/a", "TODO")).expect("an answer").matches[0];
        assert!(one.text.len() <= 1_000 && one.text_clipped, "{} bytes", one.text.len());
    }
}

#[test]
fn a_line_is_searched_in_its_first_mebibyte() {
    let line = |before: usize| format!("{}TODO\nafter TODO\n", "x".repeat(before));
    let site = Site::both("32M", |root| {
        put(root, "a", line((1 << 20) - 10));
        put(root, "b", line((1 << 20) + 10));
        put(root, "c", line((1 << 20) - 2));
    });
    let request = pb::SearchRequest { max_file_bytes: Some(4 << 20), ..todo("/") };
    check(&site, request, &["/a:1:1048567", "/a:2:7", "/b:2:7", "/c:2:7"]);
}

#[test]
fn context_is_what_stands_around() {
    let site = Site::both("8M", |root| {
        put(root, "a", "1\n2\n3 TODO\n4\n5 TODO\n6");
        put(root, "b", "TODO\n");
    });
    let lines = |lines: &[pb::Line]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>().join("|");
    for (count, expect) in [
        (0, [("", ""), ("", ""), ("", "")]),
        (1, [("2", "4"), ("4", "6"), ("", "")]),
        (5, [("1|2", "4|5 TODO|6"), ("1|2|3 TODO|4", "6"), ("", "")]),
    ] {
        for workspace in [LIVE, ASLEEP] {
            let request = pb::SearchRequest { context_lines: count, ..ask::search(workspace, "/", "TODO") };
            let answer = site.search(request).expect("an answer");
            let found: Vec<_> = answer.matches.iter().map(|one| (lines(&one.before), lines(&one.after))).collect();
            let found: Vec<_> = found.iter().map(|(before, after)| (before.as_str(), after.as_str())).collect();
            assert_eq!(found, expect, "{count} lines of {workspace}");
            let request =
                pb::SearchRequest { context_lines: count, max_matches: Some(1), ..ask::search(workspace, "/", "TODO") };
            let answer = site.search(request).expect("an answer");
            assert_eq!(lines(&answer.matches[0].after), expect[0].1, "the last match has its context too");
        }
    }
    for count in [-1, 6] {
        let request = pb::SearchRequest { context_lines: count, ..todo("/") };
        check_refused(&site, request, ErrorReason::InvalidRequest, "context_lines");
    }
}

#[test]
fn globs_are_gitignores_relative_to_the_path() {
    let site = Site::both("8M", |root| {
        for path in [
            "a.py",
            "p/a.py",
            "p/b/c/a.py",
            "p/src/x/y.ts",
            "p/other/src/x.ts",
            "p/build/out",
            "p/lib/build",
            "p/m.md",
            "p/s.sh",
        ] {
            put(root, path, "TODO\n");
        }
    });
    let include = |globs: &[&str]| pb::SearchRequest {
        include: globs.iter().map(|glob| (*glob).to_owned()).collect(),
        ..todo("/p")
    };
    for (globs, found) in [
        (["*.py"].as_slice(), ["/p/a.py:1:1", "/p/b/c/a.py:1:1"].as_slice()),
        (&["src/**/*.ts"], &["/p/src/x/y.ts:1:1"]),
        (&["/a.py"], &["/p/a.py:1:1"]),
        (&["build/"], &["/p/build/out:1:1"]),
        (&["build"], &["/p/build/out:1:1", "/p/lib/build:1:1"]),
        (&["*.{md,sh}"], &["/p/m.md:1:1", "/p/s.sh:1:1"]),
        (&["/m.md", "*.ts"], &["/p/m.md:1:1", "/p/other/src/x.ts:1:1", "/p/src/x/y.ts:1:1"]),
    ] {
        check(&site, include(globs), found);
    }
    let exclude = |globs: &[&str]| pb::SearchRequest { exclude: ask::globs(globs), ..todo("/p") };
    check(&site, exclude(&["build/", "*.ts", "*.{md,sh}", "/b"]), &["/p/a.py:1:1", "/p/lib/build:1:1"]);
    // What is excluded stays so, whatever includes it.
    let both = pb::SearchRequest { exclude: ask::globs(&["/b"]), ..include(&["*.py"]) };
    check(&site, both, &["/p/a.py:1:1"]);
    for glob in ["", "/", "#x", "!x", "[", "{a", "a\\", "./x", "../x", &"x".repeat(1_025)] {
        check_refused_glob(&site, include(&[glob]), "include");
        check_refused_glob(&site, exclude(&[glob]), "exclude");
    }
}

/// A bad glob names its list, with or without its index.
#[track_caller]
fn check_refused_glob(site: &Site, request: pb::SearchRequest, field: &str) {
    let refusal = site.search(request.clone()).map(|answer| panic!("{request:?}: {answer:?}")).expect_err("refused");
    assert!(matches!(refusal.reason, ErrorReason::InvalidPattern | ErrorReason::InvalidRequest), "{refusal:?}");
    assert!(refusal.value("field").starts_with(field), "{refusal:?}");
}

#[test]
fn there_are_at_most_32_globs_of_a_kind() {
    let site = Site::both("8M", |root| put(root, "a", "TODO\n"));
    let many = |count: usize| (0..count).map(|number| format!("{number}")).chain(["a".to_owned()]).collect::<Vec<_>>();
    check(&site, pb::SearchRequest { include: many(31), ..todo("/") }, &["/a:1:1"]);
    check(&site, pb::SearchRequest { exclude: Some(pb::GlobList { globs: many(31) }), ..todo("/") }, &[]);
    for request in [
        pb::SearchRequest { include: many(32), ..todo("/") },
        pb::SearchRequest { exclude: Some(pb::GlobList { globs: many(32) }), ..todo("/") },
    ] {
        let refusal = site.search(request).expect_err("33 are refused");
        assert!(refusal.message.contains("32"), "the limit is named: {refusal:?}");
        assert_eq!(refusal.reason, ErrorReason::InvalidRequest);
    }
}

#[test]
fn git_and_node_modules_are_left_out_unless_the_caller_says_what_is() {
    let site = Site::both("8M", |root| {
        for path in [".git/config", "node_modules/m/index.js", "sub/node_modules/x", "a", "sub/.gitx"] {
            put(root, path, "TODO\n");
        }
    });
    let all =
        ["/.git/config:1:1", "/a:1:1", "/node_modules/m/index.js:1:1", "/sub/.gitx:1:1", "/sub/node_modules/x:1:1"];
    check(&site, todo("/"), &["/a:1:1", "/sub/.gitx:1:1"]);
    check(&site, pb::SearchRequest { exclude: ask::globs(&[]), ..todo("/") }, &all);
    check(&site, pb::SearchRequest { exclude: ask::globs(&["/sub"]), ..todo("/") }, &all[..3]);
    // A root that lies inside is searched, because it was asked for.
    check(&site, todo("/node_modules/m"), &["/node_modules/m/index.js:1:1"]);
    check(&site, todo("/node_modules"), &["/node_modules/m/index.js:1:1"]);
}

#[test]
fn hidden_and_ignored_files_are_searched() {
    let site = Site::both("8M", |root| {
        put(root, ".gitignore", "scripts/*\n");
        put(root, ".ignore", "scripts/*\n");
        for path in ["scripts/deploy", ".env", ".github/workflows/ci.yml"] {
            put(root, path, "TODO\n");
        }
    });
    check(&site, todo("/"), &["/.env:1:1", "/.github/workflows/ci.yml:1:1", "/scripts/deploy:1:1"]);
}

#[test]
fn links_are_not_followed() {
    let site = Site::both("8M", |root| {
        put(root, "real/a", "TODO\n");
        put(root.parent().expect("a parent"), "outside", "TODO\n");
        symlink("real", root.join("inside-directory")).expect("a link");
        symlink("real/a", root.join("inside-file")).expect("a link");
        symlink("../outside", root.join("outside-file")).expect("a link");
        symlink("/etc", root.join("outside-directory")).expect("a link");
    });
    check(&site, todo("/"), &["/real/a:1:1"]);
    for workspace in [LIVE, ASLEEP] {
        let refusal = site.search(ask::search(workspace, "/inside-directory", "TODO")).expect_err("a link is no root");
        refusal.expect(ErrorReason::SymlinkRefused).with("link", "/inside-directory");
        let refusal = site.search(ask::search(workspace, "/outside-directory", "root")).expect_err("a link is no root");
        refusal.expect(ErrorReason::SymlinkRefused);
    }
}

#[test]
fn what_is_no_text_or_no_file_is_skipped_and_counted() {
    let site = Site::both("8M", |root| {
        put(root, "a", "TODO\n");
        put(root, "nul-early", [&[b'x'; 8_186][..], b"TODO\n\0"].concat());
        put(root, "nul-late", [&[b'x'; 8_186][..], b"TODO\nz\0"].concat());
        put(root, "utf-16", "TODO".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
        nix::unistd::mkfifo(&root.join("fifo"), Mode::S_IRWXU).expect("a fifo");
    });
    // The NUL lies at offset 8,191 in one, at 8,192 in the other.
    check(&site, todo("/"), &["/a:1:1", "/nul-late:1:8187"]);
    for workspace in [LIVE, ASLEEP] {
        let end = site.search(ask::search(workspace, "/", "TODO")).expect("an answer").end;
        assert_eq!(end.files_scanned, 2);
        let skipped = end.skipped.expect("what was skipped is told");
        assert_eq!((skipped.binary, skipped.special, skipped.too_large, skipped.unreadable), (2, 1, 0, 0));
    }
}

#[test]
fn proc_is_skipped() {
    let site = Site::live(|root| {
        put(root, "a", "TODO\n");
        put(root, "proc/version", "TODO in a checkout's own proc\n");
        fs::create_dir(root.join("mounted")).expect("a directory");
    });
    let found = site.search(todo("/")).expect("an answer");
    assert_eq!(found.paths(), ["/a", "/proc/version"]);
    let place = site.file("/mounted");
    let arguments = ["-t", "proc", "proc"];
    let Some(_mount) = Mount::make("a search past a mounted proc", &arguments, &place) else { return };
    assert!(place.join("version").exists(), "it is mounted");
    let answer = site.search(ask::search(LIVE, "/", "Linux version")).expect("an answer");
    assert_eq!(answer.paths(), [""; 0]);
    assert_eq!(answer.end.files_scanned, 2);
}

#[test]
fn files_above_the_size_are_skipped_and_the_size_has_bounds() {
    let file = |size: usize| format!("{}TODO", "x\n".repeat((size - 4) / 2 + 1))[2 - size % 2..][..size].to_owned();
    let site = Site::both("32M", |root| {
        put(root, "exact", file(1 << 20));
        put(root, "more", file((1 << 20) + 1));
    });
    for workspace in [LIVE, ASLEEP] {
        let answer = site.search(ask::search(workspace, "/", "TODO")).expect("an answer");
        assert_eq!(answer.paths(), ["/exact"]);
        assert_eq!(answer.end.skipped.unwrap_or_default().too_large, 1);
        let all = |max| pb::SearchRequest { max_file_bytes: Some(max), ..ask::search(workspace, "/", "TODO") };
        assert_eq!(site.search(all(64 << 20)).expect("an answer").paths(), ["/exact", "/more"]);
        assert_eq!(site.search(all(1)).expect("an answer").paths(), [""; 0]);
        // A file that is named is held to the size too.
        let one = site.search(ask::search(workspace, "/more", "TODO")).expect("an answer");
        assert_eq!((one.matches.len(), one.end.skipped.unwrap_or_default().too_large), (0, 1));
    }
    for max in [0, -1, (64 << 20) + 1] {
        let request = pb::SearchRequest { max_file_bytes: Some(max), ..todo("/") };
        check_refused(&site, request, ErrorReason::InvalidRequest, "max_file_bytes");
    }
}

#[test]
fn it_is_truncated_exactly_where_more_lines_match() {
    let site = Site::both("8M", |root| {
        put(root, "250", "TODO\n".repeat(250));
        put(root, "199/a", "TODO\n".repeat(199));
        put(root, "199/z", "nothing\n");
        put(root, "one/a", "TODO\n");
    });
    for workspace in [LIVE, ASLEEP] {
        let run = |path: &str, max: Option<i32>| {
            let request = pb::SearchRequest { max_matches: max, ..ask::search(workspace, path, "TODO") };
            let answer = site.search(request).expect("an answer");
            (answer.matches.len(), answer.end.stop_reason(), answer.end.files_scanned)
        };
        assert_eq!(run("/250", None), (200, StopReason::MaxMatches, 1));
        assert_eq!(run("/250", Some(249)), (249, StopReason::MaxMatches, 1));
        assert_eq!(run("/250", Some(250)), (250, StopReason::Unspecified, 1));
        assert_eq!(run("/250", Some(5_000)), (250, StopReason::Unspecified, 1));
        assert_eq!(run("/199", Some(199)), (199, StopReason::Unspecified, 2));
        // 199 and 1 are the default's 200; the file `/250` comes between them in path order.
        assert_eq!(run("/", Some(449)), (449, StopReason::MaxMatches, 3));
        assert_eq!(run("/", Some(450)), (450, StopReason::Unspecified, 4));
    }
    for max in [0, -1, 5_001] {
        let request = pb::SearchRequest { max_matches: Some(max), ..todo("/") };
        check_refused(&site, request, ErrorReason::InvalidRequest, "max_matches");
    }
}

#[test]
fn enough_early_matches_stop_the_walk() {
    let site = Site::live(|root| {
        put(root, "a", "TODO\n".repeat(200));
        for number in 0..3_000 {
            put(root, &format!("b/{}/{number}", number % 30), "TODO\n");
        }
    });
    let Some(trace) = trace::Trace::attach(&site.world, "open,openat,openat2", "how many files a search opens") else {
        return;
    };
    let answer = site.search(pb::SearchRequest { max_matches: Some(100), ..todo("/") }).expect("an answer");
    assert_eq!((answer.matches.len(), answer.end.files_scanned), (100, 1));
    let notes = trace.finish();
    let opened = notes.lines().filter(|line| line.contains("open")).count();
    assert!(opened > 0, "strace saw the search:\n{notes}");
    assert!(opened < 500, "{opened} of 3,000 files were opened for matches that were in the first");
}

#[test]
fn results_stop_at_4_mib_of_whole_matches() {
    let line = format!("TODO {}\n", "r".repeat(990));
    let site = Site::both("32M", |root| {
        for number in 0..10 {
            put(root, &format!("f{number}"), line.repeat(900));
        }
    });
    for workspace in [LIVE, ASLEEP] {
        let request = pb::SearchRequest { max_matches: Some(5_000), ..ask::search(workspace, "/", "TODO") };
        let answer = site.search(request).expect("an answer");
        assert_eq!(answer.end.stop_reason(), StopReason::MaxBytes);
        let bytes: usize = answer.matches.iter().map(prost::Message::encoded_len).sum();
        // Each match has a tag and a length of its own around it, and the last one that fits leaves less than itself.
        let framed = bytes + 3 * answer.matches.len();
        assert!(framed <= 4 << 20 && framed + 4_096 > 4 << 20, "4 MiB are used, not exceeded: {framed}");
        assert!(answer.matches.iter().all(|one| one.text.len() == line.len() - 1), "each match is whole");
    }
}

#[test]
fn a_carriage_return_before_the_line_feed_is_no_part_of_the_line() {
    let site = Site::both("8M", |root| put(root, "a", "foo\r\nbar\r\nfoo\rx\nfoo"));
    check(&site, regex("foo$"), &["/a:1:1", "/a:4:1"]);
    for workspace in [LIVE, ASLEEP] {
        let answer = site.search(ask::search(workspace, "/", "bar")).expect("an answer");
        assert_eq!(answer.matches[0].text, "bar");
    }
}

/// A tree that takes many seconds to search: one large text under many names.
fn slow(root: &Path) {
    put(root, "00", "TODO\n");
    let text = "the quick brown fox jumps over the lazy dog 0123456789\n".repeat((24 << 20) / 55);
    put(root, "01/000", text);
    for number in 1..400 {
        fs::hard_link(root.join("01/000"), root.join(format!("01/{number:03}"))).expect("a hard link");
    }
}

fn slow_search(workspace: &str) -> pb::SearchRequest {
    pb::SearchRequest {
        regex: true,
        max_file_bytes: Some(64 << 20),
        ..ask::search(workspace, "/", r"TODO|[a-z]+ [0-8]+[a-z]+")
    }
}

#[test]
fn a_search_out_of_time_gives_what_it_has() {
    let setup = Setup::new().config("[limits]\nsearch_budget = \"1s\"\n");
    let site = Site::both_with(setup, "64M", slow);
    for workspace in [LIVE, ASLEEP] {
        let begin = Instant::now();
        let answer = site.search(slow_search(workspace)).expect("an answer");
        assert_eq!((answer.end.truncated, answer.end.stop_reason()), (true, StopReason::Budget), "{workspace}");
        assert_eq!(answer.places(), ["/00:1:1"]);
        assert!(answer.end.files_scanned < 401, "{:?}", answer.end);
        assert!((900..2_500).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    }
}

#[test]
fn a_callers_deadline_is_a_budget_and_the_answer_arrives_before_it() {
    let site = Site::both("64M", slow);
    for workspace in [LIVE, ASLEEP] {
        let mut request = Request::new(slow_search(workspace));
        request.set_timeout(Duration::from_millis(1_500));
        let answer = site.wait(site::search(site.files.clone(), request)).expect("an answer within the deadline");
        assert_eq!(answer.end.stop_reason(), StopReason::Budget, "{workspace}");
        assert_eq!(answer.places(), ["/00:1:1"]);
    }
}

#[test]
fn a_search_whose_caller_has_gone_stops_within_a_second() {
    let setup = Setup::new().config("[limits]\nsearch_budget = \"60s\"\n");
    let site = Site::both_with(setup, "64M", slow);
    for workspace in [LIVE, ASLEEP] {
        let before = trace::cpu_ticks(&site.world);
        let mut files = site.files.clone();
        let request = slow_search(workspace);
        let call = site.runtime.spawn(async move {
            let mut stream = files.search(request).await.expect("it begins").into_inner();
            while let Ok(Some(message)) = stream.message().await {
                assert!(message.end.is_none(), "it does not end before its caller goes");
            }
        });
        let begin = Instant::now();
        while trace::cpu_ticks(&site.world) < before + 30 {
            assert!(!call.is_finished() && begin.elapsed() < Duration::from_secs(30), "the search is under way");
            std::thread::yield_now();
        }
        call.abort();
        let gone = Instant::now();
        // Its threads have stopped when a quarter of a second costs the agent next to nothing.
        loop {
            let ticks = trace::cpu_ticks(&site.world);
            std::thread::sleep(Duration::from_millis(250));
            if trace::cpu_ticks(&site.world) <= ticks + 1 {
                break;
            }
            assert!(gone.elapsed() < Duration::from_secs(2), "{workspace}: the search goes on without its caller");
        }
    }
}
