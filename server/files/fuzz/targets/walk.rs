//! Any path over a tree of links: an end, inside of the tree, within the bounds.
#![no_main]

use dormouse_files::{
    Fault,
    limits::Limits,
    memory::MemoryTree,
    path::TreePath,
    walk::{self, LastLink},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u8, Vec<u8>)>, Vec<u8>, bool)| {
    let (links, path, follow) = input;
    let mut tree = MemoryTree::default().file("/a/b/c/f", b"").file("/a/f", b"");
    for (place, target) in links.into_iter().take(8) {
        let parent = ["", "/a", "/a/b", "/a/b/c"][usize::from(place % 4)];
        let target = if target.is_empty() { b".".to_vec() } else { target };
        tree = tree.link(format!("{parent}/l{}", place / 4 % 4), target);
    }
    let Ok(path) = TreePath::parse(&path) else { return };
    let last = if follow { LastLink::Follow } else { LastLink::Keep };
    match walk::resolve(&tree, &path, last, &Limits::default()) {
        Ok(found) => assert!(TreePath::parse(found.path.as_bytes()).is_ok_and(|parsed| parsed == found.path)),
        Err(Fault::NotFound { .. } | Fault::NotDirectory { .. } | Fault::Symlink { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    assert_eq!(tree.held_count(), 0);
});
