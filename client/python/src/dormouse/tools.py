"""The tools for agents: `search_files` and `edit_file` as plain functions over a workspace's files.

Their names, descriptions and schemas stand in tools.json, the same for every language. A tool never raises for what a
model did wrong or a host refused: it answers with a text that names the code, the fact and the next call.

A tool is a generator that yields a verb with its arguments and gets the result sent in or the error thrown in, so that
the blocking and the asyncio tools are one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, cast

from dormouse import results as r
from dormouse._files import Files
from dormouse._tool_arguments import decode
from dormouse._workspace import Workspace
from dormouse.errors import (
    DormouseError,
    EditNoMatch,
    EditNotUnique,
    HostFeatureUnavailable,
    NotFound,
    RevisionMismatch,
    WorkspaceNotRunning,
)

__all__ = ["OUTPUT_BYTES", "Tool", "ToolOutput", "workspace_tools"]

# The largest answer of `search_files`, in bytes, unless told otherwise.
OUTPUT_BYTES = 64 * 1024
_OUTPUT_BYTES_MIN = 1024

_ALTERNATIVES = {
    "file_search": "run `grep -rn` in a command instead",
    "file_patch": "read the file, and write the whole of it back instead",
    "file_revision": "read the file, and write the whole of it back instead",
}


@dataclass(frozen=True)
class ToolOutput:
    """What a tool says to the model."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Verb:
    """A call of `Files` that a tool wants made."""

    name: str
    arguments: dict[str, Any]


Steps = Generator[Verb, Any, str]
Run = Callable[[Mapping[str, Any]], Steps]


@dataclass(frozen=True)
class Definition:
    """What a model is told about a tool."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]
    permission: str


def _definitions() -> list[Definition]:
    text = resources.files("dormouse").joinpath("tools.json").read_text("utf-8")
    return [Definition(**definition) for definition in json.loads(text)]


DEFINITIONS = _definitions()


@dataclass(frozen=True)
class Tool:
    """One tool. `input_schema` is a JSON schema without references; `annotations` are MCP's."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]
    _run: Run
    _files: Files

    def call(self, arguments: Mapping[str, Any] | str) -> ToolOutput:
        """Runs it. `arguments`: a mapping, or the JSON text of one. What went wrong is told in the output."""
        try:
            steps = self._run(decode(self.input_schema, arguments))
            reply: Any = None
            failure: DormouseError | None = None
            while True:
                verb = steps.send(reply) if failure is None else steps.throw(failure)
                reply, failure = None, None
                try:
                    reply = getattr(self._files, verb.name)(**verb.arguments)
                except DormouseError as error:
                    failure = error
        except StopIteration as done:
            return ToolOutput(done.value)
        except DormouseError as error:
            return ToolOutput(explain(error), is_error=True)


def workspace_tools(
    workspace: Workspace,
    *,
    permissions: Iterable[str] = ("files",),
    output_bytes: int = OUTPUT_BYTES,
    alternatives: Mapping[str, str] | None = None,
) -> list[Tool]:
    """The tools that `permissions` allow; both need "files".

    `output_bytes`: the largest answer of `search_files`. `alternatives`: by feature ("file_search", "file_patch"), what a
    model is told to do on a host that lacks it, in the words of the other tools that it has.
    """
    return [
        Tool(d.name, d.description, d.input_schema, d.annotations, run, workspace.files)
        for d, run in selected(permissions, output_bytes, alternatives)
    ]


def selected(
    permissions: Iterable[str], output_bytes: int, alternatives: Mapping[str, str] | None
) -> list[tuple[Definition, Run]]:
    """The definitions that `permissions` allow, each with what it does."""
    if isinstance(permissions, str):
        raise ValueError("permissions is a list of names, not one text")
    if output_bytes < _OUTPUT_BYTES_MIN:
        raise ValueError(f"output_bytes is at least {_OUTPUT_BYTES_MIN}")
    granted = set(permissions)
    ways = {**_ALTERNATIVES, **(alternatives or {})}
    runs: dict[str, Run] = {
        "search_files": lambda arguments: _aided(_search_files(arguments, output_bytes), ways),
        "edit_file": lambda arguments: _aided(_edit_file(arguments), ways),
    }
    return [(definition, runs[definition.name]) for definition in DEFINITIONS if definition.permission in granted]


def _aided(steps: Steps, ways: Mapping[str, str]) -> Steps:
    """The same, with another way named where the host lacks the feature."""
    try:
        return (yield from steps)
    except HostFeatureUnavailable as error:
        error.details["next"] = ways.get(error.feature, "use another tool for this until the host is upgraded")
        raise


# ---- search_files


def _search_files(arguments: Mapping[str, Any], output_bytes: int) -> Steps:
    try:
        found = cast(r.SearchResult, (yield Verb("search", dict(arguments))))
    except DormouseError as error:
        if error.reason == "invalid_pattern" and arguments.get("regex"):
            error.details.setdefault("next", "mend the expression there, or leave `regex` out to search for the literal text")
        raise
    return render_search(found, output_bytes, hint=_hint(arguments, found))


def _hint(arguments: Mapping[str, Any], found: r.SearchResult) -> str:
    """Where nothing was found and the pattern looks like the other kind, the other kind."""
    if found["matches"] or found["truncated"]:
        return ""
    pattern: str = arguments["pattern"]
    expressive = any(part in pattern for part in ("\\", ".*", ".+", "|", "[", "^", "$")) or "(?" in pattern
    if not arguments.get("regex"):
        return "the pattern was taken literally; set `regex` to true if it is a regular expression" if expressive else ""
    literal = not expressive and any(letter in pattern for letter in ".()+*?{}")
    return "the pattern was taken as a regular expression; leave `regex` out if it is literal text" if literal else ""


