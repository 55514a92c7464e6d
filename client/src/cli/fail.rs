//! How a command ends: its exit code, and for a failure the fact and what to do next.
//!
//! | code | |
//! |---|---|
//! | 0 | done |
//! | 1 | a search found nothing; a diff found a difference |
//! | 2 | wrong usage, found here or by the host |
//! | 3 | no such workspace or file |
//! | 4 | the revision, the text to replace, or the state is another one |
//! | 5 | refused by policy or limit |
//! | 6 | not running, or unavailable after retries, or too late |
//! | 7 | the host lacks the feature |
//! | 8 | anything else: a defect, a failing disk, output that cannot be written |
//! | 130 | interrupted (SIGINT) |
//! | 143 | terminated (SIGTERM) |

use std::{collections::BTreeMap, io, process::ExitCode};

use dormouse_client::{Error, Kind, Method, TlsFault, proto::files::v1::ErrorReason};
use serde_json::{Value, json};

/// The exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// Of a search. Of a diff: not the same.
    NothingFound = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Refused = 5,
    Unavailable = 6,
    FeatureMissing = 7,
    Other = 8,
    Interrupted = 130,
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// The command makes no sense; nothing was sent.
    Usage(String),
    /// The call failed.
    Call(Box<Error>),
    /// A file of this machine that a flag names could not be read or written.
    File(String, io::Error),
    /// Standard output could not be written.
    Output(io::Error),
    /// The command itself broke.
    Panic(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(Box::new(error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// Tells it on standard error, and gives the exit code. A closed pipe is no failure: the reader had enough.
    pub fn report(&self, as_json: bool, endpoint: &str) -> ExitCode {
        if let Self::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return ExitCode::SUCCESS;
        }
        let text = if as_json { self.json().to_string() } else { self.text(endpoint) };
        // Where standard error is closed there is nobody left to tell.
        let _ = io::Write::write_all(&mut io::stderr(), format!("{text}\n").as_bytes());
        self.exit().into()
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Call(error) => exit_of(error.kind()),
            Self::File(..) | Self::Output(_) | Self::Panic(_) => Exit::Other,
        }
    }

    fn text(&self, endpoint: &str) -> String {
        match self {
            Self::Call(error) => {
                let unreached = if never_reached(error) { format!("{endpoint}: ") } else { String::new() };
                let next = next_step(error).map(|step| format!("\n  next: {}", harmless(&step))).unwrap_or_default();
                format!("dormouse: {unreached}{}{next}", harmless(&error.to_string()))
            }
            _ => format!("dormouse: {}", harmless(&self.fact())),
        }
    }

    fn json(&self) -> Value {
        let exit_code = self.exit() as u8;
        match self {
            Self::Call(error) => {
                let reason = (!error.reason_name().is_empty()).then(|| error.reason_name().to_ascii_lowercase());
                json!({ "error": {
                    "code": error.code_name(),
                    "reason": reason,
                    "message": error.to_string(),
                    "retryable": error.retryable(),
                    "http_status": error.metadata().get("http_status").and_then(|status| status.parse::<u16>().ok()),
                    "details": details(error),
                    "request_id": error.request_id(),
                    "attempts": error.attempts(),
                    "next": next_step(error),
                    "exit_code": exit_code,
                } })
            }
            _ => {
                let usage = exit_code == Exit::Usage as u8;
                json!({ "error": {
                    "code": if usage { "invalid_argument" } else { "local" },
                    "reason": usage.then_some("invalid_request"),
                    "message": self.fact(),
                    "retryable": false,
                    "exit_code": exit_code,
                } })
            }
        }
    }

    fn fact(&self) -> String {
        match self {
            Self::Usage(fact) => fact.clone(),
            Self::Call(error) => error.to_string(),
            Self::File(name, error) => format!("{name}: {error}"),
            Self::Output(error) => format!("standard output: {error}"),
            Self::Panic(fact) => format!("a defect of this program: {fact}"),
        }
    }
}

fn exit_of(kind: &Kind) -> Exit {
    match kind {
        Kind::NotFound => Exit::NotFound,
        Kind::RevisionMismatch { .. }
        | Kind::EditNoMatch { .. }
        | Kind::EditNotUnique { .. }
        | Kind::Conflict
        | Kind::ChangedWhileRead => Exit::Conflict,
        Kind::InvalidRequest { .. } => Exit::Usage,
        Kind::LimitExceeded { .. } | Kind::PolicyDenied | Kind::Unauthenticated | Kind::StorageFull => Exit::Refused,
        Kind::WorkspaceNotRunning { .. } | Kind::DependencyUnavailable | Kind::DeadlineExceeded => Exit::Unavailable,
        Kind::HostFeatureUnavailable { .. } => Exit::FeatureMissing,
        _ => Exit::Other,
    }
}

