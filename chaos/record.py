"""What the clients of a soak did and saw, as files: one line of JSON for each command.

One file belongs to one client, and its lines are in the order in which it acted. Times are seconds
of CLOCK_MONOTONIC, which all processes of one machine share. Judging is the business of `checks`.
"""

import json
from collections.abc import Iterator
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


class Op(NamedTuple):
    """One command of one client.

    `job` is the id that the command named, or that its reply named; 0 if there is none. `body` is
    the head of the body without what fills it up.
    """

    client: int
    node: int
    kind: str
    sent_s: float
    done_s: float
    job: int
    outcome: str
    body: str


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
