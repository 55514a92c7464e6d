//! Which parts of a map are in memory now.
//!
//! A call that populates pages walks all of them, also where they are there already, and costs as much as summing a small
//! file. One question for a whole window of the map (mincore(2)) costs a fraction of it, brings nothing in that nobody asked for,
//! and answers for all files that lie in the window. The answer is believed for a moment only: that moment is how long a page
//! may have been let go unnoticed.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Bytes that are asked for at once: files of one directory lie within a few of these.
const WINDOW_BYTES: usize = 256 << 10;
/// Pages are at least so long.
const PAGE_BYTES_MIN: usize = 4 << 10;
/// Windows that are remembered: 16 MiB of the map, for the threads of some searches.
const WINDOW_COUNT_MAX: usize = 64;
/// How long an answer is believed.
const BELIEVED_TIME_MAX: Duration = Duration::from_millis(1);

/// What was found out of one window.
#[derive(Clone, Copy)]
struct Found {
    window: usize,
    time: Instant,
    resident: bool,
}

/// The windows that were asked for last.
pub(crate) struct Windows([Mutex<Option<Found>>; WINDOW_COUNT_MAX]);

impl Default for Windows {
    fn default() -> Self {
        Self([const { Mutex::new(None) }; WINDOW_COUNT_MAX])
    }
}

impl Windows {
    /// Whether all windows that hold this range of the map are in memory, or were within the last millisecond.
    ///
    /// `map` is always the same map of a file that this process owns: the kernel tells others that everything is in memory.
    pub(crate) fn resident(&self, map: &[u8], range: Range<usize>) -> bool {
        let windows = range.start / WINDOW_BYTES..range.end.div_ceil(WINDOW_BYTES);
        let now = Instant::now();
        windows.into_iter().all(|window| self.window_resident(map, window, now))
    }

    fn window_resident(&self, map: &[u8], window: usize, now: Instant) -> bool {
        let mut slot = self.0[window % WINDOW_COUNT_MAX].lock().unwrap_or_else(PoisonError::into_inner);
        match *slot {
            Some(found) if found.window == window && now.duration_since(found.time) < BELIEVED_TIME_MAX => {
                found.resident
            }
            _ => {
                let start = window * WINDOW_BYTES;
                let bytes = &map[start..map.len().min(start + WINDOW_BYTES)];
                let resident = ask(bytes);
                // `now` is from before the question, so the answer is never believed for too long.
                *slot = Some(Found { window, time: now, resident });
                resident
            }
        }
    }
}

/// Whether every page of these bytes of a map, at most a window, is in memory. They begin at a page.
fn ask(bytes: &[u8]) -> bool {
    let mut pages = [1_u8; WINDOW_BYTES / PAGE_BYTES_MIN];
    assert!(bytes.len() <= WINDOW_BYTES, "one window is asked for at a time");
    // SAFETY: mincore(2) reads nothing of the memory at its first argument, which may be any address; it writes one byte for each
    // page of the range to its third. A range of at most WINDOW_BYTES that begins at a page (or the call is refused with EINVAL and
    // writes nothing) has at most as many pages as `pages` has bytes, since no page is shorter than PAGE_BYTES_MIN. `pages` is
    // borrowed by nobody else meanwhile.
    #[allow(unsafe_code, reason = "no crate of ours has this call; proof above")]
    let answer = unsafe { libc::mincore(bytes.as_ptr().cast_mut().cast(), bytes.len(), pages.as_mut_ptr()) };
    // Of a page's byte only the lowest bit is defined; what was not written stands for no page.
    answer == 0 && pages.iter().all(|page| page & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_resident_once_its_pages_were_read() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len((WINDOW_BYTES + PAGE_BYTES_MIN) as u64).expect("a file of holes");
        // SAFETY: nobody else knows the file.
        #[allow(unsafe_code, reason = "proof above")]
        let map = unsafe { memmap2::Mmap::map(&file) }.expect("it maps");
        let (windows, begin) = (Windows::default(), Instant::now());
        let resident = |window, time| windows.window_resident(&map, window, begin + time);
        assert!(!resident(0, Duration::ZERO) && !resident(1, Duration::ZERO), "nobody has read it");
        assert_eq!(map.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 0);
        assert!(!resident(0, BELIEVED_TIME_MAX / 2), "an answer is believed for a moment");
        assert!(resident(0, BELIEVED_TIME_MAX) && resident(1, BELIEVED_TIME_MAX), "and asked for again");
        let fresh = |range| Windows::default().resident(&map, range);
        assert!(fresh(0..0) && fresh(7..9) && fresh(0..map.len()) && fresh(WINDOW_BYTES..map.len()));
    }

    #[test]
    fn one_window_that_is_not_there_is_enough() {
        let file = tempfile::tempfile().expect("a file");
        // Far enough from what is read for no reading ahead to come there.
        let count = 256;
        file.set_len((count * WINDOW_BYTES) as u64).expect("a file of holes");
        // SAFETY: nobody else knows the file.
        #[allow(unsafe_code, reason = "proof above")]
        let map = unsafe { memmap2::Mmap::map(&file) }.expect("it maps");
        assert_eq!(map[..WINDOW_BYTES].iter().map(|&byte| u64::from(byte)).sum::<u64>(), 0);
        assert!(Windows::default().resident(&map, 1..WINDOW_BYTES));
        assert!(!Windows::default().resident(&map, 0..map.len()));
        // A window shares its place with the one that lies 64 further.
        let (windows, now) = (Windows::default(), Instant::now());
        assert!(windows.window_resident(&map, 0, now));
        assert!(!windows.window_resident(&map, count - WINDOW_COUNT_MAX, now));
        assert!(windows.window_resident(&map, 0, now));
    }

    #[test]
    fn what_is_no_map_is_not_resident() {
        let bytes = [0; 2];
        // At most one of the two addresses is that of a page.
        assert!(!ask(&bytes[..1]) || !ask(&bytes[1..]));
    }
}
