//! Lines: they end with LF; a last line without one counts, an LF at the end starts no further line.

/// Finds where lines begin in bytes that arrive piece by piece.
#[derive(Debug, Clone, Default)]
pub struct LineCounter {
    /// Line ends seen.
    end_count: u64,
    /// Whether bytes followed the last end.
    open: bool,
}

impl LineCounter {
    /// The next piece.
    pub fn update(&mut self, piece: &[u8]) {
        if let Some(last) = piece.last() {
            self.end_count += memchr::memchr_iter(b'\n', piece).count() as u64;
            self.open = *last != b'\n';
        }
    }

    /// As [`LineCounter::update`], but stops behind the end of the line with the number `line` (1-based), and says how
    /// many bytes were taken; nothing where that line does not end in this piece.
    pub fn update_through(&mut self, line: u64, piece: &[u8]) -> Option<usize> {
        let missing = line.checked_sub(self.end_count).filter(|&missing| missing > 0);
        let Some(missing) = missing else { return Some(0) };
        let nth = usize::try_from(missing - 1).unwrap_or(usize::MAX);
        match memchr::memchr_iter(b'\n', piece).nth(nth) {
            Some(end) => {
                self.end_count = line;
                self.open = false;
                Some(end + 1)
            }
            None => {
                self.update(piece);
                None
            }
        }
    }

    /// Lines in all pieces so far.
    pub fn count(&self) -> u64 {
        self.end_count + u64::from(self.open)
    }
}

/// The line that holds the byte at `place`, which is at most the length: where it begins, and where it ends without its
/// LF.
pub fn around(bytes: &[u8], place: usize) -> (usize, usize) {
    let start = memchr::memrchr(b'\n', &bytes[..place]).map_or(0, |end| end + 1);
    let end = memchr::memchr(b'\n', &bytes[place..]).map_or(bytes.len(), |end| place + end);
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expect: u64) {
        let mut counter = LineCounter::default();
        for piece in pieces {
            counter.update(piece.as_bytes());
        }
        assert_eq!(counter.count(), expect);
    }

    #[test]
    fn counts_lines() {
        check(&[], 0);
        check(&[""], 0);
        check(&["a"], 1);
        check(&["a\n"], 1);
        check(&["a\n", ""], 1);
        check(&["a\n", "b"], 2);
        check(&["a\nb\n"], 2);
        check(&["\n\n"], 2);
        check(&["a", "b", "\n", "c"], 2);
    }

    #[test]
    fn stops_behind_a_line() {
        let mut counter = LineCounter::default();
        assert_eq!(counter.update_through(2, b"a"), None);
        assert_eq!(counter.update_through(2, b"b\nc\nd\n"), Some(4));
        assert_eq!(counter.count(), 2);
        assert_eq!(counter.update_through(2, b"d\n"), Some(0));
        assert_eq!(counter.update_through(9, b"d\n"), None);
        assert_eq!(counter.count(), 3);
    }

    #[test]
    fn finds_the_line_around_a_place() {
        assert_eq!(around(b"ab\ncd\n", 0), (0, 2));
        assert_eq!(around(b"ab\ncd\n", 2), (0, 2));
        assert_eq!(around(b"ab\ncd\n", 3), (3, 5));
        assert_eq!(around(b"ab\ncd", 5), (3, 5));
        assert_eq!(around(b"", 0), (0, 0));
    }
}
