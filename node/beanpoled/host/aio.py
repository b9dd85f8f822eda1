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
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from beanpole.replication.consensus import Sink
from beanpole.storage.files import LANE_BULK, RealFiles
from beanpoled.config.node import NodeConfig
from beanpoled.eventlog.converter import Converter
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.host.aio_clients import ClientServer
from beanpoled.host.aio_peers import PeerLinks
from beanpoled.host.log import LogLines
from beanpoled.host.seam import ERROR, INFO, ProcessStats, Timer
from beanpoled.rpc.peer import PeerClient
from beanpoled.trust.trust import trust_of

# The process that seals events is started this long after the node, when it has caught up, or
# nearly so.
WARM_UP_AFTER_S: Final = 5.0
# A stop waits this long for files that are written beside the log; a segment of events takes half a
# second. Files that are abandoned are made again after the next start.
BULK_AT_STOP_MAX_S: Final = 3.0
# The signals that a running node handles and that do not stop it.
RUNNING_SIGNALS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


class AioHost:
    """Runs one node in one loop."""

    def __init__(self, config: NodeConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.lines = LogLines(config)
        self._loop = loop
        self._exiting = asyncio.Event()
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
        """Finish pending writes, and end the process that converts events.

        Work beside the log that takes longer than `within_s` is abandoned together with all work
        behind it, as if the node had died then. A snapshot never gets its name before the events
        that it covers are in files, so the next start emits them again from the log.
        """

        def give_up() -> None:
            self.files.drop(LANE_BULK)
            self.converter.close()

        self.converter.hurry()
        deadline = threading.Timer(within_s, give_up)
        deadline.daemon = True
        deadline.start()
        self.files.close()
        deadline.cancel()
        self.converter.close()

    async def wait_for_exit(self) -> None:
        """Wait until the node has stopped; its signals mean nothing from then on."""
        await self._exiting.wait()
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

    def exit(self) -> None:
        """See `Host`."""
        self._exiting.set()

    def fatal(self, reason: str) -> None:
        """See `Host`."""
        self.log(reason, ERROR)
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
