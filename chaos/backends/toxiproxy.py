"""Three nodes on the loopback with a toxiproxy, or our double of it, in every link.

There is a proxy for each direction in which a peer link and a gRPC link can be dialled, and one
before each node's clients. Needs no root. This module maps each fault to toxics.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from chaos import compiled_tree
from chaos.backends.loopback import LoopbackNodes
from chaos.nemesis import NODES
from chaos.scenarios.common import others
from chaos.toxiproxy_server import Server
from tests.integration.support.nodes import Cluster
from tests.integration.support.ports import free_block

PEER, GRPC, CLIENT = "peer", "grpc", "client"
UPSTREAM, DOWNSTREAM = "upstream", "downstream"
SLICES: Final = {"average_size": 40, "size_variation": 39, "delay": 200}
KBIT_PER_KB: Final = 8
SILENCE_MS: Final = 1000


class Toxiproxy(LoopbackNodes):
    """The nodes, and a proxy for each link."""

    def __init__(self, directory: Path, compiled: bool) -> None:
        super().__init__(directory)
        self._prefix = compiled_tree.prefix(compiled)
        self.server = Server(directory)
        settings = {"disk_reserve_bytes": self.reserve_bytes}
        self.cluster = Cluster(directory / "nodes", base=free_block(), settings=settings)
        self.proxies: dict[tuple[str, int, int], Any] = {}
        for target, node in enumerate(self.cluster.nodes):
            self._add(CLIENT, target, target, node.beanstalk)
            for source in others(target):
                self._add(PEER, source, target, node.peer)
                self._add(GRPC, source, target, node.grpc)

    def _add(self, kind: str, source: int, target: int, upstream: str) -> None:
        name = f"{kind}-{source}-{target}"
        self.proxies[kind, source, target] = self.server.api.create(upstream=upstream, name=name)

    def _at(self, kind: str, source: int, target: int) -> str:
        return str(self.proxies[kind, source, target].listen)

    def words(self) -> str:
        return f"links through {self.server.words}"

    def command(self, number: int) -> list[str]:
        """Return the command line of a node, which dials the others through their proxies."""
        dial = ",".join(
            f"{self.name(far)}={self._at(PEER, number, far)}/{self._at(GRPC, number, far)}"
            for far in others(number)
        )
        before = [*self.clocks.prefix(number), *self._prefix]
        return [*before, *self.cluster.command(number), "--dial", dial]

    def addresses(self) -> list[str]:
        """Return the addresses of the proxies through which clients reach the nodes."""
        return [self._at(CLIENT, number, number) for number in NODES]

    def close(self) -> None:
        super().close()
        self.server.close()

    # --- faults -----------------------------------------------------------------------------------

    def heal_links(self) -> None:
        """Remove all toxics, and enable all proxies."""
        self.server.api.reset()

    def _from(self, source: int, target: int) -> Iterator[tuple[Any, str]]:
        """Yield the proxies that carry traffic from one node to another, and its stream in each."""
        for kind in (PEER, GRPC):
            yield self.proxies[kind, source, target], UPSTREAM
            yield self.proxies[kind, target, source], DOWNSTREAM

    def _sent(self, number: int) -> Iterator[tuple[Any, str]]:
        """Yield the proxies that carry a node's outgoing traffic, including that to clients."""
        for other in others(number):
            yield from self._from(number, other)
        yield self.proxies[CLIENT, number, number], DOWNSTREAM

    def ways(self) -> Sequence[str]:
        return ("data only",)

    def cut(self, source: int, target: int, way: str) -> None:
        """Drop traffic from one node to another; dropped bytes stay lost when the link heals."""
        for proxy, stream in self._from(source, target):
            proxy.add_toxic(type="timeout", stream=stream, attributes={"timeout": 0})

    def separate(self, one: int, other: int) -> None:
        """Hold back the traffic between two nodes until the link heals."""
        for source, target in ((one, other), (other, one)):
            for proxy, stream in self._from(source, target):
                proxy.add_toxic(type="bandwidth", stream=stream, attributes={"rate": 0})

    def isolate(self, number: int) -> None:
        for other in others(number):
            self.separate(number, other)

    def refuse(self, one: int, other: int) -> None:
        """End the connections between two nodes, and refuse new ones."""
        for proxy, _ in self._from(one, other):
            proxy.disable()

    def slow(self, number: int, kbit_s: int) -> None:
        """Limit the rate at which a node sends, also to its clients."""
        rate = kbit_s // KBIT_PER_KB
        for proxy, stream in self._sent(number):
            proxy.add_toxic(type="bandwidth", stream=stream, attributes={"rate": rate})

    def delay(self, number: int, latency_ms: int) -> None:
        """Delay a node's outgoing traffic, with a jitter of half of the latency."""
        attributes = {"latency": latency_ms, "jitter": latency_ms // 2}
        for proxy, stream in self._sent(number):
            proxy.add_toxic(type="latency", stream=stream, attributes=attributes)

    def slice(self, number: int) -> None:
        for proxy, stream in self._sent(number):
            proxy.add_toxic(type="slicer", stream=stream, attributes=SLICES)

    def lose_replies(self, number: int) -> None:
        """Drop a node's replies to clients, and end their connections after a second."""
        self._client_toxic(number, "timeout", DOWNSTREAM, {"timeout": SILENCE_MS})

    def reset_clients(self, number: int) -> None:
        self._client_toxic(number, "reset_peer", DOWNSTREAM, {"timeout": 0})

    def limit_clients(self, number: int, count_bytes: int) -> None:
        """End each client connection after a number of bytes."""
        self._client_toxic(number, "limit_data", UPSTREAM, {"bytes": count_bytes})

    def _client_toxic(self, number: int, kind: str, stream: str, values: dict[str, int]) -> None:
        proxy = self.proxies[CLIENT, number, number]
        proxy.add_toxic(type=kind, stream=stream, attributes=values)
