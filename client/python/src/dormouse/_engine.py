"""Every call from its first attempt to its answer, written once for the blocking and the asyncio drivers.

A call is a generator: it yields a command, the driver carries it out and sends the result back in, or throws the failure
in. So nothing here does I/O, sleeps or reads a clock of its own, and everything can be tested with a list of answers.

What is done after a failure is decided in `_retry`; how a broken stream goes on, in `_resume`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, Union

from google.protobuf.message import Message

from dormouse import errors as e
from dormouse._methods import Method
from dormouse._resume import Listing, Reading, cannot_resume, changed_while_read
from dormouse._retry import Again, Attempt, RetryPolicy, Verdict, decide
from dormouse._status import (
    Status,
    broken_answer,
    broken_off,
    deadline_passed,
    error_of,
    request_too_large,
)
from dormouse.files.v1 import files_pb2

# The largest request that a host takes, in bytes of its encoding.
REQUEST_BYTES_MAX = 7 * 1024 * 1024
# The contract's bounds of `max_matches`.
_MATCHES_UNSET = 200
_MATCHES_MAX = 5_000


class Source(Protocol):
    """The bytes of an upload."""

    def rewind(self) -> bool:
        """Goes back to the start; False where that cannot be done."""


# ---- commands


@dataclass(frozen=True)
class Send:
    """One request, one answer: the answer is sent back in."""

    method: Method
    request: Message
    timeout: float | None


@dataclass(frozen=True)
class Upload:
    """A stream of requests, one answer."""

    method: Method
    start: files_pb2.WriteStart
    source: Source
    timeout: float | None


@dataclass(frozen=True)
class Open:
    """Opens the stream of answers; the one before it, if any, is let go."""

    method: Method
    request: Message
    timeout: float | None


@dataclass(frozen=True)
class Receive:
    """The open stream's next message is sent back in; None at its end."""


@dataclass(frozen=True)
class Wait:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True)
class Wake:
    """Call the user's waker, for at most `timeout` seconds where that can be cut short."""

    workspace: str
    timeout: float | None


@dataclass(frozen=True)
class Hand:
    """Something for the caller: first what is known at the start of a stream, then its items."""

    item: Any


Command = Union[Send, Upload, Open, Receive, Wait, Wake, Hand]


class RpcFailed(Exception):
    """Thrown in by a driver: an attempt, or a step of a stream, ended with this status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class WakeFailed(Exception):
    """Thrown in by a driver: the waker failed."""

    def __init__(self, cause: BaseException | None, fact: str) -> None:
        super().__init__(fact)
        self.cause = cause
        self.fact = fact


T = TypeVar("T")
Steps = Generator[Command, Any, T]


# ---- one call


@dataclass(frozen=True)
class Options:
    """How calls are made. Times in seconds."""

    # For a whole call, its retries, waits and a wake included; for a stream, to its last message. None: none.
    timeout: float | None = None
    # For one attempt of a call with a single answer. None: as long as the whole call.
    attempt_timeout: float | None = None
    policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass
class Call:
    """The state of one call between its attempts. `clock` gives seconds that only grow, `random` a number from 0 to 1."""

    method: Method
    workspace: str
    options: Options
    can_wake: bool
    clock: Callable[[], float]
    random: Callable[[], float]

    def __post_init__(self) -> None:
        self._since = self.clock()
        self._deadline = None if self.options.timeout is None else self._since + self.options.timeout
        self._failed = 0
        self.attempts = 0

    def remaining(self) -> float | None:
        """Seconds until the caller's deadline."""
        return None if self._deadline is None else max(self._deadline - self.clock(), 0.0)

    def begin(self, *, stream: bool = False) -> float | None:
        """Counts an attempt and gives its time."""
        remaining = self.remaining()
        if remaining is not None and remaining <= 0:
            raise self.give_up(deadline_passed(self.method))
        self.attempts += 1
        own = None if stream else self.options.attempt_timeout
        if own is None or remaining is None:
            return remaining if own is None else own
        return min(own, remaining)

    def progressed(self) -> None:
        """The call got on: its next failure is the first one."""
        self._since = self.clock()
        self._failed = 0

    def recover(self, error: e.DormouseError) -> Steps[None]:
        """Waits, or wakes the workspace, until the next attempt may be made; or raises the error."""
        self._failed += 1
        attempt = Attempt(
            failed=self._failed,
            elapsed=self.clock() - self._since,
            remaining=self.remaining(),
            can_wake=self.can_wake,
            random=self.random(),
        )
        step = decide(self.options.policy, self.method.effect, error, attempt)
        if isinstance(step, Again):
            yield Wait(step.after)
        elif step is Verdict.WAKE:
            self.can_wake = False
            try:
                yield Wake(self.workspace, attempt.remaining)
            except WakeFailed as failure:
                error.wake_failure = failure.fact
                raise self.give_up(error) from failure.cause
            # What follows a wake is a new story: the workspace needs its time to come up.
            self.progressed()
        else:
            raise self.give_up(error)

    def give_up(self, error: e.DormouseError) -> e.DormouseError:
        """The error as the caller gets it."""
        error.attempts = self.attempts
        return error

    def error(self, failure: RpcFailed) -> e.DormouseError:
        """What a status means for this call."""
        return error_of(self.method, failure.status)


