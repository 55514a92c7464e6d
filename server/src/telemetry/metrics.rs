//! Counters of calls: how many, how they ended, how long they took, how many bytes went out. Bounded: one entry for each
//! pair of a method that this agent knows and a gRPC code.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tonic::Code;

/// The counters of one agent. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    calls: Arc<Mutex<BTreeMap<(&'static str, i32), Count>>>,
}

/// What is counted of calls that ended alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Calls.
    pub calls: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Sum of the times from the request's headers to the end of the answer.
    pub time: Duration,
    /// The longest of them.
    pub time_max: Duration,
}

impl Metrics {
    /// One call has ended.
    pub fn ended(&self, method: &'static str, code: Code, bytes: u64, time: Duration) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.entry((method, code as i32)).or_default();
        count.calls += 1;
        count.bytes += bytes;
        count.time = count.time.saturating_add(time);
        count.time_max = count.time_max.max(time);
    }

    /// All counters, by method and code.
    pub fn all(&self) -> Vec<(&'static str, Code, Count)> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().map(|((method, code), count)| (*method, Code::from(*code), *count)).collect()
    }

    /// Says all counters in the log, once, as on the way down.
    pub fn log(&self) {
        for (method, code, count) in self.all() {
            tracing::info!(
                method,
                ?code,
                calls = count.calls,
                bytes = count.bytes,
                time_ms = count.time.as_millis() as u64,
                time_max_ms = count.time_max.as_millis() as u64,
                "calls ended"
            );
        }
    }
}
