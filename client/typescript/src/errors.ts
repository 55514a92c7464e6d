// The errors of this library: what a host said, or what happened on the way to it. Branch on the class, or on `reason` and
// `code`; the message is for people. Nothing here decides about another attempt.

/** What is known of a failed call. */
export interface ErrorFacts {
  /** The API's code, such as "conflict" or "not_found". */
  code?: string;
  /** The contract's reason in lower case, such as "revision_mismatch"; empty where none came. */
  reason?: string;
  /** The metadata that came with the reason. */
  details?: Record<string, string>;
  /** The same call may succeed later. */
  retryable?: boolean;
  /** Names the call in the host's log, where the host named it. */
  requestId?: string | undefined;
  /** Milliseconds that the host asked to wait before another attempt. */
  retryAfterMs?: number | undefined;
  /** The gRPC code; a connection that was lost counts as UNAVAILABLE. */
  grpcCode?: string;
  /** What lies under it. */
  cause?: unknown;
}

/** A call that failed: the base of every error that a call throws; itself thrown for defects and failing disks. */
export class DormouseError extends Error {
  readonly code: string;
  readonly reason: string;
  readonly details: Record<string, string>;
  readonly retryable: boolean;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly grpcCode: string;
  /** How many attempts were made; 0 when nothing was sent. */
  attempts = 0;
  /** Why the workspace could not be woken, when that was tried and failed; the waker's own error is `cause`. */
  wakeFailure: string | undefined;

  constructor(message: string, facts: ErrorFacts = {}) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code ?? "internal";
    this.reason = facts.reason ?? "";
    this.details = { ...facts.details };
    this.retryable = facts.retryable ?? false;
    this.requestId = facts.requestId;
    this.retryAfterMs = facts.retryAfterMs;
    this.grpcCode = facts.grpcCode ?? "INTERNAL";
  }

  /** A number among the details. */
  protected number(key: string): number | undefined {
    const text = this.details[key] ?? "";
    return /^[0-9]{1,15}$/.test(text) ? Number(text) : undefined;
  }
}

/** No such workspace on this host, or no such file in it: `reason` tells which. */
export class NotFound extends DormouseError {}

/** The state of the file, the workspace or the key does not allow the call. */
export class Conflict extends DormouseError {}

/** The file's revision is another one than expected. */
export class RevisionMismatch extends Conflict {
  /** The revision now; "absent" where there is no file; undefined where the host does not say. */
  get current(): string | undefined {
    return this.details["actual_revision"];
  }
}

/** An edit's old text does not occur in the file. */
export class EditNoMatch extends Conflict {
  /** 0-based. */
  get editIndex(): number | undefined {
    return this.number("edit_index");
  }
  /** The 1-based line that comes nearest. */
  get nearestLine(): number | undefined {
    return this.number("nearest_line");
  }
  /** That line. */
  get nearestText(): string | undefined {
    return this.details["nearest_text"];
  }
  /** Why it fails there, such as "indentation" or "line_number_prefix". */
  get why(): string | undefined {
    return this.details["cause"];
  }
}

/** An edit's old text occurs more than once. */
export class EditNotUnique extends Conflict {
  /** 0-based. */
  get editIndex(): number | undefined {
    return this.number("edit_index");
  }
  /** How often it occurs. */
  get occurrences(): number | undefined {
    return this.number("occurrences");
  }
  /** The 1-based lines of the first places. */
  get lines(): number[] {
    return (this.details["lines"] ?? "").match(/[0-9]{1,15}/g)?.map(Number) ?? [];
  }
}

/** The file changed while its broken read was resumed; what was received belongs to its old content. */
export class ChangedWhileRead extends Conflict {}

/** The request itself is wrong. */
export class InvalidRequest extends DormouseError {
  /** The field, where one is named. */
  get field(): string | undefined {
    return this.details["field"];
  }
}

/** The request or the file is too large. */
export class LimitExceeded extends DormouseError {
  /** The limit that was met, where it is named. */
  get limitBytes(): number | undefined {
    return this.number("limit_bytes");
  }
}

/** The caller may not do this. */
export class PolicyDenied extends DormouseError {}

/** The caller did not say who it is. */
export class Unauthenticated extends DormouseError {}

/**
 * The call needs a running workspace: wake it, then call again. `reason` is "workspace_not_running" for a change, and
 * "offline_unavailable" or "offline_budget" for a read that the disk cannot answer.
 */
export class WorkspaceNotRunning extends DormouseError {}

/** The host is too old for the call, or does not offer it. It is never tried again: use another way. */
export class HostFeatureUnavailable extends DormouseError {
  /** Such as "file_search". */
  get feature(): string {
    return this.details["feature"] ?? "";
  }
}

/** The host or the workspace's own agent cannot be reached, is busy, or is changing its state; retries were used up. */
export class DependencyUnavailable extends DormouseError {}

/** The caller's own deadline passed. */
export class DeadlineExceeded extends DormouseError {}

/** The workspace's disk is full; nothing was changed. */
export class StorageFull extends DormouseError {}
