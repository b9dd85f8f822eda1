from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WhenFull(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHEN_FULL_REFUSE: _ClassVar[WhenFull]
    WHEN_FULL_DROP_OLDEST: _ClassVar[WhenFull]
WHEN_FULL_REFUSE: WhenFull
WHEN_FULL_DROP_OLDEST: WhenFull

class Policy(_message.Message):
    __slots__ = ("pattern", "attempts_max", "dead", "jobs_max", "bytes_max", "when_full", "ttr_s", "priority", "retain_buried_us", "retain_delayed_us", "unique_window_us", "rate", "rate_period_us")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    JOBS_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WHEN_FULL_FIELD_NUMBER: _ClassVar[int]
    TTR_S_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BURIED_US_FIELD_NUMBER: _ClassVar[int]
    RETAIN_DELAYED_US_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_WINDOW_US_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    RATE_PERIOD_US_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    attempts_max: int
    dead: str
    jobs_max: int
    bytes_max: int
    when_full: WhenFull
    ttr_s: int
    priority: int
    retain_buried_us: int
    retain_delayed_us: int
    unique_window_us: int
    rate: int
    rate_period_us: int
    def __init__(self, pattern: _Optional[str] = ..., attempts_max: _Optional[int] = ..., dead: _Optional[str] = ..., jobs_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., when_full: _Optional[_Union[WhenFull, str]] = ..., ttr_s: _Optional[int] = ..., priority: _Optional[int] = ..., retain_buried_us: _Optional[int] = ..., retain_delayed_us: _Optional[int] = ..., unique_window_us: _Optional[int] = ..., rate: _Optional[int] = ..., rate_period_us: _Optional[int] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ...) -> None: ...

class SetPolicyReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropPolicyRequest(_message.Message):
    __slots__ = ("pattern",)
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    def __init__(self, pattern: _Optional[str] = ...) -> None: ...

class DropPolicyReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ("queue", "local")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    local: bool
    def __init__(self, queue: _Optional[str] = ..., local: _Optional[bool] = ...) -> None: ...

class ListPoliciesReply(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...
