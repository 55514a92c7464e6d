"""The agents' tools against a scripted agent: pins, limits, and what a model is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

import dormouse
import dormouse.aio
from conftest import QUICK
from dormouse import results as r
from dormouse.files.v1 import files_pb2 as pb
from dormouse.tools import render_search
from fake import NOT_RUNNING, FakeAgent, Refusal, unavailable

FILE = pb.FileInfo(path="/f", type=pb.FILE_TYPE_REGULAR, size_bytes=1, revision="a" * 64)


@pytest.fixture
def workspace(agent: FakeAgent) -> Iterator[dormouse.Workspace]:
    with dormouse.Workspace("w", agent.endpoint, retry=QUICK, timeout=20.0) as workspace:
        yield workspace


def tools(workspace: dormouse.Workspace, **options: Any) -> dict[str, dormouse.Tool]:
    return {tool.name: tool for tool in dormouse.workspace_tools(workspace, **options)}


def test_the_tools_need_the_files_permission(workspace: dormouse.Workspace) -> None:
    assert set(tools(workspace)) == {"search_files", "edit_file"}
    assert tools(workspace, permissions=[]) == tools(workspace, permissions={"commands"}) == {}
    with pytest.raises(ValueError, match="permissions"):
        dormouse.workspace_tools(workspace, permissions="files")
    with pytest.raises(ValueError, match="output_bytes"):
        dormouse.workspace_tools(workspace, output_bytes=10)


def test_schemas_are_plain(workspace: dormouse.Workspace) -> None:
    for tool in dormouse.workspace_tools(workspace):
        text = json.dumps(tool.input_schema)
        assert "$ref" not in text and "$defs" not in text and '"null"' not in text
        assert tool.input_schema["required"] in (["path"], ["path", "pattern"])
        assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} <= set(tool.annotations)


def test_an_edit_is_always_pinned(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    agent.on("Stat", pb.StatResponse(file=FILE))
    agent.on("Patch", pb.PatchResponse(revision="b" * 64), pb.PatchResponse(revision="c" * 64))
    edit = tools(workspace)["edit_file"]
    first = edit.call({"path": "/f", "edits": [{"old_text": "x", "new_text": "y"}]})
    second = edit.call(json.dumps({"path": "/f", "content": "z", "expected_revision": json.loads(first.text)["revision"]}))
    assert not first.is_error and not second.is_error
    assert [request.expected_revision for request in agent.requests("Patch")] == ["a" * 64, "b" * 64]
    assert len(agent.requests("Stat")) == 1


def test_a_change_between_stat_and_patch_is_told(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    def changed(request: pb.PatchRequest, context: Any) -> Any:
        assert request.expected_revision == "a" * 64
        raise Refusal(grpc.StatusCode.ABORTED, "REVISION_MISMATCH", code="conflict", actual_revision="d" * 64)

    agent.on("Stat", pb.StatResponse(file=FILE))
    agent.on("Patch", changed)
    output = tools(workspace)["edit_file"].call({"path": "/f", "content": "z"})
    assert output.is_error
    assert output.text.startswith("conflict (revision_mismatch): ") and f"expected_revision {'d' * 64}" in output.text


def test_a_missing_file_is_created_by_content_only(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    missing = Refusal(grpc.StatusCode.NOT_FOUND, "FILE_NOT_FOUND", code="not_found", missing="/g")
    agent.on("Stat", missing, missing)
    agent.on("Patch", pb.PatchResponse(revision="b" * 64))
    edit = tools(workspace)["edit_file"]
    assert not edit.call({"path": "/g", "content": "z"}).is_error
    assert agent.requests("Patch")[0].expected_revision == "absent"
    output = edit.call({"path": "/g", "edits": [{"old_text": "x", "new_text": "y"}]})
    assert output.is_error and "/g is missing" in output.text


def test_a_link_is_named(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    link = pb.FileInfo(path="/l", type=pb.FILE_TYPE_SYMLINK, symlink_target="f")
    agent.on("Stat", pb.StatResponse(file=link))
    output = tools(workspace)["edit_file"].call({"path": "/l", "content": "z"})
    assert output.is_error and "symbolic link to f" in output.text and "Next: " in output.text


def test_another_way_is_named_where_the_host_is_old(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    bare = Refusal(grpc.StatusCode.UNIMPLEMENTED, message="")
    agent.on("Search", bare, bare)
    arguments = {"path": "/", "pattern": "x"}
    assert "grep -rn" in tools(workspace)["search_files"].call(arguments).text
    own = tools(workspace, alternatives={"file_search": "call run_command with grep"})
    assert "Next: call run_command with grep." in own["search_files"].call(arguments).text


def test_a_sleeping_workspace_is_told(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    agent.on("Stat", pb.StatResponse(file=FILE))
    agent.on("Patch", NOT_RUNNING)
    output = tools(workspace)["edit_file"].call({"path": "/f", "content": "z"})
    assert output.is_error and "workspace_not_running" in output.text and "woken first" in output.text


def test_an_unavailable_host_may_be_tried_again(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    agent.on("Search", *[unavailable(code="dependency_unavailable")] * 5)
    output = tools(workspace)["search_files"].call({"path": "/", "pattern": "x"})
    assert output.text == "dependency_unavailable (host_overloaded): the fake says no. Next: try the same call again later."


def hits(*texts: str) -> r.SearchResult:
    matches: list[r.Match] = [
        {
            "path": "/p",
            "line": line,
            "column": 1,
            "end_column": 2,
            "text": text,
            "text_clipped": False,
            "before": [],
            "after": [],
        }
        for line, text in enumerate(texts, 1)
    ]
    return {
        "matches": matches,
        "truncated": True,
        "stop_reason": "max_matches",
        "files_scanned": 1,
        "skipped": {"binary": 0, "too_large": 0, "special": 0, "unreadable": 0},
        "origin": {"served_from": "disk", "consistency": "exact", "generation": 1},
    }


@pytest.mark.parametrize("limit", [1024, 1500, 4096, 64 * 1024])
def test_whole_matches_up_to_the_limit(limit: int) -> None:
    found = hits(*["é" * (40 + at % 7) for at in range(2000)])
    text = render_search(found, limit)
    answer = json.loads(text)
    shown = len(answer["matches"])
    assert len(text.encode()) <= limit
    assert 0 < shown < 2000 and shown + answer["omitted_matches"] == 2000
    assert [match["line"] for match in answer["matches"]] == list(range(1, shown + 1))
    assert (answer["truncated"], answer["stop_reason"]) == (True, "max_matches")
    # One match more would not have fitted, beside the four digits that the count may take.
    more = render_search(hits(*["é" * (40 + at % 7) for at in range(shown + 1)]), 1 << 30)
    assert len(more.encode()) + 3 > limit


def test_a_match_larger_than_the_limit_is_counted_not_cut() -> None:
    answer = json.loads(render_search(hits("x" * 1000, "y"), 1024))
    assert (answer["matches"], answer["omitted_matches"]) == ([], 2)


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ("[1]", "`arguments`: an object is expected"),
        ("{", "`arguments`: an object is expected"),
        ({"path": "/", "pattern": 3}, "`pattern`: text is expected"),
        ({"path": "/", "pattern": "x", "max_matches": 0}, "`max_matches`: a number from 1 to 5000 is expected"),
        ({"path": "/", "pattern": "x", "max_matches": 1.5}, "`max_matches`: a whole number is expected"),
        ({"path": "/", "pattern": "x", "max_matches": True}, "`max_matches`: a whole number is expected"),
        ({"path": "/", "pattern": "x", "regex": 1}, "`regex`: true or false is expected"),
        ({"path": "/", "pattern": "x", "include": {"a": 1}}, "`include`: a list is expected"),
        ({"path": "/", "pattern": "x", "include": ["a", 1]}, "`include[1]`: text is expected"),
        ({"path": "/", "pattern": "x", "include": "[" * 100_000}, "`include`: a list is expected"),
    ],
)
def test_what_is_wrong_is_named(workspace: dormouse.Workspace, arguments: Any, fact: str) -> None:
    output = tools(workspace)["search_files"].call(arguments)
    assert output.is_error and output.text.startswith(f"invalid_argument: {fact}"), output.text


def test_what_is_meant_clearly_is_taken(agent: FakeAgent, workspace: dormouse.Workspace) -> None:
    agent.on("Search", pb.SearchResponse(end=pb.SearchEnd()))
    arguments = {
        "path": " /p ",
        "pattern": "x",
        "context_lines": "2",
        "max_matches": 7.0,
        "regex": "True",
        "include": '["*.py", "*.md"]',
        "exclude": [],
        "case_insensitive": None,
    }
    assert not tools(workspace)["search_files"].call(arguments).is_error
    (asked,) = agent.requests("Search")
    assert (asked.path, asked.context_lines, asked.max_matches, asked.regex) == (" /p ", 2, 7, True)
    assert list(asked.include) == ["*.py", "*.md"] and asked.HasField("exclude") and not asked.case_insensitive


def test_the_asyncio_tools_are_the_same(agent: FakeAgent) -> None:
    agent.on("Stat", pb.StatResponse(file=FILE))
    agent.on("Patch", pb.PatchResponse(revision="b" * 64))

    async def run() -> None:
        async with dormouse.aio.Workspace("w", agent.endpoint, retry=QUICK) as workspace:
            search, edit = dormouse.aio.workspace_tools(workspace)
            assert (await search.call({"path": "/"})).text.startswith("invalid_argument: `pattern`: missing")
            output = await edit.call({"path": "/f", "content": "z"})
            assert json.loads(output.text)["revision"] == "b" * 64

    asyncio.run(run())
