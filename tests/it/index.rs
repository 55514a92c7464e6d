//! Indexes of disks at rest: an answer is the same with one and without, and one that is stale or damaged is never used.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dormouse_proto::{files::v1 as pb, host::v1 as host};
use dormouse_tests::{
    ask,
    site::{ASLEEP, LIVE, SearchAnswer, Site, put},
    world::Setup,
};

/// Longest wait for what is done in the background.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files of source-like text in several directories, and all that a search counts.
fn grown(root: &Path) {
    for number in 0..240 {
        let text: String = (0..60).map(|line| format!("let value_{} = call_{}(x);\n", line * number, line)).collect();
        let text = text + if number % 7 == 0 { "// TODO: mask the Task\n" } else { "" };
        put(root, &format!("src/part-{}/file_{number}.rs", number % 5), text);
    }
    put(root, "docs/kelvin", "TAS\u{212a} and ta\u{17f}k\n");
    put(root, "docs/binary", b"TODO\0\n");
    put(root, "docs/large", "TODO ".repeat(300_000));
    put(root, ".git/config", "TODO\n");
    put(root, "node_modules/a/index.js", "TODO\n");
    put(root, "proc/1/status", "TODO\n");
}

fn questions(workspace: &str) -> Vec<pb::SearchRequest> {
    let plain = |pattern: &str| ask::search(workspace, "/", pattern);
    let any_case = |pattern: &str| pb::SearchRequest { case_insensitive: true, ..plain(pattern) };
    let regex = |pattern: &str| pb::SearchRequest { regex: true, ..plain(pattern) };
    vec![
        plain("TODO"),
        plain("zxqj_nowhere"),
        plain("="),
        any_case("task"),
        any_case("TODO"),
        regex(r"value_\d+ = call_5\d\("),
        regex("^$"),
        pb::SearchRequest { context_lines: 2, ..plain("TODO") },
        pb::SearchRequest { max_matches: Some(3), ..plain("TODO") },
        pb::SearchRequest { max_matches: Some(5_000), ..plain("let") },
        pb::SearchRequest { max_file_bytes: Some(2_000), ..plain("TODO") },
        pb::SearchRequest { max_file_bytes: Some(64 << 20), ..plain("TODO") },
        pb::SearchRequest { include: vec!["file_7*.rs".to_owned()], ..plain("TODO") },
        pb::SearchRequest { exclude: ask::globs(&[]), ..plain("TODO") },
        pb::SearchRequest { exclude: ask::globs(&["part-0/", "docs", "node_modules", ".git"]), ..plain("TODO") },
        ask::search(workspace, "/src/part-0", "TODO"),
        ask::search(workspace, "/src/part-0/file_0.rs", "TODO"),
        ask::search(workspace, "/.git", "TODO"),
    ]
}

fn answers(site: &Site) -> Vec<SearchAnswer> {
    questions(ASLEEP)
        .into_iter()
        .map(|request| {
            let answer = site.search(request.clone()).unwrap_or_else(|refusal| panic!("{request:?}: {refusal:?}"));
            // How the matches were cut into messages is a matter of time.
            SearchAnswer { message_bytes: 0, ..answer }
        })
        .collect()
}

fn files(state: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(state.join("search-index")) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "index"))
        .collect()
}

/// Waits for so many indexes on disk.
fn wait(state: &Path, count: usize) -> Vec<PathBuf> {
    let begin = Instant::now();
    loop {
        let found = files(state);
        if found.len() == count {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "there are {found:?}, not {count}");
        std::thread::yield_now();
    }
}

fn setup(state: &Path) -> Setup {
    Setup::new().state(state)
}

#[test]
fn answers_with_an_index_are_those_without() {
    let state = tempfile::tempdir().expect("a place");
    let site = Site::both_with(setup(state.path()).argument("--search-index").argument("off"), "64M", grown);
    let expect = answers(&site);
    assert_eq!(answers(&site), expect);
    assert_eq!(files(state.path()), Vec::<PathBuf>::new(), "it is switched off");
    assert!(expect[0].end.files_scanned > 240 && expect[0].matches.len() > 30, "{:?}", expect[0].end);

    let state = tempfile::tempdir().expect("a place");
    let site = Site::both_with(setup(state.path()), "64M", grown);
    // The generation is the same; so is all else, before there is an index, with one, and with the next one.
    assert_eq!(answers(&site), expect);
    let index = wait(state.path(), 1).remove(0);
    for _ in 0..3 {
        assert_eq!(answers(&site), expect);
    }
    let live = site.search(ask::search(LIVE, "/", "TODO")).expect("an answer");
    assert_eq!(live.places().len(), expect[0].places().len() + 1, "a directory has a proc of its own");
    // An index that was damaged behind the agent's back, where it is read again.
    let mut bytes = fs::read(&index).expect("an index");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let text: u64 = 240 * 60 * 25;
    assert!((bytes.len() as u64) < text * 15 / 100 + (1 << 20), "{} bytes", bytes.len());
    fs::write(&index, &bytes).expect("it is written");
    let site = site.restarted(setup(state.path()));
    assert_eq!(answers(&site), expect, "a damaged index is not believed");
    wait(state.path(), 1);
    assert_eq!(answers(&site), expect);
}

#[test]
fn an_index_goes_when_its_rest_ends() {
    let state = tempfile::tempdir().expect("a place");
    let site = Site::both_with(setup(state.path()), "64M", grown);
    site.search(ask::search(ASLEEP, "/", "TODO")).expect("an answer");
    wait(state.path(), 1);
    let unseal = host::UnsealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
    site.wait(site.host().unseal_workspace(unseal)).expect("it is on its way back");
    assert_eq!(files(state.path()), Vec::<PathBuf>::new());
    // What was written meanwhile is found: the index of before says nothing.
    dormouse_tests::image::run("debugfs", &["-w", "-R", "rm /src/part-0/file_0.rs"], &[&site.image], &[]);
    let seal = host::SealWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
    site.wait(site.host().seal_workspace(seal)).expect("it sleeps again");
    let answer = site.search(ask::search(ASLEEP, "/", "TODO")).expect("an answer");
    assert!(!answer.paths().contains(&"/src/part-0/file_0.rs") && answer.paths().len() > 30, "{answer:?}");
    wait(state.path(), 1);
    let release = host::ReleaseWorkspaceRequest { name: ASLEEP.to_owned(), ..Default::default() };
    site.wait(site.host().release_workspace(release)).expect("it is forgotten");
    assert_eq!(files(state.path()), Vec::<PathBuf>::new());
}
