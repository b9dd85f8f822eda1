"""The arguments and errors of calls about jobs, in the dialects with a single script.

The functions read the arguments after the call's name and its time. The dialects differ in few
places, each of which checks the flavour.
"""

from typing import Final

import beanpole.qless as q
from beanpole.protocol.qless import forms, views
from beanpole.protocol.qless.numbers import to_number
from beanpole.protocol.qless.requests import A_TABLE, Call, Reader

NO_JOB: Final = b"Job(): no jid provided"
NO_QUEUE: Final = b"Queue(): no queue name provided"
ODD: Final = b"Odd number of additional args: " + A_TABLE


def has_throttles(r: Reader) -> bool:
    """Whether jobs of this dialect have throttles."""
    return r.script.flavour in (q.THROTTLES, q.DOTTED)


def throttles(r: Reader, value: bytes | None, wrong: bytes) -> tuple[bytes, ...] | None:
    """Return the throttles among the options of a job; None in a dialect without throttles."""
    if not has_throttles(r):
        return None
    return r.strings(value, wrong, q.THROTTLES_MAX, b"throttles")


# --- the same in the seed form --------------------------------------------------------------------


def on_or_off(r: Reader, jid: bytes, command: bytes, wrong: bytes) -> Call:
    """Return the call of `depends`, whose other jobs begin at argument 2."""
    others = r.names(2, q.DEPENDENCIES_MAX, b"dependencies")
    if command == b"on":
        return r.call(q.DEPENDS_ON, (jid, others), forms.INTEGER)
    if command != b"off":
        r.refuse(wrong)
    some = None if others[:1] == (b"all",) else others
    return r.call(q.DEPENDS_OFF, (jid, some), forms.INTEGER)


def track_or_untrack(r: Reader, jid: bytes, command: bytes, answer: int) -> Call:
    """Return the call of `track` with a job."""
    lowered = command.lower()
    if lowered not in (b"track", b"untrack"):
        r.refuse(b'Track(): Unknown action "%b"' % command[: q.NAME_MAX_BYTES])
    code = q.UNTRACK if lowered == b"untrack" else q.TRACK
    return r.call(code, (jid,), answer)


def job_options(
    r: Reader, options: dict[bytes, bytes]
) -> tuple[int | None, tuple[bytes, ...] | None, float | None]:
    """Return the retries, tags and priority of a `put`; None for each that is missing."""
    retries = tags = priority = None
    if b"retries" in options:
        retries = r.whole(options[b"retries"], None, b'Put(): Arg "retries" not a number: ')
    if b"tags" in options:
        tags = r.strings(options[b"tags"], b'Put(): Arg "tags" not JSON', q.TAGS_MAX, b"tags")
    if b"priority" in options:
        priority = r.number(options[b"priority"], None, b'Put(): Arg "priority" not a number')
    return retries, tags, priority


def dependencies(r: Reader, options: dict[bytes, bytes], name: bytes) -> tuple[bytes, ...]:
    """Return the jids that a job depends on, from the options of the call with this name."""
    return r.strings(
        options.get(b"depends"),
        name + b'(): Arg "depends" not JSON: ',
        q.DEPENDENCIES_MAX,
        b"dependencies",
    )


def delay_of_next(r: Reader, options: dict[bytes, bytes]) -> float:
    """Return the delay of `complete` in the next queue."""
    delay = to_number(options.get(b"delay", b"0"))
    if delay is None:
        r.refuse(b"assertion failed!")
        delay = 0.0
    return delay


def next_queue(r: Reader, options: dict[bytes, bytes]) -> bytes | None:
    """Return the next queue of `complete`; without it, two other options are refused."""
    following: bytes | None = None
    if b"next" in options:
        following = r.a_name(options[b"next"], b"")
    for option in (b"delay", b"depends"):
        if option in options and following is None:
            r.refuse(b'Complete(): "%b" cannot be used without a "next".' % option)
    return following


