//! What the agent tells its operator: a log on standard error, and counters.

pub mod log;
pub mod metrics;
