"""The retry table, row by row, without any I/O."""

from __future__ import annotations

import pytest

from dormouse._methods import FILES, HOST, Effect
from dormouse._retry import Again, Attempt, RetryPolicy, Step, Verdict, decide
from dormouse._status import Status, error_of
from fake import Refusal
import grpc

PATCH = FILES["Patch"]


def error(code: str, reason: str = "", retry_after: float | None = None):  # type: ignore[no-untyped-def]
    refusal = Refusal(grpc.StatusCode[code], reason, retry_after=retry_after)
    details = dict(refusal.trailers).get("grpc-status-details-bin", b"")
    return error_of(PATCH, Status(code, details=details))


def first(**changes: object) -> Attempt:
    values: dict[str, object] = {"failed": 1, "elapsed": 0.0, "remaining": None, "can_wake": True, "random": 0.5}
    return Attempt(**{**values, **changes})  # type: ignore[arg-type]


def check(failure: object, attempt: Attempt, expect: Step) -> None:
    for effect in (Effect.SAFE, Effect.IDEMPOTENT):
        step = decide(RetryPolicy(), effect, failure, attempt)  # type: ignore[arg-type]
        if isinstance(expect, Again):
            assert isinstance(step, Again) and step.after == pytest.approx(expect.after), attempt
        else:
            assert step is expect, attempt
    assert decide(RetryPolicy(), Effect.UNKNOWN, failure, attempt) is Verdict.STOP  # type: ignore[arg-type]


def test_unavailable_backs_off_by_doubling_and_at_most_five_attempts() -> None:
    down = error("UNAVAILABLE")
    for failed, gap in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8)):
        check(down, first(failed=failed), Again(gap))
    check(down, first(failed=5), Verdict.STOP)
    for reason in ("GUEST_UNREACHABLE", "HOST_OVERLOADED", "HOST_DRAINING"):
        check(error("UNAVAILABLE", reason), first(), Again(0.1))


def test_jitter_spreads_a_fifth_to_both_sides() -> None:
    down = error("UNAVAILABLE")
    check(down, first(random=0.0), Again(0.08))
    check(down, first(random=1.0), Again(0.12))


def test_the_hosts_wish_wins() -> None:
    busy = error("UNAVAILABLE", "HOST_OVERLOADED", 1.7)
    check(busy, first(failed=3), Again(1.7))
    check(busy, first(failed=5), Verdict.STOP)
    check(error("ABORTED", "BUSY_WRITER", 0.05), first(), Again(0.05))


def test_the_callers_deadline_ends_it() -> None:
    down = error("UNAVAILABLE")
    check(down, first(remaining=0.101), Again(0.1))
    check(down, first(remaining=0.1), Verdict.STOP)
    check(down, first(remaining=0.0), Verdict.STOP)
    check(error("FAILED_PRECONDITION", "WORKSPACE_NOT_RUNNING"), first(remaining=0.0), Verdict.STOP)


def test_an_attempts_time_out_is_tried_again_while_there_is_time() -> None:
    late = error("DEADLINE_EXCEEDED")
    check(late, first(remaining=5.0), Again(0.1))
    check(late, first(remaining=0.0), Verdict.STOP)
    check(late, first(failed=5), Verdict.STOP)


@pytest.mark.parametrize("reason", ["OFFLINE_CHANGED", "WORKSPACE_IN_TRANSITION"])
def test_a_transition_is_waited_out_in_short_gaps(reason: str) -> None:
    moving = error("UNAVAILABLE", reason)
    check(moving, first(), Again(0.1))
    check(moving, first(failed=40, elapsed=20.0), Again(1.0))
    check(moving, first(failed=40, elapsed=29.5), Verdict.STOP)
    check(moving, first(failed=90, elapsed=60.0, remaining=1.5), Again(1.0))
    check(moving, first(failed=90, elapsed=60.0, remaining=0.9), Verdict.STOP)
    check(error("UNAVAILABLE", reason, 9.0), first(), Again(1.0))


@pytest.mark.parametrize("reason", ["WORKSPACE_NOT_RUNNING", "OFFLINE_UNAVAILABLE", "OFFLINE_BUDGET"])
def test_a_workspace_that_does_not_run_is_woken_once(reason: str) -> None:
    asleep = error("FAILED_PRECONDITION", reason)
    check(asleep, first(failed=9), Verdict.WAKE)
    check(asleep, first(can_wake=False), Verdict.STOP)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNIMPLEMENTED", ""),
        ("UNIMPLEMENTED", "HOST_FEATURE_UNAVAILABLE"),
        ("ABORTED", "REVISION_MISMATCH"),
        ("FAILED_PRECONDITION", "EDIT_NO_MATCH"),
        ("FAILED_PRECONDITION", "EDIT_NOT_UNIQUE"),
        ("PERMISSION_DENIED", "WRITE_POLICY_DENIED"),
        ("PERMISSION_DENIED", "WORKSPACE_ACCESS_DENIED"),
        ("UNAUTHENTICATED", "CREDENTIALS_REQUIRED"),
        ("NOT_FOUND", "FILE_NOT_FOUND"),
        ("NOT_FOUND", "WORKSPACE_NOT_FOUND"),
        ("INVALID_ARGUMENT", "INVALID_REQUEST"),
        ("INVALID_ARGUMENT", "IDEMPOTENCY_KEY_REUSED"),
        ("FAILED_PRECONDITION", "WORKSPACE_QUARANTINED"),
        ("RESOURCE_EXHAUSTED", "DISK_FULL"),
        ("UNKNOWN", "OUTCOME_UNKNOWN"),
        ("INTERNAL", "INTERNAL"),
        ("DATA_LOSS", "DISK_CORRUPT"),
        ("INTERNAL", ""),
        ("CANCELLED", ""),
        ("RESOURCE_EXHAUSTED", ""),
    ],
)
def test_a_refusal_that_would_recur_is_never_sent_again(code: str, reason: str) -> None:
    check(error(code, reason), first(), Verdict.STOP)


def test_the_contract_says_what_may_be_repeated() -> None:
    safe = {"GetCapabilities", "Stat", "Read", "List", "Search"}
    changes = {"Patch", "Write", "Remove", "Move", "MakeDirectory"}
    assert {name for name, method in FILES.items() if method.effect is Effect.SAFE} == safe
    assert {name for name, method in FILES.items() if method.effect is Effect.IDEMPOTENT} == changes
    assert all(method.effect is not Effect.UNKNOWN for method in HOST.values())
    assert FILES["Search"].feature == "file_search"
    assert FILES["Move"].feature == "file_write"
    assert FILES["GetCapabilities"].feature == "get_capabilities"