# --- the calls -----------------------------------------------------------------------------------


def put(r: Reader) -> Call:
    """`put [worker] queue jid klass data delay [options]`."""
    return put_job(r, False)


def requeue(r: Reader) -> Call:
    """`requeue worker queue jid klass data delay [options]`: the job must exist."""
    r.name(2, NO_JOB)
    return put_job(r, True)


def put_job(r: Reader, must_exist: bool) -> Call:
    """Read the arguments of `put` and `requeue`."""
    worker: bytes | None = None
    at = 0
    if r.script.flavour != q.UNIFIED:
        worker = r.name_if(0) or b""
        at = 1
    queue = r.name(at, NO_QUEUE)
    jid = r.name(at + 1, b'Put(): Arg "jid" missing')
    klass = r.name(at + 2, b'Put(): Arg "klass" missing')
    data = r.data(r.at(at + 3), b'Put(): Arg "data" missing or not JSON: ', again=False)
    delay = r.number(r.at(at + 4), None, b'Put(): Arg "delay" not a number: ')
    if len(r.args) > at + 5 and (len(r.args) - at - 5) % 2:
        r.refuse(ODD)
    options = r.options(at + 5)
    retries, tags, priority = job_options(r, options)
    depends = dependencies(r, options, b"Put")
    if r.script.flavour == q.UNIFIED and delay > 0 and depends:
        r.refuse(b'Put(): "delay" and "depends" are not allowed to be used together')
    holds = throttles(r, options.get(b"throttles"), b'Put(): Arg "throttles" not JSON array: ')
    args = (queue, jid, klass, data, delay, worker, priority, tags, retries, depends, holds)
    return r.call(q.PUT, (*args, must_exist), forms.BULK)


def pop(r: Reader) -> Call:
    """`pop queue worker count`."""
    queue = r.name(0, NO_QUEUE)
    worker = r.name(1, b'Pop(): Arg "worker" missing')
    count = r.whole(r.at(2), None, b'Pop(): Arg "count" missing or not a number: ')
    return r.call(q.POP, (queue, worker, count), forms.JOBS)


def peek(r: Reader) -> Call:
    """`peek queue [offset] count`: only reqless has the offset."""
    queue = r.name(0, NO_QUEUE)
    offset = 0
    at = 1
    if r.script.peeks_from:
        offset = r.whole(r.at(1), None, b'Peek(): Arg "offset" missing or not a number: ')
        at = 2
    count = r.whole(r.at(at), None, b'Peek(): Arg "count" missing or not a number: ')
    return r.call(q.PEEK, (queue, offset, count), forms.JOBS)


def complete(r: Reader) -> Call:
    """`complete jid worker queue data [next queue [delay seconds] [depends jids]]`."""
    jid = r.name(0, NO_JOB)
    worker = r.name(1, b'Complete(): Arg "worker" missing')
    word = b"queue_name" if r.script.names_queue else b"queue"
    queue = r.name(2, b'Complete(): Arg "%b" missing' % word)
    data = r.data(
        r.at(3),
        b'Complete(): Arg "data" missing or not JSON: ',
        again=r.script.flavour == q.UNIFIED,
    )
    options = r.options(4)
    delay = delay_of_next(r, options)
    depends = dependencies(r, options, b"Complete")
    if r.script.flavour == q.UNIFIED and delay > 0 and depends:
        r.refuse(b'Complete(): "delay" and "depends" are not allowed together')
    following = next_queue(r, options)
    args = (jid, worker, queue, data, following, delay, depends)
    return r.call(q.COMPLETE, args, forms.STATE)


def fail(r: Reader) -> Call:
    """`fail jid worker group message [data]`."""
    jid = r.name(0, NO_JOB)
    worker = r.name(1, b'Fail(): Arg "worker" missing')
    group = r.name(2, b'Fail(): Arg "group" missing')
    message = r.text(3, b'Fail(): Arg "message" missing')
    return r.call(q.FAIL, (jid, worker, group, message, r.data_if(4)), forms.BULK)


