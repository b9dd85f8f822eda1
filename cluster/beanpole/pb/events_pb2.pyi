from beanpole.pb import node_pb2 as _node_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventRangeRequest(_message.Message):
    __slots__ = ("wall_us",)
    WALL_US_FIELD_NUMBER: _ClassVar[int]
    wall_us: int
    def __init__(self, wall_us: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("first", "end")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class EventRangeReply(_message.Message):
    __slots__ = ("cluster", "node", "spans", "end", "jobs", "applied_index", "offset_at_wall", "jobs_before", "birth")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_AT_WALL_FIELD_NUMBER: _ClassVar[int]
    JOBS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BIRTH_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    end: int
    jobs: _node_pb2.Jobs
    applied_index: int
    offset_at_wall: int
    jobs_before: _node_pb2.Jobs
    birth: str
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., end: _Optional[int] = ..., jobs: _Optional[_Union[_node_pb2.Jobs, _Mapping]] = ..., applied_index: _Optional[int] = ..., offset_at_wall: _Optional[int] = ..., jobs_before: _Optional[_Union[_node_pb2.Jobs, _Mapping]] = ..., birth: _Optional[str] = ...) -> None: ...

class ReadEventsRequest(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("first", "rows", "arrow")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    first: int
    rows: int
    arrow: bytes
    def __init__(self, first: _Optional[int] = ..., rows: _Optional[int] = ..., arrow: _Optional[bytes] = ...) -> None: ...
