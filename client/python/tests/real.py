"""The real agent, in a process of its own on a temporary directory. The environment variable DORMOUSED names its binary."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dormouse import _engine, _sync
from dormouse._methods import HOST

# Seconds that it may take to start or to stop.
PATIENCE = 30.0
NAME = "customer-42/main"


def binary() -> str:
    """The agent's path; skips the test, saying why, where there is none."""
    found = os.environ.get("DORMOUSED")
    if not found:
        reason = "DORMOUSED is not set: build dormoused and name its path there"
        collected = os.environ.get("DORMOUSE_SKIPS")
        if collected:
            with open(collected, "a") as file:
                file.write(f"skipped: the Python library against the real agent: {reason}\n")
        pytest.skip(reason)
    return found


class RealAgent:
    """Serves one workspace from `place`/files until it is stopped."""

    def __init__(self, place: Path, without: list[str]) -> None:
        # First of all, since this may end the test.
        program = binary()
        self.files = place / "files"
        command = [program, "serve", "--log-format", "json", "--listen", "tcp:127.0.0.1:0"]
        command += ["--host-listen", f"unix:{place}/h", "--state-dir", f"{place}/agent"]
        command += ["--workspace", f"{NAME}=directory:{self.files}"]
        for feature in without:
            command += ["--disable-feature", feature]
        self.files.mkdir()
        self._log = (place / "log").open("w+")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL)
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], PATIENCE)
        line = stdout.readline() if ready else b""
        if not line:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"dormoused is not ready: {self._text()}")
        listen: list[str] = json.loads(line)["listen"]
        self.endpoint = next(address for address in listen if address.startswith("tcp:"))
        self.host_socket = f"{place}/h"
        self._host = _sync.Connection(f"unix:{place}/h")

    def _text(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def host(self, what: str) -> None:
        """Suspends or resumes the workspace, as a control plane would."""
        method = HOST[{"suspend": "SuspendWorkspace", "resume": "ResumeWorkspace"}[what]]
        call = _sync.call(method, NAME, _engine.Options(PATIENCE), False)
        _sync.result(_sync.Driver(self._host, None), _engine.unary(call, method.request(name=NAME)))

    def put(self, path: str, value: Any) -> None:
        """Writes into the directory, past the agent."""
        if isinstance(value, dict) and "$raw_name" in value:
            name = os.fsencode(self.files) + base64.b64decode(value["$raw_name"])
            Path(os.fsdecode(name)).write_bytes(as_bytes(value["content"]))
            return
        place = self.files / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, dict) and "$link" in value:
            place.symlink_to(value["$link"])
        elif isinstance(value, dict) and "$directory" in value:
            place.mkdir()
        else:
            place.write_bytes(as_bytes(value))

    def stop(self) -> None:
        """Stops it as a service manager would."""
        self._host.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"dormoused does not stop: {self._text()}") from None
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
        text = self._text()
        self._log.close()
        assert status == 0, text


class Double:
    """The program that stands before an agent and misbehaves by a scenario's script; it lies beside the agent's own."""

    def __init__(self, plan: dict[str, Any], agent: RealAgent) -> None:
        whole = {**plan, "upstream": agent.endpoint.removeprefix("tcp:"), "host": agent.host_socket, "workspace": NAME}
        program = Path(binary()).with_name("dormouse_double")
        self._process = subprocess.Popen([program, json.dumps(whole)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.endpoint = "tcp:" + json.loads(self._process.stdout.readline())["listen"]

    def end(self) -> dict[str, Any]:
        """What it was asked."""
        said, _ = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0
        answer: dict[str, Any] = json.loads(said)
        return answer


def as_bytes(value: Any) -> bytes:
    """A text, {"$base64": b} or {"$fill": [text, size]} as bytes."""
    if isinstance(value, str):
        return value.encode()
    if "$base64" in value:
        return base64.b64decode(value["$base64"])
    text, size = value["$fill"]
    unit = str(text).encode()
    return (unit * (int(size) // len(unit) + 1))[: int(size)]
