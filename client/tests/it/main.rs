//! The client against a host that says exactly what a test wrote down for it, over a Unix socket.

// Every function here is a test or a part of one: a panic is how it fails.
#![allow(clippy::unwrap_used)]

mod calls;
mod command;
mod fake;
mod streams;
mod tls;
mod wakes;
mod writes;
