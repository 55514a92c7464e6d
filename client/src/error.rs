//! The one error of this library: what a host said, or what happened on the way to it.
//!
//! Decoding is by reason first and by gRPC code only where there is no reason, so that a proxy's or an old host's bare
//! status still lands on the right kind. Nothing here decides about another attempt; that is `retry`.

use std::{collections::BTreeMap, fmt, time::Duration};

use dormouse_proto::{ERROR_DOMAIN, files::v1::ErrorReason};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::method::Method;

/// Of a `grpc-retry-pushback-ms` trailer (gRPC proposal A6).
const PUSHBACK_TRAILER: &str = "grpc-retry-pushback-ms";
const REQUEST_ID_HEADER: &str = "x-request-id";

/// What went wrong, for a caller that acts on it. The text of an [`Error`] is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// No such workspace on this host, or no such file in it; [`Error::reason`] tells which.
    NotFound,
    /// The file's revision is another one than expected.
    RevisionMismatch {
        /// The revision now; `absent` where there is no file.
        current: String,
    },
    /// An edit's old text does not occur.
    EditNoMatch {
        /// 0-based.
        edit_index: Option<u64>,
        /// 1-based line that comes nearest.
        nearest_line: Option<u64>,
        /// Why it fails there, in the host's words.
        cause: Option<String>,
    },
    /// An edit's old text occurs more than once.
    EditNotUnique {
        /// 0-based.
        edit_index: Option<u64>,
        /// How often it occurs.
        occurrences: Option<u64>,
        /// 1-based line numbers of the first places.
        lines: Vec<u64>,
    },
    /// The state of the file, the workspace or the key does not allow the call.
    Conflict,
    /// The request itself is wrong.
    InvalidRequest {
        /// The field, where the host named one.
        field: Option<String>,
    },
    /// The request or the file is too large.
    LimitExceeded {
        /// The limit that was met, where the host named it.
        limit_bytes: Option<u64>,
    },
    /// The caller may not do this.
    PolicyDenied,
    /// The caller did not say who it is.
    Unauthenticated,
    /// The call needs a running workspace.
    WorkspaceNotRunning {
        /// `workspace_not_running`, `offline_unavailable` or `offline_budget`.
        reason: String,
    },
    /// The host is too old for the call, or does not offer it.
    HostFeatureUnavailable {
        /// Such as `file_search`.
        feature: String,
    },
    /// The host or the workspace's own agent cannot be reached, is busy, or is changing its state.
    DependencyUnavailable,
    /// The caller's deadline passed.
    DeadlineExceeded,
    /// The disk is full; nothing was changed.
    StorageFull,
    /// The file changed while its read was resumed; what was received belongs to its old content.
    ChangedWhileRead,
    /// The answer contradicts itself: an offset, a count or a checksum does not hold.
    BrokenAnswer,
    /// The bytes to send could not be read on this side.
    Source,
    /// Anything else: a defect or a failing disk on the host.
    Internal,
}

/// A failed call.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: Kind,
    code: Code,
    method: Method,
    reason: Option<ErrorReason>,
    reason_name: String,
    metadata: BTreeMap<String, String>,
    message: String,
    retryable: bool,
    retry_after: Option<Duration>,
    request_id: Option<String>,
    attempts: u32,
    wake_failure: Option<String>,
}

