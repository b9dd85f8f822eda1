"""Recurring jobs: templates, and the jobs that a pop or a peek creates from them."""

from math import ceil, floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.jobs.quotas import Usage
from beanpole.core.qless import history, limits, queues, ranges, sizes, tags
from beanpole.core.qless.job import WORK, QlessJob, Recurring
from beanpole.core.qless.tables import QlessQueue, Tables

# The jid of a job is that of its template with a number appended, and must be legal itself.
JID_MAX_BYTES: Final = q.NAME_MAX_BYTES - len(b"-%d" % q.NUMBER_MAX)
# Tags that one call gives to the jobs that it creates; later calls create further jobs. An entry
# may have such a call of each node: 20 ms each for nodes from the sources.
SPAWNED_TAGS_MAX: Final = 3 * q.TAGS_MAX
# The flavours in which each queue has a throttle.
THROTTLED: Final = (q.THROTTLES, q.DOTTED)


def recur(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """RECUR: create or replace a template; the numbering of its jobs continues."""
    return make(t, flavour, now, args, t.usage)


def make(
    t: Tables, flavour: int, now: float, args: tuple[Any, ...], usage: Usage | None
) -> q.Result:
    """Create or replace a template that counts for a user; for none if `usage` is None."""
    name, jid, klass, data, interval, offset, priority, given, retries, backlog, throttles = args
    template = t.recurring.get(jid)
    if template is None and len(t.recurring) >= q.RECURRING_MAX:
        return limits.RECURRING
    if len(jid) > JID_MAX_BYTES:
        return limits.NAME
    refused = _refusal(t, name, given, throttles or ())
    if refused is not None:
        return refused
    if not limits.fits_quota(usage, template, data):
        return q.QUOTA, ()
    names = dict.fromkeys(throttles or ())
    if template is None:
        template = t.recurring[jid] = Recurring(jid)
        t.keep_recurring(template)
    else:
        t.keep_recurring(template)
        t.queue(template.queue).recurring.remove(jid)
        names.pop(q.QUEUE_THROTTLE + template.queue, None)
    if flavour in THROTTLED:
        names[q.QUEUE_THROTTLE + name] = None
    template.klass = klass
    template.data = data
    if template.usage is None:
        t.count(template, usage)
    template.queue = name
    template.priority = priority
    template.interval = interval
    template.retries = retries
    template.backlog = backlog
    template.tags = tuple(dict.fromkeys(given))
    template.throttles = tuple(names)
    queues.know(t, now, name)
    schedule(t.queue(name), template, now + offset)
    return q.OK, jid


def unrecur(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """UNRECUR: remove a template; a missing one is no error."""
    template = t.recurring.get(args[0])
    if template is not None:
        t.keep_recurring(template)
        t.queue(template.queue).recurring.remove(template.jid)
        del t.recurring[template.jid]
    return q.OK, True


def recur_update(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """RECUR_UPDATE: change fields of a template, one after another."""
    jid, pairs = args
    template = t.recurring.get(jid)
    if template is None:
        return q.NO_RECURRING, (jid,)
    if len(pairs) > q.CHANGES_MAX:
        return limits.CHANGES
    new: dict[bytes, None] = {}
    for key, value in pairs:
        if key == b"queue" and value not in t.queues:
            new[value] = None
        elif key == b"throttles" and len(value) > q.THROTTLES_MAX:
            return limits.THROTTLES
        elif key == b"data" and not limits.fits_quota(t.usage, template, value):
            return q.QUOTA, ()
    if len(t.queues) + len(new) > q.QUEUES_MAX:
        return limits.QUEUES
    t.keep_recurring(template)
    for key, value in pairs:
        _update(t, flavour, now, template, key, value)
    return q.OK, True


def recur_tag(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """RECUR_TAG: add tags to the jobs that will be created."""
    jid, given = args
    template = t.recurring.get(jid)
    if template is None:
        return q.NO_RECURRING, (jid,)
    names = tuple(dict.fromkeys(template.tags + given))
    refused = _refusal_of_tags(names)
    if refused is not None:
        return refused
    t.keep_recurring(template)
    template.tags = names
    return q.OK, template.tags


def recur_untag(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """RECUR_UNTAG: remove tags from the jobs that will be created."""
    jid, taken = args
    template = t.recurring.get(jid)
    if template is None:
        return q.NO_RECURRING, (jid,)
    t.keep_recurring(template)
    gone = dict.fromkeys(taken)
    template.tags = tuple([tag for tag in template.tags if tag not in gone])
    return q.OK, template.tags


def recur_get(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """RECUR_GET: return a template."""
    template = t.recurring.get(args[0])
    if template is None:
        return q.OK, None
    view = q.RecurringView(
        template.jid,
        template.klass,
        template.data,
        template.queue,
        template.priority,
        template.interval,
        template.retries,
        template.count,
        template.tags,
        template.backlog,
        template.throttles,
    )
    return q.OK, view


def recur_score(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """RECUR_SCORE: return the time of the next job of a template of a queue."""
    name, jid = args
    queue = t.queues.get(name)
    return q.OK, None if queue is None else queue.recurring.score(jid)


def spawn(t: Tables, queue: QlessQueue, now: float, count: int) -> int:
    """Create at most `count` jobs that are due; returns their number.

    The time of each job is its due time, however long ago that was. A template has up to a mebibyte
    of data, so that the jobs of one call may be too large for the memory long before they are too
    many: they are made when there is room.
    """
    rest = min(count, t.room, q.CALL_JOBS_MAX)
    tags_left, bytes_left = SPAWNED_TAGS_MAX, t.room_bytes
    made = 0
    if rest <= 0 or not queue.recurring or not t.is_timed(queue.name):
        return 0
    # Templates whose users have no room left are skipped in favour of the ones after them.
    most = q.CALL_JOBS_MAX if t.kernel.quotas.counted else rest
    for jid in ranges.between(queue.recurring, 0.0, now, 0, most) or ():
        if rest <= 0:
            break
        template = t.recurring[jid]
        at = _first_time(template, now)
        size = sizes.JOB_BYTES + template.size  # about that of each job, and not much less
        if at > now or tags_left < len(template.tags) or bytes_left < size:
            continue
        t.keep_recurring(template)
        usage = template.usage if template.usage is not None and template.usage.is_limited else None
        while at <= now and rest > 0 and tags_left >= len(template.tags) and bytes_left >= size:
            if usage is not None and not usage.admits(len(template.data)):
                at = _first_later(template, at, now)
                break
            rest -= 1
            template.count += 1
            child = b"%b-%d" % (jid, template.count)
            if child in t.jobs:  # a client has put a job with this jid: try the next number
                continue
            t.count(_make(t, template, child, now, at), usage)
            made += 1
            tags_left -= len(template.tags)
            bytes_left -= size
            at += template.interval
        schedule(queue, template, at)
    return made


def _first_time(template: Recurring, now: float) -> float:
    """Return the time of the next job; due jobs beyond the backlog are skipped."""
    at = float(floor(template.next_at))
    backlog = template.backlog
    if backlog != 0 and template.interval > 0:
        due = (now - at) / template.interval
        if due > backlog:
            left_out = due - backlog
            if left_out > q.NUMBER_MAX:
                return now
            at += ceil(left_out) * template.interval
    return at


def _first_later(template: Recurring, at: float, now: float) -> float:
    """Return the time of the first job after now.

    Due jobs are skipped, like those beyond a backlog: each pop would look at templates that stay
    due before the ones after them.
    """
    interval = template.interval
    # An image may contain an interval of 0, and a tiny interval would result in infinity.
    if interval <= 0 or (now - at) / interval >= q.NUMBER_MAX:
        return now + interval
    return at + (floor((now - at) / interval) + 1) * interval


def _make(t: Tables, template: Recurring, jid: bytes, now: float, at: float) -> QlessJob:
    job = QlessJob(t.new_id(), jid)
    job.klass = template.klass
    job.data = template.data
    job.queue = template.queue
    job.priority = template.priority
    job.state = q.WAITING
    job.retries = job.remaining = template.retries
    job.time = at
    job.throttles = template.throttles
    job.spawned_from = template.jid
    t.add(job)
    tags.replace(t, job, now, template.tags)
    history.append(t, job, at, q.HAS_PUT, template.queue)
    t.place(job, WORK, queues.work_score(at, template.priority))
    return job


def _update(
    t: Tables, flavour: int, now: float, template: Recurring, key: bytes, value: Any
) -> None:
    if key == b"priority":
        template.priority = value
    elif key == b"interval":
        at = template.next_at + (value - template.interval)
        template.interval = value
        schedule(t.queue(template.queue), template, at)
    elif key == b"retries":
        template.retries = value
    elif key == b"backlog":
        template.backlog = value
    elif key == b"data":
        template.data = value
        if template.usage is None:
            t.count(template, t.usage)
    elif key == b"klass":
        template.klass = value
    elif key == b"queue":
        _move(t, flavour, now, template, value)
    elif key == b"throttles":
        template.throttles = tuple(dict.fromkeys(value))


def _move(t: Tables, flavour: int, now: float, template: Recurring, name: bytes) -> None:
    t.queue(template.queue).recurring.remove(template.jid)
    if flavour in THROTTLED:
        names = dict.fromkeys(template.throttles)
        names.pop(q.QUEUE_THROTTLE + template.queue, None)
        names[q.QUEUE_THROTTLE + name] = None
        template.throttles = tuple(names)
    template.queue = name
    queues.know(t, now, name)
    schedule(t.queue(name), template, template.next_at)


def schedule(queue: QlessQueue, template: Recurring, at: float) -> None:
    """Set the time of the next job of a template of a queue."""
    template.next_at = at
    queue.recurring.add(template.jid, at)


def _refusal(
    t: Tables, name: bytes, given: tuple[bytes, ...], throttles: tuple[bytes, ...]
) -> q.Result | None:
    refused = _refusal_of_tags(given)
    if refused is not None:
        return refused
    if len(throttles) > q.THROTTLES_MAX:
        return limits.THROTTLES
    return None if queues.has_room(t, name) else limits.QUEUES


def _refusal_of_tags(tags: tuple[bytes, ...]) -> q.Result | None:
    if len(tags) > q.TAGS_MAX:
        return limits.TAGS
    size = sum([len(tag) for tag in tags])
    return limits.RECURRING_TAGS if size > q.RECURRING_TAGS_MAX_BYTES else None
