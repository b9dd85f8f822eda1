from collections.abc import Callable
from typing import Any

class FAIL_REASON:
    SUCCESS: int
    QUEUE_FULL: int
    MISSING_LEADER: int
    DISCARDED: int
    NOT_LEADER: int
    LEADER_CHANGED: int
    REQUEST_DENIED: int
    UNKNOWN_OUTCOME: int

class SERIALIZER_STATE:
    NOT_SERIALIZING: int
    SERIALIZING: int
    SUCCESS: int
    FAILED: int

class SyncObjConf:
    password: str | None
    autoTick: bool
    autoTickPeriod: float
    commandsQueueSize: int
    raftMinTimeout: float
    raftMaxTimeout: float
    appendEntriesPeriod: float
    connectionTimeout: float
    connectionRetryTime: float
    leaderFallbackTimeout: float
    appendEntriesUseBatch: bool
    appendEntriesBatchSizeBytes: int
    bindAddress: str | None
    sendBufferSize: int
    recvBufferSize: int
    dnsCacheTime: float
    dnsFailCacheTime: float
    logCompactionMinEntries: int
    logCompactionMinTime: float
    logCompactionSplit: bool
    logCompactionBatchSize: int
    commandsWaitLeader: bool
    fullDumpFile: str | None
    journalFile: str | None
    onReady: Callable[[], None] | None
    onStateChanged: Callable[[int, int], None] | None
    dynamicMembershipChange: bool
    pollerType: str
    useFork: bool
    serializer: Callable[..., Any] | None
    serializeChecker: Callable[[], int] | None
    deserializer: Callable[..., Any] | None
    onCodeVersionChanged: Callable[[int, int], None] | None
    def __init__(self, **kwargs: Any) -> None: ...
    def validate(self) -> None: ...
