"""`dormouse mcp` beside the official Python SDK of the Model Context Protocol, over stdio and streamable HTTP, against a real agent.

The environment names the programs: DORMOUSED and DORMOUSE. PYTHONPATH holds the Python library and its tests, whose agents are used.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from dormouse.files.v1 import files_pb2 as pb
from fake import NOT_RUNNING, FakeAgent
from real import NAME, RealAgent

PROGRAM = os.environ["DORMOUSE"]
TOOLS = ["search_files", "edit_file", "read_file", "list_files", "stat_file"]
# Seconds in which anything must happen on a slow machine.
PATIENCE = 60.0


def words(*more: str) -> list[str]:
    return ["mcp", "--workspace", NAME, *more]


def environment(endpoint: str, host: str = "unix:/nowhere") -> dict[str, str]:
    return {
        "DORMOUSE_ENDPOINT": endpoint,
        "DORMOUSE_HOST_ENDPOINT": host,
        "XDG_CONFIG_HOME": "/nonexistent",
        "PATH": os.environ["PATH"],
    }


@contextmanager
def over_http(endpoint: str, *more: str, **extra: str) -> Iterator[str]:
    """A server on a free port of loopback; its address."""
    command = [PROGRAM, *words("--http", "127.0.0.1:0", *more)]
    process = subprocess.Popen(
        command, env={**environment(endpoint), **extra}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None and process.stdout is not None
    try:
        said = process.stderr.readline().decode()
        found = re.search(r"http://\S+", said)
        assert found, said
        yield found[0]
    finally:
        process.terminate()
        printed, _ = process.communicate()
        assert printed == b"", "standard output stays empty"


@asynccontextmanager
async def connected(transport: str, endpoint: str, *more: str, host: str = "unix:/nowhere") -> AsyncIterator[Client]:
    if transport == "stdio":
        server = StdioServerParameters(command=PROGRAM, args=words(*more), env=environment(endpoint, host))
        async with Client(server, read_timeout_seconds=PATIENCE) as client:
            yield client
        return
    with over_http(endpoint, *more, DORMOUSE_HOST_ENDPOINT=host) as url:
        async with Client(url, read_timeout_seconds=PATIENCE) as client:
            yield client


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def agent() -> Iterator[RealAgent]:
    with tempfile.TemporaryDirectory(prefix="dormouse-") as place:
        agent = RealAgent(Path(place), [])
        agent.put("/p/app.py", "import os\n# TODO: tidy\nDEBUG = True\n")
        yield agent
        agent.stop()


def text(result: Any) -> str:
    (block,) = result.content
    assert block.type == "text" and result.structured_content is None
    return str(block.text)


async def ok(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def refused(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error, text(result)
    return text(result)


def test_a_session_from_its_start_to_an_edit(agent: RealAgent, transport: str) -> None:
    async def run() -> None:
        async with connected(transport, agent.endpoint) as client:
            info = client.server_info
            version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
            assert (info.name, info.version) == ("dormouse", version)
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == TOOLS
            for name, tool in tools.items():
                assert tool.annotations is not None
                hints = tool.annotations.model_dump()
                assert hints["read_only_hint"] == (name != "edit_file") and hints["open_world_hint"] is False
                assert hints["destructive_hint"] == (name == "edit_file")
                schema = json.dumps(tool.input_schema)
                assert "$ref" not in schema and "$defs" not in schema and '"null"' not in schema
            found = json.loads(await ok(client, "search_files", path="/p", pattern="TODO"))
            assert [(m["path"], m["line"], m["column"]) for m in found["matches"]] == [("/p/app.py", 2, 3)]
            head, rest = (await ok(client, "read_file", path="/p/app.py", start_line=2, end_line=2)).split("\n", 1)
            assert rest == "# TODO: tidy\n" and json.loads(head)["line_count"] == 3
            edits = [{"old_text": "DEBUG = True", "new_text": "DEBUG = False"}]
            done = json.loads(await ok(client, "edit_file", path="/p/app.py", edits=edits))
            content = (agent.files / "p/app.py").read_bytes()
            assert b"DEBUG = False" in content and done["revision"] == hashlib.sha256(content).hexdigest()
            assert json.loads(head)["revision"] == done["previous_revision"]
            # What is returned is what the next edit is held to; as a text, as some models send it.
            edits_text = json.dumps([{"old_text": "False", "new_text": "None"}])
            more = json.loads(
                await ok(client, "edit_file", path="/p/app.py", edits=edits_text, expected_revision=done["revision"])
            )
            assert more["previous_revision"] == done["revision"]
            stat = json.loads(await ok(client, "stat_file", path="/p/app.py"))
            assert stat["revision"] == more["revision"] and stat["type"] == "regular"
            listed = json.loads(await ok(client, "list_files", path="/", depth=2))
            assert [entry["path"] for entry in listed["entries"]] == ["/p", "/p/app.py"]

    asyncio.run(run())


def test_errors_name_the_field_the_fact_and_the_next_call(agent: RealAgent, transport: str) -> None:
    async def run() -> None:
        async with connected(transport, agent.endpoint) as client:
            said = await refused(client, "edit_file", path="/p/app.py", edits=[{"old_text": "a", "new_txt": "b"}])
            assert said.startswith("invalid_argument: `edits[0].new_txt`: unknown field. Next: "), said
            said = await refused(client, "search_files", path="/p")
            assert said.startswith("invalid_argument: `pattern`: missing. Next: "), said
            said = await refused(client, "read_file", path="/p/gone")
            assert said.startswith("not_found (file_not_found): ") and "list_files" in said, said
            said = await refused(client, "read_file", path="/p/app.py", start_line=9)
            assert "range_past_end" in said and "the file has 3 lines" in said, said
            said = await refused(client, "read_file", path="/p")
            assert "not_a_regular_file" in said and "list_files" in said, said
            said = await refused(client, "edit_file", path="/p/app.py", edits=[{"old_text": "12| # TODO: tidy", "new_text": ""}])
            assert "line_number_prefix" in said and "Next: " in said, said
            with pytest.raises(MCPError):
                await client.call_tool("no_such_tool", {})
            nothing = json.loads(await ok(client, "search_files", path="/p", pattern="nowhere to be found"))
            assert nothing["matches"] == []

    asyncio.run(run())


def test_permissions_say_what_is_offered_and_what_may_be_called(agent: RealAgent, transport: str) -> None:
    async def run() -> None:
        async with connected(transport, agent.endpoint, "--permissions", "files=read") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [name for name in TOOLS if name != "edit_file"]
            with pytest.raises(MCPError):
                await client.call_tool("edit_file", {"path": "/p/app.py", "content": "x"})
        async with connected(transport, agent.endpoint, "--permissions", "none") as client:
            assert (await client.list_tools()).tools == []
            with pytest.raises(MCPError):
                await client.call_tool("search_files", {"path": "/", "pattern": "x"})
        assert (agent.files / "p/app.py").read_bytes().startswith(b"import os")

    asyncio.run(run())


def test_answers_are_bounded_and_what_is_left_out_is_counted(agent: RealAgent, transport: str) -> None:
    agent.put("/p/wide.log", "".join(f"hit {number} {'x' * 200}\n" for number in range(1000)))

    async def run() -> None:
        arguments = {"path": "/p", "pattern": "hit", "max_matches": 1000}
        async with connected(transport, agent.endpoint) as client:
            said = await ok(client, "search_files", **arguments)
            found = json.loads(said)
            assert len(said.encode()) <= 64 * 1024 and len(found["matches"]) + found["omitted_matches"] == 1000
            head, rest = (await ok(client, "read_file", path="/p/wide.log")).split("\n", 1)
            info = json.loads(head)
            assert info["line_count"] == 1000 and rest.count("\n") == info["end_line"] == info["next_start_line"] - 1
            assert len(head) + 1 + len(rest) <= 64 * 1024
        async with connected(transport, agent.endpoint, "--output-bytes", "2048") as client:
            said = await ok(client, "search_files", **arguments)
            assert len(said.encode()) <= 2048 and json.loads(said)["omitted_matches"] > 900

    asyncio.run(run())


def test_a_sleeping_workspace_is_read_asleep_and_woken_for_a_change(transport: str) -> None:
    with tempfile.TemporaryDirectory(prefix="dormouse-") as place:
        agent = RealAgent(Path(place), [])
        agent.put("/a", "one\n")

        async def run() -> None:
            told: list[str | None] = []

            async def progress(_: float, __: float | None, message: str | None) -> None:
                told.append(message)

            async with connected(transport, agent.endpoint, "--wake", "host", host=f"unix:{place}/h") as client:
                head = (await ok(client, "read_file", path="/a")).split("\n", 1)[0]
                assert json.loads(head)["served_from"] == "disk"
                arguments = {"path": "/a", "edits": [{"old_text": "one", "new_text": "two"}]}
                result = await client.call_tool("edit_file", arguments, progress_callback=progress)
                assert not result.is_error, text(result)
                head = (await ok(client, "read_file", path="/a")).split("\n", 1)[0]
                assert json.loads(head)["served_from"] == "workspace"
            assert told == ["waking workspace", "workspace woken"]

        try:
            agent.host("suspend")
            asyncio.run(run())
            assert (agent.files / "a").read_bytes() == b"two\n"
        finally:
            agent.stop()


def test_without_a_way_to_wake_it_the_model_is_told() -> None:
    fake = FakeAgent()
    fake.on("Stat", pb.StatResponse(file=pb.FileInfo(path="/f", type=pb.FILE_TYPE_REGULAR, revision="a" * 64)))
    fake.on("Patch", NOT_RUNNING)

    async def run() -> None:
        async with connected("stdio", fake.endpoint) as client:
            said = await refused(client, "edit_file", path="/f", content="z")
            assert said.startswith("workspace_not_running: ") and "woken first" in said, said

    asyncio.run(run())
    assert [request.expected_revision for request in fake.requests("Patch")] == ["a" * 64]
    fake.close()


def test_cancelling_the_call_cancels_the_rpc(transport: str) -> None:
    fake = FakeAgent()
    begun, ended = threading.Event(), threading.Event()

    def endless(_: Any, context: Any) -> Any:
        context.add_callback(ended.set)
        begun.set()
        ended.wait(PATIENCE)
        return []

    fake.on("Search", endless)

    async def run() -> None:
        async with connected(transport, fake.endpoint) as client:
            call = asyncio.create_task(client.call_tool("search_files", {"path": "/", "pattern": "x"}))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            assert not ended.is_set()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            # The session itself goes on.
            assert await asyncio.to_thread(ended.wait, PATIENCE / 2)
            assert len((await client.list_tools()).tools) == 5

    asyncio.run(run())
    fake.close()


def post(url: str, **headers: str) -> int:
    """The status of a first request with these headers, as another program than an SDK may send it."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    plain = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(hello).encode(), {**plain, **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_hosts_origins_and_tokens_are_checked() -> None:
    with over_http("unix:/nowhere") as url:
        assert post(url) == 200
        assert post(url, Host="evil.example") == 403
        assert post(url, Origin="http://evil.example") == 403
        assert post(url, Origin="http://localhost:6274") == 403
        assert post(url.replace("/mcp", "/")) == 404
    with over_http("unix:/nowhere", "--allow-origin", "http://localhost:6274", DORMOUSE_MCP_TOKEN="secret") as url:
        assert post(url) == 401
        assert post(url, Authorization="Bearer wrong") == 401
        assert post(url, Authorization="Bearer secret") == 200
        assert post(url, Authorization="Bearer secret", Origin="http://localhost:6274") == 200
        assert post(url, Authorization="Bearer secret", Origin="http://localhost:6275") == 403
    command = [PROGRAM, *words("--http", "0.0.0.0:0")]
    done = subprocess.run(command, env=environment("unix:/nowhere"), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and "DORMOUSE_MCP_TOKEN" in done.stderr, done.stderr