impl Error {
    /// The error that a status of a call to `method` means.
    pub fn from_status(method: Method, status: &Status) -> Self {
        let details = status.get_error_details_vec();
        let mut info = None;
        let mut retry_after = None;
        let mut request_id = None;
        for detail in details {
            use tonic_types::ErrorDetail as Detail;
            match detail {
                Detail::ErrorInfo(found) if found.domain == ERROR_DOMAIN && info.is_none() => info = Some(found),
                Detail::RetryInfo(found) => retry_after = found.retry_delay,
                Detail::RequestInfo(found) if !found.request_id.is_empty() => request_id = Some(found.request_id),
                _ => {}
            }
        }
        let trailer = |name: &str| status.metadata().get(name).and_then(|value| value.to_str().ok());
        let pushback = trailer(PUSHBACK_TRAILER).map(|value| value.parse::<u64>().ok().map(Duration::from_millis));
        let request_id = request_id.or_else(|| trailer(REQUEST_ID_HEADER).map(str::to_owned));

        let (reason_name, metadata) = match info {
            Some(info) => (info.reason, info.metadata.into_iter().collect()),
            None => (String::new(), BTreeMap::new()),
        };
        let mut error = Inner {
            kind: Kind::Internal,
            code: effective_code(status),
            method,
            reason: ErrorReason::from_wire_name(&reason_name),
            reason_name,
            metadata,
            message: status.message().to_owned(),
            retryable: false,
            retry_after: retry_after.or(pushback.flatten()),
            request_id,
            attempts: 1,
            wake_failure: None,
        };
        if error.reason_name.is_empty() && error.code == Code::Unimplemented {
            error.become_feature_unavailable();
        }
        error.kind = kind(&error);
        error.retryable = match (error.metadata.get("retryable").map(String::as_str), pushback) {
            (_, Some(None)) => false,
            (Some("false"), _) => false,
            (Some("true"), _) => true,
            _ => error.retry_after.is_some() || error.code == Code::Unavailable,
        };
        if error.message.is_empty() {
            error.message = error.kind.fallback().to_owned();
        }
        Self(Box::new(error))
    }

    /// An error of this side, in the contract's words.
    pub(crate) fn local(method: Method, kind: Kind, code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            code,
            method,
            reason: None,
            reason_name: String::new(),
            metadata: BTreeMap::new(),
            message: message.into(),
            retryable: false,
            retry_after: None,
            request_id: None,
            attempts: 0,
            wake_failure: None,
        }))
    }

    /// The connection ended before the answer did.
    pub(crate) fn broken_off(method: Method) -> Self {
        let mut error =
            Self::local(method, Kind::DependencyUnavailable, Code::Unavailable, "the answer broke off before its end");
        error.0.retryable = true;
        error
    }

    /// The caller's deadline passed on this side.
    pub(crate) fn deadline(method: Method, limit: Duration) -> Self {
        let message = format!("no answer within {} ms", limit.as_millis());
        let mut error = Self::local(method, Kind::DeadlineExceeded, Code::DeadlineExceeded, message);
        error.set_reason(ErrorReason::DeadlineExceeded);
        error
    }

    /// The request is larger than a host takes, found before it was sent.
    pub(crate) fn request_too_large(method: Method, size_bytes: u64, limit_bytes: u64) -> Self {
        let message = format!(
            "the request has {size_bytes} bytes, a host takes {limit_bytes}; send larger content with write, which streams it"
        );
        let kind = Kind::LimitExceeded { limit_bytes: Some(limit_bytes) };
        let mut error = Self::local(method, kind, Code::InvalidArgument, message);
        error.set_reason(ErrorReason::RequestTooLarge);
        let metadata = &mut error.0.metadata;
        metadata.insert("code".into(), "payload_too_large".into());
        metadata.insert("http_status".into(), "413".into());
        metadata.insert("size_bytes".into(), size_bytes.to_string());
        metadata.insert("limit_bytes".into(), limit_bytes.to_string());
        error
    }

    fn set_reason(&mut self, reason: ErrorReason) {
        self.0.reason = Some(reason);
        self.0.reason_name = reason.wire_name().to_owned();
        self.0.metadata.insert("reason".into(), reason.wire_name().to_ascii_lowercase());
        self.0.metadata.insert("retryable".into(), "false".into());
    }

    pub(crate) fn with_attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    pub(crate) fn with_wake_failure(mut self, failure: String) -> Self {
        self.0.wake_failure = Some(failure);
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The gRPC code; a connection that was lost counts as `UNAVAILABLE`.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The method that was called.
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// The contract's reason, if this version knows it.
    pub fn reason(&self) -> Option<ErrorReason> {
        self.0.reason
    }

    /// The reason's name as it was sent, such as `OFFLINE_UNAVAILABLE`; empty where there was none.
    pub fn reason_name(&self) -> &str {
        &self.0.reason_name
    }

    /// The details that came with the reason, by the keys that the contract names.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// The host's words, or this library's where the host had none.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the same request may succeed if it is sent again later.
    pub fn retryable(&self) -> bool {
        self.0.retryable
    }

    /// How long the host asked to wait before another attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Names the call in the host's log, where the host gave it a name.
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// How many attempts were made; 0 when nothing was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Why the workspace could not be woken, when that was tried and failed.
    pub fn wake_failure(&self) -> Option<&str> {
        self.0.wake_failure.as_deref()
    }
}

