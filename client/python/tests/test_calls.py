"""Calls over real gRPC to a scripted agent, blocking and asyncio: retries, keys, wakes, resumed streams, refusals."""

from __future__ import annotations

import io
import threading
import time
import uuid
from typing import Any

import grpc
import pytest

import dormouse
from conftest import Make
from dormouse import _crc32c
from dormouse.files.v1 import files_pb2 as pb
from fake import BARE_UNAVAILABLE, BARE_UNIMPLEMENTED, NOT_RUNNING, FakeAgent, Refusal, unavailable

DISK = pb.Origin(served_from=pb.SERVED_FROM_DISK, consistency=pb.CONSISTENCY_EXACT, generation=4)
LIVE = pb.Origin(served_from=pb.SERVED_FROM_WORKSPACE, generation=5)
BROKEN = Refusal(grpc.StatusCode.UNAVAILABLE, message="socket closed")


def info(size: int = 0, etag: str = "e1") -> pb.FileInfo:
    return pb.FileInfo(path="/f", type=pb.FILE_TYPE_REGULAR, size_bytes=size, mode=0o644, etag=etag)


def stat_answer(revision: str | None = None) -> pb.StatResponse:
    answer = pb.StatResponse(file=info(), origin=LIVE)
    if revision is not None:
        answer.file.revision = revision
    return answer


def found(line: int = 1) -> pb.Match:
    return pb.Match(path="/p/a.py", line=line, column=3, end_column=7, text="# TODO")


def search_answer(*lines: int, origin: pb.Origin = LIVE) -> pb.SearchResponse:
    end = pb.SearchEnd(files_scanned=2)
    return pb.SearchResponse(origin=origin, matches=[found(line) for line in lines], end=end)


def patch_answer(**more: Any) -> pb.PatchResponse:
    return pb.PatchResponse(revision="1" * 64, replacements=1, durable=True, file=info(), **more)


def pieces(data: bytes, cuts: tuple[int, ...] = (), start: int = 0, etag: str = "e1", size: int | None = None) -> list[Any]:
    """A whole answer to a Read of `data`, which lies at `start` in the file."""
    bounds = [0, *cuts, len(data)]
    messages: list[Any] = []
    for begin, end in zip(bounds, bounds[1:]):
        messages.append(pb.ReadResponse(offset=start + begin, data=data[begin:end]))
    messages[0].file.CopyFrom(info(start + len(data) if size is None else size, etag))
    messages[0].origin.CopyFrom(LIVE)
    messages[-1].end.CopyFrom(pb.ReadEnd(bytes_sent=len(data), crc32c=_crc32c.extend(0, data)))
    return messages


def until_gone(context: Any) -> None:
    """Returns when the caller has gone: what is answered then reaches nobody."""
    gone = threading.Event()
    assert context.add_callback(gone.set)
    assert gone.wait(30.0)


# ---- retries


def test_a_search_that_fails_twice_is_one_call_with_three_attempts(agent: FakeAgent, files: Any) -> None:
    agent.on("Search", unavailable(), BARE_UNAVAILABLE, search_answer(7))
    hits = files.search("/p", "TODO", include=["*.py"], context_lines=1)
    assert hits["matches"][0]["line"] == 7
    assert (hits["truncated"], hits["stop_reason"], hits["files_scanned"]) == (False, "", 2)
    asked = agent.requests("Search")
    assert len(asked) == 3 and asked[0] == asked[2]
    assert (asked[0].workspace, list(asked[0].include), asked[0].context_lines) == ("w", ["*.py"], 1)
    assert not asked[0].HasField("exclude")


def test_an_old_host_gets_one_attempt(agent: FakeAgent, files: Any) -> None:
    agent.on("Search", BARE_UNIMPLEMENTED)
    with pytest.raises(dormouse.HostFeatureUnavailable) as caught:
        files.search("/p", "TODO")
    assert (caught.value.feature, caught.value.code, caught.value.attempts) == ("file_search", "conflict", 1)
    agent.on("Patch", BARE_UNIMPLEMENTED)
    with pytest.raises(dormouse.HostFeatureUnavailable) as caught:
        files.patch("/f", content=b"x")
    assert caught.value.feature == "file_patch"
    assert len(agent.requests("Patch")) == 1


