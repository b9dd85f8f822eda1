"""Compute the counting tables of docs/pipeline-statistics.md naively, event by event.

A table is a list of rows by column name. Depths over time are in `naive_depths`. The code is slow
and uses nothing of the pipeline.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.pipeline.ledger.events import Event

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_US: Final = 1_000_000
COUNTED: Final = ("reserved", "touched", "released", "returned", "timed_out", "buried", "kicked")
UNFINISHED: Final = ("released", "buried", "timed_out", "returned")
FAILED: Final = ("timed_out", "returned", "buried")
# The default limit of a wait and of a run is a minute.
LIMIT_S: Final = 60.0
PERCENTILES: Final = (50, 90, 95, 99)
# Width and number of qless's slots: seconds, minutes, hours, days.
SLOTS: Final = (("s", 1, 60), ("m", 60, 60), ("h", 3600, 24), ("d", 86400, 1_000_000))

Row = dict[str, Any]
Key = tuple[Any, ...]


def at(wall_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=wall_us)


def key_of(event: Event) -> Key:
    return at(event.wall_time).date(), event.tube, event.protocol


def keyed(key: Key) -> Row:
    return dict(zip(("day", "tube", "protocol"), key, strict=True))


def is_done(event: Event) -> bool:
    return event.event == "deleted" and event.state_before == "reserved"


def is_removed(event: Event) -> bool:
    return event.event == "deleted" and event.state_before != "reserved"


def throughput(events: Sequence[Event]) -> list[Row]:
    groups: defaultdict[Key, list[Event]] = defaultdict(list)
    for event in events:
        groups[key_of(event)].append(event)
    rows = []
    for key, own in groups.items():
        puts = [event for event in own if event.event == "put"]
        done, removed = sum(map(is_done, own)), sum(map(is_removed, own))
        kinds = Counter(event.event for event in own)
        row = {**keyed(key), "puts": len(puts), "put_bytes": sum(one.body_bytes for one in puts)}
        row |= {"done": done, "removed": removed, "given_up": 0, "expired": 0, "failed": 0}
        row |= dict.fromkeys(("moved", "blocked", "unblocked"), 0)  # of qless
        row["growth"] = len(puts) - done - removed
        rows.append(row | {kind: kinds[kind] for kind in (*COUNTED, "due")})
    return rows


def durations(events: Sequence[Event]) -> dict[Key, list[int]]:
    """Return waits and runs in microseconds by day, tube, protocol and kind."""
    found: defaultdict[Key, list[int]] = defaultdict(list)
    for event in events:
        if event.wait_us is not None:
            found[*key_of(event), "wait"].append(event.wait_us)
        if event.run_us is not None:
            kind = "run" if is_done(event) else "unfinished"
            found[*key_of(event), kind].append(event.run_us)
    return found


def times(events: Sequence[Event]) -> list[Row]:
    rows = []
    for key, values in durations(events).items():
        values.sort()
        seconds = [value / SECOND_US for value in values]
        row = {**keyed(key[:3]), "kind": key[3], "count": len(values)}
        row["mean_s"] = sum(values) / len(values) / SECOND_US
        row["std_s"] = statistics.stdev(seconds) if len(seconds) > 1 else None
        for percent in PERCENTILES:
            row[f"p{percent}_s"] = seconds[math.ceil(len(seconds) * percent / 100) - 1]
        row |= {"min_s": seconds[0], "max_s": seconds[-1], "total_s": sum(values) / SECOND_US}
        rows.append(row)
    return rows


def slot_of(value_us: int) -> tuple[int, str, int, int]:
    """Return number, label, begin (s) and width (s) of qless's slot for a duration."""
    seconds, first = value_us // SECOND_US, 0
    for letter, width, count in SLOTS:
        if seconds < width * count:
            number = seconds // width
            # Minutes, hours and days have no slot 0: the smaller unit covers it.
            slot = first + number - (letter != "s")
            return slot, f"{letter}{number}", number * width, width
        first += count - (letter != "s")
    raise AssertionError(value_us)


