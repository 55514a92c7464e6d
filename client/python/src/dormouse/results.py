"""What calls answer: plain mappings, with the wire's names, ready for `json.dumps` but where bytes are said.

Paths are text. Linux names are bytes: where a name is not UTF-8, `path` shows U+FFFD for what cannot be read, and `raw_path`
holds the true name.
"""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "Edit",
    "FileInfo",
    "FileType",
    "Limits",
    "Capabilities",
    "Line",
    "ListResult",
    "MakeDirectoryResult",
    "Match",
    "MoveResult",
    "Origin",
    "PatchResult",
    "ReadResult",
    "RemoveResult",
    "SearchResult",
    "SearchSummary",
    "SkippedFiles",
    "Source",
    "StatResult",
    "StopReason",
    "ListSummary",
    "WriteResult",
]

FileType = Literal["", "regular", "directory", "symlink", "fifo", "socket", "character_device", "block_device"]
# Empty: it was not stopped.
StopReason = Literal["", "max_matches", "budget", "max_bytes", "max_entries"]
# What a caller lets the host do for a read: only the running workspace, or only the disk.
Source = Literal["workspace", "disk"]


class Origin(TypedDict):
    """Where an answer came from, and how far it can be trusted."""

    served_from: Literal["", "workspace", "disk"]
    # Only of a disk answer.
    consistency: Literal["", "exact", "crash"]
    generation: int


class _FileInfo(TypedDict):
    path: str
    type: FileType
    size_bytes: int
    # Permission, set-id and sticky bits (0o7777).
    mode: int
    uid: int
    gid: int
    link_count: int
    # RFC 3339, in UTC, to the nanosecond; empty where the host gives none.
    modify_time: str
    # For `expected_etag` only.
    etag: str


class FileInfo(_FileInfo, total=False):
    """One file or directory."""

    raw_path: bytes
    # Only of a symbolic link.
    symlink_target: str
    raw_symlink_target: bytes
    # SHA-256 of the content, 64 lowercase hex characters. Only when asked for; None where the host gives none.
    revision: str | None


class StatResult(FileInfo):
    """`stat`."""

    origin: Origin


class ReadResult(TypedDict):
    """`read_with_info`."""

    content: bytes
    file: FileInfo
    origin: Origin
    # Where `content` begins in the file.
    offset: int
    # Of the whole file; None where the host gives none.
    revision: str | None
    # Of the whole file, when lines were asked for.
    line_count: int | None
    # The file changed while it was read: the bytes may be a mixture.
    changed: bool


class ListSummary(TypedDict):
    """How a listing ended."""

    truncated: bool
    stop_reason: StopReason
    # Directories that could not be read.
    unreadable: int


class ListResult(ListSummary):
    """`list`."""

    entries: list[FileInfo]
    origin: Origin


class _Line(TypedDict):
    text: str
    # The line is longer.
    clipped: bool


class Line(_Line, total=False):
    """One line without its end, at most 1,000 bytes of it."""

    # Set exactly when `text` is not the line's true bytes.
    raw: bytes


class _Match(TypedDict):
    path: str
    # 1-based.
    line: int
    # 1-based byte columns: of the first match on the line, and just past it.
    column: int
    end_column: int
    text: str
    text_clipped: bool
    before: list[Line]
    after: list[Line]


class Match(_Match, total=False):
    """One line that matches."""

    raw_path: bytes
    # Set exactly when `text` is not the line's true bytes.
    raw_text: bytes


class SkippedFiles(TypedDict):
    """Files that were not searched, though the globs allow them."""

    binary: int
    too_large: int
    special: int
    unreadable: int


class SearchSummary(TypedDict):
    """How a search ended."""

    truncated: bool
    stop_reason: StopReason
    files_scanned: int
    skipped: SkippedFiles


class SearchResult(SearchSummary):
    """`search`."""

    matches: list[Match]
    origin: Origin


class _Edit(TypedDict):
    old_text: str
    new_text: str


class Edit(_Edit, total=False):
    """One replacement: `old_text` must occur exactly once, unless `replace_all`."""

    replace_all: bool


class WriteResult(TypedDict):
    """`write`."""

    revision: str
    # None when the file was created.
    previous_revision: str | None
    bytes_written: int
    # The file and its directory are on stable storage.
    durable: bool
    file: FileInfo
    # The stored answer of an earlier attempt.
    replayed: bool


class PatchResult(WriteResult):
    """`patch`."""

    replacements: int
    # Another process kept the replaced file open for writing; what it writes from now on is lost.
    replaced_open_file: bool


class RemoveResult(TypedDict):
    """`remove`."""

    previous_revision: str | None
    durable: bool
    replayed: bool


class MoveResult(TypedDict):
    """`move`."""

    file: FileInfo
    durable: bool
    replayed: bool


class MakeDirectoryResult(MoveResult):
    """`make_directory`."""


class Limits(TypedDict):
    """A host's limits. Durations in seconds."""

    max_request_bytes: int
    max_patch_file_bytes: int
    max_patch_edits: int
    max_search_matches: int
    max_search_globs: int
    max_search_file_bytes: int
    max_search_pattern_bytes: int
    max_search_result_bytes: int
    max_glob_bytes: int
    max_list_entries: int
    max_list_depth: int
    max_offline_read_bytes: int
    search_budget: float
    offline_budget: float
    idempotency_retention: float


class Capabilities(TypedDict):
    """`capabilities`."""

    # Such as "file_search".
    features: list[str]
    limits: Limits
    server_version: str
