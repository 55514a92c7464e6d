//! What a path means in a tree: names from the root down, and where symbolic links lead.
//!
//! The rules are those of path_resolution(7) inside a root that cannot be left, as `RESOLVE_IN_ROOT` of openat2(2) has
//! it: an absolute target begins at the workspace's root, and `..` at the root is the root. Every step is taken from a
//! directory that is held, so a directory that is renamed meanwhile cannot lead a walk elsewhere.

use std::borrow::Cow;

use crate::{
    error::Fault,
    limits::Limits,
    meta::{FileType, Meta},
    path::{NAME_BYTES_MAX, PATH_BYTES_MAX, TreePath},
    tree::{Tree, TreeError},
};

/// Directories held at once on one walk. `..` into one that was let go is walked again from the root by its names.
const HELD_DIRECTORY_COUNT_MAX: usize = 64;

/// Whether a symbolic link as the last component is followed; those before it always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// It is.
    Follow,
    /// It is what the path means.
    Keep,
}

/// What a path leads to.
#[derive(Debug)]
pub struct Found<'a, D> {
    /// The way to the node; nothing of it is held any more.
    steps: Vec<Step<'a, D>>,
    /// What is there.
    pub node: Node<'a, D>,
}

impl<D> Found<'_, D> {
    /// Where it is, without a symbolic link on the way.
    pub fn path(&self) -> TreePath {
        let last = match &self.node {
            Node::Held(_) => None,
            Node::Named { name, .. } => Some(&**name),
        };
        TreePath::of_names(self.steps.iter().map(|step| &*step.name).chain(last))
    }
}

/// A node as a walk finds it.
#[derive(Debug)]
pub enum Node<'a, D> {
    /// The root, or a directory reached by a link that ends in `.`, `..` or `/`.
    Held(D),
    /// A name in a held directory.
    Named {
        /// The directory.
        parent: D,
        /// The name in it.
        name: Cow<'a, [u8]>,
        /// What it was when it was looked at.
        meta: Meta,
    },
}

/// Resolves a path.
///
/// # Errors
/// `NotFound` with the first component that is missing, `NotDirectory` with the component that is none, `Symlink` for
/// more than `link_hop_count_max` links or a target that no system call would take, and what the tree says.
pub fn resolve<'a, T: Tree>(
    tree: &'a T,
    path: &'a TreePath,
    last: LastLink,
    limits: &Limits,
) -> Result<Found<'a, T::Directory>, Fault> {
    let mut walk = Walk::begin(tree, path)?;
    // What is still to come: names of links' targets, the next one last, and behind them the path's own.
    let mut coming: Vec<Cow<'_, [u8]>> = Vec::new();
    let mut own = path.components().peekable();
    let mut hop_count = 0;
    while let Some(name) = coming.pop().or_else(|| own.next().map(Cow::Borrowed)) {
        match &*name {
            b"." => continue,
            b".." => {
                walk.up()?;
                continue;
            }
            _ => {}
        }
        let is_last = coming.is_empty() && own.peek().is_none();
        if matches!(name, Cow::Owned(_)) && (name.len() > NAME_BYTES_MAX || name.contains(&0)) {
            // Only a link's target can hold such a name, and no directory does.
            return Err(walk.fault(walk.place(&name), TreeError::NotFound));
        }
        let is_link = if is_last {
            let meta = tree.stat(walk.here(), &name).map_err(|error| walk.fault(walk.place(&name), error))?;
            if meta.kind != FileType::Symlink || last == LastLink::Keep {
                let node = Node::Named { parent: walk.here().clone(), name, meta };
                return Ok(walk.found(node));
            }
            true
        } else {
            match tree.directory(walk.here(), &name) {
                Ok(directory) => {
                    walk.down(name, directory);
                    continue;
                }
                Err(TreeError::NotDirectory(FileType::Symlink)) => true,
                Err(error) => return Err(walk.fault(walk.place(&name), error)),
            }
        };
        if !is_link {
            continue;
        }
        hop_count += 1;
        if hop_count > limits.link_hop_count_max {
            return Err(Fault::Symlink { path: path.clone(), link: walk.place(&name), resolved: None });
        }
        let target = tree.link(walk.here(), &name).map_err(|error| walk.fault(walk.place(&name), error))?;
        if target.is_empty() {
            return Err(walk.fault(walk.place(&name), TreeError::NotFound));
        }
        if target.len() > PATH_BYTES_MAX {
            return Err(Fault::Symlink { path: path.clone(), link: walk.place(&name), resolved: None });
        }
        if target[0] == b'/' {
            walk.restart();
        }
        // A target that ends in `/` means a directory, as if `.` followed.
        if target.ends_with(b"/") {
            coming.push(Cow::Borrowed(b"."));
        }
        let names = target.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        coming.extend(names.rev().map(|name| Cow::Owned(name.to_vec())));
    }
    let node = Node::Held(walk.here().clone());
    Ok(walk.found(node))
}

