//! Bytes of one file → the lines that match, with their context. Pure; fuzzed.
//!
//! A line is what stands before its LF, less one CR right before that LF. Matching sees its first `line_search_bytes_max`
//! bytes, without a UTF-8 BOM at the file's start; columns and text count every byte.

use std::ops::{ControlFlow, Range};

use memchr::{memchr, memchr_iter, memrchr};

use super::{LineText, Match, pattern::Pattern};
use crate::{lines, path::TreePath};

/// Bytes scanned between two questions whether to go on; fewer where less of a line is searched, so that only the last
/// line of a window can be longer than that.
const WINDOW_BYTES: usize = 128 << 10;
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

/// Visits every line that matches, in order. `go_on` is asked at least once for every [`WINDOW_BYTES`].
///
/// Breaks when the visitor or `go_on` does.
pub(super) fn scan(
    bytes: &[u8],
    pattern: &Pattern,
    bounds: &Bounds,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
    visit: &mut dyn FnMut(Hit) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut scan = Scan {
        bytes,
        pattern,
        line_search_bytes_max: bounds.line_search_bytes_max,
        begin: if bytes.starts_with(BOM) { BOM.len() } else { 0 },
        counted: 0,
        line: 1,
    };
    let mut at = scan.begin;
    while at < bytes.len() {
        go_on()?;
        let end = line_after(bytes, at.saturating_add(WINDOW_BYTES.min(scan.line_search_bytes_max).max(1)));
        // Where the last line is over the cap, the end that a pattern may ask for is where the cap is.
        let last = memrchr(b'\n', &bytes[at..end - 1]).map_or(at, |place| at + place + 1);
        let is_long = end - last > scan.line_search_bytes_max;
        scan.window(at..if is_long { last } else { end }, visit)?;
        if is_long {
            scan.verify(last, visit)?;
        }
        at = end;
    }
    ControlFlow::Continue(())
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
    pattern: &'a Pattern,
    line_search_bytes_max: usize,
    /// Where the first line begins for matching.
    begin: usize,
    /// Up to where line ends were counted, and the number of the line that begins there or holds it.
    counted: usize,
    line: u64,
}

impl Scan<'_> {
    /// Whole lines, none of them over the cap.
    fn window(&mut self, window: Range<usize>, visit: &mut dyn FnMut(Hit) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut at = window.start;
        while at < window.end {
            let lines = &self.bytes[at..window.end];
            let Some(place) = self.pattern.candidate(lines) else { break };
            let (start, end) = lines::around(lines, place.min(lines.len()));
            if start == lines.len() {
                // An empty match behind the last LF, where no line begins.
                break;
            }
            self.verify(at + start, visit)?;
            at += end + 1;
        }
        ControlFlow::Continue(())
    }

    /// Matches the line that begins at `start`.
    fn verify(&mut self, start: usize, visit: &mut dyn FnMut(Hit) -> ControlFlow<()>) -> ControlFlow<()> {
        let end = text_end(self.bytes, start);
        let searched = &self.bytes[start..end.min(start.saturating_add(self.line_search_bytes_max))];
        let Some((found, past)) = self.pattern.find_in_line(searched) else { return ControlFlow::Continue(()) };
        self.line += memchr_iter(b'\n', &self.bytes[self.counted..start]).count() as u64;
        self.counted = start;
        let text_start = if start == self.begin { 0 } else { start };
        visit(Hit { line: self.line, text: text_start..end, found: start + found..start + past })
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
