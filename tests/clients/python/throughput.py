"""Times `read()` of the Python library beside plain grpcio: throughput.py ENDPOINT WORKSPACE PATH ROUNDS

Prints JSON: `ratios`, each the plain time ÷ ours, so that 1 is as fast; `checked`, whether the library checked the sum.
"""

import importlib.util
import json
import sys
import time

import grpc

import dormouse
from dormouse.files.v1 import files_pb2 as pb

endpoint, name, path, rounds = sys.argv[1:]
workspace = dormouse.Workspace(name, endpoint)
channel = grpc.insecure_channel(endpoint)
plain = channel.unary_stream(
    "/dormouse.files.v1.FilesService/Read",
    request_serializer=pb.ReadRequest.SerializeToString,
    response_deserializer=pb.ReadResponse.FromString,
)


def ours():
    begin = time.perf_counter()
    content = workspace.files.read(path)
    return time.perf_counter() - begin, len(content)


def theirs():
    begin = time.perf_counter()
    content = b"".join(message.data for message in plain(pb.ReadRequest(workspace=name, path=path)))
    return time.perf_counter() - begin, len(content)


ratios = []
for number in range(int(rounds) + 1):
    (mine, size), (other, same) = ours(), theirs()
    assert size == same
    if number > 0:
        ratios.append(other / mine)
print(json.dumps({"ratios": ratios, "checked": importlib.util.find_spec("google_crc32c") is not None}))
