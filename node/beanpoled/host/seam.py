"""The interface between the node's logic and the outside world. No implementation belongs here.

The node's logic (`turn`, `leading`, `origin`, `frontends`, `replication`) is synchronous callbacks,
which run in one loop, one at a time. The other side of the interface is asyncio, threads and gRPC
(`aio`), or a deterministic simulator. The disk has an interface of its own, `storage.files.Files`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from beanpole.replication.consensus import Sink
from beanpole.storage.files import Files
from beanpoled.eventlog.events import EventBatch, Events

# The levels of log lines. Only the line with which a node ends is an error: a condition under which
# the node continues is a warning if an operator may have to act.
DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40

# The last line of a node that does not wait for its disk. Everything that it acknowledged was
# synced before by a majority, so that it ends as by a loss of power: it loses nothing that it
# promised.
UNSYNCED: Final = "stopped without a last sync, because the disk hangs"


class Log(Protocol):
    """Writes one line for the operator."""

    def __call__(self, line: str, level: int = INFO) -> None: ...


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """Cancel the call. Idempotent, and a no-op after the call."""


class ClientPort(Protocol):
    """The outer side of one client's connection.

    Attributes:
        client_host: the client's host, as its events name it (`addresses.host_name`); empty if
            unknown.
        client_names: the DNS names in its certificate, if it has shown one that was verified.
        certificate: the name by which the audit log shows that certificate; empty for none.
    """

    client_host: bytes
    client_names: tuple[bytes, ...]
    certificate: str

    @property
    def unsent_bytes(self) -> int:
        """The size of the buffered output."""

    def write(self, data: bytes) -> None:
        """Send; never blocks. Bytes that the client does not read yet are buffered."""

    def close(self) -> None:
        """Close once everything written has been sent."""

    def abort(self) -> None:
        """Close now; what was not sent is dropped."""

    def pause_reading(self) -> None:
        """Take no more bytes from the client. Idempotent."""

    def resume_reading(self) -> None:
        """Take bytes from the client again."""


class ProcessStats(NamedTuple):
    """Facts about the process and its machine, for `stats`."""

    pid: int
    user_s: float
    system_s: float
    hostname: bytes
    system: bytes
    platform: bytes


class Host(Protocol):
    """The outside world as a node uses it."""

    @property
    def files(self) -> Files:
        """The disk."""

    def now_us(self) -> int:
        """Return monotonic microseconds."""

    def wall_us(self) -> int:
        """Return the wall clock: microseconds since 1970, as this machine believes."""

    def random(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call at the end of this step of the loop, after the pending input."""

    def take_turn(self, turn: Callable[[], None]) -> None:
        """Run a turn now; the frames that it sends leave at its end, or by `flush_peers`."""

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Call once, `delay_us` from now or a little later."""

    def send_peer(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a frame on the current link to a member; return False if it was not accepted."""

    def link_words(self, peer: str) -> str:
        """Describe why there is no link to a member, as far as known, or that there is one."""

    def flush_peers(self) -> None:
        """Send the frames of this turn now; otherwise they leave at its end."""

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Stream the peer's snapshot at `index` into `sink`, then call done (see `Callbacks`)."""

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        """Convert events into batches for readers; called outside the loop.

        The work may be spread over `within_us`.
        """

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """Return the first offset of a batch at or after a wall time; called outside the loop."""

    def open_clients(self, protocol: str) -> None:
        """Accept clients of a protocol from now on. Idempotent."""

    def close_clients(self) -> None:
        """Accept no clients of any protocol; existing connections stay. Idempotent."""

    def log(self, line: str, level: int = INFO) -> None:
        """Log a line for the operator: start, stop, leader change, snapshot. Never one per job."""

    def process(self) -> ProcessStats:
        """Return facts about this process."""

    def exit(self, close: Callable[[], None] | None = None, words: str = "stopped") -> None:
        """Close everything and end the process with status 0.

        If the disk does not finish within some seconds, the process ends as by `abandon`.

        Args:
            close: closes what writes to the disk, and may wait for it; called before this returns.
            words: the last line of the log, when everything is written and closed.
        """

    def watch_disk(self, is_on: bool) -> None:
        """From now on, end the process as by `abandon` if the disk blocks the loop for seconds.

        For the parts of a stop in which the loop itself waits for the disk, and does nothing else
        that takes as long.
        """

    def abandon(self) -> None:
        """Log UNSYNCED and end the process with status 0, without waiting for the disk."""

    def fatal(self, reason: str) -> None:
        """Log the reason in one line and end the process with a non-zero status."""
