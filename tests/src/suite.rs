//! One story, told alike by everything that holds the same files: a live directory, an image of it, and a client far away.
//!
//! A [`Subject`] answers the read verbs as text lines; [`tell`] asks it the same questions in the same order. What may
//! differ between two holders of the same files (inode numbers, the size of a directory, link counts of the root) is left
//! out; everything else is in.

use std::{fmt::Write as _, ops::ControlFlow};

use dormouse_files::{
    Fault,
    budget::Unbounded,
    limits::Limits,
    list::{self, ListPlan},
    meta::FileType,
    path::TreePath,
    read::{self, Piece, Range, ReadPlan},
    search::{
        self, Match, SearchPlan,
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
    },
    stat::{self, Entry, Revisions, StatPlan},
    tree::Tree,
};
use dormouse_proto::files::v1 as pb;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

/// A search of the story.
pub struct Question<'a> {
    /// Where.
    pub path: &'a [u8],
    /// What.
    pub pattern: &'a str,
    /// Whether it is a regular expression.
    pub regex: bool,
    /// Whether case matters not.
    pub case_insensitive: bool,
    /// Which files.
    pub include: &'a [&'a str],
    /// Which not; nothing: `.git` and `node_modules`.
    pub exclude: Option<&'a [&'a str]>,
    /// Lines around each match.
    pub context: usize,
    /// Most matches.
    pub max: usize,
}

