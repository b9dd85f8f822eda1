"""The real host of a node: asyncio with uvloop, the disk threads, sockets, gRPC, signals.

It is the production implementation of `seam.Host`. No decision of the queue or of Raft is made
here.
"""

import asyncio
import os
import platform
import random
import resource
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from beanpole.replication.consensus import Sink
from beanpole.storage.files import LANE_BULK, RealFiles
from beanpoled.config.node import NodeConfig
from beanpoled.eventlog.converter import Converter
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.first_process import RUNNING_SIGNALS
from beanpoled.host.aio_clients import ClientServer
from beanpoled.host.aio_peers import PeerLinks
from beanpoled.host.log import LogLines
from beanpoled.host.seam import ERROR, INFO, UNSYNCED, ProcessStats, Timer
from beanpoled.host.watch import Watch
from beanpoled.rpc.peer import PeerClient
from beanpoled.trust.trust import trust_of

# The process that seals events is started this long after the node, when it has caught up, or
# nearly so.
WARM_UP_AFTER_S: Final = 5.0
# A stop waits this long for files that are written beside the log; a segment of events takes half a
# second. Files that are abandoned are made again after the next start.
BULK_AT_STOP_MAX_S: Final = 3.0
# A stop waits this long for the disk each time: for a vote or the last sync, which block the loop,
# and until the files are closed.
# Several times the default of `raft_max_ms`, behind which a disk hangs, so that a slow disk has the
# time for its last syncs; and little of the 20 s that a supervisor waits beside `drain_timeout_ms`.
DISK_AT_STOP_MAX_S: Final = 5.0
# Often enough that a loop that turns is never taken for one that the disk blocks.
BEAT_PERIOD_S: Final = 0.5


