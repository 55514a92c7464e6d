"""The generated code is the contract's, and the service config for stock clients keeps to it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from dormouse._methods import FILES, HOST, Effect
from dormouse.files.v1 import files_pb2
from fake import BARE_UNAVAILABLE, NOT_RUNNING, FakeAgent, unavailable

HERE = Path(__file__).resolve().parents[1]
CONTRACT = HERE.parents[1] / "proto"
CONFIG = (HERE.parent / "service_config.json").read_text()


def test_the_stubs_were_made_from_the_contract_as_it_is() -> None:
    lines = (HERE / "src" / "dormouse" / "stubs.sha256").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        wanted, name = line.split("  ")
        place = CONTRACT / name if (CONTRACT / name).exists() else HERE / "protos" / name
        found = hashlib.sha256(place.read_bytes()).hexdigest()
        assert found == wanted, f"{name} has changed: run client/python/generate"


def test_the_stubs_are_what_the_generator_writes() -> None:
    if "DORMOUSE_GENERATOR" not in os.environ:
        pytest.skip("DORMOUSE_GENERATOR does not name a folder for the pinned generator")
    done = subprocess.run([sys.executable, str(HERE / "generate"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_service_config_retries_what_the_contract_lets_it() -> None:
    (method,) = json.loads(CONFIG)["methodConfig"]
    named = {name["service"] for name in method["name"]}
    assert named == {path.split("/")[1] for path in (FILES["Stat"].path, HOST["GetHost"].path)}
    # Whole services are named, so each of their methods must be one that may be sent again.
    assert all(known.effect is not Effect.UNKNOWN for known in (*FILES.values(), *HOST.values()))


def test_a_stock_client_retries_by_the_service_config(agent: FakeAgent) -> None:
    target = agent.endpoint.removeprefix("tcp:")
    patch = FILES["Patch"]
    with grpc.insecure_channel(target, [("grpc.service_config", CONFIG)]) as channel:
        call = channel.unary_unary(patch.path, patch.request.SerializeToString, patch.response.FromString)
        agent.on("Patch", BARE_UNAVAILABLE, unavailable(pushback="5"), files_pb2.PatchResponse(replacements=3))
        assert call(files_pb2.PatchRequest(idempotency_key="k"), timeout=20.0).replacements == 3
        assert [request.idempotency_key for request in agent.requests("Patch")] == ["k", "k", "k"]
        agent.on("Patch", NOT_RUNNING)
        with pytest.raises(grpc.RpcError):
            call(files_pb2.PatchRequest(idempotency_key="k"), timeout=20.0)
        # A pushback that is no time forbids.
        agent.on("Patch", unavailable(pushback="-1"))
        with pytest.raises(grpc.RpcError):
            call(files_pb2.PatchRequest(idempotency_key="k"), timeout=20.0)
    assert len(agent.requests("Patch")) == 5
