from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ReadAuditRequest(_message.Message):
    __slots__ = ("node", "after_id", "at_node")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    after_id: int
    at_node: bool
    def __init__(self, node: _Optional[str] = ..., after_id: _Optional[int] = ..., at_node: _Optional[bool] = ...) -> None: ...

class ReadAuditReply(_message.Message):
    __slots__ = ("node", "lines", "complete", "lost")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    node: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    complete: bool
    lost: int
    def __init__(self, node: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ..., complete: _Optional[bool] = ..., lost: _Optional[int] = ...) -> None: ...