/// Whoever holds the files and answers for them. Every answer is text; a refusal is its reason's wire name.
pub trait Subject {
    /// What a path is, with its revision.
    fn stat(&mut self, path: &[u8]) -> Result<String, String>;
    /// The bytes of a part of a file, and how it ended.
    fn read(&mut self, path: &[u8], range: Range) -> Result<String, String>;
    /// A listing.
    fn list(&mut self, path: &[u8], depth: usize, include: &[&str], exclude: &[&str]) -> Result<String, String>;
    /// A search.
    fn search(&mut self, question: &Question<'_>) -> Result<String, String>;
}

/// Asks a subject everything, and writes down what it says.
pub fn tell(subject: &mut dyn Subject) -> String {
    let mut story = String::new();
    let mut add = |what: String, answer: Result<String, String>| {
        let answer = answer.unwrap_or_else(|reason| format!("refused: {reason}"));
        writeln!(story, "{what}\n  {}", answer.trim_end().replace('\n', "\n  ")).expect("text takes text");
    };
    let long_name = [b"/".as_slice(), &[b'n'; 255]].concat();
    for path in [
        b"/".as_slice(),
        b"/hello.txt",
        b"/hello-again.txt",
        b"/empty",
        b"/sparse",
        b"/wide.bin",
        b"/run.sh",
        b"/src",
        b"/src/",
        b"/.env",
        b"/link-to-file",
        b"/link-to-directory",
        b"/link-to-directory/app.py",
        b"/link-absolute/y.ts",
        b"/link-escaping",
        b"/link-escaping/hostname",
        b"/link-dangling",
        b"/link-loop-a",
        b"/link-loop-a/x",
        b"/link-long",
        b"/link-to-root/link-to-root/hello.txt",
        b"/fifo",
        b"/not-utf8-\xff.txt",
        &long_name,
        b"/many/file-01999.txt",
        b"/many/file-02000.txt",
        b"/missing",
        b"/missing/beneath",
        b"/hello.txt/beneath",
        b"/deep/1/2/3/4/5/6/7/8/leaf",
        b"/./src//x/y.ts",
        b"/Hello.txt",
    ] {
        add(format!("stat {}", String::from_utf8_lossy(path)), subject.stat(path));
    }
    for (path, range) in [
        (b"/hello.txt".as_slice(), Range::Whole),
        (b"/empty", Range::Whole),
        (b"/sparse", Range::Whole),
        (b"/wide.bin", Range::Whole),
        (b"/wide.bin", Range::Bytes { offset: 262_140, length: 10 }),
        (b"/wide.bin", Range::Bytes { offset: -7, length: 0 }),
        (b"/wide.bin", Range::Bytes { offset: 1_200_000, length: 0 }),
        (b"/wide.bin", Range::Bytes { offset: 1_200_001, length: 0 }),
        (b"/hello.txt", Range::Bytes { offset: -100, length: 3 }),
        (b"/no-final-newline", Range::Lines { start: 2, end: 2 }),
        (b"/no-final-newline", Range::Lines { start: 1, end: 0 }),
        (b"/no-final-newline", Range::Lines { start: 3, end: 0 }),
        (b"/crlf.txt", Range::Lines { start: 2, end: 99 }),
        (b"/empty", Range::Lines { start: 1, end: 0 }),
        (b"/link-to-file", Range::Whole),
        (b"/link-absolute/y.ts", Range::Whole),
        (b"/link-escaping", Range::Whole),
        (b"/link-loop-a", Range::Whole),
        (b"/link-dangling", Range::Whole),
        (b"/src", Range::Whole),
        (b"/fifo", Range::Whole),
        (b"/not-utf8-\xff.txt", Range::Whole),
        (b"/missing", Range::Whole),
    ] {
        add(format!("read {} {range:?}", String::from_utf8_lossy(path)), subject.read(path, range));
    }
    for (path, depth, include, exclude) in [
        (b"/".as_slice(), 1, [].as_slice(), [].as_slice()),
        (b"/", 64, &[], &[".git", "many"]),
        (b"/src", 2, &[], &[]),
        (b"/many", 1, &["*7.txt"], &[]),
        (b"/", 64, &["*.ts"], &["other/"]),
        (b"/", 64, &["build/"], &[]),
        (b"/link-to-directory", 1, &[], &[]),
        (b"/hello.txt", 1, &[], &[]),
        (b"/missing", 1, &[], &[]),
    ] {
        let what = format!("list {} to {depth} include {include:?} exclude {exclude:?}", String::from_utf8_lossy(path));
        add(what, subject.list(path, depth, include, exclude));
    }
    let all = Question {
        path: b"/",
        pattern: "TODO",
        regex: false,
        case_insensitive: false,
        include: &[],
        exclude: None,
        context: 0,
        max: 5_000,
    };
    for question in [
        Question { ..all },
        Question { exclude: Some(&[]), ..all },
        Question { context: 2, include: &["context.txt", "*.py"], ..all },
        Question { pattern: "todo", case_insensitive: true, max: 5, ..all },
        Question { pattern: r"foo$", regex: true, ..all },
        Question { pattern: r"def \w+_test", regex: true, ..all },
        Question { pattern: r"[A-Z]{2,}_[0-9]{4}\b", regex: true, ..all },
        Question { pattern: "a.b(", ..all },
        Question { pattern: "f(", regex: true, ..all },
        Question { include: &["src/**/*.ts"], ..all },
        Question { include: &["*.{md,sh}"], ..all },
        Question { include: &["/build"], ..all },
        Question { exclude: Some(&["build/"]), ..all },
        Question { path: b"/node_modules", ..all },
        Question { path: b"/link-to-directory/x", ..all },
        Question { path: b"/link-to-directory", ..all },
        Question { path: b"/latin1.txt", ..all },
        Question { path: b"/many", pattern: "199", ..all },
        Question { path: b"/missing", ..all },
        Question { path: b"/fifo", ..all },
    ] {
        let what = format!(
            "search {} {:?} regex {} any case {} include {:?} exclude {:?} context {} max {}",
            String::from_utf8_lossy(question.path),
            question.pattern,
            question.regex,
            question.case_insensitive,
            question.include,
            question.exclude,
            question.context,
            question.max
        );
        add(what, subject.search(&question));
    }
    story
}

/// A tree in this process, asked through the engines.
pub struct Local<'a, T> {
    /// The tree.
    pub tree: &'a T,
}

fn told(fault: &Fault) -> String {
    match fault {
        Fault::NotFound { missing, .. } => format!("FILE_NOT_FOUND {missing}"),
        Fault::NotRegular { kind, .. } => format!("NOT_A_REGULAR_FILE {kind}"),
        Fault::NotDirectory { kind, .. } => format!("NOT_A_DIRECTORY {kind}"),
        Fault::Symlink { link, .. } => format!("SYMLINK_REFUSED {link}"),
        Fault::RangePastEnd { size_bytes, .. } => format!("RANGE_PAST_END {size_bytes}"),
        Fault::LinesPastEnd { line_count, .. } => format!("RANGE_PAST_END {line_count}"),
        Fault::InvalidPattern { field, position, .. } => format!("INVALID_PATTERN {field} {position}"),
        other => format!("{other:?}"),
    }
}