def retry(r: Reader) -> Call:
    """`retry jid queue worker [delay [group [message]]]`."""
    jid = r.name(0, NO_JOB)
    word = b"queue_name" if r.script.names_queue else b"queue"
    queue = r.name(1, b'Retry(): Arg "%b" missing' % word)
    worker = r.name(2, b'Retry(): Arg "worker" missing')
    delay = r.number(r.at(3), 0.0, b'Retry(): Arg "delay" not a number: ')
    group = r.name_if(4)
    message = None if r.at(5) is None else r.text(5, b"")
    return r.call(q.RETRY, (jid, queue, worker, delay, group, message), forms.INTEGER)


def heartbeat(r: Reader) -> Call:
    """`heartbeat jid worker [data]`."""
    jid = r.name(0, NO_JOB)
    worker = r.name(1, b'Heatbeat(): Arg "worker" missing')  # the text of the scripts
    return r.call(q.HEARTBEAT, (jid, worker, r.data_if(2)), forms.INTEGER)


def timeout(r: Reader) -> Call:
    """`timeout jid...`."""
    jids = r.names(0, q.CALL_JOBS_MAX, b"jobs")
    return r.call(q.TIMEOUT, (jids,), forms.NOTHING)


def cancel(r: Reader) -> Call:
    """`cancel jid...`: the answer has all jids, whether the jobs existed or not."""
    jids = r.names(0, q.CALL_JOBS_MAX, b"jobs")
    return r.call(q.CANCEL, (jids,), forms.ASKED)


def get(r: Reader) -> Call:
    """`get jid`."""
    return r.call(q.GET, (r.name(0, NO_JOB),), forms.JOB)


def multiget(r: Reader) -> Call:
    """`multiget jid...`."""
    jids = r.names(0, q.CALL_JOBS_MAX, b"jobs")
    return r.call(q.MULTIGET, (jids,), forms.JOBS)


def priority(r: Reader) -> Call:
    """`priority jid number`."""
    jid = r.name(0, NO_JOB)
    wrong = b'Priority(): Arg "priority" missing or not a number: '
    return r.call(q.PRIORITY, (jid, r.number(r.at(1), None, wrong)), forms.INTEGER)


def depends(r: Reader) -> Call:
    """`depends jid on jid...` and `depends jid off all` or `off jid...`."""
    jid = r.name(0, NO_JOB)
    command = r.name(1, b'Depends(): Arg "command" missing')
    return on_or_off(r, jid, command, b'Depends(): Argument "command" must be "on" or "off"')


def track(r: Reader) -> Call:
    """`track` and `track track|untrack jid`."""
    command = r.at(0)
    if command is None:
        return r.call(q.TRACKED, (), forms.TRACKED)
    jid = r.name(1, b'Track(): Arg "jid" missing')
    return track_or_untrack(r, jid, command, forms.JSON_INTEGER)


def log(r: Reader) -> Call:
    """`log jid message [data]`: the data is an object; the history has its keys."""
    jid = r.name(0, b"Log(): Argument 'jid' missing")
    message = r.text(1, b"Log(): Argument 'message' missing")
    data = b""
    if (value := r.at(2)) is not None:
        wrong = b"Log(): Argument 'data' not cjson: "
        decoded = r.json(value, wrong)
        if isinstance(decoded, list):  # in Lua, a table with numbers as keys
            decoded = {str(number): item for number, item in enumerate(decoded, 1)}
        if not isinstance(decoded, dict):
            r.refuse(wrong + value[: q.NAME_MAX_BYTES])
        data = r.a_text(views.logged(decoded), b"") if isinstance(decoded, dict) else b""
    return r.call(q.LOG, (jid, message, data), forms.NOTHING)
