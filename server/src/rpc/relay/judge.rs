//! What a machine's own agent refuses, as far as it is believed. A reason of the contract that an agent inside a machine can
//! have is passed on in the row of our own table; a missing call is a missing feature; no answer is `GUEST_UNREACHABLE`;
//! everything else is a defect of the agent, or a lie, and so `INTERNAL`.

use std::error::Error;

use dormouse_files::Fault;
use dormouse_proto::{ERROR_DOMAIN, files::v1::ErrorReason};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::host::{
    Feature,
    error::{Failure, GuestRefusal, HostFault},
};

/// The keys of the contract that an agent inside a machine can fill. Those of every error are filled by our own table.
const KEYS: [&str; 25] = [
    "path",
    "missing",
    "type",
    "link",
    "resolved_path",
    "size_bytes",
    "limit_bytes",
    "offset",
    "expected_revision",
    "actual_revision",
    "expected_etag",
    "actual_etag",
    "edit_index",
    "nearest_line",
    "nearest_text",
    "diverges_at_line",
    "cause",
    "occurrences",
    "lines",
    "field",
    "position",
    "line_count",
    "rule",
    "state",
    "feature",
];

/// The failure that a guest's status stands for. `feature` is what the call needs beside the oldest contract.
pub fn judge(status: &Status, workspace: &str, feature: &str) -> Failure {
    let unreachable = || HostFault::GuestUnreachable { workspace: workspace.to_owned() };
    let unavailable = |feature: &str| HostFault::FeatureUnavailable { feature: feature.to_owned() };
    let details = status.get_error_details();
    let Some(info) = details.error_info() else {
        return match status.code() {
            Code::Unimplemented => unavailable(feature).into(),
            Code::Cancelled | Code::DeadlineExceeded if is_timeout(status) => Fault::DeadlineExceeded.into(),
            // A status that came over the wire has no cause; one that stands for a broken connection has.
            _ if status.source().is_some() => {
                tracing::info!(workspace, error = status.source(), "the machine's own agent does not answer");
                unreachable().into()
            }
            Code::DeadlineExceeded => Fault::DeadlineExceeded.into(),
            code => {
                tracing::warn!(workspace, ?code, "the machine's own agent answers in no words of the contract");
                Fault::Internal("the machine's own agent broke the contract").into()
            }
        };
    };
    let reason = ErrorReason::from_wire_name(&info.reason).filter(|_| info.domain == ERROR_DOMAIN);
    match reason {
        Some(ErrorReason::HostFeatureUnavailable) => {
            let named = info.metadata.get("feature").map(String::as_str).unwrap_or_default();
            let known = Feature::ALL.iter().find(|known| known.name() == named);
            unavailable(known.map_or(feature, |known| known.name())).into()
        }
        // It is on its way down, or too busy to look.
        Some(ErrorReason::HostDraining) => unreachable().into(),
        Some(reason) if passes(reason) => {
            let key = |key: &str| KEYS.into_iter().find(|known| *known == key);
            let value = |(name, value): (&String, &String)| Some((key(name)?, value.clone()));
            let mut metadata: Vec<_> = info.metadata.iter().filter_map(value).collect();
            metadata.sort_unstable();
            if reason == ErrorReason::WorkspaceInTransition {
                metadata.push(("workspace", workspace.to_owned()));
            }
            let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
            let field = violations.first().map(|violation| violation.field.clone());
            let message = status.message().to_owned();
            Failure::Guest(GuestRefusal { reason: reason.wire_name(), message, metadata, field })
        }
        _ => {
            tracing::warn!(
                workspace,
                reason = info.reason.get(..64),
                "the machine's own agent gives a reason that it cannot have"
            );
            Fault::Internal("the machine's own agent broke the contract").into()
        }
    }
}

