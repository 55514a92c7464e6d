# mypy: ignore-errors
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkspaceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKSPACE_STATE_UNSPECIFIED: _ClassVar[WorkspaceState]
    WORKSPACE_STATE_RUNNING: _ClassVar[WorkspaceState]
    WORKSPACE_STATE_QUIESCING: _ClassVar[WorkspaceState]
    WORKSPACE_STATE_PARKED: _ClassVar[WorkspaceState]
    WORKSPACE_STATE_SUSPENDED: _ClassVar[WorkspaceState]
    WORKSPACE_STATE_RESUMING: _ClassVar[WorkspaceState]
    WORKSPACE_STATE_QUARANTINED: _ClassVar[WorkspaceState]

class DiskFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISK_FORMAT_UNSPECIFIED: _ClassVar[DiskFormat]
    DISK_FORMAT_RAW: _ClassVar[DiskFormat]
    DISK_FORMAT_QCOW2: _ClassVar[DiskFormat]

class FileSystem(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_SYSTEM_UNSPECIFIED: _ClassVar[FileSystem]
    FILE_SYSTEM_EXT4: _ClassVar[FileSystem]
    FILE_SYSTEM_XFS: _ClassVar[FileSystem]
    FILE_SYSTEM_BTRFS: _ClassVar[FileSystem]
WORKSPACE_STATE_UNSPECIFIED: WorkspaceState
WORKSPACE_STATE_RUNNING: WorkspaceState
WORKSPACE_STATE_QUIESCING: WorkspaceState
WORKSPACE_STATE_PARKED: WorkspaceState
WORKSPACE_STATE_SUSPENDED: WorkspaceState
WORKSPACE_STATE_RESUMING: WorkspaceState
WORKSPACE_STATE_QUARANTINED: WorkspaceState
DISK_FORMAT_UNSPECIFIED: DiskFormat
DISK_FORMAT_RAW: DiskFormat
DISK_FORMAT_QCOW2: DiskFormat
FILE_SYSTEM_UNSPECIFIED: FileSystem
FILE_SYSTEM_EXT4: FileSystem
FILE_SYSTEM_XFS: FileSystem
FILE_SYSTEM_BTRFS: FileSystem

class Workspace(_message.Message):
    __slots__ = ("name", "spec", "state", "generation", "seal", "transition_time", "note", "activity_time")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_TIME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: WorkspaceSpec
    state: WorkspaceState
    generation: int
    seal: Seal
    transition_time: _timestamp_pb2.Timestamp
    note: str
    activity_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[WorkspaceSpec, _Mapping]] = ..., state: _Optional[_Union[WorkspaceState, str]] = ..., generation: _Optional[int] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., transition_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., note: _Optional[str] = ..., activity_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WorkspaceSpec(_message.Message):
    __slots__ = ("directory", "machine")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    directory: Directory
    machine: Machine
    def __init__(self, directory: _Optional[_Union[Directory, _Mapping]] = ..., machine: _Optional[_Union[Machine, _Mapping]] = ...) -> None: ...

