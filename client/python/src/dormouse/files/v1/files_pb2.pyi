# mypy: ignore-errors
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServedFrom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVED_FROM_UNSPECIFIED: _ClassVar[ServedFrom]
    SERVED_FROM_WORKSPACE: _ClassVar[ServedFrom]
    SERVED_FROM_DISK: _ClassVar[ServedFrom]

class ReadSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_SOURCE_UNSPECIFIED: _ClassVar[ReadSource]
    READ_SOURCE_WORKSPACE: _ClassVar[ReadSource]
    READ_SOURCE_DISK: _ClassVar[ReadSource]

class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSISTENCY_UNSPECIFIED: _ClassVar[Consistency]
    CONSISTENCY_EXACT: _ClassVar[Consistency]
    CONSISTENCY_CRASH: _ClassVar[Consistency]

class FileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_TYPE_UNSPECIFIED: _ClassVar[FileType]
    FILE_TYPE_REGULAR: _ClassVar[FileType]
    FILE_TYPE_DIRECTORY: _ClassVar[FileType]
    FILE_TYPE_SYMLINK: _ClassVar[FileType]
    FILE_TYPE_FIFO: _ClassVar[FileType]
    FILE_TYPE_SOCKET: _ClassVar[FileType]
    FILE_TYPE_CHARACTER_DEVICE: _ClassVar[FileType]
    FILE_TYPE_BLOCK_DEVICE: _ClassVar[FileType]

class Feature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FEATURE_UNSPECIFIED: _ClassVar[Feature]
    FEATURE_FILE_SEARCH: _ClassVar[Feature]
    FEATURE_FILE_PATCH: _ClassVar[Feature]
    FEATURE_FILE_REVISION: _ClassVar[Feature]
    FEATURE_OFFLINE_READ: _ClassVar[Feature]
    FEATURE_FILE_WRITE: _ClassVar[Feature]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_MAX_MATCHES: _ClassVar[StopReason]
    STOP_REASON_BUDGET: _ClassVar[StopReason]
    STOP_REASON_MAX_BYTES: _ClassVar[StopReason]
    STOP_REASON_MAX_ENTRIES: _ClassVar[StopReason]

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_OFFLINE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_OFFLINE_BUDGET: _ClassVar[ErrorReason]
    ERROR_REASON_OFFLINE_CHANGED: _ClassVar[ErrorReason]
    ERROR_REASON_WORKSPACE_NOT_RUNNING: _ClassVar[ErrorReason]
    ERROR_REASON_WORKSPACE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_HOST_FEATURE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_GUEST_UNREACHABLE: _ClassVar[ErrorReason]
    ERROR_REASON_WORKSPACE_QUARANTINED: _ClassVar[ErrorReason]
    ERROR_REASON_WORKSPACE_IN_TRANSITION: _ClassVar[ErrorReason]
    ERROR_REASON_FILE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_A_REGULAR_FILE: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_A_DIRECTORY: _ClassVar[ErrorReason]
    ERROR_REASON_SYMLINK_REFUSED: _ClassVar[ErrorReason]
    ERROR_REASON_PATH_OUTSIDE_WORKSPACE: _ClassVar[ErrorReason]
    ERROR_REASON_FILE_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_FILE_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_FILE_NOT_UTF8: _ClassVar[ErrorReason]
    ERROR_REASON_FILE_ALREADY_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_DIRECTORY_NOT_EMPTY: _ClassVar[ErrorReason]
    ERROR_REASON_REVISION_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_EDIT_NO_MATCH: _ClassVar[ErrorReason]
    ERROR_REASON_EDIT_NOT_UNIQUE: _ClassVar[ErrorReason]
    ERROR_REASON_IDEMPOTENCY_KEY_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_BUSY_WRITER: _ClassVar[ErrorReason]
    ERROR_REASON_OUTCOME_UNKNOWN: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_REQUEST: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_PATTERN: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_RANGE_PAST_END: _ClassVar[ErrorReason]
    ERROR_REASON_HOST_OVERLOADED: _ClassVar[ErrorReason]
    ERROR_REASON_HOST_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_DISK_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_READ_ONLY: _ClassVar[ErrorReason]
    ERROR_REASON_DISK_CORRUPT: _ClassVar[ErrorReason]
    ERROR_REASON_IO_ERROR: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_MOUNT_POINT: _ClassVar[ErrorReason]
    ERROR_REASON_CREDENTIALS_REQUIRED: _ClassVar[ErrorReason]
    ERROR_REASON_WORKSPACE_ACCESS_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_WRITE_POLICY_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_GENERATION: _ClassVar[ErrorReason]
    ERROR_REASON_WRONG_STATE: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_QUIESCED: _ClassVar[ErrorReason]
    ERROR_REASON_WORKSPACE_ALREADY_EXISTS: _ClassVar[ErrorReason]
