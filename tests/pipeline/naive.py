"""The same statistics in plain Python and from raw times, event by event.

The code is as simple as possible, so that readers can trust it. It shares no code with the product,
and never uses `wait_us`, `run_us` or `ready_at_us`.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tests.pipeline.histories import Event

Key = tuple[Any, ...]
MINUTE = timedelta(minutes=1)


class Duration(NamedTuple):
    """One wait or run."""

    key: Key  # day, tube, protocol
    kind: str
    seconds: float


def key_of(event: Event) -> Key:
    day = event["wall_time"].astimezone(UTC).date()
    return day, event["tube"], event["protocol"]


def durations(events: Iterable[Event]) -> Iterator[Duration]:
    ready: dict[int, int] = {}
    reserved: dict[int, int] = {}
    for event in events:
        job, now = event["job_id"], event["time_us"]
        if event["event"] == "reserved":
            if event["state_before"] == "ready":
                yield Duration(key_of(event), "wait", (now - ready[job]) / 1e6)
            reserved[job] = now
        elif event["state_before"] == "reserved" and event["event"] != "touched":
            kind = "run" if completes(event) else "unfinished"
            yield Duration(key_of(event), kind, (now - reserved[job]) / 1e6)
        if event["state"] == "ready" and event["state_before"] != "ready":
            ready[job] = now


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least `percent` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(percent * len(values) / 100) - 1)]


def std(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def qless_slot(seconds: float) -> str:
    """Return the field of qless's statistics for a duration, by the rules of its Lua code."""
    if seconds < 60:
        return f"s{math.floor(seconds)}"
    if seconds < 3600:
        return f"m{math.floor(seconds / 60)}"
    if seconds < 86400:
        return f"h{math.floor(seconds / 3600)}"
    return f"d{math.floor(seconds / 86400)}"


def depths(events: Iterable[Event]) -> dict[tuple[str, datetime], dict[str, int]]:
    """Return the depth of each tube at the end of each minute that has events of the tube."""
    now: dict[str, Counter[str]] = defaultdict(Counter)
    found: dict[tuple[str, datetime], dict[str, int]] = {}
    for event in events:
        tube = event["tube"]
        now[tube][event["state_before"]] -= 1
        now[tube][event["state"]] += 1
        states = ("ready", "reserved", "delayed", "buried")
        found[tube, minute_of(event)] = {state: now[tube][state] for state in states}
    return found


def burials(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events that bury a job; a buried job that is moved may stay buried."""
    states: dict[int, str] = {}
    for event in events:
        job = event["job_id"]
        if event["state"] == "buried" != states.get(job, event["state_before"]):
            yield event
        if event["state"] != "moving":
            states[job] = event["state"]


DEPTHS = ("ready", "reserved", "delayed", "buried", "kept")


def depth_of(state: str) -> str:
    """Return the name under which a state is counted."""
    return "kept" if state in ("done", "failed") else state


def at_most(
    events: Iterable[Event], together: bool = False
) -> dict[tuple[str, datetime], dict[str, int]]:
    """Return each tube's depths at the end of each minute, and the maxima (`ready_max`) in it.

    After a step back of the wall clock events count for the latest minute so far. With `together`
    all tubes count as one, which has no name.
    """
    now: dict[str, Counter[str]] = defaultdict(Counter)
    found: dict[tuple[str, datetime], dict[str, int]] = {}
    latest = datetime.min.replace(tzinfo=UTC)
    for event in events:
        latest = max(latest, minute_of(event))
        tube = "" if together else event["tube"]
        counts = now[tube]
        row = found.setdefault((tube, latest), {f"{state}_max": counts[state] for state in DEPTHS})
        counts[depth_of(event["state_before"])] -= 1
        counts[depth_of(event["state"])] += 1
        for state in DEPTHS:
            row[state] = counts[state]
            row[f"{state}_max"] = max(row[f"{state}_max"], counts[state])
    return found


def completes(event: Event) -> bool:
    """Whether an event of a reserved job means that its worker has completed it."""
    if event["event"] == "deleted":
        by_others = event["protocol"] in ("workq", "gearman")
        removing = ("abandoned", "admin", "queue_full", "retention")
        return not by_others and event["reason"] not in removing
    return bool(event["event"] == "done")


def outcome_of(event: Event) -> str | None:
    """Return how an event ended its job; None if it did not, or if the job had ended before."""
    if event["state_before"] in ("done", "failed"):
        return None
    match event["event"], event["state_before"], event["state"]:
        case ("done", _, _):
            return "done"
        case ("deleted", "reserved", _) if completes(event):
            return "done"
        case ("deleted", _, _):
            return "removed"
        case ("failed", _, "failed" | "gone"):
            return "given_up"
        case ("expired", _, _):
            return "expired"
    return None


def worker_of(event: Event) -> str | None:
    """Return the identity of the worker of an event, if the event is about a reservation.

    A deletion by an administrator tells where that is, and not who held the job.
    """
    if "reserved" not in (event["state_before"], event["state"]) or event["reason"] == "admin":
        return None
    known: str | None = event.get("host") or event["node"]
    return known


def first_states(events: Iterable[Event]) -> dict[str, Counter[str]]:
    """Return the number of jobs by tube and state before the first event."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    seen: set[int] = set()
    for event in events:
        if event["job_id"] not in seen and event["state_before"] not in ("gone", "moving"):
            found[event["tube"]][depth_of(event["state_before"])] += 1
        seen.add(event["job_id"])
    return found


def minute_of(event: Event) -> datetime:
    wall_time: datetime = event["wall_time"]
    return wall_time.replace(second=0, microsecond=0)


def minutes_of(events: Sequence[Event]) -> list[datetime]:
    """Return all minutes from the first event's to the last event's."""
    first, last = minute_of(events[0]), minute_of(events[-1])
    return [first + number * MINUTE for number in range((last - first) // MINUTE + 1)]


def unserved(events: Sequence[Event], tube: str) -> set[datetime]:
    """Return the minutes at whose end a tube had ready jobs, and in which none was reserved."""
    rows = depths(events)
    reserved = {
        minute_of(event)
        for event in events
        if event["tube"] == tube and event["event"] == "reserved"
    }
    found, ready = set(), 0
    for minute in minutes_of(events):
        ready = rows.get((tube, minute), {"ready": ready})["ready"]
        if ready and minute not in reserved:
            found.add(minute)
    return found


def oldest(events: Sequence[Event], tube: str) -> dict[datetime, tuple[int, datetime]]:
    """Return the oldest ready job (id, ready since) at each full minute with a ready job."""
    found: dict[datetime, tuple[int, datetime]] = {}
    ready: dict[int, datetime] = {}
    coming = iter([event for event in events if event["tube"] == tube])
    event = next(coming, None)
    for minute in [*minutes_of(events), minute_of(events[-1]) + MINUTE]:
        while event is not None and event["wall_time"] <= minute:
            since = ready.pop(event["job_id"], None)
            if event["state"] == "ready":
                stays = event["state_before"] == "ready" and since is not None
                ready[event["job_id"]] = since if stays and since else event["wall_time"]
            event = next(coming, None)
        if ready:
            found[minute] = min(
                ((job, since) for job, since in ready.items()), key=lambda x: (x[1], x[0])
            )
    return found
