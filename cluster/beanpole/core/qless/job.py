"""The records of a qless job and of a template of recurring jobs, without behaviour."""

from typing import Final

from beanpole.core.jobs.quotas import Usage
from beanpole.qless import SEED, FailureView, HistoryItem

# The ordered set that holds the jid of a job: one of its queue for all but NOWHERE and COMPLETED.
NOWHERE: Final = 0  # failed
WORK: Final = 1  # by priority: the highest score is popped first
LOCKS: Final = 2  # by the end of the lock
SCHEDULED_AT: Final = 3  # by due time
DEPENDING: Final = 4  # by the time of the put
THROTTLED_SINCE: Final = 5  # by the time at which it was throttled
COMPLETED: Final = 6  # in no queue: by the time of completion

# The size of a job in an answer without its texts, and of an item of its history.
_VIEW_BYTES: Final = 512
_ITEM_BYTES: Final = 50
# In SEED, data counts this many times: it is decoded and encoded again, and 1 MiB of the strangest
# JSON takes the client's node 0.2 s.
_SEED_DATA: Final = 16


class QlessJob:
    """A job. Times are the client's clock in seconds.

    Attributes:
        id: from the counter that all jobs of the cluster share; for events and images.
        place, score: the one ordered set that it is in, and its score there.
        expires: the displayed end of its lock; in the set of locks, grace may make it later.
        lease: its score in the set of its worker's jobs, the end of the lock; None if in none.
        locked: the throttles of which it has a lock.
        pending: the throttles that it waits for, each with its score in their order.
        texts: the bytes of the texts of its history, and of its tags, dependencies and dependents.
            They are counted where they change: a completion touches a thousand dependents, and
            each may have thousands of texts.
        history_texts: the part of `texts` that is of its history. A history has up to a thousand
            items, and almost every call appends one.
        size: its memory as counted in `Tables.bytes`.
        usage: the usage of the user for whom it counts (`core.jobs.quotas`); None if for none.
        counted: the bytes of data that are counted there.
        completed_in: the queue in which it was completed; empty in any other state.
        time: when it began to wait, or to run, for the statistics.
        grace: whether its worker was warned that the lock is lost, and may still report.
        due: the time for which to schedule it once it has no dependencies; None for at once.
        failed_order: its score in its failure group, 0 if it has not failed.
        tags: tags with the times at which they were given.
    """

    __slots__ = (
        "completed_in",
        "counted",
        "data",
        "dependencies",
        "dependents",
        "due",
        "expires",
        "failed_order",
        "failure",
        "grace",
        "history",
        "history_texts",
        "id",
        "jid",
        "klass",
        "lease",
        "locked",
        "pending",
        "place",
        "priority",
        "queue",
        "remaining",
        "retries",
        "score",
        "size",
        "spawned_from",
        "state",
        "tags",
        "texts",
        "throttles",
        "time",
        "usage",
        "worker",
    )

    def __init__(self, number: int, jid: bytes) -> None:
        self.id = number
        self.jid = jid
        self.klass = b""
        self.data = b""
        self.state = 0
        self.queue = b""
        self.completed_in = b""
        self.worker = b""
        self.priority = 0.0
        self.retries = 0
        self.remaining = 0
        self.tags: dict[bytes, float] = {}
        self.expires = 0.0
        self.lease: float | None = None
        self.locked: tuple[bytes, ...] = ()
        self.pending: tuple[tuple[bytes, float], ...] = ()
        self.time = 0.0
        self.place = NOWHERE
        self.score = 0.0
        self.grace = False
        self.due: float | None = None
        self.failure: FailureView | None = None
        self.failed_order = 0
        self.history: list[HistoryItem] = []
        self.dependencies: dict[bytes, None] = {}
        self.dependents: dict[bytes, None] = {}
        self.throttles: tuple[bytes, ...] = ()
        self.spawned_from = b""
        self.texts = 0
        self.history_texts = 0
        self.size = 0
        self.usage: Usage | None = None
        self.counted = 0


def history_bytes(items: list[HistoryItem]) -> int:
    """Return the total size in bytes of the texts of a history."""
    size = 0
    for item in items:
        size += len(item[2]) + len(item[3])
    return size


def texts_bytes(job: QlessJob) -> int:
    """Return the size of the data of a job, of its history, and of the names in its lists."""
    size = len(job.data) + job.texts
    for name in job.throttles:
        size += len(name)
    return size


def answer_bytes(job: QlessJob, flavour: int) -> int:
    """Return the approximate size of a job in an answer, with its history and its other fields."""
    size = _VIEW_BYTES + texts_bytes(job) + _ITEM_BYTES * len(job.history)
    return size + (_SEED_DATA - 1) * len(job.data) if flavour == SEED else size


class Recurring:
    """A template of jobs: one for every `interval` seconds, created by the next pop or peek.

    Like its jobs, the template itself counts for a user.
    """

    __slots__ = (
        "backlog",
        "count",
        "counted",
        "data",
        "interval",
        "jid",
        "klass",
        "next_at",
        "priority",
        "queue",
        "retries",
        "serial",
        "size",
        "tags",
        "throttles",
        "usage",
    )

    def __init__(self, jid: bytes) -> None:
        self.jid = jid
        self.klass = b""
        self.data = b""
        self.queue = b""
        self.priority = 0.0
        self.interval = 0.0
        self.retries = 0
        self.backlog = 0.0
        self.count = 0  # jobs created from it
        self.next_at = 0.0
        self.tags: tuple[bytes, ...] = ()
        self.throttles: tuple[bytes, ...] = ()
        self.serial = 0
        self.size = 0
        self.usage: Usage | None = None
        self.counted = 0
