"""From a caller's arguments to the wire's messages. What only the caller can have got wrong is refused here, before
anything is sent, in the contract's words; all else is the host's to judge."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Union, final

from dormouse._content import Content, ContentLike, as_bytes
from dormouse._engine import idempotency_key
from dormouse._status import invalid
from dormouse.files.v1 import files_pb2 as pb

# A path inside the workspace. Bytes for a name that is not UTF-8.
PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@final
class Unset:
    """The type of `UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


# An argument that was left out, where None means something else.
UNSET: Final = Unset()

_SOURCES = {None: pb.READ_SOURCE_UNSPECIFIED, "workspace": pb.READ_SOURCE_WORKSPACE, "disk": pb.READ_SOURCE_DISK}


def _put_path(message: Any, path: PathLike, field: str = "path") -> None:
    plain = os.fspath(path)
    if isinstance(plain, str):
        try:
            plain.encode("utf-8")
        except UnicodeEncodeError:
            # As os.fsdecode writes a name that is not UTF-8 (PEP 383).
            plain = os.fsencode(plain)
    if isinstance(plain, bytes):
        setattr(message, f"raw_{field}", plain)
    else:
        setattr(message, field, plain)


def _source(name: str | None) -> Any:
    if name not in _SOURCES:
        raise invalid(f"source {name!r} is neither 'workspace' nor 'disk'", "source")
    return _SOURCES[name]


def _globs(globs: Iterable[str], field: str) -> list[str]:
    if isinstance(globs, (str, bytes)):
        raise invalid(f"{field} is a list of globs, not one text", field)
    return list(globs)


def _put_revision(message: Any, revision: str | None | Unset) -> None:
    if isinstance(revision, Unset):
        return
    if revision is None:
        # What `stat(revision=True)` of a host without revisions gives. Sent as "unset" it would drop the guard.
        raise invalid(
            "expected_revision is None: this host gave no revision to hold the change to; leave the argument out to "
            "change whatever is there now",
            "expected_revision",
        )
    message.expected_revision = revision


def stat(workspace: str, path: PathLike, revision: bool, source: str | None) -> pb.StatRequest:
    request = pb.StatRequest(workspace=workspace, include_revision=revision, source=_source(source))
    _put_path(request, path)
    return request


def read(
    workspace: str,
    path: PathLike,
    *,
    offset: int | None,
    length: int | None,
    start_line: int | None,
    end_line: int | None,
    expected_revision: str | None | Unset,
    revision: bool,
    source: str | None,
) -> pb.ReadRequest:
    request = pb.ReadRequest(workspace=workspace, include_revision=revision, source=_source(source))
    _put_path(request, path)
    if (offset is not None or length is not None) and (start_line is not None or end_line is not None):
        raise invalid("a read takes a range of bytes or a range of lines, not both", "range")
    if length is not None and length <= 0:
        raise invalid(f"length {length}: a range has at least one byte; leave it out for all the rest", "byte_range.length")
    if offset is not None or length is not None:
        request.byte_range.offset = offset or 0
        request.byte_range.length = length or 0
    if start_line is not None or end_line is not None:
        request.line_range.start = start_line or 0
        request.line_range.end = end_line or 0
        request.line_range.SetInParent()
    _put_revision(request, expected_revision)
    return request


def list_(
    workspace: str,
    path: PathLike,
    *,
    depth: int | None,
    include: Iterable[str],
    exclude: Iterable[str] | None,
    max_entries: int | None,
    revision: bool,
    source: str | None,
    start_after: PathLike | None,
) -> pb.ListRequest:
    request = pb.ListRequest(
        workspace=workspace,
        depth=depth,
        include=_globs(include, "include"),
        max_entries=max_entries,
        include_revision=revision,
        source=_source(source),
    )
    _put_path(request, path)
    if exclude is not None:
        request.exclude.CopyFrom(pb.GlobList(globs=_globs(exclude, "exclude")))
    if start_after is not None:
        _put_path(request, start_after, "start_after")
    return request


def search(
    workspace: str,
    path: PathLike,
    pattern: str,
    *,
    regex: bool,
    case_insensitive: bool,
    include: Iterable[str],
    exclude: Iterable[str] | None,
    context_lines: int,
    max_matches: int | None,
    max_file_bytes: int | None,
    source: str | None,
) -> pb.SearchRequest:
    request = pb.SearchRequest(
        workspace=workspace,
        pattern=pattern,
        regex=regex,
        case_insensitive=case_insensitive,
        include=_globs(include, "include"),
        context_lines=context_lines,
        max_matches=max_matches,
        max_file_bytes=max_file_bytes,
        source=_source(source),
    )
    _put_path(request, path)
    if exclude is not None:
        request.exclude.CopyFrom(pb.GlobList(globs=_globs(exclude, "exclude")))
    return request


def _edit(index: int, edit: Mapping[str, Any]) -> pb.Edit:
    if not isinstance(edit, Mapping):
        raise invalid(f"edits[{index}] is no mapping of old_text and new_text", f"edits[{index}]")
    known: dict[str, type] = {"old_text": str, "new_text": str, "replace_all": bool}
    for name, value in edit.items():
        if name not in known:
            raise invalid(f"`edits[{index}].{name}`: unknown field", f"edits[{index}].{name}")
        if not isinstance(value, known[name]):
            wanted = "text" if known[name] is str else "true or false"
            raise invalid(f"`edits[{index}].{name}`: {wanted} is expected", f"edits[{index}].{name}")
    for name in ("old_text", "new_text"):
        if name not in edit:
            raise invalid(f"`edits[{index}].{name}`: missing", f"edits[{index}].{name}")
    return pb.Edit(old_text=edit["old_text"], new_text=edit["new_text"], replace_all=edit.get("replace_all", False))


def patch(
    workspace: str,
    path: PathLike,
    *,
    edits: Iterable[Mapping[str, Any]] | None,
    content: bytes | str | None,
    expected_revision: str | None | Unset,
    mode: int | None,
    create_parents: bool,
    validate_only: bool,
    key: str | None,
) -> pb.PatchRequest:
    if (edits is None) == (content is None):
        raise invalid("a patch takes exactly one of edits and content", "change")
    request = pb.PatchRequest(
        workspace=workspace,
        mode=mode,
        create_parents=create_parents,
        validate_only=validate_only,
        idempotency_key=idempotency_key(key),
    )
    _put_path(request, path)
    if edits is not None:
        if isinstance(edits, (str, bytes, Mapping)):
            raise invalid("edits is a list of mappings", "edits")
        request.edits.CopyFrom(pb.EditList(edits=[_edit(index, edit) for index, edit in enumerate(edits)]))
    else:
        whole = as_bytes(content)
        if whole is None:
            raise TypeError("content of a patch is bytes or text; write takes files")
        request.content = whole
    _put_revision(request, expected_revision)
    return request


def write(
    workspace: str,
    path: PathLike,
    content: ContentLike,
    *,
    expected_revision: str | None | Unset,
    mode: int | None,
    create_parents: bool,
    key: str | None,
) -> tuple[pb.WriteStart, Content]:
    source = Content(content)
    start = pb.WriteStart(
        workspace=workspace,
        mode=mode,
        create_parents=create_parents,
        idempotency_key=idempotency_key(key),
        content_revision=source.revision,
    )
    _put_path(start, path)
    _put_revision(start, expected_revision)
    return start, source


def remove(
    workspace: str, path: PathLike, *, recursive: bool, expected_revision: str | None | Unset, key: str | None
) -> pb.RemoveRequest:
    request = pb.RemoveRequest(workspace=workspace, recursive=recursive, idempotency_key=idempotency_key(key))
    _put_path(request, path)
    _put_revision(request, expected_revision)
    return request


def move(
    workspace: str,
    path: PathLike,
    new_path: PathLike,
    *,
    replace: bool,
    expected_revision: str | None | Unset,
    create_parents: bool,
    key: str | None,
) -> pb.MoveRequest:
    request = pb.MoveRequest(
        workspace=workspace, replace=replace, create_parents=create_parents, idempotency_key=idempotency_key(key)
    )
    _put_path(request, path)
    _put_path(request, new_path, "new_path")
    _put_revision(request, expected_revision)
    return request


def make_directory(
    workspace: str, path: PathLike, *, mode: int | None, create_parents: bool, key: str | None
) -> pb.MakeDirectoryRequest:
    request = pb.MakeDirectoryRequest(
        workspace=workspace, mode=mode, create_parents=create_parents, idempotency_key=idempotency_key(key)
    )
    _put_path(request, path)
    return request
