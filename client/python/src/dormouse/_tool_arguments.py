"""A model's arguments, read by a tool's schema. What is meant clearly is taken ("3" for 3, a JSON text for a list); what is
not is refused with the field's name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dormouse.errors import InvalidRequest

# Deeper than any schema of ours; a model's JSON may be deeper than Python's own stack.
_DEPTH_MAX = 8


def decode(schema: Mapping[str, Any], arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """The arguments in the schema's own types; a null is as if left out. Raises InvalidRequest."""
    value: Any = arguments
    if isinstance(value, str):
        value = _parsed(value, "arguments", dict)
    decoded = _value(schema, value, "", 0)
    assert isinstance(decoded, dict)
    return decoded


def _refused(field: str, fact: str) -> InvalidRequest:
    where = field or "arguments"
    return InvalidRequest(
        f"`{where}`: {fact}",
        code="invalid_argument",
        reason="invalid_request",
        details={"field": where, "next": "call the tool again with this mended"},
        grpc_code="INVALID_ARGUMENT",
    )


def _parsed(text: str, field: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise _refused(field, f"{'an object' if kind is dict else 'a list'} is expected")
    return value


def _value(schema: Mapping[str, Any], value: Any, field: str, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise _refused(field, "nested too deep")
    kind = schema["type"]
    if kind == "object":
        return _object(schema, value, field, depth)
    if kind == "array":
        return _array(schema, value, field, depth)
    if kind == "string":
        if not isinstance(value, str):
            raise _refused(field, "text is expected")
        return value
    if kind == "boolean":
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise _refused(field, "true or false is expected")
        return value
    assert kind == "integer"
    return _integer(schema, value, field)


def _object(schema: Mapping[str, Any], value: Any, field: str, depth: int) -> dict[str, Any]:
    if isinstance(value, str):
        value = _parsed(value, field, dict)
    if not isinstance(value, Mapping):
        raise _refused(field, "an object is expected")
    properties = schema["properties"]
    out: dict[str, Any] = {}
    for name, member in value.items():
        inner = f"{field}.{name}" if field else str(name)
        if name not in properties:
            raise _refused(inner, "unknown field")
        if member is not None:
            out[name] = _value(properties[name], member, inner, depth + 1)
    for name in schema.get("required", ()):
        if name not in out:
            raise _refused(f"{field}.{name}" if field else name, "missing")
    return out


def _array(schema: Mapping[str, Any], value: Any, field: str, depth: int) -> list[Any]:
    items = schema["items"]
    if isinstance(value, str):
        plain = items["type"] == "string" and not value.lstrip().startswith("[")
        value = [value] if plain else _parsed(value, field, list)
    if isinstance(value, Mapping) or not isinstance(value, (list, tuple)):
        raise _refused(field, "a list is expected")
    return [_value(items, item, f"{field}[{index}]", depth + 1) for index, item in enumerate(value)]


def _integer(schema: Mapping[str, Any], value: Any, field: str) -> int:
    if isinstance(value, str) and len(value) < 20:
        digits = value[1:] if value.startswith("-") else value
        value = int(value) if digits.isascii() and digits.isdigit() else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(field, "a whole number is expected")
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        raise _refused(field, f"a number from {least} to {most} is expected")
    return value