SERVED_FROM_UNSPECIFIED: ServedFrom
SERVED_FROM_WORKSPACE: ServedFrom
SERVED_FROM_DISK: ServedFrom
READ_SOURCE_UNSPECIFIED: ReadSource
READ_SOURCE_WORKSPACE: ReadSource
READ_SOURCE_DISK: ReadSource
CONSISTENCY_UNSPECIFIED: Consistency
CONSISTENCY_EXACT: Consistency
CONSISTENCY_CRASH: Consistency
FILE_TYPE_UNSPECIFIED: FileType
FILE_TYPE_REGULAR: FileType
FILE_TYPE_DIRECTORY: FileType
FILE_TYPE_SYMLINK: FileType
FILE_TYPE_FIFO: FileType
FILE_TYPE_SOCKET: FileType
FILE_TYPE_CHARACTER_DEVICE: FileType
FILE_TYPE_BLOCK_DEVICE: FileType
FEATURE_UNSPECIFIED: Feature
FEATURE_FILE_SEARCH: Feature
FEATURE_FILE_PATCH: Feature
FEATURE_FILE_REVISION: Feature
FEATURE_OFFLINE_READ: Feature
FEATURE_FILE_WRITE: Feature
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_MAX_MATCHES: StopReason
STOP_REASON_BUDGET: StopReason
STOP_REASON_MAX_BYTES: StopReason
STOP_REASON_MAX_ENTRIES: StopReason
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_OFFLINE_UNAVAILABLE: ErrorReason
ERROR_REASON_OFFLINE_BUDGET: ErrorReason
ERROR_REASON_OFFLINE_CHANGED: ErrorReason
ERROR_REASON_WORKSPACE_NOT_RUNNING: ErrorReason
ERROR_REASON_WORKSPACE_NOT_FOUND: ErrorReason
ERROR_REASON_HOST_FEATURE_UNAVAILABLE: ErrorReason
ERROR_REASON_GUEST_UNREACHABLE: ErrorReason
ERROR_REASON_WORKSPACE_QUARANTINED: ErrorReason
ERROR_REASON_WORKSPACE_IN_TRANSITION: ErrorReason
ERROR_REASON_FILE_NOT_FOUND: ErrorReason
ERROR_REASON_NOT_A_REGULAR_FILE: ErrorReason
ERROR_REASON_NOT_A_DIRECTORY: ErrorReason
ERROR_REASON_SYMLINK_REFUSED: ErrorReason
ERROR_REASON_PATH_OUTSIDE_WORKSPACE: ErrorReason
ERROR_REASON_FILE_PERMISSION_DENIED: ErrorReason
ERROR_REASON_FILE_TOO_LARGE: ErrorReason
ERROR_REASON_FILE_NOT_UTF8: ErrorReason
ERROR_REASON_FILE_ALREADY_EXISTS: ErrorReason
ERROR_REASON_DIRECTORY_NOT_EMPTY: ErrorReason
ERROR_REASON_REVISION_MISMATCH: ErrorReason
ERROR_REASON_EDIT_NO_MATCH: ErrorReason
ERROR_REASON_EDIT_NOT_UNIQUE: ErrorReason
ERROR_REASON_IDEMPOTENCY_KEY_REUSED: ErrorReason
ERROR_REASON_BUSY_WRITER: ErrorReason
ERROR_REASON_OUTCOME_UNKNOWN: ErrorReason
ERROR_REASON_INVALID_REQUEST: ErrorReason
ERROR_REASON_INVALID_PATTERN: ErrorReason
ERROR_REASON_REQUEST_TOO_LARGE: ErrorReason
ERROR_REASON_RANGE_PAST_END: ErrorReason
ERROR_REASON_HOST_OVERLOADED: ErrorReason
ERROR_REASON_HOST_DRAINING: ErrorReason
ERROR_REASON_DISK_FULL: ErrorReason
ERROR_REASON_READ_ONLY: ErrorReason
ERROR_REASON_DISK_CORRUPT: ErrorReason
ERROR_REASON_IO_ERROR: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_MOUNT_POINT: ErrorReason
ERROR_REASON_CREDENTIALS_REQUIRED: ErrorReason
ERROR_REASON_WORKSPACE_ACCESS_DENIED: ErrorReason
ERROR_REASON_WRITE_POLICY_DENIED: ErrorReason
ERROR_REASON_STALE_GENERATION: ErrorReason
ERROR_REASON_WRONG_STATE: ErrorReason
ERROR_REASON_NOT_QUIESCED: ErrorReason
ERROR_REASON_WORKSPACE_ALREADY_EXISTS: ErrorReason

