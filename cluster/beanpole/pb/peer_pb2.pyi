from beanpole.pb import node_pb2 as _node_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ChallengeRequest(_message.Message):
    __slots__ = ("caller", "nonce")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    caller: str
    nonce: bytes
    def __init__(self, caller: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class ChallengeReply(_message.Message):
    __slots__ = ("node", "challenge", "proof")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    node: str
    challenge: bytes
    proof: bytes
    def __init__(self, node: _Optional[str] = ..., challenge: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class ChallengeAnswer(_message.Message):
    __slots__ = ("caller", "nonce", "challenge", "proof")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    caller: str
    nonce: bytes
    challenge: bytes
    proof: bytes
    def __init__(self, caller: _Optional[str] = ..., nonce: _Optional[bytes] = ..., challenge: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class NodeInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("index",)
    INDEX_FIELD_NUMBER: _ClassVar[int]
    index: int
    def __init__(self, index: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("index", "term", "data", "crc32c")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    data: bytes
    crc32c: int
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ...) -> None: ...
