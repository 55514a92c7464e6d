//! A name for what has none: `:authority` on a Unix socket.
//!
//! gRPC's own libraries send the socket's path as `:authority`, percent-encoded or as it is (Python, C++, Ruby and others
//! over gRPC core; tools in Go that dial by path). That is no authority of RFC 3986, so an HTTP/2 server that checks it
//! answers PROTOCOL_ERROR before any service is asked. On a Unix socket the authority says nothing: here each one that is
//! sent as a literal becomes [`NAME`], before HTTP/2 sees it.
//!
//! ```text
//! preface ─► frame header ─┬─► HEADERS that ends its block: kept, rewritten, passed on
//!                 ▲        ├─► any other frame: passed on as it comes
//!                 └────────┴──────────┘
//! ```
//! [`NAME`] has one byte, so an entry of the dynamic table is never larger here than its sender believes: what the sender
//! can still refer to is still there (RFC 7541, section 4.1). Whatever this does not understand is passed on untouched.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::through::{Inbound, Through};

/// What stands for every authority.
const NAME: u8 = b'u';
/// `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n` (RFC 9113, section 3.4).
pub(crate) const PREFACE_BYTES: usize = 24;
/// Length, type, flags and stream (RFC 9113, section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Largest HEADERS frame that is kept to be rewritten, in bytes; the server takes no larger header list anyway.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Bytes that one read takes.
const READ_BYTES: usize = 16 << 10;

/// A connection whose authorities are all [`NAME`].
pub(crate) fn named<S>(connection: S) -> Through<S, Naming> {
    let read = vec![0; READ_BYTES].into_boxed_slice();
    Through::around(connection, Naming { state: State::Pass(PREFACE_BYTES), ready: Vec::new(), sent: 0, read })
}

/// What makes them so.
pub(crate) struct Naming {
    state: State,
    /// What came and is not passed on yet: at most one HEADERS frame, or a frame header, and one read.
    ready: Vec<u8>,
    sent: usize,
    read: Box<[u8]>,
}

/// Where in the caller's bytes we are.
enum State {
    /// So many bytes that are passed on as they are.
    Pass(usize),
    /// The beginning of a frame header.
    Header(Vec<u8>),
    /// The beginning of a HEADERS frame, and how many bytes it has.
    Block(Vec<u8>, usize),
}

impl State {
    /// Takes bytes as they come, and adds to `ready` what may go on.
    fn take(&mut self, mut bytes: &[u8], ready: &mut Vec<u8>) {
        while !bytes.is_empty() {
            match self {
                Self::Pass(left) => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*left));
                    ready.extend_from_slice(now);
                    *left -= now.len();
                    bytes = rest;
                    if *left == 0 {
                        *self = Self::Header(Vec::with_capacity(FRAME_HEADER_BYTES));
                    }
                }
                Self::Header(header) => {
                    let (now, rest) = bytes.split_at(bytes.len().min(FRAME_HEADER_BYTES - header.len()));
                    header.extend_from_slice(now);
                    bytes = rest;
                    if header.len() == FRAME_HEADER_BYTES {
                        *self = Self::of_frame(std::mem::take(header), ready);
                    }
                }
                Self::Block(frame, length) => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*length - frame.len()));
                    frame.extend_from_slice(now);
                    bytes = rest;
                    if frame.len() == *length {
                        ready.extend(renamed(frame).as_ref().unwrap_or(frame));
                        *self = Self::Header(Vec::with_capacity(FRAME_HEADER_BYTES));
                    }
                }
            }
        }
    }

    /// What follows a whole frame header.
    fn of_frame(header: Vec<u8>, ready: &mut Vec<u8>) -> Self {
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let is_block = header[3] == HEADERS && header[4] & END_HEADERS != 0;
        if is_block && (1..=BLOCK_BYTES_MAX).contains(&length) {
            return Self::Block(header, FRAME_HEADER_BYTES + length);
        }
        ready.extend_from_slice(&header);
        match length {
            0 => Self::Header(Vec::with_capacity(FRAME_HEADER_BYTES)),
            _ => Self::Pass(length),
        }
    }
}

/// A HEADERS frame with its authority renamed; nothing where there is nothing to rename.
fn renamed(frame: &[u8]) -> Option<Vec<u8>> {
    let mut start = FRAME_HEADER_BYTES;
    let mut end = frame.len();
    let flags = frame[4];
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*frame.get(start)?))?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    let value = authority(frame.get(start..end)?)?;
    let (value_start, value_end) = (start + value.start, start + value.end);
    let mut whole = Vec::with_capacity(frame.len());
    whole.extend_from_slice(&frame[..value_start]);
    // Its length, not Huffman-coded, and itself (RFC 7541, section 5.2).
    whole.extend_from_slice(&[1, NAME]);
    whole.extend_from_slice(&frame[value_end..]);
    let length = u32::try_from(whole.len() - FRAME_HEADER_BYTES).ok()?;
    whole[..3].copy_from_slice(&length.to_be_bytes()[1..]);
    Some(whole)
}

