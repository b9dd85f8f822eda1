"""Convert the views of jobs, queues and workers to JSON objects with each dialect's attributes."""

from typing import Final

import beanpole.qless as q
from beanpole.protocol.qless import cjson
from beanpole.protocol.qless.cjson import Json
from beanpole.protocol.qless.recognition import Script
from beanpole.qless import (
    HistoryItem,
    JobView,
    QueueView,
    RecurringView,
    StatsView,
    TimesView,
    WorkerView,
)

Object = dict[str, Json]

_WHATS: Final = {
    q.HAS_PUT: "put",
    q.HAS_POPPED: "popped",
    q.HAS_DONE: "done",
    q.HAS_FAILED: "failed",
    q.HAS_TIMED_OUT: "timed-out",
    q.HAS_THROTTLED: "throttled",
}
_WORKER: Final = b'{"name":%b,"jobs":%d,"stalled":%d}'


def job(script: Script, view: JobView) -> Object:
    """Return the object of a job."""
    flavour = script.flavour
    failure: Object = {}
    if view.failure is not None:
        failure = view.failure._asdict()
    shown: Object = {
        "jid": view.jid,
        "klass": view.klass,
        "state": q.STATE_NAMES[view.state],
        "queue": view.queue,
        "worker": view.worker,
        "tracked": view.tracked,
        "priority": view.priority,
        "expires": view.expires,
        "retries": view.retries,
        "remaining": view.remaining,
        "data": _embedded(view.data) if flavour == q.SEED else view.data,
        "tags": view.tags,
        "history": _stages(view.history)
        if flavour == q.SEED
        else [_event(flavour, item) for item in view.history],
        "failure": failure,
        "dependents": view.dependents,
        "dependencies": view.dependencies,
    }
    if flavour not in (q.SEED, q.UNIFIED):
        shown["spawned_from_jid"] = view.spawned_from or False
    if flavour in (q.THROTTLES, q.DOTTED):
        shown["throttles"] = view.throttles
    return shown


def _embedded(data: bytes) -> Json:
    """Return decoded data; None if it is no JSON, as another dialect may have put the job."""
    value = cjson.decode(data)
    return None if isinstance(value, cjson.Bad) else value


def _event(flavour: int, item: HistoryItem) -> Json:
    """Return the object of one item of a history."""
    when, what, first, second = item
    shown: Object = {}
    if what == q.HAS_PUT:
        shown["queue" if flavour == q.DOTTED else "q"] = first
    elif what == q.HAS_POPPED:
        shown["worker"] = first
    elif what == q.HAS_FAILED:
        shown["group"] = first
        if second:
            shown["worker"] = second
    elif what == q.HAS_THROTTLED:
        shown["queue"] = first
    shown["when"] = when
    shown["what"] = _WHATS.get(what, first)
    if what == q.HAS_LOGGED and len(second) > len(b"{}"):
        # Not decoded: the data of all jobs of an answer would take a node seconds.
        return cjson.Encoded(b"%b,%b" % (second[:-1], cjson.encode(shown)[1:]))
    return shown


def logged(data: dict[str, Json]) -> bytes:
    """Return the data of an entry of a log, as it is stored: `_event` adds its own keys to it."""
    more = {key: item for key, item in data.items() if key not in ("when", "what")}
    return cjson.encode(more) if more else b""


def are_logged(history: tuple[HistoryItem, ...]) -> bool:
    """Whether the data of all entries of a log in a foreign history is as it would be stored."""
    for _when, what, _first, second in history:
        if what == q.HAS_LOGGED and second:
            data = cjson.decode(second)
            if not isinstance(data, dict) or logged(data) != second:
                return False
    return True


