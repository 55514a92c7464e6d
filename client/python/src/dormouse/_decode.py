"""From the wire's messages to the mappings of `results`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from dormouse import results as r
from dormouse.files.v1 import files_pb2 as pb


def _word(enum: Any, number: int, prefix: str) -> Any:
    """An enum value's name without its prefix, in lower case; empty for the unset one and for one of tomorrow."""
    if number == 0 or number not in enum.values():
        return ""
    return str(enum.Name(number)).removeprefix(prefix).lower()


def _time(message: pb.FileInfo) -> str:
    if not message.HasField("modify_time"):
        return ""
    stamp = message.modify_time
    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=stamp.seconds)
    except OverflowError:
        # A file system may hold years that RFC 3339 cannot write.
        return ""
    return f"{moment.isoformat()}.{stamp.nanos:09d}Z"


def origin(message: pb.Origin) -> r.Origin:
    return {
        "served_from": _word(pb.ServedFrom, message.served_from, "SERVED_FROM_"),
        "consistency": _word(pb.Consistency, message.consistency, "CONSISTENCY_"),
        "generation": message.generation,
    }


def file_info(message: pb.FileInfo, *, revision: bool) -> r.FileInfo:
    """`revision`: the caller asked for it, so its absence is told."""
    info: r.FileInfo = {
        "path": message.path,
        "type": _word(pb.FileType, message.type, "FILE_TYPE_"),
        "size_bytes": message.size_bytes,
        "mode": message.mode,
        "uid": message.uid,
        "gid": message.gid,
        "link_count": message.link_count,
        "modify_time": _time(message),
        "etag": message.etag,
    }
    if message.raw_path:
        info["raw_path"] = message.raw_path
    if message.type == pb.FILE_TYPE_SYMLINK:
        info["symlink_target"] = message.symlink_target
        if message.raw_symlink_target:
            info["raw_symlink_target"] = message.raw_symlink_target
    if revision or message.HasField("revision"):
        info["revision"] = message.revision if message.HasField("revision") else None
    return info


def stat(message: pb.StatResponse, *, revision: bool) -> r.StatResult:
    info = cast(r.StatResult, file_info(message.file, revision=revision))
    info["origin"] = origin(message.origin)
    return info


def _line(message: pb.Line) -> r.Line:
    line: r.Line = {"text": message.text, "clipped": message.clipped}
    if message.raw:
        line["raw"] = message.raw
    return line


def match(message: pb.Match) -> r.Match:
    found: r.Match = {
        "path": message.path,
        "line": message.line,
        "column": message.column,
        "end_column": message.end_column,
        "text": message.text,
        "text_clipped": message.text_clipped,
        "before": [_line(line) for line in message.before],
        "after": [_line(line) for line in message.after],
    }
    if message.raw_path:
        found["raw_path"] = message.raw_path
    if message.raw_text:
        found["raw_text"] = message.raw_text
    return found


def search_summary(message: pb.SearchEnd) -> r.SearchSummary:
    return {
        "truncated": message.truncated,
        "stop_reason": _word(pb.StopReason, message.stop_reason, "STOP_REASON_"),
        "files_scanned": message.files_scanned,
        "skipped": {
            "binary": message.skipped.binary,
            "too_large": message.skipped.too_large,
            "special": message.skipped.special,
            "unreadable": message.skipped.unreadable,
        },
    }


def search(whence: pb.Origin, matches: list[pb.Match], end: pb.SearchEnd) -> r.SearchResult:
    return {"matches": [match(found) for found in matches], **search_summary(end), "origin": origin(whence)}


def list_summary(message: pb.ListEnd) -> r.ListSummary:
    return {
        "truncated": message.truncated,
        "stop_reason": _word(pb.StopReason, message.stop_reason, "STOP_REASON_"),
        "unreadable": message.unreadable,
    }


def _previous(message: pb.PatchResponse | pb.WriteResponse | pb.RemoveResponse) -> str | None:
    return message.previous_revision if message.HasField("previous_revision") else None


def write(message: pb.WriteResponse | pb.PatchResponse) -> r.WriteResult:
    return {
        "revision": message.revision,
        "previous_revision": _previous(message),
        "bytes_written": message.bytes_written,
        "durable": message.durable,
        "file": file_info(message.file, revision=False),
        "replayed": message.replayed,
    }


def patch(message: pb.PatchResponse) -> r.PatchResult:
    return {
        **write(message),
        "replacements": message.replacements,
        "replaced_open_file": message.replaced_open_file,
    }


def remove(message: pb.RemoveResponse) -> r.RemoveResult:
    return {"previous_revision": _previous(message), "durable": message.durable, "replayed": message.replayed}


def moved(message: pb.MoveResponse | pb.MakeDirectoryResponse) -> r.MoveResult:
    return {
        "file": file_info(message.file, revision=False),
        "durable": message.durable,
        "replayed": message.replayed,
    }


def capabilities(message: pb.GetCapabilitiesResponse) -> r.Capabilities:
    limits = message.limits
    features = (_word(pb.Feature, feature, "FEATURE_") for feature in message.features)
    return {
        "features": [feature for feature in features if feature],
        "limits": {
            "max_request_bytes": limits.max_request_bytes,
            "max_patch_file_bytes": limits.max_patch_file_bytes,
            "max_patch_edits": limits.max_patch_edits,
            "max_search_matches": limits.max_search_matches,
            "max_search_globs": limits.max_search_globs,
            "max_search_file_bytes": limits.max_search_file_bytes,
            "max_search_pattern_bytes": limits.max_search_pattern_bytes,
            "max_search_result_bytes": limits.max_search_result_bytes,
            "max_glob_bytes": limits.max_glob_bytes,
            "max_list_entries": limits.max_list_entries,
            "max_list_depth": limits.max_list_depth,
            "max_offline_read_bytes": limits.max_offline_read_bytes,
            "search_budget": limits.search_budget.seconds + limits.search_budget.nanos / 1e9,
            "offline_budget": limits.offline_budget.seconds + limits.offline_budget.nanos / 1e9,
            "idempotency_retention": limits.idempotency_retention.seconds + limits.idempotency_retention.nanos / 1e9,
        },
        "server_version": message.server_version,
    }


def read(content: bytes, file: r.FileInfo, whence: r.Origin, offset: int, end: pb.ReadEnd) -> r.ReadResult:
    return {
        "content": content,
        "file": file,
        "origin": whence,
        "offset": offset,
        "revision": end.revision if end.HasField("revision") else None,
        "line_count": end.line_count if end.HasField("line_count") else None,
        "changed": end.changed,
    }
