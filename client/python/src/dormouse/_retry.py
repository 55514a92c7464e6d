"""Whether a failed call is made again, and when. Pure: it is told what failed, how often and for how long, and a random
number; it knows no clock and does no I/O.

| the failure | then |
|---|---|
| offline_changed, workspace_in_transition | again until the deadline, or 30 s; gaps of at most 1 s |
| workspace_not_running, offline_unavailable, offline_budget | wake once, then again; without a waker: stop |
| the host says never (feature, revision, edit, policy, shape) | stop |
| any other UNAVAILABLE, an attempt's own time-out, a host's RetryInfo | back off, at most 5 attempts |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Union

from dormouse import errors as e
from dormouse._methods import Effect


@dataclass(frozen=True)
class RetryPolicy:
    """The numbers of the rules, in seconds."""

    # Before the second attempt; doubled before each further one.
    backoff: float = 0.1
    # No gap of the back-off is longer. A host's own wish may be.
    backoff_max: float = 5.0
    # Attempts in all, the first one included. 1 turns retries off, but for a wake and a transition.
    attempts_max: int = 5
    # How long a workspace's transition is waited out when the caller has no deadline.
    transition: float = 30.0
    # The longest gap while a transition is waited out.
    transition_gap_max: float = 1.0


@dataclass(frozen=True)
class Attempt:
    """What is known about a call when one of its attempts has failed."""

    # Failed attempts since the call began or last made progress; at least 1.
    failed: int
    # Seconds since then.
    elapsed: float
    # Seconds left of the caller's deadline; None where the caller set none.
    remaining: float | None
    # The caller gave a way to wake the workspace that this call has not used.
    can_wake: bool
    # Evenly spread over 0 to 1.
    random: float


@dataclass(frozen=True)
class Again:
    """Make another attempt after this many seconds."""

    after: float


class Verdict(enum.Enum):
    """What else may be done about a failed attempt."""

    # Wake the workspace, then make another attempt at once.
    WAKE = "wake"
    # Give the error to the caller.
    STOP = "stop"


Step = Union[Again, Verdict]

_TRANSITION = ("offline_changed", "workspace_in_transition")
_WAKE = ("workspace_not_running", "offline_unavailable", "offline_budget")
_NEVER = (
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
)


def decide(policy: RetryPolicy, effect: Effect, error: e.DormouseError, attempt: Attempt) -> Step:
    """The rule for one failure of a call whose repetition has `effect`."""
    if effect is Effect.UNKNOWN or (attempt.remaining is not None and attempt.remaining <= 0):
        return Verdict.STOP
    if error.reason in _WAKE:
        return Verdict.WAKE if attempt.can_wake else Verdict.STOP
    backoff = _backoff(policy, attempt) if error.retry_after is None else error.retry_after
    if error.reason in _TRANSITION:
        wait = min(backoff, policy.transition_gap_max)
        if attempt.remaining is None and attempt.elapsed + wait > policy.transition:
            return Verdict.STOP
    elif _may_recover(error) and attempt.failed < policy.attempts_max:
        wait = backoff
    else:
        return Verdict.STOP
    # An attempt that could only begin when the caller has given up would change the answer to a time-out.
    if attempt.remaining is not None and wait >= attempt.remaining:
        return Verdict.STOP
    return Again(wait)


def _may_recover(error: e.DormouseError) -> bool:
    if isinstance(error, e.DeadlineExceeded):
        # With time left it was the attempt's own time-out.
        return True
    if isinstance(error, _NEVER) or not error.retryable:
        return False
    return error.grpc_code == "UNAVAILABLE" or error.retry_after is not None


def _backoff(policy: RetryPolicy, attempt: Attempt) -> float:
    """`backoff * 2^(failed - 1)`, bounded, spread by a fifth to both sides (gRPC proposal A6)."""
    doublings = min(max(attempt.failed - 1, 0), 20)
    gap = min(policy.backoff * 2.0**doublings, policy.backoff_max)
    return gap * (0.8 + 0.4 * min(max(attempt.random, 0.0), 1.0))
