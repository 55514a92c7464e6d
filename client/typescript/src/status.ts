// From a failed call to a typed error. By reason first, by gRPC code only where there is no reason, so that a bare status of
// a proxy or an old host still becomes the right class.
import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import * as e from "./errors.js";
import { ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { feature } from "./methods.js";

const DOMAIN = "dormouse.dev";
/** gRPC proposal A6. */
const PUSHBACK_TRAILER = "grpc-retry-pushback-ms";
const REQUEST_ID_TRAILER = "x-request-id";

type Kind = new (message: string, facts?: e.ErrorFacts) => e.DormouseError;

export const BY_REASON: Record<string, Kind> = {
  offline_unavailable: e.WorkspaceNotRunning,
  offline_budget: e.WorkspaceNotRunning,
  workspace_not_running: e.WorkspaceNotRunning,
  workspace_not_found: e.NotFound,
  file_not_found: e.NotFound,
  host_feature_unavailable: e.HostFeatureUnavailable,
  revision_mismatch: e.RevisionMismatch,
  edit_no_match: e.EditNoMatch,
  edit_not_unique: e.EditNotUnique,
  file_too_large: e.LimitExceeded,
  request_too_large: e.LimitExceeded,
  write_policy_denied: e.PolicyDenied,
  workspace_access_denied: e.PolicyDenied,
  file_permission_denied: e.PolicyDenied,
  credentials_required: e.Unauthenticated,
  disk_full: e.StorageFull,
  deadline_exceeded: e.DeadlineExceeded,
  invalid_request: e.InvalidRequest,
  invalid_pattern: e.InvalidRequest,
  path_outside_workspace: e.InvalidRequest,
  range_past_end: e.InvalidRequest,
  offline_changed: e.DependencyUnavailable,
  guest_unreachable: e.DependencyUnavailable,
  workspace_in_transition: e.DependencyUnavailable,
  host_overloaded: e.DependencyUnavailable,
  host_draining: e.DependencyUnavailable,
  workspace_quarantined: e.Conflict,
  not_a_regular_file: e.Conflict,
  not_a_directory: e.Conflict,
  symlink_refused: e.Conflict,
  file_not_utf8: e.Conflict,
  file_already_exists: e.Conflict,
  directory_not_empty: e.Conflict,
  idempotency_key_reused: e.Conflict,
  busy_writer: e.Conflict,
  read_only: e.Conflict,
  mount_point: e.Conflict,
  stale_generation: e.Conflict,
  wrong_state: e.Conflict,
  not_quiesced: e.Conflict,
  workspace_already_exists: e.Conflict,
  outcome_unknown: e.DormouseError,
  disk_corrupt: e.DormouseError,
  io_error: e.DormouseError,
  internal: e.DormouseError,
};

/** The class and the API's code of a status that brings no reason. */
const BY_CODE: Record<string, [Kind, string]> = {
  INVALID_ARGUMENT: [e.InvalidRequest, "invalid_argument"],
  OUT_OF_RANGE: [e.InvalidRequest, "invalid_argument"],
  NOT_FOUND: [e.NotFound, "not_found"],
  ALREADY_EXISTS: [e.Conflict, "conflict"],
  FAILED_PRECONDITION: [e.Conflict, "conflict"],
  ABORTED: [e.Conflict, "conflict"],
  PERMISSION_DENIED: [e.PolicyDenied, "permission_denied"],
  UNAUTHENTICATED: [e.Unauthenticated, "unauthenticated"],
  UNIMPLEMENTED: [e.HostFeatureUnavailable, "conflict"],
  UNAVAILABLE: [e.DependencyUnavailable, "dependency_unavailable"],
  DEADLINE_EXCEEDED: [e.DeadlineExceeded, "timeout"],
  // A library's or proxy's own refusal of a message's size or a call's rate.
  RESOURCE_EXHAUSTED: [e.LimitExceeded, "payload_too_large"],
};

const NAMES: Record<number, string> = {
  [Code.Canceled]: "CANCELLED",
  [Code.Unknown]: "UNKNOWN",
  [Code.InvalidArgument]: "INVALID_ARGUMENT",
  [Code.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [Code.NotFound]: "NOT_FOUND",
  [Code.AlreadyExists]: "ALREADY_EXISTS",
  [Code.PermissionDenied]: "PERMISSION_DENIED",
  [Code.ResourceExhausted]: "RESOURCE_EXHAUSTED",
  [Code.FailedPrecondition]: "FAILED_PRECONDITION",
  [Code.Aborted]: "ABORTED",
  [Code.OutOfRange]: "OUT_OF_RANGE",
  [Code.Unimplemented]: "UNIMPLEMENTED",
  [Code.Internal]: "INTERNAL",
  [Code.Unavailable]: "UNAVAILABLE",
  [Code.DataLoss]: "DATA_LOSS",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
};

/** Codes that the transport gives to a connection that ended under a call. */
const LOST = new Set([Code.Canceled, Code.Aborted, Code.Unknown, Code.Internal]);

/** The gRPC code. One that no host sent, but the transport made up for a lost connection, is UNAVAILABLE. */
function effectiveCode(error: ConnectError): string {
  const name = NAMES[error.code] ?? "UNKNOWN";
  if (error.metadata.has("grpc-status") || error.metadata.has("grpc-status-details-bin") || !LOST.has(error.code)) {
    return name;
  }
  const lost =
    error.code !== Code.Internal ||
    isNodeError(error.cause) ||
    /^http\/2 stream closed|missing (status|trailer)|sentinel completed early|premature/i.test(error.rawMessage);
  return lost ? "UNAVAILABLE" : name;
}

function isNodeError(cause: unknown): boolean {
  return cause instanceof Error && typeof (cause as NodeJS.ErrnoException).code === "string";
}

/** The error that a failed call to `method` means. */
export function errorOf(method: DescMethod, failure: unknown): e.DormouseError {
  if (failure instanceof e.DormouseError) return failure;
  const error = ConnectError.from(failure);
  const grpcCode = effectiveCode(error);
  const info = error.findDetails(ErrorInfoSchema).find((found) => found.domain === DOMAIN);
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  let retryAfterMs = delay && Math.max(0, Number(delay.seconds) * 1000 + delay.nanos / 1e6);
  const pushback = error.metadata.get(PUSHBACK_TRAILER);
  const pushbackMs = pushback !== null && /^[0-9]{1,9}$/.test(pushback) ? Number(pushback) : undefined;
  // A value that is no number of milliseconds means: do not retry.
  const never = pushback !== null && pushbackMs === undefined;
  retryAfterMs ??= pushbackMs;

  let details: Record<string, string> = { ...info?.metadata };
  let reason = info?.reason.toLowerCase() ?? "";
  let message = error.rawMessage;
  if (info === undefined && grpcCode === "UNIMPLEMENTED") {
    // What a host without the method would have said, had it known how.
    reason = "host_feature_unavailable";
    message = `this host does not know ${method.name} (${feature(method)})`;
    details = { code: "conflict", reason, retryable: "false", http_status: "409", feature: feature(method) };
  }
  // Whether this side's clock or the transport's notices first must not change what the caller is told.
  if (info === undefined && grpcCode === "DEADLINE_EXCEEDED") reason = "deadline_exceeded";
  const [kindOfCode, codeOfCode] = BY_CODE[grpcCode] ?? [e.DormouseError, "internal"];
  const said = details["retryable"];
  const retryable =
    !never && said !== "false" && (said === "true" || retryAfterMs !== undefined || grpcCode === "UNAVAILABLE");
  return new (BY_REASON[reason] ?? kindOfCode)(message || `the call failed with ${grpcCode}`, {
    code: details["code"] ?? codeOfCode,
    reason,
    details,
    retryable,
    requestId: error.findDetails(RequestInfoSchema)[0]?.requestId || (error.metadata.get(REQUEST_ID_TRAILER) ?? undefined),
    retryAfterMs,
    grpcCode,
    cause: error.cause ?? undefined,
  });
}

/** An answer that contradicts itself. */
export function brokenAnswer(method: DescMethod, fact: string): e.DormouseError {
  return new e.DormouseError(`the answer to ${method.name} does not hold together: ${fact}`, { grpcCode: "DATA_LOSS" });
}

/** A stream that ended without its last message. */
export function brokenOff(method: DescMethod): e.DependencyUnavailable {
  return new e.DependencyUnavailable(`the answer to ${method.name} broke off before its end`, {
    code: "dependency_unavailable",
    retryable: true,
    grpcCode: "UNAVAILABLE",
  });
}

/** The caller's deadline passed on this side. */
export function deadlinePassed(method: DescMethod): e.DeadlineExceeded {
  return new e.DeadlineExceeded(`no answer to ${method.name} within the caller's deadline`, {
    code: "timeout",
    reason: "deadline_exceeded",
    grpcCode: "DEADLINE_EXCEEDED",
  });
}

/** The file is not the one that the read began with. */
export function changedWhileRead(cause?: unknown): e.ChangedWhileRead {
  return new e.ChangedWhileRead("the file changed while it was read; read it again from the start", {
    code: "conflict",
    reason: "revision_mismatch",
    grpcCode: "ABORTED",
    cause,
  });
}

/** A read that broke where the host had named no etag. */
export function cannotResume(cause: unknown): e.DependencyUnavailable {
  return new e.DependencyUnavailable(
    "the read broke off, and this host gives no etag to resume it by; read again from the start",
    { code: "dependency_unavailable", retryable: true, grpcCode: "UNAVAILABLE", cause },
  );
}

/** A request that is refused before it is sent, in the contract's words. */
export function invalid(message: string, field: string): e.InvalidRequest {
  return new e.InvalidRequest(message, {
    code: "invalid_argument",
    reason: "invalid_request",
    details: { code: "invalid_argument", reason: "invalid_request", retryable: "false", http_status: "400", field },
    grpcCode: "INVALID_ARGUMENT",
  });
}

/** A request larger than any host takes, found before it was sent. */
export function requestTooLarge(sizeBytes: number, limitBytes: number): e.LimitExceeded {
  const message = `the request has ${sizeBytes} bytes, a host takes ${limitBytes}; send larger content with write`;
  return new e.LimitExceeded(message, {
    code: "payload_too_large",
    reason: "request_too_large",
    details: {
      code: "payload_too_large",
      reason: "request_too_large",
      retryable: "false",
      http_status: "413",
      size_bytes: String(sizeBytes),
      limit_bytes: String(limitBytes),
    },
    grpcCode: "INVALID_ARGUMENT",
  });
}
