//! Paths inside a workspace: absolute, bytes, and already free of everything that could lead out by its spelling.
//!
//! Linux names are bytes, so a path is bytes. `..` is refused rather than resolved: what it means depends on symbolic
//! links, and no caller needs it.

use std::{borrow::Cow, fmt};

/// Longest path, in bytes: `PATH_MAX` of Linux, its NUL included (`limits.h`).
pub const PATH_BYTES_MAX: usize = 4095;
/// Longest component, in bytes: `NAME_MAX` of Linux.
pub const NAME_BYTES_MAX: usize = 255;

/// An absolute path inside a workspace: `/`, or components of 1 to 255 bytes, each behind one `/`.
///
/// No component is `.` or `..` or holds NUL. The order is the byte order of the whole path (`LC_ALL=C sort`), which is
/// the order of every answer: `/a.b` comes before `/a/z`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Why bytes are not a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// No byte at all.
    #[error("the path is empty; give an absolute path inside the workspace, such as /home/user/app.py")]
    Empty,
    /// It does not begin with `/`.
    #[error("the path is not absolute; begin it with /")]
    Relative,
    /// It holds a NUL byte, which no file name can.
    #[error("the path holds a NUL byte")]
    Nul,
    /// A component is `..`.
    #[error("the path has a component \"..\"; give the path without it")]
    ParentComponent,
    /// A component is longer than [`NAME_BYTES_MAX`].
    #[error("a component of the path is longer than 255 bytes")]
    ComponentTooLong,
    /// The whole is longer than [`PATH_BYTES_MAX`].
    #[error("the path is longer than 4095 bytes")]
    TooLong,
    /// It ends with `/` where a file is wanted.
    #[error("the path ends with /, which only a directory's may")]
    TrailingSlash,
}

