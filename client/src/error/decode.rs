//! What a status means: by its reason first, and by its gRPC code only where there is no reason, so that a proxy's or an old
//! host's bare status still lands on the right kind.

use std::{collections::BTreeMap, time::Duration};

use dormouse_proto::{ERROR_DOMAIN, files::v1::ErrorReason};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::{Error, Inner, Kind};
use crate::{method::Method, trust::TlsFault};

/// Of a `grpc-retry-pushback-ms` trailer (gRPC proposal A6).
const PUSHBACK_TRAILER: &str = "grpc-retry-pushback-ms";
const REQUEST_ID_HEADER: &str = "x-request-id";
/// Causes of a failure on this side that are looked at.
const CAUSES_MAX: usize = 16;

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
            message: words(status),
            retryable: false,
            retry_after: retry_after.or(pushback.flatten()),
            request_id,
            attempts: 1,
            wake_failure: None,
            tls_fault: std::error::Error::source(status).and_then(TlsFault::of),
        };
        if error.reason_name.is_empty() && error.code == Code::Unimplemented {
            error.become_feature_unavailable();
        }
        if error.reason_name.is_empty() && error.code == Code::DeadlineExceeded {
            // Whether this side's clock or the transport's notices first must not change what the caller is told.
            error.reason = Some(ErrorReason::DeadlineExceeded);
            error.reason_name = ErrorReason::DeadlineExceeded.wire_name().to_owned();
        }
        error.kind = kind(&error);
        error.retryable = match (error.metadata.get("retryable").map(String::as_str), pushback) {
            _ if error.tls_fault.is_some_and(TlsFault::lasts) => false,
            (_, Some(None)) => false,
            (Some("false"), _) => false,
            (Some("true"), _) => true,
            _ => error.retry_after.is_some() || error.code == Code::Unavailable,
        };
        if let Some(fault) = error.tls_fault {
            error.message = format!("{} ({})", fault.fact(), error.message);
        }
        if error.message.is_empty() {
            error.message = error.kind.fallback().to_owned();
        }
        Self(Box::new(error))
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
    let causes = std::iter::successors(Some(source), |error| error.source());
    if causes.take(CAUSES_MAX).any(|error| error.is::<tonic::TimeoutExpired>()) {
        return Code::DeadlineExceeded;
    }
    match status.code() {
        Code::Unknown | Code::Cancelled | Code::Internal => Code::Unavailable,
        code => code,
    }
}

/// The host's words; of a failure on this side every cause that adds something to the one before it.
fn words(status: &Status) -> String {
    let mut words = status.message().to_owned();
    let causes = std::iter::successors(std::error::Error::source(status), |error| error.source());
    for cause in causes.take(CAUSES_MAX) {
        let more = cause.to_string();
        // The layer's own name says nothing about the failure.
        if more != "transport error" && !words.contains(&more) {
            if !words.is_empty() {
                words.push_str(": ");
            }
            words.push_str(&more);
        }
    }
    words
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
    fn a_deadline_has_its_reason_whoever_noticed_it() {
        let error = Error::from_status(Method::STAT, &Status::new(Code::DeadlineExceeded, ""));
        assert_eq!((error.reason(), error.kind()), (Some(ErrorReason::DeadlineExceeded), &Kind::DeadlineExceeded));
        assert_eq!((error.code_name(), error.retryable()), ("timeout", false));
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