class Origin(_message.Message):
    __slots__ = ("served_from", "consistency", "generation")
    SERVED_FROM_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    served_from: ServedFrom
    consistency: Consistency
    generation: int
    def __init__(self, served_from: _Optional[_Union[ServedFrom, str]] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., generation: _Optional[int] = ...) -> None: ...

class FileInfo(_message.Message):
    __slots__ = ("path", "raw_path", "type", "size_bytes", "mode", "uid", "gid", "link_count", "modify_time", "symlink_target", "raw_symlink_target", "revision", "etag")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    LINK_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    SYMLINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    RAW_SYMLINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    path: str
    raw_path: bytes
    type: FileType
    size_bytes: int
    mode: int
    uid: int
    gid: int
    link_count: int
    modify_time: _timestamp_pb2.Timestamp
    symlink_target: str
    raw_symlink_target: bytes
    revision: str
    etag: str
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., type: _Optional[_Union[FileType, str]] = ..., size_bytes: _Optional[int] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., link_count: _Optional[int] = ..., modify_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., symlink_target: _Optional[str] = ..., raw_symlink_target: _Optional[bytes] = ..., revision: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    def __init__(self, workspace: _Optional[str] = ...) -> None: ...

class GetCapabilitiesResponse(_message.Message):
    __slots__ = ("features", "limits", "server_version")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedScalarFieldContainer[Feature]
    limits: Limits
    server_version: str
    def __init__(self, features: _Optional[_Iterable[_Union[Feature, str]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., server_version: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_request_bytes", "max_patch_file_bytes", "max_patch_edits", "max_search_matches", "max_search_globs", "max_search_file_bytes", "max_offline_read_bytes", "search_budget", "offline_budget", "idempotency_retention", "max_list_entries", "max_list_depth", "max_search_pattern_bytes", "max_glob_bytes", "max_search_result_bytes")
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PATCH_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PATCH_EDITS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_MATCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_GLOBS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFLINE_READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEARCH_BUDGET_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_RETENTION_FIELD_NUMBER: _ClassVar[int]
    MAX_LIST_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_LIST_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_PATTERN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_GLOB_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SEARCH_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_request_bytes: int
    max_patch_file_bytes: int
    max_patch_edits: int
    max_search_matches: int
    max_search_globs: int
    max_search_file_bytes: int
    max_offline_read_bytes: int
    search_budget: _duration_pb2.Duration
    offline_budget: _duration_pb2.Duration
    idempotency_retention: _duration_pb2.Duration
    max_list_entries: int
    max_list_depth: int
    max_search_pattern_bytes: int
    max_glob_bytes: int
    max_search_result_bytes: int
    def __init__(self, max_request_bytes: _Optional[int] = ..., max_patch_file_bytes: _Optional[int] = ..., max_patch_edits: _Optional[int] = ..., max_search_matches: _Optional[int] = ..., max_search_globs: _Optional[int] = ..., max_search_file_bytes: _Optional[int] = ..., max_offline_read_bytes: _Optional[int] = ..., search_budget: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., offline_budget: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., idempotency_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_list_entries: _Optional[int] = ..., max_list_depth: _Optional[int] = ..., max_search_pattern_bytes: _Optional[int] = ..., max_glob_bytes: _Optional[int] = ..., max_search_result_bytes: _Optional[int] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "include_revision", "source")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_REVISION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    include_revision: bool
    source: ReadSource
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., include_revision: bool = ..., source: _Optional[_Union[ReadSource, str]] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("file", "origin")
    FILE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    origin: Origin
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "byte_range", "line_range", "expected_revision", "include_revision", "source", "expected_etag")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    BYTE_RANGE_FIELD_NUMBER: _ClassVar[int]
    LINE_RANGE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_REVISION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_ETAG_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    byte_range: ByteRange
    line_range: LineRange
    expected_revision: str
    include_revision: bool
    source: ReadSource
    expected_etag: str
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., byte_range: _Optional[_Union[ByteRange, _Mapping]] = ..., line_range: _Optional[_Union[LineRange, _Mapping]] = ..., expected_revision: _Optional[str] = ..., include_revision: bool = ..., source: _Optional[_Union[ReadSource, str]] = ..., expected_etag: _Optional[str] = ...) -> None: ...

class ByteRange(_message.Message):
    __slots__ = ("offset", "length")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    length: int
    def __init__(self, offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class LineRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("file", "origin", "offset", "data", "end")
    FILE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    origin: Origin
    offset: int
    data: bytes
    end: ReadEnd
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[ReadEnd, _Mapping]] = ...) -> None: ...

