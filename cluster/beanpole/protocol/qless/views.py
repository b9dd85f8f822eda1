"""What calls show, as the objects that JSON is made of; each dialect has its own attributes."""

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


def job(script: Script, view: JobView) -> Object:
    """A job."""
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
    """Data as an object. Another dialect may have put it, so it may have never been written."""
    value = cjson.decode(data)
    return None if isinstance(value, cjson.Bad) else value


def _event(flavour: int, item: HistoryItem) -> Object:
    """One item of a history."""
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
    elif what == q.HAS_LOGGED and second:
        more = _embedded(second)
        if isinstance(more, dict):
            shown.update(more)
    shown["when"] = when
    shown["what"] = _WHATS.get(what, first)
    return shown


def _stages(history: tuple[HistoryItem, ...]) -> list[Object]:
    """A history as the seed form has it: an object for each queue that the job was in."""
    stages: list[Object] = []
    for when, what, first, second in history:
        if what == q.HAS_PUT or not stages:
            stages.append({})
        stage = stages[-1]
        if what == q.HAS_PUT:
            stage["q"] = first
            stage["put"] = when
        elif what == q.HAS_POPPED:
            stage["popped"] = when
            stage["worker"] = first
        elif what == q.HAS_DONE:
            stage["done"] = when
        elif what == q.HAS_FAILED:
            # Nobody failed it if it had no retries left; else all stages of that worker.
            for one in stages if second else [stage]:
                if not second or one.get("worker") == second:
                    one["failed"] = when
    return stages


def recurring(script: Script, view: RecurringView) -> Object:
    """A template."""
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
    """The counts of a queue."""
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


def worker(view: WorkerView) -> Object:
    """The counts of a worker."""
    return {"name": view.name, "jobs": view.jobs, "stalled": view.stalled}


def stats(view: StatsView) -> Object:
    """A queue on one day."""
    return {
        "retries": view.retries,
        "failed": view.failed,
        "failures": view.failures,
        "wait": _times(view.wait),
        "run": _times(view.run),
    }


def _times(view: TimesView) -> Object:
    # Rounding may leave less than nothing of what is a sum of squares.
    spread = max(0.0, view.vk / (view.count - 1)) ** 0.5 if view.count > 1 else 0.0
    return {
        "count": view.count,
        "mean": view.mean,
        "std": spread,
        "histogram": view.histogram,
    }


def options(script: Script, pairs: tuple[tuple[bytes, bytes], ...]) -> Object:
    """The configuration with its defaults: they are numbers, what was set is a string."""
    shown: Object = {
        name.decode(): default(script, name)
        for name in q.CONFIG_DEFAULTS
        if default(script, name) is not None
    }
    for name, value in pairs:
        shown[name.decode(errors="surrogateescape")] = value
    return shown


def default(script: Script, option: bytes) -> bytes | int | None:
    """What an option is worth if nobody has set it. The seed form has no grace period."""
    value = q.CONFIG_DEFAULTS.get(option)
    if value is None or (script.flavour == q.SEED and option == b"grace-period"):
        return None
    return int(value) if value.isdigit() else value
