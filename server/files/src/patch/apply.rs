//! Edits on text.
