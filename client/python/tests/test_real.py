"""The real agent behind a line that breaks, and a workspace that has to be woken: what no scenario can say."""

from __future__ import annotations

import hashlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dormouse
from conftest import Make
from real import NAME, RealAgent


class Line:
    """A TCP line to the agent that can be told to break. `rule` is asked about each piece that the agent sends, with
    what has been passed on over this connection: True passes it on, None drops it, False breaks the line."""

    def __init__(self, target: str) -> None:
        self._target = target.removeprefix("tcp:")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self.rule: Callable[[int], bool | None] = lambda passed: True
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            host, _, port = self._target.rpartition(":")
            agent = socket.create_connection((host, int(port)))
            thread = threading.Thread(target=self._carry, args=(client, agent))
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, agent: socket.socket) -> None:
        passed = 0
        with client, agent:
            while True:
                ready, _, _ = select.select([client, agent], [], [], 1.0)
                if self._listener.fileno() < 0:
                    return
                for source in ready:
                    try:
                        data = source.recv(65536)
                        holds = self.rule(passed) if source is agent else True
                        if not data or holds is False:
                            return
                        if holds is None:
                            continue
                        (agent if source is client else client).sendall(data)
                    except OSError:
                        return
                    passed += len(data) if source is agent else 0

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealAgent]:
    agent = RealAgent(tmp_path, [])
    yield agent
    agent.stop()


@pytest.fixture
def line(real: RealAgent) -> Iterator[Line]:
    line = Line(real.endpoint)
    yield line
    line.close()


def test_the_lost_answer_of_a_patch_is_found_again(real: RealAgent, line: Line, connect: Make) -> None:
    real.put("/f", "a")
    files = connect(line.endpoint, NAME)
    files.stat("/f")
    place = real.files / "f"

    def swallow(passed: int) -> bool | None:
        # Nothing passes until the change is there; then the line breaks, once.
        if place.read_text() == "a":
            return None
        line.rule = lambda passed: True
        return False

    line.rule = swallow
    done = files.patch("/f", edits=[{"old_text": "a", "new_text": "aa"}])
    assert (done["replayed"], done["replacements"]) == (True, 1)
    assert place.read_text() == "aa"
    assert line.connections == 2


def test_a_read_over_a_line_that_breaks_is_whole(real: RealAgent, line: Line, connect: Make) -> None:
    data = os.urandom(5 << 20)
    (real.files / "five").write_bytes(data)
    breaks = iter((1 << 20, 700_000, 300_000))

    def now_and_then(limit: int) -> Callable[[int], bool]:
        def rule(passed: int) -> bool:
            if passed < limit:
                return True
            following = next(breaks, None)
            line.rule = (lambda passed: True) if following is None else now_and_then(following)
            return False

        return rule

    line.rule = now_and_then(2 << 20)
    result = connect(line.endpoint, NAME).read_with_info("/five")
    assert result["content"] == data
    assert result["revision"] == hashlib.sha256(data).hexdigest()
    assert line.connections == 5


def test_a_read_resumed_over_a_changed_file_is_an_error(real: RealAgent, line: Line, connect: Make) -> None:
    # More than any window lets through before the reader asks for more.
    (real.files / "large").write_bytes(bytes(64 << 20))
    stream = connect(line.endpoint, NAME).read_chunks("/large")
    given = len(next(stream))
    assert given > 0

    def once(passed: int) -> bool:
        line.rule = lambda passed: True
        real.put("/large", "another")
        return False

    line.rule = once
    with pytest.raises(dormouse.ChangedWhileRead):
        for piece in stream:
            given += len(piece)
    assert given < 64 << 20 and line.connections == 2


def test_a_patch_wakes_a_suspended_workspace(real: RealAgent, connect: Make) -> None:
    real.put("/f", "a")
    real.host("suspend")
    woken: list[str] = []

    def wake(name: str) -> None:
        woken.append(name)
        real.host("resume")

    files = connect(real.endpoint, NAME, waker=wake)
    revision = files.stat("/f", revision=True)["revision"]
    assert files.read_with_info("/f")["origin"]["served_from"] == "disk"
    assert woken == []
    done = files.patch("/f", edits=[{"old_text": "a", "new_text": "b"}], expected_revision=revision)
    assert (woken, done["previous_revision"]) == ([NAME], revision)
    result = files.read_with_info("/f")
    assert (result["content"], result["origin"]["served_from"]) == (b"b", "workspace")


def test_the_host_waker_wakes(real: RealAgent, tmp_path: Path, connect: Make) -> None:
    real.host("suspend")
    waker = dormouse.HostWaker(f"unix:{tmp_path}/h")
    try:
        assert connect(real.endpoint, NAME, waker=waker).write("/f", b"x")["durable"] in (True, False)
    finally:
        waker.close()
    assert (real.files / "f").read_bytes() == b"x"


def test_a_failed_wake_of_the_host_is_told(real: RealAgent, tmp_path: Path, connect: Make) -> None:
    real.host("suspend")
    waker = dormouse.HostWaker(f"unix:{tmp_path}/nobody", timeout=1.0)
    with pytest.raises(dormouse.WorkspaceNotRunning) as caught:
        connect(real.endpoint, NAME, waker=waker).patch("/f", content=b"x")
    waker.close()
    assert caught.value.wake_failure and isinstance(caught.value.__cause__, dormouse.DependencyUnavailable)


def test_an_unknown_workspace_is_not_found(real: RealAgent, connect: Make) -> None:
    with pytest.raises(dormouse.NotFound) as caught:
        connect(real.endpoint, "nobody/main").stat("/f")
    assert caught.value.reason == "workspace_not_found"


def test_an_agent_that_stops_is_waited_out(real: RealAgent, line: Line, connect: Make) -> None:
    # The line breaks before each of the first answers: every attempt dials anew.
    real.put("/f", "a")
    broken = iter(range(2))

    def rule(passed: int) -> bool:
        return next(broken, None) is None

    line.rule = rule
    # With the gaps that users have: gRPC dials anew after 100 ms, then more.
    assert connect(line.endpoint, NAME, retry=dormouse.RetryPolicy()).read("/f") == b"a"
    assert line.connections == 3


def test_capabilities_of_the_real_agent(real: RealAgent, connect: Make) -> None:
    told: Any = connect(real.endpoint, NAME).capabilities()
    assert {"file_search", "file_patch", "file_write", "file_revision"} <= set(told["features"])
    assert told["limits"]["max_request_bytes"] == 7 << 20
