//! Hostile patterns and globs cost what their length and the text's say, and no more: eight times the text takes not much
//! more than eight times the processor's time, where backtracking would take the square or worse.

use std::time::Duration;

use dormouse_files::{
    limits::Limits,
    search::{
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
    },
};
use nix::time::{ClockId, clock_gettime};

/// Linear is 8, quadratic 64.
const RATIO_MAX: u32 = 32;

/// The least of some runs of this thread's own time, which other processes do not lengthen.
fn cost(mut work: impl FnMut()) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the clock tells"));
    let runs = (0..5).map(|_| {
        let begin = now();
        work();
        now() - begin
    });
    runs.min().unwrap_or_default()
}

#[track_caller]
fn check_linear(what: &str, small: Duration, large: Duration) {
    assert!(
        large <= small.max(Duration::from_millis(1)) * RATIO_MAX,
        "{what}: {small:?}, eight times as much {large:?}"
    );
}

#[test]
fn globs_with_many_stars_are_linear_in_the_path() {
    let limits = Limits::default();
    let deep = |ending: &str| format!("{}{ending}", "**/a/".repeat(100));
    let stars = |ending: &str| format!("{}{ending}", "*a".repeat(300));
    let globs: Vec<String> =
        (0..32).map(|n| if n % 2 == 0 { deep(&format!("x{n}")) } else { stars(&format!("y{n}")) }).collect();
    let set = GlobSet::new(&globs, &globs, &limits).expect("32 sound globs");
    let verdicts = |components: usize| {
        let path = vec!["a"; components].join("/") + "/" + &"a".repeat(components.min(255));
        cost(|| {
            for _ in 0..4 {
                std::hint::black_box(set.verdict(path.as_bytes(), false, false));
            }
        })
    };
    check_linear("globs", verdicts(230), verdicts(1_840));
}

#[test]
fn patterns_of_4_kib_are_linear_in_the_line() {
    let limits = Limits::default();
    let nested = format!("{}b", "(a|aa)+(a+a+)*".repeat(291));
    let counted = format!("{}b", "(a?){50}a{50}".repeat(3));
    let choices = (0..580).map(|n| format!("a{n:04}z")).collect::<Vec<_>>().join("|");
    for text in [nested, counted, choices, "(x+x+)+y".repeat(500)] {
        assert!(text.len() <= 4_096, "{}", text.len());
        let pattern = match Pattern::new(&text, Syntax::Regex, Case::Sensitive, &limits) {
            Ok(pattern) => pattern,
            // Refused for its size, which is an end as well.
            Err(fault) => panic!("{}: {fault}", &text[..30]),
        };
        let find = |length: usize| {
            let line = [b"a".repeat(length), b"x".repeat(length)].concat();
            cost(|| assert_eq!(pattern.find_in_line(&line), None))
        };
        check_linear(&text[..20], find(1 << 10), find(8 << 10));
    }
}