fn told_remote(status: &tonic::Status) -> String {
    let Some(info) = status.get_details_error_info() else {
        return format!("no ErrorInfo: {status:?}");
    };
    let of = |key: &str| info.metadata.get(key).map(String::as_str).unwrap_or_default();
    let more = match info.reason.as_str() {
        "FILE_NOT_FOUND" => of("missing").to_owned(),
        "NOT_A_REGULAR_FILE" | "NOT_A_DIRECTORY" => of("type").to_owned(),
        "SYMLINK_REFUSED" => of("link").to_owned(),
        "RANGE_PAST_END" => format!("{}{}", of("size_bytes"), of("line_count")),
        "INVALID_PATTERN" => format!("{} {}", of("field"), of("position")),
        _ => return format!("{info:?}"),
    };
    format!("{} {more}", info.reason)
}

/// One entry as a line. The size of a directory is its file system's own business.
#[allow(clippy::too_many_arguments, reason = "the columns of one line")]
fn entry_line(
    path: &[u8],
    kind: &str,
    size: u64,
    mode: u32,
    owner: (u32, u32),
    links: u32,
    seconds: i64,
    target: Option<&[u8]>,
    revision: Option<&str>,
) -> String {
    let size = if kind == "directory" { 0 } else { size };
    let links = if kind == "directory" { 0 } else { links };
    format!(
        "{} {kind} {size} {mode:o} {}:{} {links} {seconds} {} {}",
        path.escape_ascii(),
        owner.0,
        owner.1,
        target.map(|target| target.escape_ascii().to_string()).unwrap_or_default(),
        revision.unwrap_or("-")
    )
}

fn local_line(entry: &Entry) -> String {
    let meta = &entry.meta;
    entry_line(
        entry.path.as_bytes(),
        meta.kind.name(),
        meta.size_bytes,
        meta.mode,
        (meta.uid, meta.gid),
        meta.link_count,
        meta.modify_time.seconds,
        entry.link_target.as_deref(),
        entry.revision.map(|revision| revision.to_string()).as_deref(),
    )
}

fn remote_line(file: &pb::FileInfo) -> String {
    let kind = match file.r#type() {
        pb::FileType::Regular => FileType::Regular,
        pb::FileType::Directory => FileType::Directory,
        pb::FileType::Symlink => FileType::Symlink,
        pb::FileType::Fifo => FileType::Fifo,
        pb::FileType::Socket => FileType::Socket,
        pb::FileType::CharacterDevice => FileType::CharacterDevice,
        pb::FileType::BlockDevice => FileType::BlockDevice,
        pb::FileType::Unspecified => panic!("a file without a type: {file:?}"),
    };
    let target = match kind {
        FileType::Symlink => Some(true_bytes(&file.symlink_target, &file.raw_symlink_target)),
        _ => None,
    };
    entry_line(
        true_bytes(&file.path, &file.raw_path),
        kind.name(),
        u64::try_from(file.size_bytes).expect("a size is not negative"),
        file.mode,
        (file.uid, file.gid),
        file.link_count,
        file.modify_time.expect("a file has a time").seconds,
        target,
        file.revision.as_deref(),
    )
}

/// The bytes behind a text field and its raw twin; checks that the twin is set exactly when the text is not the truth.
fn true_bytes<'a>(text: &'a str, raw: &'a [u8]) -> &'a [u8] {
    if raw.is_empty() {
        return text.as_bytes();
    }
    assert!(std::str::from_utf8(raw).is_err(), "raw bytes that are UTF-8: {text:?}");
    assert_eq!(String::from_utf8_lossy(raw), text, "the text shows the raw bytes");
    raw
}

fn read_line(
    bytes: &[u8],
    offset: Option<u64>,
    checksum: u32,
    revision: Option<&str>,
    lines: Option<u64>,
    changed: bool,
) -> String {
    let shown = if bytes.len() <= 100 { bytes.escape_ascii().to_string() } else { format!("{} bytes", bytes.len()) };
    format!("at {offset:?} {shown} crc {checksum:08x} {revision:?} lines {lines:?} changed {changed}")
}

