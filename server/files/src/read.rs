//! Read: the bytes of a file, or of a range of bytes or lines of it.

use std::ops::ControlFlow;

use crate::{
    budget::Budget,
    error::Fault,
    limits::Limits,
    lines::LineCounter,
    meta::{FileType, Meta},
    path::TreePath,
    pieces::Content,
    revision::{Expected, Hasher, Revision},
    stat::{Entry, Revisions},
    tree::Tree,
    walk::{self, LastLink, Node},
};

pub use crate::pieces::Held;

/// A Read whose shape was found sound.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// Symbolic links are followed, the last component too, never out of the workspace.
    pub path: TreePath,
    /// What part of it.
    pub range: Range,
    /// Refused unless the whole file has it.
    pub expected_revision: Option<Revision>,
    /// Refused unless the file has it.
    pub expected_etag: Option<String>,
    /// Whether the whole file's revision is wanted at the end.
    pub include_revision: bool,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// All of it.
    Whole,
    /// Bytes. A negative offset counts from the end; length 0 is to the end.
    Bytes {
        /// In bytes.
        offset: i64,
        /// In bytes, not negative.
        length: u64,
    },
    /// Lines, 1-based and inclusive; end 0 is the last line. `start` is at least 1, and `end` is 0 or at least `start`.
    Lines {
        /// First.
        start: u64,
        /// Last.
        end: u64,
    },
}

/// What a Read pushes.
#[derive(Debug)]
pub enum Piece<'a> {
    /// First, once: everything that could be refused has been checked.
    Header(Box<Entry>),
    /// Then the bytes in order, each piece at most `read_piece_bytes_max` long.
    Data {
        /// Where they begin in the file.
        offset: u64,
        /// The bytes, to be taken, copied or sent before the next push.
        bytes: Held<'a>,
    },
}

/// How a Read ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEnd {
    /// Bytes pushed.
    pub bytes_sent: u64,
    /// CRC-32C (RFC 3720, appendix B.4) of them.
    pub crc32c: u32,
    /// Of the whole file, when asked for and within the bound.
    pub revision: Option<Revision>,
    /// Of the whole file, when lines were asked for.
    pub line_count: Option<u64>,
    /// The file's etag was another one at the end.
    pub changed: bool,
}

/// Answers a Read.
///
/// The file is read up to the size it had when it was opened; what is appended later is told by `changed`. Line 1 of an
/// empty file may be asked for, and is nothing.
///
/// `bytes_max` bounds what is returned (a disk's `offline_read_bytes_max`); over it is `OfflineBudget` before any byte.
///
/// # Errors
/// Before the header: everything of the path, `NotRegular`, `RevisionMismatch`, `EtagMismatch`, `RangePastEnd`,
/// `LinesPastEnd`, `OfflineBudget`. After it: `DeadlineExceeded`, `OfflineChanged`, `Io`. `Gone` when the sink broke.
pub fn run<T: Tree>(
    tree: &T,
    plan: &ReadPlan,
    revisions: Revisions,
    bytes_max: Option<u64>,
    limits: &Limits,
    budget: &dyn Budget,
    sink: &mut dyn for<'a> FnMut(Piece<'a>) -> ControlFlow<()>,
) -> Result<ReadEnd, Fault> {
    let (parent, name) = match walk::resolve(tree, &plan.path, LastLink::Follow, limits)?.node {
        Node::Held(_) => return Err(Fault::NotRegular { path: plan.path.clone(), kind: FileType::Directory }),
        Node::Named { parent, name, .. } => (parent, name),
    };
    let (file, meta) = tree.open(&parent, &name).map_err(|error| Fault::at(&plan.path, error))?;
    let content = Content { tree, file: &file, path: &plan.path, limits, budget };
    let mut reading = Reading { content, meta, ahead: Ahead::default(), buffer: Vec::new(), revision: None };
    reading.check_etag(plan)?;
    reading.check_revision(plan, revisions)?;
    let (start, end) = reading.find(plan.range)?;
    if let Some(limit) = bytes_max.filter(|&limit| end - start > limit) {
        return Err(Fault::OfflineBudget { limit, unit: "bytes" });
    }
    let hash_wanted = plan.include_revision && revisions.allow(reading.meta.size_bytes);
    let entry = Entry { path: plan.path.clone(), meta: reading.meta, link_target: None, revision: reading.revision };
    reading.content.verify()?;
    if sink(Piece::Header(Box::new(entry))).is_break() {
        return Err(Fault::Gone);
    }
    reading.send(start, end, plan.range, hash_wanted, sink)
}

