from beanpole.pb import node_pb2 as _node_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: _Optional[bool] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("cluster", "leader", "term", "nodes")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    leader: str
    term: int
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.Node]
    def __init__(self, cluster: _Optional[str] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[_node_pb2.Node, _Mapping]]] = ...) -> None: ...

class TransferLeaderRequest(_message.Message):
    __slots__ = ("to", "at_leader")
    TO_FIELD_NUMBER: _ClassVar[int]
    AT_LEADER_FIELD_NUMBER: _ClassVar[int]
    to: str
    at_leader: bool
    def __init__(self, to: _Optional[str] = ..., at_leader: _Optional[bool] = ...) -> None: ...

class TransferLeaderReply(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: str
    def __init__(self, leader: _Optional[str] = ...) -> None: ...

class TakeSnapshotRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TakeSnapshotReply(_message.Message):
    __slots__ = ("index",)
    INDEX_FIELD_NUMBER: _ClassVar[int]
    index: int
    def __init__(self, index: _Optional[int] = ...) -> None: ...

class FinalizeRequest(_message.Message):
    __slots__ = ("to", "at_leader")
    TO_FIELD_NUMBER: _ClassVar[int]
    AT_LEADER_FIELD_NUMBER: _ClassVar[int]
    to: int
    at_leader: bool
    def __init__(self, to: _Optional[int] = ..., at_leader: _Optional[bool] = ...) -> None: ...

class FinalizeReply(_message.Message):
    __slots__ = ("machine_version",)
    MACHINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    machine_version: int
    def __init__(self, machine_version: _Optional[int] = ...) -> None: ...

class ListConnectionsRequest(_message.Message):
    __slots__ = ("node", "after_id", "at_node")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    after_id: int
    at_node: bool
    def __init__(self, node: _Optional[str] = ..., after_id: _Optional[int] = ..., at_node: _Optional[bool] = ...) -> None: ...

class ListConnectionsReply(_message.Message):
    __slots__ = ("node", "connections", "complete")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    node: str
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    complete: bool
    def __init__(self, node: _Optional[str] = ..., connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ..., complete: _Optional[bool] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ("id", "protocol", "host", "age_us", "waiting", "queue_used", "queues_watched", "queues_watched_total", "jobs_held", "jobs_held_total")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    AGE_US_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    QUEUE_USED_FIELD_NUMBER: _ClassVar[int]
    QUEUES_WATCHED_FIELD_NUMBER: _ClassVar[int]
    QUEUES_WATCHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    JOBS_HELD_FIELD_NUMBER: _ClassVar[int]
    JOBS_HELD_TOTAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    protocol: str
    host: str
    age_us: int
    waiting: bool
    queue_used: str
    queues_watched: _containers.RepeatedScalarFieldContainer[str]
    queues_watched_total: int
    jobs_held: _containers.RepeatedScalarFieldContainer[int]
    jobs_held_total: int
    def __init__(self, id: _Optional[int] = ..., protocol: _Optional[str] = ..., host: _Optional[str] = ..., age_us: _Optional[int] = ..., waiting: _Optional[bool] = ..., queue_used: _Optional[str] = ..., queues_watched: _Optional[_Iterable[str]] = ..., queues_watched_total: _Optional[int] = ..., jobs_held: _Optional[_Iterable[int]] = ..., jobs_held_total: _Optional[int] = ...) -> None: ...

class CloseConnectionRequest(_message.Message):
    __slots__ = ("node", "id", "at_node")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    id: int
    at_node: bool
    def __init__(self, node: _Optional[str] = ..., id: _Optional[int] = ..., at_node: _Optional[bool] = ...) -> None: ...

class CloseConnectionReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