#[derive(Default)]
struct MatchLine<'a> {
    path: &'a [u8],
    place: (u64, u64, u64),
    text: (&'a [u8], bool),
    before: Vec<(&'a [u8], bool)>,
    after: Vec<(&'a [u8], bool)>,
}

fn match_line(one: &MatchLine<'_>) -> String {
    let line = |(bytes, clipped): &(&[u8], bool)| {
        let shown =
            if bytes.len() <= 120 { bytes.escape_ascii().to_string() } else { format!("{} bytes", bytes.len()) };
        format!("{shown}{}", if *clipped { "…" } else { "" })
    };
    format!(
        "{}:{}:{}-{}: {} before {:?} after {:?}",
        one.path.escape_ascii(),
        one.place.0,
        one.place.1,
        one.place.2,
        line(&one.text),
        one.before.iter().map(line).collect::<Vec<_>>(),
        one.after.iter().map(line).collect::<Vec<_>>()
    )
}

fn owned(globs: &[&str]) -> Vec<String> {
    globs.iter().map(|glob| (*glob).to_owned()).collect()
}

impl<T: Tree> Subject for Local<'_, T> {
    fn stat(&mut self, path: &[u8]) -> Result<String, String> {
        let plan = StatPlan { path: TreePath::parse(path).expect("a path"), include_revision: true };
        stat::run(self.tree, &plan, Revisions::Always, &Limits::default(), &Unbounded)
            .map(|entry| local_line(&entry))
            .map_err(|fault| told(&fault))
    }

    fn read(&mut self, path: &[u8], range: Range) -> Result<String, String> {
        let path = TreePath::parse(path).expect("a path");
        let plan = ReadPlan { path, range, expected_revision: None, expected_etag: None, include_revision: true };
        let (mut head, mut first, mut whole) = (String::new(), None, Vec::new());
        let end = read::run(self.tree, &plan, Revisions::Always, None, &Limits::default(), &Unbounded, &mut |piece| {
            match piece {
                Piece::Header(entry) => head = local_line(&Entry { revision: None, ..*entry }),
                Piece::Data { offset, bytes } => {
                    first.get_or_insert(offset);
                    whole.extend_from_slice(&bytes);
                }
            }
            ControlFlow::Continue(())
        })
        .map_err(|fault| told(&fault))?;
        assert_eq!(end.bytes_sent, whole.len() as u64, "the end counts the bytes");
        let revision = end.revision.map(|revision| revision.to_string());
        let first = first.filter(|_| !whole.is_empty());
        Ok(format!(
            "{head}\n{}",
            read_line(&whole, first, end.crc32c, revision.as_deref(), end.line_count, end.changed)
        ))
    }

    fn list(&mut self, path: &[u8], depth: usize, include: &[&str], exclude: &[&str]) -> Result<String, String> {
        let limits = Limits::default();
        let globs = GlobSet::new(&owned(include), &owned(exclude), &limits).map_err(|fault| told(&fault))?;
        let plan = ListPlan {
            path: TreePath::parse(path).expect("a path"),
            depth,
            globs,
            entry_count_max: limits.list_entry_count_default,
            include_revision: true,
            start_after: None,
        };
        let mut story = String::new();
        let end = list::run(self.tree, &plan, Revisions::Always, &limits, &Unbounded, &mut |entry: Entry| {
            writeln!(story, "{}", local_line(&entry)).expect("text takes text");
            ControlFlow::Continue(())
        })
        .map_err(|fault| told(&fault))?;
        Ok(format!("{story}{} truncated {} unreadable {}", end.entries_sent, end.stop.is_some(), end.unreadable))
    }

    fn search(&mut self, question: &Question<'_>) -> Result<String, String> {
        let limits = Limits::default();
        let syntax = if question.regex { Syntax::Regex } else { Syntax::Literal };
        let case = if question.case_insensitive { Case::Insensitive } else { Case::Sensitive };
        let exclude = question.exclude.unwrap_or(&[".git", "node_modules"]);
        let plan = SearchPlan {
            path: TreePath::parse(question.path).expect("a path"),
            pattern: Pattern::new(question.pattern, syntax, case, &limits).map_err(|fault| told(&fault))?,
            globs: GlobSet::new(&owned(question.include), &owned(exclude), &limits).map_err(|fault| told(&fault))?,
            context_line_count: question.context,
            match_count_max: question.max,
            file_bytes_max: limits.search_file_bytes_default,
            machine_root: false,
        };
        let mut story = String::new();
        let end = search::run(self.tree, &plan, &limits, &Unbounded, &mut |one: Match| {
            let text = |line: &'_ search::LineText| (line.bytes.clone(), line.clipped);
            let (before, after): (Vec<_>, Vec<_>) =
                (one.before.iter().map(text).collect(), one.after.iter().map(text).collect());
            let line = match_line(&MatchLine {
                path: one.path.as_bytes(),
                place: (one.line, one.column, one.end_column),
                text: (&one.text.bytes, one.text.clipped),
                before: before.iter().map(|(bytes, clipped)| (bytes.as_slice(), *clipped)).collect(),
                after: after.iter().map(|(bytes, clipped)| (bytes.as_slice(), *clipped)).collect(),
            });
            writeln!(story, "{line}").expect("text takes text");
            ControlFlow::Continue(())
        })
        .map_err(|fault| told(&fault))?;
        let skipped = end.skipped;
        Ok(format!(
            "{story}scanned {} truncated {} binary {} large {} special {} unreadable {}",
            end.files_scanned,
            end.stop.is_some(),
            skipped.binary,
            skipped.too_large,
            skipped.special,
            skipped.unreadable
        ))
    }
}

/// A workspace of an agent, asked over gRPC.
pub struct Remote<'a> {
    /// Where the client's tasks run.
    pub runtime: &'a Runtime,
    /// The agent.
    pub client: pb::files_service_client::FilesServiceClient<Channel>,
    /// The workspace.
    pub workspace: String,
    /// Where every answer must come from.
    pub served_from: pb::ServedFrom,
}