/// One Read as it goes.
struct Reading<'a, T: Tree> {
    content: Content<'a, T>,
    /// As the file was when it was opened.
    meta: Meta,
    ahead: Ahead,
    buffer: Vec<u8>,
    /// Of the whole file, once it is known.
    revision: Option<Revision>,
}

/// What one pass from the file's start has seen.
#[derive(Default)]
struct Ahead {
    offset: u64,
    lines: LineCounter,
}

impl<T: Tree> Reading<'_, T> {
    fn check_etag(&self, plan: &ReadPlan) -> Result<(), Fault> {
        let actual = self.meta.etag();
        match &plan.expected_etag {
            Some(expected) if *expected != actual => {
                Err(Fault::EtagMismatch { path: plan.path.clone(), expected: expected.clone(), actual })
            }
            _ => Ok(()),
        }
    }

    fn check_revision(&mut self, plan: &ReadPlan, revisions: Revisions) -> Result<(), Fault> {
        let Some(expected) = plan.expected_revision else { return Ok(()) };
        match revisions {
            Revisions::Never => {
                return Err(Fault::invalid("expected_revision", "this host gives no revisions; read without it"));
            }
            Revisions::UpTo(limit) if self.meta.size_bytes > limit => {
                return Err(Fault::OfflineBudget { limit, unit: "bytes" });
            }
            _ => {}
        }
        let (meta, actual) = self.content.revision(&mut self.buffer)?;
        self.meta = meta;
        self.check_etag(plan)?;
        if actual != Some(expected) {
            let expected = Expected::Revision(expected);
            return Err(Fault::RevisionMismatch { path: plan.path.clone(), expected, actual });
        }
        self.revision = actual;
        Ok(())
    }

    /// Where the range begins and ends in the file.
    fn find(&mut self, range: Range) -> Result<(u64, u64), Fault> {
        let size_bytes = self.meta.size_bytes;
        match range {
            Range::Whole => Ok((0, size_bytes)),
            Range::Bytes { offset, length } => {
                // As a suffix range of RFC 9110, section 14.1.2: one longer than the file is the whole file.
                let start = match u64::try_from(offset) {
                    Ok(offset) => offset,
                    Err(_) => size_bytes.saturating_sub(offset.unsigned_abs()),
                };
                if start > size_bytes {
                    return Err(Fault::RangePastEnd { path: self.content.path.clone(), size_bytes });
                }
                let rest = size_bytes - start;
                Ok((start, start + if length == 0 { rest } else { length.min(rest) }))
            }
            Range::Lines { start, end } => {
                let first = self.pass_line(start.max(1) - 1)?;
                let line_count = self.ahead.lines.count();
                // Line 1 of an empty file is asked for by a caller who wants all lines: there are none.
                if first == self.meta.size_bytes && line_count < start && start > 1 {
                    return Err(Fault::LinesPastEnd { path: self.content.path.clone(), line_count });
                }
                let past = if end == 0 { self.meta.size_bytes } else { self.pass_line(end)? };
                Ok((first, past.max(first)))
            }
        }
    }

    /// Goes on from where the pass is to behind the end of this line, or to the file's end: where that is.
    fn pass_line(&mut self, line: u64) -> Result<u64, Fault> {
        let ahead = &mut self.ahead;
        if line == 0 {
            return Ok(0);
        }
        let mut found = None;
        let range = ahead.offset..self.meta.size_bytes;
        let mut seen = ahead.offset;
        self.content.visit(range, &mut self.buffer, &mut |offset, piece| {
            found = ahead.lines.update_through(line, &piece).map(|taken| offset + taken as u64);
            seen = found.unwrap_or(offset + piece.len() as u64);
            Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        ahead.offset = seen;
        Ok(found.unwrap_or(self.meta.size_bytes))
    }

    fn send(
        mut self,
        start: u64,
        end: u64,
        range: Range,
        hash_wanted: bool,
        sink: &mut dyn for<'b> FnMut(Piece<'b>) -> ControlFlow<()>,
    ) -> Result<ReadEnd, Fault> {
        let whole = start == 0 && end == self.meta.size_bytes;
        let mut hasher = (hash_wanted && self.revision.is_none()).then(Hasher::default);
        let (mut bytes_sent, mut crc32c) = (0, 0);
        let content = &self.content;
        content.visit(start..end, &mut self.buffer, &mut |offset, bytes| {
            bytes_sent += bytes.len() as u64;
            crc32c = crc32c::crc32c_append(crc32c, &bytes);
            if let Some(hasher) = hasher.as_mut().filter(|_| whole) {
                hasher.update(&bytes);
            }
            content.verify()?;
            if sink(Piece::Data { offset, bytes }).is_break() {
                return Err(Fault::Gone);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let (Some(hasher), false) = (hasher.as_mut(), whole) {
            content.visit(0..self.meta.size_bytes, &mut self.buffer, &mut |_, piece| {
                hasher.update(&piece);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let mut line_count = None;
        if matches!(range, Range::Lines { .. }) {
            let lines = &mut self.ahead.lines;
            content.visit(self.ahead.offset..self.meta.size_bytes, &mut self.buffer, &mut |_, piece| {
                lines.update(&piece);
                Ok(ControlFlow::Continue(()))
            })?;
            line_count = Some(lines.count());
        }
        let changed = content.meta()?.etag() != self.meta.etag();
        content.verify()?;
        // A hash over a file that changed meanwhile is nobody's revision.
        let hashed = hasher.filter(|_| !changed).map(Hasher::finish);
        let revision = if hash_wanted { self.revision.filter(|_| !changed).or(hashed) } else { None };
        Ok(ReadEnd { bytes_sent, crc32c, revision, line_count, changed })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        budget::Unbounded,
        memory::{Lending, MemoryTree, Trouble},
    };

    fn plan(range: Range) -> ReadPlan {
        let path = TreePath::parse(b"/f").unwrap();
        ReadPlan { path, range, expected_revision: None, expected_etag: None, include_revision: true }
    }

    fn read(tree: &MemoryTree, plan: &ReadPlan, bytes_max: Option<u64>) -> Result<(Vec<u8>, ReadEnd), Fault> {
        let limits = Limits { read_piece_bytes_max: 7, ..Limits::default() };
        let (mut content, mut begin) = (Vec::new(), None);
        let end = run(tree, plan, Revisions::Always, bytes_max, &limits, &Unbounded, &mut |piece| {
            match piece {
                Piece::Header(entry) => assert_eq!(entry.path, plan.path),
                Piece::Data { offset, bytes } => {
                    assert!((1..=7).contains(&bytes.len()));
                    let begin = *begin.get_or_insert(offset);
                    assert_eq!(offset, begin + content.len() as u64);
                    content.extend_from_slice(&bytes);
                }
            }
            ControlFlow::Continue(())
        })?;
        assert_eq!((end.bytes_sent, end.crc32c), (content.len() as u64, crc32c::crc32c(&content)));
        Ok((content, end))
    }

    #[track_caller]
    fn check(content: &str, range: Range, expect: &str) {
        let seen = match read(&MemoryTree::default().file("/f", content), &plan(range), None) {
            Ok((bytes, _)) => String::from_utf8(bytes).unwrap(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(seen, expect);
    }

    #[test]
    fn reads_ranges_of_bytes() {
        let bytes = |offset, length| Range::Bytes { offset, length };
        check("0123456789", Range::Whole, "0123456789");
        check("0123456789", bytes(0, 0), "0123456789");
        check("0123456789", bytes(3, 4), "3456");
        check("0123456789", bytes(8, 9), "89");
        check("0123456789", bytes(-3, 0), "789");
        check("0123456789", bytes(-3, 1), "7");
        check("0123456789", bytes(-30, 2), "01");
        check("0123456789", bytes(i64::MIN, 0), "0123456789");
        check("0123456789", bytes(10, 0), "");
        check("0123456789", bytes(10, u64::MAX), "");
        check("0123456789", bytes(11, 0), "/f has only 10 bytes");
        check("", Range::Whole, "");
    }

    #[test]
    fn reads_ranges_of_lines() {
        let lines = |start, end| Range::Lines { start, end };
        check("a\nbb\nccc\n", lines(1, 0), "a\nbb\nccc\n");
        check("a\nbb\nccc\n", lines(2, 2), "bb\n");
        check("a\nbb\nccc", lines(3, 9), "ccc");
        check("a\nbb\nccc", lines(2, u64::MAX), "bb\nccc");
        check("a\nbb\nccc\n", lines(4, 0), "/f has only 3 lines");
        check("a\nbb\nccc", lines(4, 4), "/f has only 3 lines");
        check("a", lines(u64::MAX, 0), "/f has only 1 lines");
        check("", lines(1, 0), "");
        check("", lines(2, 0), "/f has only 0 lines");
        check("\n\n", lines(2, 2), "\n");
    }

    #[test]
    fn a_sink_may_take_the_buffer_and_leave_another() {
        let tree = MemoryTree::default().file("/f", "0123456789abcdef");
        let limits = Limits { read_piece_bytes_max: 5, ..Limits::default() };
        let (mut taken, mut spare) = (Vec::new(), vec![vec![7; 9], vec![7; 2], Vec::new()]);
        let end = run(&tree, &plan(Range::Whole), Revisions::Always, None, &limits, &Unbounded, &mut |piece| {
            if let Piece::Data { bytes: Held::Read { buffer, length }, .. } = piece {
                let full = std::mem::replace(buffer, spare.pop().unwrap_or_default());
                taken.push(full[..length].to_vec());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(taken, [&b"01234"[..], b"56789", b"abcde", b"f"]);
        assert_eq!(end.revision, Some(Revision::of(b"0123456789abcdef")));
    }

    #[test]
    fn refuses_before_the_first_byte() {
        let tree = MemoryTree::default().file("/f", b"abc").directory("/d").link("/l", "d");
        let refuse = |change: &dyn Fn(&mut ReadPlan), bytes_max| {
            let mut plan = plan(Range::Whole);
            change(&mut plan);
            let never = &mut |_: Piece<'_>| panic!("nothing is pushed");
            run(&tree, &plan, Revisions::UpTo(2), bytes_max, &Limits::default(), &Unbounded, never).unwrap_err()
        };
        assert!(matches!(refuse(&|_| (), Some(2)), Fault::OfflineBudget { limit: 2, unit: "bytes" }));
        let directory = |plan: &mut ReadPlan| plan.path = TreePath::parse(b"/l").unwrap();
        assert!(matches!(refuse(&directory, None), Fault::NotRegular { kind: FileType::Directory, .. }));
        let etag = |plan: &mut ReadPlan| plan.expected_etag = Some("x".to_owned());
        assert!(matches!(refuse(&etag, None), Fault::EtagMismatch { .. }));
        let revision = |plan: &mut ReadPlan| plan.expected_revision = Some(Revision::of(b"abd"));
        assert!(matches!(refuse(&revision, None), Fault::OfflineBudget { limit: 2, .. }));
    }

    #[test]
    fn compares_the_revision_and_gives_it() {
        let tree = MemoryTree::default().file("/f", b"abc");
        let mut plan = plan(Range::Bytes { offset: 1, length: 1 });
        plan.expected_revision = Some(Revision::of(b"abd"));
        let fault = read(&tree, &plan, None).unwrap_err();
        assert!(
            matches!(fault, Fault::RevisionMismatch { actual: Some(actual), .. } if actual == Revision::of(b"abc"))
        );
        plan.expected_revision = Some(Revision::of(b"abc"));
        let (content, end) = read(&tree, &plan, None).unwrap();
        assert_eq!((content.as_slice(), end.revision), (b"b".as_slice(), Some(Revision::of(b"abc"))));
    }

    #[test]
    fn says_that_the_file_changed_and_gives_no_revision_of_a_mixture() {
        let tree = MemoryTree::default().file("/f", b"abc").trouble("/f", Trouble::Grows);
        let (_, end) = read(&tree, &plan(Range::Whole), None).unwrap();
        assert!(end.changed);
        assert_eq!(end.revision, None);
    }

    #[test]
    fn ten_gibibytes_of_hole_cost_one_buffer() {
        let tree = MemoryTree::default().sparse("/f", b"head\n", 10 << 30);
        let plan = ReadPlan { include_revision: false, ..plan(Range::Bytes { offset: -3, length: 0 }) };
        assert_eq!(read(&tree, &plan, Some(3)).unwrap().0, [0, 0, 0]);
        let first = ReadPlan { range: Range::Lines { start: 1, end: 1 }, ..plan };
        let (mut seen, mut headers) = (Vec::new(), 0);
        // The first line arrives without a pass over the rest, which the sink then refuses to wait for.
        let fault =
            run(&tree, &first, Revisions::Never, None, &Limits::default(), &Unbounded, &mut |piece| match piece {
                Piece::Header(_) => {
                    headers += 1;
                    ControlFlow::Continue(())
                }
                Piece::Data { bytes, .. } => {
                    seen.extend_from_slice(&bytes);
                    ControlFlow::Break(())
                }
            })
            .unwrap_err();
        assert!(matches!(fault, Fault::Gone));
        assert_eq!((seen.as_slice(), headers), (b"head\n".as_slice(), 1));
    }

    #[test]
    fn a_disk_that_moves_on_in_the_middle_is_told() {
        let tree = MemoryTree::default().file("/f", b"0123456789abcdef").stale_after(2);
        let plan = ReadPlan { include_revision: false, ..plan(Range::Whole) };
        assert!(matches!(read(&tree, &plan, None), Err(Fault::OfflineChanged)));
    }

    proptest! {
        #[test]
        fn ranges_are_slices(
            content in "[ab\n]{0,40}",
            offset in -50_i64..50,
            length in 0_u64..50,
            start in 1_u64..12,
            more in 0_u64..12,
            lend in 0_usize..9,
        ) {
            let lending = if lend == 0 { Lending::Never } else { Lending::UpTo(lend) };
            let tree = MemoryTree::default().file("/f", content.as_str()).lending(lending);
            let size = content.len();
            let first = if offset < 0 { size.saturating_sub(offset.unsigned_abs() as usize) } else { offset as usize };
            match read(&tree, &plan(Range::Bytes { offset, length }), None) {
                Ok((seen, end)) => {
                    let past = if length == 0 { size } else { size.min(first + length as usize) };
                    prop_assert_eq!(seen, &content.as_bytes()[first..past]);
                    prop_assert_eq!(end.revision, Some(Revision::of(content.as_bytes())));
                }
                Err(_) => prop_assert!(first > size),
            }
            let lines: Vec<&str> = content.split_inclusive('\n').collect();
            let last = if more == 0 { 0 } else { start + more - 1 };
            match read(&tree, &plan(Range::Lines { start, end: last }), None) {
                Ok((seen, end)) => {
                    let past = if last == 0 { lines.len() } else { lines.len().min(last as usize) };
                    let expect = lines.get(start as usize - 1..past).unwrap_or_default().concat();
                    prop_assert_eq!(seen, expect.as_bytes());
                    prop_assert_eq!(end.line_count, Some(lines.len() as u64));
                    prop_assert_eq!(end.revision, Some(Revision::of(content.as_bytes())));
                }
                Err(_) => prop_assert!(start as usize > lines.len() && start > 1),
            }
        }
    }
}
