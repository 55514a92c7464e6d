//! Any globs over any path: refused, or a verdict, without a panic.
#![no_main]

use dormouse_files::{Fault, limits::Limits, search::globs::GlobSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<String>, Vec<String>, Vec<u8>, bool)| {
    let (include, exclude, path, is_directory) = input;
    match GlobSet::new(&include, &exclude, &Limits::default()) {
        Ok(set) => drop(set.verdict(&path, is_directory, false)),
        Err(Fault::InvalidPattern { field, .. } | Fault::Invalid { field, .. }) => {
            assert!(field.starts_with("include") || field.starts_with("exclude.globs"));
        }
        Err(other) => panic!("{other}"),
    }
});
