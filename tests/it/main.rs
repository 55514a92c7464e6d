//! The whole product from outside, a file a subject. See `tests/run` for how all of it is run.

mod conformance;
mod crash;
mod tidy;
