//! Why a call fails, in the words of the contract: each variant is one `ErrorReason` of files.proto, with what its comment
//! demands. Only the edge turns one into a status.

use std::io;

use crate::{
    meta::FileType,
    patch::explain::Diagnosis,
    path::TreePath,
    revision::{Expected, Revision},
    tree::TreeError,
};

/// The failure of one call on one workspace's files.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nothing under this path.
    #[error("{path} does not exist{}", if path == missing { String::new() } else { format!(": {missing} is missing") })]
    NotFound {
        /// As asked for.
        path: TreePath,
        /// The first component that is not there.
        missing: TreePath,
    },
    /// The call needs a regular file.
    #[error("{path} is {}, not a regular file", kind.described())]
    NotRegular {
        /// As asked for.
        path: TreePath,
        /// What it is.
        kind: FileType,
    },
    /// The call needs a directory here.
    #[error("{path} is {}, not a directory", kind.described())]
    NotDirectory {
        /// What is not a directory.
        path: TreePath,
        /// What it is.
        kind: FileType,
    },
    /// A symbolic link where none is followed.
    #[error("{link} is a symbolic link, {}", .resolved.as_ref().map_or_else(|| "which is not followed here, or leads in a circle".to_owned(), |path| format!("which this call does not follow; it leads to {path}")))]
    Symlink {
        /// As asked for.
        path: TreePath,
        /// The link.
        link: TreePath,
        /// Where the path would lead, where that is inside the workspace.
        resolved: Option<TreePath>,
    },
    /// The path, or a link on it, leads out of the workspace.
    #[error("{path} leads outside the workspace")]
    Outside {
        /// As asked for, lossily where it was not a path at all.
        path: String,
    },
    /// The file system refuses the agent.
    #[error("the file system denies access to {path}")]
    PermissionDenied {
        /// What was denied.
        path: TreePath,
    },
    /// Larger than this call takes.
    #[error("{path} has {size_bytes} bytes, over the limit of {limit_bytes}; use {instead}")]
    TooLarge {
        /// The file.
        path: TreePath,
        /// Its size, or the size it would have.
        size_bytes: u64,
        /// The bound.
        limit_bytes: u64,
        /// The call that can, such as `Write`.
        instead: &'static str,
    },
    /// Edits need UTF-8 text.
    #[error("{path} is not UTF-8 text at byte {offset}; replace its whole content instead")]
    NotUtf8 {
        /// The file.
        path: TreePath,
        /// Of the first bad byte, 0-based.
        offset: u64,
    },
    /// Something is there already.
    #[error("{path} exists already, as {}", kind.described())]
    AlreadyExists {
        /// The path.
        path: TreePath,
        /// What is there.
        kind: FileType,
    },
    /// Only an empty directory is removed without `recursive`.
    #[error("{path} is not empty; set recursive to remove it with all it holds")]
    NotEmpty {
        /// The directory.
        path: TreePath,
    },
    /// The file has another revision than expected.
    #[error("{path} has another revision than expected; read it again and rebase the change")]
    RevisionMismatch {
        /// The file.
        path: TreePath,
        /// What was expected.
        expected: Expected,
        /// What is there; nothing where there is no file.
        actual: Option<Revision>,
    },
    /// The file has another etag than expected: it changed since the read began.
    #[error("{path} changed since its etag was given; begin the read again")]
    EtagMismatch {
        /// The file.
        path: TreePath,
        /// What was expected.
        expected: String,
        /// What it is now.
        actual: String,
    },
    /// An edit's old text is nowhere.
    #[error("edit {edit_index} of {path} matches nothing")]
    EditNoMatch {
        /// The file.
        path: TreePath,
        /// 0-based.
        edit_index: usize,
        /// What would have matched, nearly.
        diagnosis: Box<Diagnosis>,
    },
    /// An edit's old text is in more places than one.
    #[error(
        "edit {edit_index} of {path} matches {occurrences} places; add surrounding lines to its old text, or set replace_all"
    )]
    EditNotUnique {
        /// The file.
        path: TreePath,
        /// 0-based.
        edit_index: usize,
        /// Overlapping ones count.
        occurrences: u64,
        /// The first ten lines they begin on, 1-based, each once.
        lines: Vec<u64>,
    },
    /// The key belongs to another request.
    #[error("the idempotency key was used for another request; use a new key for a new change")]
    KeyReused,
    /// Another process holds the file open for writing.
    #[error("another process keeps {path} open for writing; try again")]
    BusyWriter {
        /// The file.
        path: TreePath,
    },
    /// The disk failed after the change was made visible.
    #[error("the disk failed in the middle of changing {path}; read it to learn what it holds")]
    OutcomeUnknown {
        /// The file.
        path: TreePath,
    },
    /// The request makes no sense.
    #[error("{field}: {message}")]
    Invalid {
        /// The request's field, such as `edits[2].old_text`.
        field: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// A pattern or glob does not parse.
    #[error("{field}: {message}")]
    InvalidPattern {
        /// The request's field.
        field: String,
        /// 0-based byte in it.
        position: usize,
        /// What is wrong and what to do.
        message: String,
    },
    /// More bytes than a request may have.
    #[error("the request has {size_bytes} bytes, over the limit of {limit_bytes}; send large content with Write")]
    RequestTooLarge {
        /// Its encoded size.
        size_bytes: u64,
        /// The bound.
        limit_bytes: u64,
    },
    /// A byte range that begins past the end.
    #[error("{path} has only {size_bytes} bytes")]
    RangePastEnd {
        /// The file.
        path: TreePath,
        /// Its size.
        size_bytes: u64,
    },
    /// A line range that begins past the end.
    #[error("{path} has only {line_count} lines")]
    LinesPastEnd {
        /// The file.
        path: TreePath,
        /// Its lines.
        line_count: u64,
    },
    /// No space is left, or a quota is met.
    #[error("no space left to change {path}; nothing was changed")]
    DiskFull {
        /// The file.
        path: TreePath,
    },
    /// The file system is read-only.
    #[error("the file system of {path} is read-only")]
    ReadOnly {
        /// The file.
        path: TreePath,
    },
    /// A file that is itself a mount point.
    #[error("{path} is itself a mount point and cannot be replaced")]
    MountPoint {
        /// The file.
        path: TreePath,
    },
    /// The disk cannot answer this one.
    #[error("the disk cannot answer for {path}: {what}; wake the workspace")]
    OfflineUnavailable {
        /// The path.
        path: TreePath,
        /// The feature or place.
        what: String,
    },
    /// More than the disk path answers.
    #[error(
        "more than a sleeping workspace's disk answers at once (limit {limit} {unit}); ask for less, or wake the workspace"
    )]
    OfflineBudget {
        /// The bound that was met.
        limit: u64,
        /// `bytes` or `ms`.
        unit: &'static str,
    },
    /// The disk moved under the read.
    #[error("the workspace's disk changed during the read; try again")]
    OfflineChanged,
    /// The image does not parse, or a checksum does not hold.
    #[error("the disk is corrupt at {path}: {what}")]
    Corrupt {
        /// The path.
        path: TreePath,
        /// The structure and its place.
        what: String,
    },
    /// The host has no room for this call now.
    #[error("the host is at its limit of {what}; try again")]
    Overloaded {
        /// What is at its limit.
        what: &'static str,
    },
    /// The caller's deadline passed.
    #[error("the deadline passed; set a longer one, or ask for less")]
    DeadlineExceeded,
    /// Nobody waits for the answer; it is never sent.
    #[error("the caller has gone")]
    Gone,
    /// The system failed.
    #[error("input/output error at {path}")]
    Io {
        /// The path.
        path: TreePath,
        /// From the system.
        #[source]
        source: io::Error,
    },
    /// A defect of ours.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl Fault {
    /// A tree's failure at this path.
    pub fn at(path: &TreePath, error: TreeError) -> Self {
        let path = path.clone();
        match error {
            TreeError::NotFound => Self::NotFound { missing: path.clone(), path },
            TreeError::NotDirectory(FileType::Symlink) | TreeError::NotRegular(FileType::Symlink) => {
                Self::Symlink { link: path.clone(), path, resolved: None }
            }
            TreeError::NotDirectory(kind) => Self::NotDirectory { path, kind },
            TreeError::NotRegular(kind) => Self::NotRegular { path, kind },
            TreeError::PermissionDenied => Self::PermissionDenied { path },
            TreeError::Outside => Self::Outside { path: path.to_string() },
            TreeError::Unavailable { what } => Self::OfflineUnavailable { path, what },
            TreeError::Changed => Self::OfflineChanged,
            TreeError::Corrupt { what } => Self::Corrupt { path, what },
            TreeError::OverLimit { what, limit } => {
                Self::Corrupt { path, what: format!("more than {limit} {what}, which no sound disk has") }
            }
            TreeError::Io(source) => Self::Io { path, source },
        }
    }

    /// A request's field that makes no sense.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}
