from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_FOLLOWER: _ClassVar[Role]
    ROLE_CANDIDATE: _ClassVar[Role]
    ROLE_LEADER: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_FOLLOWER: Role
ROLE_CANDIDATE: Role
ROLE_LEADER: Role

class Jobs(_message.Message):
    __slots__ = ("ready", "reserved", "delayed", "buried")
    READY_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    BURIED_FIELD_NUMBER: _ClassVar[int]
    ready: int
    reserved: int
    delayed: int
    buried: int
    def __init__(self, ready: _Optional[int] = ..., reserved: _Optional[int] = ..., delayed: _Optional[int] = ..., buried: _Optional[int] = ...) -> None: ...

class Protocol(_message.Message):
    __slots__ = ("name", "connections", "connections_total", "waiting", "commands_total", "jobs", "kept", "queues")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    connections: int
    connections_total: int
    waiting: int
    commands_total: int
    jobs: Jobs
    kept: int
    queues: int
    def __init__(self, name: _Optional[str] = ..., connections: _Optional[int] = ..., connections_total: _Optional[int] = ..., waiting: _Optional[int] = ..., commands_total: _Optional[int] = ..., jobs: _Optional[_Union[Jobs, _Mapping]] = ..., kept: _Optional[int] = ..., queues: _Optional[int] = ...) -> None: ...

class QlessJobs(_message.Message):
    __slots__ = ("waiting", "running", "scheduled", "depends", "throttled", "recurring")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    RECURRING_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    running: int
    scheduled: int
    depends: int
    throttled: int
    recurring: int
    def __init__(self, waiting: _Optional[int] = ..., running: _Optional[int] = ..., scheduled: _Optional[int] = ..., depends: _Optional[int] = ..., throttled: _Optional[int] = ..., recurring: _Optional[int] = ...) -> None: ...

class QlessQueue(_message.Message):
    __slots__ = ("name", "paused", "jobs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    name: str
    paused: bool
    jobs: QlessJobs
    def __init__(self, name: _Optional[str] = ..., paused: _Optional[bool] = ..., jobs: _Optional[_Union[QlessJobs, _Mapping]] = ...) -> None: ...

class Qless(_message.Message):
    __slots__ = ("jobs", "failed", "complete", "workers", "throttles", "locks_lost", "queues")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    LOCKS_LOST_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    jobs: QlessJobs
    failed: int
    complete: int
    workers: int
    throttles: int
    locks_lost: int
    queues: _containers.RepeatedCompositeFieldContainer[QlessQueue]
    def __init__(self, jobs: _Optional[_Union[QlessJobs, _Mapping]] = ..., failed: _Optional[int] = ..., complete: _Optional[int] = ..., workers: _Optional[int] = ..., throttles: _Optional[int] = ..., locks_lost: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[QlessQueue, _Mapping]]] = ...) -> None: ...

class Digests(_message.Message):
    __slots__ = ("state_index", "state_hash", "image_index", "image_digest", "image_version")
    STATE_INDEX_FIELD_NUMBER: _ClassVar[int]
    STATE_HASH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    IMAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    state_index: int
    state_hash: int
    image_index: int
    image_digest: int
    image_version: int
    def __init__(self, state_index: _Optional[int] = ..., state_hash: _Optional[int] = ..., image_index: _Optional[int] = ..., image_digest: _Optional[int] = ..., image_version: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "reachable", "role", "leader", "term", "commit_index", "applied_index", "last_index", "serving", "draining", "rejoining", "durability", "version", "cluster", "config_hash", "links", "jobs", "pid", "snapshot_index", "machine_version", "machine_version_known", "birth", "waiting_for", "upgrade_finalize", "protocols", "qless", "state", "waits", "digests", "refusal", "no_link")
    ID_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    REJOINING_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_INDEX_FIELD_NUMBER: _ClassVar[int]
    MACHINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MACHINE_VERSION_KNOWN_FIELD_NUMBER: _ClassVar[int]
    BIRTH_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_FINALIZE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    QLESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    NO_LINK_FIELD_NUMBER: _ClassVar[int]
    id: str
    reachable: bool
    role: Role
    leader: str
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    serving: bool
    draining: bool
    rejoining: bool
    durability: str
    version: str
    cluster: str
    config_hash: str
    links: _containers.RepeatedScalarFieldContainer[str]
    jobs: Jobs
    pid: int
    snapshot_index: int
    machine_version: int
    machine_version_known: int
    birth: str
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    upgrade_finalize: str
    protocols: _containers.RepeatedCompositeFieldContainer[Protocol]
    qless: Qless
    state: str
    waits: str
    digests: Digests
    refusal: str
    no_link: str
    def __init__(self, id: _Optional[str] = ..., reachable: _Optional[bool] = ..., role: _Optional[_Union[Role, str]] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., last_index: _Optional[int] = ..., serving: _Optional[bool] = ..., draining: _Optional[bool] = ..., rejoining: _Optional[bool] = ..., durability: _Optional[str] = ..., version: _Optional[str] = ..., cluster: _Optional[str] = ..., config_hash: _Optional[str] = ..., links: _Optional[_Iterable[str]] = ..., jobs: _Optional[_Union[Jobs, _Mapping]] = ..., pid: _Optional[int] = ..., snapshot_index: _Optional[int] = ..., machine_version: _Optional[int] = ..., machine_version_known: _Optional[int] = ..., birth: _Optional[str] = ..., waiting_for: _Optional[_Iterable[str]] = ..., upgrade_finalize: _Optional[str] = ..., protocols: _Optional[_Iterable[_Union[Protocol, _Mapping]]] = ..., qless: _Optional[_Union[Qless, _Mapping]] = ..., state: _Optional[str] = ..., waits: _Optional[str] = ..., digests: _Optional[_Union[Digests, _Mapping]] = ..., refusal: _Optional[str] = ..., no_link: _Optional[str] = ...) -> None: ...
