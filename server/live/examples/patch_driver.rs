//! Drives a workspace from standard input, for the power-cut rig: a command a line, and one line back when the change is
//! durable and answered.
//!
//! ```text
//! patch_driver ROOT [--leave-out RULE]
//!   patch KEY PATH BYTES     a line KEY and so many bytes of filling before the file's last line, which is END
//!   remove KEY PATH
//!   move KEY PATH NEW_PATH
//!   directory KEY PATH
//! ```
//! It answers `open` once recovery is over, then `done KEY fresh`, `done KEY replayed` or `refused KEY reason`. With the
//! feature `failpoints` one rule of the commit can be left out: `file-flush`, `directory-flush`, `intent`,
//! `displaced-stays`, `name-before-flush`.

use std::{
    error::Error,
    io::{BufRead, Write},
    path::Path,
};

use bytes::Bytes;
use dormouse_files::{
    Fault,
    budget::Unbounded,
    change::{Key, MakeDirectoryPlan, MovePlan, RemovePlan},
    patch::{Change, Edit, PatchPlan},
    path::TreePath,
    revision::{Expected, Revision},
    tree::Tree,
};
use dormouse_live::{LiveLimits, Workspace};

/// The last line of every file.
const END: &str = "END\n";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let workspace = match arguments.as_slice() {
        [root] => Workspace::open(Path::new(root), Path::new("/nonexistent"), LiveLimits::default())?,
        [root, "--leave-out", rule] => open_without(Path::new(root), rule)?,
        _ => return Err("usage: patch_driver ROOT [--leave-out RULE]".into()),
    };
    let mut output = std::io::stdout().lock();
    writeln!(output, "open")?;
    output.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let key_text = words.get(1).copied().unwrap_or_default();
        match run(&workspace, &words)? {
            Ok(true) => writeln!(output, "done {key_text} replayed")?,
            Ok(false) => writeln!(output, "done {key_text} fresh")?,
            Err(fault) => writeln!(output, "refused {key_text} {fault:?}")?,
        }
        output.flush()?;
    }
    Ok(())
}

fn run(workspace: &Workspace, words: &[&str]) -> Result<Result<bool, Fault>, Box<dyn Error>> {
    let path = |text: &str| TreePath::parse(text.as_bytes());
    // The same command is the same request.
    let key = |text: &str| {
        Key::new(text, *Revision::of(words.join(" ").as_bytes()).digest())
            .ok_or("a key is 1 to 64 printable characters")
    };
    Ok(match words {
        ["patch", text, at, bytes] => {
            let (key, at) = (key(text)?, path(at)?);
            let addition = format!("{text}\n{}\n{END}", "x".repeat(bytes.parse()?));
            let (change, expected) = if exists(workspace, &at) {
                let edit = Edit { old_text: END.to_owned(), new_text: addition, replace_all: false };
                (Change::Edits(vec![edit]), Expected::Any)
            } else {
                (Change::Content(Bytes::from(addition)), Expected::Absent)
            };
            let plan =
                PatchPlan { path: at, change, expected, mode: None, create_parents: true, key, validate_only: false };
            workspace.patch(&plan, &Unbounded).map(|done| done.replayed)
        }
        ["remove", text, at] => {
            let plan = RemovePlan { path: path(at)?, expected: Expected::Any, recursive: true, key: key(text)? };
            workspace.remove(&plan, &Unbounded).map(|done| done.replayed)
        }
        ["move", text, from, to] => {
            let plan = MovePlan {
                path: path(from)?,
                new_path: path(to)?,
                replace: false,
                expected: Expected::Any,
                create_parents: true,
                key: key(text)?,
            };
            workspace.rename(&plan, &Unbounded).map(|done| done.replayed)
        }
        ["directory", text, at] => {
            let plan = MakeDirectoryPlan { path: path(at)?, mode: None, create_parents: true, key: key(text)? };
            workspace.make_directory(&plan).map(|done| done.replayed)
        }
        _ => return Err(format!("no such command: {}", words.join(" ")).into()),
    })
}

fn exists(workspace: &Workspace, path: &TreePath) -> bool {
    let tree = workspace.tree();
    let names: Vec<&[u8]> = path.components().collect();
    let Some((name, parents)) = names.split_last() else { return true };
    let mut directory = match tree.root() {
        Ok(directory) => directory,
        Err(_) => return false,
    };
    for parent in parents {
        match tree.directory(&directory, parent) {
            Ok(next) => directory = next,
            Err(_) => return false,
        }
    }
    tree.stat(&directory, name).is_ok()
}

#[cfg(feature = "failpoints")]
fn open_without(root: &Path, rule: &str) -> Result<Workspace, Box<dyn Error>> {
    use dormouse_live::fail::Rule;
    let rule = match rule {
        "file-flush" => Rule::FileFlush,
        "directory-flush" => Rule::DirectoryFlush,
        "intent" => Rule::Intent,
        "displaced-stays" => Rule::DisplacedStays,
        "name-before-flush" => Rule::NameBeforeFlush,
        _ => return Err(format!("no such rule: {rule}").into()),
    };
    Ok(Workspace::open_without(root, Path::new("/nonexistent"), LiveLimits::default(), rule)?)
}

#[cfg(not(feature = "failpoints"))]
fn open_without(_root: &Path, _rule: &str) -> Result<Workspace, Box<dyn Error>> {
    Err("built without the feature failpoints".into())
}
