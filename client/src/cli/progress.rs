//! How far a long transfer has come: on standard error, only on a terminal, and only once it has taken a second.

use std::{
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

const FIRST: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(200);

/// A line that is drawn over itself, and taken away when this is dropped.
pub struct Progress {
    wanted: bool,
    shown: bool,
    begun: Instant,
    next: Instant,
    done: u64,
    total: Option<u64>,
}

impl Progress {
    /// `total` is in bytes, where it is known.
    pub fn new(quiet: bool, total: Option<u64>) -> Self {
        let begun = Instant::now();
        Self { wanted: !quiet && stderr().is_terminal(), shown: false, begun, next: begun + FIRST, done: 0, total }
    }

    /// So many bytes more have come.
    pub fn advance(&mut self, bytes: usize) {
        self.reach(self.done.saturating_add(bytes as u64));
    }

    /// So many bytes have come in all.
    pub fn reach(&mut self, done: u64) {
        self.done = done;
        let now = Instant::now();
        if self.wanted && now >= self.next {
            self.next = now + BETWEEN;
            self.shown = true;
            // A line that cannot be drawn is not worth a failure.
            let _ = write!(stderr(), "\r\x1b[K{}", line(self.done, self.total, now - self.begun));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(done: u64, total: Option<u64>, taken: Duration) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let speed = mib(done) / taken.as_secs_f64().max(0.001);
    match total.filter(|total| *total > 0) {
        Some(total) => {
            let percent = (done as f64 / total as f64 * 100.0).min(100.0);
            format!("{:.0} of {:.0} MiB ({percent:.0} %), {speed:.0} MiB/s", mib(done), mib(total))
        }
        None => format!("{:.0} MiB, {speed:.0} MiB/s", mib(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(done: u64, total: Option<u64>, millis: u64, expect: &str) {
        assert_eq!(line(done, total, Duration::from_millis(millis)), expect);
    }

    #[test]
    fn progress_is_one_line() {
        check(50 << 20, Some(200 << 20), 2_000, "50 of 200 MiB (25 %), 25 MiB/s");
        check(50 << 20, None, 1_000, "50 MiB, 50 MiB/s");
        check(50 << 20, Some(0), 1_000, "50 MiB, 50 MiB/s");
        // The file has grown.
        check(3 << 20, Some(2 << 20), 1_000, "3 of 2 MiB (100 %), 3 MiB/s");
        check(0, None, 0, "0 MiB, 0 MiB/s");
    }
}
