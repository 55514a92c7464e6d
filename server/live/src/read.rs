//! Reading an open file: calls that the system cuts short are made again until there is nothing more to read.

use std::{
    fs::File,
    io::{ErrorKind, Result},
    os::unix::fs::FileExt,
};

/// Reads until the buffer is full or the file ends. Every round reads at least a byte, so the buffer bounds the rounds.
pub(crate) fn full_at(file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    read(|buffer, at| file.read_at(buffer, at), offset, None, buffer)
}

/// As [`full_at`], of a file that ended at `end` when it was opened: what was read up to there and stops there by itself is
/// taken for all, so that a file that stays as it is costs one call, and not another that finds nothing.
pub(crate) fn rest_at(file: &File, offset: u64, end: u64, buffer: &mut [u8]) -> Result<usize> {
    read(|buffer, at| file.read_at(buffer, at), offset, Some(end), buffer)
}

fn read(
    mut read_at: impl FnMut(&mut [u8], u64) -> Result<usize>,
    offset: u64,
    end: Option<u64>,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let Some(at) = offset.checked_add(filled as u64) else { break };
        if filled > 0 && end == Some(at) {
            break;
        }
        match read_at(&mut buffer[filled..], at) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn reads_all_that_there_is_whatever_the_end_was() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(full_at(&file, 4, &mut buffer).unwrap(), 6);
        assert_eq!(&buffer[..6], b"456789");
        assert_eq!(full_at(&file, 4, &mut buffer[..3]).unwrap(), 3);
        // As long as it was, longer, shorter, and with an end that lies before what is asked for.
        for end in [10, 7, 12, 0, 2] {
            assert_eq!(rest_at(&file, 2, end, &mut buffer).unwrap(), 8, "{end}");
            assert_eq!(&buffer[..8], b"23456789");
        }
        assert_eq!(rest_at(&file, 10, 10, &mut buffer).unwrap(), 0);
    }

    #[test]
    fn asks_no_more_often_than_it_must() {
        let check = |answers: &[usize], end: Option<u64>, expect: usize| {
            let mut calls = Vec::new();
            let mut answers = answers.iter();
            let mut read_at = |_: &mut [u8], at| {
                calls.push(at);
                match answers.next() {
                    Some(&usize::MAX) => Err(ErrorKind::Interrupted.into()),
                    Some(&count) => Ok(count),
                    None => panic!("asked once more at {at}"),
                }
            };
            assert_eq!(read(&mut read_at, 10, end, &mut [0; 9]).unwrap(), expect);
            assert_eq!(answers.len(), 0, "asked {calls:?}");
        };
        check(&[8], Some(18), 8);
        check(&[3, 5], Some(18), 8);
        check(&[3, usize::MAX, 5], Some(18), 8);
        check(&[8, 0], Some(19), 8);
        check(&[8, 0], None, 8);
        check(&[8, 1], Some(17), 9);
        // It begins where the file ended: whether there is more by now is asked once.
        check(&[4, 0], Some(10), 4);
        check(&[0], Some(10), 0);
        check(&[9], Some(18), 9);
    }
}
