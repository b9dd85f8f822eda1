"""Event logs behind real gRPC servers, each in a thread, for the tests of tools."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from beanpoled.config.node import NodeConfig
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.rpc.events import EventsServicer
from tests.unit.eventlog.test_store import Life
from tests.unit.node.stage import StageHost, config

START_TIMEOUT_S = 60.0


class ArrowHost(StageHost):
    """A stage whose events become Arrow, as on a real node."""

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        return columns.encode(events)

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        return columns.first_at_wall(payload, wall_us)


def life_of(
    entries: Iterable[tuple[Any, ...]], host: StageHost | None = None, **settings: Any
) -> Life:
    """Return an event log that has followed some entries and sealed full segments."""
    life = Life(host or ArrowHost(), **settings)
    for entry in entries:
        life.driver.apply(entry)
    life.settle()
    return life


class Server:
    """One node's `Events` service at its own port."""

    def __init__(self, life: Life, node_config: NodeConfig | None = None, birth: str = "") -> None:
        """Store what to serve; a node of release 0.3.0 tells no birth id, as without one here."""
        self.life = life
        self.birth = birth
        self.address = ""
        self._config = node_config or config()
        self._started, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop the server at once, calls included."""
        self._ended.set()
        self._thread.join()

    def servicer(self) -> EventsServicer:
        """Return the service; a test may override it."""
        return EventsServicer(self._config, self.life.host, self.life.log, lambda: self.birth)

    async def _serve(self) -> None:
        server = grpc.aio.server()
        self.servicer().add_to(server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._started.set()
        await asyncio.to_thread(self._ended.wait)
        await server.stop(None)


@contextmanager
def serving(*servers: Server) -> Iterator[list[str]]:
    """Run servers; yield their addresses."""
    for server in servers:
        server.start()
    try:
        yield [server.address for server in servers]
    finally:
        for server in servers:
            server.stop()
