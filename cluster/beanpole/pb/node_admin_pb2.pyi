from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadAuditRequest(_message.Message):
    __slots__ = ("node", "after_id", "at_node", "last_us")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    LAST_US_FIELD_NUMBER: _ClassVar[int]
    node: str
    after_id: int
    at_node: bool
    last_us: int
    def __init__(self, node: _Optional[str] = ..., after_id: _Optional[int] = ..., at_node: _Optional[bool] = ..., last_us: _Optional[int] = ...) -> None: ...

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

class ListSettingsRequest(_message.Message):
    __slots__ = ("node", "at_node")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    at_node: bool
    def __init__(self, node: _Optional[str] = ..., at_node: _Optional[bool] = ...) -> None: ...

class ListSettingsReply(_message.Message):
    __slots__ = ("node", "settings")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    node: str
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, node: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value_json", "source", "live", "secret", "waiting")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    name: str
    value_json: str
    source: str
    live: bool
    secret: bool
    waiting: bool
    def __init__(self, name: _Optional[str] = ..., value_json: _Optional[str] = ..., source: _Optional[str] = ..., live: _Optional[bool] = ..., secret: _Optional[bool] = ..., waiting: _Optional[bool] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ("node", "at_node")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    at_node: bool
    def __init__(self, node: _Optional[str] = ..., at_node: _Optional[bool] = ...) -> None: ...

class ReloadReply(_message.Message):
    __slots__ = ("node", "changed", "waiting")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    node: str
    changed: _containers.RepeatedScalarFieldContainer[str]
    waiting: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., changed: _Optional[_Iterable[str]] = ..., waiting: _Optional[_Iterable[str]] = ...) -> None: ...

class ExamineRequest(_message.Message):
    __slots__ = ("node", "at_node")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AT_NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    at_node: bool
    def __init__(self, node: _Optional[str] = ..., at_node: _Optional[bool] = ...) -> None: ...

class ExamineReply(_message.Message):
    __slots__ = ("node", "findings", "wall_us")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    WALL_US_FIELD_NUMBER: _ClassVar[int]
    node: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    wall_us: int
    def __init__(self, node: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., wall_us: _Optional[int] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("level", "name", "words", "remedy")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    level: str
    name: str
    words: str
    remedy: str
    def __init__(self, level: _Optional[str] = ..., name: _Optional[str] = ..., words: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...
