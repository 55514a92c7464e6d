//! Content that is read before it is asked for.
//!
//! Files that were made one behind the other lie one behind the other, and are mostly read so. Each by itself costs a
//! system call, and the kernel copies a small piece at half the speed of a large one. So whoever reads small files in the order
//! in which they lie gets them out of a window that was read at once: the first time a small one, then one twice as large, up to a
//! bound. Whoever jumps about pays for a look at a few numbers.
//!
//! Windows are lent, never copied again, and are let go with the last call that reads the disk ([`Ahead::forget`]): an idle
//! disk holds none. One that outlives a check of the disk is as right as metadata that is kept: each check is against what the
//! disk looked like before its first byte was read.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How many readers in a row are told apart.
const STREAM_COUNT: usize = 4;
/// The first window of a reader that was found to go on where it ended.
const FIRST_WINDOW_BYTES: usize = 128 << 10;
/// Bytes that a reader may leave out and still goes on where it ended: a directory, a file of another kind.
const GAP_BYTES: u64 = 64 << 10;
/// A piece that is longer is read by itself, and is nearly as quick.
const PIECE_BYTES_MAX: usize = 128 << 10;

/// Bytes of a line of the processor's cache: to a place that does not begin there the kernel copies more slowly.
const LINE_BYTES: usize = 64;

/// Memory for a window, of which it is the part that begins at a line.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new(byte_count: usize) -> Self {
        let bytes = vec![0; byte_count + LINE_BYTES];
        let start = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        Self { bytes, start }
    }

    fn get(&self, place: Range<usize>) -> Option<&[u8]> {
        self.bytes.get(self.start..)?.get(place)
    }

    fn get_mut(&mut self, byte_count: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.start..)?.get_mut(..byte_count)
    }
}

/// Bytes of the disk that are read once, by the first who wants some of them; the others wait for that.
pub(crate) struct Window {
    place: Range<u64>,
    /// Nothing where they could not be read: each piece is then asked for by itself, and says why.
    bytes: OnceLock<Option<Memory>>,
}

impl Window {
    /// The bytes at a place, if the window holds all of them.
    pub(crate) fn get(&self, place: Range<u64>) -> Option<&[u8]> {
        if place.start < self.place.start || place.end > self.place.end {
            return None;
        }
        let bytes = self.bytes.get()?.as_ref()?;
        // Inside of what was found to fit, so it fits in memory.
        bytes.get((place.start - self.place.start) as usize..(place.end - self.place.start) as usize)
    }

    /// Bytes in memory.
    fn held_bytes(&self) -> usize {
        self.bytes.get().and_then(Option::as_ref).map_or(0, |memory| memory.bytes.len())
    }
}

/// A reader that was seen.
#[derive(Default)]
struct Stream {
    /// Where its last piece ended.
    next: u64,
    /// Bytes of its next window; 0: it was not yet found to go on where it ended.
    window_bytes: usize,
    window: Option<Arc<Window>>,
    /// When it was last seen, in pieces.
    seen: u64,
}

#[derive(Default)]
struct Streams {
    streams: [Stream; STREAM_COUNT],
    pieces: u64,
    /// Memory of a window that was let go, for the next: fresh memory costs as much as what is read into it.
    spare: Memory,
}

/// A window, and memory for it where it is new.
type Found = (Arc<Window>, Memory);

/// The readers of one disk and their windows.
pub(crate) struct Ahead {
    streams: Mutex<Streams>,
    window_bytes_max: usize,
    window_count: AtomicUsize,
}

