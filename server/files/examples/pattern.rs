//! Reads lines of `pattern<TAB>line` and says for each what the engine finds in that line: the match's byte range, `none`,
//! or `refused`. Both fields are hexadecimal, so that any byte can be in them. An oracle, such as google-re2, can be run beside it:
//! `tests/oracle/google_re2.py`.

use std::io::{self, BufRead, Write};

use dormouse_files::{
    limits::Limits,
    search::pattern::{Case, Pattern, Syntax},
};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut last = (String::new(), compile(""));
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (pattern, text) = line.split_once('\t').unwrap_or((&line, ""));
        if pattern != last.0 {
            last = (pattern.to_owned(), compile(pattern));
        }
        match &last.1 {
            Err(refusal) => writeln!(out, "refused: {refusal}")?,
            Ok(pattern) => match pattern.find_in_line(&unhex(text)) {
                Some((start, end)) => writeln!(out, "{start} {end}")?,
                None => writeln!(out, "none")?,
            },
        }
    }
    Ok(())
}

fn compile(pattern: &str) -> Result<Pattern, String> {
    let text = String::from_utf8(unhex(pattern)).map_err(|error| error.to_string())?;
    Pattern::new(&text, Syntax::Regex, Case::Sensitive, &Limits::default()).map_err(|fault| fault.to_string())
}

/// Both fields come as hexadecimal, so that any byte can be in them.
fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks_exact(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
