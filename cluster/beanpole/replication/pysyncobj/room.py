"""The room on the disk: when puts must end, when a snapshot fits, when the log can not grow.

The accounts: while puts are refused, everything else goes on, and its log must fit until the next
snapshot lets the log be cut, which must fit beside it. So puts end while there is still room for a
snapshot, for the log that comes before and during it, and for what cutting the log leaves behind.
What is written, and when, is decided elsewhere.
"""

from typing import Final

from beanpole.replication.consensus import ENTRY_MAX_BYTES, MIB, Callbacks, DiskRoom, ReplicaConfig
from beanpole.storage.ballast import BALLAST_BYTES, Ballast
from beanpole.storage.files import Files
from beanpole.storage.wal import Wal

# How often the system is asked (2 us). A client fills a megabyte in this time.
LOOK_PERIOD_S: Final = 0.01
# Below this the log takes nothing more: the largest entry would fit, and small files beside it.
LOG_ROOM_BYTES: Final = ENTRY_MAX_BYTES + MIB
# With less than this the ballast is given up.
BALLAST_ROOM_BYTES: Final = LOG_ROOM_BYTES + MIB
# The log grows by a fourth of a snapshot while one is made: 2 to 4 MB/s beside 20 MB/s or more.
GROWTH_DIVISOR: Final = 4
# The error that an estimate may have.
ERROR_DIVISOR: Final = 8
# Kept of the log before a snapshot while room is scarce, for members that are a few entries behind.
LOW_RETAIN_BYTES: Final = MIB
# Ballast is tried again after this if the disk refused it.
BALLAST_PERIOD_S: Final = 10.0


class Room:
    """The room that the disk has left for one replica.

    Attributes:
        low: puts must be refused.
        free_bytes: when it was last looked at, without what the log has yet to write.
        reserve_bytes: below it puts end.
        growth_bytes: how much of the log makes a snapshot worth its writing while room is scarce.
    """

    def __init__(self, config: ReplicaConfig, callbacks: Callbacks, wal: Wal, files: Files) -> None:
        self.low = False
        self.free_bytes = 0
        self.reserve_bytes = config.disk_reserve_bytes
        self.growth_bytes = config.segment_bytes
        self.ballast = Ballast(
            files, config.directory, min(BALLAST_BYTES, config.disk_reserve_bytes)
        )
        self._config = config
        self._callbacks = callbacks
        self._wal = wal
        self._files = files
        self._estimate = 0
        self._log_end_max = 2**64  # where the log must stop if nothing changes
        self._was_full = False
        self._look_s = -1e9
        self._ballast_s = -1e9

    def look(self, now_s: float) -> None:
        """Ask the system, if it is time, and act on it."""
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_PERIOD_S
        self._measure()
        if self.free_bytes < BALLAST_ROOM_BYTES and self.ballast.release():
            self._callbacks.log(
                f"{self.free_bytes} bytes are free: the ballast of {self.ballast.size} is given up"
            )
            self._ballast_s = now_s + BALLAST_PERIOD_S
            self._measure()
        elif (
            not self.low
            and not self.ballast.there
            and now_s >= self._ballast_s
            and self.free_bytes >= self.reserve_bytes + self.ballast.size
        ):
            self._ballast_s = now_s + BALLAST_PERIOD_S
            self.ballast.restore()
        self._judge()

    def _measure(self) -> None:
        wal, config = self._wal, self._config
        free = self._files.free_bytes(config.directory) - (wal.end - wal.durable)
        self.free_bytes = max(0, free)
        self._log_end_max = wal.end + free - LOG_ROOM_BYTES
        self._estimate = self._callbacks.image_bytes()
        self.growth_bytes = max(config.segment_bytes, self._estimate // GROWTH_DIVISOR)

    def _judge(self) -> None:
        """Say what became scarce, or plenty."""
        config, log = self._config, self._callbacks.log
        # A snapshot; the log before it is worth one, and while it is made; the segment that is
        # written, which is not cut; and what stands before the snapshot.
        needed = (
            self._estimate
            + 2 * self.growth_bytes
            + config.segment_bytes
            + LOG_ROOM_BYTES
            + LOW_RETAIN_BYTES
        )
        self.reserve_bytes = reserve = max(config.disk_reserve_bytes, needed)
        # More to end it than to begin it: else it would begin and end with every few puts.
        bar = max(config.disk_reserve_bytes, needed + needed // ERROR_DIVISOR)
        low = self.free_bytes < (bar if self.low else reserve)
        if low != self.low:
            self.low = low
            words = "below" if low else "above"
            what = "disk_reserve_bytes" if reserve > needed else "what the next snapshot needs"
            log(f"{self.free_bytes} bytes are free, {words} the reserve of {reserve}: {what}")
        if self.full != self._was_full:
            self._was_full = self.full
            if self.full:
                log(
                    f"the disk is full ({self.free_bytes} bytes are free): the log takes nothing "
                    f"more until there are {LOG_ROOM_BYTES}; make room"
                )
            else:
                log(f"{self.free_bytes} bytes are free: the log goes on")

    @property
    def full(self) -> bool:
        """Whether the log must not grow: a write that fails would end the node."""
        return self._wal.end > self._log_end_max

    @property
    def snapshot_needs_bytes(self) -> int:
        """The bytes that must be free for a snapshot now."""
        return self._estimate + self._estimate // ERROR_DIVISOR + LOG_ROOM_BYTES

    def gains(self, kept_bytes: int) -> bool:
        """Whether a snapshot would free enough to be worth it while room is scarce.

        Args:
            kept_bytes: what the snapshot before and the log behind it take.
        """
        return kept_bytes - self._estimate >= self.growth_bytes

    def figures(self) -> DiskRoom:
        """Return what the node tells of it."""
        return DiskRoom(self.free_bytes, self.reserve_bytes, self.low, self.full)
