"""The arguments and errors of the seed form, which has one script for each call.

The queue of some calls is a key. `now` is one of the arguments; calls that need no time lack it.
"""

from typing import Final

import beanpole.qless as q
from beanpole.protocol.qless import calls_jobs, calls_queues, forms
from beanpole.protocol.qless.calls_recurring import changed
from beanpole.protocol.qless.calls_unified import Calls
from beanpole.protocol.qless.numbers import to_number
from beanpole.protocol.qless.requests import Call, Reader


def read(r: Reader) -> Call:
    """Read the arguments of the call that the script implements."""
    return _CALLS[r.script.call](r)


def _no_keys(r: Reader, text: bytes) -> None:
    if r.keys:
        r.refuse(text)


def _key(r: Reader, name: bytes) -> bytes:
    """Return the queue, which is the only key."""
    count = len(r.keys)
    if count != 1:
        got = b"Got %d, expected" % count if count else b"Expected"
        r.refuse(b"%b(): %b 1 KEYS argument" % (name, got))
        return b""
    return r.a_name(r.keys[0], b"")


def _now(r: Reader, at: int, wrong: bytes, is_shown: bool = True) -> None:
    """Read the time from argument `at`; `is_shown`: the error ends with the value."""
    value = r.at(at)
    number = None if value is None else to_number(value)
    if number is None:
        shown = b"nil" if value is None else value[: q.NAME_MAX_BYTES]
        r.refuse(wrong + shown if is_shown else wrong)
    else:
        r.now = number


def _both(r: Reader, delay: float, depends: tuple[bytes, ...], name: bytes) -> None:
    if delay > 0 and depends:
        r.refuse(name + b'(): "delay" and "depends" are not allowed to be used together')


# --- jobs ----------------------------------------------------------------------------------------


def put(r: Reader) -> Call:
    """`queue | jid klass data now delay [options]`."""
    queue = _key(r, b"Put")
    jid = r.name(0, b'Put(): Arg "jid" missing')
    klass = r.name(1, b'Put(): Arg "klass" missing')
    data = r.data(r.at(2), b'Put(): Arg "data" missing or not JSON: ', again=True)
    _now(r, 3, b'Put(): Arg "now" missing or not a number: ')
    delay = r.number(r.at(4), None, b'Put(): Arg "delay" not a number: ')
    options = r.options(5)
    retries, tags, priority = calls_jobs.job_options(r, options)
    depends = calls_jobs.dependencies(r, options, b"Put")
    _both(r, delay, depends, b"Put")
    args = (queue, jid, klass, data, delay, None, priority, tags, retries, depends, None, False)
    return r.call(q.PUT, args, forms.BULK)


def pop(r: Reader) -> Call:
    """`queue | worker count now`."""
    queue = _key(r, b"Pop")
    worker = r.name(0, b'Pop(): Arg "worker" missing')
    count = r.whole(r.at(1), None, b'Pop(): Arg "count" missing or not a number: ')
    _now(r, 2, b'Pop(): Arg "now" missing or not a number: ')
    return r.call(q.POP, (queue, worker, count), forms.JOB_LIST)


def peek(r: Reader) -> Call:
    """`queue | count now`."""
    queue = _key(r, b"Peek")
    count = r.whole(r.at(0), None, b'Peek(): Arg "count" missing or not a number: ')
    _now(r, 1, b'Peek(): Arg "now" missing or not a number: ')
    return r.call(q.PEEK, (queue, 0, count), forms.JOB_LIST)


def complete(r: Reader) -> Call:
    """`jid worker queue now data [next queue [delay seconds | depends jids]]`."""
    _no_keys(r, b"Complete(): No Keys should be provided")
    jid = r.name(0, b'Complete(): Arg "jid" missing.')
    worker = r.name(1, b'Complete(): Arg "worker" missing.')
    queue = r.name(2, b'Complete(): Arg "queue" missing.')
    _now(r, 3, b'Complete(): Arg "now" not a number or missing: ')
    data = r.data(r.at(4), b'Complete(): Arg "data" missing or not JSON: ', again=True)
    options = r.options(5)
    delay = calls_jobs.delay_of_next(r, options)
    depends = calls_jobs.dependencies(r, options, b"Complete")
    _both(r, delay, depends, b"Complete")
    following = calls_jobs.next_queue(r, options)
    args = (jid, worker, queue, data, following, delay, depends)
    return r.call(q.COMPLETE, args, forms.STATE)


