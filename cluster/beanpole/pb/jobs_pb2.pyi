from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_READY: _ClassVar[JobState]
    JOB_STATE_RESERVED: _ClassVar[JobState]
    JOB_STATE_DELAYED: _ClassVar[JobState]
    JOB_STATE_BURIED: _ClassVar[JobState]
    JOB_STATE_DONE: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]

class JobAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_ACTION_UNSPECIFIED: _ClassVar[JobAction]
    JOB_ACTION_DELETE: _ClassVar[JobAction]
    JOB_ACTION_KICK: _ClassVar[JobAction]
    JOB_ACTION_BURY: _ClassVar[JobAction]
    JOB_ACTION_SET_PRIORITY: _ClassVar[JobAction]
    JOB_ACTION_SET_DELAY: _ClassVar[JobAction]
    JOB_ACTION_MOVE: _ClassVar[JobAction]

class MovedState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOVED_STATE_UNSPECIFIED: _ClassVar[MovedState]
    MOVED_STATE_READY: _ClassVar[MovedState]
    MOVED_STATE_BURIED: _ClassVar[MovedState]
    MOVED_STATE_SAME: _ClassVar[MovedState]

class JobOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_OUTCOME_UNSPECIFIED: _ClassVar[JobOutcome]
    JOB_OUTCOME_DONE: _ClassVar[JobOutcome]
    JOB_OUTCOME_NOT_FOUND: _ClassVar[JobOutcome]
    JOB_OUTCOME_WRONG_STATE: _ClassVar[JobOutcome]
    JOB_OUTCOME_ALREADY_THERE: _ClassVar[JobOutcome]
    JOB_OUTCOME_QUEUE_FULL: _ClassVar[JobOutcome]
    JOB_OUTCOME_TOO_MANY_QUEUES: _ClassVar[JobOutcome]
    JOB_OUTCOME_OTHER_PROTOCOL: _ClassVar[JobOutcome]
    JOB_OUTCOME_QLESS: _ClassVar[JobOutcome]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_READY: JobState
JOB_STATE_RESERVED: JobState
JOB_STATE_DELAYED: JobState
JOB_STATE_BURIED: JobState
JOB_STATE_DONE: JobState
JOB_STATE_FAILED: JobState
JOB_ACTION_UNSPECIFIED: JobAction
JOB_ACTION_DELETE: JobAction
JOB_ACTION_KICK: JobAction
JOB_ACTION_BURY: JobAction
JOB_ACTION_SET_PRIORITY: JobAction
JOB_ACTION_SET_DELAY: JobAction
JOB_ACTION_MOVE: JobAction
MOVED_STATE_UNSPECIFIED: MovedState
MOVED_STATE_READY: MovedState
MOVED_STATE_BURIED: MovedState
MOVED_STATE_SAME: MovedState
JOB_OUTCOME_UNSPECIFIED: JobOutcome
JOB_OUTCOME_DONE: JobOutcome
JOB_OUTCOME_NOT_FOUND: JobOutcome
JOB_OUTCOME_WRONG_STATE: JobOutcome
JOB_OUTCOME_ALREADY_THERE: JobOutcome
JOB_OUTCOME_QUEUE_FULL: JobOutcome
JOB_OUTCOME_TOO_MANY_QUEUES: JobOutcome
JOB_OUTCOME_OTHER_PROTOCOL: JobOutcome
JOB_OUTCOME_QLESS: JobOutcome