/// What the reason's own keys say; the keys that every error has stand beside them.
fn details(error: &Error) -> BTreeMap<&str, &str> {
    let common = ["code", "reason", "retryable", "http_status"];
    let own = error.metadata().iter().filter(|(key, _)| !common.contains(&key.as_str()));
    own.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// A message may hold a file's name or a line of it: nothing in it may move a reader's cursor or begin a line of its own.
fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter }).collect()
}

/// The host's causes of an edit that matches nothing, in a sentence.
fn cause_text(cause: &str) -> &str {
    match cause {
        "crlf" => "the lines end with CRLF on one side and LF on the other",
        "trailing_whitespace" => "white space at the end of a line differs",
        "indentation" => "white space at the beginning of a line differs",
        "unicode_form" => "the characters look alike, but are written in another Unicode form",
        "line_number_prefix" => "the old text holds line numbers that the file does not",
        "already_applied" => "the new text seems to be there already",
        later => later,
    }
}

/// No host had a word in this error.
fn never_reached(error: &Error) -> bool {
    matches!(error.kind(), Kind::DependencyUnavailable) && error.reason_name().is_empty()
}

/// What a person does about it; nothing where the fact says all.
fn next_step(error: &Error) -> Option<String> {
    step_of_reason(error).or_else(|| step_of_tls(error)).or_else(|| step_of_kind(error))
}

fn step_of_tls(error: &Error) -> Option<String> {
    let step = match error.tls_fault()? {
        TlsFault::UnknownAuthority => {
            "if you trust this host, name the PEM file of its authority: --ca-file FILE, DORMOUSE_CA_FILE or ca_file"
        }
        TlsFault::WrongName => "write the endpoint with a name that the certificate is for",
        TlsFault::BadCertificate => "the host needs a new certificate; see that the clock is right here, too",
        TlsFault::NotTls | TlsFault::BrokenOff => {
            "see that https:// and the port are right; a host without TLS is unix:PATH or http://HOST:PORT"
        }
        _ => return None,
    };
    Some(step.into())
}

fn step_of_reason(error: &Error) -> Option<String> {
    use ErrorReason as R;
    let detail = |key: &str| error.metadata().get(key);
    let step = match (error.reason()?, error.method()) {
        (R::WorkspaceNotFound, _) => "dormouse workspaces list shows the workspaces of a host".into(),
        (R::NotARegularFile, _) if detail("type").is_some_and(|kind| kind == "directory") => {
            "dormouse files list shows what is in it".into()
        }
        (R::SymlinkRefused, _) => format!("name the file itself: {}", detail("resolved_path")?),
        (R::DirectoryNotEmpty, Method::REMOVE) => "repeat with -r to remove all in it".into(),
        (R::FileAlreadyExists, Method::MOVE) => "repeat with --replace to replace a file".into(),
        (R::FileNotFound, Method::MAKE_DIRECTORY) => "repeat with -p to make the directories on the way".into(),
        (R::FileNotFound, Method::WRITE) => "repeat with --create-parents to make the directories on the way".into(),
        (R::FileNotFound, _) => "check the path; dormouse files list shows what is there".into(),
        (R::NotARegularFile, _) => "name a regular file; dormouse files stat shows what is there".into(),
        (R::NotADirectory, _) => "name a directory; dormouse files stat shows what is there".into(),
        (R::PathOutsideWorkspace, _) => "give an absolute path without .. in it".into(),
        (R::FileNotUtf8, _) => "replace the whole content with --content-file".into(),
        (R::RequestTooLarge, _) => "dormouse files write sends content of any size".into(),
        (R::DiskFull, _) => "make room on the workspace's disk, then repeat".into(),
        (R::OutcomeUnknown, _) => "read the file to learn what it holds".into(),
        (R::WorkspaceAlreadyExists, _) => "dormouse workspaces release forgets the old one".into(),
        (R::WorkspaceQuarantined, _) => "an operator must look at the host: dormouse workspaces get shows why".into(),
        _ => return None,
    };
    Some(step)
}

