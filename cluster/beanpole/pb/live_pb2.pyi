from beanpole.pb import node_pb2 as _node_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LiveRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LiveReply(_message.Message):
    __slots__ = ("node", "lately_s", "all", "queues")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LATELY_S_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    node: str
    lately_s: float
    all: LiveQueue
    queues: _containers.RepeatedCompositeFieldContainer[LiveQueue]
    def __init__(self, node: _Optional[str] = ..., lately_s: _Optional[float] = ..., all: _Optional[_Union[LiveQueue, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[LiveQueue, _Mapping]]] = ...) -> None: ...

class LiveQueue(_message.Message):
    __slots__ = ("protocol", "name", "jobs", "kept", "ready_age_s", "puts_per_s", "reserved_per_s", "ended_per_s", "wait", "run")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    READY_AGE_S_FIELD_NUMBER: _ClassVar[int]
    PUTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    RESERVED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_PER_S_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    name: str
    jobs: _node_pb2.Jobs
    kept: int
    ready_age_s: float
    puts_per_s: float
    reserved_per_s: float
    ended_per_s: float
    wait: Durations
    run: Durations
    def __init__(self, protocol: _Optional[str] = ..., name: _Optional[str] = ..., jobs: _Optional[_Union[_node_pb2.Jobs, _Mapping]] = ..., kept: _Optional[int] = ..., ready_age_s: _Optional[float] = ..., puts_per_s: _Optional[float] = ..., reserved_per_s: _Optional[float] = ..., ended_per_s: _Optional[float] = ..., wait: _Optional[_Union[Durations, _Mapping]] = ..., run: _Optional[_Union[Durations, _Mapping]] = ...) -> None: ...

class Durations(_message.Message):
    __slots__ = ("p50_s", "p90_s", "p99_s", "count")
    P50_S_FIELD_NUMBER: _ClassVar[int]
    P90_S_FIELD_NUMBER: _ClassVar[int]
    P99_S_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    p50_s: float
    p90_s: float
    p99_s: float
    count: int
    def __init__(self, p50_s: _Optional[float] = ..., p90_s: _Optional[float] = ..., p99_s: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...