/// Resolves the path of a directory, whose last component is followed too.
///
/// # Errors
/// As [`resolve`], and `NotDirectory` for everything else than a directory.
pub fn resolve_directory<T: Tree>(
    tree: &T,
    path: &TreePath,
    limits: &Limits,
) -> Result<(TreePath, T::Directory), Fault> {
    let found = resolve(tree, path, LastLink::Follow, limits)?;
    let place = found.path();
    match found.node {
        Node::Held(directory) => Ok((place, directory)),
        Node::Named { parent, name, .. } => match tree.directory(&parent, &name) {
            Ok(directory) => Ok((place, directory)),
            Err(TreeError::NotDirectory(kind)) => Err(Fault::NotDirectory { path: path.clone(), kind }),
            Err(error) => Err(Fault::at(path, error)),
        },
    }
}

/// Where a walk is: the directories from the root down to here.
struct Walk<'a, T: Tree> {
    tree: &'a T,
    asked: &'a TreePath,
    root: T::Directory,
    /// Beneath the root; the last [`HELD_DIRECTORY_COUNT_MAX`] of them are held.
    steps: Vec<Step<'a, T::Directory>>,
}

#[derive(Debug)]
struct Step<'a, D> {
    name: Cow<'a, [u8]>,
    held: Option<D>,
}

impl<'a, T: Tree> Walk<'a, T> {
    fn begin(tree: &'a T, asked: &'a TreePath) -> Result<Self, Fault> {
        let root = tree.root().map_err(|error| Fault::at(&TreePath::root(), error))?;
        Ok(Self { tree, asked, root, steps: Vec::new() })
    }

    fn here(&self) -> &T::Directory {
        self.steps.last().and_then(|step| step.held.as_ref()).unwrap_or(&self.root)
    }

    fn path(&self) -> TreePath {
        TreePath::of_names(self.steps.iter().map(|step| &*step.name))
    }

    /// The place of a name in the directory where the walk is.
    fn place(&self, name: &[u8]) -> TreePath {
        TreePath::of_names(self.steps.iter().map(|step| &*step.name).chain([name]))
    }

