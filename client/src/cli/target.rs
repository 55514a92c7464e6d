//! `WORKSPACE PATH …` or `WORKSPACE:/abs/path …`, as bytes: Linux names need not be UTF-8.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use bytes::Bytes;

use super::fail::Failure;

/// A path as the contract carries it: text where it is UTF-8, else bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WirePath {
    pub text: String,
    pub raw: Bytes,
}

impl WirePath {
    fn new(bytes: &[u8]) -> Result<Self, Failure> {
        if bytes.first() != Some(&b'/') {
            let shown = String::from_utf8_lossy(bytes);
            return Err(Failure::Usage(format!("path {shown:?} is not absolute; paths begin at the workspace's /")));
        }
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => Self { text: text.to_owned(), raw: Bytes::new() },
            Err(_) => Self { text: String::new(), raw: Bytes::copy_from_slice(bytes) },
        })
    }

    /// A path that may repeat the workspace, as in `mv W:/a W:/b`.
    pub fn within(word: &OsStr, workspace: &str) -> Result<Self, Failure> {
        match split_word(word) {
            Some((other, _)) if other != workspace => Err(Failure::Usage(format!(
                "{other:?} is another workspace than {workspace:?}; a move stays within one"
            ))),
            Some((_, path)) => Self::new(path),
            None => Self::new(word.as_bytes()),
        }
    }
}

/// A file of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub workspace: String,
    pub path: WirePath,
}

/// Takes the target off the front of a command's words; `rest` names the words that follow it, and `optional` says how many
/// of them may be left out.
pub fn take(words: Vec<OsString>, rest: &[&str], optional: usize) -> Result<(Target, Vec<OsString>), Failure> {
    let usage = || {
        let rest: String = rest.iter().map(|name| format!(" {name}")).collect();
        Failure::Usage(format!("expected WORKSPACE PATH{rest}, or WORKSPACE:/PATH{rest}"))
    };
    let mut words = words.into_iter();
    let first = words.next().ok_or_else(usage)?;
    let target = match split_word(&first) {
        Some((workspace, path)) => Target { workspace: workspace.to_owned(), path: WirePath::new(path)? },
        None => {
            let workspace = first.into_string().map_err(|name| {
                Failure::Usage(format!("workspace {:?} is not UTF-8", String::from_utf8_lossy(&name.into_vec())))
            })?;
            let path = words.next().ok_or_else(usage)?;
            Target { workspace, path: WirePath::new(path.as_bytes())? }
        }
    };
    let left: Vec<_> = words.collect();
    if left.len() > rest.len() || left.len() + optional < rest.len() {
        return Err(usage());
    }
    Ok((target, left))
}

/// Split at the first `:/`; a workspace's name holds no colon.
fn split_word(word: &OsStr) -> Option<(&str, &[u8])> {
    let bytes = word.as_bytes();
    let colon = bytes.windows(2).position(|pair| pair == b":/")?;
    let workspace = std::str::from_utf8(&bytes[..colon]).ok()?;
    // "/a:/b" is a path that holds a colon, not a workspace.
    (!workspace.is_empty() && !workspace.starts_with('/')).then(|| (workspace, &bytes[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workspace, the path as text and as bytes, and the words left.
    type Taken<'a> = (&'a str, &'a str, &'a [u8], &'a [&'a str]);

    fn check(words: &[&[u8]], rest: &[&str], optional: usize, expect: Result<Taken<'_>, &str>) {
        let words: Vec<_> = words.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
        match (take(words.clone(), rest, optional), expect) {
            (Ok((target, left)), Ok((workspace, text, raw, others))) => {
                assert_eq!((&*target.workspace, &*target.path.text, &*target.path.raw), (workspace, text, raw));
                assert_eq!(left, others, "{words:?}");
            }
            (Err(Failure::Usage(fact)), Err(part)) => assert!(fact.contains(part), "{fact}"),
            (got, _) => panic!("{words:?}: {got:?}"),
        }
    }

    #[test]
    fn two_words_or_one_with_a_colon() {
        check(&[b"c/main", b"/p"], &[], 0, Ok(("c/main", "/p", b"", &[])));
        check(&[b"c/main:/p"], &[], 0, Ok(("c/main", "/p", b"", &[])));
        check(&[b"c/main:/p:/q", b"TODO"], &["PATTERN"], 0, Ok(("c/main", "/p:/q", b"", &["TODO"])));
        check(&[b"c/main", b"/p", b"a:/b"], &["PATTERN"], 0, Ok(("c/main", "/p", b"", &["a:/b"])));
        check(&[b"w", b"/\xff"], &[], 0, Ok(("w", "", b"/\xff", &[])));
        check(&[b"w:/\xff"], &[], 0, Ok(("w", "", b"/\xff", &[])));
        check(&[b"w", b"/p"], &["FILE"], 1, Ok(("w", "/p", b"", &[])));
    }

    #[test]
    fn wrong_words_are_told_what_is_expected() {
        check(&[], &[], 0, Err("expected WORKSPACE PATH"));
        check(&[b"w"], &[], 0, Err("expected WORKSPACE PATH"));
        check(&[b"w", b"/p"], &["PATTERN"], 0, Err("expected WORKSPACE PATH PATTERN"));
        check(&[b"w:/p"], &["PATTERN"], 0, Err("or WORKSPACE:/PATH PATTERN"));
        check(&[b"w", b"/p", b"x"], &[], 0, Err("expected"));
        check(&[b"w", b"p"], &[], 0, Err("not absolute"));
    }

    #[test]
    fn a_move_stays_within_its_workspace() {
        assert_eq!(WirePath::within(OsStr::new("/b"), "w").unwrap().text, "/b");
        assert_eq!(WirePath::within(OsStr::new("w:/b"), "w").unwrap().text, "/b");
        assert!(WirePath::within(OsStr::new("v:/b"), "w").is_err());
    }
}