impl Inner {
    /// What a host without the method would have said, had it known how.
    fn become_feature_unavailable(&mut self) {
        let feature = self.method.feature();
        let reason = ErrorReason::HostFeatureUnavailable;
        self.reason = Some(reason);
        self.reason_name = reason.wire_name().to_owned();
        self.message = format!("this host does not know {} ({feature})", self.method.name());
        for (key, value) in [
            ("code", "conflict".to_owned()),
            ("reason", reason.wire_name().to_ascii_lowercase()),
            ("retryable", "false".to_owned()),
            ("http_status", "409".to_owned()),
            ("feature", feature),
        ] {
            self.metadata.insert(key.to_owned(), value);
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.metadata.get(key).cloned()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.metadata.get(key).and_then(|value| value.trim().parse().ok())
    }
}

impl Kind {
    fn fallback(&self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::DependencyUnavailable => "the host cannot be reached",
            Self::DeadlineExceeded => "the deadline passed",
            Self::PolicyDenied => "refused by the host",
            Self::Unauthenticated => "the host asks for credentials",
            _ => "the host gave no reason",
        }
    }
}

/// The code that a status means for this side. Statuses with a source were made here, by the transport: then the
/// connection or the stream was lost, or a deadline passed.
fn effective_code(status: &Status) -> Code {
    let Some(source) = std::error::Error::source(status) else { return status.code() };
    let mut cause = Some(source);
    while let Some(error) = cause {
        if error.is::<tonic::TimeoutExpired>() {
            return Code::DeadlineExceeded;
        }
        cause = error.source();
    }
    match status.code() {
        Code::Unknown | Code::Cancelled | Code::Internal => Code::Unavailable,
        code => code,
    }
}

fn kind(error: &Inner) -> Kind {
    use ErrorReason as R;
    let Some(reason) = error.reason else { return kind_of_code(error) };
    match reason {
        R::WorkspaceNotFound | R::FileNotFound => Kind::NotFound,
        R::OfflineUnavailable | R::OfflineBudget | R::WorkspaceNotRunning => {
            Kind::WorkspaceNotRunning { reason: reason.wire_name().to_ascii_lowercase() }
        }
        R::OfflineChanged | R::GuestUnreachable | R::WorkspaceInTransition | R::HostOverloaded | R::HostDraining => {
            Kind::DependencyUnavailable
        }
        R::HostFeatureUnavailable => {
            Kind::HostFeatureUnavailable { feature: error.text("feature").unwrap_or_else(|| error.method.feature()) }
        }
        R::RevisionMismatch => Kind::RevisionMismatch { current: error.text("actual_revision").unwrap_or_default() },
        R::EditNoMatch => Kind::EditNoMatch {
            edit_index: error.number("edit_index"),
            nearest_line: error.number("nearest_line"),
            cause: error.text("cause"),
        },
        R::EditNotUnique => Kind::EditNotUnique {
            edit_index: error.number("edit_index"),
            occurrences: error.number("occurrences"),
            lines: error.text("lines").map(|text| numbers(&text)).unwrap_or_default(),
        },
        R::FileTooLarge | R::RequestTooLarge => Kind::LimitExceeded { limit_bytes: error.number("limit_bytes") },
        R::FilePermissionDenied | R::WorkspaceAccessDenied | R::WritePolicyDenied => Kind::PolicyDenied,
        R::CredentialsRequired => Kind::Unauthenticated,
        R::InvalidRequest | R::InvalidPattern | R::RangePastEnd | R::PathOutsideWorkspace => {
            Kind::InvalidRequest { field: error.text("field") }
        }
        R::NotARegularFile
        | R::NotADirectory
        | R::SymlinkRefused
        | R::FileNotUtf8
        | R::FileAlreadyExists
        | R::DirectoryNotEmpty
        | R::IdempotencyKeyReused
        | R::BusyWriter
        | R::WorkspaceQuarantined
        | R::ReadOnly
        | R::MountPoint
        | R::StaleGeneration
        | R::WrongState
        | R::NotQuiesced
        | R::WorkspaceAlreadyExists => Kind::Conflict,
        R::DiskFull => Kind::StorageFull,
        R::DeadlineExceeded => Kind::DeadlineExceeded,
        R::OutcomeUnknown | R::DiskCorrupt | R::IoError | R::Internal => Kind::Internal,
        R::Unspecified => kind_of_code(error),
    }
}