class Directory(_message.Message):
    __slots__ = ("root",)
    ROOT_FIELD_NUMBER: _ClassVar[int]
    root: str
    def __init__(self, root: _Optional[str] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("guest", "disks")
    GUEST_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    guest: Guest
    disks: _containers.RepeatedCompositeFieldContainer[Disk]
    def __init__(self, guest: _Optional[_Union[Guest, _Mapping]] = ..., disks: _Optional[_Iterable[_Union[Disk, _Mapping]]] = ...) -> None: ...

class Guest(_message.Message):
    __slots__ = ("hybrid_vsock", "vsock", "unix_path", "tcp", "guest_token")
    HYBRID_VSOCK_FIELD_NUMBER: _ClassVar[int]
    VSOCK_FIELD_NUMBER: _ClassVar[int]
    UNIX_PATH_FIELD_NUMBER: _ClassVar[int]
    TCP_FIELD_NUMBER: _ClassVar[int]
    GUEST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    hybrid_vsock: HybridVsock
    vsock: Vsock
    unix_path: str
    tcp: str
    guest_token: str
    def __init__(self, hybrid_vsock: _Optional[_Union[HybridVsock, _Mapping]] = ..., vsock: _Optional[_Union[Vsock, _Mapping]] = ..., unix_path: _Optional[str] = ..., tcp: _Optional[str] = ..., guest_token: _Optional[str] = ...) -> None: ...

class HybridVsock(_message.Message):
    __slots__ = ("socket_path", "port")
    SOCKET_PATH_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    socket_path: str
    port: int
    def __init__(self, socket_path: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Vsock(_message.Message):
    __slots__ = ("cid", "port")
    CID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    cid: int
    port: int
    def __init__(self, cid: _Optional[int] = ..., port: _Optional[int] = ...) -> None: ...

class Disk(_message.Message):
    __slots__ = ("layers", "partition_number", "partition_guid", "file_system", "mount_path", "flushes")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_GUID_FIELD_NUMBER: _ClassVar[int]
    FILE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    MOUNT_PATH_FIELD_NUMBER: _ClassVar[int]
    FLUSHES_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedCompositeFieldContainer[DiskLayer]
    partition_number: int
    partition_guid: str
    file_system: FileSystem
    mount_path: str
    flushes: bool
    def __init__(self, layers: _Optional[_Iterable[_Union[DiskLayer, _Mapping]]] = ..., partition_number: _Optional[int] = ..., partition_guid: _Optional[str] = ..., file_system: _Optional[_Union[FileSystem, str]] = ..., mount_path: _Optional[str] = ..., flushes: bool = ...) -> None: ...

class DiskLayer(_message.Message):
    __slots__ = ("path", "format")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    path: str
    format: DiskFormat
    def __init__(self, path: _Optional[str] = ..., format: _Optional[_Union[DiskFormat, str]] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("generation", "exact", "layer_stamps", "superblock_sha256", "seal_time", "foreign_mount_paths")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    LAYER_STAMPS_FIELD_NUMBER: _ClassVar[int]
    SUPERBLOCK_SHA256_FIELD_NUMBER: _ClassVar[int]
    SEAL_TIME_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_MOUNT_PATHS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    exact: bool
    layer_stamps: _containers.RepeatedCompositeFieldContainer[LayerStamp]
    superblock_sha256: str
    seal_time: _timestamp_pb2.Timestamp
    foreign_mount_paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., exact: bool = ..., layer_stamps: _Optional[_Iterable[_Union[LayerStamp, _Mapping]]] = ..., superblock_sha256: _Optional[str] = ..., seal_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., foreign_mount_paths: _Optional[_Iterable[str]] = ...) -> None: ...

class LayerStamp(_message.Message):
    __slots__ = ("inode", "size_bytes", "modify_time", "change_time", "file_system_id")
    INODE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_TIME_FIELD_NUMBER: _ClassVar[int]
    FILE_SYSTEM_ID_FIELD_NUMBER: _ClassVar[int]
    inode: int
    size_bytes: int
    modify_time: _timestamp_pb2.Timestamp
    change_time: _timestamp_pb2.Timestamp
    file_system_id: str
    def __init__(self, inode: _Optional[int] = ..., size_bytes: _Optional[int] = ..., modify_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., change_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., file_system_id: _Optional[str] = ...) -> None: ...

class GetHostRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetHostResponse(_message.Message):
    __slots__ = ("host", "server_version", "draining", "workspace_count", "start_time")
    HOST_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_COUNT_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    host: str
    server_version: str
    draining: bool
    workspace_count: int
    start_time: _timestamp_pb2.Timestamp
    def __init__(self, host: _Optional[str] = ..., server_version: _Optional[str] = ..., draining: bool = ..., workspace_count: _Optional[int] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RegisterWorkspaceRequest(_message.Message):
    __slots__ = ("name", "spec", "generation", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: WorkspaceSpec
    generation: int
    state: WorkspaceState
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[WorkspaceSpec, _Mapping]] = ..., generation: _Optional[int] = ..., state: _Optional[_Union[WorkspaceState, str]] = ...) -> None: ...

class RegisterWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class ReleaseWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ReleaseWorkspaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWorkspaceRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class ListWorkspacesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "states")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[WorkspaceState]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[WorkspaceState, str]]] = ...) -> None: ...

class ListWorkspacesResponse(_message.Message):
    __slots__ = ("workspaces", "next_page_token")
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    workspaces: _containers.RepeatedCompositeFieldContainer[Workspace]
    next_page_token: str
    def __init__(self, workspaces: _Optional[_Iterable[_Union[Workspace, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchWorkspacesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchWorkspacesResponse(_message.Message):
    __slots__ = ("workspace", "released", "synced")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    released: bool
    synced: bool
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ..., released: bool = ..., synced: bool = ...) -> None: ...

class QuiesceWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation", "timeout")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    timeout: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class QuiesceWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class SealWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation", "parked", "require_exact")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_EXACT_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    parked: bool
    require_exact: bool
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., parked: bool = ..., require_exact: bool = ...) -> None: ...

class SealWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class UnsealWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class UnsealWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class OpenWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation", "guest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GUEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    guest: Guest
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., guest: _Optional[_Union[Guest, _Mapping]] = ...) -> None: ...

class OpenWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class SuspendWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation", "parked")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    parked: bool
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., parked: bool = ...) -> None: ...

class SuspendWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class ResumeWorkspaceRequest(_message.Message):
    __slots__ = ("name", "generation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ResumeWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class DrainHostRequest(_message.Message):
    __slots__ = ("timeout",)
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    timeout: _duration_pb2.Duration
    def __init__(self, timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DrainHostResponse(_message.Message):
    __slots__ = ("calls_left",)
    CALLS_LEFT_FIELD_NUMBER: _ClassVar[int]
    calls_left: int
    def __init__(self, calls_left: _Optional[int] = ...) -> None: ...

class UndrainHostRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UndrainHostResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
