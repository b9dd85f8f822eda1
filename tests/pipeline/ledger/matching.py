"""Match events to commands: every event has a cause, and every reply has its events.

The rules are those of docs/consistency.md: an answered command took effect exactly once, an
unanswered one at most once, and the commands of a connection in their order. The expected columns
of an event belong to `lives`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.pipeline.ledger.book import Book, Command, Connection
from tests.pipeline.ledger.events import Event

ACTED: Final = ("put", "reserved", "touched", "released", "buried", "kicked", "deleted")
# Further findings would only repeat the first ones.
FINDINGS_MAX: Final = 20

Session = tuple[str, int, int]


@dataclass
class Matched:
    """The result of matching.

    Attributes:
        commands: the command that made an event, by offset.
        connections: the connection of each session.
        counts: the number of events by explanation.
        findings: the contradictions, in words.
    """

    commands: dict[int, Command] = field(default_factory=dict)
    connections: dict[Session, Connection] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def match(book: Book, events: Sequence[Event]) -> Matched:
    """Return the command of each client's event, and the contradictions."""
    found = Matched()
    found.findings += order(events)
    acted: defaultdict[Session, list[Event]] = defaultdict(list)
    for event in events:
        if event.event in ACTED:
            if event.who is None:
                found.findings.append(f"nobody acted: {event}")
            else:
                acted[event.who].append(event)
    match_sessions(book, acted, found)
    for session, own in acted.items():
        if connection := found.connections.get(session):
            match_commands(connection, own, found)
        else:
            found.findings.append(f"no connection was {session}: {own[0]}")
    for connection in book.connections:
        if connection not in found.connections.values() and any(wanted(connection)):
            found.findings.append(f"no event of connection {connection.number}")
    return found


def order(events: Sequence[Event]) -> Iterator[str]:
    """Check that offsets are dense and that times, entries and positions increase."""
    before: Event | None = None
    for number, event in enumerate(events):
        if event.offset != number:
            yield f"offset {event.offset} at place {number}"
        same = before is not None and before.log_index == event.log_index
        if event.position != (before.position + 1 if before and same else 0):
            yield f"position: {before} {event}"
        if before:
            now, then = (event.time_us, event.wall_time), (before.time_us, before.wall_time)
            if event.log_index < before.log_index or now[0] < then[0] or (same and now != then):
                yield f"order: {before} {event}"
        before = event


def wanted(connection: Connection) -> Iterator[tuple[Command, str, int | None]]:
    """Yield command, kind and job of each event that the replies of a connection confirm."""
    for command in connection.commands:
        for job in command.jobs:
            yield command, command.effect, job


def match_sessions(book: Book, acted: dict[Session, list[Event]], found: Matched) -> None:
    """Find the session of each connection by the jobs that only it can have put or deleted."""
    once = {
        (event.event, event.job_id): session
        for session, own in acted.items()
        for event in own
        if event.event in ("put", "deleted")
    }
    rest: list[Connection] = []
    for connection in book.connections:
        keys = [(kind, job) for _, kind, job in wanted(connection) if kind in ("put", "deleted")]
        sessions = {once.get((kind, job or 0)) for kind, job in keys}
        session = next(iter(sessions), None)
        if len(sessions) > 1:
            found.findings.append(f"connection {connection.number} is of {sessions}")
        elif session:
            bind(connection, session, found)
        else:
            rest.append(connection)
    for session, own in acted.items():
        if session not in found.connections:
            fitting = [one for one in rest if could_be(one, session, own)]
            # Among equally fitting connections any will do: they did the same.
            if fitting:
                rest.remove(fitting[0])
                bind(fitting[0], session, found)


def bind(connection: Connection, session: Session, found: Matched) -> None:
    node, incarnation, _ = session
    if (node, incarnation) != (f"n{connection.node}", connection.life):
        found.findings.append(f"connection {connection.number} is no session of {session}")
    if session in found.connections:
        found.findings.append(f"connection {connection.number} shares {session} with another")
    found.connections[session] = connection


def could_be(connection: Connection, session: Session, own: Sequence[Event]) -> bool:
    """Whether a connection without puts and deletes can be this session."""
    if session[:2] != (f"n{connection.node}", connection.life):
        return False
    keys = [(kind, job) for _, kind, job in wanted(connection)]
    return (
        len(own) >= len(keys)
        and all(
            event.event == kind and job in (None, event.job_id)
            for event, (kind, job) in zip(own, keys, strict=False)
        )
        and connection.opened_us <= own[0].wall_time
        and not excess(connection, own[len(keys) :])
    )


def excess(connection: Connection, own: Sequence[Event]) -> Sequence[Event]:
    """Return the events that the unanswered commands, in their order, do not explain."""
    left = list(own)
    for command in connection.commands:
        if not command.reply:
            for _ in range(effects_max(command)):
                if left and may_be(command, left[0]):
                    left.pop(0)
    return left


def effects_max(command: Command) -> int:
    return command.numbers[0] if command.verb == "kick" else 1


def may_be(command: Command, event: Event) -> bool:
    """Whether an unanswered command can have caused this event."""
    names_job = command.verb in ("reserve-job", "release", "bury", "touch", "kick-job", "delete")
    return (
        command.possible == event.event
        and command.sent_us <= event.wall_time
        and (not names_job or command.numbers[0] == event.job_id)
    )


def match_commands(connection: Connection, own: Sequence[Event], found: Matched) -> None:
    """Bind each event of a session to its command: first the answered ones, then the rest."""
    number = 0
    for command, kind, job in wanted(connection):
        if number == len(own):
            found.findings.append(f"no event of {command}")
            return
        event = own[number]
        number += 1
        if event.event != kind or job not in (None, event.job_id):
            found.findings.append(f"{command} and then {event}")
            return
        if not command.sent_us <= event.wall_time <= command.received_us:
            found.findings.append(f"not within its time: {command} {event}")
        found.commands[event.offset] = command
        found.counts["answered"] += 1
    rest = own[number:]
    for command in connection.commands:
        if not command.reply and command.possible:
            for _ in range(effects_max(command)):
                if rest and may_be(command, rest[0]):
                    found.commands[rest[0].offset] = command
                    found.counts["unanswered"] += 1
                    rest = rest[1:]
    found.findings += [f"an event too many: {event}" for event in rest]