    /// Ends at a node, and lets go of the directories on the way.
    fn found(mut self, node: Node<'a, T::Directory>) -> Found<'a, T::Directory> {
        for step in &mut self.steps {
            step.held = None;
        }
        Found { steps: self.steps, node }
    }

    fn restart(&mut self) {
        self.steps.clear();
    }

    fn down(&mut self, name: Cow<'a, [u8]>, directory: T::Directory) {
        self.steps.push(Step { name, held: Some(directory) });
        if let Some(far) = self.steps.len().checked_sub(HELD_DIRECTORY_COUNT_MAX + 1) {
            self.steps[far].held = None;
        }
    }

    fn up(&mut self) -> Result<(), Fault> {
        self.steps.pop();
        if self.steps.last().is_none_or(|step| step.held.is_some()) {
            return Ok(());
        }
        // All above were let go too: hold the way down again.
        let names: Vec<Cow<'a, [u8]>> = self.steps.drain(..).map(|step| step.name).collect();
        for name in names {
            let directory =
                self.tree.directory(self.here(), &name).map_err(|error| self.fault(self.path().join(&name), error))?;
            self.down(name, directory);
        }
        Ok(())
    }

    /// A tree's failure at `place`, on the way to what was asked for.
    fn fault(&self, place: TreePath, error: TreeError) -> Fault {
        let asked = self.asked.clone();
        match error {
            TreeError::NotFound => Fault::NotFound { path: asked, missing: place },
            TreeError::Outside => Fault::Outside { path: asked.to_string() },
            TreeError::NotDirectory(FileType::Symlink) | TreeError::NotRegular(FileType::Symlink) => {
                Fault::Symlink { path: asked, link: place, resolved: None }
            }
            error => Fault::at(&place, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::MemoryTree;

    fn tree() -> MemoryTree {
        MemoryTree::default()
            .file("/a/b/f", b"1")
            .file("/top", b"2")
            .link("/to-b", "a/b")
            .link("/a/up", "..")
            .link("/a/b/abs", "/a/b/f")
            .link("/a/far", "../../../../../top")
            .link("/loop", "loop")
            .link("/slash", "/")
            .link("/file-slash", "top/")
            .link("/dir-slash", "a/")
            .link("/dangling", "a/none/x")
            .link("/empty", "")
            .link("/long", vec![b'x'; 4096])
            .link("/wide", vec![b'x'; 300])
            .link("/a/dot", "./b/./f")
            .link("/through", "to-b/../b/f")
    }

    /// Where a path leads, or the error's variant and its place.
    #[track_caller]
    fn check(path: &str, last: LastLink, expect: &str) {
        let asked = TreePath::parse(path.as_bytes()).unwrap();
        let seen = match resolve(&tree(), &asked, last, &Limits::default()) {
            Ok(found) => found.path().to_string(),
            Err(Fault::NotFound { path, missing }) => {
                assert_eq!(path, asked);
                format!("missing {missing}")
            }
            Err(Fault::NotDirectory { path, kind }) => format!("{kind} {path}"),
            Err(Fault::Symlink { link, .. }) => format!("refused {link}"),
            Err(other) => other.to_string(),
        };
        assert_eq!(seen, expect);
    }

    #[test]
    fn follows_links_inside_the_root() {
        for (path, expect) in [
            ("/", "/"),
            ("/a/b/f", "/a/b/f"),
            ("/to-b/f", "/a/b/f"),
            ("/to-b", "/a/b"),
            ("/a/up/top", "/top"),
            ("/a/up", "/"),
            ("/a/up/a/up/a/b", "/a/b"),
            ("/a/b/abs", "/a/b/f"),
            ("/a/far", "/top"),
            ("/slash", "/"),
            ("/slash/slash/top", "/top"),
            ("/dir-slash", "/a"),
            ("/dir-slash/b", "/a/b"),
            ("/a/dot", "/a/b/f"),
            // `..` behind a link is the parent of where the link leads, not of where it lies.
            ("/through", "/a/b/f"),
        ] {
            check(path, LastLink::Follow, expect);
        }
        check("/to-b", LastLink::Keep, "/to-b");
        check("/to-b/abs", LastLink::Keep, "/a/b/abs");
        check("/slash", LastLink::Keep, "/slash");
    }

    #[test]
    fn names_what_is_wrong_and_where() {
        for (path, expect) in [
            ("/none/x/y", "missing /none"),
            ("/a/none", "missing /a/none"),
            ("/to-b/none/x", "missing /a/b/none"),
            ("/dangling", "missing /a/none"),
            ("/empty", "missing /empty"),
            ("/wide", &format!("missing /{}", "x".repeat(300))),
            ("/top/x", "regular /top"),
            ("/file-slash", "regular /top"),
            ("/loop", "refused /loop"),
            ("/loop/x", "refused /loop"),
            ("/long", "refused /long"),
        ] {
            check(path, LastLink::Follow, expect);
        }
    }

    #[test]
    fn follows_forty_links_and_no_more() {
        let chain = |count: usize| {
            let tree = MemoryTree::default().file("/0", b"");
            (1..=count).fold(tree, |tree, link| tree.link(format!("/{link}"), (link - 1).to_string()))
        };
        let walk = |count: usize| {
            let path = TreePath::root().join(count.to_string().as_bytes());
            resolve(&chain(count), &path, LastLink::Follow, &Limits::default()).map(|found| found.path().to_string())
        };
        assert_eq!(walk(40).unwrap(), "/0");
        assert!(matches!(walk(41), Err(Fault::Symlink { .. })));
    }

    #[test]
    fn holds_few_directories_and_still_finds_the_way_up() {
        let deep = "/d".repeat(200);
        let up = vec!["..".to_owned(); 150].join("/") + "/f";
        let tree = MemoryTree::default().link(format!("{deep}/l"), up);
        let tree = tree.file("/d".repeat(50) + "/f", b"found");
        let path = TreePath::parse(format!("{deep}/l").as_bytes()).unwrap();
        let found = resolve(&tree, &path, LastLink::Follow, &Limits::default()).unwrap();
        assert_eq!(found.path().to_string(), "/d".repeat(50) + "/f");
        assert!(tree.held_max() <= HELD_DIRECTORY_COUNT_MAX as u64 + 4, "{}", tree.held_max());
        assert_eq!(tree.held_count(), 1, "what was found holds its own directory, and not the way to it");
        drop(found);
        assert_eq!(tree.held_count(), 0);
    }

    proptest! {
        #[test]
        fn a_path_without_links_leads_to_itself_or_names_what_is_missing(
            paths in proptest::collection::btree_set("(/[ab]{1,2}){1,4}", 1..12),
            asked in "(/[ab]{1,2}){1,5}",
        ) {
            let beneath = |path: &str, above: &str| path.starts_with(&format!("{above}/"));
            let is_file = |path: &&String| !paths.iter().any(|other| beneath(other, path));
            let files: Vec<&String> = paths.iter().filter(is_file).collect();
            let tree = files.iter().fold(MemoryTree::default(), |tree, path| tree.file(path, b""));
            let parts: Vec<usize> = asked.match_indices('/').map(|(cut, _)| cut).skip(1).chain([asked.len()]).collect();
            let there = |path: &str| files.iter().any(|file| *file == path || beneath(file, path));
            let through = parts.iter().map(|&cut| &asked[..cut]).find(|part| files.iter().any(|file| file == part));
            let missing = parts.iter().map(|&cut| &asked[..cut]).find(|part| !there(part));
            let path = TreePath::parse(asked.as_bytes()).unwrap();
            match resolve(&tree, &path, LastLink::Follow, &Limits::default()) {
                Ok(found) => {
                    prop_assert_eq!(found.path().to_string(), asked.clone());
                    prop_assert!(there(&asked));
                }
                Err(Fault::NotDirectory { path, .. }) => prop_assert_eq!(Some(path.to_string()), through.map(str::to_owned)),
                Err(Fault::NotFound { missing: seen, .. }) => prop_assert_eq!(Some(seen.to_string()), missing.map(str::to_owned)),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
