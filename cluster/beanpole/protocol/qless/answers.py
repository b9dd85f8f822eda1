"""Encode the results of calls as RESP values, and the messages of channels as bytes."""

from collections.abc import Callable
from typing import Any, Final

import beanpole.qless as q
from beanpole.protocol.qless import cjson, forms, views
from beanpole.protocol.qless.calls_dotted import DEFAULT_IDENTIFIERS
from beanpole.protocol.qless.cjson import Json
from beanpole.protocol.qless.numbers import truncate
from beanpole.protocol.qless.recognition import Script
from beanpole.protocol.qless.requests import Call
from beanpole.protocol.qless.texts import script_error, text_of
from beanpole.protocol.resp.values import Error, Value
from beanpole.qless import Result

# The seed form answers null where the later forms raise an error.
_NULL_FOR_SEED: Final = (
    q.NO_JOB,
    q.NOT_RUNNING,
    q.OTHER_WORKER,
    q.OTHER_QUEUE,
    q.NOT_DEPENDING,
    q.NO_RECURRING,
)


def answer(script: Script, call: Call, result: Result) -> Value:
    """Return the answer for the result of a call."""
    code, value = result
    if code == q.OK:
        return _FORMS[call.answer](script, call, value)
    if script.flavour == q.SEED and code in _NULL_FOR_SEED:
        if call.code != q.PRIORITY:
            return None
        message = b"attempt to concatenate local 'queue' (a boolean value)"
    else:
        details = tuple(value) if isinstance(value, list | tuple) else ()
        message = text_of(script, call, code, details)
    return Error(b"ERR " + script_error(script.sha, message))


def message(what: "bytes | tuple[tuple[bytes, bytes | None], ...]") -> bytes:
    """Return the bytes of a message: a jid, or a JSON object in which None becomes `false`."""
    if isinstance(what, bytes):
        return what
    return cjson.encode({key: False if value is None else value for key, value in what})


def _array(script: Script, items: Json) -> bytes:
    """Return a JSON array. Only reqless-core encodes an empty table as `[]`, others as `{}`."""
    if not items and script.flavour == q.DOTTED:
        return b"[]"
    return cjson.encode(items)


def _bulk(_script: Script, _call: Call, value: Any) -> Value:
    return None if value is None else bytes(value)


def _state(_script: Script, _call: Call, value: Any) -> Value:
    return q.STATE_NAMES[value]


def _integer(_script: Script, _call: Call, value: Any) -> Value:
    # A compiled `truncate` takes a float, and has only 53 bits of an int.
    return value if value is None or type(value) is int else truncate(value)


def _nothing(_script: Script, _call: Call, _value: Any) -> Value:
    return None


def _job(script: Script, _call: Call, value: Any) -> Value:
    return None if value is None else cjson.encode(views.job(script, value))


def _jobs(script: Script, _call: Call, value: Any) -> Value:
    return _array(script, [views.job(script, view) for view in value])


def _job_list(script: Script, _call: Call, value: Any) -> Value:
    return [cjson.encode(views.job(script, view)) for view in value]


def _jids(_script: Script, _call: Call, value: Any) -> Value:
    return list(value)


def _asked(_script: Script, call: Call, _value: Any) -> Value:
    return list(call.args[0])


def _names(script: Script, _call: Call, value: Any) -> Value:
    return _array(script, value)


def _names_twice(script: Script, _call: Call, value: Any) -> Value:
    return cjson.encode(_array(script, value))


def _counted(script: Script, _call: Call, value: Any) -> Value:
    total, some = value
    if script.flavour == q.SEED:
        some = [views.job(script, one) if isinstance(one, q.JobView) else one for one in some]
    return cjson.encode({"total": total, "jobs": some})


def _groups(_script: Script, _call: Call, value: Any) -> Value:
    return cjson.encode(dict(value))


def _tracked(script: Script, _call: Call, value: Any) -> Value:
    found, gone = value
    return cjson.encode({"jobs": [views.job(script, one) for one in found], "expired": gone})


def _json_integer(_script: Script, _call: Call, value: Any) -> Value:
    return b"%d" % value


def _stats(_script: Script, _call: Call, value: Any) -> Value:
    return cjson.encode(views.stats(value))


def _queue(script: Script, _call: Call, value: Any) -> Value:
    return cjson.encode(views.queue(script, value[0]))


def _queues(script: Script, _call: Call, value: Any) -> Value:
    return _array(script, [views.queue(script, one) for one in value])


def _worker(_script: Script, _call: Call, value: Any) -> Value:
    jobs, stalled = value
    return cjson.encode({"jobs": jobs, "stalled": stalled})


def _workers(script: Script, _call: Call, value: Any) -> Value:
    if not value:
        return _array(script, [])
    return b"[%b]" % b",".join([views.worker(one) for one in value])


def _option(script: Script, call: Call, value: Any) -> Value:
    return views.default(script, call.args[0]) if value is None else bytes(value)


def _options(script: Script, _call: Call, value: Any) -> Value:
    return cjson.encode(views.options(script, value))


def _recurring(script: Script, _call: Call, value: Any) -> Value:
    return None if value is None else cjson.encode(views.recurring(script, value))


def _throttle(script: Script, call: Call, value: Any) -> Value:
    maximum, seconds = value
    shown = {"id": call.args[0], "maximum": maximum}
    if script.flavour == q.DOTTED:
        shown["ttl"] = seconds
    return cjson.encode(shown)


def _throttle_ttl(_script: Script, _call: Call, value: Any) -> Value:
    return truncate(value[1])


def _identifiers(_script: Script, _call: Call, value: Any) -> Value:
    return cjson.encode(dict([DEFAULT_IDENTIFIERS, *value]))


def _priorities(script: Script, _call: Call, value: Any) -> Value:
    return _array(script, [text for _number, text in value])


_FORMS: Final[dict[int, Callable[[Script, Call, Any], Value]]] = {
    forms.BULK: _bulk,
    forms.STATE: _state,
    forms.INTEGER: _integer,
    forms.NOTHING: _nothing,
    forms.JOB: _job,
    forms.JOBS: _jobs,
    forms.JOB_LIST: _job_list,
    forms.JIDS: _jids,
    forms.ASKED: _asked,
    forms.NAMES: _names,
    forms.NAMES_TWICE: _names_twice,
    forms.COUNTED: _counted,
    forms.GROUPS: _groups,
    forms.TRACKED: _tracked,
    forms.JSON_INTEGER: _json_integer,
    forms.STATS: _stats,
    forms.QUEUE: _queue,
    forms.QUEUES: _queues,
    forms.WORKER: _worker,
    forms.WORKERS: _workers,
    forms.OPTION: _option,
    forms.OPTIONS: _options,
    forms.RECURRING: _recurring,
    forms.THROTTLE: _throttle,
    forms.THROTTLE_TTL: _throttle_ttl,
    forms.IDENTIFIERS: _identifiers,
    forms.PRIORITIES: _priorities,
}
