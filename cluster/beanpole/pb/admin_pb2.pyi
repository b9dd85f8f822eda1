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