def test_five_attempts_are_made_and_no_more(agent: FakeAgent, files: Any) -> None:
    agent.on("Stat", *[BARE_UNAVAILABLE] * 5)
    with pytest.raises(dormouse.DependencyUnavailable) as caught:
        files.stat("/f")
    assert caught.value.attempts == 5 and caught.value.retryable
    assert len(agent.requests("Stat")) == 5


def test_a_transition_is_waited_out(agent: FakeAgent, files: Any) -> None:
    agent.on("Read", unavailable("OFFLINE_CHANGED"), *[unavailable("WORKSPACE_IN_TRANSITION")] * 8, pieces(b"abc"))
    result = files.read_with_info("/f")
    assert (result["content"], result["origin"]["served_from"]) == (b"abc", "workspace")
    assert len(agent.requests("Read")) == 10


def test_the_callers_deadline_ends_the_retries(agent: FakeAgent, connect: Make) -> None:
    agent.on("Stat", unavailable(retry_after=30.0))
    begun = time.monotonic()
    with pytest.raises(dormouse.DependencyUnavailable) as caught:
        connect(agent.endpoint).stat("/f", timeout=2.0)
    assert time.monotonic() - begun < 2.0
    assert (caught.value.attempts, caught.value.retry_after) == (1, 30.0)


def test_a_call_that_gets_no_answer_ends_with_its_deadline(agent: FakeAgent, files: Any) -> None:
    def silent(request: Any, context: Any) -> pb.StatResponse:
        until_gone(context)
        return stat_answer()

    agent.on("Stat", silent)
    with pytest.raises(dormouse.DeadlineExceeded):
        files.stat("/f", timeout=0.2)


def test_a_refusal_is_not_sent_again(agent: FakeAgent, files: Any) -> None:
    agent.on("Stat", Refusal(grpc.StatusCode.NOT_FOUND, "FILE_NOT_FOUND", missing="/f", request_id="r-17"))
    with pytest.raises(dormouse.NotFound) as caught:
        files.stat("/f")
    assert (caught.value.reason, caught.value.details["missing"]) == ("file_not_found", "/f")
    assert caught.value.request_id == "r-17"


# ---- changes


def test_every_attempt_of_a_patch_carries_the_same_key(agent: FakeAgent, files: Any) -> None:
    applied: dict[str, pb.PatchResponse] = {}

    def lost(request: pb.PatchRequest, context: Any) -> Any:
        # Applied, and the answer lost on the way back.
        applied[request.idempotency_key] = patch_answer()
        raise BROKEN

    def remembered(request: pb.PatchRequest, context: Any) -> Any:
        answer = applied[request.idempotency_key]
        answer.replayed = True
        return answer

    agent.on("Patch", lost, remembered)
    done = files.patch("/f", edits=[{"old_text": "a", "new_text": "b"}], expected_revision="0" * 64)
    assert (done["replayed"], done["replacements"], done["previous_revision"]) == (True, 1, None)
    first, second = agent.requests("Patch")
    assert first == second and str(uuid.UUID(first.idempotency_key)) == first.idempotency_key
    assert first.expected_revision == "0" * 64


def test_each_call_has_a_key_of_its_own_unless_one_is_given(agent: FakeAgent, files: Any) -> None:
    moved = pb.MoveResponse(file=info())
    agent.on("Move", moved, moved, moved)
    files.move("/a", "/b")
    files.move("/a", "/b")
    files.move("/a", "/b", idempotency_key="mine")
    keys = [request.idempotency_key for request in agent.requests("Move")]
    assert len(set(keys)) == 3 and keys[2] == "mine"


