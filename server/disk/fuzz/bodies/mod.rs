//! What each fuzz target does with its input: the same functions under libFuzzer and in the tests of the package, which run
//! them over the committed seeds and changes of these. No input may panic, loop without end, or take more memory than the
//! bounds allow.

pub mod directory;
pub mod exercise;
pub mod image;
pub mod journal;
pub mod packed;
pub mod partition;
pub mod qcow2;
pub mod seal;
pub mod sealed;

/// Takes one input.
pub type Body = fn(&[u8]);

/// Every target by its name, which is also the name of its folder of seeds.
pub const TARGETS: [(&str, Body); 6] = [
    ("image", image::body),
    ("sealed", sealed::body),
    ("journal", journal::body),
    ("directory", directory::body),
    ("partition", partition::body),
    ("qcow2", qcow2::body),
];
