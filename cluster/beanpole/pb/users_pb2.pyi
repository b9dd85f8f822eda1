from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Right(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RIGHT_UNSPECIFIED: _ClassVar[Right]
    RIGHT_PUT: _ClassVar[Right]
    RIGHT_WORK: _ClassVar[Right]
    RIGHT_ADMIN: _ClassVar[Right]
    RIGHT_EVENTS: _ClassVar[Right]
RIGHT_UNSPECIFIED: Right
RIGHT_PUT: Right
RIGHT_WORK: Right
RIGHT_ADMIN: Right
RIGHT_EVENTS: Right

class Rights(_message.Message):
    __slots__ = ("pattern", "rights")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    rights: _containers.RepeatedScalarFieldContainer[Right]
    def __init__(self, pattern: _Optional[str] = ..., rights: _Optional[_Iterable[_Union[Right, str]]] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("name", "rights", "token_ids", "limits", "jobs", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    rights: _containers.RepeatedCompositeFieldContainer[Rights]
    token_ids: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    jobs: int
    bytes: int
    def __init__(self, name: _Optional[str] = ..., rights: _Optional[_Iterable[_Union[Rights, _Mapping]]] = ..., token_ids: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., jobs: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("jobs_max", "bytes_max", "commands_per_second_max")
    JOBS_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_PER_SECOND_MAX_FIELD_NUMBER: _ClassVar[int]
    jobs_max: int
    bytes_max: int
    commands_per_second_max: int
    def __init__(self, jobs_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., commands_per_second_max: _Optional[int] = ...) -> None: ...

class SetUserRequest(_message.Message):
    __slots__ = ("name", "rights", "limits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    rights: _containers.RepeatedCompositeFieldContainer[Rights]
    limits: Limits
    def __init__(self, name: _Optional[str] = ..., rights: _Optional[_Iterable[_Union[Rights, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class SetUserReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropUserRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DropUserReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("name", "local", "after")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    local: bool
    after: str
    def __init__(self, name: _Optional[str] = ..., local: _Optional[bool] = ..., after: _Optional[str] = ...) -> None: ...

class ListUsersReply(_message.Message):
    __slots__ = ("users", "next_after")
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[User]
    next_after: str
    def __init__(self, users: _Optional[_Iterable[_Union[User, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class AddTokenRequest(_message.Message):
    __slots__ = ("user", "digest")
    USER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    user: str
    digest: bytes
    def __init__(self, user: _Optional[str] = ..., digest: _Optional[bytes] = ...) -> None: ...

class AddTokenReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropTokenRequest(_message.Message):
    __slots__ = ("user", "token_id")
    USER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    user: str
    token_id: str
    def __init__(self, user: _Optional[str] = ..., token_id: _Optional[str] = ...) -> None: ...

class DropTokenReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Rule(_message.Message):
    __slots__ = ("protocol", "network", "certificate", "user")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    network: str
    certificate: str
    user: str
    def __init__(self, protocol: _Optional[str] = ..., network: _Optional[str] = ..., certificate: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class SetRulesRequest(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    def __init__(self, rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...) -> None: ...

class SetRulesReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRulesRequest(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: _Optional[bool] = ...) -> None: ...

class ListRulesReply(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    def __init__(self, rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WhoAmIReply(_message.Message):
    __slots__ = ("user", "rights", "has_users")
    USER_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    HAS_USERS_FIELD_NUMBER: _ClassVar[int]
    user: str
    rights: _containers.RepeatedCompositeFieldContainer[Rights]
    has_users: bool
    def __init__(self, user: _Optional[str] = ..., rights: _Optional[_Iterable[_Union[Rights, _Mapping]]] = ..., has_users: _Optional[bool] = ...) -> None: ...