def test_an_attempts_time_out_is_tried_again_with_the_same_key(agent: FakeAgent, connect: Make) -> None:
    def slow(request: Any, context: Any) -> pb.RemoveResponse:
        until_gone(context)
        return pb.RemoveResponse()

    agent.on("Remove", slow, pb.RemoveResponse(durable=True, replayed=True))
    done = connect(agent.endpoint, attempt_timeout=1.5).remove("/f")
    assert done == {"previous_revision": None, "durable": True, "replayed": True}
    first, second = agent.requests("Remove")
    assert first.idempotency_key == second.idempotency_key


def test_a_patch_takes_exactly_one_of_edits_and_content(agent: FakeAgent, files: Any) -> None:
    for arguments in ({}, {"edits": [], "content": b""}):
        with pytest.raises(dormouse.InvalidRequest) as caught:
            files.patch("/f", **arguments)
        assert caught.value.details["field"] == "change"
    assert agent.asked == []


def test_a_misspelt_field_of_an_edit_is_named(files: Any) -> None:
    with pytest.raises(dormouse.InvalidRequest, match=r"`edits\[1\].new_txt`: unknown field"):
        files.patch("/f", edits=[{"old_text": "a", "new_text": "b"}, {"old_text": "a", "new_txt": "b"}])


def test_a_revision_that_the_host_did_not_give_drops_no_guard(agent: FakeAgent, files: Any) -> None:
    agent.on("Stat", stat_answer())
    revision = files.stat("/f", revision=True)["revision"]
    assert revision is None
    with pytest.raises(dormouse.InvalidRequest, match="gave no revision"):
        files.patch("/f", content=b"x", expected_revision=revision)
    assert agent.requests("Patch") == []


def test_a_request_over_seven_mebibytes_is_refused_here(agent: FakeAgent, files: Any) -> None:
    with pytest.raises(dormouse.LimitExceeded) as caught:
        files.patch("/f", content=bytes(7 << 20))
    assert (caught.value.limit_bytes, caught.value.reason, caught.value.attempts) == (7 << 20, "request_too_large", 0)
    agent.on("Patch", patch_answer())
    files.patch("/f", content=bytes((7 << 20) - 100))
    assert len(agent.requests("Patch")) == 1


# ---- wakes


def test_the_waker_is_called_exactly_once(agent: FakeAgent, connect: Make) -> None:
    woken: list[str] = []
    waking = connect(agent.endpoint, waker=woken.append)
    agent.on("Patch", NOT_RUNNING, unavailable("WORKSPACE_IN_TRANSITION"), patch_answer())
    assert waking.patch("/f", content=b"x")["durable"]
    assert woken == ["w"]
    keys = {request.idempotency_key for request in agent.requests("Patch")}
    assert len(keys) == 1
    agent.on("Patch", NOT_RUNNING, NOT_RUNNING)
    with pytest.raises(dormouse.WorkspaceNotRunning):
        waking.patch("/f", content=b"x")
    assert woken == ["w", "w"]


@pytest.mark.parametrize("reason", ["OFFLINE_UNAVAILABLE", "OFFLINE_BUDGET"])
def test_a_read_that_the_disk_cannot_answer_wakes(agent: FakeAgent, connect: Make, reason: str) -> None:
    woken: list[str] = []
    agent.on("Read", Refusal(grpc.StatusCode.FAILED_PRECONDITION, reason), pieces(b"abc"))
    assert connect(agent.endpoint, waker=woken.append).read("/f") == b"abc"
    assert woken == ["w"]


def test_without_a_waker_the_error_is_typed(agent: FakeAgent, files: Any) -> None:
    agent.on("MakeDirectory", NOT_RUNNING)
    with pytest.raises(dormouse.WorkspaceNotRunning) as caught:
        files.make_directory("/d")
    assert (caught.value.reason, caught.value.details["state"]) == ("workspace_not_running", "suspended")