def histogram(events: Sequence[Event]) -> list[Row]:
    rows = []
    for key, values in durations(events).items():
        for (slot, label, begin, width), count in Counter(map(slot_of, values)).items():
            row = {**keyed(key[:3]), "kind": key[3], "slot": slot, "label": label}
            row |= {"from_s": begin, "width_s": width, "count": count}
            rows.append(row | {"count_per_s": count / width})
    return rows


def attempts(events: Sequence[Event]) -> list[Row]:
    found = Counter(
        (*key_of(event), "done" if is_done(event) else "removed", event.attempt)
        for event in events
        if event.event == "deleted"
    )
    names = ("outcome", "attempts")
    return [
        {**keyed(key[:3]), **dict(zip(names, key[3:], strict=True)), "jobs": jobs}
        for key, jobs in found.items()
    ]


def failures(events: Sequence[Event]) -> list[Row]:
    found: defaultdict[Key, list[int]] = defaultdict(list)
    for event in events:
        if event.event in UNFINISHED:
            key = (*key_of(event), event.event, event.reason or "unsaid")
            found[key].append(event.run_us or 0)
    return [
        {
            **keyed(key[:3]),
            "event": key[3],
            "reason": key[4],
            "count": len(runs),
            "run_s": sum(runs) / SECOND_US,
        }
        for key, runs in found.items()
    ]


def slo(events: Sequence[Event]) -> list[Row]:
    rows = []
    for key, values in durations(events).items():
        if key[3] != "unfinished":
            within = sum(value <= LIMIT_S * SECOND_US for value in values)
            row = {**keyed(key[:3]), "kind": key[3], "limit_s": LIMIT_S, "count": len(values)}
            rows.append(row | {"within": within, "share": within / len(values)})
    return rows


def workers(events: Sequence[Event]) -> list[Row]:
    groups: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.worker is not None:
            groups[event.host or event.worker.partition(":")[0]].append(event)
    rows = [worker_row(name, own) for name, own in groups.items()]
    ended = sum(row["done"] + row["released"] + row["failed"] for row in rows)
    for row in rows:
        row["fleet_failed_share"] = sum(one["failed"] for one in rows) / ended if ended else None
    return rows


def worker_row(name: str, own: Sequence[Event]) -> Row:
    kinds = Counter(event.event for event in own)
    # Also where a policy's event (`attempts_ttr`) tells of the end.
    words = ("ttr", "connection_lost", "node_down")
    lost = sum((event.reason or "").removeprefix("attempts_") in words for event in own)
    failed, done = sum(kinds[kind] for kind in FAILED), sum(map(is_done, own))
    ended = done + kinds["released"] + failed
    busy_s = sum(event.run_us or 0 for event in own) / SECOND_US
    present_s = (own[-1].time_us - own[0].time_us) / SECOND_US
    return {
        "worker": name,
        "tubes": len({event.tube for event in own}),
        "reservations": kinds["reserved"],
        "done": done,
        **{kind: kinds[kind] for kind in UNFINISHED},
        "lost_leases": lost,
        "failed": failed,
        "failed_share": failed / ended if ended else None,
        "busy_s": busy_s,
        "present_s": present_s,
        "utilisation": busy_s / present_s if present_s else None,
    }


BURIAL: Final = (
    *("offset", "protocol", "tube", "job_id", "external_id", "reason", "priority", "ttr_s"),
    *("body_bytes", "worker", "attempt", "timeouts", "releases", "buries", "kicks", "run_us"),
)


def dead_letters(events: Sequence[Event]) -> list[Row]:
    last = {event.job_id: event for event in events}
    return [
        {**{name: getattr(event, name) for name in BURIAL}, "buried_at": at(event.wall_time)}
        for event in last.values()
        if event.state == "buried"
    ]


TABLES: Final[dict[str, Callable[[Sequence[Event]], list[Row]]]] = {
    "throughput": throughput,
    "times": times,
    "histogram": histogram,
    "attempts": attempts,
    "failures": failures,
    "slo": slo,
    "workers": workers,
    "dead_letters": dead_letters,
}