/// For a status without a reason that this version knows: from a proxy, the transport, or a later host.
fn kind_of_code(error: &Inner) -> Kind {
    match error.code {
        Code::NotFound => Kind::NotFound,
        Code::InvalidArgument => Kind::InvalidRequest { field: error.text("field") },
        // A server's own limit on a message answers so, before any handler sees it.
        Code::OutOfRange | Code::ResourceExhausted => Kind::LimitExceeded { limit_bytes: error.number("limit_bytes") },
        Code::PermissionDenied => Kind::PolicyDenied,
        Code::Unauthenticated => Kind::Unauthenticated,
        Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists => Kind::Conflict,
        Code::Unimplemented => Kind::HostFeatureUnavailable { feature: error.method.feature() },
        Code::Unavailable => Kind::DependencyUnavailable,
        Code::DeadlineExceeded => Kind::DeadlineExceeded,
        Code::Ok | Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => Kind::Internal,
    }
}

/// The line numbers of `lines`, such as "3,17,40" or "[3, 17, 40]"; what is no number is left out.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.message)?;
        if self.0.attempts > 1 {
            write!(out, " (after {} attempts)", self.0.attempts)?;
        }
        if let Some(failure) = &self.0.wake_failure {
            write!(out, "; waking the workspace failed: {failure}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn refusal(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
        let metadata: HashMap<String, String> = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Status::with_error_details(code, "refused", ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata))
    }

    fn check(status: Status, expect: Kind) {
        let error = Error::from_status(Method::PATCH, &status);
        assert_eq!(error.kind(), &expect, "{status:?}");
    }

    #[test]
    fn reasons_become_kinds_with_their_details() {
        check(refusal(Code::NotFound, "FILE_NOT_FOUND", &[]), Kind::NotFound);
        check(refusal(Code::NotFound, "WORKSPACE_NOT_FOUND", &[]), Kind::NotFound);
        check(
            refusal(Code::Aborted, "REVISION_MISMATCH", &[("actual_revision", "absent")]),
            Kind::RevisionMismatch { current: "absent".into() },
        );
        check(
            refusal(
                Code::FailedPrecondition,
                "EDIT_NO_MATCH",
                &[("edit_index", "1"), ("nearest_line", "12"), ("cause", "whitespace")],
            ),
            Kind::EditNoMatch { edit_index: Some(1), nearest_line: Some(12), cause: Some("whitespace".into()) },
        );
        check(
            refusal(
                Code::FailedPrecondition,
                "EDIT_NOT_UNIQUE",
                &[("edit_index", "0"), ("occurrences", "3"), ("lines", "3, 17,40")],
            ),
            Kind::EditNotUnique { edit_index: Some(0), occurrences: Some(3), lines: vec![3, 17, 40] },
        );
        check(
            refusal(Code::InvalidArgument, "REQUEST_TOO_LARGE", &[("limit_bytes", "7340032")]),
            Kind::LimitExceeded { limit_bytes: Some(7_340_032) },
        );
        check(refusal(Code::PermissionDenied, "WRITE_POLICY_DENIED", &[]), Kind::PolicyDenied);
        check(
            refusal(Code::FailedPrecondition, "OFFLINE_BUDGET", &[]),
            Kind::WorkspaceNotRunning { reason: "offline_budget".into() },
        );
        check(
            refusal(Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE", &[("feature", "file_patch")]),
            Kind::HostFeatureUnavailable { feature: "file_patch".into() },
        );
        check(refusal(Code::Unavailable, "OFFLINE_CHANGED", &[]), Kind::DependencyUnavailable);
        check(
            refusal(Code::InvalidArgument, "INVALID_REQUEST", &[("field", "path")]),
            Kind::InvalidRequest { field: Some("path".into()) },
        );
        check(refusal(Code::ResourceExhausted, "DISK_FULL", &[]), Kind::StorageFull);
        check(refusal(Code::AlreadyExists, "FILE_ALREADY_EXISTS", &[]), Kind::Conflict);
    }

    #[test]
    fn every_reason_of_the_contract_has_a_kind_of_its_own_choice() {
        for number in 1..100 {
            let Ok(reason) = ErrorReason::try_from(number) else { continue };
            let error = Error::from_status(Method::READ, &refusal(Code::Unknown, reason.wire_name(), &[]));
            assert_eq!(error.reason(), Some(reason));
            let internal = matches!(
                reason,
                ErrorReason::OutcomeUnknown | ErrorReason::DiskCorrupt | ErrorReason::IoError | ErrorReason::Internal
            );
            assert_eq!(error.kind() == &Kind::Internal, internal, "{reason:?}");
        }
    }

    #[test]
    fn a_bare_status_is_read_by_its_code() {
        check(Status::new(Code::Unimplemented, ""), Kind::HostFeatureUnavailable { feature: "file_patch".into() });
        check(Status::new(Code::Unavailable, "down"), Kind::DependencyUnavailable);
        check(Status::new(Code::OutOfRange, "too large"), Kind::LimitExceeded { limit_bytes: None });
        check(Status::new(Code::Internal, ""), Kind::Internal);
        check(refusal(Code::Aborted, "A_REASON_OF_TOMORROW", &[]), Kind::Conflict);
    }

    #[test]
    fn a_bare_unimplemented_is_told_in_the_contract_s_words() {
        let error = Error::from_status(Method::SEARCH, &Status::new(Code::Unimplemented, ""));
        assert_eq!(error.reason(), Some(ErrorReason::HostFeatureUnavailable));
        assert_eq!(error.metadata()["feature"], "file_search");
        assert_eq!(error.metadata()["http_status"], "409");
        assert_eq!(error.metadata()["code"], "conflict");
        assert!(!error.retryable());
        assert_eq!(error.to_string(), "this host does not know Search (file_search)");
    }

    #[test]
    fn another_domain_s_info_is_no_reason_of_ours() {
        let details = ErrorDetails::with_error_info("FILE_NOT_FOUND", "example.com", HashMap::new());
        let status = Status::with_error_details(Code::Unavailable, "proxy", details);
        let error = Error::from_status(Method::STAT, &status);
        assert_eq!((error.reason(), error.kind()), (None, &Kind::DependencyUnavailable));
    }

    #[test]
    fn the_host_s_wish_to_wait_is_kept() {
        let mut details = ErrorDetails::with_error_info("HOST_OVERLOADED", ERROR_DOMAIN, HashMap::new());
        details.set_retry_info(Some(Duration::from_millis(250)));
        details.set_request_info("r-17", "");
        let status = Status::with_error_details(Code::Unavailable, "busy", details);
        let error = Error::from_status(Method::STAT, &status);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(250)));
        assert_eq!(error.request_id(), Some("r-17"));
        assert!(error.retryable());
    }

    #[test]
    fn the_pushback_trailer_counts_where_the_detail_is_missing() {
        let mut status = Status::new(Code::Unavailable, "busy");
        status.metadata_mut().insert(PUSHBACK_TRAILER, "40".parse().unwrap());
        assert_eq!(Error::from_status(Method::STAT, &status).retry_after(), Some(Duration::from_millis(40)));
        // A6: a value that is no number of milliseconds means: do not retry.
        status.metadata_mut().insert(PUSHBACK_TRAILER, "-1".parse().unwrap());
        assert!(!Error::from_status(Method::STAT, &status).retryable());
    }
}
