//! How many bytes a match takes in its protobuf encoding (the field numbers are those of `Match` in files.proto), so that
//! what is cut off at a bound is whole matches.

use super::{LineText, Match};

/// Bytes of one element of `SearchResponse.matches`, its tag and length included.
pub(super) fn encoded_bytes(found: &Match) -> u64 {
    let path = found.path.as_bytes();
    let mut body = text(path) + number(found.line) + number(found.column) + number(found.end_column);
    body += text(&found.text.bytes) + flag(found.text.clipped);
    body += found.before.iter().chain(&found.after).map(|line| delimited(line_body(line))).sum::<u64>();
    delimited(body)
}

fn line_body(line: &LineText) -> u64 {
    text(&line.bytes) + flag(line.clipped)
}

/// A string field, and where its bytes are not UTF-8 the field of raw bytes beside it.
fn text(bytes: &[u8]) -> u64 {
    if bytes.is_empty() {
        return 0;
    }
    let shown: usize =
        bytes.utf8_chunks().map(|chunk| chunk.valid().len() + if chunk.invalid().is_empty() { 0 } else { 3 }).sum();
    let is_true = std::str::from_utf8(bytes).is_ok();
    delimited(shown as u64) + if is_true { 0 } else { delimited(bytes.len() as u64) }
}

/// A length-delimited field with a number below 16.
fn delimited(length: u64) -> u64 {
    1 + varint(length) + length
}

/// A number field; zero is not encoded.
fn number(value: u64) -> u64 {
    if value == 0 { 0 } else { 1 + varint(value) }
}

fn flag(value: bool) -> u64 {
    u64::from(value) * 2
}

fn varint(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::TreePath;

    #[track_caller]
    fn check(text: &[u8], clipped: bool, before: &[&[u8]], expect: u64) {
        let line = |bytes: &[u8]| LineText { bytes: bytes.to_vec(), clipped: false };
        let found = Match {
            path: TreePath::parse(b"/a").unwrap(),
            line: 300,
            column: 1,
            end_column: 2,
            text: LineText { bytes: text.to_vec(), clipped },
            before: before.iter().map(|bytes| line(bytes)).collect(),
            after: Vec::new(),
        };
        assert_eq!(encoded_bytes(&found), expect);
    }

    #[test]
    fn counts_every_field() {
        // Path 4, line 3, columns 2 + 2, tag and length 2.
        check(b"", false, &[], 13);
        check(b"x", false, &[], 16);
        check(b"x", true, &[], 18);
        // U+FFFD takes three bytes, and the true byte comes beside it.
        check(b"\xff", false, &[], 13 + 5 + 3);
        check(b"", false, &[b"", b"yy"], 13 + 2 + 6);
        // Lengths from 128 on take two bytes, the match's own too.
        check(&[b'x'; 200], false, &[], 13 + 203 + 1);
    }
}
