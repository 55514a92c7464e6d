//! An error as the contract promises it. Whatever error a test meets, it is checked here against the comment of its value
//! in `files.proto`: code, domain, metadata, RetryInfo, pushback, size.

use std::collections::{BTreeMap, HashMap};

use dormouse_proto::{ERROR_DOMAIN, files::v1::ErrorReason};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::pb;

/// The contract, whose comments are the law.
const CONTRACT: &str = include_str!("../../proto/dormouse/files/v1/files.proto");

/// Most bytes of a whole status.
const STATUS_BYTES_MAX: usize = 4_096;

/// What the comment of one reason says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Law {
    /// The gRPC code, such as `FAILED_PRECONDITION`.
    pub code: String,
    /// The API's own code, such as `conflict`.
    pub api_code: String,
    /// The HTTP status of a gateway.
    pub http_status: u16,
    /// Whether RetryInfo comes with it.
    pub retry: bool,
    /// Whether BadRequest comes with it.
    pub bad_request: bool,
}

/// The law of every reason, by its wire name.
///
/// # Panics
/// Where a comment does not begin as the contract says.
pub fn laws() -> BTreeMap<String, Law> {
    let (mut laws, mut comment) = (BTreeMap::new(), String::new());
    for line in CONTRACT.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("//") {
            comment.push_str(text);
            continue;
        }
        let value = line.strip_prefix("ERROR_REASON_").and_then(|rest| rest.split_once(" = "));
        if let Some((name, _)) = value.filter(|(name, _)| *name != "UNSPECIFIED") {
            laws.insert(name.to_owned(), law(&comment));
        }
        comment.clear();
    }
    laws
}

fn law(comment: &str) -> Law {
    let comment = comment.trim();
    let comment = comment.strip_prefix("Of dormouse.host.v1. ").unwrap_or(comment);
    let (grpc, rest) = comment.split_once("; ").unwrap_or_else(|| panic!("no code in {comment:?}"));
    let mut words = grpc.split(" + ");
    let code = words.next().unwrap_or_default().to_owned();
    let more: Vec<_> = words.collect();
    let (api_code, rest) = rest.split_once(' ').unwrap_or_else(|| panic!("no API code in {comment:?}"));
    let http_status = rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    Law {
        code,
        api_code: api_code.to_owned(),
        http_status: http_status.parse().unwrap_or_else(|_| panic!("no HTTP status in {comment:?}")),
        retry: more.contains(&"RetryInfo"),
        bad_request: more.contains(&"BadRequest"),
    }
}

/// The metadata keys that each reason's comment names, beside the four that all have.
fn keys(reason: ErrorReason) -> &'static [&'static str] {
    match reason {
        ErrorReason::Unspecified => panic!("no reason"),
        ErrorReason::OfflineUnavailable
        | ErrorReason::OfflineBudget
        | ErrorReason::OfflineChanged
        | ErrorReason::WorkspaceNotFound
        | ErrorReason::GuestUnreachable
        | ErrorReason::WorkspaceQuarantined
        | ErrorReason::WorkspaceAccessDenied
        | ErrorReason::WorkspaceAlreadyExists => &["workspace"],
        ErrorReason::WorkspaceNotRunning | ErrorReason::WorkspaceInTransition => &["workspace", "state"],
        ErrorReason::HostFeatureUnavailable => &["feature"],
        ErrorReason::FileNotFound => &["path", "missing"],
        ErrorReason::NotARegularFile | ErrorReason::NotADirectory | ErrorReason::FileAlreadyExists => &["path", "type"],
        ErrorReason::SymlinkRefused => &["path", "link"],
        ErrorReason::PathOutsideWorkspace
        | ErrorReason::FilePermissionDenied
        | ErrorReason::DirectoryNotEmpty
        | ErrorReason::BusyWriter
        | ErrorReason::OutcomeUnknown
        | ErrorReason::RangePastEnd
        | ErrorReason::DiskFull
        | ErrorReason::ReadOnly
        | ErrorReason::IoError
        | ErrorReason::MountPoint => &["path"],
        ErrorReason::FileTooLarge => &["path", "size_bytes", "limit_bytes"],
        ErrorReason::FileNotUtf8 => &["path", "offset"],
        // Of a revision or of an etag, see below.
        ErrorReason::RevisionMismatch => &["path"],
        ErrorReason::EditNoMatch => &["path", "edit_index"],
        ErrorReason::EditNotUnique => &["path", "edit_index", "occurrences", "lines"],
        ErrorReason::InvalidRequest => &["field"],
        ErrorReason::InvalidPattern => &["field", "position"],
        ErrorReason::RequestTooLarge => &["size_bytes", "limit_bytes"],
        ErrorReason::DiskCorrupt => &["path", "what"],
        ErrorReason::WritePolicyDenied => &["path", "rule"],
        ErrorReason::StaleGeneration => &["workspace", "generation"],
        ErrorReason::WrongState => &["workspace", "state", "wanted"],
        ErrorReason::NotQuiesced => &["workspace", "what"],
        ErrorReason::IdempotencyKeyReused
        | ErrorReason::HostOverloaded
        | ErrorReason::HostDraining
        | ErrorReason::Internal
        | ErrorReason::DeadlineExceeded
        | ErrorReason::CredentialsRequired => &[],
    }
}

/// An error that keeps the contract.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Why.
    pub reason: ErrorReason,
    /// Of its ErrorInfo.
    pub metadata: HashMap<String, String>,
    /// For people.
    pub message: String,
    /// The gRPC code.
    pub code: Code,
}

