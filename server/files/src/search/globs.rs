//! Globs, gitignore-style, relative to the path that is searched or listed.
//!
//! They mean what gitignore(5) says of a pattern, with alternation (`*.{py,ts}`) added: a name without `/` matches at any
//! depth, a `/` elsewhere than at the end anchors, a trailing `/` matches directories only, and what matches a directory
//! matches everything beneath it. What gitignore would silently take for nothing (`#x`, `!x`, `./x`) is refused. No
//! `.gitignore` file is ever read.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::{error::Fault, limits::Limits};

/// Which files: all, or those that an include matches; less those that an exclude matches.
#[derive(Debug, Clone)]
pub struct GlobSet {
    include: Option<Matcher>,
    exclude: Option<Matcher>,
}

/// What a [`GlobSet`] says of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is asked for; of a directory, everything beneath is, less what is excluded.
    Included,
    /// It is not asked for itself. Something beneath a directory may be.
    Neither,
    /// It is not asked for, nor anything beneath.
    Excluded,
}

#[derive(Debug, Clone)]
enum Matcher {
    /// Names at any depth, of whatever kind: what most callers exclude, asked of every file of a tree.
    Names(Vec<Vec<u8>>),
    Globs(Gitignore),
}

impl GlobSet {
    /// Compiles both lists; an empty include allows everything.
    ///
    /// # Errors
    /// `Invalid` for too many, `InvalidPattern` (field `include[3]` or `exclude.globs[3]`) for one that does not parse.
    pub fn new(include: &[String], exclude: &[String], limits: &Limits) -> Result<Self, Fault> {
        Ok(Self {
            include: Matcher::new("include", include, limits)?,
            exclude: Matcher::new("exclude.globs", exclude, limits)?,
        })
    }

    /// What is said of `path`, relative to the root of the walk, without a leading `/`. `above_included` is whether a
    /// directory above it was [`Verdict::Included`]; a directory above it that was `Excluded` is the caller's to heed.
    pub fn verdict(&self, path: &[u8], is_directory: bool, above_included: bool) -> Verdict {
        if self.exclude.as_ref().is_some_and(|matcher| matcher.is_match(path, is_directory)) {
            return Verdict::Excluded;
        }
        match &self.include {
            Some(matcher) if !above_included && !matcher.is_match(path, is_directory) => Verdict::Neither,
            _ => Verdict::Included,
        }
    }
}

impl Matcher {
    fn new(field: &str, globs: &[String], limits: &Limits) -> Result<Option<Self>, Fault> {
        if globs.len() > limits.glob_count_max {
            let message = format!("{} globs are over the limit of {}", globs.len(), limits.glob_count_max);
            return Err(Fault::invalid(field, message));
        }
        if globs.is_empty() {
            return Ok(None);
        }
        let mut builder = GitignoreBuilder::new("");
        let is_name = |glob: &String| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            !matches!(glob.as_str(), "" | "." | "..") && glob.bytes().all(is_plain)
        };
        if globs.iter().all(|glob| is_name(glob) && glob.len() <= limits.glob_bytes_max) {
            return Ok(Some(Self::Names(globs.iter().map(|glob| glob.as_bytes().to_vec()).collect())));
        }
        builder.allow_unclosed_class(false);
        for (index, glob) in globs.iter().enumerate() {
            let refuse = |position: usize, message: String| Fault::InvalidPattern {
                field: format!("{field}[{index}]"),
                position,
                message,
            };
            if glob.len() > limits.glob_bytes_max {
                let message = format!("the glob has {} bytes, over the limit of {}", glob.len(), limits.glob_bytes_max);
                return Err(refuse(limits.glob_bytes_max, message));
            }
            if let Some((position, message)) = misread(glob) {
                return Err(refuse(position, message.to_owned()));
            }
            builder.add_line(None, glob).map_err(|error| {
                let (position, message) = explain(glob, &error);
                refuse(position, message)
            })?;
        }
        let matcher = builder.build().map_err(|error| Fault::invalid(field, error.to_string()))?;
        Ok(Some(Self::Globs(matcher)))
    }

    fn is_match(&self, path: &[u8], is_directory: bool) -> bool {
        match self {
            Self::Names(names) => {
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
                names.iter().any(|known| known == name)
            }
            Self::Globs(globs) => globs.matched(OsStr::from_bytes(path), is_directory).is_ignore(),
        }
    }
}

