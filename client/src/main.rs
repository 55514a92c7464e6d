//! `dormouse`, the command line: it parses, calls, and prints. What is sent again and when, and what an answer must hold,
//! is the library's.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::main()
}
