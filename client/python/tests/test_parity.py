"""The blocking and the asyncio library are the same but for `await`, and no sentence of one has been lost in the other."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import dormouse
import dormouse.aio
import dormouse.errors
import dormouse.results


def public(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if callable(member) and (not name.startswith("_") or name == "__init__")
    }


@pytest.mark.parametrize("name", ["Files", "Client", "Workspace", "HostWaker", "Tool"])
def test_they_take_the_same(name: str) -> None:
    blocking, awaited = public(getattr(dormouse, name)), public(getattr(dormouse.aio, name))
    assert blocking.keys() == awaited.keys()
    for verb, member in blocking.items():
        ours, theirs = inspect.signature(member), inspect.signature(awaited[verb])
        for parameter, other in zip(ours.parameters.values(), theirs.parameters.values(), strict=True):
            assert (parameter.name, parameter.kind, parameter.default) == (other.name, other.kind, other.default), verb
        if name == "Files" and verb != "__init__":
            assert inspect.getdoc(member) == inspect.getdoc(awaited[verb]), verb
            streams = verb in ("read_chunks", "search_iter", "list_iter")
            assert inspect.iscoroutinefunction(awaited[verb]) != streams, verb


def test_what_is_exported_is_there() -> None:
    for module in (dormouse, dormouse.aio, dormouse.errors, dormouse.results):
        for name in module.__all__:
            assert hasattr(module, name), name
