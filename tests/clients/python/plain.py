"""The files of a workspace from Python, with generated code and nothing else: plain.py ADDRESS WORKSPACE"""

import sys
import uuid

import grpc
from dormouse.files.v1 import files_pb2 as pb
from dormouse.files.v1.files_pb2_grpc import FilesServiceStub
from google.rpc import error_details_pb2
from grpc_status import rpc_status


def error_info(error):
    """The one ErrorInfo of a refusal; empty where a proxy answered instead of the agent."""
    info = error_details_pb2.ErrorInfo()
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        if detail.Unpack(info):
            break
    return info


address, workspace = sys.argv[1:]
with grpc.insecure_channel(address) as channel:
    files = FilesServiceStub(channel)

    # One question, one answer.
    path = "/home/user/project/app.py"
    known = files.Stat(pb.StatRequest(workspace=workspace, path=path, include_revision=True))
    print("revision", known.file.revision)

    # A stream: it is complete only when its last message carries `end`.
    for message in files.Search(pb.SearchRequest(workspace=workspace, path="/home/user/project", pattern="TODO")):
        for match in message.matches:
            print(f"{match.path}:{match.line}: {match.text}")
    assert message.HasField("end")

    # An error: branch on the reason, never on the message.
    try:
        files.Stat(pb.StatRequest(workspace=workspace, path="/home/user/nothing"))
    except grpc.RpcError as error:
        info = error_info(error)
        print(info.reason, info.metadata["missing"])

    # A change: one key for all attempts at it, and the revision that it is held to.
    edit = pb.Edit(old_text="DEBUG = True", new_text="DEBUG = False")
    patch = pb.PatchRequest(
        workspace=workspace,
        path=path,
        edits=pb.EditList(edits=[edit]),
        expected_revision=known.file.revision,
        idempotency_key=str(uuid.uuid4()),
    )
    print("patched", files.Patch(patch, timeout=60).revision)
