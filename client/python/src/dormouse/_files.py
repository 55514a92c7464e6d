"""The files of one workspace, blocking. `aio` has the same for asyncio: a verb that changes here changes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as changed
from types import TracebackType
from typing import Any, Generic, TypeVar

from dormouse import _decode, _engine, _requests, _sync
from dormouse import results as r
from dormouse._content import ContentLike
from dormouse._methods import FILES
from dormouse._requests import UNSET, PathLike, Unset
from dormouse._resume import Listing, Reading
from dormouse.files.v1 import files_pb2 as pb

Item = TypeVar("Item")
Self = TypeVar("Self", bound="Stream[Any]")

# Called with the workspace's name; returns once the workspace runs or is about to. Whatever it raises is told.
Waker = Callable[[str], Any]


class Stream(Generic[Item]):
    """Items as they arrive. Iterate it to its end, or close it: `with` does."""

    def __init__(self, steps: _sync.Steps[Any, Any]) -> None:
        self._steps = steps

    def __iter__(self: Self) -> Self:
        return self

    def __next__(self) -> Item:
        item = self._steps.next()
        if item is None:
            raise StopIteration
        return self._item(item)

    def _item(self, item: Any) -> Item:
        raise NotImplementedError

    def close(self) -> None:
        """Lets the call go; what is still to come is dropped."""
        self._steps.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ReadStream(Stream[bytes]):
    """The bytes of a read in pieces, none of them empty. The file is whole only when the iteration has ended."""

    def __init__(self, steps: _sync.Steps[Any, pb.ReadEnd]) -> None:
        super().__init__(steps)
        reading = steps.next()
        assert isinstance(reading, Reading) and reading.file is not None
        self.file: r.FileInfo = _decode.file_info(reading.file, revision=False)
        self.origin: r.Origin = _decode.origin(reading.origin)
        # Where the first byte lies in the file.
        self.offset: int = reading.offset

    def _item(self, item: Any) -> bytes:
        return bytes(item)

    @property
    def end(self) -> pb.ReadEnd | None:
        """The host's last word, once the iteration has ended."""
        return self._steps.end


class SearchStream(Stream[r.Match]):
    """Matches in path order."""

    def __init__(self, steps: _sync.Steps[Any, pb.SearchEnd]) -> None:
        super().__init__(steps)
        origin = steps.next()
        assert isinstance(origin, pb.Origin)
        self.origin: r.Origin = _decode.origin(origin)

    def _item(self, item: Any) -> r.Match:
        return _decode.match(item)

    @property
    def summary(self) -> r.SearchSummary | None:
        """How the search ended, once the iteration has."""
        return None if self._steps.end is None else _decode.search_summary(self._steps.end)


class ListStream(Stream[r.FileInfo]):
    """Entries in path order."""

    def __init__(self, steps: _sync.Steps[Any, pb.ListEnd], revision: bool) -> None:
        super().__init__(steps)
        self._revision = revision
        listing = steps.next()
        assert isinstance(listing, Listing)
        self.origin: r.Origin = _decode.origin(listing.origin)

    def _item(self, item: Any) -> r.FileInfo:
        return _decode.file_info(item, revision=self._revision)

    @property
    def summary(self) -> r.ListSummary | None:
        """How the listing ended, once the iteration has."""
        return None if self._steps.end is None else _decode.list_summary(self._steps.end)


