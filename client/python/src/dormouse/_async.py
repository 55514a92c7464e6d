"""The asyncio driver: carries out the engine's commands over a gRPC channel of `grpc.aio`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from dormouse import _engine as engine
from dormouse import _sync
from dormouse._channel import metadata, parse
from dormouse._content import Content
from dormouse._methods import Method

T = TypeVar("T")
Item = TypeVar("Item")
End = TypeVar("End")

# Called with the workspace's name; may be a coroutine function. Whatever it raises is told.
Waker = Callable[[str], "Awaitable[Any] | Any"]


class Connection:
    """A channel to one host, for one event loop."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        generation: int | None = None,
        root_certificates: bytes | None = None,
    ) -> None:
        self._address = parse(endpoint)
        self.metadata = metadata(token, generation)
        self._root_certificates = root_certificates
        self._made: Any = None
        self._uploads: Any = None

    @property
    def _channel(self) -> Any:
        # Made at the first call: a channel belongs to the loop that runs when it is made.
        if self._made is None:
            if self._address.tls:
                credentials = grpc.ssl_channel_credentials(self._root_certificates)
                self._made = grpc.aio.secure_channel(self._address.target, credentials, self._address.options)
            else:
                self._made = grpc.aio.insecure_channel(self._address.target, self._address.options)
        return self._made

    async def close(self) -> None:
        """Ends every call and lets the connection go."""
        if self._uploads is not None:
            self._uploads.close()
        if self._made is not None:
            await self._made.close()

    async def unary(self, method: Method, request: Any, timeout: float | None) -> Any:
        call = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return await call(request, timeout=timeout, metadata=self.metadata)

    async def upload(self, method: Method, requests: Iterator[Any], timeout: float | None) -> Any:
        # On a channel of the blocking library, which reads the requests on a thread of its own: where a host answers
        # before it has read them all, grpc.aio may tell INTERNAL, "Internal error from Core", in place of the answer.
        if self._uploads is None:
            self._uploads = _sync.channel(self._address, self._root_certificates)
        call = self._uploads.stream_unary(method.path, method.request.SerializeToString, method.response.FromString)
        future = call.future(requests, timeout=timeout, metadata=self.metadata)
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def ended(_: Any) -> None:
            # A loop that is closed by now waits for nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        future.add_done_callback(ended)
        try:
            await done.wait()
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    def open(self, method: Method, request: Any, timeout: float | None) -> Any:
        call = self._channel.unary_stream(method.path, method.request.SerializeToString, method.response.FromString)
        return call(request, timeout=timeout, metadata=self.metadata)


class Driver:
    """Carries out the commands of one call."""

    def __init__(self, connection: Connection, waker: Waker | None) -> None:
        self._connection = connection
        self._waker = waker
        self._stream: Any = None

    async def perform(self, command: engine.Command) -> Any:
        """One command, but for `Hand`, which is for the caller."""
        try:
            if isinstance(command, engine.Send):
                return await self._connection.unary(command.method, command.request, command.timeout)
            if isinstance(command, engine.Open):
                self.close()
                self._stream = self._connection.open(command.method, command.request, command.timeout)
                return None
            if isinstance(command, engine.Receive):
                message = await self._stream.read()
                return None if message is grpc.aio.EOF else message
            if isinstance(command, engine.Upload):
                return await self._upload(command)
        except grpc.RpcError as error:
            raise engine.RpcFailed(_sync.status_of(error)) from error
        if isinstance(command, engine.Wait):
            await asyncio.sleep(command.seconds)
            return None
        assert isinstance(command, engine.Wake) and self._waker is not None
        try:
            waking = self._waker(command.workspace)
            if inspect.isawaitable(waking):
                await asyncio.wait_for(waking, command.timeout)
        except asyncio.TimeoutError as failure:
            raise engine.WakeFailed(failure, str(failure) or "the caller's deadline passed") from failure
        except Exception as failure:  # whatever a caller's waker raises is one of the two causes that are told
            raise engine.WakeFailed(failure, str(failure) or type(failure).__name__) from failure
        return None

    async def _upload(self, command: engine.Upload) -> Any:
        content = command.source
        assert isinstance(content, Content)
        try:
            return await self._connection.upload(command.method, content.messages(command.start), command.timeout)
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

    async def next(self) -> Item | None:
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
                    reply = await self._driver.perform(command)
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


async def result(driver: Driver, steps: engine.Steps[T]) -> T:
    """The result of a call that hands out nothing."""
    run: Steps[None, T] = Steps(driver, steps)
    await run.next()
    assert run.end is not None
    return run.end
