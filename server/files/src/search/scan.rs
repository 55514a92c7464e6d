//! Bytes of one file → the lines that match, with their context. Pure; fuzzed.
//!
//! A line is what stands before its LF, less one CR right before that LF. Matching sees its first `line_search_bytes_max`
//! bytes, without a UTF-8 BOM at the file's start; columns and text count every byte.

use std::ops::{ControlFlow, Range};

use memchr::{memchr, memchr_iter, memrchr};

use super::{LineText, Match, pattern::Searcher, steady::Halt};
use crate::{lines, path::TreePath};

/// A NUL in so many first bytes makes a file binary.
pub(super) const BINARY_BYTES: usize = 8 << 10;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The bounds of a scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Lines of context on each side.
    pub(super) context_line_count: usize,
    /// Bytes of each line that are searched.
    pub(super) line_search_bytes_max: usize,
    /// Bytes of each line that are returned.
    pub(super) line_text_bytes_max: usize,
}

/// A line that matches, as places in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    /// 1-based.
    pub(super) line: u64,
    /// The line without its end.
    pub(super) text: Range<usize>,
    /// The first match.
    pub(super) found: Range<usize>,
}

/// Whether the file is taken for a binary one.
pub(super) fn is_binary(head: &[u8]) -> bool {
    memchr(0, &head[..head.len().min(BINARY_BYTES)]).is_some()
}

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    /// With the last line.
    All,
    /// The visitor broke, or `go_on` did.
    Broken,
    /// The pattern's automaton could not go on.
    Failed,
}

/// Visits every line that matches, in order, and asks `go_on` often enough to end within a fraction of a second.
pub(super) fn scan(
    bytes: &[u8],
    searcher: &mut Searcher,
    bounds: &Bounds,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
    visit: &mut dyn FnMut(Hit) -> ControlFlow<()>,
) -> Scanned {
    let window_bytes = searcher.window_bytes_max().min(bounds.line_search_bytes_max).max(1);
    let mut scan = Scan {
        bytes,
        searcher,
        line_search_bytes_max: bounds.line_search_bytes_max,
        begin: if bytes.starts_with(BOM) { BOM.len() } else { 0 },
        counted: 0,
        line: 1,
    };
    match scan.run(window_bytes, go_on, visit) {
        Ok(()) => Scanned::All,
        Err(Halt::Told) => Scanned::Broken,
        Err(Halt::Failed) => Scanned::Failed,
    }
}