/// Whether an agent that serves one running directory can have this reason. It knows of no disk, no host and no caller.
fn passes(reason: ErrorReason) -> bool {
    use ErrorReason as R;
    matches!(
        reason,
        R::FileNotFound
            | R::NotARegularFile
            | R::NotADirectory
            | R::SymlinkRefused
            | R::PathOutsideWorkspace
            | R::FilePermissionDenied
            | R::FileTooLarge
            | R::FileNotUtf8
            | R::FileAlreadyExists
            | R::DirectoryNotEmpty
            | R::RevisionMismatch
            | R::EditNoMatch
            | R::EditNotUnique
            | R::IdempotencyKeyReused
            | R::BusyWriter
            | R::OutcomeUnknown
            | R::InvalidRequest
            | R::InvalidPattern
            | R::RequestTooLarge
            | R::RangePastEnd
            | R::HostOverloaded
            | R::DiskFull
            | R::ReadOnly
            | R::IoError
            | R::Internal
            | R::DeadlineExceeded
            | R::MountPoint
            | R::WritePolicyDenied
            | R::WorkspaceInTransition
    )
}

/// Whether our own side of the channel gave up because the caller's time was over.
fn is_timeout(status: &Status) -> bool {
    status.message().contains("Timeout expired")
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    fn with(code: Code, reason: &str, domain: &str, metadata: &[(&str, &str)]) -> Status {
        let metadata: std::collections::HashMap<String, String> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Status::with_error_details(code, "words", ErrorDetails::with_error_info(reason, domain, metadata))
    }

    #[track_caller]
    fn check(status: &Status, expect: &str) {
        let found = match judge(status, "w", "file_search") {
            Failure::Files(Fault::Internal(_)) => "internal".to_owned(),
            Failure::Files(Fault::DeadlineExceeded) => "deadline".to_owned(),
            Failure::Host(HostFault::GuestUnreachable { workspace }) => format!("unreachable {workspace}"),
            Failure::Host(HostFault::FeatureUnavailable { feature }) => format!("feature {feature}"),
            Failure::Guest(refusal) => format!("{} {:?}", refusal.reason, refusal.metadata),
            other => other.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn only_what_an_agent_inside_can_have_is_passed_on() {
        let ours = |reason, metadata| with(Code::Internal, reason, "dormouse.dev", metadata);
        let path = [("path", "/a"), ("code", "made_up"), ("secret", "x")];
        check(&ours("FILE_NOT_FOUND", &path), "FILE_NOT_FOUND [(\"path\", \"/a\")]");
        check(&ours("WORKSPACE_IN_TRANSITION", &[]), "WORKSPACE_IN_TRANSITION [(\"workspace\", \"w\")]");
        for lie in
            ["OFFLINE_UNAVAILABLE", "WORKSPACE_NOT_RUNNING", "STALE_GENERATION", "CREDENTIALS_REQUIRED", "MADE_UP", ""]
        {
            check(&ours(lie, &[]), "internal");
        }
        check(&with(Code::NotFound, "FILE_NOT_FOUND", "example.org", &[]), "internal");
        check(&ours("HOST_DRAINING", &[]), "unreachable w");
        check(&ours("HOST_FEATURE_UNAVAILABLE", &[("feature", "file_patch")]), "feature file_patch");
        check(&ours("HOST_FEATURE_UNAVAILABLE", &[("feature", "x.Y/Z")]), "feature file_search");
        check(&Status::new(Code::Unimplemented, ""), "feature file_search");
        check(&Status::new(Code::DeadlineExceeded, ""), "deadline");
        check(&Status::new(Code::Cancelled, "Timeout expired"), "deadline");
        check(&Status::new(Code::Unavailable, "I am the connection"), "internal");
        check(&Status::new(Code::OutOfRange, "too long"), "internal");
        let mut broken = Status::new(Code::Unknown, "transport error");
        broken.set_source(std::sync::Arc::new(std::io::Error::other("reset")));
        check(&broken, "unreachable w");
    }
}