impl TreePath {
    /// The workspace's root, `/`.
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Parses an absolute path; repeated `/` and components `.` are dropped, and a trailing `/` too.
    ///
    /// # Errors
    /// Everything of [`PathFault`] but `TrailingSlash`.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathFault> {
        match bytes.first() {
            None => return Err(PathFault::Empty),
            Some(b'/') => {}
            Some(_) => return Err(PathFault::Relative),
        }
        if bytes.contains(&0) {
            return Err(PathFault::Nul);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathFault::TooLong);
        }
        let mut whole = Vec::with_capacity(bytes.len());
        for component in bytes.split(|&byte| byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => return Err(PathFault::ParentComponent),
                name if name.len() > NAME_BYTES_MAX => return Err(PathFault::ComponentTooLong),
                name => {
                    whole.push(b'/');
                    whole.extend_from_slice(name);
                }
            }
        }
        if whole.is_empty() {
            whole.push(b'/');
        }
        Ok(Self(whole))
    }

    /// Parses the path of something that is to be a file: as [`TreePath::parse`], and a trailing `/` is refused.
    ///
    /// # Errors
    /// Everything of [`PathFault`].
    pub fn parse_file(bytes: &[u8]) -> Result<Self, PathFault> {
        let path = Self::parse(bytes)?;
        if bytes.len() > 1 && (bytes.ends_with(b"/") || bytes.ends_with(b"/.")) {
            return Err(PathFault::TrailingSlash);
        }
        Ok(path)
    }

    /// The bytes, beginning with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// The names from the root down; none for `/`.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0[1..].split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The last name; nothing for `/`.
    pub fn name(&self) -> Option<&[u8]> {
        self.components().next_back()
    }

    /// The directory that holds this; nothing for `/`.
    pub fn parent(&self) -> Option<Self> {
        let cut = self.0.iter().rposition(|&byte| byte == b'/')?;
        match (self.is_root(), cut) {
            (true, _) => None,
            (false, 0) => Some(Self::root()),
            (false, cut) => Some(Self(self.0[..cut].to_vec())),
        }
    }

    /// This directory's child `name`. The caller has the name from a tree, or checked it: no `/`, no NUL, not `.` or `..`.
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0));
        let mut whole = Vec::with_capacity(self.0.len() + 1 + name.len());
        if !self.is_root() {
            whole.extend_from_slice(&self.0);
        }
        whole.push(b'/');
        whole.extend_from_slice(name);
        Self(whole)
    }

    /// The path of these names from the root down; the caller has them as for [`TreePath::join`].
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let mut whole = Vec::with_capacity(names.clone().map(|name| 1 + name.len()).sum::<usize>().max(1));
        for name in names {
            debug_assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0));
            whole.push(b'/');
            whole.extend_from_slice(name);
        }
        if whole.is_empty() {
            whole.push(b'/');
        }
        Self(whole)
    }

    /// Whether this is `other` or lies beneath it.
    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root() || (self.0.starts_with(&other.0) && matches!(self.0.get(other.0.len()), None | Some(b'/')))
    }

    /// This path of a tree that is itself the directory `above` of a larger one, in the larger one.
    #[must_use]
    pub fn beneath(&self, above: &Self) -> Self {
        match (self.is_root(), above.is_root()) {
            (true, _) => above.clone(),
            (false, true) => self.clone(),
            (false, false) => Self([above.0.as_slice(), &self.0].concat()),
        }
    }

    /// What [`TreePath::beneath`] puts back: this path as `above` sees it that is a tree of its own; nothing where it lies
    /// elsewhere.
    pub fn within(&self, above: &Self) -> Option<Self> {
        if above.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(above.0.as_slice())? {
            b"" => Some(Self::root()),
            rest => rest.starts_with(b"/").then(|| Self(rest.to_vec())),
        }
    }

    /// For people and messages: bytes that are not UTF-8 as U+FFFD.
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text())
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.to_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expect: Result<&[u8], PathFault>) {
        assert_eq!(TreePath::parse(input).as_ref().map(TreePath::as_bytes).map_err(|fault| *fault), expect);
    }

    #[test]
    fn parses_and_refuses() {
        check(b"/", Ok(b"/"));
        check(b"//", Ok(b"/"));
        check(b"/a/b", Ok(b"/a/b"));
        check(b"//a/./b/", Ok(b"/a/b"));
        check(b"/ a.txt ", Ok(b"/ a.txt "));
        check(b"/\xff", Ok(b"/\xff"));
        check(b"/a..", Ok(b"/a.."));
        check(b"", Err(PathFault::Empty));
        check(b"a", Err(PathFault::Relative));
        check(b"/a/../b", Err(PathFault::ParentComponent));
        check(b"/..", Err(PathFault::ParentComponent));
        check(b"/a\0", Err(PathFault::Nul));
        check(&[b"/".as_slice(), &[b'x'; 255]].concat(), Ok(&[b"/".as_slice(), &[b'x'; 255]].concat()));
        check(&[b"/".as_slice(), &[b'x'; 256]].concat(), Err(PathFault::ComponentTooLong));
        check(&b"/a".repeat(2048), Err(PathFault::TooLong));
        assert_eq!(TreePath::parse_file(b"/a/"), Err(PathFault::TrailingSlash));
        assert_eq!(TreePath::parse_file(b"/"), Ok(TreePath::root()));
    }

    #[test]
    fn walks_up_and_down() {
        let path = TreePath::root().join(b"a").join(b"b");
        assert_eq!(path.as_bytes(), b"/a/b");
        assert_eq!(path.name(), Some(b"b".as_slice()));
        assert_eq!(path.parent().and_then(|parent| parent.parent()), Some(TreePath::root()));
        assert_eq!(TreePath::root().parent(), None);
        assert_eq!(TreePath::root().name(), None);
        assert!(path.is_within(&TreePath::root().join(b"a")) && path.is_within(&path));
        assert!(!path.is_within(&TreePath::root().join(b"a").join(b"bc")));
        assert!(!TreePath::root().join(b"ab").is_within(&TreePath::root().join(b"a")));
    }

    #[test]
    fn order_is_the_byte_order_of_the_whole_path() {
        assert!(TreePath::parse(b"/a.b").expect("a path") < TreePath::parse(b"/a/z").expect("a path"));
    }
}
