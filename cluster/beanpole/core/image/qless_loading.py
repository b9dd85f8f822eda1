"""Load qless's tables from the records of an image, with validation: invalid records are `Damaged`.

The records, and their order, are in `core.image.qless`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from beanpole import qless as q
from beanpole.constants import JOB_ID_MAX, U32_MAX
from beanpole.core.image import qless as records
from beanpole.core.jobs.quotas import Usage
from beanpole.core.qless import dependencies, failing, sizes, tags
from beanpole.core.qless.emitting import PREFIX
from beanpole.core.qless.job import (
    COMPLETED,
    DEPENDING,
    LOCKS,
    NOWHERE,
    SCHEDULED_AT,
    THROTTLED_SINCE,
    WORK,
    QlessJob,
    Recurring,
    history_bytes,
)
from beanpole.core.qless.scores import INFINITY, Scores
from beanpole.core.qless.shapes import BAD, DATA, TRUTH, Count, Kind, Many, Optional, Row, Text
from beanpole.core.qless.tables import Day, Tables, Times
from beanpole.core.state import MachineState
from beanpole.core.users import may_be_name
from beanpole.errors import Damaged


class _Float(Kind):
    """A float that is not NaN, and infinite only if `infinite` is given."""

    def __init__(self, infinite: bool = False) -> None:
        self._infinite = infinite

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        if type(value) is not float or value != value:
            return BAD
        return None if self._infinite or -INFINITY < value < INFINITY else BAD


class _UserName(Kind):
    """A valid user name."""

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        return None if type(value) is bytes and may_be_name(value) else BAD


# Names may be composed of two others: the throttle of a queue, a failure group.
_NAME: Final = Text(2 * q.NAME_MAX_BYTES, BAD)
_NAMES: Final = Many(_NAME)
_FLOAT: Final = _Float()
_SCORE: Final = _Float(infinite=True)
_INT: Final = Count(-(2**63), 2**63 - 1)
_NATURAL: Final = Count(0, 2**63 - 1)
_NUMBERED: Final = Many(Row(_NAME, _FLOAT))
_TIMES: Final = Row(_NATURAL, _FLOAT, _FLOAT, Many(Row(Count(0, q.HISTOGRAM_BINS - 1), _NATURAL)))
_DAY: Final = Row(_INT, _INT, _INT, _INT, _TIMES, _TIMES)
_HISTORY: Final = Many(Row(_FLOAT, Count(q.HAS_PUT, q.HAS_LOGGED), DATA, DATA))
_FAILURE: Final = Row(_NAME, DATA, _FLOAT, _NAME)
_TAGS: Final = _NUMBERED
_USER: Final = _UserName()

_QUEUE: Final = Row(_NAME, _NATURAL, Optional(_FLOAT), TRUTH, Many(_DAY))
_THROTTLE: Final = Row(_NAME, TRUTH, _INT, _NATURAL)
_RECURRING: Final = (
    *(_NAME, _NAME, DATA, _NAME, _FLOAT, _FLOAT),
    *(_INT, _FLOAT, _NATURAL, _FLOAT, _NAMES, _NAMES),
)
_JOB: Final = (
    *(Count(1, JOB_ID_MAX), _NAME, _NAME, DATA, Count(q.WAITING, q.COMPLETE_), _NAME, _NAME),
    *(_FLOAT, _INT, _INT, _FLOAT, Optional(_FLOAT), _FLOAT, Count(NOWHERE, COMPLETED), _SCORE),
    *(TRUTH, Optional(_FLOAT), Optional(_FAILURE), _NATURAL, _NAMES, _NAME, _NAMES, _NUMBERED),
    _NAME,
)
_LONG: Final = (_TAGS, _NAMES, _NAMES, _HISTORY)
# Without and with the name of the user for whom the row counts.
_RECURRING_ROWS: Final = (Row(*_RECURRING), Row(*_RECURRING, _USER))
_JOB_ROWS: Final = (Row(*_JOB, *_LONG), Row(*_JOB, _USER, *_LONG))
# The sets that may hold a job of each state. A throttled job that was released is in the work set,
# and keeps its state until it is popped.
_PLACES: Final = {
    q.WAITING: (WORK,),
    q.RUNNING: (LOCKS,),
    q.SCHEDULED: (SCHEDULED_AT,),
    q.DEPENDS: (DEPENDING,),
    q.STALLED: (WORK,),
    q.THROTTLED: (THROTTLED_SINCE, WORK),
    q.FAILED: (NOWHERE,),
    q.COMPLETE_: (COMPLETED,),
}


def read(machine: MachineState, value: Any) -> None:
    """Load the records of one chunk, which are tuples, into the tables of a machine."""
    word, rows = value
    _READERS[word](machine, rows)


def end(machine: MachineState) -> None:
    """Check that both sides of every dependency agree."""
    jobs = machine.qless.jobs
    links = dependents = 0
    for job in jobs.values():
        links += len(job.dependencies)
        dependents += len(job.dependents)
        for jid in job.dependents:
            if jid not in jobs or job.jid not in jobs[jid].dependencies:
                raise Damaged(f"job {job.id} has a dependent that does not depend on it")
        # Each name is one object that both jobs have, as it was before the image.
        job.dependents = {jobs[jid].jid: None for jid in job.dependents}
    if links != dependents:
        raise Damaged("a job depends on another that does not know it")


def _checked(kind: Kind, row: Any) -> Any:
    if kind.refusal(row) is not None:
        raise Damaged(f"qless has a record that cannot be: {str(row)[:100]}")
    return row


def _read_totals(machine: MachineState, rows: Any) -> None:
    t = machine.qless
    row = _checked(Row(_NATURAL, _NATURAL, _NATURAL), rows)
    t.failures_total, t.jobs_total, t.locks_lost_total = row


def _read_count(machine: MachineState, rows: Any) -> None:
    (count,) = rows
    if count != len(machine.qless.by_id):
        raise Damaged(f"the image holds {len(machine.qless.by_id)} jobs of qless and says {count}")


def _read_options(machine: MachineState, rows: Any) -> None:
    for option, value in _checked(Many(Row(_NAME, _NAME)), rows):
        machine.qless.set_option(option, value)


def _read_patterns(machine: MachineState, rows: Any) -> None:
    for kind, name, text in _checked(Many(Row(Count(0, 1), _NAME, DATA)), rows):
        machine.qless.set_pattern(kind, name, text)


def _read_workers(machine: MachineState, rows: Any) -> None:
    _add_all(machine.qless.workers, rows)


def _read_tracked(machine: MachineState, rows: Any) -> None:
    _add_all(machine.qless.tracked, rows)


def _add_all(scores: Scores, rows: Any) -> None:
    for score, name in _checked(Many(Row(_FLOAT, _NAME)), rows):
        if not scores.add(name, score):
            raise Damaged(f"qless has {name!r} twice")


def _read_queues(machine: MachineState, rows: Any) -> None:
    t, kernel = machine.qless, machine.queue
    for row in rows:
        name, number, known_at, paused, days = _checked(_QUEUE, row)
        if name in t.queues or number > kernel.tubes_total:
            raise Damaged(f"queue {name!r} of qless has the number {number}, or stands twice")
        queue = t.queue(name)
        queue.number, queue.known_at, queue.paused = number, known_at, paused
        for begin, retries, failed, failures, wait, run in days:
            day = queue.days[begin] = Day()
            day.retries, day.failed, day.failures = retries, failed, failures
            _set_times(day.wait, wait)
            _set_times(day.run, run)
        queue.size = sizes.of_queue(queue)
        t.bytes += queue.size
        if number:
            kernel.tubes_named.append((number & U32_MAX, PREFIX + name))
    t.touched_queues.clear()


def _set_times(times: Times, row: Any) -> None:
    times.count, times.mean, times.vk, bins = row
    times.bins = dict(bins)


def _read_throttles(machine: MachineState, rows: Any) -> None:
    t = machine.qless
    for row in rows:
        name, is_set, maximum, expires_us = _checked(_THROTTLE, row)
        if name in t.throttles:
            raise Damaged(f"throttle {name!r} stands twice")
        throttle = t.throttle(name)
        throttle.is_set, throttle.maximum, throttle.expires_us = is_set, maximum, expires_us
        if expires_us:
            t.throttle_ends.add(name, float(expires_us))
    t.touched_throttles.clear()


def _read_recurring(machine: MachineState, rows: Any) -> None:
    t = machine.qless
    for row in rows:
        row, usage = _with_usage(machine, _RECURRING_ROWS, row)
        jid, klass, data, name, priority, interval, retries, backlog, *later = row
        queue = t.queues.get(name)
        if jid in t.recurring or queue is None:
            raise Damaged(f"template {jid!r} stands twice, or in no queue")
        template = t.recurring[jid] = Recurring(jid)
        t.keep_recurring(template)
        template.klass, template.data, template.queue = klass, data, name
        template.priority, template.interval, template.retries = priority, interval, retries
        template.backlog = backlog
        template.count, template.next_at, template.tags, template.throttles = later
        queue.recurring.add(jid, template.next_at)
        t.count(template, usage)
        template.size = sizes.of_recurring(template)
        t.bytes += template.size
    t.touched_recurring.clear()


def _read_jobs(machine: MachineState, rows: Any) -> None:
    t = machine.qless
    for row in rows:
        row, usage = _with_usage(machine, _JOB_ROWS, row)
        job = _job(row)
        if not t.by_id.last() < job.id < machine.queue.next_id or job.jid in t.jobs:
            raise Damaged(f"job {job.id} of qless comes after {t.by_id.last()}, or stands twice")
        _check(t, job)
        t.add(job)
        t.count(job, usage)
        _place(t, job)
        given, needed, dependents, history = row[-len(records.LONG_FIELDS) :]
        _add_tags(t, job, given)
        _add_dependencies(t, job, needed)
        _add_dependents(t, job, dependents)
        _add_history(t, job, history)
        _weigh(t, job)
    t.touched.clear()
    t.touched_queues.clear()
    t.touched_throttles.clear()


def _with_usage(
    machine: MachineState, kinds: tuple[Row, Row], row: Any
) -> tuple[tuple[Any, ...], Usage | None]:
    """Return a record without its user, and the usage of that user; None if it has none.

    Args:
        machine: the machine with the usages.
        kinds: the kinds of the record without a user, and with one as the last of the short fields.
        row: the record, not yet validated.
    """
    plain, owned = kinds
    if type(row) is not tuple or len(row) != len(owned.kinds):
        found: tuple[Any, ...] = _checked(plain, row)
        return found, None
    _checked(owned, row)
    place = owned.kinds.index(_USER)
    return row[:place] + row[place + 1 :], machine.queue.quotas.in_image(row[place])


def _job(row: tuple[Any, ...]) -> QlessJob:
    """Return a job without its long fields."""
    job = QlessJob(row[0], row[1])
    (
        _,
        _,
        job.klass,
        job.data,
        job.state,
        job.queue,
        job.worker,
        job.priority,
        job.retries,
        job.remaining,
        job.expires,
        job.lease,
        job.time,
        job.place,
        job.score,
        job.grace,
        job.due,
        failure,
        job.failed_order,
        job.throttles,
        job.spawned_from,
        job.locked,
        job.pending,
        job.completed_in,
    ) = row[: -len(records.LONG_FIELDS)]
    job.failure = None if failure is None else q.FailureView(*failure)
    return job


def _check(t: Tables, job: QlessJob) -> None:
    """Check that the fields of a job, each of which is valid, are consistent."""
    has_failed = job.state == q.FAILED
    if (
        job.place not in _PLACES[job.state]
        or (job.place not in (NOWHERE, COMPLETED) and job.queue not in t.queues)
        or (job.lease is not None and job.state != q.RUNNING)
        or bool(job.failed_order) != has_failed
        or (has_failed and job.failure is None)
        or (job.completed_in != b"" and job.state != q.COMPLETE_)
        or job.failed_order > t.failures_total
        or not _are_throttles(t, job.locked)
        or not _are_throttles(t, [name for name, _ in job.pending])
    ):
        raise Damaged(f"job {job.id} of qless has the state {job.state}, and what does not fit")


def _are_throttles(t: Tables, names: Iterable[bytes]) -> bool:
    for name in names:  # noqa: SIM110 - compiled, several times as fast as all()
        if name not in t.throttles:
            return False
    return True


def _place(t: Tables, job: QlessJob) -> None:
    """Add a job to all indexes but that of tags."""
    place, job.place = job.place, NOWHERE
    score, job.score = job.score, 0.0
    t.place(job, place, score)
    job.score = score
    if job.lease is not None:
        t.hold(job, job.lease)
    if job.failure is not None and job.failed_order:
        failing.enter_group(t, job, job.failure.group)
    locked = job.locked
    pending = job.pending
    job.locked = ()
    job.pending = ()
    for name in locked:
        t.lock(t.throttle(name), job)
    for name, since in pending:
        t.pend(t.throttle(name), job, since)
    if not _has_throttles(job, locked, pending):
        raise Damaged(f"job {job.id} of qless has a throttle twice")


def _has_throttles(
    job: QlessJob, locked: tuple[bytes, ...], pending: tuple[tuple[bytes, float], ...]
) -> bool:
    """Whether a job has exactly these locks and places in lines.

    This is a function of its own because mypyc narrows the types of the fields in `_place` to those
    of the empty tuples that are assigned there.
    """
    return job.locked == locked and job.pending == pending


def _add_tags(t: Tables, job: QlessJob, rows: Any) -> None:
    for tag, given_at in rows:
        if tag in job.tags:
            raise Damaged(f"job {job.id} of qless has a tag twice")
        tags.give(t, job, given_at, tag)


def _add_dependencies(_t: Tables, job: QlessJob, rows: Any) -> None:
    for jid in rows:
        dependencies.add(job.dependencies, job, jid)


def _add_dependents(_t: Tables, job: QlessJob, rows: Any) -> None:
    for jid in rows:
        dependencies.add(job.dependents, job, jid)


def _add_history(_t: Tables, job: QlessJob, rows: Any) -> None:
    items = list(rows)  # compiled, `history_bytes` takes no tuple
    job.history.extend(items)
    size = history_bytes(items)
    job.history_texts += size
    job.texts += size


def _weigh(t: Tables, job: QlessJob) -> None:
    size = sizes.of_job(job)
    t.bytes += size - job.size
    job.size = size


def _piece(kind: Kind, add: Callable[[Tables, QlessJob, Any], None]) -> Callable[..., None]:
    """Return a reader of further items of a long field of the last job."""

    def read_piece(machine: MachineState, rows: Any) -> None:
        t = machine.qless
        job = t.by_id.get(t.by_id.last())
        if job is None:
            raise Damaged("qless has a piece of a job, and no job before it")
        add(t, job, _checked(kind, rows))
        _weigh(t, job)

    return read_piece


_READERS: Final[dict[str, Callable[[MachineState, Any], None]]] = {
    records.TOTALS: _read_totals,
    records.COUNT: _read_count,
    records.OPTIONS: _read_options,
    records.PATTERNS: _read_patterns,
    records.WORKERS: _read_workers,
    records.TRACKED: _read_tracked,
    records.QUEUES: _read_queues,
    records.THROTTLES: _read_throttles,
    records.RECURRING: _read_recurring,
    records.JOBS: _read_jobs,
    records.TAGS: _piece(_TAGS, _add_tags),
    records.DEPENDENCIES: _piece(_NAMES, _add_dependencies),
    records.DEPENDENTS: _piece(_NAMES, _add_dependents),
    records.HISTORY: _piece(_HISTORY, _add_history),
}
assert set(_READERS) == set(records.WORDS)
