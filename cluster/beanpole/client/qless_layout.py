"""How qless keeps its jobs in a Redis, made into the arguments by which a node takes them.

This is the layout of reqless 0.13.3, qless-py 0.11.4 and all between: hashes `ql:j:JID` and
`ql:r:JID`, histories in lists of JSON behind the jobs or, older, in a field of theirs. Does no I/O.
"""

from collections.abc import Mapping, Sequence
from math import floor, isinf
from typing import Any, Final, NamedTuple

from beanpole import qless as q
from beanpole.protocol.qless import cjson
from beanpole.protocol.qless.numbers import to_number

# What is taken from the priority for each second, in the order of jobs that wait.
SECONDS_OF_PRIORITY: Final = 10_000_000_000.0

_STATES: Final = {name: state for state, name in q.STATE_NAMES.items() if state != q.RECURRING}
_WHATS: Final = {
    "put": q.HAS_PUT,
    "popped": q.HAS_POPPED,
    "done": q.HAS_DONE,
    "failed": q.HAS_FAILED,
    "timed-out": q.HAS_TIMED_OUT,
    "throttled": q.HAS_THROTTLED,
}
# What an item of a history says beside its time and what it is.
_DETAILS: Final[dict[int, tuple[tuple[str, ...], ...]]] = {
    q.HAS_PUT: (("q", "queue"),),
    q.HAS_POPPED: (("worker",),),
    q.HAS_DONE: (),
    q.HAS_FAILED: (("group",), ("worker",)),
    q.HAS_TIMED_OUT: (),
    q.HAS_THROTTLED: (("queue", "q"),),
}
# The oldest form: one object for each queue, with times; and what each was.
_STAGES: Final = (
    ("put", q.HAS_PUT, "q"),
    ("popped", q.HAS_POPPED, "worker"),
    ("failed", q.HAS_FAILED, ""),
    ("done", q.HAS_DONE, ""),
)

Fields = Mapping[bytes, bytes]


class Beside(NamedTuple):
    """What stands beside the hash of a job.

    Attributes:
        scores: in the sets that may hold it, in the order of `places`; None where it is not.
        history: the items of its list.
        dependencies: the jids that it waits for.
        tagged_at: when it was given each of its tags, None where that is not known.
    """

    scores: Sequence[float | None]
    history: Sequence[bytes]
    dependencies: Sequence[bytes]
    tagged_at: Sequence[float | None]


class Job(NamedTuple):
    """A job as it was found, and as a node takes it."""

    state: int
    arguments: tuple[Any, ...]


def state_of(name: bytes) -> int | None:
    """The state of a job by its name; None if this layout has no such state."""
    return _STATES.get(name)


def places(state: int, queue: bytes) -> list[bytes]:
    """The sorted sets in which a job of a state may stand, the most likely first."""
    if state == q.COMPLETE_:
        return [b"ql:completed"]
    kinds = {
        q.WAITING: (b"work",),
        q.STALLED: (b"work",),
        q.THROTTLED: (b"work", b"throttled"),
        q.SCHEDULED: (b"scheduled",),
        q.DEPENDS: (b"depends",),
    }
    return [b"ql:q:%b-%b" % (queue, kind) for kind in kinds.get(state, ())]


def names_in(text: bytes | None) -> tuple[bytes, ...]:
    """A list of names in JSON; numbers among them become strings, as the scripts show them."""
    value = cjson.decode(text) if text else None
    if not isinstance(value, list):
        return ()
    return tuple(_text(item) for item in value if isinstance(item, str | float))


def job(jid: bytes, fields: Fields, beside: Beside, now: float) -> Job | str:
    """Return a job; or in words why it is none."""
    state = state_of(fields.get(b"state", b""))
    if state is None:
        return f"its state {fields.get(b'state', b'').decode(errors='replace')!r} is not known"
    retries = _number(fields, b"retries", 5.0)
    remaining = _number(fields, b"remaining", retries)
    priority = _number(fields, b"priority", 0.0)
    if retries is None or remaining is None or priority is None:
        return "its retries, remaining or priority is no number"
    began = to_number(fields.get(b"time", b""))
    time = now if began is None else began
    history = _history(fields, beside.history)
    if state == q.RUNNING:
        history.append((float(floor(now)), q.HAS_TIMED_OUT, b"", b""))
    failure = _failure(fields.get(b"failure"))
    if state == q.FAILED and failure is None:
        return "it has failed, and does not say how"
    taken, score = _taken(state, beside.scores, priority, time, now)
    queue = fields.get(b"queue", b"")
    if state == q.COMPLETE_:
        queue = next((first for _, what, first, _ in reversed(history) if what == q.HAS_PUT), b"")
    tags = names_in(fields.get(b"tags"))
    given = [
        (tag, time if at is None else at) for tag, at in zip(tags, beside.tagged_at, strict=True)
    ]
    due = to_number(fields.get(b"scheduled", b"")) if state == q.DEPENDS else None
    arguments = (
        *(queue, jid, fields.get(b"klass", b""), fields.get(b"data", b"{}"), taken),
        *(priority, int(retries), floor(remaining), score, time, due),
        *(tuple(given), tuple(_bounded(history)), failure),
        *(tuple(beside.dependencies), names_in(fields.get(b"throttles"))),
        fields.get(b"spawned_from_jid", b""),
    )
    return Job(state, arguments)


