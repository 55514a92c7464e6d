"""Dormouse: the files of workspaces, running or suspended.

    ws = dormouse.Workspace("customer-42/main", "unix:/run/dormouse/files.sock")
    hits = ws.files.search("/home/user/project", "TODO", include=["*.py"])

`dormouse.aio` has the same for asyncio. The packages `dormouse.files`, `dormouse.host` and `dormouse.status` are generated
and private.
"""

from dormouse._files import Files, ListStream, ReadStream, SearchStream
from dormouse._requests import UNSET
from dormouse._retry import RetryPolicy
from dormouse._workspace import Client, HostWaker, Workspace
from dormouse.errors import (
    ChangedWhileRead,
    Conflict,
    DeadlineExceeded,
    DependencyUnavailable,
    DormouseError,
    EditNoMatch,
    EditNotUnique,
    HostFeatureUnavailable,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PolicyDenied,
    RevisionMismatch,
    StorageFull,
    Unauthenticated,
    WorkspaceNotRunning,
)
from dormouse.tools import Tool, ToolOutput, workspace_tools

__version__ = "0.1.0"

__all__ = [
    "UNSET",
    "ChangedWhileRead",
    "Client",
    "Conflict",
    "DeadlineExceeded",
    "DependencyUnavailable",
    "DormouseError",
    "EditNoMatch",
    "EditNotUnique",
    "Files",
    "HostFeatureUnavailable",
    "HostWaker",
    "InvalidRequest",
    "LimitExceeded",
    "ListStream",
    "NotFound",
    "PolicyDenied",
    "ReadStream",
    "RetryPolicy",
    "RevisionMismatch",
    "SearchStream",
    "StorageFull",
    "Tool",
    "ToolOutput",
    "Unauthenticated",
    "Workspace",
    "WorkspaceNotRunning",
    "__version__",
    "workspace_tools",
]
