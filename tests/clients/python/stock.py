"""A stock Python client of a Dormouse agent: generated code, default settings, nothing of ours.

    python stock.py ADDRESS CHECK

Asserts one thing about the agent's workspaces t/live and t/asleep, whose files the caller knows; an AssertionError or
any other exception is the answer no.
"""

import hashlib
import sys

import grpc
from dormouse.files.v1 import files_pb2 as pb
from dormouse.files.v1 import files_pb2_grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

WORKSPACES = {"t/live": pb.SERVED_FROM_WORKSPACE, "t/asleep": pb.SERVED_FROM_DISK}
MESSAGE_BYTES_MAX = 4 * 1024 * 1024


def error_info(error):
    """The one ErrorInfo of an error, found by its type."""
    status = rpc_status.from_call(error)
    assert status is not None, f"no details: {error}"
    found = [detail for detail in status.details if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(found) == 1, status
    info = error_details_pb2.ErrorInfo()
    assert found[0].Unpack(info)
    return info


def unary(files):
    for workspace, served_from in WORKSPACES.items():
        answer = files.Stat(pb.StatRequest(workspace=workspace, path="/hello.txt", include_revision=True))
        assert answer.file.revision == hashlib.sha256(b"hello\n").hexdigest(), answer
        assert answer.origin.served_from == served_from, answer
        assert not files.Stat(pb.StatRequest(workspace=workspace, path="/hello.txt")).file.HasField("revision")


def stream(files):
    for workspace in WORKSPACES:
        messages = list(files.List(pb.ListRequest(workspace=workspace, path="/", depth=2)))
        paths = [entry.path for message in messages for entry in message.entries]
        assert paths == sorted(paths, key=lambda path: path.encode()), paths
        assert "/hello.txt" in paths and "/sub/app.py" in paths, paths
        assert messages[-1].HasField("end") and messages[-1].end.entries_sent == len(paths), messages[-1]
        found = [hit for part in files.Search(pb.SearchRequest(workspace=workspace, path="/sub", pattern="TODO")) for hit in part.matches]
        assert [(hit.path, hit.line, hit.column) for hit in found] == [("/sub/app.py", 2, 3)], found


def errors(files):
    for workspace in WORKSPACES:
        try:
            files.Stat(pb.StatRequest(workspace=workspace, path="/missing/file"))
            raise AssertionError("a file that is not there")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND, error
            info = error_info(error)
            assert (info.domain, info.reason) == ("dormouse.dev", "FILE_NOT_FOUND"), info
            assert pb.ErrorReason.Value("ERROR_REASON_" + info.reason) == pb.ERROR_REASON_FILE_NOT_FOUND
            assert info.metadata["missing"] == "/missing" and info.metadata["http_status"] == "404", info
            assert "grpc-retry-pushback-ms" not in dict(error.trailing_metadata())
    # In mid-stream calls it is the same.
    try:
        list(files.Read(pb.ReadRequest(workspace="t/live", path="/missing")))
        raise AssertionError("a file that is not there")
    except grpc.RpcError as error:
        assert error_info(error).reason == "FILE_NOT_FOUND"
    try:
        files.Patch(pb.PatchRequest(workspace="t/asleep", path="/hello.txt", content=b"", idempotency_key="k"))
        raise AssertionError("a change of a sleeping workspace")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        info = error_info(error)
        assert info.reason == "WORKSPACE_NOT_RUNNING" and info.metadata["code"] == "workspace_not_running", info


def strange_name(files):
    for workspace in WORKSPACES:
        answer = files.Stat(pb.StatRequest(workspace=workspace, raw_path=b"/not-utf8-\xff.txt"))
        assert answer.file.raw_path == b"/not-utf8-\xff.txt", answer
        assert answer.file.path == "/not-utf8-\N{REPLACEMENT CHARACTER}.txt", answer
        data = b"".join(part.data for part in files.Read(pb.ReadRequest(workspace=workspace, raw_path=answer.file.raw_path)))
        assert data == b"TODO\n", data


def large_read(files):
    """5 MiB with the default limit of 4 MiB a message."""
    for workspace in WORKSPACES:
        size, digest, largest, end = 0, hashlib.sha256(), 0, None
        for message in files.Read(pb.ReadRequest(workspace=workspace, path="/large", include_revision=True)):
            largest = max(largest, message.ByteSize())
            size += len(message.data)
            digest.update(message.data)
            end = message.end if message.HasField("end") else None
        assert size == 5 << 20 and end is not None and end.bytes_sent == size, (size, end)
        assert end.revision == digest.hexdigest(), end
        assert largest <= MESSAGE_BYTES_MAX, largest


def large_search(files):
    """Results that fill 4 MiB, of lines that would fill more."""
    for workspace in WORKSPACES:
        size, largest, end = 0, 0, None
        for message in files.Search(pb.SearchRequest(workspace=workspace, path="/wide", pattern="x", max_matches=5000)):
            largest = max(largest, message.ByteSize())
            size += sum(hit.ByteSize() for hit in message.matches)
            end = message.end if message.HasField("end") else None
        assert end is not None and end.truncated and end.stop_reason == pb.STOP_REASON_MAX_BYTES, end
        assert largest <= MESSAGE_BYTES_MAX, largest
        assert 3_500_000 < size <= 4 << 20, size


def change(files):
    request = pb.PatchRequest(workspace="t/live", path="/new", content=b"one\n", idempotency_key="python-1", expected_revision="absent")
    first = files.Patch(request)
    again = files.Patch(request)
    assert again.replayed and not first.replayed and again.revision == first.revision
    edit = pb.Edit(old_text="one", new_text="two")
    request = pb.PatchRequest(workspace="t/live", path="/new", idempotency_key="python-2", expected_revision=first.revision)
    request.edits.edits.append(edit)
    assert files.Patch(request).replacements == 1
    request.idempotency_key = "python-3"
    try:
        files.Patch(request)
        raise AssertionError("an old revision")
    except grpc.RpcError as error:
        info = error_info(error)
        assert info.reason == "REVISION_MISMATCH", info
        assert info.metadata["actual_revision"] == hashlib.sha256(b"two\n").hexdigest(), info


def main():
    address, check = sys.argv[1:]
    checks = [unary, stream, errors, strange_name, large_read, large_search, change]
    with grpc.insecure_channel(address) as channel:
        {one.__name__: one for one in checks}[check](files_pb2_grpc.FilesServiceStub(channel))
    print("ok")


main()
