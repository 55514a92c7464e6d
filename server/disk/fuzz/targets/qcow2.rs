//! The target `qcow2`: see `bodies/qcow2.rs`.
#![no_main]

#[path = "../bodies/mod.rs"]
#[allow(dead_code, reason = "each target is one of the bodies")]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::qcow2::body(input));
