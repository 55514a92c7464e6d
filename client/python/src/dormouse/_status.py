"""From a gRPC status to a typed error. By reason first, by gRPC code only where there is no reason, so that a bare status
of a proxy or an old host still becomes the right class."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from dormouse import errors as e
from dormouse._methods import Method
from dormouse.status.v1 import status_pb2

DOMAIN = "dormouse.dev"
DETAILS_TRAILER = "grpc-status-details-bin"
# gRPC proposal A6.
PUSHBACK_TRAILER = "grpc-retry-pushback-ms"
REQUEST_ID_TRAILER = "x-request-id"

_BY_REASON: dict[str, type[e.DormouseError]] = {
    "offline_unavailable": e.WorkspaceNotRunning,
    "offline_budget": e.WorkspaceNotRunning,
    "workspace_not_running": e.WorkspaceNotRunning,
    "workspace_not_found": e.NotFound,
    "file_not_found": e.NotFound,
    "host_feature_unavailable": e.HostFeatureUnavailable,
    "revision_mismatch": e.RevisionMismatch,
    "edit_no_match": e.EditNoMatch,
    "edit_not_unique": e.EditNotUnique,
    "file_too_large": e.LimitExceeded,
    "request_too_large": e.LimitExceeded,
    "write_policy_denied": e.PolicyDenied,
    "workspace_access_denied": e.PolicyDenied,
    "file_permission_denied": e.PolicyDenied,
    "credentials_required": e.Unauthenticated,
    "disk_full": e.StorageFull,
    "deadline_exceeded": e.DeadlineExceeded,
    "invalid_request": e.InvalidRequest,
    "invalid_pattern": e.InvalidRequest,
    "path_outside_workspace": e.InvalidRequest,
    "range_past_end": e.InvalidRequest,
    "offline_changed": e.DependencyUnavailable,
    "guest_unreachable": e.DependencyUnavailable,
    "workspace_in_transition": e.DependencyUnavailable,
    "host_overloaded": e.DependencyUnavailable,
    "host_draining": e.DependencyUnavailable,
    "workspace_quarantined": e.Conflict,
    "not_a_regular_file": e.Conflict,
    "not_a_directory": e.Conflict,
    "symlink_refused": e.Conflict,
    "file_not_utf8": e.Conflict,
    "file_already_exists": e.Conflict,
    "directory_not_empty": e.Conflict,
    "idempotency_key_reused": e.Conflict,
    "busy_writer": e.Conflict,
    "read_only": e.Conflict,
    "mount_point": e.Conflict,
    "stale_generation": e.Conflict,
    "wrong_state": e.Conflict,
    "not_quiesced": e.Conflict,
    "workspace_already_exists": e.Conflict,
    "outcome_unknown": e.DormouseError,
    "disk_corrupt": e.DormouseError,
    "io_error": e.DormouseError,
    "internal": e.DormouseError,
}

_BY_CODE: dict[str, type[e.DormouseError]] = {
    "INVALID_ARGUMENT": e.InvalidRequest,
    "OUT_OF_RANGE": e.InvalidRequest,
    "NOT_FOUND": e.NotFound,
    "ALREADY_EXISTS": e.Conflict,
    "FAILED_PRECONDITION": e.Conflict,
    "ABORTED": e.Conflict,
    "PERMISSION_DENIED": e.PolicyDenied,
    "UNAUTHENTICATED": e.Unauthenticated,
    "UNIMPLEMENTED": e.HostFeatureUnavailable,
    "UNAVAILABLE": e.DependencyUnavailable,
    "DEADLINE_EXCEEDED": e.DeadlineExceeded,
    # A library's or proxy's own refusal of a message's size or a call's rate.
    "RESOURCE_EXHAUSTED": e.LimitExceeded,
}

# The API's code of a class, for a status that brings none.
_CODES: dict[type[e.DormouseError], str] = {
    e.InvalidRequest: "invalid_argument",
    e.NotFound: "not_found",
    e.Conflict: "conflict",
    e.PolicyDenied: "permission_denied",
    e.Unauthenticated: "unauthenticated",
    e.HostFeatureUnavailable: "conflict",
    e.DependencyUnavailable: "dependency_unavailable",
    e.DeadlineExceeded: "timeout",
    e.LimitExceeded: "payload_too_large",
}


@dataclass(frozen=True)
class Status:
    """What a gRPC library knows of a call that failed."""

    code: str
    message: str = ""
    details: bytes = b""
    pushback: str | None = None
    request_id: str | None = None


def error_of(method: Method, status: Status) -> e.DormouseError:
    """The error that a status of a call to `method` means."""
    info: status_pb2.ErrorInfo | None = None
    retry_after: float | None = None
    request_id = status.request_id
    for detail in _details(status.details):
        if isinstance(detail, status_pb2.ErrorInfo):
            if detail.domain == DOMAIN and info is None:
                info = detail
        elif isinstance(detail, status_pb2.RetryInfo):
            retry_after = max(0.0, detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9)
        elif detail.request_id:
            request_id = detail.request_id

    never = False
    if status.pushback is not None:
        if status.pushback.isascii() and status.pushback.isdigit():
            retry_after = int(status.pushback) / 1000 if retry_after is None else retry_after
        else:
            never = True

    metadata = dict(info.metadata) if info else {}
    reason = info.reason.lower() if info else ""
    message = status.message
    if info is None and status.code == "UNIMPLEMENTED":
        # What a host without the method would have said, had it known how.
        reason = "host_feature_unavailable"
        message = f"this host does not know {method.name} ({method.feature})"
        metadata = {
            "code": "conflict",
            "reason": reason,
            "retryable": "false",
            "http_status": "409",
            "feature": method.feature,
        }
    if info is None and status.code == "DEADLINE_EXCEEDED":
        # Whether this side's clock or the transport's notices first must not change what the caller is told.
        reason = "deadline_exceeded"
    kind = _BY_REASON.get(reason) or _BY_CODE.get(status.code, e.DormouseError)
    said = metadata.get("retryable")
    if never or said == "false":
        retryable = False
    else:
        retryable = said == "true" or retry_after is not None or status.code == "UNAVAILABLE"
    return kind(
        message or f"the call failed with {status.code}",
        code=metadata.get("code") or _CODES.get(kind, "internal"),
        reason=reason,
        details=metadata,
        retryable=retryable,
        request_id=request_id,
        retry_after=retry_after,
        grpc_code=status.code,
    )


def _details(data: bytes) -> list[status_pb2.ErrorInfo | status_pb2.RetryInfo | status_pb2.RequestInfo]:
    found: list[status_pb2.ErrorInfo | status_pb2.RetryInfo | status_pb2.RequestInfo] = []
    try:
        for detail in status_pb2.Status.FromString(data).details:
            name = detail.type_url.rpartition("/")[2]
            if name == "google.rpc.ErrorInfo":
                found.append(status_pb2.ErrorInfo.FromString(detail.value))
            elif name == "google.rpc.RetryInfo":
                found.append(status_pb2.RetryInfo.FromString(detail.value))
            elif name == "google.rpc.RequestInfo":
                found.append(status_pb2.RequestInfo.FromString(detail.value))
    except DecodeError:
        # Trailers that do not parse say nothing; the status itself still counts.
        return found
    return found


def broken_answer(method: Method, fact: str) -> e.DormouseError:
    """An answer that contradicts itself."""
    return e.DormouseError(f"the answer to {method.name} does not hold together: {fact}", grpc_code="DATA_LOSS")


def broken_off(method: Method) -> e.DependencyUnavailable:
    """A stream that ended without its last message."""
    return e.DependencyUnavailable(
        f"the answer to {method.name} broke off before its end",
        code="dependency_unavailable",
        retryable=True,
        grpc_code="UNAVAILABLE",
    )


def deadline_passed(method: Method) -> e.DeadlineExceeded:
    """The caller's deadline passed on this side."""
    return e.DeadlineExceeded(
        f"no answer to {method.name} within the caller's deadline",
        code="timeout",
        reason="deadline_exceeded",
        grpc_code="DEADLINE_EXCEEDED",
    )


def invalid(message: str, field: str) -> e.InvalidRequest:
    """A request that is refused before it is sent, in the contract's words."""
    details = {
        "code": "invalid_argument",
        "reason": "invalid_request",
        "retryable": "false",
        "http_status": "400",
        "field": field,
    }
    return e.InvalidRequest(
        message, code="invalid_argument", reason="invalid_request", details=details, grpc_code="INVALID_ARGUMENT"
    )


def request_too_large(size_bytes: int, limit_bytes: int) -> e.LimitExceeded:
    """A request larger than any host takes, found before it was sent."""
    details = {
        "code": "payload_too_large",
        "reason": "request_too_large",
        "retryable": "false",
        "http_status": "413",
        "size_bytes": str(size_bytes),
        "limit_bytes": str(limit_bytes),
    }
    return e.LimitExceeded(
        f"the request has {size_bytes} bytes, a host takes {limit_bytes}; send larger content with write",
        code="payload_too_large",
        reason="request_too_large",
        details=details,
        grpc_code="INVALID_ARGUMENT",
    )
