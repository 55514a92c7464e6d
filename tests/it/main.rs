//! The whole product from outside, a file a subject. See `tests/run` for how all of it is run.

mod conformance;
mod changes;
mod list;
mod patch;
mod read;
mod search;
mod stat;
mod tidy;
mod write;
