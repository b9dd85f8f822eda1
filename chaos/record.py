"""The records of a soak's clients: commands and replies, one line of JSON for each command.

Each client has a file, with its commands in order. Times are seconds of CLOCK_MONOTONIC, which all
processes of a machine share. `checks` judges the records.
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
# A change of the tubes that the client watches and uses.
TUBES: Final = "tubes"
# A command that changes nothing: peeks, statistics, lists.
LOOK: Final = "look"
# Not a command either: the connection failed, or its first commands got no answer.
CONNECT: Final = "connect"
# Not a command: from here on the client knows nothing of its reserved jobs.
LEFT: Final = "left"

UNKNOWN: Final = "unknown"  # the connection ended before the reply
SILENT: Final = "silent"  # no reply within the client's patience
GARBLED: Final = "garbled"  # a reply that violates the protocol, or a corrupt body
FILL: Final = b"."
# Commands whose first argument is a job.
NAMING: Final = ("peek ", "stats-job ", "reserve-job ", "kick-job ")
# A TTR counts from the commit of its reservation in cluster time, which may run a little ahead of
# the clients' clocks; docs/consistency.md demands the same second of workers.
TTR_MARGIN_S: Final = 1.0
# After a client closed its connection without a reply, its session may live on at its node and its
# command may still take effect, until keepalives or the TCP timeout end the session (110 s, 120 s)
# or the node is declared down (8 s).
LINGER_S: Final = 130.0


class Op(NamedTuple):
    """One command of one client.

    `job` is the id in the command or in its reply; 0 if there is none. `body` is the head of the
    body without its padding. `line` is the first line that was sent, `tube` the tube that the
    client used then; both are empty in files from before they were recorded.
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
    """Return the unique head of a body."""
    return f"{client}/{count}/{ttr_s}/{size}/"


def make_body(head: str) -> bytes:
    """Return the whole body: the head, padded to the size that it contains."""
    return head.encode().ljust(int(head.split("/")[3]), FILL)


def read_body(body: bytes) -> str | None:
    """Return the head of a body; None if any byte is corrupt."""
    head = body.rstrip(FILL).decode("ascii", "replace")
    parts = head.split("/")
    if len(parts) != 5 or not all(part.isdecimal() for part in parts[:4]):
        return None
    return head if make_body(head) == body else None


def ttr_of(head: str) -> int:
    """Return the TTR in seconds with which a job was put."""
    return int(head.split("/")[2])


def is_unknown(op: Op) -> bool:
    """Whether a command may have taken effect at an unknown time."""
    return op.outcome in (UNKNOWN, SILENT, GARBLED)


def job_named(op: Op) -> int:
    """Return the job that a command or its reply names; 0 for none."""
    if op.job or not op.line.startswith(NAMING):
        return op.job
    return int(op.line.split()[1])


def jobs_by_body(clients: Iterable[Iterable[Op]]) -> dict[str, int]:
    """Return the job's id for each body whose put was answered, or which was delivered."""
    return {
        op.body: op.job
        for ops in clients
        for op in ops
        if op.outcome in ("INSERTED", "RESERVED") and op.job
    }


class Writer:
    """The file of one client."""

    def __init__(self, directory: Path, client: int) -> None:
        # Line-buffered, so that clients that are killed leave complete records.
        path = directory / f"client-{client:03d}.jsonl"
        self._file: TextIO = path.open("w", buffering=1)

    def write(self, op: Op) -> None:
        self._file.write(json.dumps(op) + "\n")

    def close(self) -> None:
        self._file.close()


def read(directory: Path) -> Iterator[list[Op]]:
    """Yield the commands of each client in turn."""
    for path in sorted(directory.glob("client-*.jsonl")):
        with path.open() as file:
            yield [Op(*json.loads(line)) for line in file]
