from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PutOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUT_OUTCOME_UNSPECIFIED: _ClassVar[PutOutcome]
    PUT_OUTCOME_INSERTED: _ClassVar[PutOutcome]
    PUT_OUTCOME_DUPLICATE: _ClassVar[PutOutcome]
    PUT_OUTCOME_OUT_OF_MEMORY: _ClassVar[PutOutcome]
    PUT_OUTCOME_QUEUE_FULL: _ClassVar[PutOutcome]
PUT_OUTCOME_UNSPECIFIED: PutOutcome
PUT_OUTCOME_INSERTED: PutOutcome
PUT_OUTCOME_DUPLICATE: PutOutcome
PUT_OUTCOME_OUT_OF_MEMORY: PutOutcome
PUT_OUTCOME_QUEUE_FULL: PutOutcome

class PutJob(_message.Message):
    __slots__ = ("tube", "body", "priority", "delay_s", "ttr_s", "key")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    TTR_S_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    tube: str
    body: bytes
    priority: int
    delay_s: int
    ttr_s: int
    key: bytes
    def __init__(self, tube: _Optional[str] = ..., body: _Optional[bytes] = ..., priority: _Optional[int] = ..., delay_s: _Optional[int] = ..., ttr_s: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[PutJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[PutJob, _Mapping]]] = ...) -> None: ...

class PutResult(_message.Message):
    __slots__ = ("job_id", "outcome")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    outcome: PutOutcome
    def __init__(self, job_id: _Optional[int] = ..., outcome: _Optional[_Union[PutOutcome, str]] = ...) -> None: ...

class PutReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PutResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PutResult, _Mapping]]] = ...) -> None: ...

class KickRequest(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class KickReply(_message.Message):
    __slots__ = ("kicked",)
    KICKED_FIELD_NUMBER: _ClassVar[int]
    kicked: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, kicked: _Optional[_Iterable[bool]] = ...) -> None: ...

class Alias(_message.Message):
    __slots__ = ("alias", "queue")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    alias: str
    queue: str
    def __init__(self, alias: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class SetAliasRequest(_message.Message):
    __slots__ = ("alias", "queue")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    alias: str
    queue: str
    def __init__(self, alias: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class SetAliasReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAliasesRequest(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: _Optional[bool] = ...) -> None: ...

class ListAliasesReply(_message.Message):
    __slots__ = ("aliases",)
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    aliases: _containers.RepeatedCompositeFieldContainer[Alias]
    def __init__(self, aliases: _Optional[_Iterable[_Union[Alias, _Mapping]]] = ...) -> None: ...
