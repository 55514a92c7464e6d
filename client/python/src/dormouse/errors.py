"""The errors of this library: what a host said, or what happened on the way to it.

Branch on the class, or on `reason` and `code`; the text is for people. Nothing here decides about another attempt.
"""

from __future__ import annotations

from typing import Any, Mapping

__all__ = [
    "ChangedWhileRead",
    "Conflict",
    "DeadlineExceeded",
    "DependencyUnavailable",
    "DormouseError",
    "EditNoMatch",
    "EditNotUnique",
    "HostFeatureUnavailable",
    "InvalidRequest",
    "LimitExceeded",
    "NotFound",
    "PolicyDenied",
    "RevisionMismatch",
    "StorageFull",
    "Unauthenticated",
    "WorkspaceNotRunning",
]


class DormouseError(Exception):
    """A call that failed. The base of every error that a call raises; itself raised for defects and failing disks.

    `code`: the API's code, such as "conflict" or "not_found".
    `reason`: the contract's reason in lower case, such as "revision_mismatch"; empty where none came.
    `details`: the metadata that came with the reason.
    `retryable`: the same call may succeed later.
    `request_id`: names the call in the host's log, where the host named it.
    `attempts`: how many were made; 0 when nothing was sent.
    `wake_failure`: why the workspace could not be woken, when that was tried and failed.
    `retry_after`: seconds that the host asked to wait before another attempt.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "internal",
        reason: str = "",
        details: Mapping[str, str] | None = None,
        retryable: bool = False,
        request_id: str | None = None,
        retry_after: float | None = None,
        grpc_code: str = "INTERNAL",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details: dict[str, str] = dict(details or {})
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after = retry_after
        self.grpc_code = grpc_code
        self.attempts = 0
        self.wake_failure: str | None = None

    def __str__(self) -> str:
        text = f"{self.reason}: {self.message}" if self.reason else self.message
        if self.wake_failure is not None:
            text += f" (and the workspace could not be woken: {self.wake_failure})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.message, self.__dict__)

    def _number(self, key: str) -> int | None:
        text = self.details.get(key, "")
        return int(text) if text.isascii() and text.isdigit() else None


def _unpickle(kind: type[DormouseError], message: str, state: dict[str, Any]) -> DormouseError:
    error = kind(message)
    error.__dict__.update(state)
    return error


class NotFound(DormouseError):
    """No such workspace on this host, or no such file in it: `reason` tells which."""


class Conflict(DormouseError):
    """The state of the file, the workspace or the key does not allow the call."""


class RevisionMismatch(Conflict):
    """The file's revision is another one than expected."""

    @property
    def current(self) -> str | None:
        """The revision now; "absent" where there is no file; None where the host does not say."""
        return self.details.get("actual_revision")


class EditNoMatch(Conflict):
    """An edit's old text does not occur in the file."""

    @property
    def edit_index(self) -> int | None:
        """0-based."""
        return self._number("edit_index")

    @property
    def nearest_line(self) -> int | None:
        """The 1-based line that comes nearest."""
        return self._number("nearest_line")

    @property
    def nearest_text(self) -> str | None:
        """That line."""
        return self.details.get("nearest_text")

    @property
    def cause(self) -> str | None:
        """Why it fails there, such as "indentation" or "line_number_prefix"."""
        return self.details.get("cause")


class EditNotUnique(Conflict):
    """An edit's old text occurs more than once."""

    @property
    def edit_index(self) -> int | None:
        """0-based."""
        return self._number("edit_index")

    @property
    def occurrences(self) -> int | None:
        """How often it occurs."""
        return self._number("occurrences")

    @property
    def lines(self) -> list[int]:
        """The 1-based lines of the first places."""
        parts = (part.strip() for part in self.details.get("lines", "").strip("[]").split(","))
        return [int(part) for part in parts if part.isascii() and part.isdigit()]


class ChangedWhileRead(Conflict):
    """The file changed while its broken read was resumed; what was received belongs to its old content."""


class InvalidRequest(DormouseError):
    """The request itself is wrong."""

    @property
    def field(self) -> str | None:
        """The field, where one is named."""
        return self.details.get("field")


class LimitExceeded(DormouseError):
    """The request or the file is too large."""

    @property
    def limit_bytes(self) -> int | None:
        """The limit that was met, where it is named."""
        return self._number("limit_bytes")


class PolicyDenied(DormouseError):
    """The caller may not do this."""


class Unauthenticated(DormouseError):
    """The caller did not say who it is."""


class WorkspaceNotRunning(DormouseError):
    """The call needs a running workspace: wake it, then call again. `reason` is "workspace_not_running" for a change, and
    "offline_unavailable" or "offline_budget" for a read that the disk cannot answer."""


class HostFeatureUnavailable(DormouseError):
    """The host is too old for the call, or does not offer it. It is never tried again: use another way."""

    @property
    def feature(self) -> str:
        """Such as "file_search"."""
        return self.details.get("feature", "")


class DependencyUnavailable(DormouseError):
    """The host or the workspace's own agent cannot be reached, is busy, or is changing its state; retries were used up."""


class DeadlineExceeded(DormouseError):
    """The caller's own deadline passed."""


class StorageFull(DormouseError):
    """The workspace's disk is full; nothing was changed."""
