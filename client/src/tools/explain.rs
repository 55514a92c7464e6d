//! What went wrong, as a text for a model: the code, the fact, the next call.

use std::fmt;

use super::Session;
use crate::{Error, Kind, proto::files::v1::ErrorReason};

/// Why a tool did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    code: String,
    /// The contract's reason in lower case; empty where the code says it all.
    reason: String,
    fact: String,
    /// What to call next; empty where there is nothing to say.
    next: String,
}

impl Refusal {
    pub(super) fn new(code: &str, reason: &str, fact: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code: code.to_owned(), reason: reason.to_owned(), fact: fact.into(), next: next.into() }
    }

    /// The arguments are wrong.
    pub(super) fn invalid(fact: impl Into<String>) -> Self {
        Self::new("invalid_argument", "", fact, "")
    }

    #[must_use]
    pub(super) fn with_next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// An error of a call, with what the session knows to do about it.
    pub(super) fn from_error(error: &Error, session: &Session) -> Self {
        let mut fact = error.message().trim_end_matches('.').to_owned();
        if let Some(failure) = error.wake_failure() {
            fact.push_str("; the workspace could not be woken: ");
            fact.push_str(failure);
        }
        let mut reason = error.reason_name().to_ascii_lowercase();
        if reason == "invalid_request" || reason == error.code_name() {
            // The code says the same.
            reason.clear();
        }
        Self::new(error.code_name(), &reason, fact, next(error, session))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.code)?;
        if !self.reason.is_empty() {
            write!(out, " ({})", self.reason)?;
        }
        write!(out, ": {}.", self.fact)?;
        if self.next.is_empty() { Ok(()) } else { write!(out, " Next: {}.", self.next) }
    }
}

fn next(error: &Error, session: &Session) -> String {
    step_of_reason(error).unwrap_or_else(|| step_of_kind(error, session))
}

fn step_of_reason(error: &Error) -> Option<String> {
    use ErrorReason as R;
    let detail = |key: &str| error.metadata().get(key).map(String::as_str);
    let step = match error.reason()? {
        R::FileNotFound => match detail("missing") {
            Some(missing) => format!("check the path, of which {missing} is missing; list_files shows what is there"),
            None => "check the path; list_files shows what is there".to_owned(),
        },
        R::NotARegularFile if detail("type") == Some("directory") => {
            "name a regular file; list_files shows what is in a directory".to_owned()
        }
        R::NotARegularFile => "name a regular file; stat_file tells what is there".to_owned(),
        R::NotADirectory => "name a directory; stat_file tells what is there".to_owned(),
        R::SymlinkRefused => {
            let path = detail("resolved_path").map(|path| format!(": {path}")).unwrap_or_default();
            format!("call again with the path of the file itself{path}")
        }
        R::RangePastEnd => match detail("line_count") {
            Some(count) => format!("the file has {count} lines; call again with start_line within them"),
            None => "call again with a range within the file".to_owned(),
        },
        R::PathOutsideWorkspace => "call again with an absolute path inside the workspace".to_owned(),
        R::FileNotUtf8 => "take another tool for a file that is no text".to_owned(),
        R::DiskFull => "remove what is not needed, then call again".to_owned(),
        R::OutcomeUnknown => "read the file to learn what it holds".to_owned(),
        R::WorkspaceNotFound => "tell the person that this workspace is not on this host".to_owned(),
        _ => return None,
    };
    Some(step)
}

fn step_of_kind(error: &Error, session: &Session) -> String {
    let step = match error.kind() {
        Kind::HostFeatureUnavailable { feature } => session.alternative(feature),
        Kind::WorkspaceNotRunning { .. } => "the workspace has to be woken first",
        Kind::InvalidRequest { field: Some(field) } => return format!("mend `{field}` and call again"),
        Kind::InvalidRequest { field: None } => "mend the arguments and call again",
        Kind::PolicyDenied | Kind::Unauthenticated => "leave it, or ask the person for the right to do this",
        Kind::DeadlineExceeded => "ask for less at once, such as a narrower path",
        Kind::ChangedWhileRead => "call again: the file changed while it was read",
        Kind::LimitExceeded { .. } => "ask for less at once, such as a range of lines or a narrower path",
        _ if error.retryable() => "try the same call again later",
        _ => "tell the person what happened, or take another way",
    };
    step.to_owned()
}
