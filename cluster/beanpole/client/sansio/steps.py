"""The I/O steps of a client.

A command is a generator: it yields a step, receives the answer by `send` (or an OSError by
`throw`), and returns its result. `blocking` and `aio` each have a loop that performs the steps.
"""

from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

# The most bytes that one `Receive` answers.
RECEIVE_BYTES: Final = 65536


class Endpoint(NamedTuple):
    """The address of a listening node: host and port, or the path of a UNIX socket and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Resolve(NamedTuple):
    """Resolve a host name; the answer is a list of `Endpoint`, one for each address."""

    host: str
    port: int


class Connect(NamedTuple):
    """Connect, and replace the present connection."""

    endpoint: Endpoint
    timeout_s: float


class Probe(NamedTuple):
    """Test whether a node answers: ask it on a second connection, and close that.

    The answer is the beginning of the reply; empty if the node has closed the connection.
    """

    endpoint: Endpoint
    timeout_s: float
    request: bytes


class Send(NamedTuple):
    """Send all of these bytes within `timeout_s`."""

    data: bytes
    timeout_s: float


class Receive(NamedTuple):
    """Wait for bytes and answer them; empty when the node has closed the connection."""

    timeout_s: float


class IsGone(NamedTuple):
    """Answer whether the node is known to have closed the connection, without waiting."""


class Close(NamedTuple):
    """Close the connection."""


class Pause(NamedTuple):
    """Sleep."""

    seconds: float


Step: TypeAlias = Resolve | Connect | Probe | Send | Receive | IsGone | Close | Pause
_Result = TypeVar("_Result")
# The answers have several types, so each is checked where it is used.
Steps: TypeAlias = Generator[Step, Any, _Result]


def skip(steps: Steps[Any]) -> None:
    """Begin steps and end them at once: they clean up their state, and no step is performed."""
    next(steps, None)
    steps.close()
