//! Disks as inputs: what they hold, without their zeros.
//!
//! ```text
//! length of the disk in KiB (2 bytes) │ offset (3 bytes), count (1 byte), that many bytes │ the next piece …
//! ```
//!
//! Numbers are little-endian. A piece that does not lie inside the disk is wrapped into it, so that every input is a disk,
//! and a change to one piece leaves the others where they are.

/// Longest disk, so that an input costs little.
pub const DISK_BYTES_MAX: usize = 8 << 20;
/// Zeros between two pieces that are not worth a piece of their own.
const GAP_BYTES: usize = 5;

/// The disk of an input; an input that is too short for a length is a disk of one KiB.
pub fn unpack(input: &[u8]) -> Vec<u8> {
    let (length, mut rest) = match input {
        [low, high, rest @ ..] => (usize::from(u16::from_le_bytes([*low, *high])) << 10, rest),
        _ => (1 << 10, &[][..]),
    };
    let mut disk = vec![0; length.clamp(1 << 10, DISK_BYTES_MAX)];
    while let [low, middle, high, count, tail @ ..] = rest {
        let at = (usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16) % disk.len();
        let count = usize::from(*count).min(tail.len());
        let held = count.min(disk.len() - at);
        disk[at..at + held].copy_from_slice(&tail[..held]);
        rest = &tail[count..];
    }
    disk
}

/// The shortest input that is this disk, or nearly so.
pub fn pack(disk: &[u8]) -> Vec<u8> {
    assert!(disk.len() <= DISK_BYTES_MAX && disk.len().is_multiple_of(1 << 10), "{} bytes", disk.len());
    let mut input = ((disk.len() >> 10) as u16).to_le_bytes().to_vec();
    let mut at = 0;
    while let Some(start) = disk[at..].iter().position(|&byte| byte != 0).map(|skip| at + skip) {
        let most = disk.len().min(start + 255);
        let mut end = start + 1;
        // On to the last byte that is not zero and not behind a gap.
        let mut place = end;
        while place < most && place - end < GAP_BYTES {
            if disk[place] != 0 {
                end = place + 1;
            }
            place += 1;
        }
        input.extend(&(start as u32).to_le_bytes()[..3]);
        input.push((end - start) as u8);
        input.extend(&disk[start..end]);
        at = end;
    }
    input
}