def test_a_failed_wake_tells_both_causes(agent: FakeAgent, connect: Make) -> None:
    def broken(workspace: str) -> None:
        raise OSError(f"no quota to start {workspace}")

    agent.on("Patch", NOT_RUNNING)
    with pytest.raises(dormouse.WorkspaceNotRunning) as caught:
        connect(agent.endpoint, waker=broken).patch("/f", content=b"x")
    assert caught.value.wake_failure == "no quota to start w"
    assert isinstance(caught.value.__cause__, OSError)
    assert "no quota" in str(caught.value) and "fake says no" in str(caught.value)


# ---- reads


def test_a_read_broken_midway_goes_on_where_it_broke(agent: FakeAgent, files: Any) -> None:
    data = bytes(range(256)) * 40
    whole = pieces(data, (4000, 8000))
    agent.on("Read", [*whole[:2], BROKEN], [BROKEN], pieces(data[8000:], start=8000))
    stream = files.read_chunks("/f", expected_revision="0" * 64)
    assert b"".join(stream) == data
    first, *_, last = agent.requests("Read")
    assert first.expected_revision == "0" * 64 and not first.HasField("expected_etag")
    assert last.expected_etag == "e1" and not last.HasField("expected_revision")
    assert (last.byte_range.offset, last.byte_range.length) == (8000, 0)


def test_a_read_that_lost_only_its_end_asks_for_one_byte(agent: FakeAgent, files: Any) -> None:
    whole = pieces(b"abcdef", (3,))
    whole[1].ClearField("end")
    agent.on("Read", [*whole, BROKEN], pieces(b"f", start=5))
    assert files.read("/f") == b"abcdef"
    assert agent.requests("Read")[1].byte_range.offset == 5


def test_a_broken_range_goes_on_to_its_own_end(agent: FakeAgent, files: Any) -> None:
    whole = pieces(b"0123456789", (4,), start=90, size=1000)
    agent.on("Read", [whole[0], BROKEN], pieces(b"456789", start=94, size=1000))
    assert files.read("/f", offset=90, length=10) == b"0123456789"
    again = agent.requests("Read")[1].byte_range
    assert (again.offset, again.length) == (94, 6)


def test_broken_lines_are_asked_for_again_and_skipped(agent: FakeAgent, files: Any) -> None:
    lines = b"three\nfour\nfive\n"
    whole = pieces(lines, (9,), start=20, size=100)
    agent.on("Read", [whole[0], BROKEN], pieces(lines, (6, 12), start=20, size=100))
    assert files.read_text("/f", start_line=3, end_line=5) == lines.decode()
    again = agent.requests("Read")[1]
    assert (again.line_range.start, again.line_range.end, again.expected_etag) == (3, 5, "e1")


@pytest.mark.parametrize(
    "answer",
    [
        pieces(b"XYZ", start=3, etag="e2"),
        Refusal(grpc.StatusCode.ABORTED, "REVISION_MISMATCH", expected_etag="e1", actual_etag="e2"),
    ],
)
def test_a_file_that_changed_meanwhile_is_an_error(agent: FakeAgent, files: Any, answer: Any) -> None:
    agent.on("Read", [pieces(b"abcdef", (3,))[0], BROKEN], answer)
    with pytest.raises(dormouse.ChangedWhileRead):
        files.read("/f")
    assert len(agent.requests("Read")) == 2


def test_a_read_without_an_etag_does_not_guess(agent: FakeAgent, files: Any) -> None:
    agent.on("Read", [pieces(b"abcdef", (3,), etag="")[0], BROKEN])
    with pytest.raises(dormouse.DependencyUnavailable, match="no etag"):
        files.read("/f")


def test_a_stream_without_its_end_is_no_whole(agent: FakeAgent, files: Any) -> None:
    cut = pieces(b"abcdef", (3,))
    agent.on("Read", [cut[0]], pieces(b"def", start=3))
    assert files.read("/f") == b"abcdef"
    assert len(agent.requests("Read")) == 2


