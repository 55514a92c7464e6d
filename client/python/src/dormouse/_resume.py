"""How a broken stream goes on. Pure: what arrived goes in, the request for the rest comes out.

A Read goes on at its offset, pinned to the etag of its first message. A List goes on after its last entry. A Search has
no middle to go on from: it begins again, and only while nothing was handed out; that rule lives in `_engine`.
"""

from __future__ import annotations

from dormouse import _crc32c
from dormouse import errors as e
from dormouse._methods import FILES
from dormouse._status import broken_answer
from dormouse.files.v1 import files_pb2

_READ = FILES["Read"]
_LIST = FILES["List"]
# What the contract gives where no `max_entries` is asked for.
_MAX_ENTRIES_UNSET = 10_000


class Reading:
    """The state of one read over all of its attempts.

    ```text
    opening ──first message──► handing out ──`end`──► ended
       ▲                            │ broken
       └────── offset, etag ────────┘
    ```
    """

    def __init__(self, request: files_pb2.ReadRequest) -> None:
        self._asked = request
        self.file: files_pb2.FileInfo | None = None
        self.origin = files_pb2.Origin()
        self.offset = 0
        # Bytes handed out so far, over all attempts.
        self.given = 0
        self.end: files_pb2.ReadEnd | None = None
        # Of the current attempt: where it began, what it sent, and how much of that the caller already has.
        self._start = 0
        self._bytes = 0
        self._crc = 0
        self._skip = 0
        self._opening = True

    def next_request(self) -> files_pb2.ReadRequest:
        """The request of the next attempt."""
        self._opening = True
        self._bytes = 0
        self._crc = 0
        self._skip = 0
        if self.file is None or not self.given:
            # Nothing was handed out: what this attempt finds is what the caller gets.
            self.file = None
            return self._asked
        rest = files_pb2.ReadRequest()
        rest.CopyFrom(self._asked)
        # The first attempt has checked the revision, at the price of a pass over the file; the etag pins what it saw.
        rest.ClearField("expected_revision")
        rest.expected_etag = self.file.etag
        if self._asked.WhichOneof("range") == "line_range":
            # Where these lines end is the host's knowledge: ask for them again and skip.
            self._skip = self.given
            return rest
        length = max(self._asked.byte_range.length, 0)
        to_end = max(self.file.size_bytes - self.offset, 0)
        total = min(length, to_end) if length else to_end
        # With all bytes there and only `end` missing, one byte is asked for again: a length of 0 would mean "all", and
        # an offset at the end of the file is not one that every host answers.
        self._skip = 1 if self.given > 0 and self.given >= total else 0
        rest.byte_range.offset = self.offset + self.given - self._skip
        rest.byte_range.length = max(length - self.given + self._skip, 1) if length else 0
        return rest

    def take(self, message: files_pb2.ReadResponse) -> bytes:
        """The bytes of a message that the caller does not have yet."""
        if self._opening:
            self._begin(message)
        data = message.data
        due = self._start + self._bytes
        # The end of a part without data may come at any offset.
        if message.offset != due and (data or not message.HasField("end")):
            raise broken_answer(_READ, f"data for offset {message.offset} came where {due} was due")
        self._bytes += len(data)
        self._crc = _crc32c.extend(self._crc, data)
        known = min(self._skip, len(data))
        self._skip -= known
        if message.HasField("end"):
            self._check(message.end)
            self.end = message.end
        fresh = data[known:] if known else data
        self.given += len(fresh)
        return fresh

    def _begin(self, message: files_pb2.ReadResponse) -> None:
        self._opening = False
        if not message.HasField("file"):
            raise broken_answer(_READ, "the first message names no file")
        if message.offset < 0:
            raise broken_answer(_READ, f"data for offset {message.offset} is no place in a file")
        if self.file is None:
            self.file = message.file
            self.origin = message.origin
            self.offset = message.offset
            self._start = self.offset
            return
        if message.file.etag != self.file.etag:
            raise changed_while_read()
        self._start = self.offset + self.given - self._skip

    def _check(self, end: files_pb2.ReadEnd) -> None:
        if end.bytes_sent != self._bytes:
            raise broken_answer(_READ, f"{self._bytes} bytes arrived of {end.bytes_sent} sent")
        if _crc32c.AVAILABLE and end.crc32c != self._crc:
            raise broken_answer(_READ, f"the bytes' CRC-32C is {self._crc:08x}, the host sent {end.crc32c:08x}")


def changed_while_read() -> e.ChangedWhileRead:
    """The file is not the one that the read began with."""
    return e.ChangedWhileRead(
        "the file changed while it was read; read it again from the start",
        code="conflict",
        reason="revision_mismatch",
        grpc_code="ABORTED",
    )


def cannot_resume() -> e.DependencyUnavailable:
    """A read that broke where the host had named no etag."""
    return e.DependencyUnavailable(
        "the read broke off, and this host gives no etag to resume it by; read again from the start",
        code="dependency_unavailable",
        retryable=True,
        grpc_code="UNAVAILABLE",
    )


class Listing:
    """The state of one listing over all of its attempts."""

    def __init__(self, request: files_pb2.ListRequest) -> None:
        self._asked = request
        self._last: files_pb2.FileInfo | None = None
        self._given = 0
        self._attempt = 0
        self.origin = files_pb2.Origin()
        self.end: files_pb2.ListEnd | None = None

    def next_request(self) -> files_pb2.ListRequest:
        """The request of the next attempt."""
        self._attempt = 0
        if self._last is None:
            return self._asked
        rest = files_pb2.ListRequest()
        rest.CopyFrom(self._asked)
        rest.ClearField("start_after")
        rest.ClearField("raw_start_after")
        if self._last.raw_path:
            rest.raw_start_after = self._last.raw_path
        else:
            rest.start_after = self._last.path
        asked = self._asked.max_entries if self._asked.HasField("max_entries") else _MAX_ENTRIES_UNSET
        # Where all arrived and only the end is missing, one entry more tells whether the listing was cut.
        rest.max_entries = max(asked - self._given, 1)
        return rest

    def take(self, message: files_pb2.ListResponse) -> list[files_pb2.FileInfo]:
        """The entries of a message."""
        entries = list(message.entries)
        if message.HasField("origin"):
            self.origin = message.origin
        self._attempt += len(entries)
        full = self._asked.max_entries if self._asked.HasField("max_entries") else _MAX_ENTRIES_UNSET
        fresh = entries[: max(full - self._given, 0)]
        self._given += len(fresh)
        if fresh:
            self._last = fresh[-1]
        if message.HasField("end"):
            end = message.end
            if end.entries_sent != self._attempt:
                raise broken_answer(_LIST, f"{self._attempt} entries arrived of {end.entries_sent} sent")
            # The caller is told of all that it got, over however many attempts.
            end.entries_sent = self._given
            if len(fresh) < len(entries):
                end.truncated = True
                end.stop_reason = files_pb2.STOP_REASON_MAX_ENTRIES
            self.end = end
        return fresh
