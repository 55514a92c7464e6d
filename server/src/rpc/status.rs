//! From a failure to a status: the only place that makes a `tonic::Status`.
//!
//! One table ([`row`]) says for each reason its gRPC code, its API code, its HTTP status and whether the same request may
//! be sent again; it follows the comments of `ErrorReason` in files.proto word by word. Every status carries a
//! `google.rpc.ErrorInfo`; `BadRequest` where a field is to blame; `RetryInfo` and the `grpc-retry-pushback-ms` trailer
//! exactly on those that may be retried (gRFC A6: only the trailer is obeyed by gRPC's own retries). A whole status stays
//! within [`STATUS_BYTES_MAX`], because a caller's header list is bounded (RFC 9113, section 6.5.2).

use std::{collections::HashMap, error::Error, time::Duration};

use dormouse_files::{Fault, path::TreePath, revision::Revision};
use dormouse_proto::{ERROR_DOMAIN, files::v1::ErrorReason};
use nix::errno::Errno;
use prost::Message;
use tonic::{Code, Status, metadata::MetadataValue};
use tonic_types::pb;

use crate::{
    config::REQUEST_BYTES_MAX,
    host::error::{Failure, GuestRefusal, HostFault},
};

/// Longest status on the wire: message, details in base64, and trailers, in bytes.
pub const STATUS_BYTES_MAX: usize = 4 << 10;
/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;
/// Longest value of one metadata key, in bytes.
const VALUE_BYTES_MAX: usize = 384;
/// When a caller may try again: long enough for a commit or a transition to end, short enough not to be felt.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// What the contract says of one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The gRPC code.
    pub code: Code,
    /// The API's error code, such as `conflict`.
    pub api_code: &'static str,
    /// The HTTP status for gateways.
    pub http_status: u16,
    /// Whether the same request may be sent again.
    pub retryable: bool,
    /// Whether `BadRequest` names the field.
    pub bad_request: bool,
}

/// The contract's table.
pub fn row(reason: ErrorReason) -> Row {
    use ErrorReason as R;
    let plain = |code, api_code, http_status| Row { code, api_code, http_status, retryable: false, bad_request: false };
    let retry = |code, api_code, http_status| Row { retryable: true, ..plain(code, api_code, http_status) };
    let field = |code, api_code, http_status| Row { bad_request: true, ..plain(code, api_code, http_status) };
    match reason {
        R::OfflineUnavailable | R::OfflineBudget | R::WorkspaceNotRunning => {
            plain(Code::FailedPrecondition, "workspace_not_running", 409)
        }
        R::OfflineChanged | R::GuestUnreachable | R::WorkspaceInTransition | R::HostOverloaded | R::HostDraining => {
            retry(Code::Unavailable, "dependency_unavailable", 503)
        }
        R::WorkspaceNotFound | R::FileNotFound => plain(Code::NotFound, "not_found", 404),
        R::HostFeatureUnavailable => plain(Code::Unimplemented, "conflict", 409),
        R::WorkspaceQuarantined
        | R::NotARegularFile
        | R::NotADirectory
        | R::SymlinkRefused
        | R::FileNotUtf8
        | R::DirectoryNotEmpty
        | R::EditNoMatch
        | R::EditNotUnique
        | R::ReadOnly
        | R::MountPoint
        | R::WrongState
        | R::NotQuiesced => plain(Code::FailedPrecondition, "conflict", 409),
        R::PathOutsideWorkspace | R::InvalidRequest | R::InvalidPattern => {
            field(Code::InvalidArgument, "invalid_argument", 400)
        }
        R::FilePermissionDenied | R::WorkspaceAccessDenied | R::WritePolicyDenied => {
            plain(Code::PermissionDenied, "permission_denied", 403)
        }
        R::FileTooLarge => plain(Code::FailedPrecondition, "payload_too_large", 413),
        R::FileAlreadyExists | R::WorkspaceAlreadyExists => plain(Code::AlreadyExists, "conflict", 409),
        R::RevisionMismatch | R::StaleGeneration => plain(Code::Aborted, "conflict", 409),
        R::IdempotencyKeyReused => plain(Code::InvalidArgument, "conflict", 409),
        R::BusyWriter => retry(Code::Aborted, "conflict", 409),
        R::OutcomeUnknown => plain(Code::Unknown, "internal", 500),
        R::RequestTooLarge => plain(Code::InvalidArgument, "payload_too_large", 413),
        R::RangePastEnd => plain(Code::OutOfRange, "invalid_argument", 400),
        R::DiskFull => plain(Code::ResourceExhausted, "insufficient_storage", 507),
        R::DiskCorrupt => plain(Code::DataLoss, "internal", 500),
        R::IoError | R::Internal | R::Unspecified => plain(Code::Internal, "internal", 500),
        R::DeadlineExceeded => plain(Code::DeadlineExceeded, "timeout", 504),
        R::CredentialsRequired => plain(Code::Unauthenticated, "unauthenticated", 401),
    }
}

