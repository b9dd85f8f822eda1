"""The inputs and outputs that a client may ask for, one after the other.

A command is a generator: it yields one of these, gets the answer sent in (an OSError is thrown in),
and returns its result. `blocking` and `aio` each have a loop that does them.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar


class Endpoint(NamedTuple):
    """Where a node listens: an address and a port, or the path of a UNIX socket and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Resolve(NamedTuple):
    """Look up a name; the answer is a list of `Endpoint`, one for each address."""

    host: str
    port: int


class Connect(NamedTuple):
    """Connect, in place of the connection there was."""

    endpoint: Endpoint
    timeout_s: float


class Probe(NamedTuple):
    """Connect beside the connection there is, and close that at once: does somebody listen?"""

    endpoint: Endpoint
    timeout_s: float


class Send(NamedTuple):
    """Send all of these bytes; they may take so long."""

    data: bytes
    timeout_s: float


class Receive(NamedTuple):
    """Wait so long for bytes, which are the answer; none when the node closed the connection."""

    timeout_s: float


class IsGone(NamedTuple):
    """The answer is whether the node has closed the connection, as far as is known by now."""


class Close(NamedTuple):
    """Close the connection."""


class Pause(NamedTuple):
    """Do nothing for a while."""

    seconds: float


Step: TypeAlias = Resolve | Connect | Probe | Send | Receive | IsGone | Close | Pause
_Result = TypeVar("_Result")
# The answers are of several types, so they are checked where they are used.
Steps: TypeAlias = Generator[Step, Any, _Result]