class JobFilter(_message.Message):
    __slots__ = ("queue", "states", "body_contains", "age_min_us", "age_max_us", "protocol")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    BODY_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    AGE_MIN_US_FIELD_NUMBER: _ClassVar[int]
    AGE_MAX_US_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    states: _containers.RepeatedScalarFieldContainer[JobState]
    body_contains: bytes
    age_min_us: int
    age_max_us: int
    protocol: str
    def __init__(self, queue: _Optional[str] = ..., states: _Optional[_Iterable[_Union[JobState, str]]] = ..., body_contains: _Optional[bytes] = ..., age_min_us: _Optional[int] = ..., age_max_us: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class JobHolder(_message.Message):
    __slots__ = ("node", "protocol", "session", "incarnation", "host", "detached")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    node: str
    protocol: str
    session: int
    incarnation: int
    host: str
    detached: bool
    def __init__(self, node: _Optional[str] = ..., protocol: _Optional[str] = ..., session: _Optional[int] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., detached: _Optional[bool] = ...) -> None: ...

class AdminJob(_message.Message):
    __slots__ = ("id", "queue", "state", "body", "body_bytes", "priority", "age_us", "delay_us", "ttr_us", "left_us", "since_us", "reserves", "timeouts", "releases", "buries", "kicks", "holder", "protocol", "external_id", "attempts_max", "failures", "failures_max", "progress", "result", "result_bytes", "ttl_left_us", "clients", "ended_in", "ended_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    AGE_US_FIELD_NUMBER: _ClassVar[int]
    DELAY_US_FIELD_NUMBER: _ClassVar[int]
    TTR_US_FIELD_NUMBER: _ClassVar[int]
    LEFT_US_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    RESERVES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    BURIES_FIELD_NUMBER: _ClassVar[int]
    KICKS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_MAX_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TTL_LEFT_US_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    ENDED_IN_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    id: int
    queue: str
    state: JobState
    body: bytes
    body_bytes: int
    priority: int
    age_us: int
    delay_us: int
    ttr_us: int
    left_us: int
    since_us: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    holder: JobHolder
    protocol: str
    external_id: str
    attempts_max: int
    failures: int
    failures_max: int
    progress: bytes
    result: bytes
    result_bytes: int
    ttl_left_us: int
    clients: int
    ended_in: str
    ended_by: str
    def __init__(self, id: _Optional[int] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., body: _Optional[bytes] = ..., body_bytes: _Optional[int] = ..., priority: _Optional[int] = ..., age_us: _Optional[int] = ..., delay_us: _Optional[int] = ..., ttr_us: _Optional[int] = ..., left_us: _Optional[int] = ..., since_us: _Optional[int] = ..., reserves: _Optional[int] = ..., timeouts: _Optional[int] = ..., releases: _Optional[int] = ..., buries: _Optional[int] = ..., kicks: _Optional[int] = ..., holder: _Optional[_Union[JobHolder, _Mapping]] = ..., protocol: _Optional[str] = ..., external_id: _Optional[str] = ..., attempts_max: _Optional[int] = ..., failures: _Optional[int] = ..., failures_max: _Optional[int] = ..., progress: _Optional[bytes] = ..., result: _Optional[bytes] = ..., result_bytes: _Optional[int] = ..., ttl_left_us: _Optional[int] = ..., clients: _Optional[int] = ..., ended_in: _Optional[str] = ..., ended_by: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("filter", "after_id", "limit", "body_bytes", "local")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    filter: JobFilter
    after_id: int
    limit: int
    body_bytes: int
    local: bool
    def __init__(self, filter: _Optional[_Union[JobFilter, _Mapping]] = ..., after_id: _Optional[int] = ..., limit: _Optional[int] = ..., body_bytes: _Optional[int] = ..., local: _Optional[bool] = ...) -> None: ...

class ListJobsReply(_message.Message):
    __slots__ = ("jobs", "next_after_id", "complete", "scanned")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[AdminJob]
    next_after_id: int
    complete: bool
    scanned: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[AdminJob, _Mapping]]] = ..., next_after_id: _Optional[int] = ..., complete: _Optional[bool] = ..., scanned: _Optional[int] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("id", "local")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    local: bool
    def __init__(self, id: _Optional[int] = ..., local: _Optional[bool] = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("action", "job_ids", "filter", "to_queue", "moved_state", "priority", "delay_s", "dry_run", "count_max", "reserved", "after_id", "up_to_id")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    TO_QUEUE_FIELD_NUMBER: _ClassVar[int]
    MOVED_STATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    UP_TO_ID_FIELD_NUMBER: _ClassVar[int]
    action: JobAction
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    filter: JobFilter
    to_queue: str
    moved_state: MovedState
    priority: int
    delay_s: int
    dry_run: bool
    count_max: int
    reserved: bool
    after_id: int
    up_to_id: int
    def __init__(self, action: _Optional[_Union[JobAction, str]] = ..., job_ids: _Optional[_Iterable[int]] = ..., filter: _Optional[_Union[JobFilter, _Mapping]] = ..., to_queue: _Optional[str] = ..., moved_state: _Optional[_Union[MovedState, str]] = ..., priority: _Optional[int] = ..., delay_s: _Optional[int] = ..., dry_run: _Optional[bool] = ..., count_max: _Optional[int] = ..., reserved: _Optional[bool] = ..., after_id: _Optional[int] = ..., up_to_id: _Optional[int] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("id", "outcome")
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    id: int
    outcome: JobOutcome
    def __init__(self, id: _Optional[int] = ..., outcome: _Optional[_Union[JobOutcome, str]] = ...) -> None: ...

class ChangeProgress(_message.Message):
    __slots__ = ("scanned", "matched", "changed", "after_id", "up_to_id", "complete", "to_scan", "results", "stopped_by")
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    UP_TO_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    TO_SCAN_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_BY_FIELD_NUMBER: _ClassVar[int]
    scanned: int
    matched: int
    changed: int
    after_id: int
    up_to_id: int
    complete: bool
    to_scan: int
    results: _containers.RepeatedCompositeFieldContainer[JobResult]
    stopped_by: JobOutcome
    def __init__(self, scanned: _Optional[int] = ..., matched: _Optional[int] = ..., changed: _Optional[int] = ..., after_id: _Optional[int] = ..., up_to_id: _Optional[int] = ..., complete: _Optional[bool] = ..., to_scan: _Optional[int] = ..., results: _Optional[_Iterable[_Union[JobResult, _Mapping]]] = ..., stopped_by: _Optional[_Union[JobOutcome, str]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("after", "limit", "queue", "oldest", "local")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    queue: str
    oldest: bool
    local: bool
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., queue: _Optional[str] = ..., oldest: _Optional[bool] = ..., local: _Optional[bool] = ...) -> None: ...

class AdminQueue(_message.Message):
    __slots__ = ("name", "protocol", "ready", "reserved", "delayed", "buried", "kept", "jobs_total", "deletes", "producers", "workers", "pause_left_us", "next_ready_us", "oldest_id", "oldest_age_us", "aliases", "paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    BURIED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    JOBS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PAUSE_LEFT_US_FIELD_NUMBER: _ClassVar[int]
    NEXT_READY_US_FIELD_NUMBER: _ClassVar[int]
    OLDEST_ID_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_US_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    protocol: str
    ready: int
    reserved: int
    delayed: int
    buried: int
    kept: int
    jobs_total: int
    deletes: int
    producers: int
    workers: int
    pause_left_us: int
    next_ready_us: int
    oldest_id: int
    oldest_age_us: int
    aliases: _containers.RepeatedScalarFieldContainer[str]
    paused: bool
    def __init__(self, name: _Optional[str] = ..., protocol: _Optional[str] = ..., ready: _Optional[int] = ..., reserved: _Optional[int] = ..., delayed: _Optional[int] = ..., buried: _Optional[int] = ..., kept: _Optional[int] = ..., jobs_total: _Optional[int] = ..., deletes: _Optional[int] = ..., producers: _Optional[int] = ..., workers: _Optional[int] = ..., pause_left_us: _Optional[int] = ..., next_ready_us: _Optional[int] = ..., oldest_id: _Optional[int] = ..., oldest_age_us: _Optional[int] = ..., aliases: _Optional[_Iterable[str]] = ..., paused: _Optional[bool] = ...) -> None: ...

class ListQueuesReply(_message.Message):
    __slots__ = ("queues", "next_after", "complete", "oldest_complete")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[AdminQueue]
    next_after: int
    complete: bool
    oldest_complete: bool
    def __init__(self, queues: _Optional[_Iterable[_Union[AdminQueue, _Mapping]]] = ..., next_after: _Optional[int] = ..., complete: _Optional[bool] = ..., oldest_complete: _Optional[bool] = ...) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("queue", "seconds")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    seconds: int
    def __init__(self, queue: _Optional[str] = ..., seconds: _Optional[int] = ...) -> None: ...

class PauseQueueReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
