//! The whole product from outside, a file a subject. See `tests/run` for how all of it is run.

mod changes;
mod conformance;
mod features;
mod host;
mod list;
mod patch;
mod read;
mod refusals;
mod search;
mod service;
mod start;
mod stat;
mod suspended;
mod tidy;
mod write;