/// A failure in the words of the contract, on its way to a status.
struct Told {
    reason: ErrorReason,
    message: String,
    metadata: Vec<(&'static str, String)>,
    /// The field to blame, where the row has `BadRequest`.
    field: Option<String>,
}

impl Told {
    fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), metadata: Vec::new(), field: None }
    }

    fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.metadata.push((key, value.to_string()));
        self
    }

    fn path(self, path: &TreePath) -> Self {
        self.with("path", path)
    }

    fn blame(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    fn status(self) -> Status {
        let row = row(self.reason);
        let name = self.reason.wire_name();
        let message = clipped(&self.message, MESSAGE_BYTES_MAX);
        // The first texts are the ones that a caller needs most; when the whole grows too long, all texts shrink alike.
        let mut value_bytes_max = VALUE_BYTES_MAX;
        loop {
            let mut metadata: HashMap<String, String> = self
                .metadata
                .iter()
                .map(|(key, value)| ((*key).to_owned(), clipped(value, value_bytes_max).to_owned()))
                .collect();
            metadata.insert("code".to_owned(), row.api_code.to_owned());
            metadata.insert("reason".to_owned(), name.to_ascii_lowercase());
            metadata.insert("retryable".to_owned(), row.retryable.to_string());
            metadata.insert("http_status".to_owned(), row.http_status.to_string());
            let mut details = vec![any(
                "google.rpc.ErrorInfo",
                &pb::ErrorInfo { reason: name.to_owned(), domain: ERROR_DOMAIN.to_owned(), metadata },
            )];
            if row.bad_request {
                let field = clipped(self.field.as_deref().unwrap_or("path"), value_bytes_max).to_owned();
                let violation = pb::bad_request::FieldViolation {
                    field,
                    description: clipped(message, value_bytes_max).to_owned(),
                    reason: name.to_owned(),
                    localized_message: None,
                };
                details.push(any("google.rpc.BadRequest", &pb::BadRequest { field_violations: vec![violation] }));
            }
            if row.retryable {
                let retry_delay = prost_types::Duration::try_from(RETRY_DELAY).ok();
                details.push(any("google.rpc.RetryInfo", &pb::RetryInfo { retry_delay }));
            }
            let encoded = pb::Status { code: row.code as i32, message: message.to_owned(), details }.encode_to_vec();
            // grpc-message is percent-encoded (three bytes for each byte that is not printable ASCII), details are base64.
            let message_bytes: usize =
                message.bytes().map(|byte| if (b' '..=b'~').contains(&byte) { 1 } else { 3 }).sum();
            if encoded.len() * 4 / 3 + message_bytes + 256 > STATUS_BYTES_MAX && value_bytes_max > 16 {
                value_bytes_max /= 2;
                continue;
            }
            let mut status = Status::with_details(row.code, message, encoded.into());
            if row.retryable {
                let pushback = MetadataValue::from(RETRY_DELAY.as_millis() as u64);
                status.metadata_mut().insert("grpc-retry-pushback-ms", pushback);
            }
            return status;
        }
    }
}

