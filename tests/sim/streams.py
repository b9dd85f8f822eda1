"""Snapshots on their way between nodes: in order and whole, or with the faults of a life.

Each message goes through the product's own `SnapshotStream`. Like gRPC, this stream distinguishes a
broken stream from one that ended.
"""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from beanpole.errors import BeanpoleError
from beanpole.replication.consensus import Sink
from beanpoled.rpc.peer import CHUNK_TIMEOUT_S
from beanpoled.rpc.snapshot_stream import SnapshotStream

if TYPE_CHECKING:
    from tests.sim.host import SimHost

STEP_S: Final = 0.002
SINK_BACKLOG_BYTES_MAX: Final = 256 * 1024
# The faults of a stream, and how often each is drawn in a life with faulty streams.
WHOLE, CUT, FLIPPED, OTHER, SLOW, HUNG = range(6)
FAULTS: Final = (WHOLE, WHOLE, WHOLE, CUT, CUT, FLIPPED, FLIPPED, OTHER, SLOW, HUNG)
SLOW_STEP_S: Final = 0.3
# The fault comes within the first chunks, because some streams have only a few.
CHUNKS_BEFORE: Final = 4


class Fetch:
    """One snapshot on its way to `host`."""

    def __init__(
        self,
        host: "SimHost",
        peer: str,
        index: int,
        sink: Sink,
        done: Callable[[str | None], None],
    ) -> None:
        self._host = host
        self._world = world = host.world
        self._peer = peer
        self._sink = sink
        self._done = done
        self._stream = SnapshotStream(peer, index, sink)
        self._source = world.hosts.get(peer)
        self._chunks = None if self._source is None else _chunks_of(self._source, index)
        dice = world.stream_dice
        self._fault = WHOLE if dice is None else dice.choice(FAULTS)
        self._left = 0 if dice is None else dice.randrange(CHUNKS_BEFORE)
        self._dice = dice or random.Random(0)
        world.counts["fetches"] += 1
        world.counts["wrong streams"] += self._fault != WHOLE
        self._take(index + (self._fault == OTHER), b"")

    def _take(self, index: int, data: bytes) -> None:
        check = crc32c(data)
        if data and self._fault == FLIPPED and self._due():
            place = self._dice.randrange(len(data))
            data = data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]
        wrong = self._stream.take(index, data, check)
        if wrong is not None:
            self._host.log(f"a fetch failed: {wrong}")
            self._later(lambda: self._done(wrong))
        else:
            self._later(self._step)

    def _step(self) -> None:
        source, peer = self._source, self._peer
        linked = self._world.network.is_linked(self._host.name, peer)
        if self._chunks is None or source is None or not source.alive or not linked:
            self._done(f"{peer} has nothing at that index, or is gone")
        elif self._fault == CUT and self._due():
            self._done(f"{peer}: UNAVAILABLE: the stream broke")
        elif self._fault == HUNG and self._due():
            self._hang(self._world.clock.now_s + CHUNK_TIMEOUT_S)
        elif source.paused or self._sink.backlog_bytes > SINK_BACKLOG_BYTES_MAX:
            self._later(self._step)
        else:
            try:
                chunk = next(self._chunks, None)
            except BeanpoleError as error:
                self._done(f"{peer}: DATA_LOSS: {error}")
                return
            if chunk is None:
                self._done(self._stream.ended())
            else:
                self._take(0, chunk)

    def _due(self) -> bool:
        """Whether the fault comes now."""
        self._left -= 1
        return self._left < 0

    def _hang(self, until_s: float) -> None:
        """Send nothing until the receiver times out or the world is mended."""
        if self._is_mended() or self._world.clock.now_s >= until_s:
            self._done(f"{self._peer} sent nothing for {CHUNK_TIMEOUT_S:.0f} s")
        else:
            self._later(lambda: self._hang(until_s), SLOW_STEP_S)

    def _is_mended(self) -> bool:
        return self._world.stream_dice is None

    def _later(self, step: Callable[[], None], after_s: float = STEP_S) -> None:
        if self._fault == SLOW and not self._is_mended():
            after_s = SLOW_STEP_S
        self._world.clock.after(after_s, lambda: self._host.enter(step))


def _chunks_of(source: "SimHost", index: int) -> Iterator[bytes] | None:
    """Return the chunks of a node's snapshot at an index; None if it has none there."""
    try:
        found = source.node.context.replica.snapshot_source()
    except BeanpoleError:
        return None
    return None if found is None or found[0].index != index else found[1]
