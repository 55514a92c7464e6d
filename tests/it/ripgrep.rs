//! Search beside ripgrep over generated trees: the same lines at the same places, live and on a disk, with an index and
//! without.
//!
//! Where the two differ on purpose the trees hold nothing, and `docs/search.md` says what we do:
//! - a NUL behind the first 8 KiB (ripgrep stops there), and text in front of a NUL (ripgrep may show it);
//! - a byte order mark (ripgrep's columns leave it out; UTF-16 is text to it);
//! - a carriage return elsewhere than before a line feed; lines beyond 1 MiB;
//! - `\d`, `\w` and `\b` beyond ASCII: patterns are spelt for each in its own way;
//! - the order: ours is the byte order of whole paths, so theirs is sorted again.

use std::{collections::BTreeSet, os::unix::fs::symlink, path::Path, process::Command};

use dormouse_proto::files::v1 as pb;
use dormouse_tests::{
    ask,
    site::{ASLEEP, LIVE, SearchAnswer, Site, put},
    skip,
};

/// Numbers from a seed (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

const WORDS: &[&[u8]] = &[
    b"TODO",
    b"todo",
    b"import",
    b"Import ",
    b" ",
    b" ",
    b"  ",
    b"fn ",
    b"run_test",
    b"(a.b)",
    b"task",
    b"TASK",
    b"author",
    b"AUTHORIZATION",
    b"x",
    b"xx",
    b"_2024",
    b"\xc3\xa9",
    b"\xc3\x89",
    b"\xe2\x84\xaa",
    b"\xc5\xbf",
    b"\xff",
    b"\t",
    b"[",
    b"]",
    b"{1}",
    b"^",
    b"$",
];

fn text(numbers: &mut Numbers) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..numbers.below(40) {
        for _ in 0..numbers.below(8) {
            text.extend_from_slice(numbers.of(WORDS));
        }
        text.extend_from_slice(numbers.of(&[b"\n".as_slice(), b"\n", b"\n", b"\r\n"]));
    }
    if numbers.below(3) == 0 {
        text.extend_from_slice(b"the last line import TODO");
    }
    if numbers.below(25) == 0 {
        text.extend_from_slice(&b"long ".repeat(30_000));
        text.extend_from_slice(b"TODO\nrun_test\n");
    }
    text
}

fn grown(seed: u64) -> impl FnOnce(&Path) {
    move |root| {
        let mut numbers = Numbers(seed);
        let folders =
            ["src", "src/deep", "a", "a.b", "a/b", ".hidden", "node_modules/x", ".git", "sub/node_modules", "c-d"];
        for number in 0..160 {
            let folder = numbers.of(&folders);
            let ending = numbers.of(&["rs", "py", "md", "txt"]);
            put(root, &format!("{folder}/f{number}.{ending}"), text(&mut numbers));
        }
        put(root, "src/binary", b"\0TODO\nimport\n");
        put(root, "src/large", b"TODO import\n".repeat((1 << 20) / 12 + 1));
        put(root, "src/empty", b"");
        symlink("src", root.join("link")).expect("a link");
        symlink("f0.rs", root.join("src/link.rs")).expect("a link");
        put(root, ".gitignore", b"*.rs\nTODO\n");
    }
}

/// The pattern as ours takes it and as ripgrep does, which is the same where the second is empty.
const QUESTIONS: &[(&str, &str, bool, bool)] = &[
    ("TODO", "", false, false),
    ("todo", "", false, true),
    ("(a.b)", "", false, false),
    ("{1}", "", false, true),
    ("task", "", false, true),
    ("authorization", "", false, true),
    ("\u{e9}", "", false, true),
    ("k", "", false, true),
    ("nowhere_at_all", "", false, false),
    ("import.*TODO", "", true, false),
    ("^import", "", true, true),
    ("TODO$", "", true, false),
    ("^$", "", true, false),
    ("x{2,3}", "", true, false),
    ("(TODO|run_test|task)_?", "", true, false),
    (r"fn \w+_test", "fn [0-9A-Za-z_]+_test", true, false),
    (r"\bfn\b", r"(?-u:\b)fn(?-u:\b)", true, false),
    (r"\d{4}", "[0-9]{4}", true, false),
    (r"[^a-z\s]+$", r"[^a-z\t\n\f\r ]+$", true, false),
    (r"\[\]|\^", "", true, false),
    ("(?i)TaSk", "", true, false),
    ("[A-Z]{3,}_[0-9]{4}", "", true, true),
    ("x*", "", true, false),
    (".", "", true, false),
];