impl Ahead {
    /// All windows together hold at most `bytes_max` bytes, but those that are still lent; none are made of 0.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            streams: Mutex::default(),
            // One for each reader, and the spare one.
            window_bytes_max: (bytes_max / (STREAM_COUNT + 1)).saturating_sub(LINE_BYTES),
            window_count: AtomicUsize::new(0),
        }
    }

    /// A window that holds a piece, if there is one or one pays. `end` is where the file system ends, and `read` fills a buffer from
    /// a place before it.
    pub(crate) fn window(
        &self,
        piece: Range<u64>,
        end: u64,
        read: impl FnOnce(u64, &mut [u8]) -> bool,
    ) -> Option<Arc<Window>> {
        let (window, mut memory) = self.find(&piece, end)?;
        let fill = || {
            if memory.bytes.is_empty() {
                memory = Memory::new(self.window_bytes_max);
            }
            // At most so many.
            let wanted = memory.get_mut((window.place.end - window.place.start) as usize)?;
            read(window.place.start, wanted).then_some(memory)
        };
        // No lock is held meanwhile but this window's own.
        window.bytes.get_or_init(fill).is_some().then_some(window)
    }

    fn find(&self, piece: &Range<u64>, end: u64) -> Option<Found> {
        let piece_bytes = usize::try_from(piece.end.checked_sub(piece.start)?).ok()?;
        let mut guard = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let Streams { streams, pieces, spare } = &mut *guard;
        *pieces += 1;
        let holds = |stream: &&mut Stream| {
            let window = stream.window.as_ref();
            window.is_some_and(|window| window.place.start <= piece.start && piece.end <= window.place.end)
        };
        if let Some(stream) = streams.iter_mut().find(holds) {
            // Whoever is behind in it does not lead the others back.
            (stream.next, stream.seen) = (stream.next.max(piece.end), *pieces);
            return stream.window.clone().map(|window| (window, Memory::default()));
        }
        let goes_on =
            |stream: &&mut Stream| (stream.next..=stream.next.saturating_add(GAP_BYTES)).contains(&piece.start);
        // Where another reader's window begins: what it holds is not read twice.
        let windows = streams.iter().filter_map(|stream| stream.window.as_ref()).map(|window| window.place.start);
        let other = windows.filter(|&start| start >= piece.end).min().unwrap_or(u64::MAX);
        // Two who take turns in one row jump over each other's files: they read as far ahead as they did before.
        let is_near = |stream: &&Stream| stream.next.abs_diff(piece.start) <= self.window_bytes_max as u64;
        let near = streams.iter().filter(is_near).map(|stream| stream.window_bytes).max().unwrap_or(0);
        let Some(stream) = streams.iter_mut().find(|stream| stream.seen > 0 && goes_on(stream)) else {
            let oldest = streams.iter_mut().min_by_key(|stream| stream.seen)?;
            if oldest.window.is_some() {
                self.window_count.fetch_sub(1, Ordering::Relaxed);
            }
            *oldest = Stream { next: piece.end, window_bytes: near, seen: *pieces, window: None };
            return None;
        };
        (stream.next, stream.seen) = (piece.end, *pieces);
        let first = FIRST_WINDOW_BYTES.min(self.window_bytes_max);
        let window_bytes = stream.window_bytes.max(first).max(piece_bytes.saturating_mul(2));
        if piece_bytes > PIECE_BYTES_MAX || window_bytes > self.window_bytes_max {
            return None;
        }
        stream.window_bytes = window_bytes.saturating_mul(2).min(self.window_bytes_max);
        let place = piece.start..piece.start.saturating_add(window_bytes as u64).min(end).min(other).max(piece.end);
        let window = Arc::new(Window { place, bytes: OnceLock::new() });
        match stream.window.replace(Arc::clone(&window)) {
            None => {
                self.window_count.fetch_add(1, Ordering::Relaxed);
            }
            Some(before) => {
                // Nobody else can find it any more.
                if let Some(memory) = Arc::into_inner(before).and_then(|window| window.bytes.into_inner().flatten()) {
                    *spare = memory;
                }
            }
        }
        Some((window, std::mem::take(spare)))
    }

    /// Lets all windows go but those that an open file has.
    pub(crate) fn forget(&self) {
        // Whoever made one asks again after its own call, so none is missed.
        if self.window_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut guard = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in &mut guard.streams {
            *stream = Stream::default();
        }
        guard.spare = Memory::default();
        self.window_count.store(0, Ordering::Relaxed);
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let guard = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let windows = guard.streams.iter().filter_map(|stream| stream.window.as_ref());
        guard.spare.bytes.len() + windows.map(|window| window.held_bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 64 << 20;

    /// The window of a piece, filled with what tells its place.
    fn window(ahead: &Ahead, piece: Range<u64>) -> Option<Arc<Window>> {
        ahead.window(piece, END, |place, buffer| {
            for (at, byte) in (place..).zip(buffer) {
                *byte = of_place(at);
            }
            true
        })
    }

    fn of_place(place: u64) -> u8 {
        (place ^ place >> 8 ^ place >> 16) as u8
    }

    fn check(window: &Window, piece: Range<u64>) {
        let bytes = window.get(piece.clone()).unwrap();
        assert!(piece.map(of_place).eq(bytes.iter().copied()));
    }

    #[test]
    fn who_goes_on_where_it_ended_gets_windows_that_grow() {
        let ahead = Ahead::new(5 << 20);
        let mut lengths = Vec::new();
        // The first piece says nothing yet.
        for begin in (0..8 << 20).step_by(16 << 10) {
            let piece = begin..begin + 10_000;
            match window(&ahead, piece.clone()) {
                None => assert_eq!(begin, 0),
                Some(window) => {
                    check(&window, piece);
                    lengths.push((window.place.end - window.place.start) >> 10);
                }
            }
        }
        lengths.dedup();
        assert_eq!(lengths, [128, 256, 512, 1_023]);
        assert!(ahead.held_bytes() <= 5 << 20);
        ahead.forget();
        assert_eq!(ahead.held_bytes(), 0);
        // The disk's end is no window's middle.
        assert!(window(&ahead, END - 9_000..END - 8_000).is_none());
        for piece in [END - 8_000..END - 7_000, END - 100..END] {
            let window = window(&ahead, piece.clone()).unwrap();
            assert_eq!(window.place.end, END);
            check(&window, piece);
        }
    }

    #[test]
    fn who_jumps_about_or_reads_long_pieces_gets_none() {
        let ahead = Ahead::new(5 << 20);
        for index in 0..1_000_u64 {
            let begin = index * 7_919 % 1_000 * 200_000;
            assert!(window(&ahead, begin..begin + 4_096).is_none());
        }
        for begin in (0..8 << 20).step_by(256 << 10) {
            assert!(window(&ahead, begin..begin + (256 << 10)).is_none());
        }
        let none = Ahead::new(0);
        assert!((0..100_u64).all(|at| window(&none, at * 4_096..at * 4_096 + 4_096).is_none()));
        assert_eq!((ahead.held_bytes(), none.held_bytes()), (0, 0));
        assert!(window(&ahead, u64::MAX - 10..u64::MAX).is_none());
    }

    #[test]
    fn readers_in_a_row_do_not_take_each_other_for_one() {
        let ahead = Ahead::new(5 << 20);
        let mut hits = [0; STREAM_COUNT];
        for step in 0..100_u64 {
            for (reader, hits) in (0_u64..).zip(&mut hits) {
                let begin = reader * (10 << 20) + step * 20_000;
                if let Some(window) = window(&ahead, begin..begin + 20_000) {
                    check(&window, begin..begin + 20_000);
                    *hits += 1;
                }
            }
        }
        assert_eq!(hits, [99; STREAM_COUNT]);
        // A window that is lent stays where it is when its place is taken.
        let lent = window(&ahead, 1_980_000..2_000_000).unwrap();
        for begin in (20 << 20..60 << 20).step_by(50_000) {
            window(&ahead, begin..begin + 50_000);
        }
        check(&lent, 1_980_000..2_000_000);
    }

    #[test]
    fn two_who_read_one_row_by_turns_get_windows_that_grow() {
        let ahead = Ahead::new(5 << 20);
        let (mut windows, mut misses) = (std::collections::BTreeMap::new(), 0);
        // One takes 32 files of 20,000 bytes, the other the next 32 at the same time, and so on.
        for run in (0..20_u64).map(|run| run * 64) {
            for file in (0..32).flat_map(|file| [run + file, run + 32 + file]) {
                let piece = file * 20_000..(file + 1) * 20_000;
                match window(&ahead, piece.clone()) {
                    Some(window) => {
                        check(&window, piece);
                        windows
                            .insert(Arc::as_ptr(&window) as usize ^ window.place.start as usize, window.place.clone());
                    }
                    None => misses += 1,
                }
            }
        }
        let read_bytes: u64 = windows.values().map(|place| place.end - place.start).sum();
        let content_bytes = 20 * 64 * 20_000;
        assert!(misses <= 41, "{misses}");
        assert!(windows.len() < 100, "{} windows", windows.len());
        assert!(read_bytes < content_bytes * 5 / 4, "{read_bytes} bytes read of {content_bytes}");
    }

    #[test]
    fn pieces_up_to_a_bound_get_windows() {
        let check = |piece_bytes: u64, expect: bool| {
            let ahead = Ahead::new(5 << 20);
            let places = (0..20).map(|index| index * piece_bytes);
            let found = places.filter(|&begin| window(&ahead, begin..begin + piece_bytes).is_some()).count();
            assert_eq!(found > 15, expect, "{piece_bytes}: {found}");
        };
        check(70_000, true);
        check(128 << 10, true);
        check((128 << 10) + 1, false);
    }

    #[test]
    fn one_reads_and_the_others_wait() {
        let ahead = Ahead::new(5 << 20);
        assert!(window(&ahead, 0..4_096).is_none());
        let reads = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let found = ahead.window(4_096..8_192, END, |_, buffer| {
                        reads.fetch_add(1, Ordering::Relaxed);
                        buffer.fill(7);
                        true
                    });
                    assert_eq!(found.unwrap().get(4_096..8_192), Some(&[7; 4_096][..]));
                });
            }
        });
        assert_eq!(reads.into_inner(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_in_no_window() {
        let ahead = Ahead::new(5 << 20);
        assert!(window(&ahead, 0..4_096).is_none());
        assert!(ahead.window(4_096..8_192, END, |_, _| false).is_none());
        assert!(ahead.window(8_192..9_000, END, |_, _| panic!("it was tried")).is_none());
    }
}