class AioHost:
    """Runs one node in one loop.

    Attributes:
        disk_within_s: how long a stop waits for the disk, for a test that does not.
    """

    def __init__(
        self,
        config: NodeConfig,
        loop: asyncio.AbstractEventLoop,
        lines: LogLines | None = None,
    ) -> None:
        self.lines = LogLines(config) if lines is None else lines
        self.lines.begin()
        self._loop = loop
        self._exiting = asyncio.Event()
        self._is_stopping = False
        self._failure: tuple[str, int] | None = None  # of a start: the reason and the exit status
        self._last_words: str | None = None
        self.disk_within_s = DISK_AT_STOP_MAX_S
        self._watch: Watch | None = None  # over the disk, during a stop
        self._tasks: set[asyncio.Task[None]] = set()
        self._random = random.Random()
        self.files = RealFiles(loop.call_soon_threadsafe)
        self.files.watch(loop.add_reader)
        self.converter = Converter()
        self.trust = trust_of(config, self.log)
        self.clients = ClientServer(config, loop, self.log, self.fatal, self.trust)
        self.links = PeerLinks(config, loop, self.log, self.trust)
        addresses = {peer: config.grpc_address(peer) for peer in config.peers}
        self.peer_client = PeerClient(addresses, self.trust)

    def close_files(self, within_s: float = BULK_AT_STOP_MAX_S) -> None:
        """Finish pending writes, end the process that converts events, and log the last words.

        Work beside the log that takes longer than `within_s` is abandoned together with all work
        behind it, as if the node had died then. A snapshot never gets its name before the events
        that it covers are in files, so the next start emits them again from the log. A disk that
        does not finish within `disk_within_s` what it has begun ends the process.
        """

        def give_up() -> None:
            self.files.drop(LANE_BULK)
            self.converter.close()

        self.converter.hurry()
        disk = self._begin_watch()
        bulk = Watch(within_s, give_up)
        self.files.close()
        bulk.end()
        self.converter.close()
        disk.end()
        if self._last_words is not None:
            self.lines.end(self._last_words)

    async def wait_for_exit(self) -> None:
        """Wait until the node has stopped; its signals mean nothing from then on."""
        await self._exiting.wait()
        if self._last_words == UNSYNCED:
            self._give_up_disk()
        # One that comes while files and threads end, or behind that, would end the process as if
        # the stop had failed.
        for one in RUNNING_SIGNALS:
            if self._loop.remove_signal_handler(one):
                signal.signal(one, signal.SIG_IGN)

    # --- Host -----------------------------------------------------------------------------------

    def now_us(self) -> int:
        """See `Host`."""
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        """See `Host`."""
        return time.time_ns() // 1000

    def random(self) -> float:
        """See `Host`."""
        return self._random.random()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """See `Host`."""
        self._loop.call_soon(callback)

    def take_turn(self, turn: Callable[[], None]) -> None:
        """See `Host`."""
        self.links.take_turn(turn)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """See `Host`."""
        return self._loop.call_later(delay_us / 1_000_000, callback)

    def send_peer(self, peer: str, kind: int, payload: bytes) -> bool:
        """See `Host`."""
        return self.links.send(peer, kind, payload)

    def link_words(self, peer: str) -> str:
        """See `Host`."""
        return self.links.words(peer)

    def flush_peers(self) -> None:
        """See `Host`."""
        self.links.flush()

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """See `Host`."""

        async def fetch() -> None:
            done(await self.peer_client.fetch_snapshot(peer, index, sink))

        self.spawn(fetch())

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        """See `Host`."""
        return self.converter.encode(events, within_us / 1_000_000)

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """See `Host`."""
        return self.converter.first_at_wall(payload, wall_us)

    def warm_up(self) -> None:
        """Warm the converter up soon after the start, so that the first seal is not slow."""

        def begin() -> None:
            if not self.files.closed:  # the node may have stopped meanwhile
                self.files.submit(self.converter.warm_up, lambda _: None, LANE_BULK)

        self._loop.call_later(WARM_UP_AFTER_S, begin)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the node; its failure is a bug and stops the node."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.fatal(f"unexpected: {task.exception()!r}")

    def open_clients(self, protocol: str) -> None:
        """See `Host`."""
        self.clients.open(protocol)

    def close_clients(self) -> None:
        """See `Host`."""
        self.clients.close()

    def process(self) -> ProcessStats:
        """See `Host`."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return ProcessStats(
            pid=os.getpid(),
            user_s=usage.ru_utime,
            system_s=usage.ru_stime,
            hostname=socket.gethostname().encode(),
            system=platform.version().encode(),
            platform=platform.machine().encode(),
        )

    def log(self, line: str, level: int = INFO) -> None:
        """See `Host`."""
        self.lines.write(line, level)

    def exit(self, close: Callable[[], None] | None = None, words: str = "stopped") -> None:
        """See `Host`."""
        self.watch_disk(True)
        self._last_words = words
        if close is not None:
            close()
        self._exiting.set()

    def abandon(self) -> None:
        """See `Host`."""
        self._is_stopping = True
        self._last_words = UNSYNCED
        self._exiting.set()

    def watch_disk(self, is_on: bool) -> None:
        """See `Host`."""
        self._is_stopping = True
        if is_on:
            self._begin_watch()
        elif self._watch is not None:
            self._watch.end()
            self._watch = None

    def _begin_watch(self) -> Watch:
        if self._watch is None:
            self._watch = Watch(self.disk_within_s, self._give_up_disk)
            self._beat(self._watch)
        return self._watch

    def _beat(self, watch: Watch) -> None:
        if watch is self._watch:
            watch.beat()
            self._loop.call_later(BEAT_PERIOD_S, self._beat, watch)

    def failed(self, words: str, status: int) -> None:
        """Note why the start failed: a disk that hangs may end the process before that is logged.

        Args:
            words: the reason, for the log.
            status: the exit status.
        """
        self._failure = (words, status)

    def _give_up_disk(self) -> None:
        """End the process without waiting for the disk, perhaps for ever."""
        words, status = UNSYNCED, 0 if self._is_stopping else 1
        if self._failure is not None:
            words, status = self._failure
        elif self.files.only_bulk_is_left and self._last_words is not None:
            # The log is synced. The next start finishes the other files, or removes them.
            words = self._last_words
        self.lines.end(words, ERROR if status else INFO)
        os._exit(status)

    def fatal(self, reason: str) -> None:
        """See `Host`."""
        self.lines.end(reason, ERROR)
        os._exit(1)  # not even exit handlers may write anything any more

    # --- signals --------------------------------------------------------------------------------

    def handle_signals(
        self,
        stop: Callable[[], None],
        drain: Callable[[bool], None],
        reload: Callable[[], object],
    ) -> None:
        """SIGTERM and SIGINT stop gracefully, SIGUSR1 drains, SIGUSR2 ends that, SIGHUP reloads."""
        add = self._loop.add_signal_handler
        add(signal.SIGTERM, stop)
        add(signal.SIGINT, stop)
        add(signal.SIGUSR1, drain, True)
        add(signal.SIGUSR2, drain, False)
        add(signal.SIGHUP, reload)