def fail(r: Reader) -> Call:
    """`jid worker group message now [data]`."""
    _no_keys(r, b"Fail(): No Keys should be provided")
    jid = r.name(0, b'Fail(): Arg "jid" missing')
    worker = r.name(1, b'Fail(): Arg "worker" missing')
    group = r.name(2, b'Fail(): Arg "group" missing')
    message = r.text(3, b'Fail(): Arg "message" missing')
    _now(r, 4, b'Fail(): Arg "now" missing or malformed: ')
    return r.call(q.FAIL, (jid, worker, group, message, r.data_if(5)), forms.BULK)


def retry(r: Reader) -> Call:
    """`jid queue worker now [delay]`."""
    _no_keys(r, b"Retry(): Got %d, expected 0" % len(r.keys))
    jid = r.name(0, b'Retry(): Arg "jid" missing')
    queue = r.name(1, b'Retry(): Arg "queue" missing')
    worker = r.name(2, b'Retry(): Arg "worker" missing')
    _now(r, 3, b'Retry(): Arg "now" missing', is_shown=False)
    delay = r.number(r.at(4), 0.0, b'Retry(): Arg "delay" not a number: ')
    return r.call(q.RETRY, (jid, queue, worker, delay, None, None), forms.INTEGER)


def heartbeat(r: Reader) -> Call:
    """`jid worker now [data]`."""
    _no_keys(r, b"Heartbeat(): No Keys should be provided")
    jid = r.name(0, b'Heartbeat(): Arg "jid" missing')
    worker = r.name(1, b'Heartbeat(): Arg "worker" missing')
    _now(r, 2, b'Heartbeat(): Arg "now" missing', is_shown=False)
    return r.call(q.HEARTBEAT, (jid, worker, r.data_if(3)), forms.INTEGER)


def cancel(r: Reader) -> Call:
    """`jid`, in some versions `jid...`: only these versions answer with the jids."""
    _no_keys(r, b"Cancel(): No Keys should be provided")
    r.name(0, b'Cancel(): Arg "jid" missing.')
    if not r.script.cancels_many:
        del r.args[1:]
    jids = r.names(0, q.CALL_JOBS_MAX, b"jobs")
    return r.call(q.CANCEL, (jids,), forms.ASKED if r.script.cancels_many else forms.NOTHING)


def get(r: Reader) -> Call:
    """`jid`."""
    _no_keys(r, b"Get(): No Keys should be provided")
    return r.call(q.GET, (r.name(0, b'Get(): Arg "jid" missing'),), forms.JOB)


def priority(r: Reader) -> Call:
    """`jid number`."""
    _no_keys(r, b"Priority(): Got %d, expected 0" % len(r.keys))
    jid = r.name(0, b'Priority(): Arg "jid" missing')
    wrong = b'Priority(): Arg "priority" missing or not a number: '
    return r.call(q.PRIORITY, (jid, r.number(r.at(1), None, wrong)), forms.INTEGER)


def depends(r: Reader) -> Call:
    """`jid on jid...`, `jid off all` and `jid off jid...`."""
    _no_keys(r, b"Depends(): No Keys should be provided")
    jid = r.name(0, b'Depends(): Arg "jid" missing.')
    command = r.name(1, b"Depends(): Arg 2 missing")
    return calls_jobs.on_or_off(r, jid, command, b'Depends(): Second arg must be "on" or "off"')


def track(r: Reader) -> Call:
    """No argument, or `track jid now`, or `untrack jid now`."""
    _no_keys(r, b"Track(): No keys expected. Got %d" % len(r.keys))
    command = r.at(0)
    if command is None:
        return r.call(q.TRACKED, (), forms.TRACKED)
    jid = r.name(1, b'Track(): Arg "jid" missing')
    _now(r, 2, b'Track(): Arg "now" missing or not a number: ')
    return calls_jobs.track_or_untrack(r, jid, command, forms.INTEGER)


# --- queues, workers, tags, configuration --------------------------------------------------------


