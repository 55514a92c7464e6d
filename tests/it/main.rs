//! The whole product from outside, a file a subject. See `tests/run` for how all of it is run.

mod changes;
mod command;
mod conformance;
mod crash;
mod durable;
mod features;
mod grpcurl;
mod host;
mod index;
mod linear;
mod list;
mod patch;
mod python;
mod race;
mod read;
mod refusals;
mod ripgrep;
mod search;
mod service;
mod start;
mod stat;
mod suspended;
mod tidy;
mod trouble;
mod write;
