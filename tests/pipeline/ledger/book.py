"""The ledger: each command that a client sent, with its reply and the times of both.

It knows nothing of events and judges nothing. Times are microseconds of this machine's wall clock,
which the nodes share.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# The event that a reply with this first word confirms.
EFFECTS: Final = {
    "INSERTED": "put",
    "RESERVED": "reserved",
    "RELEASED": "released",
    "BURIED": "buried",
    "TOUCHED": "touched",
    "KICKED": "kicked",
    "DELETED": "deleted",
}


def now_us() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class Command:
    """One command on one connection.

    Attributes:
        verb: the command's first word.
        numbers: its numeric arguments.
        body: the body of a put.
        used: the tube that the connection used at that time.
        watched: the tubes that the connection watched at that time.
        reply: the words of the reply; empty if the connection ended before it.
        payload: the payload after the reply's line.
    """

    connection: int
    verb: str
    line: str
    numbers: tuple[int, ...]
    body: bytes
    used: str
    watched: frozenset[str]
    sent_us: int
    reply: tuple[str, ...] = ()
    payload: bytes = b""
    received_us: int = 0

    @property
    def effect(self) -> str:
        """The kind of the events that the reply confirms, or an empty string."""
        found = EFFECTS.get(self.reply[0], "") if self.reply else ""
        return "" if self.verb.startswith(("peek", "stats")) else found

    @property
    def jobs(self) -> list[int | None]:
        """The job of each event that the reply confirms; None if the reply does not name it."""
        if not self.effect:
            return []
        if self.effect in ("put", "reserved"):
            return [int(self.reply[1])]
        if self.verb == "kick":
            return [None] * int(self.reply[1])
        return [self.numbers[0]]

    @property
    def possible(self) -> str:
        """The kind of the event that the command would cause if it took effect."""
        return POSSIBLE.get(self.verb, "")


POSSIBLE: Final = {
    "put": "put",
    "reserve": "reserved",
    "reserve-with-timeout": "reserved",
    "reserve-job": "reserved",
    "release": "released",
    "bury": "buried",
    "touch": "touched",
    "kick": "kicked",
    "kick-job": "kicked",
    "delete": "deleted",
}


@dataclass(slots=True)
class Connection:
    """One connection and how it ended.

    Attributes:
        node: the number of the node.
        life: the number of starts of that node, from 1.
        host: the client's address.
        end: `closed` or `quit` by the client, `lost`, or empty while the connection is open.
        ended_us: the time just before the client closed it, or at which it noticed the loss.
    """

    number: int
    node: int
    life: int
    host: str
    opened_us: int
    end: str = ""
    ended_us: int = 0
    commands: list[Command] = field(default_factory=list)


@dataclass(slots=True)
class Burst:
    """Jobs that all passed through the same states together, in a separate tube."""

    tube: str
    jobs: int
    states: tuple[str, ...]
    began_us: int
    ended_us: int = 0


class Book:
    """The record of all clients of one run."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.bursts: list[Burst] = []
        self.kills: list[tuple[int, int]] = []  # (wall time in microseconds, node)
        self.lives = [1, 1, 1]
        self.sent = 0
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def opened(self, node: int, host: str) -> Connection:
        found = Connection(len(self.connections), node, self.lives[node], host, now_us())
        self.connections.append(found)
        return found

    def note(self, command: Command) -> None:
        """Record a command that is about to be sent."""
        self.connections[command.connection].commands.append(command)
        self.sent += 1
        while self._waiting and self._waiting[0][0] <= self.sent:
            self._waiting.pop(0)[1].set()

    async def reached(self, commands: int) -> None:
        """Wait until this number of commands has been sent."""
        if self.sent < commands:
            event = asyncio.Event()
            self._waiting = sorted([*self._waiting, (commands, event)], key=lambda item: item[0])
            await event.wait()

    def save(self, path: Path) -> None:
        """Write the ledger in a readable form, one command a line."""
        with path.open("w") as file:
            for connection in self.connections:
                head = (connection.number, connection.node, connection.life, connection.host)
                for command in connection.commands:
                    reply = " ".join(command.reply)
                    times = (command.sent_us, command.received_us)
                    file.write(json.dumps([*head, *times, command.line, reply]) + "\n")
                end = (connection.ended_us, connection.end)
                file.write(json.dumps([*head, *end]) + "\n")
