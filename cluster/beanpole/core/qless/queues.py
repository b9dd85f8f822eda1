"""Queues: known and paused queues, and the counts of their jobs."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits, ranges, statistics
from beanpole.core.qless.job import WORK, QlessJob
from beanpole.core.qless.tables import QlessQueue, Tables

# The divisor by which time is subtracted from priorities: jobs of equal priority are in the order
# of their arrival.
SECONDS_OF_PRIORITY: Final = 10_000_000_000.0


def work_score(now: float, priority: float) -> float:
    """Return the score of a job in the work set: the highest is popped first."""
    return priority - now / SECONDS_OF_PRIORITY


def has_room(t: Tables, name: bytes) -> bool:
    """Whether a queue exists, or may be created."""
    return name in t.queues or len(t.queues) < q.QUEUES_MAX


def know(t: Tables, now: float, name: bytes) -> None:
    """Make a queue known, if it is not. Check `has_room` before anything is changed."""
    queue = t.queues.get(name)
    if queue is None or queue.known_at is None:
        t.queue(name).known_at = now


def make_waiting(t: Tables, job: QlessJob, now: float) -> None:
    """Put a job into the work set of its queue as of now; the caller has called `keep`."""
    t.place(job, WORK, work_score(now, job.priority))
    job.state = q.WAITING


def move_scheduled(t: Tables, queue: QlessQueue, now: float, count: int) -> int:
    """Make scheduled jobs that are due waiting, the earliest first; returns their number."""
    if count <= 0 or not t.is_timed(queue.name):
        return 0
    due = ranges.between(queue.scheduled, 0.0, now, 0, count) or []
    for jid in due:
        job = t.jobs[jid]
        t.keep(job)
        make_waiting(t, job, now)
    return len(due)


def pause(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """PAUSE: give out no jobs of these queues."""
    names = dict.fromkeys(args[0])
    new = [name for name in names if name not in t.queues]
    if len(t.queues) + len(new) > q.QUEUES_MAX:
        return limits.QUEUES
    for name in names:
        t.queue(name).paused = True
    return q.OK, None


def unpause(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """UNPAUSE: give out jobs of these queues again."""
    for name in args[0]:
        queue = t.queues.get(name)
        if queue is not None and queue.paused:
            t.keep_queue(queue)
            queue.paused = False
    return q.OK, None


def forget_queues(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """FORGET_QUEUES: make queues unknown until a job is put there; their jobs stay.

    A queue without jobs loses its statistics, because nothing else would ever remove them. Several
    queues are refused if these are too many.
    """
    days = 0
    for name in dict.fromkeys(args[0]):
        queue = t.queues.get(name)
        if queue is not None and not queue.has_jobs():
            days += len(queue.days)
    if days // statistics.DAYS_A_JOB > q.CALL_JOBS_MAX and len(args[0]) > 1:
        return limits.JOBS
    for name in args[0]:
        queue = t.queues.get(name)
        if queue is None:
            continue
        t.keep_queue(queue)
        queue.known_at = None
        if not queue.has_jobs():
            queue.days.clear()
    return q.OK, None


def queue_counts(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """QUEUE_COUNTS: return the counts of the jobs of one queue, or of each known queue.

    Scheduled jobs that are due are moved, except in SEED. Those beyond the number that a call may
    move are counted as if they were moved.
    """
    names = _known(t) if args[0] is None else [args[0]]
    rest = q.CALL_JOBS_MAX
    views: list[q.QueueView] = []
    for name in names:
        queue = t.queues.get(name)
        if queue is None:
            views.append(q.QueueView(name, 0, 0, 0, 0, 0, 0, 0, False))
            continue
        due = 0
        if flavour != q.SEED:
            rest -= move_scheduled(t, queue, now, rest)
            due = ranges.count_between(queue.scheduled, 0.0, now)
        views.append(_view(queue, now, due))
    return q.OK, tuple(views)


def length(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """LENGTH: return the number of running, waiting and scheduled jobs of a queue."""
    queue = t.queues.get(args[0])
    if queue is None:
        return q.OK, 0
    return q.OK, len(queue.locks) + len(queue.work) + len(queue.scheduled)


def queue_names(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """QUEUE_NAMES: return the known queues, in the order in which they became known."""
    return q.OK, tuple(_known(t))


def _known(t: Tables) -> list[bytes]:
    known = [
        (queue.known_at, name) for name, queue in t.queues.items() if queue.known_at is not None
    ]
    return [name for _, name in sorted(known)]


def _view(queue: QlessQueue, now: float, due: int) -> q.QueueView:
    stalled = ranges.count_between(queue.locks, 0.0, now)
    return q.QueueView(
        queue.name,
        len(queue.work) + due,
        len(queue.locks) - stalled,
        stalled,
        len(queue.scheduled) - due,
        len(queue.depends),
        len(queue.recurring),
        len(queue.throttled),
        queue.paused,
    )
