"""A workspace on a host, and how to wake one: the blocking entrances."""

from __future__ import annotations

from types import TracebackType

from dormouse import _engine, _sync
from dormouse._channel import HOST_ENDPOINT_VARIABLE, endpoint_or_default
from dormouse._files import Files, Waker
from dormouse._methods import HOST
from dormouse._retry import RetryPolicy
from dormouse.host.v1 import host_pb2


class Client:
    """A connection to one host, shared by the workspaces made from it. Safe to share between threads.

    `endpoint`: `unix:/run/dormouse/files.sock`, `http://HOST:PORT`, `https://HOST:PORT`; left out, the environment variable
    DORMOUSE_ENDPOINT.
    `timeout`: seconds for each whole call; left out, none.
    `attempt_timeout`: seconds for one attempt of a call with a single answer; left out, as long as the call.
    `waker`: called at most once in a call that needs a running workspace, with its name.
    `token`: sent as a bearer token. `generation`: the workspace's, where the caller knows it.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        retry: RetryPolicy | None = None,
        waker: Waker | None = None,
        token: str | None = None,
        generation: int | None = None,
        root_certificates: bytes | None = None,
    ) -> None:
        self._connection = _sync.Connection(
            endpoint_or_default(endpoint), token=token, generation=generation, root_certificates=root_certificates
        )
        self._options = _engine.Options(timeout, attempt_timeout, retry or RetryPolicy())
        self._waker = waker

    def workspace(self, name: str) -> Workspace:
        """One workspace on this host. It lives as long as this client."""
        return Workspace(name, client=self)

    def close(self) -> None:
        """Ends every call and lets the connection go."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
        waker: Waker | None = None,
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

    def close(self) -> None:
        """Lets the connection go, unless it is a client's."""
        if self._own:
            self._client.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HostWaker:
    """Wakes through the host itself (HostService.ResumeWorkspace), for a host with no control plane above it.

    `endpoint`: where HostService listens; left out, the environment variable DORMOUSE_HOST_ENDPOINT. `timeout` in seconds.
    """

    def __init__(self, endpoint: str | None = None, *, timeout: float | None = 60.0) -> None:
        self._connection = _sync.Connection(endpoint_or_default(endpoint, HOST_ENDPOINT_VARIABLE))
        self._options = _engine.Options(timeout)

    def __call__(self, workspace: str) -> None:
        call = _sync.call(HOST["ResumeWorkspace"], workspace, self._options, False)
        request = host_pb2.ResumeWorkspaceRequest(name=workspace)
        _sync.result(_sync.Driver(self._connection, None), _engine.unary(call, request))

    def close(self) -> None:
        """Lets the connection go."""
        self._connection.close()