impl Remote<'_> {
    fn check_origin(&self, origin: Option<pb::Origin>) {
        assert_eq!(origin.expect("every answer has an origin").served_from(), self.served_from);
    }
}

/// A path for the wire, as `(path, raw_path)`.
pub fn wire_path(path: &[u8]) -> (String, bytes::Bytes) {
    match std::str::from_utf8(path) {
        Ok(text) => (text.to_owned(), bytes::Bytes::new()),
        Err(_) => (String::new(), bytes::Bytes::copy_from_slice(path)),
    }
}

impl Subject for Remote<'_> {
    fn stat(&mut self, path: &[u8]) -> Result<String, String> {
        let (path, raw_path) = wire_path(path);
        let request = pb::StatRequest {
            workspace: self.workspace.clone(),
            path,
            raw_path,
            include_revision: true,
            ..Default::default()
        };
        let answer =
            self.runtime.block_on(self.client.stat(request)).map_err(|status| told_remote(&status))?.into_inner();
        self.check_origin(answer.origin);
        Ok(remote_line(&answer.file.expect("a Stat answers a file")))
    }

    fn read(&mut self, path: &[u8], range: Range) -> Result<String, String> {
        let (path, raw_path) = wire_path(path);
        let range = match range {
            Range::Whole => None,
            Range::Bytes { offset, length } => Some(pb::read_request::Range::ByteRange(pb::ByteRange {
                offset,
                length: i64::try_from(length).expect("a length fits"),
            })),
            Range::Lines { start, end } => Some(pb::read_request::Range::LineRange(pb::LineRange {
                start: i64::try_from(start).expect("a line number fits"),
                end: i64::try_from(end).expect("a line number fits"),
            })),
        };
        let workspace = self.workspace.clone();
        let request =
            pb::ReadRequest { workspace, path, raw_path, range, include_revision: true, ..Default::default() };
        let (mut head, mut first, mut whole, mut end) = (None, None, Vec::new(), None);
        self.runtime
            .block_on(async {
                let mut stream = self.client.read(request).await?.into_inner();
                while let Some(message) = stream.message().await? {
                    assert!(end.is_none(), "nothing comes after the end");
                    if let Some(file) = message.file {
                        assert!(head.is_none(), "one header");
                        head = Some((file, message.origin));
                    }
                    if !message.data.is_empty() {
                        assert!(message.data.len() <= 1 << 20, "a piece is at most 1 MiB");
                        let next = *first.get_or_insert(message.offset) + whole.len() as i64;
                        assert_eq!(message.offset, next, "pieces follow each other");
                    }
                    whole.extend_from_slice(&message.data);
                    end = message.end;
                }
                Ok::<(), tonic::Status>(())
            })
            .map_err(|status| told_remote(&status))?;
        let (file, origin) = head.expect("a Read begins with a header");
        self.check_origin(origin);
        let end = end.expect("a Read ends with an end");
        assert_eq!(end.bytes_sent, whole.len() as i64, "the end counts the bytes");
        let head = remote_line(&pb::FileInfo { revision: None, ..file });
        let line = read_line(
            &whole,
            first.map(|offset| u64::try_from(offset).expect("an offset is not negative")),
            end.crc32c,
            end.revision.as_deref(),
            end.line_count.map(|count| u64::try_from(count).expect("a count is not negative")),
            end.changed,
        );
        Ok(format!("{head}\n{line}"))
    }

    fn list(&mut self, path: &[u8], depth: usize, include: &[&str], exclude: &[&str]) -> Result<String, String> {
        let (path, raw_path) = wire_path(path);
        let request = pb::ListRequest {
            workspace: self.workspace.clone(),
            path,
            raw_path,
            depth: Some(i32::try_from(depth).expect("a depth fits")),
            include: owned(include),
            exclude: Some(pb::GlobList { globs: owned(exclude) }),
            include_revision: true,
            ..Default::default()
        };
        let (mut story, mut origin, mut end) = (String::new(), None, None);
        self.runtime
            .block_on(async {
                let mut stream = self.client.list(request).await?.into_inner();
                while let Some(message) = stream.message().await? {
                    origin = origin.or(message.origin);
                    for file in &message.entries {
                        writeln!(story, "{}", remote_line(file)).expect("text takes text");
                    }
                    end = message.end;
                }
                Ok::<(), tonic::Status>(())
            })
            .map_err(|status| told_remote(&status))?;
        self.check_origin(origin);
        let end = end.expect("a List ends with an end");
        Ok(format!("{story}{} truncated {} unreadable {}", end.entries_sent, end.truncated, end.unreadable))
    }

    fn search(&mut self, question: &Question<'_>) -> Result<String, String> {
        let (path, raw_path) = wire_path(question.path);
        let request = pb::SearchRequest {
            workspace: self.workspace.clone(),
            path,
            raw_path,
            pattern: question.pattern.to_owned(),
            regex: question.regex,
            case_insensitive: question.case_insensitive,
            include: owned(question.include),
            exclude: question.exclude.map(|globs| pb::GlobList { globs: owned(globs) }),
            context_lines: i32::try_from(question.context).expect("a count fits"),
            max_matches: Some(i32::try_from(question.max).expect("a count fits")),
            ..Default::default()
        };
        let (mut story, mut origin, mut end) = (String::new(), None, None);
        self.runtime
            .block_on(async {
                let mut stream = self.client.search(request).await?.into_inner();
                while let Some(message) = stream.message().await? {
                    origin = origin.or(message.origin);
                    for one in &message.matches {
                        writeln!(story, "{}", match_line(&remote_match(one))).expect("text takes text");
                    }
                    end = message.end;
                }
                Ok::<(), tonic::Status>(())
            })
            .map_err(|status| told_remote(&status))?;
        self.check_origin(origin);
        let end = end.expect("a Search ends with an end");
        assert_eq!(
            end.truncated,
            end.stop_reason() != pb::StopReason::Unspecified,
            "a reason exactly where it is truncated"
        );
        let skipped = end.skipped.unwrap_or_default();
        Ok(format!(
            "{story}scanned {} truncated {} binary {} large {} special {} unreadable {}",
            end.files_scanned, end.truncated, skipped.binary, skipped.too_large, skipped.special, skipped.unreadable
        ))
    }
}

fn remote_match(one: &pb::Match) -> MatchLine<'_> {
    let number = |value: i32| u64::try_from(value).expect("a place is not negative");
    MatchLine {
        path: true_bytes(&one.path, &one.raw_path),
        place: (number(one.line), number(one.column), number(one.end_column)),
        text: (true_bytes(&one.text, &one.raw_text), one.text_clipped),
        before: one.before.iter().map(|line| (true_bytes(&line.text, &line.raw), line.clipped)).collect(),
        after: one.after.iter().map(|line| (true_bytes(&line.text, &line.raw), line.clipped)).collect(),
    }
}