def _shown(match: r.Match) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "path": match["path"],
        "line": match["line"],
        "column": match["column"],
        "text": match["text"],
    }
    if match["text_clipped"]:
        shown["text_clipped"] = True
    for side in ("before", "after"):
        lines = match["before"] if side == "before" else match["after"]
        if lines:
            shown[side] = [line["text"] for line in lines]
    return shown


def _json(value: Any) -> str:
    # A text may hold half of a surrogate pair only if it was made here; the wire has none.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def render_search(found: r.SearchResult, output_bytes: int, hint: str = "") -> str:
    """The answer in at most `output_bytes`: whole matches from the first on, the rest counted in `omitted_matches`."""
    tail: dict[str, Any] = {
        "truncated": found["truncated"],
        "stop_reason": found["stop_reason"],
        "files_scanned": found["files_scanned"],
        "served_from": found["origin"]["served_from"],
        "omitted_matches": len(found["matches"]),
    }
    if hint:
        tail["hint"] = hint
    room = output_bytes - len(_json({"matches": [], **tail}).encode())
    shown: list[dict[str, Any]] = []
    for match in found["matches"]:
        entry = _shown(match)
        # And the comma between two.
        room -= len(_json(entry).encode()) + (1 if shown else 0)
        if room < 0:
            break
        shown.append(entry)
    tail["omitted_matches"] = len(found["matches"]) - len(shown)
    return _json({"matches": shown, **tail})


# ---- edit_file


def _edit_file(arguments: Mapping[str, Any]) -> Steps:
    if ("edits" in arguments) == ("content" in arguments):
        raise DormouseError(
            "an edit takes exactly one of `edits` and `content`",
            code="invalid_argument",
            reason="invalid_request",
            details={"next": "call edit_file again with one of the two"},
        )
    pinned = dict(arguments)
    if "expected_revision" not in pinned:
        pinned["expected_revision"] = yield from _revision_now(pinned)
    try:
        done = cast(r.PatchResult, (yield Verb("patch", pinned)))
    except DormouseError as error:
        error.details.setdefault("next", _next_edit(error, pinned["expected_revision"]))
        raise
    return _json(
        {
            "revision": done["revision"],
            "previous_revision": done["previous_revision"],
            "replacements": done["replacements"],
            "bytes_written": done["bytes_written"],
            "durable": done["durable"],
        }
    )


def _revision_now(arguments: Mapping[str, Any]) -> Generator[Verb, Any, str]:
    """The revision that the edit is held to: the file's own, or "absent" for content where there is no file."""
    path = arguments["path"]
    try:
        info = cast(r.StatResult, (yield Verb("stat", {"path": path, "revision": True})))
    except NotFound as error:
        if error.reason == "file_not_found" and "content" in arguments:
            return "absent"
        raise
    revision = info.get("revision")
    if revision is not None:
        return revision
    if info["type"] == "regular":
        raise HostFeatureUnavailable(
            "this host gives no revision of the file, so the edit cannot be held to one",
            code="conflict",
            reason="host_feature_unavailable",
            details={"feature": "file_revision"},
        )
    if info["type"] == "symlink":
        raise DormouseError(
            f"{path} is a symbolic link to {info.get('symlink_target', '')}",
            code="conflict",
            reason="symlink_refused",
            details={"next": "call edit_file again with the path of the file itself"},
        )
    raise DormouseError(
        f"{path} is no regular file but a {info['type'] or 'thing of an unknown type'}",
        code="conflict",
        reason="not_a_regular_file",
        details={"next": "name a regular file"},
    )


def _next_edit(error: DormouseError, revision: str) -> str:
    if isinstance(error, RevisionMismatch):
        return (
            "the file has changed since: look at it again, then call edit_file with expected_revision "
            f"{error.current or 'left out'}"
        )
    if isinstance(error, EditNoMatch):
        parts = []
        if error.nearest_line is not None:
            parts.append(f"the nearest place is line {error.nearest_line}, which reads {_json(error.nearest_text or '')}")
        if "diverges_at_line" in error.details:
            parts.append(f"it diverges at line {error.details['diverges_at_line']}")
        if error.cause:
            parts.append(f"the cause is {error.cause}")
        parts.append(f"nothing was changed; mend old_text and call edit_file with expected_revision {revision}")
        return "; ".join(parts)
    if isinstance(error, EditNotUnique):
        lines = ", ".join(str(line) for line in error.lines)
        where = f" (lines {lines})" if lines else ""
        return (
            f"nothing was changed; add lines around old_text until it occurs once{where}, or set replace_all, and call "
            f"edit_file with expected_revision {revision}"
        )
    if error.retryable:
        return "nothing is known to be changed; call edit_file again"
    return ""


# ---- errors


def explain(error: DormouseError) -> str:
    """An error as a text for the model: code, fact, next call."""
    # Of these two the code says as much as the reason.
    plain = error.reason in ("", error.code, "invalid_request")
    head = error.code if plain else f"{error.code} ({error.reason})"
    text = f"{head}: {error.message}"
    if error.wake_failure is not None:
        text += f"; the workspace could not be woken: {error.wake_failure}"
    step = error.details.get("next", "")
    if not step:
        if isinstance(error, WorkspaceNotRunning):
            step = "the workspace has to be woken first"
        elif error.reason == "file_not_found":
            missing = error.details.get("missing")
            step = f"check the path{f'; {missing} is missing' if missing else ''}"
        elif error.retryable:
            step = "try the same call again later"
    return f"{text}. Next: {step}." if step else f"{text}."