def test_a_read_that_fails_for_good_after_its_first_piece_raises(agent: FakeAgent, files: Any) -> None:
    corrupt = Refusal(grpc.StatusCode.DATA_LOSS, "DISK_CORRUPT", retryable="false")
    agent.on("Read", [pieces(b"abcdef", (3,))[0], corrupt])
    stream = files.read_chunks("/f")
    assert next(iter(stream)) == b"abc"
    with pytest.raises(dormouse.DormouseError) as caught:
        next(iter(stream))
    assert caught.value.reason == "disk_corrupt"
    assert stream.end is None


@pytest.mark.parametrize("fault", ["offset", "count", "sum"])
def test_an_answer_that_contradicts_itself_is_refused(agent: FakeAgent, files: Any, fault: str) -> None:
    whole = pieces(b"abcdef", (3,))
    if fault == "offset":
        whole[1].offset = 4
    elif fault == "count":
        whole[1].end.bytes_sent = 7
    elif _crc32c.AVAILABLE:
        whole[1].end.crc32c ^= 1
    else:
        pytest.skip("google-crc32c is not installed")
    agent.on("Read", whole)
    with pytest.raises(dormouse.DormouseError, match="does not hold together"):
        files.read("/f")


def test_an_empty_file_reads(agent: FakeAgent, files: Any) -> None:
    agent.on("Read", pieces(b""))
    assert files.read("/f") == b""


def test_each_piece_counts_as_progress(agent: FakeAgent, files: Any) -> None:
    # Twenty breaks, more than five attempts would allow, but each after a byte.
    for at in range(20):
        agent.on("Read", [pieces(b"x" * (21 - at), (1,), start=at, size=21)[0], BROKEN])
    agent.on("Read", pieces(b"x", start=20))
    assert files.read("/f") == b"x" * 21


# ---- searches and lists


def test_a_search_broken_midway_begins_again_where_nothing_was_handed_out(agent: FakeAgent, files: Any) -> None:
    half = pb.SearchResponse(origin=DISK, matches=[found(1)])
    agent.on("Search", [half, BROKEN], search_answer(1, 2))
    hits = files.search("/p", "TODO")
    assert [match["line"] for match in hits["matches"]] == [1, 2]
    assert hits["origin"]["served_from"] == "workspace"


def test_a_search_that_handed_something_out_does_not_begin_again(agent: FakeAgent, files: Any) -> None:
    agent.on("Search", [BROKEN], [pb.SearchResponse(origin=DISK, matches=[found(1)]), BROKEN])
    stream = files.search_iter("/p", "TODO")
    assert stream.origin == {"served_from": "disk", "consistency": "exact", "generation": 4}
    assert next(iter(stream))["line"] == 1
    with pytest.raises(dormouse.DependencyUnavailable):
        next(iter(stream))
    assert stream.summary is None
    assert len(agent.requests("Search")) == 2


def test_search_iter_gives_its_summary_at_the_end(agent: FakeAgent, files: Any) -> None:
    answer = search_answer(1, 2)
    answer.end.truncated = True
    answer.end.stop_reason = pb.STOP_REASON_MAX_MATCHES
    agent.on("Search", answer)
    stream = files.search_iter("/p", "TODO", max_matches=2, exclude=[])
    assert [match["line"] for match in stream] == [1, 2]
    assert stream.summary["stop_reason"] == "max_matches" and stream.summary["truncated"]
    asked = agent.requests("Search")[0]
    assert asked.HasField("exclude") and not asked.exclude.globs


def test_a_search_with_more_matches_than_asked_for_is_refused(agent: FakeAgent, files: Any) -> None:
    agent.on("Search", search_answer(1, 2, 3))
    with pytest.raises(dormouse.DormouseError, match="more than the 2"):
        files.search("/p", "TODO", max_matches=2)


def test_a_text_is_no_list_of_globs(files: Any) -> None:
    with pytest.raises(dormouse.InvalidRequest, match="include is a list"):
        files.search("/p", "TODO", include="*.py")


