"""Compute the expected columns of each event: a job's life, rebuilt from the commands alone.

A life trusts the order and the times of events, which `matching` has checked, and the ledger's
commands. It computes all other columns and compares them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.pipeline.ledger.book import Book, Command, Connection
from tests.pipeline.ledger.events import Event
from tests.pipeline.ledger.matching import Matched

SECOND_US: Final = 1_000_000
NOBODY: Final = (None, None, None)


@dataclass(slots=True)
class Life:
    """The state of a job between two events."""

    tube: str
    priority: int
    delay_s: int
    ttr_s: int
    body: bytes
    state: str = "gone"
    holder: tuple[str | None, int | None, int | None] = NOBODY
    attempt: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    ready_at_us: int | None = None
    reserved_at_us: int = 0
    ends_at_us: int = 0  # of a reservation or a delay


class Lives:
    """All jobs, moved by each event in turn."""

    def __init__(self, book: Book, matched: Matched) -> None:
        self.jobs: dict[int, Life] = {}
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._book = book
        self._matched = matched

    def follow(self, events: Sequence[Event]) -> None:
        """Compare each event with the expected one."""
        for event in events:
            command = self._matched.commands.get(event.offset)
            if event.event == "put":
                if event.job_id in self.jobs or not command:
                    self.findings.append(f"not a new job: {event}")
                    continue
                self.jobs[event.job_id] = born(command)
            life = self.jobs.get(event.job_id)
            if life is None:
                self.findings.append(f"no such job: {event}")
                continue
            expected = self._move(life, event, command)
            different = {
                name: (value, getattr(event, name))
                for name, value in expected.items()
                if getattr(event, name) != value
            }
            if different:
                self.findings.append(f"{different} (expected, found) in {event}")

    def _move(self, life: Life, event: Event, command: Command | None) -> dict[str, Any]:
        """Move a job by an event and return the columns that the event must have."""
        before, held_by = life.state, life.holder
        expected: dict[str, Any] = {"state_before": before, "external_id": None, "reason": None}
        expected |= {"wait_us": None, "run_us": None, "protocol": "beanstalk"}
        expected["client_time_us"] = None
        worker = held_by if before == "reserved" else NOBODY
        if before == "reserved" and event.event != "touched":
            expected["run_us"] = event.time_us - life.reserved_at_us
        if command:
            self._by_command(life, event, command, expected)
            if event.event == "reserved":
                worker = life.holder
        else:
            self._by_itself(life, event, expected)
        if life.state == "ready" and before != "ready":
            life.ready_at_us = event.time_us
        if life.state != "reserved":
            life.holder = NOBODY
        names = ("tube", "priority", "delay_s", "ttr_s", "state", "attempt", "timeouts")
        more = ("releases", "buries", "kicks", "ready_at_us")
        expected |= {name: getattr(life, name) for name in (*names, *more)}
        expected["body_bytes"] = len(life.body)
        connection = self._matched.connections.get(event.who) if event.who else None
        expected["host"] = connection.host if connection else None
        expected["worker"] = ":".join(map(str, worker)) if worker != NOBODY else None
        return expected

    def _by_command(
        self, life: Life, event: Event, command: Command, expected: dict[str, Any]
    ) -> None:
        """Apply a client's command as docs/protocol.md describes it."""
        who = (event.node, event.incarnation, event.session)
        now_us, kind, before = event.time_us, event.event, life.state
        if kind in ("released", "touched") and who != life.holder:
            self.findings.append(f"not held by {who} but {life.holder}: {event}")
        if kind == "reserved":
            self._reserve(life, event, command, expected)
        elif kind in ("put", "released"):
            life.releases += kind == "released"
            if kind == "released":
                _, life.priority, life.delay_s = command.numbers
            life.state = "delayed" if life.delay_s else "ready"
            life.ends_at_us = now_us + life.delay_s * SECOND_US
        elif kind == "touched":
            life.ends_at_us = now_us + life.ttr_s * SECOND_US
        elif kind == "buried":
            life.state, life.priority = "buried", command.numbers[1]
            life.buries += 1
        elif kind == "kicked":
            if before not in ("buried", "delayed") or (
                command.verb == "kick" and command.used != life.tube
            ):
                self.findings.append(f"{command} cannot kick {event}")
            life.state = "ready"
            life.kicks += 1
        elif kind == "deleted":
            if before == "reserved" and who != life.holder:
                self.findings.append(f"deleted from the hands of {life.holder}: {event}")
            life.state = "gone"

    def _reserve(
        self, life: Life, event: Event, command: Command, expected: dict[str, Any]
    ) -> None:
        by_id = command.verb == "reserve-job"
        if life.state == "ready":
            assert life.ready_at_us is not None
            expected["wait_us"] = event.time_us - life.ready_at_us
        elif not by_id or life.state == "reserved":
            self.findings.append(f"{command} cannot reserve {event}")
        if not by_id and life.tube not in command.watched:
            self.findings.append(f"not watched: {command} {event}")
        if command.reply and command.payload != life.body:
            self.findings.append(f"another body: {command} {event}")
        life.attempt += 1
        life.holder = event.node, event.incarnation, event.session
        life.state, life.reserved_at_us = "reserved", event.time_us
        life.ends_at_us = event.time_us + life.ttr_s * SECOND_US

    def _by_itself(self, life: Life, event: Event, expected: dict[str, Any]) -> None:
        """Apply the passing of time or the end of a connection, and check that it was due."""
        kind, before = event.event, life.state
        allowed = {"due": "delayed", "timed_out": "reserved", "returned": "reserved"}
        if allowed.get(kind) != before:
            self.findings.append(f"nobody did this: {event}")
        life.state = "ready"
        self.counts[f"{kind} {event.reason or ''}".strip()] += 1
        if kind == "returned":
            expected["reason"] = event.reason
            self._lost(life, event)
            return
        if event.time_us < life.ends_at_us:
            self.findings.append(f"{life.ends_at_us - event.time_us} us too early: {event}")
        if kind == "due":
            expected |= {"protocol": None, "node": None, "incarnation": None, "session": None}
            return
        expected["reason"] = "ttr"
        life.timeouts += 1
        self._holder_lost(life, event)

    def _holder_lost(self, life: Life, event: Event) -> Connection | None:
        """Check that an event names the session that lost the job, and return its connection."""
        if event.who is None or event.who != life.holder:
            self.findings.append(f"{event} names not {life.holder}")
            return None
        found = self._matched.connections.get(event.who)
        if not found:
            self.findings.append(f"a session without a connection: {event}")
        return found

    def _lost(self, life: Life, event: Event) -> None:
        """Check that the worker of a returned job had left, and that the reason fits."""
        connection = self._holder_lost(life, event)
        if not connection:
            return
        killed_us = min(
            (
                at_us
                for number, (at_us, node) in enumerate(self._book.kills)
                if node == connection.node and life_of(self._book, number) == connection.life
            ),
            default=None,
        )
        was_killed = killed_us is not None and killed_us <= event.wall_time
        has_gone = connection.end != "" and connection.ended_us <= event.wall_time
        allowed = {
            "connection_lost": has_gone and connection.end != "lost",
            "nobody_waiting": has_gone or was_killed,
            "node_down": was_killed,
        }
        if not allowed.get(event.reason or ""):
            self.findings.append(f"{connection.end} {connection.ended_us} and yet {event}")


def born(command: Command) -> Life:
    """Return the job of a put before its first event. A TTR of 0 is raised to 1."""
    priority, delay_s, ttr_s, _ = command.numbers
    return Life(command.used, priority, delay_s, max(ttr_s, 1), command.body)


def life_of(book: Book, number: int) -> int:
    """Return the life of its node, from 1, that the kill with this number ended."""
    node = book.kills[number][1]
    return sum(1 for _, other in book.kills[: number + 1] if other == node)
