//! Bytes of one layer's file.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Whether what is held of a layer is believed, or all of it read anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    Held,
    Fresh,
}

/// What no sound image says.
pub(super) fn corrupt(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("qcow2: {what}"))
}

/// Reads until the buffer is full; what is beyond the file's end reads as zeros.
pub(super) fn read_padded(file: &File, place: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    // Every turn reads at least a byte.
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], place.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}