/// Where in a block of fields the value of a literal `:authority` lies, its length included; nothing where there is none,
/// where it is empty, or where the block does not parse.
fn authority(block: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut at = 0;
    while at < block.len() {
        let first = block[at];
        if first & 0x80 != 0 {
            integer(block, &mut at, 7)?;
            continue;
        }
        if first & 0xe0 == 0x20 {
            integer(block, &mut at, 5)?;
            continue;
        }
        let index = integer(block, &mut at, if first & 0x40 != 0 { 6 } else { 4 })?;
        let is_authority = match index {
            0 => string(block, &mut at)? == b":authority",
            // The first entry of the static table (RFC 7541, appendix A).
            index => index == 1,
        };
        let start = at;
        let value = string(block, &mut at)?;
        if is_authority {
            return (!value.is_empty()).then_some(start..at);
        }
    }
    None
}

/// An integer with a prefix of so many bits (RFC 7541, section 5.1).
fn integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A string as it is written, Huffman-coded or not (RFC 7541, section 5.2).
fn string<'a>(block: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let length = integer(block, at, 7)?;
    let bytes = block.get(*at..at.checked_add(length)?)?;
    *at += length;
    Some(bytes)
}

impl Inbound for Naming {
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        connection: &mut S,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.sent == self.ready.len() {
            self.ready.clear();
            self.sent = 0;
            let mut read = ReadBuf::new(&mut self.read);
            ready!(Pin::new(&mut *connection).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // The end; a frame that was cut is no more use to HTTP/2 than to us.
                return Poll::Ready(Ok(()));
            }
            self.state.take(read.filled(), &mut self.ready);
        }
        let now = into.remaining().min(self.ready.len() - self.sent);
        into.put_slice(&self.ready[self.sent..self.sent + now]);
        self.sent += now;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// What comes out, whatever the pieces in which it goes in.
    #[track_caller]
    fn check(frames: &[Vec<u8>], expect: &[Vec<u8>]) {
        let (sent, expect) = ([PREFACE, &frames.concat()].concat(), [PREFACE, &expect.concat()].concat());
        for piece in [1, 2, 7, 4_096] {
            let (mut state, mut out) = (State::Pass(PREFACE_BYTES), Vec::new());
            for bytes in sent.chunks(piece) {
                state.take(bytes, &mut out);
            }
            assert_eq!(out.escape_ascii().to_string(), expect.escape_ascii().to_string(), "in pieces of {piece}");
        }
    }

    #[test]
    fn a_path_becomes_a_name() {
        for (before, after) in [
            // As gRPC core writes it: literal name and value, to be indexed.
            (b"\x82@\x0a:authority\x07tmp%2Fs\x86".as_slice(), b"\x82@\x0a:authority\x01u\x86".as_slice()),
            // By the static table's index, with indexing, without, and never indexed.
            (b"\x83\x41\x06/tmp/s\x86", b"\x83\x41\x01u\x86"),
            (b"\x83\x01\x06/tmp/s\x86", b"\x83\x01\x01u\x86"),
            (b"\x83\x11\x06/tmp/s\x86", b"\x83\x11\x01u\x86"),
            // Huffman-coded, after a change of the table's size and another literal.
            (b"\x3f\xe1\x1f\x44\x04/a/b\x41\x82\xff\xff", b"\x3f\xe1\x1f\x44\x04/a/b\x41\x01u"),
        ] {
            check(&[frame(1, 4, before)], &[frame(1, 4, after)]);
            let padded = |block: &[u8]| frame(1, 4 | 8, &[&[3], block, &[0; 3]].concat());
            check(&[padded(before)], &[padded(after)]);
            let weighted = |block: &[u8]| frame(1, 4 | 0x20, &[&[0, 0, 0, 0, 15], block].concat());
            check(&[weighted(before), frame(0, 1, b"data")], &[weighted(after), frame(0, 1, b"data")]);
        }
    }

    #[test]
    fn the_rest_is_passed_on() {
        let others = [
            frame(4, 0, b""),
            frame(0, 0, b"\x41\x06/tmp/s"),
            frame(1, 4, b"\x82\x86\x84\xbe"),
            frame(1, 4, b"\x41\x00"),
            frame(1, 0, b"\x41\x06/tmp/s"),
            frame(9, 4, b"\x41\x06/tmp/s"),
            frame(1, 4, b"\x41\x7f"),
            frame(1, 4, b"\x41\xff\xff\xff\xff\xff\xff\xff\xff"),
            frame(1, 4 | 8, b"\xff\x41\x06/tmp/s"),
            frame(1, 4, &[0; BLOCK_BYTES_MAX + 1]),
            frame(1, 4, b""),
        ];
        check(&others, &others);
        check(&[b"\0\0".to_vec()], &[]);
    }
}
