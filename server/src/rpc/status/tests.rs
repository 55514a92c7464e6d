//! The table of reasons, row by row, against the comments of `ErrorReason` in files.proto; and every failure that there is.

use std::io;

use dormouse_files::{
    meta::FileType,
    patch::explain::{Cause, Diagnosis},
    revision::Expected,
};
use tonic_types::StatusExt;

use super::*;
use crate::host::state::State;

/// Every value of the enum, with what its comment begins with. `B` is BadRequest, `R` is RetryInfo.
const ROWS: &[(ErrorReason, Code, &str, u16, &str)] = &[
    (ErrorReason::OfflineUnavailable, Code::FailedPrecondition, "workspace_not_running", 409, ""),
    (ErrorReason::OfflineBudget, Code::FailedPrecondition, "workspace_not_running", 409, ""),
    (ErrorReason::OfflineChanged, Code::Unavailable, "dependency_unavailable", 503, "R"),
    (ErrorReason::WorkspaceNotRunning, Code::FailedPrecondition, "workspace_not_running", 409, ""),
    (ErrorReason::WorkspaceNotFound, Code::NotFound, "not_found", 404, ""),
    (ErrorReason::HostFeatureUnavailable, Code::Unimplemented, "conflict", 409, ""),
    (ErrorReason::GuestUnreachable, Code::Unavailable, "dependency_unavailable", 503, "R"),
    (ErrorReason::WorkspaceQuarantined, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::WorkspaceInTransition, Code::Unavailable, "dependency_unavailable", 503, "R"),
    (ErrorReason::FileNotFound, Code::NotFound, "not_found", 404, ""),
    (ErrorReason::NotARegularFile, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::NotADirectory, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::SymlinkRefused, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::PathOutsideWorkspace, Code::InvalidArgument, "invalid_argument", 400, "B"),
    (ErrorReason::FilePermissionDenied, Code::PermissionDenied, "permission_denied", 403, ""),
    (ErrorReason::FileTooLarge, Code::FailedPrecondition, "payload_too_large", 413, ""),
    (ErrorReason::FileNotUtf8, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::FileAlreadyExists, Code::AlreadyExists, "conflict", 409, ""),
    (ErrorReason::DirectoryNotEmpty, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::RevisionMismatch, Code::Aborted, "conflict", 409, ""),
    (ErrorReason::EditNoMatch, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::EditNotUnique, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::IdempotencyKeyReused, Code::InvalidArgument, "conflict", 409, ""),
    (ErrorReason::BusyWriter, Code::Aborted, "conflict", 409, "R"),
    (ErrorReason::OutcomeUnknown, Code::Unknown, "internal", 500, ""),
    (ErrorReason::InvalidRequest, Code::InvalidArgument, "invalid_argument", 400, "B"),
    (ErrorReason::InvalidPattern, Code::InvalidArgument, "invalid_argument", 400, "B"),
    (ErrorReason::RequestTooLarge, Code::InvalidArgument, "payload_too_large", 413, ""),
    (ErrorReason::RangePastEnd, Code::OutOfRange, "invalid_argument", 400, ""),
    (ErrorReason::HostOverloaded, Code::Unavailable, "dependency_unavailable", 503, "R"),
    (ErrorReason::HostDraining, Code::Unavailable, "dependency_unavailable", 503, "R"),
    (ErrorReason::DiskFull, Code::ResourceExhausted, "insufficient_storage", 507, ""),
    (ErrorReason::ReadOnly, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::DiskCorrupt, Code::DataLoss, "internal", 500, ""),
    (ErrorReason::IoError, Code::Internal, "internal", 500, ""),
    (ErrorReason::Internal, Code::Internal, "internal", 500, ""),
    (ErrorReason::DeadlineExceeded, Code::DeadlineExceeded, "timeout", 504, ""),
    (ErrorReason::MountPoint, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::CredentialsRequired, Code::Unauthenticated, "unauthenticated", 401, ""),
    (ErrorReason::WorkspaceAccessDenied, Code::PermissionDenied, "permission_denied", 403, ""),
    (ErrorReason::WritePolicyDenied, Code::PermissionDenied, "permission_denied", 403, ""),
    (ErrorReason::StaleGeneration, Code::Aborted, "conflict", 409, ""),
    (ErrorReason::WrongState, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::NotQuiesced, Code::FailedPrecondition, "conflict", 409, ""),
    (ErrorReason::WorkspaceAlreadyExists, Code::AlreadyExists, "conflict", 409, ""),
];