def jobs(r: Reader) -> Call:
    """`complete [offset [count]]` and `STATE now queue [offset [count]]`."""
    _no_keys(r, b"Jobs(): Got %d expected 0 KEYS arguments" % len(r.keys))
    state = r.name(0, b'Jobs(): Arg "type" missing')
    if state == b"complete":
        return calls_queues.jobs_page(r, q.COMPLETE_, b"", 1)
    _now(r, 1, b'Jobs(): Arg "now" missing or not a number: ')
    queue = r.name(2, b'Jobs(): Arg "queue" missing')
    code = calls_queues.JOBS_STATES.get(state, 0)
    call = calls_queues.jobs_page(r, code, queue, 3)
    if not code:
        r.refuse(b'Jobs(): Unknown type "%b"' % state)
    return call


def failed(r: Reader) -> Call:
    """`[group [start [limit]]]`."""
    _no_keys(r, b"Failed(): No Keys should be provided")
    return calls_queues.failed(r)


def unfail(r: Reader) -> Call:
    """`now group queue [count]`."""
    _no_keys(r, b"Unfail(): Expected 0 KEYS arguments")
    _now(r, 0, b'Unfail(): Arg "now" missing', is_shown=False)
    group = r.name(1, b'Unfail(): Arg "group" missing')
    queue = r.name(2, b'Unfail(): Arg "queue" missing')
    count = r.whole(r.at(3), 25, b'Unfail(): Arg "count" not a number: ')
    return r.call(q.UNFAIL, (queue, group, count), forms.INTEGER)


def queues(r: Reader) -> Call:
    """`now [queue]`."""
    _no_keys(r, b"Queues(): Got %d expected 0 KEYS arguments" % len(r.keys))
    _now(r, 0, b'Queues(): Arg "now" missing or not a number: ')
    queue = r.name_if(1)
    return r.call(q.QUEUE_COUNTS, (queue,), forms.QUEUES if queue is None else forms.QUEUE)


def workers(r: Reader) -> Call:
    """`now [worker]`."""
    _no_keys(r, b"Workers(): No key arguments expected")
    _now(r, 0, b'Workers(): Arg "now" missing or not a number: ')
    worker = r.name_if(1)
    if worker is None:
        return r.call(q.WORKER_COUNTS, (), forms.WORKERS)
    return r.call(q.WORKER_JOBS, (worker,), forms.WORKER)


def stats(r: Reader) -> Call:
    """`queue date`."""
    _no_keys(r, b"Stats(): No Keys should be provided")
    queue = r.name(0, b'Stats(): Arg "queue" missing')
    date = r.number(r.at(1), None, b'Stats(): Arg "time" missing or not a number: ')
    return r.call(q.STATS, (queue, date), forms.STATS)


def tag(r: Reader) -> Call:
    """`add|remove jid now tag...`, `get tag [offset [count]]` and `top [offset [count]]`."""
    _no_keys(r, b"Tag(): Got %d, expected 0" % len(r.keys))
    command = r.name(0, b'Tag(): Missing first arg "add", "remove" or "get"')
    if command in (b"add", b"remove"):
        jid = r.name(1, b'Tag(): Arg "jid" missing')
        _now(r, 2, b'Tag(): Arg "now" is not a number', is_shown=False)
        tags = r.names(3, q.TAGS_MAX, b"tags")
        code = q.TAG_ADD if command == b"add" else q.TAG_REMOVE
        return r.call(code, (jid, tags), forms.NAMES)
    return calls_queues.tag(r)


def config(r: Reader) -> Call:
    """`get [option]`, `set option value` and `unset option`."""
    _no_keys(r, b"Config(): No keys should be provided")
    command = r.name(0, b"attempt to concatenate local 'command' (a nil value)")
    missing = b'Config(): Arg "option" missing'
    if command == b"get":
        option = r.name_if(1)
        if option is None:
            return r.call(q.CONFIG_ALL, (), forms.OPTIONS)
        return r.call(q.CONFIG_GET, (option,), forms.OPTION)
    if command == b"set":
        option = r.name(1, missing)
        value = r.name(2, b'Config(): Arg "value" missing')
        return r.call(q.CONFIG_SET, (option, value), forms.NOTHING)
    if command != b"unset":
        r.refuse(b"Config(): Unrecognized command " + command)
    return r.call(q.CONFIG_UNSET, (r.name(1, missing),), forms.NOTHING)


