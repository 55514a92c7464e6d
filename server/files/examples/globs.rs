//! Reads lines of `glob<TAB>path` and says for each whether a search with that one include takes the file: `yes`, `no` or
//! `refused`. Both fields are hexadecimal, so that any byte can be in them; a path has no leading `/`. An oracle, such as
//! git, can be run beside it: `tests/oracle/git_check_ignore.py`.

use std::io::{self, BufRead, Write};

use dormouse_files::{
    limits::Limits,
    search::globs::{GlobSet, Verdict},
};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut last = (String::new(), compile(""));
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (glob, path) = line.split_once('\t').unwrap_or((&line, ""));
        if glob != last.0 {
            last = (glob.to_owned(), compile(glob));
        }
        match &last.1 {
            Err(refusal) => writeln!(out, "refused: {refusal}")?,
            Ok(set) => writeln!(out, "{}", if takes(set, &unhex(path)) { "yes" } else { "no" })?,
        }
    }
    Ok(())
}

fn compile(glob: &str) -> Result<GlobSet, String> {
    let text = String::from_utf8(unhex(glob)).map_err(|error| error.to_string())?;
    GlobSet::new(&[text], &[], &Limits::default()).map_err(|fault| fault.to_string())
}

fn takes(set: &GlobSet, path: &[u8]) -> bool {
    let ends = (0..path.len()).filter(|&place| path[place] == b'/');
    let included = ends.fold(false, |included, end| set.verdict(&path[..end], true, included) == Verdict::Included);
    set.verdict(path, false, included) == Verdict::Included
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks_exact(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
