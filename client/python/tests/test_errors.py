"""From a status to a typed error."""

from __future__ import annotations

import pickle
from typing import Any

import grpc
import pytest

import dormouse
from dormouse._methods import FILES
from dormouse._status import _BY_REASON, Status, error_of
from dormouse.files.v1 import files_pb2
from fake import Refusal


def told(status: str, reason: str, method: str = "Patch", /, **more: Any) -> dormouse.DormouseError:
    refusal = Refusal(grpc.StatusCode[status], reason, **more)
    trailers = dict(refusal.trailers)
    return error_of(
        FILES[method],
        Status(status, "no", trailers.get("grpc-status-details-bin", b""), trailers.get("grpc-retry-pushback-ms")),
    )


def test_typed_errors_carry_what_the_contract_names() -> None:
    mismatch = told("ABORTED", "REVISION_MISMATCH", code="conflict", retryable="false", actual_revision="ab" * 32)
    assert isinstance(mismatch, dormouse.RevisionMismatch)
    assert (mismatch.current, mismatch.code, mismatch.reason) == ("ab" * 32, "conflict", "revision_mismatch")
    assert not mismatch.retryable
    many = told("FAILED_PRECONDITION", "EDIT_NOT_UNIQUE", occurrences="3", lines="4, 9,12", edit_index="0")
    assert isinstance(many, dormouse.EditNotUnique)
    assert (many.lines, many.occurrences, many.edit_index) == ([4, 9, 12], 3, 0)
    none = told("FAILED_PRECONDITION", "EDIT_NO_MATCH", nearest_line="7", cause="crlf", edit_index="1")
    assert isinstance(none, dormouse.EditNoMatch)
    assert (none.nearest_line, none.cause, none.edit_index) == (7, "crlf", 1)
    large = told("INVALID_ARGUMENT", "REQUEST_TOO_LARGE", limit_bytes="7340032")
    assert isinstance(large, dormouse.LimitExceeded) and large.limit_bytes == 7340032
    assert isinstance(told("PERMISSION_DENIED", "WRITE_POLICY_DENIED"), dormouse.PolicyDenied)
    asleep = told("FAILED_PRECONDITION", "OFFLINE_BUDGET", "Read")
    assert isinstance(asleep, dormouse.WorkspaceNotRunning) and asleep.reason == "offline_budget"
    assert isinstance(told("UNAVAILABLE", "OFFLINE_CHANGED"), dormouse.DependencyUnavailable)
    missing = told("UNIMPLEMENTED", "HOST_FEATURE_UNAVAILABLE", feature="file_patch")
    assert isinstance(missing, dormouse.HostFeatureUnavailable) and missing.feature == "file_patch"


def test_a_number_that_is_none_is_no_number() -> None:
    odd = told("FAILED_PRECONDITION", "EDIT_NO_MATCH", nearest_line="-1", edit_index="x")
    assert isinstance(odd, dormouse.EditNoMatch)
    assert (odd.nearest_line, odd.edit_index) == (None, None)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", dormouse.DependencyUnavailable),
        ("NOT_FOUND", dormouse.NotFound),
        ("OUT_OF_RANGE", dormouse.InvalidRequest),
        ("INTERNAL", dormouse.DormouseError),
        ("ABORTED", dormouse.Conflict),
    ],
)
def test_a_bare_status_is_read_by_its_code(code: str, kind: type[Exception]) -> None:
    assert type(told(code, "")) is kind


@pytest.mark.parametrize(("method", "feature"), [("Search", "file_search"), ("Patch", "file_patch"), ("Move", "file_write")])
def test_a_bare_unimplemented_names_the_methods_feature(method: str, feature: str) -> None:
    error = told("UNIMPLEMENTED", "", method)
    assert isinstance(error, dormouse.HostFeatureUnavailable)
    assert (error.feature, error.reason, error.code, error.retryable) == (
        feature,
        "host_feature_unavailable",
        "conflict",
        False,
    )


def test_every_reason_of_the_contract_has_a_class() -> None:
    for name in files_pb2.ErrorReason.keys():
        reason = name.removeprefix("ERROR_REASON_").lower()
        assert (reason in _BY_REASON) == (reason != "unspecified"), reason


def test_another_domains_info_is_no_reason_of_ours() -> None:
    error = told("UNAVAILABLE", "FILE_NOT_FOUND", domain="example.com")
    assert (type(error), error.reason) == (dormouse.DependencyUnavailable, "")


def test_garbage_in_the_details_is_no_crash() -> None:
    error = error_of(FILES["Stat"], Status("NOT_FOUND", "no", b"\xff\xff\xff"))
    assert isinstance(error, dormouse.NotFound)


def test_pushback_counts_where_the_detail_is_missing() -> None:
    assert told("UNAVAILABLE", "", pushback="40").retry_after == 0.04
    never = told("UNAVAILABLE", "", pushback="-1")
    assert not never.retryable


def test_errors_pickle() -> None:
    error = told("ABORTED", "REVISION_MISMATCH", actual_revision="absent")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, dormouse.RevisionMismatch)
    assert (again.current, str(again)) == ("absent", str(error))
