"""The methods of the contract: their types, what a repetition of each may do, and the feature that a host lacks which
does not know one.

`idempotency_level` in the contract's descriptors is the one source of what may be sent again.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pb2

from dormouse.files.v1 import files_pb2
from dormouse.host.v1 import host_pb2


class Effect(enum.Enum):
    """What sending a call a second time may do."""

    SAFE = "changes nothing"
    IDEMPOTENT = "changes something once, however often the same request arrives"
    UNKNOWN = "nothing is promised; it is never sent again"


@dataclass(frozen=True)
class Method:
    """One method of the contract."""

    path: str
    name: str
    effect: Effect
    feature: str
    request: Any
    response: Any


_FEATURES = {
    "Search": "file_search",
    "Patch": "file_patch",
    "Write": "file_write",
    "Remove": "file_write",
    "Move": "file_write",
    "MakeDirectory": "file_write",
    # Every host should know these; one that does not is named in the same style.
    "Stat": "file_stat",
    "Read": "file_read",
    "List": "file_list",
}

_EFFECTS = {
    descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS: Effect.SAFE,
    descriptor_pb2.MethodOptions.IDEMPOTENT: Effect.IDEMPOTENT,
}


def _methods(module: ModuleType, service_name: str) -> dict[str, Method]:
    service = module.DESCRIPTOR.services_by_name[service_name]
    found = {}
    for method in service.methods:
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
        found[method.name] = Method(
            path=f"/{service.full_name}/{method.name}",
            name=method.name,
            effect=_EFFECTS.get(method.GetOptions().idempotency_level, Effect.UNKNOWN),
            feature=_FEATURES.get(method.name, snake),
            request=getattr(module, method.input_type.name),
            response=getattr(module, method.output_type.name),
        )
    return found


FILES = _methods(files_pb2, "FilesService")
HOST = _methods(host_pb2, "HostService")
