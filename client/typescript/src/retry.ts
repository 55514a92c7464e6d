// Whether a failed call is made again, and when. Pure: it is told what failed, how often and for how long, and a random
// number; it knows no clock and does no I/O.
//
// | the failure | then |
// |---|---|
// | offline_changed, workspace_in_transition | again until the deadline, or 30 s; gaps of at most 1 s |
// | workspace_not_running, offline_unavailable, offline_budget | wake once, then again; without a waker: stop |
// | the host says never (feature, revision, edit, policy, shape) | stop |
// | any other UNAVAILABLE, an attempt's own time-out, a host's RetryInfo | back off, at most 5 attempts |
import * as e from "./errors.js";
import type { Effect } from "./methods.js";

/** The numbers of the rules. */
export interface RetryPolicy {
  /** Milliseconds before the second attempt; doubled before each further one. */
  backoffMs: number;
  /** No gap of the back-off is longer. A host's own wish may be. */
  backoffMaxMs: number;
  /** Attempts in all, the first one included. 1 turns retries off, but for a wake and a transition. */
  attemptsMax: number;
  /** How long a workspace's transition is waited out when the caller has no deadline. */
  transitionMs: number;
  /** The longest gap while a transition is waited out. */
  transitionGapMaxMs: number;
}

/** The contract's own numbers. */
export const DEFAULT_POLICY: Readonly<RetryPolicy> = {
  backoffMs: 100,
  backoffMaxMs: 5_000,
  attemptsMax: 5,
  transitionMs: 30_000,
  transitionGapMaxMs: 1_000,
};

/** What is known about a call when one of its attempts has failed. */
export interface Attempt {
  /** Failed attempts since the call began or last made progress; at least 1. */
  failed: number;
  /** Milliseconds since then. */
  elapsedMs: number;
  /** Milliseconds left of the caller's deadline; undefined where the caller set none. */
  remainingMs: number | undefined;
  /** The caller gave a way to wake the workspace that this call has not used. */
  canWake: boolean;
  /** Evenly spread over 0 to 1. */
  random: number;
}

/** What to do about a failed attempt: make another one after a time; wake first, then make another; or give it up. */
export type Step = { again: number } | "wake" | "stop";

const TRANSITION = new Set(["offline_changed", "workspace_in_transition"]);
const WAKE = new Set(["workspace_not_running", "offline_unavailable", "offline_budget"]);
const NEVER = [
  e.HostFeatureUnavailable,
  e.RevisionMismatch,
  e.EditNoMatch,
  e.EditNotUnique,
  e.PolicyDenied,
  e.Unauthenticated,
  e.NotFound,
  e.InvalidRequest,
  e.LimitExceeded,
  e.ChangedWhileRead,
];

/** The rule for one failure of a call whose repetition has `effect`. */
export function decide(policy: RetryPolicy, effect: Effect, error: e.DormouseError, attempt: Attempt): Step {
  const { remainingMs } = attempt;
  if (effect === "unknown" || (remainingMs !== undefined && remainingMs <= 0)) return "stop";
  if (WAKE.has(error.reason)) return attempt.canWake ? "wake" : "stop";
  let wait = error.retryAfterMs ?? backoff(policy, attempt);
  if (TRANSITION.has(error.reason)) {
    wait = Math.min(wait, policy.transitionGapMaxMs);
    if (remainingMs === undefined && attempt.elapsedMs + wait > policy.transitionMs) return "stop";
  } else if (!mayRecover(error) || attempt.failed >= policy.attemptsMax) {
    return "stop";
  }
  // An attempt that could only begin when the caller has given up would change the answer to a time-out.
  return remainingMs !== undefined && wait >= remainingMs ? "stop" : { again: wait };
}

function mayRecover(error: e.DormouseError): boolean {
  // With time left it was the attempt's own time-out.
  if (error instanceof e.DeadlineExceeded) return true;
  if (!error.retryable || NEVER.some((kind) => error instanceof kind)) return false;
  return error.grpcCode === "UNAVAILABLE" || error.retryAfterMs !== undefined;
}

/** `backoff * 2^(failed - 1)`, bounded, spread by a fifth to both sides (gRPC proposal A6). */
function backoff(policy: RetryPolicy, attempt: Attempt): number {
  const doublings = Math.min(Math.max(attempt.failed - 1, 0), 20);
  const gap = Math.min(policy.backoffMs * 2 ** doublings, policy.backoffMaxMs);
  return gap * (0.8 + 0.4 * Math.min(Math.max(attempt.random, 0), 1));
}
