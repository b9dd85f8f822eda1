"""Account for free disk space: when to refuse puts, when a snapshot fits, when the log must stop.

While puts are refused, all other commands continue. The log that they write must fit until the next
snapshot allows it to be cut, and that snapshot must fit as well. So puts are refused while there is
still room for a snapshot, for the log written before and during it, and for the part of the log
that remains after the cut. The writes themselves are decided elsewhere.
"""

from typing import Final

from beanpole.replication.consensus import ENTRY_MAX_BYTES, MIB, Callbacks, DiskRoom, ReplicaConfig
from beanpole.storage.ballast import BALLAST_BYTES, Ballast
from beanpole.storage.files import LANE_LOOK, Files, measure
from beanpole.storage.wal import Wal

# The period of the queries of free space. A client writes a megabyte in this time.
LOOK_PERIOD_S: Final = 0.01
# The period while there is much more room than is kept in reserve: a query by a thread costs some
# 100 us, and hardly a disk is filled with FAR_BYTES in this time.
FAR_PERIOD_S: Final = 0.1
FAR_BYTES: Final = 1024 * MIB
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
        free_bytes: the free space as last measured, less what the log has got since.
        reserve_bytes: the free space below which puts are refused.
        growth_bytes: the size of the log at which a snapshot is worthwhile while room is scarce.
        looking: whether a measurement is in progress.
        looks: the number of finished measurements, successful or not.
    """

    def __init__(self, config: ReplicaConfig, callbacks: Callbacks, wal: Wal, files: Files) -> None:
        self.low = False
        self.free_bytes = 0
        self.looking = False
        self.looks = 0
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
        self._unknown_s = -1e9  # when it may be logged again that the free space is unknown
        self._ballast_s = -1e9

    def begin(self, now_s: float) -> None:
        """Measure the free space at the start, in the loop.

        Raises:
            OSError: the disk does not tell it.
        """
        self._look_s = now_s + LOOK_PERIOD_S
        self._take(self._files.free_bytes(self._config.directory), self._wal.durable)
        self._act(now_s)

    def look(self, now_s: float) -> None:
        """Begin a measurement, if one is due.

        It is made outside the loop, because a disk that hangs may not answer, and one at a time:
        until it is finished, the log uses up what the last one found.
        """
        if now_s < self._look_s:
            return
        is_far = self.free_bytes > self.reserve_bytes + FAR_BYTES
        self._look_s = now_s + (FAR_PERIOD_S if is_far else LOOK_PERIOD_S)
        if self.looking:
            self._count()
            self._judge()
        else:
            self._measure()

    def _measure(self) -> None:
        self.looking = True
        # The measurement may or may not include bytes that the log writes meanwhile, so they count
        # as not yet written.
        durable = self._wal.durable

        def done(found: int, error: OSError | None) -> None:
            self.looking = False
            self.looks += 1
            now_s = self._callbacks.now_s()
            if error is None:
                self._take(found, durable)
            else:
                self._tell_unknown(error, now_s)
                self._count()
            self._act(now_s)

        measure(self._files, self._config.directory, LANE_LOOK, done)

    def _take(self, found: int, durable: int) -> None:
        """Take over the free space that was found when the log was durable up to a position."""
        self._log_end_max = durable + found - LOG_ROOM_BYTES
        self._count()

    def _count(self) -> None:
        """Update what depends on the log and on the content of the machine."""
        self.free_bytes = max(0, self._log_end_max + LOG_ROOM_BYTES - self._wal.end)
        self._estimate = self._callbacks.image_bytes()
        self.growth_bytes = max(self._config.segment_bytes, self._estimate // GROWTH_DIVISOR)

    def _tell_unknown(self, error: OSError, now_s: float) -> None:
        """Log that the disk does not tell its free space: the last measurement counts on.

        A query may fail in passing (a network's file system, a kernel without memory), and the log
        stops at the position that was measured before. A disk that fails ends the node by a write.
        """
        if now_s >= self._unknown_s:
            self._unknown_s = now_s + UNKNOWN_PERIOD_S
            self._callbacks.log(
                f"the free space of {self._config.directory} is unknown: {error}; "
                f"{self.free_bytes} bytes were free",
                is_warning=True,
            )

    def _act(self, now_s: float) -> None:
        """Release or restore the ballast, and judge the room."""
        if self.free_bytes < BALLAST_ROOM_BYTES and self.ballast.release():
            words = f"the ballast of {self.ballast.size} is given up"
            self._callbacks.log(f"{self.free_bytes} bytes are free: {words}", is_warning=True)
            self._ballast_s = now_s + BALLAST_PERIOD_S
            self._measure()  # its result is judged
            return
        if (
            not self.low
            and not self.ballast.there
            and now_s >= self._ballast_s
            and self.free_bytes >= self.reserve_bytes + self.ballast.size
        ):
            self._ballast_s = now_s + BALLAST_PERIOD_S
            self.ballast.restore()
        self._judge()

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
            log(
                f"{self.free_bytes} bytes are free, {words} the reserve of {reserve}: {what}",
                is_warning=low,
            )
        if self.full != self._was_full:
            self._was_full = self.full
            if self.full:
                log(
                    f"the disk is full ({self.free_bytes} bytes are free): the log takes nothing "
                    f"more until there are {LOG_ROOM_BYTES}; make room",
                    is_warning=True,
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
        room = self.free_bytes, self.reserve_bytes, self.low, self.full, needs
        return DiskRoom(*room, self.looking, self.looks)
