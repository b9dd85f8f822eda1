"""Events for the tests of the event log: of a machine, random ones, and naive decoding."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import STATE_NAMES
from beanpole.core.machine import Machine
from beanpoled.eventlog.events import NOTE, Events
from beanpoled.eventlog.store import EventLog
from tests.unit.core.cluster import Event

MEMBERS = ("n0", "n1", "n2")
WALL_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STATES = {0: "gone", **{state: name.decode() for state, name in STATE_NAMES.items()}}
NAMES = {1: b"default", 2: b"work", 7: b"mail"}
HOSTS = {1: b"10.0.0.1", 2: b"unix", 65_535: b"fe80::1%eth0"}


class Driver:
    """A machine driven by one client's commands, and the event log that follows it."""

    def __init__(self, log: EventLog | None = None, machine: Machine | None = None) -> None:
        self.machine = machine or Machine()
        self.log = log
        self.entries: list[tuple[Any, ...]] = []
        self.number = 0
        self.step_us = SECOND_US

    def do(self, *commands: c.Command) -> None:
        """Apply one batch of session 1 in one entry, `step_us` after the previous one."""
        self.number += 1
        index = self.machine.index + 1
        time_us = self.machine.queue.now_us + self.step_us
        section = (1, 1, self.number, commands)
        self.apply((index, 0, time_us, WALL_US + time_us, [section]))

    def apply(self, entry: tuple[Any, ...]) -> None:
        """Apply an entry, possibly of another driver."""
        self.entries.append(entry)
        self.machine.apply(*entry)
        if self.log is not None:
            self.log.applied(entry[0], entry[3])

    def put(self, count: int = 1, tube: bytes = b"work") -> None:
        """Make one event for each job, all in one entry."""
        if not self.number:
            self.do((c.OPEN, 1))
        self.do(*[(c.PUT, 1, tube, 5, 0, 60, b"body")] * count)


# Spaces and external ids, with their texts.
EXTERNALS = [
    (e.WORKQ, bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    (e.WORKQ, b"short", "short"),
    (e.GEARMAN, b"resize\0u-17", "u-17"),
    (e.GEARMAN, b"resize\0\xff!", "\\xff!"),
    (e.GEARMAN, b"resize\0\0" + bytes(32), "-"),
    (200, b"any\xe4", "any\\xe4"),
]


def chance(seed: int, rows: int, first: int = 0, with_hosts: bool = True) -> Events:
    """Return events with random values in all fields."""
    dice = random.Random(seed)
    records, notes = bytearray(), bytearray()
    wall_us, offset, index = WALL_US, first, 5
    while offset < first + rows:
        index += dice.randint(1, 3)
        wall_us += dice.randint(-5, 50) * SECOND_US
        notes += NOTE.pack(index, dice.getrandbits(40), wall_us, offset, dice.getrandbits(32))
        for _ in range(min(dice.randint(1, 9), first + rows - offset)):
            records += record(dice)
            offset += 1
    externals = [
        (place, *dice.choice(EXTERNALS)[:2])
        for place in range(first, offset)
        if dice.randrange(3) == 0
    ]
    if not with_hosts:
        return Events(first, records, notes, NAMES, MEMBERS, None, externals)
    names = [None, b"", b"host-\xff", b"w"]
    details = [
        (place, dice.choice(names), dice.choice(names), dice.getrandbits(50) - 2**49)
        for place in range(first, offset)
        if dice.randrange(3) == 0
    ]
    return Events(first, records, notes, NAMES, MEMBERS, HOSTS, externals, details)


def record(dice: random.Random) -> bytes:
    """Return a random record, whether or not a machine could make it."""
    return e.RECORD.pack(
        dice.choice(list(e.KIND_NAMES)),
        dice.choice([e.NO_PROTOCOL, *e.PROTOCOL_NAMES]),
        dice.choice(list(STATES)),
        dice.choice(list(STATES)),
        dice.choice([e.NO_REASON, *e.REASON_NAMES]),
        dice.choice([0, 1, 2, e.NO_ORIGIN]),
        dice.choice([0, *HOSTS]),
        dice.choice(list(NAMES)),
        dice.getrandbits(53),
        *(dice.getrandbits(32) for _ in range(5)),
        dice.getrandbits(60),
        *(dice.getrandbits(31) for _ in range(5)),
        *(dice.choice([e.NO_TIME, 0, dice.getrandbits(50)]) for _ in range(3)),
    )


def naive(events: Events) -> Iterator[dict[str, Any]]:
    """Decode events one by one, as the documentation defines the columns."""
    notes = list(NOTE.iter_unpack(events.notes))
    texts = {(space, value): text for space, value, text in EXTERNALS}
    externals = {offset: texts[space, value] for offset, space, value in events.externals}
    details = {detail[0]: detail for detail in events.details}
    for place in range(events.rows):
        offset = events.first + place
        index, time_us, wall_us, first, _ = [note for note in notes if note[3] <= offset][-1]
        event = Event._make(e.RECORD.unpack_from(events.records, place * e.RECORD.size))
        node = None if event.origin == e.NO_ORIGIN else events.members[event.origin]
        held = "reserved" in (STATES[event.before], STATES[event.state])
        worker = f"{node}:{event.incarnation}:{event.session}" if node and held else None
        host = (events.hosts or {}).get(event.host)
        row = {
            "offset": offset,
            "log_index": index,
            "position": offset - first,
            "time_us": time_us,
            "wall_time": EPOCH + timedelta(microseconds=wall_us),
            "protocol": e.PROTOCOL_NAMES.get(event.protocol),
            "event": e.KIND_NAMES[event.kind],
            "tube": events.names[event.tube].decode(),
            "job_id": event.job,
            "external_id": externals.get(offset),
            "state_before": STATES[event.before],
            "state": STATES[event.state],
            "reason": e.REASON_NAMES.get(event.reason),
            "priority": event.priority,
            "delay_s": event.delay_s,
            "ttr_s": event.ttr_s,
            "body_bytes": event.body_bytes,
            "node": node,
            "incarnation": event.incarnation if node else None,
            "session": event.session if node else None,
            "worker": worker,
            "host": host and host.decode(),
            "attempt": event.reserves,
            "timeouts": event.timeouts,
            "releases": event.releases,
            "buries": event.buries,
            "kicks": event.kicks,
            "wait_us": _time(event.wait_us),
            "run_us": _time(event.run_us),
            "ready_at_us": _time(event.ready_us),
            "client_time_us": None,
        }
        if offset in details:
            _, named, reason, row["client_time_us"] = details[offset]
            row["worker"] = _text(named)
            row["reason"] = row["reason"] if reason is None else _text(reason)
        if events.hosts is None:
            del row["host"], row["client_time_us"]
        yield row


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _time(value_us: int) -> int | None:
    return None if value_us == e.NO_TIME else value_us