impl Refusal {
    /// The value of a metadata key, which the test expects to be there.
    ///
    /// # Panics
    /// Where it is not.
    pub fn value(&self, key: &str) -> &str {
        self.metadata.get(key).unwrap_or_else(|| panic!("{self:?} lacks {key}"))
    }

    /// Asserts the reason, and gives the refusal back for more.
    ///
    /// # Panics
    /// Where it is another one.
    #[track_caller]
    pub fn expect(self, reason: ErrorReason) -> Self {
        assert_eq!(self.reason, reason, "{self:?}");
        self
    }

    /// Asserts a metadata value, and gives the refusal back for more.
    ///
    /// # Panics
    /// Where it is another one.
    #[track_caller]
    pub fn with(self, key: &str, value: &str) -> Self {
        assert_eq!(self.metadata.get(key).map(String::as_str), Some(value), "{key} of {self:?}");
        self
    }
}

impl From<Status> for Refusal {
    /// Checks a status against the contract.
    #[track_caller]
    fn from(status: Status) -> Self {
        let whole = pb::Status::decode(status.details()).unwrap_or_else(|error| panic!("{status:?}: {error}"));
        assert_eq!(whole.code, status.code() as i32, "the status inside is the status outside: {status:?}");
        assert_eq!(whole.message, status.message(), "the status inside is the status outside: {status:?}");
        let of = |name: &str| {
            let url = format!("type.googleapis.com/google.rpc.{name}");
            whole.details.iter().filter(|any| any.type_url == url).collect::<Vec<_>>()
        };
        let infos = of("ErrorInfo");
        assert_eq!(infos.len(), 1, "exactly one ErrorInfo: {status:?}");
        let info = pb::ErrorInfo::decode(infos[0].value.as_slice()).expect("an ErrorInfo decodes");
        assert_eq!(info.domain, ERROR_DOMAIN, "{info:?}");
        let reason = ErrorReason::from_wire_name(&info.reason).unwrap_or_else(|| panic!("an unknown reason: {info:?}"));
        let law = laws().remove(&info.reason).unwrap_or_else(|| panic!("no law for {info:?}"));
        assert_eq!(code_name(status.code()), law.code, "{status:?}");
        let value = |key: &str| info.metadata.get(key).map(String::as_str);
        assert_eq!(value("code"), Some(law.api_code.as_str()), "{info:?}");
        assert_eq!(value("reason"), Some(info.reason.to_ascii_lowercase().as_str()), "{info:?}");
        assert_eq!(value("http_status"), Some(law.http_status.to_string().as_str()), "{info:?}");
        assert_eq!(value("retryable"), Some(if law.retry { "true" } else { "false" }), "{info:?}");
        for key in keys(reason) {
            assert!(value(key).is_some(), "{key} is missing: {info:?}");
        }
        match reason {
            ErrorReason::RangePastEnd => {
                assert!(value("size_bytes").is_some() != value("line_count").is_some(), "one of the two: {info:?}");
            }
            ErrorReason::RevisionMismatch => {
                let both = |what: &str| {
                    value(&format!("expected_{what}")).is_some() && value(&format!("actual_{what}")).is_some()
                };
                assert!(both("revision") != both("etag"), "what was expected and what is there: {info:?}");
            }
            ErrorReason::OfflineBudget => {
                assert!(value("limit_bytes").is_some() != value("limit_ms").is_some(), "one of the two: {info:?}");
            }
            _ => {}
        }
        let retries = of("RetryInfo");
        assert_eq!(retries.len(), usize::from(law.retry), "RetryInfo exactly on what may be sent again: {status:?}");
        let pushback = status.metadata().get("grpc-retry-pushback-ms");
        assert_eq!(pushback.is_some(), law.retry, "a pushback exactly with RetryInfo: {status:?}");
        if let (Some(retry), Some(pushback)) = (retries.first(), pushback) {
            let retry = pb::RetryInfo::decode(retry.value.as_slice()).expect("a RetryInfo decodes");
            let delay = retry.retry_delay.expect("a RetryInfo says how long");
            let pushback: i64 = pushback.to_str().ok().and_then(|text| text.parse().ok()).expect("a number of ms");
            assert_eq!(pushback, delay.seconds * 1_000 + i64::from(delay.nanos) / 1_000_000, "both say the same");
        }
        assert_eq!(of("BadRequest").len(), usize::from(law.bad_request), "{status:?}");
        let size = status.details().len() + status.message().len();
        assert!(size <= STATUS_BYTES_MAX, "a status of {size} bytes: {info:?}");
        let message = status.message();
        assert!(!message.is_empty() && !message.ends_with('.'), "a message without a full stop: {message:?}");
        assert!(!message.starts_with(char::is_uppercase), "a message in lower case: {message:?}");
        Self { reason, metadata: info.metadata, message: message.to_owned(), code: status.code() }
    }
}

/// A code as the specification of gRPC writes it.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_law() {
        let laws = laws();
        assert!(laws.len() > 40, "the contract's comments are read: {laws:?}");
        let changed = &laws["OFFLINE_CHANGED"];
        assert_eq!((changed.code.as_str(), changed.retry, changed.http_status), ("UNAVAILABLE", true, 503));
        assert!(laws["INVALID_REQUEST"].bad_request && !laws["INVALID_REQUEST"].retry);
        assert_eq!(laws["STALE_GENERATION"].code, "ABORTED");
        for number in 1..100 {
            if let Ok(reason) = ErrorReason::try_from(number) {
                assert!(laws.contains_key(reason.wire_name()), "{reason:?}");
                keys(reason);
            }
        }
    }
}