class ReadEnd(_message.Message):
    __slots__ = ("bytes_sent", "crc32c", "revision", "line_count", "changed")
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LINE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    bytes_sent: int
    crc32c: int
    revision: str
    line_count: int
    changed: bool
    def __init__(self, bytes_sent: _Optional[int] = ..., crc32c: _Optional[int] = ..., revision: _Optional[str] = ..., line_count: _Optional[int] = ..., changed: bool = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "depth", "include", "exclude", "max_entries", "include_revision", "source", "start_after", "raw_start_after")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_REVISION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    START_AFTER_FIELD_NUMBER: _ClassVar[int]
    RAW_START_AFTER_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    depth: int
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: GlobList
    max_entries: int
    include_revision: bool
    source: ReadSource
    start_after: str
    raw_start_after: bytes
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., depth: _Optional[int] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Union[GlobList, _Mapping]] = ..., max_entries: _Optional[int] = ..., include_revision: bool = ..., source: _Optional[_Union[ReadSource, str]] = ..., start_after: _Optional[str] = ..., raw_start_after: _Optional[bytes] = ...) -> None: ...

class GlobList(_message.Message):
    __slots__ = ("globs",)
    GLOBS_FIELD_NUMBER: _ClassVar[int]
    globs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, globs: _Optional[_Iterable[str]] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("origin", "entries", "end")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    entries: _containers.RepeatedCompositeFieldContainer[FileInfo]
    end: ListEnd
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[FileInfo, _Mapping]]] = ..., end: _Optional[_Union[ListEnd, _Mapping]] = ...) -> None: ...

