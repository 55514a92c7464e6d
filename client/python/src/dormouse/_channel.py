"""Where a host listens, and how a channel to it is set up: the same for the blocking and the asyncio driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

ENDPOINT_VARIABLE = "DORMOUSE_ENDPOINT"
HOST_ENDPOINT_VARIABLE = "DORMOUSE_HOST_ENDPOINT"
GENERATION_METADATA = "dormouse-generation"

# The receiver's settings decide the speed of a Read. A host's messages have at most 1 MiB of content.
_FRAME_BYTES = 256 * 1024
_ANSWER_BYTES_MAX = 8 * 1024 * 1024

_OPTIONS: list[tuple[str, int]] = [
    # Retries are this library's: gRPC's own know neither reasons nor keys.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_frame_size", _FRAME_BYTES),
    # gRPC waits this long before it dials again, and calls meanwhile fail at once: not longer than our first gaps.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]


@dataclass(frozen=True)
class Address:
    """A parsed endpoint: gRPC's name for it, and whether the connection is encrypted."""

    target: str
    tls: bool

    @property
    def options(self) -> list[tuple[str, Any]]:
        """The options of a channel to it."""
        if self.target.startswith("unix:"):
            # Else the socket's path is sent as the authority, which is none by RFC 3986, and strict servers refuse it.
            return [*_OPTIONS, ("grpc.default_authority", "localhost")]
        return list(_OPTIONS)


def parse(endpoint: str) -> Address:
    """`unix:/run/dormouse/files.sock`, `http://HOST:PORT`, `tcp:HOST:PORT`, or `https://HOST:PORT`.

    Raises ValueError for anything else.
    """
    if endpoint.startswith("unix:"):
        path = endpoint[len("unix:") :]
        path = path[2:] if path.startswith("//") else path
        # sockaddr_un.sun_path of unix(7), with its final zero byte.
        if not path or "\0" in path or len(os.fsencode(path)) > 107:
            raise ValueError(f"endpoint {endpoint!r}: a Unix socket's path has 1 to 107 bytes and no zero byte")
        return Address("unix:" + os.path.abspath(path), False)
    for scheme, tls in (("https://", True), ("http://", False), ("tcp:", False)):
        if endpoint.startswith(scheme):
            rest = endpoint[len(scheme) :]
            rest = rest[2:] if scheme == "tcp:" and rest.startswith("//") else rest
            rest = rest[:-1] if rest.endswith("/") else rest
            host, _, port = rest.rpartition(":")
            bracketed = host.startswith("[") and host.endswith("]")
            plain = bool(host) and not any(letter in host for letter in "/?#@:")
            if not (bracketed or plain) or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"endpoint {endpoint!r}: a host and a port are expected, such as 127.0.0.1:7070")
            return Address(f"dns:///{host}:{port}", tls)
    known = "unix:PATH, http://HOST:PORT, https://HOST:PORT or tcp:HOST:PORT"
    raise ValueError(f"endpoint {endpoint!r} has no known scheme: write {known}")


def endpoint_or_default(endpoint: str | None, variable: str = ENDPOINT_VARIABLE) -> str:
    """The endpoint given, else the one that the environment names."""
    found = endpoint or os.environ.get(variable, "")
    if not found:
        raise ValueError(f"no endpoint: give one, or set {variable}")
    return found


def metadata(token: str | None, generation: int | None) -> tuple[tuple[str, str | bytes], ...]:
    """What is sent with every call. Raises ValueError for a token that cannot be a header."""
    pairs: list[tuple[str, str | bytes]] = []
    if token is not None:
        text = token.strip()
        if not text or any(not 32 < ord(letter) < 127 for letter in text):
            raise ValueError("a token is printable ASCII without spaces")
        pairs.append(("authorization", f"Bearer {text}"))
    if generation is not None:
        pairs.append((GENERATION_METADATA, str(generation)))
    return tuple(pairs)
