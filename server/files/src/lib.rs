//! Dormouse's engines, as pure thought: what a path, a file and a revision are, and what stat, read, list, search and
//! patch do with them.
//!
//! Nothing here makes a system call, knows the wire, or has a clock: bytes come from a [`tree::Tree`], answers go into a
//! [`budget::Sink`], and time is asked of a [`budget::Budget`]. So every engine can be fuzzed, replayed and tested
//! against a model.
//!
//! Nouns: [`path`], [`meta`], [`revision`], [`tree`], [`budget`], [`limits`], [`error`], [`lines`].
//! Verbs: [`stat`], [`read`], [`list`], [`search`], [`patch`], and [`change`] for the rest of the changes. What a tree within a tree
//! answers: [`beneath`].

pub mod beneath;
pub mod budget;
pub mod change;
pub mod error;
pub mod limits;
pub mod lines;
pub mod list;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod meta;
mod order;
pub mod patch;
pub mod path;
mod pieces;
pub mod read;
pub mod revision;
pub mod search;
pub mod stat;
pub mod tree;
pub mod walk;

// The fuzz targets' bodies name this crate from outside, and are tested inside of it.
#[cfg(test)]
extern crate self as dormouse_files;

pub use error::Fault;
