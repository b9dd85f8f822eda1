from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TakeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TakeReply(_message.Message):
    __slots__ = ("about", "data", "crc32c", "end")
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    about: BackupAbout
    data: bytes
    crc32c: int
    end: BackupEnd
    def __init__(self, about: _Optional[_Union[BackupAbout, _Mapping]] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ..., end: _Optional[_Union[BackupEnd, _Mapping]] = ...) -> None: ...

class BackupAbout(_message.Message):
    __slots__ = ("cluster", "node", "birth", "members", "index", "term", "version", "bytes")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    BIRTH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    birth: str
    members: _containers.RepeatedScalarFieldContainer[str]
    index: int
    term: int
    version: str
    bytes: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., birth: _Optional[str] = ..., members: _Optional[_Iterable[str]] = ..., index: _Optional[int] = ..., term: _Optional[int] = ..., version: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class BackupEnd(_message.Message):
    __slots__ = ("chunks", "crc32c")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    crc32c: int
    def __init__(self, chunks: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...
