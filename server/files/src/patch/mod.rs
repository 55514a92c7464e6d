//! Patch: replaces text in a file, or its whole content.
//!
//! ```text
//! PatchPlan ──► apply (bytes, edits) ──► new bytes and how many replacements
//!                  └─ a miss ──► explain: the nearest line, where it diverges, and why
//! ```
//! Pure: which bytes become which. Making that durable, atomic and once is `dormouse-live`'s work.

pub mod apply;
pub mod explain;

use bytes::Bytes;

use crate::{
    change::Key,
    error::Fault,
    limits::Limits,
    path::TreePath,
    revision::{Expected, Revision},
    stat::Entry,
};

/// One replacement of text by text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Must occur exactly once, unless `replace_all`. Never empty.
    pub old_text: String,
    /// Lands as it is.
    pub new_text: String,
    /// Whether every occurrence is replaced, left to right, without overlap.
    pub replace_all: bool,
}

/// What a Patch changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// 1 to 100 edits, in order, all or none.
    Edits(Vec<Edit>),
    /// The whole new content; creates the file if it is missing.
    Content(Bytes),
}

/// A Patch whose shape was found sound.
#[derive(Debug, Clone)]
pub struct PatchPlan {
    /// The file.
    pub path: TreePath,
    /// What to do with it.
    pub change: Change,
    /// What must be there. `Absent` comes with `Content` only.
    pub expected: Expected,
    /// Permission bits (0777) of a new file; unset: 0644.
    pub mode: Option<u32>,
    /// Whether missing directories are made, with 0755.
    pub create_parents: bool,
    /// What makes it happen once.
    pub key: Key,
    /// Check everything, change nothing; the key is neither read nor stored.
    pub validate_only: bool,
}

/// What a Patch did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchDone {
    /// Of the content now.
    pub revision: Revision,
    /// Of the content before; nothing where the file was created.
    pub previous_revision: Option<Revision>,
    /// Bytes written; 0 where the content was there already.
    pub bytes_written: u64,
    /// File and directory are on stable storage.
    pub durable: bool,
    /// Places in which an old text was replaced.
    pub replacements: u32,
    /// The file now.
    pub entry: Entry,
    /// The stored answer of an earlier attempt.
    pub replayed: bool,
    /// A process kept the replaced file open for writing.
    pub replaced_open_file: bool,
}

/// Checks the shape of a request's edits, before anything else is looked at.
///
/// # Errors
/// `Invalid` with the field: not 1 to `patch_edit_count_max` edits, an empty old text, or one that equals its new text.
pub fn check_edits(edits: &[Edit], limits: &Limits) -> Result<(), Fault> {
    if edits.is_empty() || edits.len() > limits.patch_edit_count_max {
        let message = format!("give 1 to {} edits, not {}", limits.patch_edit_count_max, edits.len());
        return Err(Fault::invalid("edits", message));
    }
    for (index, edit) in edits.iter().enumerate() {
        let field = || format!("edits[{index}].old_text");
        if edit.old_text.is_empty() {
            return Err(Fault::invalid(field(), "is empty, which is everywhere; to create a file use content"));
        }
        if edit.old_text == edit.new_text {
            return Err(Fault::invalid(field(), "equals new_text, so the edit changes nothing"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(edits: &[(&str, &str)], expect: Option<&str>) {
        let edits: Vec<Edit> = edits
            .iter()
            .map(|(old, new)| Edit { old_text: (*old).to_owned(), new_text: (*new).to_owned(), replace_all: true })
            .collect();
        match (check_edits(&edits, &Limits::default()), expect) {
            (Ok(()), None) => {}
            (Err(Fault::Invalid { field, .. }), Some(expect)) => assert_eq!(field, expect),
            (found, expect) => panic!("{found:?} is not {expect:?}"),
        }
    }

    #[test]
    fn the_shape_of_edits() {
        check(&[("a", "b")], None);
        check(&[("a", "")], None);
        check(&[], Some("edits"));
        check(&[("a", "b"); 100], None);
        check(&[("a", "b"); 101], Some("edits"));
        check(&[("a", "b"), ("", "b")], Some("edits[1].old_text"));
        check(&[("a", "a")], Some("edits[0].old_text"));
    }
}