/// What a gitignore file takes for something else than a pattern, or for one that can match nothing.
fn misread(glob: &str) -> Option<(usize, &'static str)> {
    let shown = glob.trim_end_matches(' ');
    if shown.is_empty() {
        return Some((0, "the glob is empty; give a name or a pattern such as *.py"));
    }
    if shown.bytes().all(|byte| byte == b'/') {
        return Some((0, "the glob names nothing; give a name behind the /"));
    }
    if glob.starts_with('!') {
        return Some((
            0,
            "a glob cannot be negated; move it to the other list, or write \\! for a name that begins with !",
        ));
    }
    if glob.starts_with('#') {
        return Some((0, "a glob that begins with # is a comment; write \\# for a name that begins with #"));
    }
    if let Some(position) = glob.bytes().position(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        return Some((position, "a glob is one line without a NUL byte"));
    }
    if let Some(position) = shown.find("//") {
        return Some((position, "no path has two / in a row; write the glob with one"));
    }
    let mut position = 0;
    for component in shown.split('/') {
        if matches!(component, "." | "..") {
            return Some((position, "no path below the root has a component . or ..; write the glob without it"));
        }
        // An odd number of them: the last one stands before the /, or before the glob's end.
        let is_escaped = component.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
        if is_escaped && position + component.len() < shown.len() {
            return Some((position + component.len() - 1, "a / cannot be escaped, because no name holds one"));
        }
        position += component.len() + 1;
    }
    None
}

