"""Dormouse for asyncio: the same names as in `dormouse`, awaited.

    async with dormouse.aio.Workspace("customer-42/main", "unix:/run/dormouse/files.sock") as ws:
        hits = await ws.files.search("/home/user/project", "TODO", include=["*.py"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from dormouse import _async, _engine, _sync
from dormouse._async_files import Files, ListStream, ReadStream, SearchStream
from dormouse._channel import HOST_ENDPOINT_VARIABLE, endpoint_or_default
from dormouse._methods import HOST
from dormouse._retry import RetryPolicy
from dormouse._tool_arguments import decode
from dormouse.errors import DormouseError
from dormouse.host.v1 import host_pb2
from dormouse.tools import OUTPUT_BYTES, Run, ToolOutput, explain, selected

__all__ = [
    "Client",
    "Files",
    "HostWaker",
    "ListStream",
    "ReadStream",
    "SearchStream",
    "Tool",
    "Workspace",
    "workspace_tools",
]


class Client:
    """A connection to one host, for one event loop. Arguments as of `dormouse.Client`; the waker may be a coroutine
    function, and is then cut short at the call's deadline."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        retry: RetryPolicy | None = None,
        waker: _async.Waker | None = None,
        token: str | None = None,
        generation: int | None = None,
        root_certificates: bytes | None = None,
    ) -> None:
        self._connection = _async.Connection(
            endpoint_or_default(endpoint), token=token, generation=generation, root_certificates=root_certificates
        )
        self._options = _engine.Options(timeout, attempt_timeout, retry or RetryPolicy())
        self._waker = waker

    def workspace(self, name: str) -> Workspace:
        """One workspace on this host. It lives as long as this client."""
        return Workspace(name, client=self)

    async def close(self) -> None:
        """Ends every call and lets the connection go."""
        await self._connection.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Workspace:
    """One workspace, such as "customer-42/main": its files are `files`. Arguments as of `Client`, or a `client` to share."""

    def __init__(
        self,
        name: str,
        endpoint: str | None = None,
        *,
        client: Client | None = None,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        retry: RetryPolicy | None = None,
        waker: _async.Waker | None = None,
        token: str | None = None,
        generation: int | None = None,
        root_certificates: bytes | None = None,
    ) -> None:
        own = (endpoint, timeout, attempt_timeout, retry, waker, token, generation, root_certificates)
        if client is not None and any(value is not None for value in own):
            raise ValueError("a workspace of a client takes that client's connection and options: give one or the other")
        self.name = name
        self._own = client is None
        self._client = client or Client(
            endpoint,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
            retry=retry,
            waker=waker,
            token=token,
            generation=generation,
            root_certificates=root_certificates,
        )
        self.files = Files(self._client._connection, name, self._client._options, self._client._waker)

    async def close(self) -> None:
        """Lets the connection go, unless it is a client's."""
        if self._own:
            await self._client.close()

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class HostWaker:
    """As `dormouse.HostWaker`."""

    def __init__(self, endpoint: str | None = None, *, timeout: float | None = 60.0) -> None:
        self._connection = _async.Connection(endpoint_or_default(endpoint, HOST_ENDPOINT_VARIABLE))
        self._options = _engine.Options(timeout)

    async def __call__(self, workspace: str) -> None:
        call = _sync.call(HOST["ResumeWorkspace"], workspace, self._options, False)
        request = host_pb2.ResumeWorkspaceRequest(name=workspace)
        await _async.result(_async.Driver(self._connection, None), _engine.unary(call, request))

    async def close(self) -> None:
        """Lets the connection go."""
        await self._connection.close()


@dataclass(frozen=True)
class Tool:
    """As `dormouse.Tool`, awaited."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]
    _run: Run
    _files: Files

    async def call(self, arguments: Mapping[str, Any] | str) -> ToolOutput:
        """Runs it. `arguments`: a mapping, or the JSON text of one. What went wrong is told in the output."""
        try:
            steps = self._run(decode(self.input_schema, arguments))
            reply: Any = None
            failure: DormouseError | None = None
            while True:
                verb = steps.send(reply) if failure is None else steps.throw(failure)
                reply, failure = None, None
                try:
                    reply = await getattr(self._files, verb.name)(**verb.arguments)
                except DormouseError as error:
                    failure = error
        except StopIteration as done:
            return ToolOutput(done.value)
        except DormouseError as error:
            return ToolOutput(explain(error), is_error=True)


def workspace_tools(
    workspace: Workspace,
    *,
    permissions: Iterable[str] = ("files",),
    output_bytes: int = OUTPUT_BYTES,
    alternatives: Mapping[str, str] | None = None,
) -> list[Tool]:
    """As `dormouse.workspace_tools`."""
    return [
        Tool(d.name, d.description, d.input_schema, d.annotations, run, workspace.files)
        for d, run in selected(permissions, output_bytes, alternatives)
    ]