fn any(name: &str, message: &impl Message) -> prost_types::Any {
    prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// At most so many bytes of a text, cut at a character.
fn clipped(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The status of a failed call on a workspace; an empty name where the call has none.
pub fn of(workspace: &str, failure: &Failure) -> Status {
    match failure {
        Failure::Files(fault) => of_fault(workspace, fault),
        Failure::Host(fault) => of_host(fault),
        Failure::Guest(refusal) => of_guest(refusal),
    }
}

/// The status of a failed engine. `workspace` is what the engine does not know.
pub fn of_fault(workspace: &str, fault: &Fault) -> Status {
    use ErrorReason as R;
    let told = |reason| Told::new(reason, fault.to_string());
    let absent = |revision: &Option<Revision>| revision.map_or_else(|| "absent".to_owned(), |known| known.to_string());
    match fault {
        Fault::NotFound { path, missing } => told(R::FileNotFound).path(path).with("missing", missing),
        Fault::NotRegular { path, kind } => told(R::NotARegularFile).path(path).with("type", kind),
        Fault::NotDirectory { path, kind } => told(R::NotADirectory).path(path).with("type", kind),
        Fault::Symlink { path, link, resolved } => {
            let told = told(R::SymlinkRefused).path(path).with("link", link);
            match resolved {
                Some(resolved) => told.with("resolved_path", resolved),
                None => told,
            }
        }
        Fault::Outside { path } => told(R::PathOutsideWorkspace).with("path", path).blame("path"),
        Fault::PermissionDenied { path } => told(R::FilePermissionDenied).path(path),
        Fault::TooLarge { path, size_bytes, limit_bytes, .. } => {
            told(R::FileTooLarge).path(path).with("size_bytes", size_bytes).with("limit_bytes", limit_bytes)
        }
        Fault::NotUtf8 { path, offset } => told(R::FileNotUtf8).path(path).with("offset", offset),
        Fault::AlreadyExists { path, kind } => told(R::FileAlreadyExists).path(path).with("type", kind),
        Fault::NotEmpty { path } => told(R::DirectoryNotEmpty).path(path),
        Fault::RevisionMismatch { path, expected, actual } => told(R::RevisionMismatch)
            .path(path)
            .with("expected_revision", expected)
            .with("actual_revision", absent(actual)),
        Fault::EtagMismatch { path, expected, actual } => {
            told(R::RevisionMismatch).path(path).with("expected_etag", expected).with("actual_etag", actual)
        }
        Fault::EditNoMatch { path, edit_index, diagnosis } => {
            let mut told = told(R::EditNoMatch).path(path).with("edit_index", edit_index);
            if let Some(line) = diagnosis.nearest_line {
                told = told.with("nearest_line", line);
            }
            if let Some(text) = &diagnosis.nearest_text {
                told = told.with("nearest_text", text);
            }
            if let Some(line) = diagnosis.diverges_at_line {
                told = told.with("diverges_at_line", line);
            }
            match diagnosis.cause {
                Some(cause) => told.with("cause", cause.name()),
                None => told,
            }
        }
        Fault::EditNotUnique { path, edit_index, occurrences, lines } => {
            let lines: Vec<String> = lines.iter().take(10).map(u64::to_string).collect();
            told(R::EditNotUnique)
                .path(path)
                .with("edit_index", edit_index)
                .with("occurrences", occurrences)
                .with("lines", lines.join(","))
        }
        Fault::KeyReused => told(R::IdempotencyKeyReused),
        Fault::BusyWriter { path } => told(R::BusyWriter).path(path),
        Fault::OutcomeUnknown { path } => told(R::OutcomeUnknown).path(path),
        Fault::Invalid { field, .. } => told(R::InvalidRequest).with("field", field).blame(field),
        Fault::InvalidPattern { field, position, .. } => {
            told(R::InvalidPattern).with("field", field).with("position", position).blame(field)
        }
        Fault::RequestTooLarge { size_bytes, limit_bytes } => {
            told(R::RequestTooLarge).with("size_bytes", size_bytes).with("limit_bytes", limit_bytes)
        }
        Fault::RangePastEnd { path, size_bytes } => told(R::RangePastEnd).path(path).with("size_bytes", size_bytes),
        Fault::LinesPastEnd { path, line_count } => told(R::RangePastEnd).path(path).with("line_count", line_count),
        Fault::DiskFull { path } => told(R::DiskFull).path(path),
        Fault::ReadOnly { path } => told(R::ReadOnly).path(path),
        Fault::MountPoint { path } => told(R::MountPoint).path(path),
        Fault::OfflineUnavailable { path, .. } => told(R::OfflineUnavailable).with("workspace", workspace).path(path),
        Fault::OfflineBudget { limit, unit } => {
            let key = if *unit == "ms" { "limit_ms" } else { "limit_bytes" };
            told(R::OfflineBudget).with("workspace", workspace).with(key, limit)
        }
        Fault::OfflineChanged => told(R::OfflineChanged).with("workspace", workspace),
        Fault::Corrupt { path, what } => told(R::DiskCorrupt).path(path).with("what", what),
        Fault::Overloaded { .. } => told(R::HostOverloaded),
        Fault::DeadlineExceeded => told(R::DeadlineExceeded),
        Fault::Gone => return gone(),
        Fault::Io { source, .. } if is_short_of_descriptors(source) => {
            return of_fault(workspace, &Fault::Overloaded { what: "open files" });
        }
        Fault::Io { path, source } => Told::new(R::IoError, format!("{fault}: {source}")).path(path),
        Fault::Internal(_) => told(R::Internal),
    }
    .status()
}

/// The status of a refusal by a machine's own agent: our row of the table, its texts.
fn of_guest(refusal: &GuestRefusal) -> Status {
    let reason = ErrorReason::from_wire_name(refusal.reason).unwrap_or(ErrorReason::Internal);
    let mut told = Told::new(reason, refusal.message.clone());
    told.metadata.clone_from(&refusal.metadata);
    told.field.clone_from(&refusal.field);
    told.status()
}

/// The status of a refusal by the host.
pub fn of_host(fault: &HostFault) -> Status {
    use ErrorReason as R;
    let told = |reason| Told::new(reason, fault.to_string());
    match fault {
        HostFault::NotFound { workspace } => told(R::WorkspaceNotFound).with("workspace", workspace),
        HostFault::NotRunning { workspace, state } => {
            told(R::WorkspaceNotRunning).with("workspace", workspace).with("state", state)
        }
        HostFault::InTransition { workspace, state } => {
            told(R::WorkspaceInTransition).with("workspace", workspace).with("state", state)
        }
        HostFault::OfflineUnavailable { workspace, .. } => told(R::OfflineUnavailable).with("workspace", workspace),
        HostFault::OfflineChanged { workspace } => told(R::OfflineChanged).with("workspace", workspace),
        HostFault::Corrupt { workspace, what } => {
            told(R::DiskCorrupt).with("path", "/").with("what", what).with("workspace", workspace)
        }
        HostFault::Quarantined { workspace, .. } => told(R::WorkspaceQuarantined).with("workspace", workspace),
        HostFault::GuestUnreachable { workspace } => told(R::GuestUnreachable).with("workspace", workspace),
        HostFault::FeatureUnavailable { feature } => told(R::HostFeatureUnavailable).with("feature", feature),
        HostFault::StaleGeneration { workspace, generation } => {
            told(R::StaleGeneration).with("workspace", workspace).with("generation", generation)
        }
        HostFault::WrongState { workspace, state, wanted } => {
            told(R::WrongState).with("workspace", workspace).with("state", state).with("wanted", wanted)
        }
        HostFault::NotQuiesced { workspace, what } => {
            told(R::NotQuiesced).with("workspace", workspace).with("what", what)
        }
        HostFault::AlreadyExists { workspace } => told(R::WorkspaceAlreadyExists).with("workspace", workspace),
        HostFault::Overloaded { .. } => told(R::HostOverloaded),
        HostFault::Draining => told(R::HostDraining),
        HostFault::Record { source, .. } if is_short_of_descriptors(source) => {
            Told::new(R::HostOverloaded, format!("{fault}: {source}"))
        }
        HostFault::Record { source, .. } => {
            let full = matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
            let reason = if full { R::DiskFull } else { R::IoError };
            Told::new(reason, format!("{fault}: {source}")).with("path", "state_dir")
        }
        HostFault::Hook { source, .. } => Told::new(R::IoError, format!("{fault}: {source}")).with("path", "hooks"),
        HostFault::DirectoryGone { workspace, .. } => told(R::IoError).with("path", "/").with("workspace", workspace),
        HostFault::GuestFailed { workspace, .. } => told(R::IoError).with("path", "/").with("workspace", workspace),
        HostFault::CredentialsRequired => told(R::CredentialsRequired),
        HostFault::QuiesceTimeout { .. } | HostFault::CallerSilent { .. } => told(R::DeadlineExceeded),
        HostFault::Invalid { field, .. } => told(R::InvalidRequest).with("field", field).blame(field),
    }
    .status()
}

/// The end of a call that nobody waits for any more: never sent, so it needs no reason; the counters tell it by its code.
pub fn gone() -> Status {
    Status::new(Code::Cancelled, "the caller has gone")
}

/// Whether the agent, or the whole system, has as many files open as it may (open(2), `EMFILE` and `ENFILE`): that passes.
fn is_short_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// The end of an answer that is complete, where the generated code does not write it.
pub fn done() -> Status {
    Status::new(Code::Ok, "")
}

/// The status of a defect that was caught on its way out.
pub fn internal(what: &'static str) -> Status {
    of_fault("", &Fault::Internal(what))
}

/// A status that tonic made by itself, in the words of the contract; one of ours comes back as it is.
///
/// `method` is the path of the call, such as `/dormouse.files.v1.FilesService/Stat`. Services of others (health,
/// reflection) keep their own words.
pub fn normalised(status: Status, method: &str) -> Status {
    let foreign = ["/grpc.health.", "/grpc.reflection."].iter().any(|prefix| method.starts_with(prefix));
    if foreign || status.code() == Code::Ok || !status.details().is_empty() {
        return status;
    }
    let message = status.message().trim_end_matches('.');
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted if message.contains("message length too large") => {
            let mut sizes = message.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok());
            // The decoder's own limit lies above the contract's, so that most are refused by their handler.
            let (size_bytes, limit_bytes) = (sizes.next().unwrap_or(0), REQUEST_BYTES_MAX);
            of_fault("", &Fault::RequestTooLarge { size_bytes, limit_bytes })
        }
        Code::Unimplemented if message.contains("compress") => {
            of_host(&HostFault::FeatureUnavailable { feature: "compression".to_owned() })
        }
        Code::Unimplemented => {
            let feature = method.trim_start_matches('/').to_owned();
            of_host(&HostFault::FeatureUnavailable { feature })
        }
        Code::DeadlineExceeded => of_fault("", &Fault::DeadlineExceeded),
        Code::Cancelled if message.contains("Timeout") => of_fault("", &Fault::DeadlineExceeded),
        Code::Cancelled => gone(),
        // The connection broke in the middle of a request.
        Code::Internal | Code::Unknown if message.contains("error reading a body from connection") => gone(),
        Code::Internal if is_decoding(&status) => {
            of_host(&HostFault::invalid("request", format!("the message does not decode: {message}")))
        }
        _ => Told::new(ErrorReason::Internal, format!("internal error: {message}")).status(),
    }
}

/// Whether tonic could not make a request of the bytes that came (`Codec`, and the unary handler without a message).
fn is_decoding(status: &Status) -> bool {
    let decoding = |text: &str| {
        ["decode Protobuf", "Missing request message", "Unexpected EOF", "compressed-flag", "invalid string value"]
            .iter()
            .any(|part| text.contains(part))
    };
    decoding(status.message()) || status.source().is_some_and(|source| decoding(&source.to_string()))
}

#[cfg(test)]
mod tests;