class Files:
    """The files of one workspace. Paths are absolute inside it.

    `timeout` is in seconds, for the whole call, its retries and waits included. `source` says what a read may come from:
    "workspace" or "disk"; left out, the disk for a suspended workspace, else the running workspace.
    """

    def __init__(
        self, connection: _sync.Connection, workspace: str, options: _engine.Options, waker: Waker | None
    ) -> None:
        self._connection = connection
        self._workspace = workspace
        self._options = options
        self._waker = waker

    # ---- how a call is made

    def _begin(self, verb: str, timeout: float | None) -> tuple[_sync.Driver, _engine.Call]:
        options = self._options if timeout is None else changed(self._options, timeout=timeout)
        driver = _sync.Driver(self._connection, self._waker)
        return driver, _sync.call(FILES[verb], self._workspace, options, self._waker is not None)

    def _unary(self, verb: str, request: Any, timeout: float | None) -> Any:
        driver, call = self._begin(verb, timeout)
        return _sync.result(driver, _engine.unary(call, request))

    # ---- verbs

    def capabilities(self, *, timeout: float | None = None) -> r.Capabilities:
        """What this host can do for this workspace."""
        request = pb.GetCapabilitiesRequest(workspace=self._workspace)
        return _decode.capabilities(self._unary("GetCapabilities", request, timeout))

    def stat(
        self, path: PathLike, *, revision: bool = False, source: r.Source | None = None, timeout: float | None = None
    ) -> r.StatResult:
        """Metadata of one file or directory; with `revision`, the SHA-256 of a file's content too."""
        request = _requests.stat(self._workspace, path, revision, source)
        return _decode.stat(self._unary("Stat", request, timeout), revision=revision)

    def read(
        self,
        path: PathLike,
        *,
        offset: int | None = None,
        length: int | None = None,
        start_line: int | None = None,
        end_line: int | None = None,
        expected_revision: str | None | Unset = UNSET,
        source: r.Source | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """The bytes of a file, or of a range: `offset` (negative: from the end) and `length` in bytes, or `start_line` and
        `end_line`, 1-based and inclusive."""
        with self.read_chunks(
            path,
            offset=offset,
            length=length,
            start_line=start_line,
            end_line=end_line,
            expected_revision=expected_revision,
            source=source,
            timeout=timeout,
        ) as pieces:
            return b"".join(pieces)

    def read_text(
        self,
        path: PathLike,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        start_line: int | None = None,
        end_line: int | None = None,
        expected_revision: str | None | Unset = UNSET,
        source: r.Source | None = None,
        timeout: float | None = None,
    ) -> str:
        """The text of a file, or of a range of its lines. Line ends stay as they are."""
        data = self.read(
            path,
            start_line=start_line,
            end_line=end_line,
            expected_revision=expected_revision,
            source=source,
            timeout=timeout,
        )
        return data.decode(encoding, errors)

    def read_with_info(
        self,
        path: PathLike,
        *,
        offset: int | None = None,
        length: int | None = None,
        start_line: int | None = None,
        end_line: int | None = None,
        expected_revision: str | None | Unset = UNSET,
        source: r.Source | None = None,
        timeout: float | None = None,
    ) -> r.ReadResult:
        """As `read`, with the whole file's revision and where the answer came from."""
        with self.read_chunks(
            path,
            offset=offset,
            length=length,
            start_line=start_line,
            end_line=end_line,
            expected_revision=expected_revision,
            revision=True,
            source=source,
            timeout=timeout,
        ) as pieces:
            content = b"".join(pieces)
            end = pieces.end
            assert end is not None
            return _decode.read(content, pieces.file, pieces.origin, pieces.offset, end)

    def read_chunks(
        self,
        path: PathLike,
        *,
        offset: int | None = None,
        length: int | None = None,
        start_line: int | None = None,
        end_line: int | None = None,
        expected_revision: str | None | Unset = UNSET,
        revision: bool = False,
        source: r.Source | None = None,
        timeout: float | None = None,
    ) -> ReadStream:
        """As `read`, in pieces as they arrive."""
        request = _requests.read(
            self._workspace,
            path,
            offset=offset,
            length=length,
            start_line=start_line,
            end_line=end_line,
            expected_revision=expected_revision,
            revision=revision,
            source=source,
        )
        driver, call = self._begin("Read", timeout)
        return ReadStream(_sync.Steps(driver, _engine.read(call, request)))

    def list(
        self,
        path: PathLike,
        *,
        depth: int | None = None,
        include: Iterable[str] = (),
        exclude: Iterable[str] | None = None,
        max_entries: int | None = None,
        revision: bool = False,
        source: r.Source | None = None,
        start_after: PathLike | None = None,
        timeout: float | None = None,
    ) -> r.ListResult:
        """A directory's entries in path order, to a depth (its own entries where `depth` is left out)."""
        with self.list_iter(
            path,
            depth=depth,
            include=include,
            exclude=exclude,
            max_entries=max_entries,
            revision=revision,
            source=source,
            start_after=start_after,
            timeout=timeout,
        ) as stream:
            entries = [*stream]
            summary = stream.summary
            assert summary is not None
            return {"entries": entries, **summary, "origin": stream.origin}

    def list_iter(
        self,
        path: PathLike,
        *,
        depth: int | None = None,
        include: Iterable[str] = (),
        exclude: Iterable[str] | None = None,
        max_entries: int | None = None,
        revision: bool = False,
        source: r.Source | None = None,
        start_after: PathLike | None = None,
        timeout: float | None = None,
    ) -> ListStream:
        """As `list`, entry by entry as they arrive."""
        request = _requests.list_(
            self._workspace,
            path,
            depth=depth,
            include=include,
            exclude=exclude,
            max_entries=max_entries,
            revision=revision,
            source=source,
            start_after=start_after,
        )
        driver, call = self._begin("List", timeout)
        return ListStream(_sync.Steps(driver, _engine.list_(call, request)), revision)

    def search(
        self,
        path: PathLike,
        pattern: str,
        *,
        regex: bool = False,
        case_insensitive: bool = False,
        include: Iterable[str] = (),
        exclude: Iterable[str] | None = None,
        context_lines: int = 0,
        max_matches: int | None = None,
        max_file_bytes: int | None = None,
        source: r.Source | None = None,
        timeout: float | None = None,
    ) -> r.SearchResult:
        """Lines that match, in path order. `pattern` is literal, or with `regex` an RE2 expression. `exclude` left out skips
        .git and node_modules; an empty list skips nothing."""
        request = _requests.search(
            self._workspace,
            path,
            pattern,
            regex=regex,
            case_insensitive=case_insensitive,
            include=include,
            exclude=exclude,
            context_lines=context_lines,
            max_matches=max_matches,
            max_file_bytes=max_file_bytes,
            source=source,
        )
        driver, call = self._begin("Search", timeout)
        origin, matches, end = _sync.result(driver, _engine.search(call, request, collect=True))
        return _decode.search(origin, matches, end)

    def search_iter(
        self,
        path: PathLike,
        pattern: str,
        *,
        regex: bool = False,
        case_insensitive: bool = False,
        include: Iterable[str] = (),
        exclude: Iterable[str] | None = None,
        context_lines: int = 0,
        max_matches: int | None = None,
        max_file_bytes: int | None = None,
        source: r.Source | None = None,
        timeout: float | None = None,
    ) -> SearchStream:
        """As `search`, match by match as they arrive. It begins again by itself only while none was handed out."""
        request = _requests.search(
            self._workspace,
            path,
            pattern,
            regex=regex,
            case_insensitive=case_insensitive,
            include=include,
            exclude=exclude,
            context_lines=context_lines,
            max_matches=max_matches,
            max_file_bytes=max_file_bytes,
            source=source,
        )
        driver, call = self._begin("Search", timeout)
        return SearchStream(_sync.Steps(driver, _engine.search(call, request, collect=False)))

    def patch(
        self,
        path: PathLike,
        *,
        edits: Iterable[Mapping[str, Any] | r.Edit] | None = None,
        content: bytes | str | None = None,
        expected_revision: str | None | Unset = UNSET,
        mode: int | None = None,
        create_parents: bool = False,
        validate_only: bool = False,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> r.PatchResult:
        """Replaces text in a file (`edits`: all or none, in order), or its whole `content`: atomically, durably, and once
        however often the answer is lost. With `expected_revision` only that revision is changed; "absent" creates."""
        request = _requests.patch(
            self._workspace,
            path,
            edits=edits,
            content=content,
            expected_revision=expected_revision,
            mode=mode,
            create_parents=create_parents,
            validate_only=validate_only,
            key=idempotency_key,
        )
        return _decode.patch(self._unary("Patch", request, timeout))

    def write(
        self,
        path: PathLike,
        content: ContentLike,
        *,
        expected_revision: str | None | Unset = UNSET,
        mode: int | None = None,
        create_parents: bool = False,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> r.WriteResult:
        """Writes a file of any size from bytes, text, or a file opened for reading bytes. Nothing is visible under the path
        before the whole is durable. A file that cannot seek gets one attempt."""
        start, source = _requests.write(
            self._workspace,
            path,
            content,
            expected_revision=expected_revision,
            mode=mode,
            create_parents=create_parents,
            key=idempotency_key,
        )
        driver, call = self._begin("Write", timeout)
        return _decode.write(_sync.result(driver, _engine.write(call, start, source)))

    def remove(
        self,
        path: PathLike,
        *,
        recursive: bool = False,
        expected_revision: str | None | Unset = UNSET,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> r.RemoveResult:
        """Removes a file or an empty directory; with `recursive`, a whole directory."""
        request = _requests.remove(
            self._workspace, path, recursive=recursive, expected_revision=expected_revision, key=idempotency_key
        )
        return _decode.remove(self._unary("Remove", request, timeout))

    def move(
        self,
        path: PathLike,
        new_path: PathLike,
        *,
        replace: bool = False,
        expected_revision: str | None | Unset = UNSET,
        create_parents: bool = False,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> r.MoveResult:
        """Renames a file or directory. Without `replace` an existing file at the new path refuses it."""
        request = _requests.move(
            self._workspace,
            path,
            new_path,
            replace=replace,
            expected_revision=expected_revision,
            create_parents=create_parents,
            key=idempotency_key,
        )
        return _decode.moved(self._unary("Move", request, timeout))

    def make_directory(
        self,
        path: PathLike,
        *,
        mode: int | None = None,
        create_parents: bool = False,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> r.MakeDirectoryResult:
        """Makes a directory."""
        request = _requests.make_directory(
            self._workspace, path, mode=mode, create_parents=create_parents, key=idempotency_key
        )
        made: r.MakeDirectoryResult = {**_decode.moved(self._unary("MakeDirectory", request, timeout))}
        return made
