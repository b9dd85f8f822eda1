"""The interface between a client program and the test that runs it: see tests/clients/README.md.

Nothing of the Gearman protocol belongs here, and nothing of one library.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.integration.support.waiting import wait_until

# A worker's limit for the file that lets a job end; the test creates the file much sooner.
GATE_TIMEOUT_S: Final = 60.0


class Arguments(NamedTuple):
    """The command line of a program.

    Attributes:
        role: "worker" or "client".
        servers: the servers' addresses; libraries for a single server take the first.
        last: a worker's name, or a client's request as JSON.
    """

    role: str
    servers: list[str]
    last: str

    @property
    def first(self) -> tuple[str, int]:
        """Host and port of the first server."""
        host, _, port = self.servers[0].rpartition(":")
        return host, int(port)

    def request(self) -> dict[str, Any]:
        """Return the client's request."""
        found: dict[str, Any] = json.loads(self.last)
        return found


def arguments() -> Arguments:
    """Return the command line."""
    role, servers, last = sys.argv[1:]
    return Arguments(role, servers.split(","), last)


def tell(*event: object) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def note(payload: str) -> str:
    """Append the payload's text to the payload's file; return the text."""
    path, _, text = payload.rstrip("\0").partition(" ")
    with Path(path).open("a") as file:
        file.write(text + "\n")
    return text


def wait_for_gate(payload: str) -> str:
    """Wait for the file that the payload names."""
    wait_until(Path(payload).exists, GATE_TIMEOUT_S, payload)
    return "opened"


class Failed(Exception):
    """Raised by a function to make its job fail."""


class Thrown(Exception):
    """Raised by a function to end its job with this exception."""


def fail(_: str) -> str:
    """Make the job fail."""
    raise Failed


def throw(payload: str) -> str:
    """End the job with an exception."""
    raise Thrown(f"thrown:{payload}")


# The functions that need only the payload.
SIMPLE: Final[dict[str, Callable[[str], str]]] = {
    "reverse": lambda payload: payload[::-1],
    "note": note,
    "fail": fail,
    "throw": throw,
}
