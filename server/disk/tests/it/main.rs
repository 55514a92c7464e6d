//! The disk reader against the kernel: images are made at test time, and what the reader says of each must equal what the
//! kernel shows of a mounted copy. Where the kernel cannot be asked (no root, no loop devices, a feature it does not
//! mount) the test says so and still reads everything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

#[path = "../../fuzz/bodies/mod.rs"]
mod bodies;
mod bounds;
mod clone;
mod compare;
mod directories;
mod files;
mod fuzz;
mod hostile;
mod image;
mod journal;
mod layout;
mod logs;
mod matrix;
mod others;
mod races;
mod sources;
mod work;