class ListEnd(_message.Message):
    __slots__ = ("entries_sent", "truncated", "stop_reason", "unreadable")
    ENTRIES_SENT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    entries_sent: int
    truncated: bool
    stop_reason: StopReason
    unreadable: int
    def __init__(self, entries_sent: _Optional[int] = ..., truncated: bool = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., unreadable: _Optional[int] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "pattern", "regex", "case_insensitive", "include", "exclude", "context_lines", "max_matches", "max_file_bytes", "source")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    CASE_INSENSITIVE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LINES_FIELD_NUMBER: _ClassVar[int]
    MAX_MATCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    pattern: str
    regex: bool
    case_insensitive: bool
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: GlobList
    context_lines: int
    max_matches: int
    max_file_bytes: int
    source: ReadSource
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., pattern: _Optional[str] = ..., regex: bool = ..., case_insensitive: bool = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Union[GlobList, _Mapping]] = ..., context_lines: _Optional[int] = ..., max_matches: _Optional[int] = ..., max_file_bytes: _Optional[int] = ..., source: _Optional[_Union[ReadSource, str]] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("origin", "matches", "end")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    matches: _containers.RepeatedCompositeFieldContainer[Match]
    end: SearchEnd
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., matches: _Optional[_Iterable[_Union[Match, _Mapping]]] = ..., end: _Optional[_Union[SearchEnd, _Mapping]] = ...) -> None: ...

class Match(_message.Message):
    __slots__ = ("path", "raw_path", "line", "column", "end_column", "text", "raw_text", "text_clipped", "before", "after")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    END_COLUMN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RAW_TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_CLIPPED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    path: str
    raw_path: bytes
    line: int
    column: int
    end_column: int
    text: str
    raw_text: bytes
    text_clipped: bool
    before: _containers.RepeatedCompositeFieldContainer[Line]
    after: _containers.RepeatedCompositeFieldContainer[Line]
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., end_column: _Optional[int] = ..., text: _Optional[str] = ..., raw_text: _Optional[bytes] = ..., text_clipped: bool = ..., before: _Optional[_Iterable[_Union[Line, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[Line, _Mapping]]] = ...) -> None: ...

class Line(_message.Message):
    __slots__ = ("text", "raw", "clipped")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    CLIPPED_FIELD_NUMBER: _ClassVar[int]
    text: str
    raw: bytes
    clipped: bool
    def __init__(self, text: _Optional[str] = ..., raw: _Optional[bytes] = ..., clipped: bool = ...) -> None: ...

class SearchEnd(_message.Message):
    __slots__ = ("truncated", "stop_reason", "files_scanned", "skipped")
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    FILES_SCANNED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    truncated: bool
    stop_reason: StopReason
    files_scanned: int
    skipped: SkippedFiles
    def __init__(self, truncated: bool = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., files_scanned: _Optional[int] = ..., skipped: _Optional[_Union[SkippedFiles, _Mapping]] = ...) -> None: ...

class SkippedFiles(_message.Message):
    __slots__ = ("binary", "too_large", "special", "unreadable")
    BINARY_FIELD_NUMBER: _ClassVar[int]
    TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    binary: int
    too_large: int
    special: int
    unreadable: int
    def __init__(self, binary: _Optional[int] = ..., too_large: _Optional[int] = ..., special: _Optional[int] = ..., unreadable: _Optional[int] = ...) -> None: ...

class PatchRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "edits", "content", "expected_revision", "mode", "create_parents", "idempotency_key", "validate_only")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    edits: EditList
    content: bytes
    expected_revision: str
    mode: int
    create_parents: bool
    idempotency_key: str
    validate_only: bool
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., edits: _Optional[_Union[EditList, _Mapping]] = ..., content: _Optional[bytes] = ..., expected_revision: _Optional[str] = ..., mode: _Optional[int] = ..., create_parents: bool = ..., idempotency_key: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class EditList(_message.Message):
    __slots__ = ("edits",)
    EDITS_FIELD_NUMBER: _ClassVar[int]
    edits: _containers.RepeatedCompositeFieldContainer[Edit]
    def __init__(self, edits: _Optional[_Iterable[_Union[Edit, _Mapping]]] = ...) -> None: ...

class Edit(_message.Message):
    __slots__ = ("old_text", "new_text", "replace_all")
    OLD_TEXT_FIELD_NUMBER: _ClassVar[int]
    NEW_TEXT_FIELD_NUMBER: _ClassVar[int]
    REPLACE_ALL_FIELD_NUMBER: _ClassVar[int]
    old_text: str
    new_text: str
    replace_all: bool
    def __init__(self, old_text: _Optional[str] = ..., new_text: _Optional[str] = ..., replace_all: bool = ...) -> None: ...

