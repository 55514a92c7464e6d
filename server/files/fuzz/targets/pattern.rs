//! Any pattern over any line: refused with a place inside of it, or a match inside of the line.
#![no_main]

use dormouse_files::{
    Fault,
    limits::Limits,
    search::pattern::{Case, Pattern, Syntax},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, bool, &str, &[u8])| {
    let (is_regex, fold_case, text, line) = input;
    let syntax = if is_regex { Syntax::Regex } else { Syntax::Literal };
    let case = if fold_case { Case::Insensitive } else { Case::Sensitive };
    match Pattern::new(text, syntax, case, &Limits::default()) {
        Ok(pattern) => {
            if let Some((start, end)) = pattern.find_in_line(line) {
                assert!(start <= end && end <= line.len());
            }
        }
        Err(Fault::InvalidPattern { position, .. }) => {
            assert!(position <= text.len() && text.is_char_boundary(position))
        }
        Err(other) => panic!("{other}"),
    }
});
