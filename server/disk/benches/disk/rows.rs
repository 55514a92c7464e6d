//! Times of rounds, and the ratios of them that are printed.

use std::time::{Duration, Instant};

pub(super) fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// Rounds of one comparison.
pub(super) struct Rows {
    what: &'static str,
    /// Each with its target.
    against: Vec<(&'static str, f64)>,
    ratios: Vec<Vec<f64>>,
    ours: Vec<Duration>,
}

impl Rows {
    pub(super) fn new(what: &'static str, against: &[(&'static str, f64)]) -> Self {
        Self { what, against: against.to_vec(), ratios: vec![Vec::new(); against.len()], ours: Vec::new() }
    }

    pub(super) fn add(&mut self, ours: Duration, theirs: &[Duration]) {
        self.ours.push(ours);
        for (ratios, other) in self.ratios.iter_mut().zip(theirs) {
            ratios.push(ours.as_secs_f64() / other.as_secs_f64());
        }
    }

    pub(super) fn print(&mut self) {
        self.ours.sort();
        println!("{} (ours: {:.3} ms)", self.what, self.ours[self.ours.len() / 2].as_secs_f64() * 1e3);
        for ((name, target), ratios) in self.against.iter().zip(&mut self.ratios) {
            ratios.sort_by(f64::total_cmp);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let median = ratios[ratios.len() / 2];
            let met = if median <= *target { "met" } else { "NOT MET" };
            println!("  ÷ {name}: {median:.3} ({least:.3}-{most:.3}), target {target}: {met}");
        }
    }
}
