//! What an agent asks of the kernel, seen by strace(1); and what it costs, seen in /proc (proc(5)).

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{skip, world::World};

/// A strace that is attached to an agent.
pub struct Trace {
    child: Child,
    output: PathBuf,
}

impl Trace {
    /// Attaches to all threads of an agent and notes these system calls, or nothing after noting the skip.
    pub fn attach(world: &World, calls: &str, what: &str) -> Option<Self> {
        let output = world.directory.path().join("trace");
        let child = Command::new("strace")
            .args(["-f", "-y", "-s", "64", "-e"])
            .arg(format!("trace={calls}"))
            .args(["-p", &world.process().to_string(), "-o"])
            .arg(&output)
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                skip::skip(what, &format!("strace does not start: {error}"));
                return None;
            }
        };
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("its stderr is piped"));
        // It says "Process N attached" once it holds every thread; an end without that is a refusal.
        while !said.contains("attached") {
            if lines.read_line(&mut said).expect("strace speaks text") == 0 {
                child.wait().expect("its exit is known");
                skip::skip(what, &format!("strace does not attach: {}", said.trim()));
                return None;
            }
        }
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Some(Self { child, output })
    }

    /// Detaches and gives what was noted, a line a call.
    ///
    /// # Panics
    /// Where strace does not end.
    pub fn finish(mut self) -> String {
        let process = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id fits"));
        kill(process, Signal::SIGINT).expect("strace runs");
        self.child.wait().expect("its exit is known");
        fs::read_to_string(&self.output).expect("strace wrote its notes")
    }
}

/// User and system time that an agent has used so far, in clock ticks of 10 ms.
///
/// # Panics
/// Where it does not run.
pub fn cpu_ticks(world: &World) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", world.process())).expect("the agent runs");
    let fields = stat.rsplit_once(')').expect("a name in parentheses").1;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).expect("a number of ticks");
    next() + next()
}

/// A figure of /proc/PID/status in KiB, such as `VmHWM`.
///
/// # Panics
/// Where the agent does not run.
pub fn memory_kib(world: &World, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", world.process())).expect("the agent runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("the kernel tells it");
    line.trim_start_matches(':').split_ascii_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Sets the peak of the resident set back to what is resident now.
///
/// # Panics
/// Where the kernel refuses.
pub fn forget_peak(world: &World) {
    fs::write(format!("/proc/{}/clear_refs", world.process()), "5").expect("the kernel forgets the peak");
}
