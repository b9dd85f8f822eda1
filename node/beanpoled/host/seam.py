"""The one seam between the node's logic and the world.

Everything above it (sessions, outbox, leader, waiters, ticker, replication driver) is synchronous
callbacks; everything below it is asyncio, threads and gRPC (`aio`), or a deterministic simulator.
All callbacks run in one loop, one at a time.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from beanpole.replication.consensus import Sink
from beanpole.storage.files import Files
from beanpoled.eventlog.events import EventBatch, Events

# The weights of lines in the log. Only the line with which a node ends is an error: what it can go
# on with is a warning if an operator may have to act.
DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40


class Log(Protocol):
    """Writes one line for the operator."""

    def __call__(self, line: str, level: int = INFO) -> None: ...


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make the call. Cancelling twice, or after the call, does no harm."""


class ClientPort(Protocol):
    """The outer side of one client's connection.

    Attributes:
        client_host: where the client is, as its events name it (`addresses.host_name`); empty if
            nobody knows.
        client_names: the names in its certificate, if it has shown one that was checked.
    """

    client_host: bytes
    client_names: tuple[bytes, ...]

    def write(self, data: bytes) -> None:
        """Send; never blocks. Bytes that the client does not read yet are buffered."""

    def close(self) -> None:
        """Close once everything written has been sent."""

    def abort(self) -> None:
        """Close now; what was not sent is dropped."""

    def pause_reading(self) -> None:
        """Take no more bytes from the client. Pausing twice does no harm."""

    def resume_reading(self) -> None:
        """Take bytes from the client again."""


class ProcessStats(NamedTuple):
    """What `stats` tells about the process and its machine."""

    pid: int
    user_s: float
    system_s: float
    hostname: bytes
    system: bytes
    platform: bytes


class Host(Protocol):
    """The world as a node uses it."""

    @property
    def files(self) -> Files:
        """The disk."""

    def now_us(self) -> int:
        """Monotonic microseconds."""

    def wall_us(self) -> int:
        """Wall clock: microseconds since 1970, as this machine believes."""

    def random(self) -> float:
        """A number from 0 (inclusive) to 1 (exclusive)."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call at the end of this turn of the loop, after the input that is already there."""

    def take_turn(self, turn: Callable[[], None]) -> None:
        """Call now; the frames that are sent meanwhile leave at its end, or by `flush_peers`."""

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Call once, `delay_us` from now or a little later."""

    def send_peer(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a frame on the current link to a member; False if it was not taken."""

    def link_words(self, peer: str) -> str:
        """Why there is no link to a member, as far as this side can tell, or that there is one."""

    def flush_peers(self) -> None:
        """Let the frames of this turn leave now; without this they leave at its end."""

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Stream the peer's snapshot at `index` into `sink`, then call done (see `Callbacks`)."""

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        """Turn events into batches as readers get them; called away from the loop.

        It may spread the work over `within_us`.
        """

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """Return the first offset of a batch at or after a wall time; away from the loop, too."""

    def open_clients(self, protocol: str) -> None:
        """Accept clients of a protocol from now on. Opening twice does no harm."""

    def close_clients(self) -> None:
        """Accept no clients of any protocol; connections that exist stay. Twice does no harm."""

    def log(self, line: str, level: int = INFO) -> None:
        """One line for the operator: start, stop, leader change, snapshot. Never one per job."""

    def process(self) -> ProcessStats:
        """About this process."""

    def exit(self) -> None:
        """End the process with status 0; everything is written and closed."""

    def fatal(self, reason: str) -> None:
        """Say why in one line and end the process with a non-zero status."""
