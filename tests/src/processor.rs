//! What programs took of the processor, user and system together: for benchmarks, since on a busy machine the clock tells
//! more of others.

use std::time::Duration;

use nix::{
    sys::resource::{UsageWho, getrusage},
    time::{ClockId, clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// All threads of a process that runs, up to now.
pub fn of(process: u32) -> Duration {
    let process = Pid::from_raw(i32::try_from(process).expect("a process id fits"));
    clock(clock_getcpuclockid(process).expect("the process has a clock"))
}

/// This thread, up to now.
pub fn of_thread() -> Duration {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// All threads of this process, up to now.
pub fn own() -> Duration {
    usage(UsageWho::RUSAGE_SELF)
}

/// All commands of this process that have ended and were waited for.
pub fn children() -> Duration {
    usage(UsageWho::RUSAGE_CHILDREN)
}

fn clock(clock: ClockId) -> Duration {
    Duration::from(clock_gettime(clock).expect("the clock tells"))
}

fn usage(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("the kernel tells");
    let time = usage.user_time() + usage.system_time();
    let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
    Duration::from_micros(u64::try_from(micros).expect("time is not negative"))
}