/// Path, line, column and text.
type Found = (String, u64, u64, String);

/// Every line that ripgrep finds.
fn theirs(rg: &Path, root: &Path, question: &(&str, &str, bool, bool), globs: &[&str]) -> BTreeSet<Found> {
    let (ours, theirs, is_regex, any_case) = *question;
    let mut command = Command::new(rg);
    command.args(["--no-config", "--no-ignore", "--hidden", "--max-filesize", "1M", "--crlf", "--color=never"]);
    command.args(["-n", "--column", "--no-heading", "--with-filename", "--null", "-g", "!.git", "-g", "!node_modules"]);
    for glob in globs {
        command.args(["-g", glob]);
    }
    if any_case {
        command.arg("-i");
    }
    if !is_regex {
        command.arg("-F");
    }
    let output =
        command.arg("-e").arg(if theirs.is_empty() { ours } else { theirs }).arg("./").current_dir(root).output();
    let output = output.expect("rg runs");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let number = |digits: &[u8]| String::from_utf8_lossy(digits).parse::<u64>().expect("a number");
    let found = lines.map(|line| {
        let (path, rest) = split(line, 0);
        let (line, rest) = split(rest, b':');
        let (column, text) = split(rest, b':');
        // The path begins with a dot, as it was asked for.
        let path = String::from_utf8_lossy(&path[1..]).into_owned();
        (path, number(line), number(column), shown(text.strip_suffix(b"\r").unwrap_or(text)))
    });
    found.collect()
}

fn split(bytes: &[u8], at: u8) -> (&[u8], &[u8]) {
    let place = bytes.iter().position(|&byte| byte == at).expect("ripgrep's form");
    (&bytes[..place], &bytes[place + 1..])
}

/// The beginning of a line, as both show it.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(900)]).chars().take(200).collect()
}

fn ours(answer: &SearchAnswer) -> BTreeSet<Found> {
    let found = answer.matches.iter().map(|one| {
        let number = |value: i32| u64::try_from(value).expect("it counts from 1");
        (one.path.clone(), number(one.line), number(one.column), shown(one.text.as_bytes()))
    });
    found.collect()
}

#[test]
fn finds_what_ripgrep_finds() {
    let Some(rg) = skip::tool("DORMOUSE_RG", "Search beside ripgrep") else { return };
    for seed in 1..=3 {
        let site = Site::both("32M", grown(seed));
        for question in QUESTIONS {
            for globs in [[].as_slice(), &["*.py"], &["*.{rs,md}"], &["/src/**"]] {
                let expect = theirs(Path::new(&rg), &site.root, question, globs);
                let (pattern, _, regex, case_insensitive) = *question;
                let ask = |workspace: &str| pb::SearchRequest {
                    regex,
                    case_insensitive,
                    include: globs.iter().map(|&glob| glob.to_owned()).collect(),
                    max_matches: Some(5_000),
                    ..ask::search(workspace, "/", pattern)
                };
                let live = site.search(ask(LIVE)).expect("an answer");
                let asleep = site.search(ask(ASLEEP)).expect("an answer");
                assert!(!live.end.truncated && live.matches.is_sorted_by_key(|one| (one.path.clone(), one.line)));
                let found = ours(&live);
                let differ: Vec<_> = found.symmetric_difference(&expect).take(5).collect();
                assert!(differ.is_empty(), "seed {seed}, {question:?}, {globs:?}: {differ:#?}");
                // Whether the disk has its index by now is a matter of time, and makes no difference.
                assert_eq!((live.matches, live.end), (asleep.matches, asleep.end), "{question:?} {globs:?}");
            }
        }
    }
}
