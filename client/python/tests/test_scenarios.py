"""tests/scenarios.json, which every client plays, against the real agent, blocking and asyncio."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dormouse
import dormouse.aio
from conftest import QUICK, Awaited
from real import NAME, Double, RealAgent, as_bytes

SCENARIOS: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[3] / "tests" / "scenarios.json").read_text("utf-8")
)["scenarios"]


@pytest.fixture(params=["blocking", "asyncio"])
def flavour(request: pytest.FixtureRequest) -> Iterator[Any]:
    """How a workspace is made, and its files and tools called."""
    if request.param == "blocking":

        def blocking(endpoint: str, waker: Any, timeout: float) -> tuple[Any, Any]:
            workspace = dormouse.Workspace(NAME, endpoint, retry=QUICK, timeout=timeout, waker=waker)
            closing.append(workspace.close)
            return workspace.files, {tool.name: tool.call for tool in dormouse.workspace_tools(workspace)}

        closing: list[Any] = []
        yield blocking
        for close in closing:
            close()
        return
    loop = asyncio.new_event_loop()
    open_ones: list[dormouse.aio.Workspace] = []

    def awaited(endpoint: str, waker: Any, timeout: float) -> tuple[Any, Any]:
        workspace = dormouse.aio.Workspace(NAME, endpoint, retry=QUICK, timeout=timeout, waker=waker)
        open_ones.append(workspace)
        tools = {tool.name: Awaited(tool, loop).call for tool in dormouse.aio.workspace_tools(workspace)}
        return Awaited(workspace.files, loop), tools

    yield awaited
    for one in open_ones:
        loop.run_until_complete(one.close())
    loop.close()


class Player:
    """Plays the steps of one scenario."""

    def __init__(self, agent: RealAgent, files: Any, tools: Any) -> None:
        self.agent = agent
        self.files = files
        self.tools = tools
        self.saved: dict[str, Any] = {}

    def value(self, value: Any) -> Any:
        """A value of the file as an argument, or as what is expected."""
        if isinstance(value, str):
            return re.sub(r"\$\{(\w+)\}", lambda found: str(self.saved[found[1]]), value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            if "$fill" in value or "$base64" in value:
                return as_bytes(value)
            if "$sha256" in value:
                return hashlib.sha256(as_bytes(value["$sha256"])).hexdigest()
            return {key: self.value(item) for key, item in value.items()}
        return value

    def play(self, step: dict[str, Any]) -> None:
        if "host" in step:
            self.agent.host(step["host"])
        elif "behind" in step:
            for path, value in step["behind"].items():
                self.agent.put(path, value)
        elif "tool" in step:
            self.play_tool(step)
        else:
            self.play_call(step)

    def play_tool(self, step: dict[str, Any]) -> None:
        output = self.tools[step["tool"]](self.value(step["arguments"]))
        if "error_text" in step:
            assert output.is_error, output.text
            for part in step["error_text"]:
                assert self.value(part) in output.text
            return
        assert not output.is_error, output.text
        answer = json.loads(output.text)
        answer["$size"] = len(output.text.encode())
        if "matches" in answer:
            answer["$total_matches"] = len(answer["matches"]) + answer["omitted_matches"]
        self.answered(step, answer)

    def play_call(self, step: dict[str, Any]) -> None:
        arguments = self.value(step["arguments"])
        try:
            answer = self.plain(getattr(self.files, step["call"])(**arguments))
        except dormouse.DormouseError as error:
            assert "error" in step, repr(error)
            self.failed(step["error"], error)
            return
        assert "error" not in step, answer
        self.answered(step, answer)

    def plain(self, answer: Any) -> Any:
        if isinstance(answer, (bytes, str)):
            data = answer.encode() if isinstance(answer, str) else answer
            told: dict[str, Any] = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            try:
                told["text"] = data.decode()
            except UnicodeDecodeError:
                pass
            return told
        if not isinstance(answer, dict):
            items = list(answer)
            return {"items": items, "summary": answer.summary, "origin": answer.origin}
        if "content" in answer:
            return {**answer, "content": self.plain(answer["content"])}
        return answer

    def answered(self, step: dict[str, Any], answer: Any) -> None:
        if "expect" in step:
            match(self.value(step["expect"]), answer, step.get("call", step.get("tool", "")))
        for name, member in step.get("save", {}).items():
            self.saved[name] = answer[member]

    def failed(self, expect: dict[str, Any], error: dormouse.DormouseError) -> None:
        assert type(error).__name__ == expect["class"], repr(error)
        for name in ("reason", "code", "retryable", "feature", "current", "lines"):
            if name in expect:
                assert getattr(error, name) == self.value(expect[name]), name
        match(self.value(expect.get("details", {})), error.details, "details")


def match(expect: Any, actual: Any, where: str) -> None:
    """Fails, naming the place, where the answer is not what is expected."""
    if isinstance(expect, dict) and len(expect) == 1 and next(iter(expect)).startswith("$") and not isinstance(actual, dict):
        ((rule, limit),) = expect.items()
        if rule == "$length":
            assert len(actual) == limit, where
        elif rule == "$most":
            assert actual <= limit, where
        else:
            assert rule == "$pattern", where
            assert re.search(limit, actual), f"{where}: {actual}"
    elif isinstance(expect, dict):
        assert isinstance(actual, dict), f"{where}: {actual!r}"
        for key, value in expect.items():
            if value == {"$absent": True}:
                assert key not in actual, f"{where}.{key}"
            else:
                assert key in actual, f"{where}.{key} is missing in {actual}"
                match(value, actual[key], f"{where}.{key}")
    elif isinstance(expect, list):
        assert isinstance(actual, list) and len(actual) == len(expect), f"{where}: {actual!r}"
        for index, value in enumerate(expect):
            match(value, actual[index], f"{where}[{index}]")
    else:
        assert actual == expect, f"{where}: {actual!r} is not {expect!r}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_scenario(scenario: dict[str, Any], flavour: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="dormouse-") as place:
        agent = RealAgent(Path(place), scenario.get("without", []))
        try:
            for path, value in scenario["files"].items():
                agent.put(path, value)
            wakes: list[str] = []

            def wake(name: str) -> None:
                wakes.append(name)
                agent.host("resume")

            double = Double(scenario["double"], agent) if "double" in scenario else None
            waker = wake if scenario.get("waker") else None
            timeout = scenario.get("timeout_ms", 60_000) / 1000
            files, tools = flavour(double.endpoint if double else agent.endpoint, waker, timeout)
            player = Player(agent, files, tools)
            for step in scenario["steps"]:
                player.play(step)
            if "wakes" in scenario:
                assert wakes == [NAME] * scenario["wakes"]
            if double:
                said = double.end()
                assert said["left"] == 0, said
                match(scenario["asked"], said["asked"], "asked")
        finally:
            agent.stop()


def test_base64_is_bytes() -> None:
    assert as_bytes({"$base64": base64.b64encode(b"\xff\x00").decode()}) == b"\xff\x00"
    assert as_bytes({"$fill": ["abc", 7]}) == b"abcabca"
