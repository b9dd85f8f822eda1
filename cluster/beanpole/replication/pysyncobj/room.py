"""Account for free disk space: when to refuse puts, when a snapshot fits, when the log must stop.

While puts are refused, all other commands continue. The log that they write must fit until the next
snapshot allows it to be cut, and that snapshot must fit as well. So puts are refused while there is
still room for a snapshot, for the log written before and during it, and for the part of the log
that remains after the cut. The writes themselves are decided elsewhere.
"""

from typing import Final

from beanpole.replication.consensus import ENTRY_MAX_BYTES, MIB, Callbacks, DiskRoom, ReplicaConfig
from beanpole.storage.ballast import BALLAST_BYTES, Ballast
from beanpole.storage.files import Files
from beanpole.storage.wal import Wal

# The period of the queries of free space (2 us each). A client writes a megabyte in this time.
LOOK_PERIOD_S: Final = 0.01
# The free space below which the log stops: room for the largest entry, and for small files.
LOG_ROOM_BYTES: Final = ENTRY_MAX_BYTES + MIB
# The free space below which the ballast is released.
BALLAST_ROOM_BYTES: Final = LOG_ROOM_BYTES + MIB
# While a snapshot is made the log grows by a fourth of its size: 2 to 4 MB/s against 20 MB/s or
# more.
GROWTH_DIVISOR: Final = 4
# The allowed error of an estimate.
ERROR_DIVISOR: Final = 8
# The part of the log before a snapshot that is kept while room is scarce, for members that are a
# few entries behind.
LOW_RETAIN_BYTES: Final = MIB
# The period in which it is logged once that the free space is unknown.
UNKNOWN_PERIOD_S: Final = 60.0
# The delay before the ballast is tried again after the disk refused it.
BALLAST_PERIOD_S: Final = 10.0


class Room:
    """The free disk space of one replica.

    Attributes:
        low: whether puts must be refused.
        free_bytes: the free space as last measured, less the bytes that the log has yet to write.
        reserve_bytes: the free space below which puts are refused.
        growth_bytes: the size of the log at which a snapshot is worthwhile while room is scarce.
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
        self._log_end_max = 2**64  # the position at which the log must stop
        self._was_full = False
        self._look_s = -1e9
        self._has_measured = False
        self._unknown_s = -1e9  # when it may be logged again that the free space is unknown
        self._ballast_s = -1e9

    def look(self, now_s: float) -> None:
        """Measure the free space, if a measurement is due, and act on the result.

        Raises:
            OSError: the first measurement failed, at the start.
        """
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_PERIOD_S
        self._measure(now_s)
        if self.free_bytes < BALLAST_ROOM_BYTES and self.ballast.release():
            self._callbacks.log(
                f"{self.free_bytes} bytes are free: the ballast of {self.ballast.size} is given up"
            )
            self._ballast_s = now_s + BALLAST_PERIOD_S
            self._measure(now_s)
        elif (
            not self.low
            and not self.ballast.there
            and now_s >= self._ballast_s
            and self.free_bytes >= self.reserve_bytes + self.ballast.size
        ):
            self._ballast_s = now_s + BALLAST_PERIOD_S
            self.ballast.restore()
        self._judge()

    def _measure(self, now_s: float) -> None:
        """Measure the free space. If the disk does not tell it, the last measurement stands.

        A query may fail in passing (a network's file system, a kernel without memory), and the log
        stops at the position that was measured before. A disk that fails ends the node by a write.
        """
        wal, config = self._wal, self._config
        try:
            free = self._files.free_bytes(config.directory) - (wal.end - wal.durable)
        except OSError as error:
            if not self._has_measured:
                raise
            if now_s >= self._unknown_s:
                self._unknown_s = now_s + UNKNOWN_PERIOD_S
                self._callbacks.log(
                    f"the free space of {config.directory} is unknown: {error}; "
                    f"{self.free_bytes} bytes were free"
                )
            return
        self._has_measured = True
        self.free_bytes = max(0, free)
        self._log_end_max = wal.end + free - LOG_ROOM_BYTES
        self._estimate = self._callbacks.image_bytes()
        self.growth_bytes = max(config.segment_bytes, self._estimate // GROWTH_DIVISOR)

    def _judge(self) -> None:
        """Update `low` and `reserve_bytes`, and log each change of `low` and `full`."""
        config, log = self._config, self._callbacks.log
        # A snapshot; the log written until one is worthwhile, and while it is made; the current
        # segment, which is not cut; the room that the log keeps free; and the entries kept before
        # the snapshot.
        needed = (
            self._estimate
            + 2 * self.growth_bytes
            + config.segment_bytes
            + LOG_ROOM_BYTES
            + LOW_RETAIN_BYTES
        )
        self.reserve_bytes = reserve = max(config.disk_reserve_bytes, needed)
        # Hysteresis: without it, the refusal of puts would begin and end with every few puts, or
        # with every file of another program. Not an eighth of the setting, which may be most of the
        # disk.
        bar = reserve + needed // ERROR_DIVISOR
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
        """Whether a snapshot would free enough space to be worthwhile while room is scarce.

        Args:
            kept_bytes: the size of the previous snapshot and of the log after it.
        """
        return kept_bytes - self._estimate >= self.growth_bytes

    def figures(self) -> DiskRoom:
        """Return the figures that the node reports."""
        needs = self.snapshot_needs_bytes
        return DiskRoom(self.free_bytes, self.reserve_bytes, self.low, self.full, needs)