#[test]
fn the_table_is_the_contracts() {
    let known = (1..100).filter(|value| ErrorReason::try_from(*value).is_ok()).count();
    assert_eq!(known, ROWS.len(), "a reason of the contract has no row");
    for (reason, code, api_code, http_status, marks) in ROWS {
        let (retryable, bad_request) = (marks.contains('R'), marks.contains('B'));
        let expect = Row { code: *code, api_code, http_status: *http_status, retryable, bad_request };
        assert_eq!(row(*reason), expect, "{reason:?}");
    }
}

/// Checks everything that is true of every status, and that it has this reason and these keys.
#[track_caller]
fn check(status: Status, reason: ErrorReason, keys: &[(&str, &str)]) {
    let name = reason.wire_name();
    let expect = row(reason);
    assert_eq!(status.code(), expect.code);
    let details = status.get_error_details();
    let info = details.error_info().expect("every error has an ErrorInfo");
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (name, "dormouse.dev"));
    let always = [
        ("code", expect.api_code.to_owned()),
        ("reason", name.to_ascii_lowercase()),
        ("retryable", expect.retryable.to_string()),
        ("http_status", expect.http_status.to_string()),
    ];
    for (key, value) in &always {
        assert_eq!(info.metadata.get(*key), Some(value), "{name}: {key}");
    }
    for (key, value) in keys {
        assert_eq!(info.metadata.get(*key).map(String::as_str), Some(*value), "{name}: {key}");
    }
    assert_eq!(info.metadata.len(), always.len() + keys.len(), "{name}: {:?}", info.metadata);
    assert_eq!(details.retry_info().is_some(), expect.retryable, "{name}: RetryInfo");
    assert_eq!(status.metadata().contains_key("grpc-retry-pushback-ms"), expect.retryable, "{name}: pushback");
    assert_eq!(details.bad_request().is_some(), expect.bad_request, "{name}: BadRequest");
    let first = status.message().chars().next().expect("a message");
    assert!(!first.is_uppercase() && !status.message().ends_with('.'), "{name}: {}", status.message());
    check_size(&status);
}

