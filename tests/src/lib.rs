//! Dormouse from outside: what the tests of the whole product stand on.
//!
//! - [`world`]: an agent on loopback, the real binary in a process of its own.
//! - [`site`]: an agent with one tree, and a client that asks it in plain calls; [`ask`]: the requests.
//! - [`refusal`]: an error, checked against the contract; [`wire`]: a call as bare frames.
//! - [`trace`]: what an agent asks of the kernel, and what it costs.
//! - [`fixture`]: a small tree that holds one of everything.
//! - [`image`]: ext4 images of a tree, made by e2fsprogs without root.
//! - [`machine`]: a real machine under QEMU, with the agent inside.
//! - [`suite`]: one story, told by a live directory, a disk image and a remote client alike.
//! - [`mount`]: mounts that are gone with their test.
//! - [`oracle`]: what the kernel sees of a mounted copy.
//! - [`processor`]: what programs took of the processor.
//! - [`skip`]: a test that cannot run here says so, and is counted.

pub mod ask;
pub mod fixture;
pub mod image;
pub mod machine;
pub mod mount;
pub mod oracle;
pub mod processor;
pub mod refusal;
pub mod site;
pub mod skip;
pub mod suite;
pub mod trace;
pub mod wire;
pub mod world;
