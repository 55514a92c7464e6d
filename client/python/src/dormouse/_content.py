"""The bytes that a write sends: given whole, or read from a file in pieces."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import Protocol, Union

from dormouse import _crc32c
from dormouse.files.v1 import files_pb2

PIECE_BYTES = 256 * 1024


class Readable(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


ContentLike = Union[bytes, bytearray, memoryview, str, Readable]


def as_bytes(content: object) -> bytes | None:
    """The bytes of content that is given whole; a `str` is its UTF-8. None for a file."""
    if isinstance(content, str):
        return content.encode("utf-8")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    return None


class Content:
    """A source of bytes that can be sent again where it can be read again. It begins where the file stands now."""

    def __init__(self, content: ContentLike) -> None:
        self._whole = as_bytes(content)
        self._file: Readable | None = None
        self._place: int | None = None
        self._touched = False
        # gRPC reads requests on a thread of its own, which may still be reading when its call has failed: a read and a
        # rewind exclude each other, and a reader whose attempt is over reads no more.
        self._lock = threading.Lock()
        self._attempt = 0
        # What went wrong while the file was read.
        self.failure: BaseException | None = None
        if self._whole is None:
            if not hasattr(content, "read"):
                raise TypeError(f"content is bytes, text, or a file opened for reading bytes, not {type(content).__name__}")
            self._file = content
            try:
                self._place = content.tell()  # type: ignore[union-attr]
            except (AttributeError, OSError):
                # A pipe, say: it gets one attempt.
                self._place = None

    @property
    def revision(self) -> str | None:
        """SHA-256 of the whole, where it is at hand: a replay is then answered before the data."""
        return None if self._whole is None else hashlib.sha256(self._whole).hexdigest()

    def rewind(self) -> bool:
        """Goes back to the start; False where that cannot be done."""
        if self.failure is not None:
            return False
        if self._file is None or not self._touched:
            return True
        if self._place is None:
            return False
        with self._lock:
            self._attempt += 1
            try:
                self._file.seek(self._place)  # type: ignore[attr-defined]
            except (AttributeError, OSError):
                return False
            self._touched = False
        return True

    def messages(self, start: files_pb2.WriteStart) -> Iterator[files_pb2.WriteRequest]:
        """The requests of one attempt. Where the file fails, the last one is left out: no host takes that for a whole."""
        return self._messages(start, self._attempt)

    def _messages(self, start: files_pb2.WriteStart, attempt: int) -> Iterator[files_pb2.WriteRequest]:
        yield files_pb2.WriteRequest(start=start)
        size = 0
        crc = 0
        try:
            for piece in self._pieces(attempt):
                size += len(piece)
                crc = _crc32c.extend(crc, piece)
                yield files_pb2.WriteRequest(data=piece)
        except Exception as failure:  # whatever a caller's file raises is told to the caller, not to gRPC's thread
            if self._attempt == attempt:
                self.failure = failure
            return
        finish = files_pb2.WriteFinish(size_bytes=size)
        if _crc32c.AVAILABLE:
            finish.crc32c = crc
        yield files_pb2.WriteRequest(finish=finish)

    def _pieces(self, attempt: int) -> Iterator[bytes]:
        if self._whole is not None:
            for begin in range(0, len(self._whole), PIECE_BYTES):
                yield self._whole[begin : begin + PIECE_BYTES]
            return
        assert self._file is not None
        while True:
            with self._lock:
                if self._attempt != attempt:
                    raise RuntimeError("this attempt is over")
                self._touched = True
                piece = self._file.read(PIECE_BYTES)
            if not isinstance(piece, bytes):
                raise TypeError("content is read from a file opened for bytes (mode 'rb')")
            if not piece:
                return
            yield piece