def recurring(jid: bytes, fields: Fields, next_at: float | None) -> tuple[Any, ...] | str:
    """Return the arguments of a template; or in words why it is none."""
    if next_at is None:
        return "it is in no queue"
    numbers = {
        name: _number(fields, name, default)
        for name, default in (
            (b"interval", None),
            (b"priority", 0.0),
            (b"retries", 5.0),
            (b"backlog", 0.0),
            (b"count", 0.0),
        )
    }
    interval, priority, retries, backlog, count = numbers.values()
    if interval is None or priority is None or retries is None or backlog is None or count is None:
        wrong = [name.decode() for name, value in numbers.items() if value is None]
        return f"its {' and '.join(wrong)} is no number"
    throttles = names_in(fields[b"throttles"]) if b"throttles" in fields else None
    return (
        *(fields.get(b"queue", b""), jid, fields.get(b"klass", b""), fields.get(b"data", b"{}")),
        *(interval, next_at, priority, names_in(fields.get(b"tags")), int(retries), backlog),
        *(throttles, int(count)),
    )


def _taken(
    state: int, scores: Sequence[float | None], priority: float, time: float, now: float
) -> tuple[int, float]:
    """The state with which a job comes, and its place."""
    found = next((score for score in scores if score is not None), None)
    if state in (q.RUNNING, q.STALLED) or (found is not None and isinf(found)):
        return q.STALLED, 0.0
    if state == q.FAILED:
        return state, 0.0
    if state == q.THROTTLED:
        # In the second set it has the time since when it waits, in the first its place.
        waits = scores[0] is None
        since = time if found is None else found
        return q.WAITING, priority - since / SECONDS_OF_PRIORITY if waits else since
    if state == q.WAITING:
        return state, priority - time / SECONDS_OF_PRIORITY if found is None else found
    return state, now if found is None else found


def _failure(text: bytes | None) -> tuple[bytes, bytes, float, bytes] | None:
    value = cjson.decode(text) if text else None
    if not isinstance(value, dict) or "group" not in value:
        return None
    when = value.get("when")
    worker = value.get("worker")
    return (
        _text(value["group"]),
        _text(value.get("message", "")),
        when if isinstance(when, float) else 0.0,
        _text(worker) if isinstance(worker, str) else b"",
    )


def _history(fields: Fields, items: Sequence[bytes]) -> list[q.HistoryItem]:
    found: list[q.HistoryItem] = []
    stages = cjson.decode(fields[b"history"]) if b"history" in fields else None
    for stage in stages if isinstance(stages, list) else []:
        for key, what, detail in _STAGES if isinstance(stage, dict) else ():
            when = stage.get(key)
            if isinstance(when, float):
                found.append((float(floor(when)), what, _text(stage.get(detail, "")), b""))
    for text in items:
        item = _item(cjson.decode(text))
        if item is not None:
            found.append(item)
    return found


def _item(value: Any) -> q.HistoryItem | None:
    """One item: its time, what it is, and an object; what clients have logged says it itself."""
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[0], float):
        return None
    when = float(floor(value[0]))
    name = value[1] if isinstance(value[1], str) else ""
    more = value[2] if len(value) > 2 and isinstance(value[2], dict) else {}
    what = _WHATS.get(name)
    if what is None:
        return when, q.HAS_LOGGED, _text(name), cjson.encode(more) if more else b""
    texts = [
        next((_text(more[key]) for key in keys if key in more), b"") for keys in _DETAILS[what]
    ]
    texts += [b"", b""]
    return when, what, texts[0], texts[1]


def _bounded(items: list[q.HistoryItem]) -> list[q.HistoryItem]:
    """The first and the newest, as many as a job may have."""
    kept = items if len(items) <= q.HISTORY_MAX else [items[0], *items[1 - q.HISTORY_MAX :]]
    size = sum(len(item[2]) + len(item[3]) for item in kept)
    while size > q.HISTORY_MAX_BYTES and len(kept) > 1:
        gone = kept.pop(1)
        size -= len(gone[2]) + len(gone[3])
    return kept


def _number(fields: Fields, name: bytes, default: float | None) -> float | None:
    return to_number(fields[name]) if fields.get(name) else default


def _text(value: Any) -> bytes:
    if isinstance(value, float):
        return b"%.14g" % value
    return value.encode(errors="surrogateescape") if isinstance(value, str) else b""