def idempotency_key(given: str | None) -> str:
    """A key for a change that has none yet; every attempt carries the same."""
    return str(uuid.uuid4()) if given is None else given


def unary(call: Call, request: Message) -> Steps[Any]:
    """A call with one answer."""
    size = request.ByteSize()
    if size > REQUEST_BYTES_MAX:
        raise request_too_large(size, REQUEST_BYTES_MAX)
    while True:
        try:
            answer = yield Send(call.method, request, call.begin())
            return answer
        except RpcFailed as failure:
            error = call.error(failure)
        yield from call.recover(error)


def write(call: Call, start: files_pb2.WriteStart, source: Source) -> Steps[files_pb2.WriteResponse]:
    """A stream of bytes to one file. A source that cannot be read twice gets one attempt."""
    while True:
        try:
            answer = yield Upload(call.method, start, source, call.begin())
            assert isinstance(answer, files_pb2.WriteResponse)
            return answer
        except RpcFailed as failure:
            error = call.error(failure)
        if not source.rewind():
            raise call.give_up(error)
        yield from call.recover(error)


def read(call: Call, request: files_pb2.ReadRequest) -> Steps[files_pb2.ReadEnd]:
    """Hands the `Reading` once its head is known, then pieces of bytes, none of them empty."""
    reading = Reading(request)
    opened = False
    told = False
    while True:
        try:
            if not opened:
                yield Open(call.method, reading.next_request(), call.begin(stream=True))
                opened = True
            message = yield Receive()
            if message is None:
                raise broken_off(call.method)
            fresh = reading.take(message)
        except RpcFailed as failure:
            error = call.error(failure)
            if reading.file is not None and isinstance(error, e.RevisionMismatch):
                raise call.give_up(changed_while_read()) from error
            opened = False
            yield from call.recover(_resumable(call, reading, error))
            continue
        except e.DormouseError as error:
            opened = False
            yield from call.recover(_resumable(call, reading, error))
            continue
        if not told:
            told = True
            yield Hand(reading)
        if fresh:
            call.progressed()
            yield Hand(fresh)
        if reading.end is not None:
            return reading.end


def _resumable(call: Call, reading: Reading, error: e.DormouseError) -> e.DormouseError:
    """The error of an attempt, unless this host gives nothing to go on by."""
    if reading.given and reading.file is not None and not reading.file.etag:
        raise call.give_up(cannot_resume()) from error
    return error


def search(call: Call, request: files_pb2.SearchRequest, *, collect: bool) -> Steps[Any]:
    """With `collect`: everything at once, `(origin, matches, end)`; one that breaks at any point begins again, since nothing
    was handed out. Without: hands the origin, then each match, and returns the end; it begins again only before the first
    match: a second run may find other lines, and half of each is no answer."""
    limit = min(request.max_matches if request.HasField("max_matches") else _MATCHES_UNSET, _MATCHES_MAX)
    origin: files_pb2.Origin | None = None
    matches: list[files_pb2.Match] = []
    given = 0
    told = False
    opened = False
    while True:
        try:
            if not opened:
                yield Open(call.method, request, call.begin(stream=True))
                opened = True
                origin = None
                matches = []
            message = yield Receive()
            if message is None:
                raise broken_off(call.method)
        except RpcFailed as failure:
            error: e.DormouseError = call.error(failure)
        except e.DependencyUnavailable as failure:
            error = failure
        else:
            if origin is None:
                origin = message.origin
            if given + len(matches) + len(message.matches) > limit:
                raise call.give_up(broken_answer(call.method, f"more than the {limit} matches that were asked for"))
            if collect:
                matches.extend(message.matches)
            else:
                if not told:
                    told = True
                    yield Hand(origin)
                for match in message.matches:
                    given += 1
                    yield Hand(match)
            if message.HasField("end"):
                return (origin, matches, message.end) if collect else message.end
            continue
        if given:
            raise call.give_up(error)
        opened = False
        yield from call.recover(error)


def list_(call: Call, request: files_pb2.ListRequest) -> Steps[files_pb2.ListEnd]:
    """Hands the `Listing` once it is known where the answer comes from, then each entry."""
    listing = Listing(request)
    opened = False
    told = False
    while True:
        try:
            if not opened:
                yield Open(call.method, listing.next_request(), call.begin(stream=True))
                opened = True
            message = yield Receive()
            if message is None:
                raise broken_off(call.method)
            entries = listing.take(message)
        except RpcFailed as failure:
            opened = False
            yield from call.recover(call.error(failure))
            continue
        except e.DormouseError as error:
            opened = False
            yield from call.recover(error)
            continue
        if not told:
            told = True
            yield Hand(listing)
        for entry in entries:
            yield Hand(entry)
        if entries:
            call.progressed()
        if listing.end is not None:
            return listing.end