def test_a_broken_listing_goes_on_after_its_last_entry(agent: FakeAgent, files: Any) -> None:
    a, b = pb.FileInfo(path="/d/a"), pb.FileInfo(path="/d/\ufffd", raw_path=b"/d/\xff")
    c = pb.FileInfo(path="/d/z", type=pb.FILE_TYPE_DIRECTORY)
    agent.on(
        "List",
        [pb.ListResponse(origin=LIVE, entries=[a, b]), BROKEN],
        [pb.ListResponse(origin=LIVE, entries=[c], end=pb.ListEnd(entries_sent=1))],
    )
    listed = files.list("/d", max_entries=10)
    assert [entry["path"] for entry in listed["entries"]] == ["/d/a", "/d/\ufffd", "/d/z"]
    assert (listed["truncated"], listed["stop_reason"]) == (False, "")
    again = agent.requests("List")[1]
    assert (again.raw_start_after, again.start_after, again.max_entries) == (b"/d/\xff", "", 8)


# ---- writes


def whole_write(requests: list[pb.WriteRequest]) -> bytes:
    assert requests[0].WhichOneof("message") == "start" and requests[-1].WhichOneof("message") == "finish"
    data = b"".join(request.data for request in requests[1:-1])
    assert requests[-1].finish.size_bytes == len(data)
    return data


WRITTEN = pb.WriteResponse(revision="2" * 64, bytes_written=3, durable=True, file=info())


def test_a_write_streams_its_content(agent: FakeAgent, files: Any) -> None:
    data = bytes(range(256)) * 4096
    agent.on("Write", WRITTEN, WRITTEN, WRITTEN)
    files.write("/f", data, expected_revision="absent", mode=0o600)
    files.write("/f", io.BytesIO(data))
    files.write("/f", "é")
    first, second, third = agent.requests("Write")
    assert whole_write(first) == whole_write(second) == data
    assert (first[0].start.expected_revision, first[0].start.mode) == ("absent", 0o600)
    assert len(first[0].start.content_revision) == 64 and not second[0].start.HasField("content_revision")
    assert whole_write(third) == "é".encode()


def test_a_broken_write_is_sent_again_from_its_start(agent: FakeAgent, files: Any) -> None:
    data = bytes(range(256)) * 4096
    source = io.BytesIO(b"skipped" + data)
    source.seek(7)

    def lost(request: Any, context: Any) -> Any:
        raise BROKEN

    agent.on("Write", lost, BARE_UNAVAILABLE, WRITTEN)
    assert files.write("/f", source)["durable"]
    lost_one, _, last = agent.requests("Write")
    assert whole_write(last) == whole_write(lost_one) == data
    assert last[0].start.idempotency_key == lost_one[0].start.idempotency_key


