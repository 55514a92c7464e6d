//! The one error of this library: what a host said, or what happened on the way to it.
//!
//! Nothing here decides about another attempt; that is `retry`. What a status means is in `decode`.

mod decode;

use std::{collections::BTreeMap, fmt, time::Duration};

use dormouse_proto::files::v1::ErrorReason;
use tonic::Code;

use crate::{method::Method, trust::TlsFault};

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
    tls_fault: Option<TlsFault>,
}

impl Error {
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
            tls_fault: None,
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

    /// What was wrong with the connection's TLS, where that is why nothing was sent.
    pub fn tls_fault(&self) -> Option<TlsFault> {
        self.0.tls_fault
    }

    /// What went wrong.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The gRPC code; a connection that was lost counts as `UNAVAILABLE`.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The API's name of the error, such as `conflict`: the host's own word, or the one that fits where no host spoke.
    pub fn code_name(&self) -> &str {
        if let Some(code) = self.0.metadata.get("code") {
            return code;
        }
        match self.kind() {
            Kind::NotFound => "not_found",
            Kind::InvalidRequest { .. } => "invalid_argument",
            Kind::LimitExceeded { .. } => "payload_too_large",
            Kind::PolicyDenied => "permission_denied",
            Kind::Unauthenticated => "unauthenticated",
            Kind::WorkspaceNotRunning { .. } => "workspace_not_running",
            Kind::DependencyUnavailable => "dependency_unavailable",
            Kind::DeadlineExceeded => "timeout",
            Kind::StorageFull => "insufficient_storage",
            Kind::Source => "local",
            Kind::Internal | Kind::BrokenAnswer => "internal",
            _ => "conflict",
        }
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
