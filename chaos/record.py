"""What the clients of a soak did and saw, as files: one line of JSON for each command.

One file belongs to one client, and its lines are in the order in which it acted. Times are seconds
of CLOCK_MONOTONIC, which all processes of one machine share. Judging is the business of `checks`.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TextIO

PUT: Final = "put"
RESERVE: Final = "reserve"
DELETE: Final = "delete"
RELEASE: Final = "release"
BURY: Final = "bury"
TOUCH: Final = "touch"
KICK: Final = "kick"
PAUSE: Final = "pause"
# Which tubes the client watches and uses.
TUBES: Final = "tubes"
# A command that changes nothing: peeks, statistics, lists.
LOOK: Final = "look"
# Not a command either: no connection could be made, or its first commands were not answered.
CONNECT: Final = "connect"
# Not a command: from here on the client knows nothing of the jobs it had reserved.
LEFT: Final = "left"

UNKNOWN: Final = "unknown"  # the connection ended before the reply
SILENT: Final = "silent"  # no reply within the client's patience
GARBLED: Final = "garbled"  # a reply that the protocol does not know, or a spoilt body
FILL: Final = b"."
# Commands whose first word behind the name is a job.
NAMING: Final = ("peek ", "stats-job ", "reserve-job ", "kick-job ")
# A TTR counts from the commit of its reservation in cluster time, which may run a little ahead of
# the clients' clocks; docs/consistency.md asks workers for the same second.
TTR_MARGIN_S: Final = 1.0
# After a client closed its connection without a reply, the session may live on at its node, and
# its command may still take effect: until keepalives or the TCP timeout end it (110 s, 120 s), or
# the node is declared down (8 s).
LINGER_S: Final = 130.0


class Op(NamedTuple):
    """One command of one client.

    `job` is the id that the command named, or that its reply named; 0 if there is none. `body` is
    the head of the body without what fills it up. `line` is the first line that was sent, `tube`
    the one that the client used then; both are empty in files of before they were kept.
    """

    client: int
    node: int
    kind: str
    sent_s: float
    done_s: float
    job: int
    outcome: str
    body: str
    line: str = ""
    tube: str = ""


def make_head(client: int, count: int, ttr_s: int, size: int) -> str:
    """Return the head of a body that is used once only."""
    return f"{client}/{count}/{ttr_s}/{size}/"


def make_body(head: str) -> bytes:
    """Return the whole body: the head, filled up to the size that it names."""
    return head.encode().ljust(int(head.split("/")[3]), FILL)


def read_body(body: bytes) -> str | None:
    """Return the head of a body; None if not every byte is as it was put."""
    head = body.rstrip(FILL).decode("ascii", "replace")
    parts = head.split("/")
    if len(parts) != 5 or not all(part.isdecimal() for part in parts[:4]):
        return None
    return head if make_body(head) == body else None


def ttr_of(head: str) -> int:
    """Return the TTR in seconds with which a job was put."""
    return int(head.split("/")[2])


def is_unknown(op: Op) -> bool:
    """Whether a command may have been done, and nobody knows when."""
    return op.outcome in (UNKNOWN, SILENT, GARBLED)


def job_named(op: Op) -> int:
    """Return the job that a command or its reply names; 0 if there is none."""
    if op.job or not op.line.startswith(NAMING):
        return op.job
    return int(op.line.split()[1])


def jobs_by_body(clients: Iterable[Iterable[Op]]) -> dict[str, int]:
    """Return the id of the job of each body whose put was answered, or which was delivered."""
    return {
        op.body: op.job
        for ops in clients
        for op in ops
        if op.outcome in ("INSERTED", "RESERVED") and op.job
    }


class Writer:
    """The file of one client."""

    def __init__(self, directory: Path, client: int) -> None:
        # Line by line, so that clients which are killed leave all that they have seen.
        path = directory / f"client-{client:03d}.jsonl"
        self._file: TextIO = path.open("w", buffering=1)

    def write(self, op: Op) -> None:
        self._file.write(json.dumps(op) + "\n")

    def close(self) -> None:
        self._file.close()


def read(directory: Path) -> Iterator[list[Op]]:
    """Return the commands of one client after the other."""
    for path in sorted(directory.glob("client-*.jsonl")):
        with path.open() as file:
            yield [Op(*json.loads(line)) for line in file]
