"""The arguments of calls about queues, workers, tags, throttles and the configuration.

They are those of the dialects with a single script. The calls about jobs are in `calls_jobs`.
"""

from typing import Final

import beanpole.qless as q
from beanpole.protocol.qless import forms
from beanpole.protocol.qless.calls_jobs import NO_QUEUE, has_throttles
from beanpole.protocol.qless.requests import NO_ARGUMENTS, NO_STRING, Call, Reader

NO_THROTTLE: Final = b"Throttle(): no tid provided"


def refuse_none(r: Reader, start: int) -> None:
    """Refuse a call without items: the commands of Redis require at least one."""
    if len(r.args) <= start:
        r.refuse(NO_ARGUMENTS, by_redis=True)


def jobs(r: Reader) -> Call:
    """`jobs complete [offset [count]]` and `jobs STATE queue [offset [count]]`."""
    state = r.name(0, b'Jobs(): Arg "state" missing')
    if state == b"complete":
        return jobs_page(r, q.COMPLETE_, b"", 1)
    queue = r.name(1, b'Jobs(): Arg "queue" missing')
    states = dict(JOBS_STATES)
    if has_throttles(r):
        states[b"throttled"] = q.THROTTLED
    call = jobs_page(r, states.get(state, 0), queue, 2)
    if state not in states:
        r.refuse(b'Jobs(): Unknown type "%b"' % state)
    return call


JOBS_STATES: Final = {
    b"running": q.RUNNING,
    b"stalled": q.STALLED,
    b"scheduled": q.SCHEDULED,
    b"depends": q.DEPENDS,
    b"recurring": q.RECURRING,
}


def jobs_page(r: Reader, state: int, queue: bytes, at: int) -> Call:
    """Read the offset and the count of `jobs`, from argument `at` on."""
    offset = r.whole(r.at(at), 0, b'Jobs(): Arg "offset" not a number: ')
    count = r.whole(r.at(at + 1), 25, b'Jobs(): Arg "count" not a number: ')
    return r.call(q.JOBS, (state, queue, offset, count), forms.JIDS)


def failed(r: Reader) -> Call:
    """`failed [group [start [limit]]]`."""
    start = r.whole(r.at(1), 0, b'Failed(): Arg "start" is not a number: ')
    limit = r.whole(r.at(2), 25, b'Failed(): Arg "limit" is not a number: ')
    group = r.name_if(0)
    if group is None:
        return r.call(q.FAILED_GROUPS, (), forms.GROUPS)
    return r.call(q.FAILED_JOBS, (group, start, limit), forms.COUNTED)


def unfail(r: Reader) -> Call:
    """`unfail queue group [count]`."""
    queue = r.name(0, NO_QUEUE)
    group = r.name(1, b'Unfail(): Arg "group" missing')
    count = r.whole(r.at(2), 25, b'Unfail(): Arg "count" not a number: ')
    if r.script.flavour == q.DOTTED and count <= 0:
        r.refuse(b'Unfail(): Arg "count" must be greater than zero')
    return r.call(q.UNFAIL, (queue, group, count), forms.INTEGER)


def queues(r: Reader) -> Call:
    """`queues [queue]`."""
    queue = r.name_if(0)
    return r.call(q.QUEUE_COUNTS, (queue,), forms.QUEUES if queue is None else forms.QUEUE)


def length(r: Reader) -> Call:
    """`length queue`."""
    return r.call(q.LENGTH, (r.name(0, NO_QUEUE),), forms.INTEGER)


def stats(r: Reader) -> Call:
    """`stats queue date`."""
    queue = r.name(0, NO_QUEUE)
    date = r.number(r.at(1), None, b'Stats(): Arg "date" missing or not a number: ')
    return r.call(q.STATS, (queue, date), forms.STATS)


def _of_queues(r: Reader, code: int) -> Call:
    refuse_none(r, 0)
    return r.call(code, (r.names(0, q.CALL_JOBS_MAX, b"queues"),), forms.NOTHING)


def pause(r: Reader) -> Call:
    """`pause queue...`."""
    return _of_queues(r, q.PAUSE)


def unpause(r: Reader) -> Call:
    """`unpause queue...`."""
    return _of_queues(r, q.UNPAUSE)


def forget_queues(r: Reader) -> Call:
    """`queue.forget queue...`."""
    return _of_queues(r, q.FORGET_QUEUES)


def workers(r: Reader) -> Call:
    """`workers [worker]`."""
    worker = r.name_if(0)
    if worker is None:
        return r.call(q.WORKER_COUNTS, (), forms.WORKERS)
    return r.call(q.WORKER_JOBS, (worker,), forms.WORKER)


def forget_workers(r: Reader) -> Call:
    """`worker.deregister worker...`."""
    refuse_none(r, 0)
    names = r.names(0, q.CALL_JOBS_MAX, b"workers")
    return r.call(q.FORGET_WORKERS, (names,), forms.NOTHING)


