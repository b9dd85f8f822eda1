"""Compute the tables by minute of docs/pipeline-statistics.md naively, event by event.

The tables by day are in `naive`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.pipeline.ledger.events import Event
from tests.pipeline.ledger.naive import FAILED, Row, at, is_done, is_removed

MINUTE_US: Final = 60_000_000
STATES: Final = ("ready", "reserved", "delayed", "buried")


def minute_of(event: Event) -> int:
    return event.wall_time // MINUTE_US * MINUTE_US


def depth(events: Sequence[Event]) -> list[Row]:
    tubes: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        tubes[event.tube].append(event)
    end_us = minute_of(events[-1]) + MINUTE_US
    return [{"tube": tube, **row} for tube, own in tubes.items() for row in minutes(own, end_us)]


def whole_depth(events: Sequence[Event]) -> list[Row]:
    return list(minutes(events, minute_of(events[-1]) + MINUTE_US))


def minutes(events: Sequence[Event], end_us: int) -> Iterator[Row]:
    """Return the rows of one tube, or of all tubes together, in the order of time."""
    groups: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        groups[minute_of(event)].append(event)
    untils = [*list(groups)[1:], end_us]
    now = Counter[str]()
    for (minute, own), until in zip(groups.items(), untils, strict=True):
        # The jobs at the beginning of a minute count for its maximum.
        most = Counter(now)
        for event in own:
            now[event.state_before] -= 1
            now[event.state] += 1
            most |= now
        kinds = Counter(event.event for event in own)
        row: dict[str, Any] = {"minute": at(minute), "until": at(until), "puts": kinds["put"]}
        row |= {"reservations": kinds["reserved"], "done": sum(map(is_done, own))}
        row |= {"removed": sum(map(is_removed, own)), "given_up": 0, "expired": 0}
        row |= {"failed": sum(kinds[kind] for kind in FAILED), "kept": 0, "kept_max": 0}
        row |= {state: now[state] for state in STATES}
        yield row | {f"{state}_max": most[state] for state in STATES}


def backlog(events: Sequence[Event]) -> list[Row]:
    """Return stretches of full minutes with ready jobs at their end and no reservation."""
    rows: list[Row] = []
    by_tube: defaultdict[str, dict[int, Row]] = defaultdict(dict)
    for row in depth(events):
        first, until = row["minute"].timestamp(), row["until"].timestamp()
        for minute in range(int(first), int(until), 60):
            # Nothing happens between two rows, so the states stay the same.
            by_tube[row["tube"]][minute] = row if minute == first else {**row, "reservations": 0}
    for tube, own in by_tube.items():
        stretch: list[int] = []
        for minute in [*own, 0]:
            row = own.get(minute, {"ready": 0})
            if row["ready"] and not row["reservations"]:
                stretch.append(minute)
            elif stretch:
                begin, until = stretch[0] * 1_000_000, (stretch[-1] + 60) * 1_000_000
                ready = max(own[one]["ready"] for one in stretch)
                found = {"tube": tube, "begin": at(begin), "until": at(until), "ready": ready}
                rows.append(found | {"minutes": len(stretch)})
                stretch = []
    return rows


def oldest(events: Sequence[Event]) -> list[Row]:
    """Return the oldest ready job at each full minute, as stretches of minutes."""
    rows: list[Row] = []
    ready: defaultdict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    looked_us = minute_of(events[0]) + MINUTE_US
    open_rows: dict[str, Row] = {}

    def look(at_us: int) -> None:
        for tube, jobs in ready.items():
            found = min(jobs.values(), default=None)
            row = open_rows.get(tube)
            if found is None:
                continue
            same = (found[1], at(found[0]))
            if row and (row["job_id"], row["ready_since"]) == same and row["until"] == at(at_us):
                row["until"] = at(at_us + MINUTE_US)
                continue
            row = {"tube": tube, "begin": at(at_us), "until": at(at_us + MINUTE_US)}
            open_rows[tube] = row | {"job_id": same[0], "ready_since": same[1]}
            rows.append(open_rows[tube])

    for event in events:
        while looked_us <= event.wall_time:
            look(looked_us)
            looked_us += MINUTE_US
        if event.state_before == "ready":
            del ready[event.tube][event.job_id]
        if event.state == "ready":
            ready[event.tube][event.job_id] = (event.wall_time, event.job_id)
    look(looked_us)
    return rows


TABLES: Final[dict[str, Callable[[Sequence[Event]], list[Row]]]] = {
    "depth": depth,
    "whole_depth": whole_depth,
    "backlog": backlog,
    "oldest": oldest,
}