def _stages(history: tuple[HistoryItem, ...]) -> list[Object]:
    """Return a history in the seed form: an object for each queue that the job was in.

    If a worker fails the job, all stages of that worker have failed. A history may have hundreds of
    stages and of failures, so each stage is updated once, by the last failure of its worker.
    """
    stages: list[Object] = []
    since: list[int] = []  # for each stage, the item behind which a failure of its worker counts
    failures: dict[bytes, tuple[int, float]] = {}  # the last one of each worker, with its item
    for place, (when, what, first, second) in enumerate(history):
        if what == q.HAS_PUT or not stages:
            stages.append({})
            since.append(place)
        stage = stages[-1]
        if what == q.HAS_PUT:
            stage["q"] = first
            stage["put"] = when
        elif what == q.HAS_POPPED:
            _fail_stage(stage, since[-1], failures)
            stage["popped"] = when
            stage["worker"] = first
            since[-1] = place
        elif what == q.HAS_DONE:
            stage["done"] = when
        elif what == q.HAS_FAILED and second:
            failures[second] = place, when
        elif what == q.HAS_FAILED:
            # Without a worker, the job ran out of retries: only this stage has failed.
            stage["failed"] = when
            since[-1] = place
    for stage, place in zip(stages, since, strict=True):
        _fail_stage(stage, place, failures)
    return stages


def _fail_stage(stage: Object, since: int, failures: dict[bytes, tuple[int, float]]) -> None:
    place, when = failures.get(stage.get("worker", b""), (-1, 0.0))
    if place > since:
        stage["failed"] = when


def recurring(script: Script, view: RecurringView) -> Object:
    """Return the object of a template of recurring jobs."""
    shown: Object = {
        "jid": view.jid,
        "klass": view.klass,
        "state": b"recur",
        "queue": view.queue,
        "priority": view.priority,
        "interval": view.interval,
        "retries": view.retries,
        "count": view.count,
        "data": _embedded(view.data) if script.flavour == q.SEED else view.data,
        "tags": view.tags,
    }
    if script.flavour != q.SEED:
        shown["backlog"] = view.backlog
    if script.flavour in (q.THROTTLES, q.DOTTED):
        shown["throttles"] = view.throttles
    return shown


def queue(script: Script, view: QueueView) -> Object:
    """Return the counts of a queue."""
    shown: Object = {
        "name": view.name,
        "waiting": view.waiting,
        "running": view.running,
        "stalled": view.stalled,
        "scheduled": view.scheduled,
        "depends": view.depends,
        "recurring": view.recurring,
    }
    if script.flavour != q.SEED:
        shown["paused"] = view.paused
    if script.flavour in (q.THROTTLES, q.DOTTED):
        shown["throttled"] = view.throttled
    return shown


def worker(view: WorkerView) -> bytes:
    """Return the counts of a worker as JSON: there may be 100,000, too many for an object each."""
    return _WORKER % (cjson.encode(view.name), view.jobs, view.stalled)


def stats(view: StatsView) -> Object:
    """Return the statistics of a queue on one day."""
    return {
        "retries": view.retries,
        "failed": view.failed,
        "failures": view.failures,
        "wait": _times(view.wait),
        "run": _times(view.run),
    }


def _times(view: TimesView) -> Object:
    # Rounding may make the sum of squares negative.
    spread = max(0.0, view.vk / (view.count - 1)) ** 0.5 if view.count > 1 else 0.0
    return {
        "count": view.count,
        "mean": view.mean,
        "std": spread,
        "histogram": view.histogram,
    }


def options(script: Script, pairs: tuple[tuple[bytes, bytes], ...]) -> Object:
    """Return the configuration with its defaults; numeric defaults are ints, set values bytes."""
    shown: Object = {
        name.decode(): default(script, name)
        for name in q.CONFIG_DEFAULTS
        if default(script, name) is not None
    }
    for name, value in pairs:
        shown[name.decode(errors="surrogateescape")] = value
    return shown


def default(script: Script, option: bytes) -> bytes | int | None:
    """Return the default of an option; None if it has none. The seed form has no grace period."""
    value = q.CONFIG_DEFAULTS.get(option)
    if value is None or (script.flavour == q.SEED and option == b"grace-period"):
        return None
    return int(value) if value.isdigit() else value