class Pipe(io.RawIOBase):
    """Bytes that come once."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)

    def seekable(self) -> bool:
        return False


def test_a_pipe_gets_one_attempt(agent: FakeAgent, files: Any) -> None:
    def lost(request: Any, context: Any) -> Any:
        raise BROKEN

    agent.on("Write", lost)
    with pytest.raises(dormouse.DependencyUnavailable):
        files.write("/f", Pipe(b"abc"))
    agent.on("Write", WRITTEN)
    files.write("/f", Pipe(b"abc"))
    assert whole_write(agent.requests("Write")[1]) == b"abc"


def test_a_file_that_fails_is_never_a_whole(agent: FakeAgent, files: Any) -> None:
    class Failing(Pipe):
        def read(self, size: int = -1) -> bytes:
            data = super().read(3)
            if not data:
                raise OSError("the stick was pulled")
            return data

    def judge(requests: list[pb.WriteRequest], context: Any) -> Any:
        assert requests[-1].WhichOneof("message") == "data"
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", field="finish")

    agent.on("Write", judge)
    with pytest.raises(OSError, match="the stick was pulled"):
        files.write("/f", Failing(b"abcdef"))


def test_a_text_file_is_no_source_of_bytes(agent: FakeAgent, files: Any) -> None:
    def judge(requests: list[pb.WriteRequest], context: Any) -> Any:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", field="finish")

    agent.on("Write", judge)
    with pytest.raises(TypeError, match="mode 'rb'"):
        files.write("/f", io.StringIO("abc"))
    with pytest.raises(TypeError, match="content is bytes"):
        files.write("/f", 3)


# ---- the rest


def test_token_and_generation_go_with_every_call(agent: FakeAgent, connect: Make) -> None:
    agent.on("Stat", stat_answer())
    connect(agent.endpoint, token="t0ken", generation=9).stat("/f")
    assert agent.metadata[0]["authorization"] == "Bearer t0ken"
    assert agent.metadata[0]["dormouse-generation"] == "9"


def test_names_that_are_not_utf8_go_as_bytes(agent: FakeAgent, files: Any) -> None:
    agent.on("Stat", stat_answer(), stat_answer(), stat_answer())
    files.stat(b"/\xff")
    files.stat("/\udcff")
    files.stat("/é ")
    bytes_path, surrogate, plain = agent.requests("Stat")
    assert bytes_path.raw_path == surrogate.raw_path == b"/\xff" and not surrogate.path
    assert (plain.path, plain.raw_path) == ("/é ", b"")


def test_a_stat_has_a_revision_only_when_asked(agent: FakeAgent, files: Any) -> None:
    agent.on("Stat", stat_answer(), stat_answer("3" * 64))
    assert "revision" not in files.stat("/f")
    answer = files.stat("/f", revision=True, source="disk")
    assert (answer["revision"], answer["type"], answer["origin"]["served_from"]) == ("3" * 64, "regular", "workspace")
    assert agent.requests("Stat")[1].source == pb.READ_SOURCE_DISK


def test_times_are_told_to_the_nanosecond(agent: FakeAgent, files: Any) -> None:
    answer = stat_answer()
    answer.file.modify_time.seconds = -1
    answer.file.modify_time.nanos = 5
    agent.on("Stat", answer)
    assert files.stat("/f")["modify_time"] == "1969-12-31T23:59:59.000000005Z"


def test_capabilities(agent: FakeAgent, files: Any) -> None:
    answer = pb.GetCapabilitiesResponse(features=[pb.FEATURE_FILE_SEARCH, 77], server_version="1.2.3")  # type: ignore[list-item]
    answer.limits.search_budget.seconds = 10
    agent.on("GetCapabilities", answer)
    told = files.capabilities()
    assert (told["features"], told["limits"]["search_budget"], told["server_version"]) == (["file_search"], 10.0, "1.2.3")


@pytest.mark.parametrize("endpoint", ["", "localhost:80", "ftp://a:1", "http://a", "http://a:0", "tcp:a:99999", "unix:"])
def test_an_endpoint_that_is_none_is_refused_at_once(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORMOUSE_ENDPOINT", raising=False)
    with pytest.raises(ValueError, match="endpoint"):
        dormouse.Workspace("w", endpoint)


def test_a_host_that_is_not_there_is_unavailable(connect: Make, tmp_path: Any) -> None:
    files = connect(f"unix:{tmp_path}/nobody.sock")
    with pytest.raises(dormouse.DependencyUnavailable) as caught:
        files.stat("/f")
    assert caught.value.attempts == 5


def test_the_host_waker_resumes(agent: FakeAgent, connect: Make) -> None:
    from dormouse.host.v1 import host_pb2

    agent.on("Patch", NOT_RUNNING, patch_answer())
    agent.on("ResumeWorkspace", host_pb2.ResumeWorkspaceResponse())
    waker = dormouse.HostWaker(agent.endpoint)
    connect(agent.endpoint, waker=waker).patch("/f", content=b"x")
    assert agent.requests("ResumeWorkspace")[0].name == "w"
    waker.close()
