"""The arguments and errors of calls about templates of recurring jobs.

They are those of the dialects with a single script.
"""

from typing import Final

import beanpole.qless as q
from beanpole.protocol.qless import forms
from beanpole.protocol.qless.calls_jobs import NO_QUEUE, ODD, has_throttles, throttles
from beanpole.protocol.qless.requests import Call, Reader

NO_TEMPLATE: Final = b"Recurring(): no jid provided"
# The attributes of a template that are read as numbers with the same error text.
_NUMBERS: Final = (b"priority", b"interval")
NO_INTERVAL: Final = b'Recur(): Arg "interval" must be greater than 0'


def recur(r: Reader) -> Call:
    """`recur queue jid klass data interval seconds offset [options]`."""
    queue = r.name(0, NO_QUEUE)
    jid = r.name(1, b'RecurringJob On(): Arg "jid" missing')
    klass = r.name(2, b'RecurringJob On(): Arg "klass" missing')
    spec = r.name(4, b'RecurringJob On(): Arg "spec" missing')
    data = r.data(r.at(3), b'RecurringJob On(): Arg "data" not JSON: ', again=False)
    if spec != b"interval":
        r.refuse(b'Recur(): schedule type "%b" unknown' % spec)
    return template(r, (queue, jid, klass, data), 5, b"Recur")


def template(r: Reader, who: tuple[bytes, bytes, bytes, bytes], at: int, name: bytes) -> Call:
    """Read the interval, the offset and the options of a template, from argument `at` on."""
    wrong = name + b'(): Arg "%b" not a number: '
    interval = r.number(r.at(at), None, wrong % b"interval")
    offset = r.number(r.at(at + 1), None, wrong % b"offset")
    if interval <= 0:
        # The text of dialects without throttles is wrong: 0 is not allowed.
        r.refuse(
            name + NO_INTERVAL.removeprefix(b"Recur")
            if has_throttles(r)
            else b'Recur(): Arg "interval" must be greater than or equal to 0'
        )
    if (len(r.args) - at) % 2:
        r.refuse(ODD)
    options = r.options(at + 2)
    wrong = b'Recur(): Arg "%b" not a number: '
    tags = r.strings(
        options.get(b"tags"),
        b'Recur(): Arg "tags" must be JSON string array: ',
        q.TAGS_MAX,
        b"tags",
    )
    priority = r.number(options.get(b"priority"), 0.0, wrong % b"priority")
    retries = r.whole(options.get(b"retries"), 0, wrong % b"retries")
    backlog = r.number(options.get(b"backlog"), 0.0, wrong % b"backlog")
    holds = throttles(r, options.get(b"throttles"), b'Recur(): Arg "throttles" not JSON array: ')
    args = (*who, interval, offset, priority, tags, retries, backlog, holds)
    return r.call(q.RECUR, args, forms.BULK)


def unrecur(r: Reader) -> Call:
    """`unrecur jid`."""
    return r.call(q.UNRECUR, (r.name(0, NO_TEMPLATE),), forms.INTEGER)


def recur_get(r: Reader) -> Call:
    """`recur.get jid`."""
    return r.call(q.RECUR_GET, (r.name(0, NO_TEMPLATE),), forms.RECURRING)


def recur_update(r: Reader) -> Call:
    """`recur.update jid [key value]...`."""
    jid = r.name(0, NO_TEMPLATE)
    pairs = []
    for at in range(1, len(r.args), 2):
        key = r.args[at]
        if at + 1 == len(r.args):
            r.refuse(b"No value provided for " + key[: q.NAME_MAX_BYTES])
            break
        pairs.append((key, changed(r, key, r.args[at + 1], again=False)))
    return r.call(q.RECUR_UPDATE, (jid, tuple(pairs)), forms.INTEGER)


def changed(
    r: Reader, key: bytes, value: bytes, again: bool
) -> bytes | float | int | tuple[bytes, ...]:
    """Read the new value of an attribute of a template; `again`: data is encoded again."""
    wrong = b'Recur(): Arg "%b" must be a number: ' % key[: q.NAME_MAX_BYTES]
    if key in _NUMBERS:
        number = r.number(value, None, wrong)
        if key == b"interval" and number <= 0:
            r.refuse(NO_INTERVAL)
        return number
    if key == b"retries":
        return r.whole(value, None, wrong)
    if key == b"backlog" and r.script.flavour != q.SEED:
        return r.number(value, None, b'Recur(): Arg "backlog" not a number: ')
    if key == b"data":
        return r.data(value, b'Recur(): Arg "data" is not JSON-encoded: ', again)
    if key in (b"klass", b"queue"):
        return r.a_name(value, b"")
    if key == b"throttles" and has_throttles(r):
        refusal = b'Recur(): Arg "throttles" is not JSON-encoded: '
        return r.strings(value, refusal, q.THROTTLES_MAX, b"throttles")
    r.refuse(b'Recur(): Unrecognized option "%b"' % key[: q.NAME_MAX_BYTES])
    return b""


def recur_tag(r: Reader) -> Call:
    """`recur.tag jid tag...`."""
    jid = r.name(0, NO_TEMPLATE)
    return r.call(q.RECUR_TAG, (jid, r.names(1, q.TAGS_MAX, b"tags")), forms.NAMES)


def recur_untag(r: Reader) -> Call:
    """`recur.untag jid tag...`."""
    jid = r.name(0, NO_TEMPLATE)
    return r.call(q.RECUR_UNTAG, (jid, r.names(1, q.TAGS_MAX, b"tags")), forms.NAMES)