class PatchResponse(_message.Message):
    __slots__ = ("revision", "previous_revision", "bytes_written", "durable", "replacements", "file", "replayed", "replaced_open_file")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_REVISION_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    REPLACED_OPEN_FILE_FIELD_NUMBER: _ClassVar[int]
    revision: str
    previous_revision: str
    bytes_written: int
    durable: bool
    replacements: int
    file: FileInfo
    replayed: bool
    replaced_open_file: bool
    def __init__(self, revision: _Optional[str] = ..., previous_revision: _Optional[str] = ..., bytes_written: _Optional[int] = ..., durable: bool = ..., replacements: _Optional[int] = ..., file: _Optional[_Union[FileInfo, _Mapping]] = ..., replayed: bool = ..., replaced_open_file: bool = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("start", "data", "finish")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    start: WriteStart
    data: bytes
    finish: WriteFinish
    def __init__(self, start: _Optional[_Union[WriteStart, _Mapping]] = ..., data: _Optional[bytes] = ..., finish: _Optional[_Union[WriteFinish, _Mapping]] = ...) -> None: ...

class WriteStart(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "expected_revision", "mode", "create_parents", "idempotency_key", "content_revision")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_REVISION_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    expected_revision: str
    mode: int
    create_parents: bool
    idempotency_key: str
    content_revision: str
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., expected_revision: _Optional[str] = ..., mode: _Optional[int] = ..., create_parents: bool = ..., idempotency_key: _Optional[str] = ..., content_revision: _Optional[str] = ...) -> None: ...

class WriteFinish(_message.Message):
    __slots__ = ("size_bytes", "crc32c")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    crc32c: int
    def __init__(self, size_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("revision", "previous_revision", "bytes_written", "durable", "file", "replayed")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_REVISION_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    revision: str
    previous_revision: str
    bytes_written: int
    durable: bool
    file: FileInfo
    replayed: bool
    def __init__(self, revision: _Optional[str] = ..., previous_revision: _Optional[str] = ..., bytes_written: _Optional[int] = ..., durable: bool = ..., file: _Optional[_Union[FileInfo, _Mapping]] = ..., replayed: bool = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "expected_revision", "recursive", "idempotency_key")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    expected_revision: str
    recursive: bool
    idempotency_key: str
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., expected_revision: _Optional[str] = ..., recursive: bool = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ("previous_revision", "durable", "replayed")
    PREVIOUS_REVISION_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    previous_revision: str
    durable: bool
    replayed: bool
    def __init__(self, previous_revision: _Optional[str] = ..., durable: bool = ..., replayed: bool = ...) -> None: ...

class MoveRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "new_path", "raw_new_path", "replace", "expected_revision", "create_parents", "idempotency_key")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    new_path: str
    raw_new_path: bytes
    replace: bool
    expected_revision: str
    create_parents: bool
    idempotency_key: str
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., new_path: _Optional[str] = ..., raw_new_path: _Optional[bytes] = ..., replace: bool = ..., expected_revision: _Optional[str] = ..., create_parents: bool = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class MoveResponse(_message.Message):
    __slots__ = ("file", "durable", "replayed")
    FILE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    durable: bool
    replayed: bool
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ..., durable: bool = ..., replayed: bool = ...) -> None: ...

class MakeDirectoryRequest(_message.Message):
    __slots__ = ("workspace", "path", "raw_path", "mode", "create_parents", "idempotency_key")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    path: str
    raw_path: bytes
    mode: int
    create_parents: bool
    idempotency_key: str
    def __init__(self, workspace: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., mode: _Optional[int] = ..., create_parents: bool = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class MakeDirectoryResponse(_message.Message):
    __slots__ = ("file", "durable", "replayed")
    FILE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    durable: bool
    replayed: bool
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ..., durable: bool = ..., replayed: bool = ...) -> None: ...