/// Where the line that holds the byte before `place` ends, behind its LF.
fn line_after(bytes: &[u8], place: usize) -> usize {
    match bytes.get(place - 1..) {
        Some(rest) => memchr(b'\n', rest).map_or(bytes.len(), |end| place + end),
        None => bytes.len(),
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    searcher: &'a mut Searcher,
    line_search_bytes_max: usize,
    /// Where the first line begins for matching.
    begin: usize,
    /// Up to where line ends were counted, and the number of the line that begins there or holds it.
    counted: usize,
    line: u64,
}

type GoOn<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;
type Visit<'a> = &'a mut dyn FnMut(Hit) -> ControlFlow<()>;

fn ask(go_on: GoOn<'_>) -> Result<(), Halt> {
    if go_on().is_break() { Err(Halt::Told) } else { Ok(()) }
}

impl Scan<'_> {
    fn run(&mut self, window_bytes: usize, go_on: GoOn<'_>, visit: Visit<'_>) -> Result<(), Halt> {
        let mut at = self.begin;
        while at < self.bytes.len() {
            ask(go_on)?;
            let end = line_after(self.bytes, at.saturating_add(window_bytes));
            let last = memrchr(b'\n', &self.bytes[at..end - 1]).map_or(at, |place| at + place + 1);
            // A long line is matched by itself: it may take long, and where it is over the cap, the end that a pattern
            // may ask for is where the cap is. All lines before the last one are shorter than the window.
            let is_long = end - last > window_bytes;
            self.window(at..if is_long { last } else { end }, go_on, visit)?;
            if is_long {
                self.verify(last, go_on, visit)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Whole lines, none of them long.
    fn window(&mut self, window: Range<usize>, go_on: GoOn<'_>, visit: Visit<'_>) -> Result<(), Halt> {
        let mut at = window.start;
        while at < window.end {
            let lines = &self.bytes[at..window.end];
            let Some(place) = self.searcher.candidate(lines) else { break };
            let (start, end) = lines::around(lines, place.min(lines.len()));
            if start == lines.len() {
                // An empty match behind the last LF, where no line begins.
                break;
            }
            self.verify(at + start, go_on, visit)?;
            at += end + 1;
        }
        Ok(())
    }

    /// Matches the line that begins at `start`.
    fn verify(&mut self, start: usize, go_on: GoOn<'_>, visit: Visit<'_>) -> Result<(), Halt> {
        let end = text_end(self.bytes, start);
        let searched = &self.bytes[start..end.min(start.saturating_add(self.line_search_bytes_max))];
        let Some((found, past)) = self.searcher.find(searched, go_on)? else { return Ok(()) };
        self.line += memchr_iter(b'\n', &self.bytes[self.counted..start]).count() as u64;
        self.counted = start;
        let text_start = if start == self.begin { 0 } else { start };
        let hit = Hit { line: self.line, text: text_start..end, found: start + found..start + past };
        if visit(hit).is_break() { Err(Halt::Told) } else { Ok(()) }
    }
}

/// Where the text of the line that begins at `start` ends: before its LF, and before the CR that may stand before that.
fn text_end(bytes: &[u8], start: usize) -> usize {
    match memchr(b'\n', &bytes[start..]) {
        None => bytes.len(),
        Some(length) => {
            let line = &bytes[start..start + length];
            start + line.strip_suffix(b"\r").unwrap_or(line).len()
        }
    }
}

/// A hit with the text of its line and of those around it.
pub(super) fn materialize(bytes: &[u8], hit: &Hit, path: &TreePath, bounds: &Bounds) -> Match {
    let clip = |range: Range<usize>| clip(&bytes[range], bounds.line_text_bytes_max);
    let column = |place: usize| (place - hit.text.start) as u64 + 1;
    let mut before = Vec::with_capacity(bounds.context_line_count);
    let mut start = hit.text.start;
    while before.len() < bounds.context_line_count && start > 0 {
        start = memrchr(b'\n', &bytes[..start - 1]).map_or(0, |end| end + 1);
        before.push(clip(start..text_end(bytes, start)));
    }
    before.reverse();
    let mut after = Vec::with_capacity(bounds.context_line_count);
    let mut end = line_after(bytes, hit.text.end + 1);
    while after.len() < bounds.context_line_count && end < bytes.len() {
        after.push(clip(end..text_end(bytes, end)));
        end = line_after(bytes, end + 1);
    }
    Match {
        path: path.clone(),
        line: hit.line,
        column: column(hit.found.start),
        end_column: column(hit.found.end),
        text: clip(hit.text.clone()),
        before,
        after,
    }
}

/// At most `bytes_max` bytes of a line, cut where a character ends.
fn clip(line: &[u8], bytes_max: usize) -> LineText {
    if line.len() <= bytes_max {
        return LineText { bytes: line.to_vec(), clipped: false };
    }
    // A character that the cut would split begins at most three bytes before it (RFC 3629, section 3).
    let split = (bytes_max.saturating_sub(3)..bytes_max).find(|&start| {
        let length = match line[start] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return false,
        };
        let character = line.get(start..start + length);
        start + length > bytes_max && character.is_some_and(|character| std::str::from_utf8(character).is_ok())
    });
    LineText { bytes: line[..split.unwrap_or(bytes_max)].to_vec(), clipped: true }
}
