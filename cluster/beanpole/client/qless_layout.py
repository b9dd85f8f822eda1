"""Translate the layout of qless in Redis into the arguments of imports at a node.

The layout is that of reqless 0.13.3, qless-py 0.11.4 and all versions between: the hashes
`ql:j:JID` and `ql:r:JID`; histories are lists of JSON in keys of their own or, in older versions, a
field of the job. Does no I/O.
"""

from collections.abc import Mapping, Sequence
from math import floor, isinf
from typing import Any, Final, NamedTuple

from beanpole import qless as q
from beanpole.protocol.qless import cjson, views
from beanpole.protocol.qless.numbers import to_number

# The score of a waiting job is its priority minus its time in seconds divided by this number.
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
# The details of a history item, in addition to its time and kind: alternative keys of each.
_DETAILS: Final[dict[int, tuple[tuple[str, ...], ...]]] = {
    q.HAS_PUT: (("q", "queue"),),
    q.HAS_POPPED: (("worker",),),
    q.HAS_DONE: (),
    q.HAS_FAILED: (("group",), ("worker",)),
    q.HAS_TIMED_OUT: (),
    q.HAS_THROTTLED: (("queue", "q"),),
}
# The oldest form of a history has one object for each queue: the key of a time, the kind of the
# item, and the key of its detail.
_STAGES: Final = (
    ("put", q.HAS_PUT, "q"),
    ("popped", q.HAS_POPPED, "worker"),
    ("failed", q.HAS_FAILED, ""),
    ("done", q.HAS_DONE, ""),
)

Fields = Mapping[bytes, bytes]


class Beside(NamedTuple):
    """The data of a job outside its hash.

    Attributes:
        scores: its scores in the sorted sets of `places`, in that order; None where it is absent.
        history: the items of its list.
        dependencies: the jids that it depends on.
        tagged_at: the time of each of its tags, None where it is unknown.
    """

    scores: Sequence[float | None]
    history: Sequence[bytes]
    dependencies: Sequence[bytes]
    tagged_at: Sequence[float | None]


class Job(NamedTuple):
    """A job: its state in Redis, and the arguments of its import.

    Attributes:
        state: its state in Redis.
        arguments: those of its import.
        lacks: the parts that cannot be read, in words: it is imported without them.
    """

    state: int
    arguments: tuple[Any, ...]
    lacks: tuple[str, ...] = ()


class Template(NamedTuple):
    """A template of recurring jobs: like `Job`."""

    arguments: tuple[Any, ...]
    lacks: tuple[str, ...] = ()


def state_of(name: bytes) -> int | None:
    """Return the state with a name; None if this layout has no such state."""
    return _STATES.get(name)


def places(state: int, queue: bytes) -> list[bytes]:
    """Return the sorted sets that may have a job of a state, the most likely first."""
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
    """Parse a JSON list of names; numbers become strings as in the scripts of qless."""
    return tuple(_text(item) for item in _list(text) or () if isinstance(item, str | float))


def _list(text: bytes | None) -> list[Any] | None:
    """Parse a JSON list; None if it is none. An empty table of Lua is `{}` in JSON."""
    value = cjson.decode(text) if text else []
    if value == {}:
        return []
    return value if isinstance(value, list) else None


def _unread_names(fields: Fields, *names: bytes) -> list[str]:
    """Return the names of the fields whose lists of names `names_in` cannot read as a whole."""
    found = []
    for name in names:
        items = _list(fields.get(name))
        if items is None or not all(isinstance(item, str | float) for item in items):
            found.append(f"its {name.decode()}")
    return found


def job(jid: bytes, fields: Fields, beside: Beside, now: float) -> Job | str:
    """Return a job, or the reason why it cannot be imported."""
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
    history, unread = _history(fields, beside.history)
    if state == q.RUNNING:
        history.append((float(floor(now)), q.HAS_TIMED_OUT, b"", b""))
    failure = _failure(fields.get(b"failure"))
    if state == q.FAILED and failure is None:
        return "it has failed, and does not say how"
    place = _taken(state, beside.scores, priority, time, now)
    if isinstance(place, str):
        return place
    taken, score = place
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
    lacks = _unread_names(fields, b"tags", b"throttles")
    if unread:
        lacks.append("an item of its history" if unread == 1 else f"{unread} items of its history")
    return Job(state, arguments, tuple(lacks))


def recurring(jid: bytes, fields: Fields, next_at: float | None) -> Template | str:
    """Return a template, or the reason why it cannot be imported."""
    if next_at is None:
        return "it is in no queue"
    if isinf(next_at):
        return f"its next time is {next_at}: numbers are finite"
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
    arguments = (
        *(fields.get(b"queue", b""), jid, fields.get(b"klass", b""), fields.get(b"data", b"{}")),
        *(interval, next_at, priority, names_in(fields.get(b"tags")), int(retries), backlog),
        *(throttles, int(count)),
    )
    return Template(arguments, tuple(_unread_names(fields, b"tags", b"throttles")))


def _taken(
    state: int, scores: Sequence[float | None], priority: float, time: float, now: float
) -> tuple[int, float] | str:
    """Return the state and the score with which a job is imported, or why it cannot be."""
    found = next((score for score in scores if score is not None), None)
    if state in (q.RUNNING, q.STALLED):
        return q.STALLED, 0.0
    if state == q.FAILED:
        return state, 0.0
    if found is not None and isinf(found):
        # qless puts a job whose lock has ended in front of its queue by this score.
        if found > 0 and (state == q.WAITING or (state == q.THROTTLED and scores[0] is not None)):
            return q.STALLED, 0.0
        return f"its score among the {q.STATE_NAMES[state].decode()} is {found}: numbers are finite"
    if state == q.THROTTLED:
        # The score in the second set is the time since when the job waits; in the first, its place.
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


def _history(fields: Fields, items: Sequence[bytes]) -> tuple[list[q.HistoryItem], int]:
    """Return the items of a history, and the number of those that cannot be read."""
    found: list[q.HistoryItem] = []
    unread = 0
    stages = _list(fields.get(b"history"))
    every: list[Any] = [None] if stages is None else stages
    for stage in every:
        before = len(found)
        for key, what, detail in _STAGES if isinstance(stage, dict) else ():
            when = stage.get(key)
            if isinstance(when, float):
                found.append((float(floor(when)), what, _text(stage.get(detail, "")), b""))
        unread += len(found) == before
    for text in items:
        item = _item(cjson.decode(text))
        if item is None:
            unread += 1
        else:
            found.append(item)
    return found, unread


def _item(value: Any) -> q.HistoryItem | None:
    """Parse one item: time, kind and an object. Any unknown kind is a client's log entry."""
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[0], float):
        return None
    when = float(floor(value[0]))
    name = value[1] if isinstance(value[1], str) else ""
    more = value[2] if len(value) > 2 and isinstance(value[2], dict) else {}
    what = _WHATS.get(name)
    if what is None:
        return when, q.HAS_LOGGED, _text(name), views.logged(more)
    texts = [
        next((_text(more[key]) for key in keys if key in more), b"") for keys in _DETAILS[what]
    ]
    texts += [b"", b""]
    return when, what, texts[0], texts[1]


def _bounded(items: list[q.HistoryItem]) -> list[q.HistoryItem]:
    """Return the first item and the newest ones, within the limits of number and bytes."""
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
