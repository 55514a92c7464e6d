"""Fixtures: a scripted agent, and a workspace on it whose gaps are short; blocking and asyncio take the same tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dormouse
import dormouse.aio
from fake import FakeAgent

QUICK = dormouse.RetryPolicy(backoff=0.002, backoff_max=0.01, transition=5.0, transition_gap_max=0.005)


class Awaited:
    """The asyncio library as if it were blocking: one loop, run for each call."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            async def run() -> Any:
                made = value(*arguments, **options)
                if inspect.isawaitable(made):
                    return await made
                # A stream: its head is known once it is entered, as it is at once with the blocking one.
                return AwaitedStream(await made.__aenter__(), self._loop)

            return self._loop.run_until_complete(run())

        return call


class AwaitedStream:
    def __init__(self, stream: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop

    def __iter__(self) -> AwaitedStream:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.run_until_complete(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._loop.run_until_complete(self._stream.close())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


Make = Callable[..., Any]


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    agent = FakeAgent()
    yield agent
    agent.close()


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes the files of a workspace, blocking or asyncio, with options."""
    closing: list[Callable[[], Any]] = []
    loop = asyncio.new_event_loop()

    def make(endpoint: str, name: str = "w", **options: Any) -> Any:
        options.setdefault("retry", QUICK)
        options.setdefault("timeout", 20.0)
        if request.param == "blocking":
            workspace = dormouse.Workspace(name, endpoint, **options)
            closing.append(workspace.close)
            return workspace.files
        other = dormouse.aio.Workspace(name, endpoint, **options)
        closing.append(lambda: loop.run_until_complete(other.close()))
        return Awaited(other.files, loop)

    yield make
    for close in closing:
        close()
    loop.close()


@pytest.fixture
def files(agent: FakeAgent, connect: Make) -> Any:
    return connect(agent.endpoint)