def get_config(r: Reader) -> Call:
    """`[option]`: the earlier form of `config get`."""
    r.args.insert(0, b"get")
    return config(r)


def set_config(r: Reader) -> Call:
    """`option [value]`: the earlier form of `config set`, and of `unset` without a value."""
    r.args.insert(0, b"unset" if len(r.args) < 2 else b"set")
    return config(r)


# --- templates -----------------------------------------------------------------------------------


def recur(r: Reader) -> Call:
    """`on ...`, `off jid`, `get jid`, `update jid ...`, `tag jid tag...`, `untag jid tag...`."""
    _no_keys(r, b"Recur(): Got %d, expected 0 KEYS arguments" % len(r.keys))
    command = r.name(0, b"Recur(): Missing first argument")
    if command == b"on":
        return _recur_on(r)
    if command not in (b"get", b"update", b"tag", b"untag", b"off"):
        r.refuse(
            b"Recur(): First argument must be one of [on, off, get, update, tag, untag]. Got "
            + command
        )
    jid = r.name(1, b'Recur(): Arg "jid" missing')
    if command == b"get":
        return r.call(q.RECUR_GET, (jid,), forms.RECURRING)
    if command == b"update":
        pairs = tuple([(key, changed(r, key, value, again=True)) for key, value in _pairs(r, 2)])
        return r.call(q.RECUR_UPDATE, (jid, pairs), forms.INTEGER)
    if command in (b"tag", b"untag"):
        code = q.RECUR_TAG if command == b"tag" else q.RECUR_UNTAG
        return r.call(code, (jid, r.names(2, q.TAGS_MAX, b"tags")), forms.NAMES)
    return r.call(q.UNRECUR, (jid,), forms.INTEGER)


def _pairs(r: Reader, start: int) -> list[tuple[bytes, bytes]]:
    return [(r.args[at], r.args[at + 1]) for at in range(start, len(r.args) - 1, 2)]


def _recur_on(r: Reader) -> Call:
    queue = r.name(1, b'Recur(): Arg "queue" missing')
    jid = r.name(2, b'Recur(): Arg "jid" missing')
    klass = r.name(3, b'Recur(): Arg "klass" missing')
    data = r.data(r.at(4), b'Recur(): Arg "data" missing or not JSON: ', again=True)
    _now(r, 5, b'Recur(): Arg "now" missing or not a number: ')
    spec = r.name(6, b'Recur(): Arg "schedule type" missing')
    if spec != b"interval":
        r.refuse(b'Recur(): schedule type "%b" unknown' % spec)
    wrong = b'Recur(): Arg "%b" must be a number: '
    interval = r.number(r.at(7), None, wrong % b"interval")
    offset = r.number(r.at(8), None, wrong % b"offset")
    if interval <= 0:
        r.refuse(b'Recur(): Arg "interval" must be greater than or equal to 0')
    options = r.options(9)
    tags = r.strings(
        options.get(b"tags"),
        b'Recur(): Arg "tags" must be JSON-encoded array of string. Got: ',
        q.TAGS_MAX,
        b"tags",
    )
    wrong = b'Recur(): Arg "%b" must be a number. Got: '
    order = r.number(options.get(b"priority"), 0.0, wrong % b"priority")
    retries = r.whole(options.get(b"retries"), 0, wrong % b"retries")
    args = (queue, jid, klass, data, interval, offset, order, tags, retries, 0.0, None)
    return r.call(q.RECUR, args, forms.BULK)


_CALLS: Final[Calls] = {
    b"cancel": cancel,
    b"complete": complete,
    b"config": config,
    b"depends": depends,
    b"deregisterworkers": calls_queues.forget_workers,
    b"fail": fail,
    b"failed": failed,
    b"get": get,
    b"getconfig": get_config,
    b"heartbeat": heartbeat,
    b"jobs": jobs,
    b"pause": calls_queues.pause,
    b"peek": peek,
    b"pop": pop,
    b"priority": priority,
    b"put": put,
    b"queues": queues,
    b"recur": recur,
    b"retry": retry,
    b"setconfig": set_config,
    b"stats": stats,
    b"tag": tag,
    b"track": track,
    b"unfail": unfail,
    b"unpause": calls_queues.unpause,
    b"workers": workers,
}