fn step_of_kind(error: &Error) -> Option<String> {
    let step = match error.kind() {
        Kind::RevisionMismatch { current } if current == "absent" => {
            "the file is gone; leave out --expected-revision to create it".into()
        }
        Kind::RevisionMismatch { current } => {
            format!("read the file again, then repeat with --expected-revision {current}")
        }
        Kind::EditNoMatch { nearest_line, cause, .. } => {
            let nearest = error.metadata().get("nearest_text").map(|text| format!(": {text:?}")).unwrap_or_default();
            let place = nearest_line.map(|line| format!("line {line} comes nearest{nearest}; ")).unwrap_or_default();
            let cause = cause.as_ref().map(|cause| format!("{}; ", cause_text(cause))).unwrap_or_default();
            format!("{place}{cause}read the file and copy the old text exactly")
        }
        Kind::EditNotUnique { lines, .. } => {
            let places: Vec<_> = lines.iter().map(ToString::to_string).collect();
            let places = if places.is_empty() { String::new() } else { format!(" (lines {})", places.join(", ")) };
            format!("give more of the text around the one place{places}, or --replace-all")
        }
        Kind::WorkspaceNotRunning { .. } if error.wake_failure().is_none() => {
            let workspace = error.metadata().get("workspace").map_or("WORKSPACE", String::as_str);
            format!("dormouse workspaces resume {workspace}, or repeat with --wake host")
        }
        Kind::HostFeatureUnavailable { feature } => match feature.as_str() {
            "file_search" => "upgrade the host; until then run grep -rn in the workspace, or list and read".into(),
            "file_patch" => "upgrade the host; until then read the file, change it, and write it back".into(),
            _ => "upgrade the host, or see what it offers: dormouse files capabilities".into(),
        },
        Kind::DependencyUnavailable if never_reached(error) => {
            "see that dormoused runs there; --endpoint and --host-endpoint name another place".into()
        }
        Kind::DependencyUnavailable => "try again in a moment".into(),
        Kind::DeadlineExceeded => "repeat with a longer --timeout".into(),
        Kind::Unauthenticated => "set DORMOUSE_TOKEN or DORMOUSE_TOKEN_FILE".into(),
        Kind::ChangedWhileRead => "read the file again from its start".into(),
        Kind::Internal => match error.request_id() {
            Some(id) => format!("look for request {id} in the host's log"),
            None => return None,
        },
        _ => return None,
    };
    Some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, expect: Exit) {
        assert_eq!(exit_of(&kind), expect, "{kind:?}");
    }

    #[test]
    fn kinds_have_the_documented_exit_codes() {
        check(Kind::NotFound, Exit::NotFound);
        check(Kind::RevisionMismatch { current: String::new() }, Exit::Conflict);
        check(Kind::EditNoMatch { edit_index: None, nearest_line: None, cause: None }, Exit::Conflict);
        check(Kind::EditNotUnique { edit_index: None, occurrences: None, lines: vec![] }, Exit::Conflict);
        check(Kind::Conflict, Exit::Conflict);
        check(Kind::InvalidRequest { field: None }, Exit::Usage);
        check(Kind::LimitExceeded { limit_bytes: None }, Exit::Refused);
        check(Kind::PolicyDenied, Exit::Refused);
        check(Kind::WorkspaceNotRunning { reason: String::new() }, Exit::Unavailable);
        check(Kind::DependencyUnavailable, Exit::Unavailable);
        check(Kind::DeadlineExceeded, Exit::Unavailable);
        check(Kind::HostFeatureUnavailable { feature: String::new() }, Exit::FeatureMissing);
        check(Kind::Internal, Exit::Other);
        check(Kind::BrokenAnswer, Exit::Other);
    }

    #[test]
    fn a_message_cannot_move_the_cursor() {
        let failure = Failure::Usage("path \"/a\x1b[2J\n\u{9b}b\tc\"".into());
        assert_eq!(failure.text(""), "dormouse: path \"/a\u{fffd}[2J\u{fffd}\u{fffd}b\tc\"");
    }

    #[test]
    fn a_usage_failure_is_one_line_or_one_object() {
        let failure = Failure::Usage("give PATTERN".into());
        assert_eq!(failure.text(""), "dormouse: give PATTERN");
        let object = failure.json();
        assert_eq!(object["error"]["exit_code"], 2);
        assert_eq!(object["error"]["message"], "give PATTERN");
    }
}
