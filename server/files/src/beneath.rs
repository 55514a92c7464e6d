//! What a tree answers that is a directory of a larger one, in the larger one's words: every path it names begins with where
//! it is mounted.

use crate::{
    change::{PlaceDone, RemoveDone, WriteDone},
    error::Fault,
    patch::PatchDone,
    path::TreePath,
    stat::Entry,
};

/// Something that names paths of one tree.
pub trait Beneath: Sized {
    /// The same, as the larger tree names them in which that tree is the directory `above`.
    #[must_use]
    fn beneath(self, above: &TreePath) -> Self;
}

impl Beneath for Entry {
    fn beneath(self, above: &TreePath) -> Self {
        Self { path: self.path.beneath(above), ..self }
    }
}

impl Beneath for PatchDone {
    fn beneath(self, above: &TreePath) -> Self {
        Self { entry: self.entry.beneath(above), ..self }
    }
}

impl Beneath for WriteDone {
    fn beneath(self, above: &TreePath) -> Self {
        Self { entry: self.entry.beneath(above), ..self }
    }
}

impl Beneath for PlaceDone {
    fn beneath(self, above: &TreePath) -> Self {
        Self { entry: self.entry.beneath(above), ..self }
    }
}

impl Beneath for RemoveDone {
    fn beneath(self, _: &TreePath) -> Self {
        self
    }
}

impl Beneath for Fault {
    /// Where a symbolic link leads is not known so: its target is a path of the larger tree, or leads out of the smaller one.
    fn beneath(mut self, above: &TreePath) -> Self {
        let put = |path: &mut TreePath| *path = path.beneath(above);
        match &mut self {
            Self::NotFound { path, missing } => {
                put(path);
                put(missing);
            }
            Self::Symlink { path, link, resolved } => {
                put(path);
                put(link);
                *resolved = None;
            }
            // It is a path here: one that is none has been refused before any tree was asked.
            Self::Outside { path } if path == "/" => *path = above.to_string(),
            Self::Outside { path } if !above.is_root() => path.insert_str(0, &above.to_text()),
            Self::NotRegular { path, .. }
            | Self::NotDirectory { path, .. }
            | Self::PermissionDenied { path }
            | Self::TooLarge { path, .. }
            | Self::NotUtf8 { path, .. }
            | Self::AlreadyExists { path, .. }
            | Self::NotEmpty { path }
            | Self::RevisionMismatch { path, .. }
            | Self::EtagMismatch { path, .. }
            | Self::EditNoMatch { path, .. }
            | Self::EditNotUnique { path, .. }
            | Self::BusyWriter { path }
            | Self::OutcomeUnknown { path }
            | Self::RangePastEnd { path, .. }
            | Self::LinesPastEnd { path, .. }
            | Self::DiskFull { path }
            | Self::ReadOnly { path }
            | Self::MountPoint { path }
            | Self::OfflineUnavailable { path, .. }
            | Self::Corrupt { path, .. }
            | Self::Io { path, .. } => put(path),
            Self::KeyReused
            | Self::Invalid { .. }
            | Self::InvalidPattern { .. }
            | Self::RequestTooLarge { .. }
            | Self::OfflineBudget { .. }
            | Self::OfflineChanged
            | Self::Overloaded { .. }
            | Self::DeadlineExceeded
            | Self::Gone
            | Self::Internal(_)
            | Self::Outside { .. } => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TreeError;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(fault: Fault, expect: &str) {
        assert_eq!(fault.beneath(&path("/home")).to_string(), expect);
    }

    #[test]
    fn every_path_of_a_failure_begins_with_where_its_tree_is() {
        check(
            Fault::NotFound { path: path("/a/b"), missing: path("/a") },
            "/home/a/b does not exist: /home/a is missing",
        );
        check(Fault::at(&path("/"), TreeError::PermissionDenied), "the file system denies access to /home");
        check(Fault::Outside { path: "/a".to_owned() }, "/home/a leads outside the workspace");
        check(Fault::Outside { path: "/".to_owned() }, "/home leads outside the workspace");
        check(
            Fault::Symlink { path: path("/l/f"), link: path("/l"), resolved: Some(path("/f")) },
            "/home/l is a symbolic link, which is not followed here, or leads in a circle",
        );
        check(Fault::KeyReused, &Fault::KeyReused.to_string());
    }

    #[test]
    fn a_path_goes_into_a_smaller_tree_and_back() {
        for (whole, above, inside) in
            [("/a/b/c", "/a", "/b/c"), ("/a", "/a", "/"), ("/a/b", "/", "/a/b"), ("/", "/", "/"), ("/a/b", "/a/b", "/")]
        {
            assert_eq!(path(whole).within(&path(above)), Some(path(inside)), "{whole} in {above}");
            assert_eq!(path(inside).beneath(&path(above)), path(whole), "{inside} beneath {above}");
        }
        assert_eq!(path("/ab").within(&path("/a")), None);
        assert_eq!(path("/").within(&path("/a")), None);
    }
}