#[track_caller]
fn check_size(status: &Status) {
    let response = status.clone().into_http::<String>();
    let bytes: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    assert!(bytes <= STATUS_BYTES_MAX, "a status of {bytes} bytes");
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

fn fault(fault: Fault, reason: ErrorReason, keys: &[(&str, &str)]) {
    check(of_fault("w", &fault), reason, keys);
}

#[test]
fn every_fault_has_its_reason_and_keys() {
    use ErrorReason as R;
    let a = || path("/a");
    let zero = Revision::of(b"");
    let hex = zero.to_string();
    let io = || io::Error::other("on purpose");
    fault(
        Fault::NotFound { path: path("/a/b"), missing: a() },
        R::FileNotFound,
        &[("path", "/a/b"), ("missing", "/a")],
    );
    fault(
        Fault::NotRegular { path: a(), kind: FileType::Fifo },
        R::NotARegularFile,
        &[("path", "/a"), ("type", "fifo")],
    );
    let kind = FileType::Regular;
    fault(Fault::NotDirectory { path: a(), kind }, R::NotADirectory, &[("path", "/a"), ("type", "regular")]);
    let link = [("path", "/a"), ("link", "/l")];
    fault(Fault::Symlink { path: a(), link: path("/l"), resolved: None }, R::SymlinkRefused, &link);
    let resolved = [("path", "/a"), ("link", "/l"), ("resolved_path", "/r")];
    fault(Fault::Symlink { path: a(), link: path("/l"), resolved: Some(path("/r")) }, R::SymlinkRefused, &resolved);
    fault(Fault::Outside { path: "/..".to_owned() }, R::PathOutsideWorkspace, &[("path", "/..")]);
    fault(Fault::PermissionDenied { path: a() }, R::FilePermissionDenied, &[("path", "/a")]);
    let large = Fault::TooLarge { path: a(), size_bytes: 9, limit_bytes: 8, instead: "Write" };
    fault(large, R::FileTooLarge, &[("path", "/a"), ("size_bytes", "9"), ("limit_bytes", "8")]);
    fault(Fault::NotUtf8 { path: a(), offset: 3 }, R::FileNotUtf8, &[("path", "/a"), ("offset", "3")]);
    fault(Fault::AlreadyExists { path: a(), kind }, R::FileAlreadyExists, &[("path", "/a"), ("type", "regular")]);
    fault(Fault::NotEmpty { path: a() }, R::DirectoryNotEmpty, &[("path", "/a")]);
    let mismatch = |actual| Fault::RevisionMismatch { path: a(), expected: Expected::Revision(zero), actual };
    let keys = [("path", "/a"), ("expected_revision", hex.as_str()), ("actual_revision", "absent")];
    fault(mismatch(None), R::RevisionMismatch, &keys);
    let keys = [("path", "/a"), ("expected_revision", hex.as_str()), ("actual_revision", hex.as_str())];
    fault(mismatch(Some(zero)), R::RevisionMismatch, &keys);
    let etag = Fault::EtagMismatch { path: a(), expected: "1".to_owned(), actual: "2".to_owned() };
    fault(etag, R::RevisionMismatch, &[("path", "/a"), ("expected_etag", "1"), ("actual_etag", "2")]);
    let nothing = Diagnosis { nearest_line: None, nearest_text: None, diverges_at_line: None, cause: None };
    let full = Diagnosis {
        nearest_line: Some(3),
        nearest_text: Some("x".to_owned()),
        diverges_at_line: Some(4),
        cause: Some(Cause::Crlf),
    };
    let miss = |diagnosis| Fault::EditNoMatch { path: a(), edit_index: 1, diagnosis: Box::new(diagnosis) };
    fault(miss(nothing), R::EditNoMatch, &[("path", "/a"), ("edit_index", "1")]);
    let keys = [
        ("path", "/a"),
        ("edit_index", "1"),
        ("nearest_line", "3"),
        ("nearest_text", "x"),
        ("diverges_at_line", "4"),
        ("cause", "crlf"),
    ];
    fault(miss(full), R::EditNoMatch, &keys);
    let twice = Fault::EditNotUnique { path: a(), edit_index: 0, occurrences: 12, lines: (1..=12).collect() };
    let keys = [("path", "/a"), ("edit_index", "0"), ("occurrences", "12"), ("lines", "1,2,3,4,5,6,7,8,9,10")];
    fault(twice, R::EditNotUnique, &keys);
    fault(Fault::KeyReused, R::IdempotencyKeyReused, &[]);
    fault(Fault::BusyWriter { path: a() }, R::BusyWriter, &[("path", "/a")]);
    fault(Fault::OutcomeUnknown { path: a() }, R::OutcomeUnknown, &[("path", "/a")]);
    fault(Fault::invalid("depth", "0 is too small"), R::InvalidRequest, &[("field", "depth")]);
    let pattern = Fault::InvalidPattern { field: "pattern".to_owned(), position: 2, message: "unclosed".to_owned() };
    fault(pattern, R::InvalidPattern, &[("field", "pattern"), ("position", "2")]);
    let request = Fault::RequestTooLarge { size_bytes: 9, limit_bytes: 8 };
    fault(request, R::RequestTooLarge, &[("size_bytes", "9"), ("limit_bytes", "8")]);
    fault(Fault::RangePastEnd { path: a(), size_bytes: 5 }, R::RangePastEnd, &[("path", "/a"), ("size_bytes", "5")]);
    fault(Fault::LinesPastEnd { path: a(), line_count: 5 }, R::RangePastEnd, &[("path", "/a"), ("line_count", "5")]);
    fault(Fault::DiskFull { path: a() }, R::DiskFull, &[("path", "/a")]);
    fault(Fault::ReadOnly { path: a() }, R::ReadOnly, &[("path", "/a")]);
    fault(Fault::MountPoint { path: a() }, R::MountPoint, &[("path", "/a")]);
    let unavailable = Fault::OfflineUnavailable { path: a(), what: "encrypted".to_owned() };
    fault(unavailable, R::OfflineUnavailable, &[("workspace", "w"), ("path", "/a")]);
    let keys = [("workspace", "w"), ("limit_bytes", "7")];
    fault(Fault::OfflineBudget { limit: 7, unit: "bytes" }, R::OfflineBudget, &keys);
    fault(Fault::OfflineBudget { limit: 7, unit: "ms" }, R::OfflineBudget, &[("workspace", "w"), ("limit_ms", "7")]);
    fault(Fault::OfflineChanged, R::OfflineChanged, &[("workspace", "w")]);
    let corrupt = Fault::Corrupt { path: a(), what: "inode 12".to_owned() };
    fault(corrupt, R::DiskCorrupt, &[("path", "/a"), ("what", "inode 12")]);
    fault(Fault::Overloaded { what: "threads" }, R::HostOverloaded, &[]);
    for errno in [Errno::EMFILE, Errno::ENFILE] {
        let path = TreePath::parse(b"/a").unwrap();
        fault(Fault::Io { path, source: errno.into() }, R::HostOverloaded, &[]);
    }
    fault(Fault::DeadlineExceeded, R::DeadlineExceeded, &[]);
    fault(Fault::Io { path: a(), source: io() }, R::IoError, &[("path", "/a")]);
    fault(Fault::Internal("on purpose"), R::Internal, &[]);
}

#[test]
fn every_refusal_of_the_host_has_its_reason_and_keys() {
    use ErrorReason as R;
    let workspace = || "w".to_owned();
    let host = |fault: HostFault, reason, keys: &[(&str, &str)]| check(of_host(&fault), reason, keys);
    let w = ("workspace", "w");
    host(HostFault::NotFound { workspace: workspace() }, R::WorkspaceNotFound, &[w]);
    let state = State::Suspended;
    host(HostFault::NotRunning { workspace: workspace(), state }, R::WorkspaceNotRunning, &[w, ("state", "suspended")]);
    let state = State::Resuming;
    host(
        HostFault::InTransition { workspace: workspace(), state },
        R::WorkspaceInTransition,
        &[w, ("state", "resuming")],
    );
    let why = "needs_recovery".to_owned();
    host(HostFault::OfflineUnavailable { workspace: workspace(), why }, R::OfflineUnavailable, &[w]);
    host(HostFault::OfflineChanged { workspace: workspace() }, R::OfflineChanged, &[w]);
    let what = "superblock".to_owned();
    let keys = [w, ("path", "/"), ("what", "superblock")];
    host(HostFault::Corrupt { workspace: workspace(), what }, R::DiskCorrupt, &keys);
    let note = "written".to_owned();
    host(HostFault::Quarantined { workspace: workspace(), note }, R::WorkspaceQuarantined, &[w]);
    host(HostFault::GuestUnreachable { workspace: workspace() }, R::GuestUnreachable, &[w]);
    let feature = "file_search".to_owned();
    host(HostFault::FeatureUnavailable { feature }, R::HostFeatureUnavailable, &[("feature", "file_search")]);
    host(
        HostFault::StaleGeneration { workspace: workspace(), generation: 4 },
        R::StaleGeneration,
        &[w, ("generation", "4")],
    );
    let wrong = HostFault::WrongState { workspace: workspace(), state: State::Running, wanted: "suspended".to_owned() };
    host(wrong, R::WrongState, &[w, ("state", "running"), ("wanted", "suspended")]);
    let what = "needs_recovery".to_owned();
    host(HostFault::NotQuiesced { workspace: workspace(), what }, R::NotQuiesced, &[w, ("what", "needs_recovery")]);
    host(HostFault::AlreadyExists { workspace: workspace() }, R::WorkspaceAlreadyExists, &[w]);
    host(HostFault::Overloaded { what: "calls" }, R::HostOverloaded, &[]);
    host(HostFault::Draining, R::HostDraining, &[]);
    let full = io::Error::from(io::ErrorKind::StorageFull);
    host(HostFault::Record { workspace: workspace(), source: full }, R::DiskFull, &[("path", "state_dir")]);
    let other = io::Error::other("on purpose");
    host(HostFault::Record { workspace: workspace(), source: other }, R::IoError, &[("path", "state_dir")]);
    host(HostFault::Record { workspace: workspace(), source: Errno::EMFILE.into() }, R::HostOverloaded, &[]);
    let other = io::Error::other("on purpose");
    host(HostFault::Hook { workspace: workspace(), source: other }, R::IoError, &[("path", "hooks")]);
    host(HostFault::QuiesceTimeout { workspace: workspace() }, R::DeadlineExceeded, &[]);
    host(HostFault::invalid("name", "it is empty"), R::InvalidRequest, &[("field", "name")]);
}

#[test]
fn a_status_stays_small_whatever_a_path_holds() {
    let long = TreePath::parse(&b"/\xff\xe9".repeat(1_300)).unwrap();
    let wide = TreePath::parse("/日本語".repeat(400).as_bytes()).unwrap();
    for path in [long, wide] {
        check_size(&of_fault("w", &Fault::NotFound { path: path.clone(), missing: path.clone() }));
        let resolved = Some(path.clone());
        check_size(&of_fault("w", &Fault::Symlink { path: path.clone(), link: path.clone(), resolved }));
        let diagnosis = Diagnosis {
            nearest_line: Some(u64::MAX),
            nearest_text: Some("€".repeat(66)),
            diverges_at_line: Some(u64::MAX),
            cause: Some(Cause::LineNumberPrefix),
        };
        check_size(&of_fault("w", &Fault::EditNoMatch { path, edit_index: 99, diagnosis: Box::new(diagnosis) }));
    }
    check_size(&of_fault("w", &Fault::invalid("x".repeat(9_000), "ä".repeat(9_000))));
}

#[test]
fn what_tonic_says_by_itself_is_put_into_our_words() {
    use ErrorReason as R;
    let method = "/dormouse.files.v1.FilesService/Patch";
    let found = "Error, decoded message length too large: found 9000000 bytes, the limit is: 8388608 bytes";
    let sizes = [("size_bytes", "9000000"), ("limit_bytes", "7340032")];
    check(normalised(Status::new(Code::OutOfRange, found), method), R::RequestTooLarge, &sizes);
    let text = "failed to decode Protobuf message: PatchRequest.path: invalid string value: data is not UTF-8 encoded";
    check(normalised(Status::new(Code::Internal, text), method), R::InvalidRequest, &[("field", "request")]);
    let text = "Missing request message.";
    check(normalised(Status::new(Code::Internal, text), method), R::InvalidRequest, &[("field", "request")]);
    check(normalised(Status::new(Code::Cancelled, "Timeout expired"), method), R::DeadlineExceeded, &[]);
    let feature = [("feature", "dormouse.files.v1.FilesService/Patch")];
    check(normalised(Status::new(Code::Unimplemented, ""), method), R::HostFeatureUnavailable, &feature);
    check(normalised(Status::new(Code::Internal, "h2 went away"), method), R::Internal, &[]);
    let broken = "h2 protocol error: error reading a body from connection";
    for code in [Code::Internal, Code::Unknown] {
        assert_eq!(normalised(Status::new(code, broken), method).code(), Code::Cancelled);
    }
    let text = "protocol error: received message with compressed-flag but no grpc-encoding was specified";
    check(normalised(Status::new(Code::Internal, text), method), R::InvalidRequest, &[("field", "request")]);
    let ours = of_host(&HostFault::Draining);
    assert_eq!(normalised(ours.clone(), method).details(), ours.details());
    let health = Status::new(Code::NotFound, "unknown service");
    assert!(normalised(health, "/grpc.health.v1.Health/Check").details().is_empty());
}
