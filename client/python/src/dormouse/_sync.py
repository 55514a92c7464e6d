"""The blocking driver: carries out the engine's commands over a gRPC channel."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import grpc

from dormouse import _engine as engine
from dormouse._channel import Address, metadata, parse
from dormouse._content import Content
from dormouse._methods import Method
from dormouse._status import DETAILS_TRAILER, PUSHBACK_TRAILER, REQUEST_ID_TRAILER, Status

T = TypeVar("T")
Head = TypeVar("Head")
Item = TypeVar("Item")
End = TypeVar("End")


def status_of(error: Any) -> Status:
    """What gRPC knows of a failed call, blocking or asyncio."""
    trailers: dict[str, Any] = {}
    for key, value in error.trailing_metadata() or ():
        trailers.setdefault(key, value)
    details = trailers.get(DETAILS_TRAILER, b"")

    def text(key: str) -> str | None:
        value = trailers.get(key)
        return value if isinstance(value, str) else None

    return Status(
        code=error.code().name,
        message=error.details() or "",
        details=details if isinstance(details, bytes) else b"",
        pushback=text(PUSHBACK_TRAILER),
        request_id=text(REQUEST_ID_TRAILER),
    )


def channel(address: Address, root_certificates: bytes | None) -> grpc.Channel:
    """A channel to an address."""
    if address.tls:
        credentials = grpc.ssl_channel_credentials(root_certificates)
        return grpc.secure_channel(address.target, credentials, address.options)
    return grpc.insecure_channel(address.target, address.options)


class Connection:
    """A channel to one host. Safe to share between threads and workspaces."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        generation: int | None = None,
        root_certificates: bytes | None = None,
    ) -> None:
        self.metadata = metadata(token, generation)
        self._channel = channel(parse(endpoint), root_certificates)

    def close(self) -> None:
        """Ends every call and lets the connection go."""
        self._channel.close()

    def unary(self, method: Method, request: Any, timeout: float | None) -> Any:
        call = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return call(request, timeout=timeout, metadata=self.metadata)

    def upload(self, method: Method, requests: Iterator[Any], timeout: float | None) -> Any:
        call = self._channel.stream_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return call(requests, timeout=timeout, metadata=self.metadata)

    def open(self, method: Method, request: Any, timeout: float | None) -> Any:
        call = self._channel.unary_stream(method.path, method.request.SerializeToString, method.response.FromString)
        return call(request, timeout=timeout, metadata=self.metadata)


class Driver:
    """Carries out the commands of one call."""

    def __init__(self, connection: Connection, waker: Callable[[str], Any] | None) -> None:
        self._connection = connection
        self._waker = waker
        self._stream: Any = None

    def perform(self, command: engine.Command) -> Any:
        """One command, but for `Hand`, which is for the caller."""
        try:
            if isinstance(command, engine.Send):
                return self._connection.unary(command.method, command.request, command.timeout)
            if isinstance(command, engine.Open):
                self.close()
                self._stream = self._connection.open(command.method, command.request, command.timeout)
                return None
            if isinstance(command, engine.Receive):
                return next(self._stream, None)
            if isinstance(command, engine.Upload):
                return self._upload(command)
        except grpc.RpcError as error:
            raise engine.RpcFailed(status_of(error)) from error
        if isinstance(command, engine.Wait):
            time.sleep(command.seconds)
            return None
        assert isinstance(command, engine.Wake) and self._waker is not None
        try:
            self._waker(command.workspace)
        except Exception as failure:  # whatever a caller's waker raises is one of the two causes that are told
            raise engine.WakeFailed(failure, str(failure) or type(failure).__name__) from failure
        return None

    def _upload(self, command: engine.Upload) -> Any:
        content = command.source
        assert isinstance(content, Content)
        try:
            return self._connection.upload(command.method, content.messages(command.start), command.timeout)
        except grpc.RpcError:
            if content.failure is not None:
                raise content.failure from None
            raise

    def close(self) -> None:
        """Lets the open stream go."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None


class Steps(Generic[Item, End]):
    """Runs a generator of commands and stops at what it hands out."""

    def __init__(self, driver: Driver, steps: engine.Steps[End]) -> None:
        self._driver = driver
        self._steps = steps
        self.end: End | None = None
        self._over = False

    def next(self) -> Item | None:
        """The next item; None once the end is known."""
        if self._over:
            return None
        reply: Any = None
        failure: BaseException | None = None
        try:
            while True:
                command = self._steps.send(reply) if failure is None else self._steps.throw(failure)
                if isinstance(command, engine.Hand):
                    item: Item = command.item
                    return item
                reply, failure = None, None
                try:
                    reply = self._driver.perform(command)
                except (engine.RpcFailed, engine.WakeFailed) as error:
                    failure = error
        except StopIteration as done:
            self.end = done.value
            self.close()
            return None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets the call go."""
        self._over = True
        self._steps.close()
        self._driver.close()


def result(driver: Driver, steps: engine.Steps[T]) -> T:
    """The result of a call that hands out nothing."""
    run: Steps[None, T] = Steps(driver, steps)
    run.next()
    assert run.end is not None
    return run.end


def call(method: Method, workspace: str, options: engine.Options, can_wake: bool) -> engine.Call:
    """A call that begins now."""
    return engine.Call(method, workspace, options, can_wake, time.monotonic, random.random)