def tag(r: Reader) -> Call:
    """`tag add|remove jid tag...`, `tag get tag [offset [count]]`, `tag top [offset [count]]`."""
    command = r.name(0, b'Tag(): Arg "command" must be "add", "remove", "get" or "top"')
    if command in (b"add", b"remove"):
        jid = r.name(1, b'Tag(): Arg "jid" missing')
        tags = r.names(2, q.TAGS_MAX, b"tags")
        if command == b"remove":
            return r.call(q.TAG_REMOVE, (jid, tags), forms.NAMES)
        # The script of qless-py 0.11.4 encodes the tags twice.
        twice = r.script.flavour == q.UNIFIED
        return r.call(q.TAG_ADD, (jid, tags), forms.NAMES_TWICE if twice else forms.NAMES)
    if command == b"get":
        name = r.name(1, b'Tag(): Arg "tag" missing')
        offset, count = tag_page(r, 2)
        return r.call(q.TAGGED, (name, offset, count), forms.COUNTED)
    if command != b"top":
        r.refuse(b'Tag(): First argument must be "add", "remove" or "get"')
    return r.call(q.TOP_TAGS, tag_page(r, 1), forms.NAMES)


def tag_page(r: Reader, at: int) -> tuple[int, int]:
    """Read the offset and the count of `tag`, from argument `at` on."""
    offset = r.whole(r.at(at), 0, b'Tag(): Arg "offset" not a number: ')
    return offset, r.whole(r.at(at + 1), 25, b'Tag(): Arg "count" not a number: ')


def config_get(r: Reader) -> Call:
    """`config.get [option]`."""
    option = r.name_if(0)
    if option is None:
        return r.call(q.CONFIG_ALL, (), forms.OPTIONS)
    return r.call(q.CONFIG_GET, (option,), forms.OPTION)


def config_set(r: Reader) -> Call:
    """`config.set option value`."""
    option = r.name(0, b'config.set(): Arg "option" missing')
    value = r.name(1, b'config.set(): Arg "value" missing')
    return r.call(q.CONFIG_SET, (option, value), forms.NOTHING)


def config_unset(r: Reader) -> Call:
    """`config.unset option`."""
    option = r.name(0, b'config.unset(): Arg "option" missing')
    return r.call(q.CONFIG_UNSET, (option,), forms.NOTHING)


def _throttle(r: Reader) -> bytes:
    return r.name(0, NO_THROTTLE)


def _queue_throttle(r: Reader) -> bytes:
    queue = r.name(0, b"attempt to concatenate local 'queue' (a nil value)")
    return r.a_name(q.QUEUE_THROTTLE + queue, b"")


def _set_throttle(r: Reader, throttle: bytes) -> Call:
    if r.at(1) is None:
        r.refuse(NO_STRING, by_redis=True)
    maximum = r.whole(r.at(1), 0, b'Throttle(): Arg "maximum" not a number: ')
    seconds = r.whole(r.at(2), 0, b'Throttle(): Arg "expiration" not a number: ')
    return r.call(q.THROTTLE_SET, (throttle, maximum, seconds), forms.NOTHING)


def throttle_set(r: Reader) -> Call:
    """`throttle.set throttle maximum [seconds]`."""
    return _set_throttle(r, _throttle(r))


def queue_throttle_set(r: Reader) -> Call:
    """`queue.throttle.set queue maximum`."""
    throttle = _queue_throttle(r)
    del r.args[2:]
    return _set_throttle(r, throttle)


def throttle_get(r: Reader) -> Call:
    """`throttle.get throttle`."""
    return r.call(q.THROTTLE_GET, (_throttle(r),), forms.THROTTLE)


def queue_throttle_get(r: Reader) -> Call:
    """`queue.throttle.get queue`."""
    return r.call(q.THROTTLE_GET, (_queue_throttle(r),), forms.THROTTLE)


def throttle_ttl(r: Reader) -> Call:
    """`throttle.ttl throttle`."""
    return r.call(q.THROTTLE_GET, (_throttle(r),), forms.THROTTLE_TTL)


def throttle_delete(r: Reader) -> Call:
    """`throttle.delete throttle`."""
    return r.call(q.THROTTLE_DELETE, (_throttle(r),), forms.NOTHING)


def throttle_locks(r: Reader) -> Call:
    """`throttle.locks throttle`."""
    return r.call(q.THROTTLE_LOCKS, (_throttle(r),), forms.JIDS)


def throttle_pending(r: Reader) -> Call:
    """`throttle.pending throttle`."""
    return r.call(q.THROTTLE_PENDING, (_throttle(r),), forms.JIDS)


def throttle_release(r: Reader) -> Call:
    """`throttle.release throttle jid...`."""
    throttle = _throttle(r)
    jids = r.names(1, q.CALL_JOBS_MAX, b"jobs")
    return r.call(q.THROTTLE_RELEASE, (throttle, jids), forms.NOTHING)