/// The place and the words for what the glob parser refused.
fn explain(glob: &str, error: &ignore::Error) -> (usize, String) {
    let reason = match error {
        ignore::Error::Glob { err, .. } => err.clone(),
        other => other.to_string(),
    };
    let position = if reason.contains("dangling") {
        glob.len() - 1
    } else if reason.contains("class") {
        glob.rfind('[').unwrap_or(0)
    } else {
        glob.find(['{', '}', '[']).unwrap_or(0)
    };
    (position, format!("the glob does not parse: {reason}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(include: &[&str], exclude: &[&str]) -> Result<GlobSet, Fault> {
        let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
        GlobSet::new(&owned(include), &owned(exclude), &Limits::default())
    }

    /// Whether a file is asked for, by the verdicts from the root down to it.
    fn is_searched(set: &GlobSet, file: &str) -> bool {
        let mut included = false;
        for (cut, _) in file.match_indices('/') {
            match set.verdict(&file.as_bytes()[..cut], true, included) {
                Verdict::Excluded => return false,
                Verdict::Included => included = true,
                Verdict::Neither => {}
            }
        }
        set.verdict(file.as_bytes(), false, included) == Verdict::Included
    }

    const FILES: [&str; 14] = [
        "a/b/c.py",
        "build",
        "d/build/deep/o",
        "main.ts",
        "other/src/x.ts",
        "src/.env",
        "src/build/o",
        "src/x.py",
        "src/x/y.ts",
        "src/x/z.tsx",
        "sub/build/o",
        "t.py",
        "top.py",
        "x#y",
    ];

    #[track_caller]
    fn check(glob: &str, expect: &[&str]) {
        let set = set(&[glob], &[]).unwrap();
        let seen: Vec<_> = FILES.into_iter().filter(|file| is_searched(&set, file)).collect();
        assert_eq!(seen, expect, "{glob}");
        // As an exclude it leaves the others.
        let others = GlobSet::new(&[], &[glob.to_owned()], &Limits::default()).unwrap();
        assert!(FILES.into_iter().all(|file| is_searched(&others, file) != seen.contains(&file)), "{glob}");
    }

    #[test]
    fn mean_what_gitignore_says() {
        check("*.py", &["a/b/c.py", "src/x.py", "t.py", "top.py"]);
        check("build", &["build", "d/build/deep/o", "src/build/o", "sub/build/o"]);
        check("build/", &["d/build/deep/o", "src/build/o", "sub/build/o"]);
        check("src", &["other/src/x.ts", "src/.env", "src/build/o", "src/x.py", "src/x/y.ts", "src/x/z.tsx"]);
        check("/src/", &["src/.env", "src/build/o", "src/x.py", "src/x/y.ts", "src/x/z.tsx"]);
        check("sub/build", &["sub/build/o"]);
        check("src/**/*.ts", &["src/x/y.ts"]);
        check("src/*.py", &["src/x.py"]);
        check("src/**", &["src/.env", "src/build/o", "src/x.py", "src/x/y.ts", "src/x/z.tsx"]);
        check("build/**", &[]);
        check("**/build/**", &["d/build/deep/o", "src/build/o", "sub/build/o"]);
        check("/top.py", &["top.py"]);
        check("[!t]*.py", &["a/b/c.py", "src/x.py"]);
        check("**.py", &["a/b/c.py", "src/x.py", "t.py", "top.py"]);
        check(
            "**/",
            &[
                "a/b/c.py",
                "d/build/deep/o",
                "other/src/x.ts",
                "src/.env",
                "src/build/o",
                "src/x.py",
                "src/x/y.ts",
                "src/x/z.tsx",
                "sub/build/o",
            ],
        );
        check("*.{py,ts}", &["a/b/c.py", "main.ts", "other/src/x.ts", "src/x.py", "src/x/y.ts", "t.py", "top.py"]);
        check("?.py", &["a/b/c.py", "src/x.py", "t.py"]);
        check(".env", &["src/.env"]);
        check(r"x\#y", &["x#y"]);
    }

    #[test]
    fn exclude_wins() {
        let set = set(&["src"], &["*.ts", "/src/build"]).unwrap();
        let seen: Vec<_> = FILES.into_iter().filter(|file| is_searched(&set, file)).collect();
        assert_eq!(seen, ["src/.env", "src/x.py", "src/x/z.tsx"]);
    }

    #[test]
    fn names_that_are_not_utf_8_are_names() {
        let set = set(&["*.py", "\u{fffd}"], &[]).unwrap();
        assert_eq!(set.verdict(b"d/\xff.py", false, false), Verdict::Included);
        assert_eq!(set.verdict(b"\xff", false, false), Verdict::Neither);
    }

    #[test]
    fn refuses_what_gitignore_takes_for_nothing() {
        let refused = |glob: &str| match set(&["ok"], &["ok", glob]).unwrap_err() {
            Fault::InvalidPattern { field, position, .. } => {
                assert_eq!(field, "exclude.globs[1]");
                position
            }
            other => panic!("{glob}: {other}"),
        };
        for (glob, position) in [
            ("", 0),
            ("  ", 0),
            ("/", 0),
            ("//", 0),
            ("!x", 0),
            ("#x", 0),
            ("./x", 0),
            ("../x", 0),
            ("a/../b", 2),
            ("a/.", 2),
            ("[", 0),
            ("a[b", 1),
            ("{a", 0),
            (r"a\", 1),
            ("a\nb", 1),
            ("a//b", 1),
            (r"a\/b", 1),
            (r"\/", 0),
            ("[b-a]", 0),
        ] {
            assert_eq!(refused(glob), position, "{glob}");
        }
        refused(&"x".repeat(1_025));
        assert!(set(&["x"; 32], &[]).is_ok());
        assert!(
            matches!(set(&["x"; 33], &[]), Err(Fault::Invalid { field, message }) if field == "include" && message.contains("32"))
        );
    }

    proptest! {
        /// A name in a class is the same glob, matched the other way.
        #[test]
        fn a_plain_name_is_a_glob(name in "[a-c._-]{1,4}", path in "([a-c._-]{1,4}/){0,3}[a-c._-]{1,4}", is_directory: bool) {
            let (first, rest) = name.split_at(1);
            if let (Ok(plain), Ok(glob)) = (set(&[&name], &[&name]), set(&[&format!("[{first}]{rest}")], &[])) {
                prop_assert_eq!(plain.include.is_some(), matches!(plain.include, Some(Matcher::Names(_))));
                let verdict = |matcher: &Option<Matcher>| matcher.as_ref().map(|matcher| matcher.is_match(path.as_bytes(), is_directory));
                prop_assert_eq!(verdict(&plain.include), verdict(&glob.include));
                prop_assert_eq!(verdict(&plain.exclude), verdict(&glob.include));
            }
        }

        #[test]
        fn no_glob_panics(glob in "[a*?{},\\[\\]!/\\\\.\u{e9} -]{0,12}", path in "[a./\u{e9}]{1,8}") {
            if let Ok(set) = set(&[&glob], &[]) {
                set.verdict(path.trim_matches('/').as_bytes(), false, false);
            }
        }
    }
}
