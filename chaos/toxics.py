"""Toxics on every link: late, slow, sliced, cut off and silent, by toxiproxy or our double of it.

`python -m chaos.toxics --minutes n` runs it: three nodes on the loopback with a proxy in each
direction of each peer link and each gRPC link, and one before each node's clients. Needs no root.
"""

import os
import random
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from chaos import rounds
from chaos.ground import COMPILED, check_compiled
from chaos.toxiproxy_server import Server
from tests.integration.support.nodes import Cluster
from tests.integration.support.ports import free_block
from tests.integration.support.waiting import wait_for_time, wait_until

NODES: Final = range(3)
PAIRS: Final = ((0, 1), (0, 2), (1, 2))
STREAMS: Final = ("upstream", "downstream")
PEER, GRPC, CLIENT = "peer", "grpc", "client"
READY_TIMEOUT_S: Final = 60.0
LATENCIES_MS: Final = (5, 30, 100, 250)
RATES_KB_S: Final = (20, 100, 1000)
# A line, a body, and somewhere in a pipeline of commands.
LIMITS_BYTES: Final = (1, 20, 70, 500, 5000)
SLICES: Final = {"average_size": 40, "size_variation": 39, "delay": 200}


class Links:
    """The nodes, and a proxy for each link, as a `rounds.System`."""

    def __init__(self, directory: Path, compiled: bool) -> None:
        self._directory = directory
        self.server = Server(directory)
        base = free_block()
        self.cluster = Cluster(directory / "nodes", base=base, settings={"disk_reserve_bytes": 0})
        nodes = self.cluster.nodes
        self.proxies: dict[tuple[str, int, int], Any] = {}
        for target in NODES:
            self._add(CLIENT, target, target, nodes[target].beanstalk)
            for source in NODES:
                if source != target:
                    self._add(PEER, source, target, nodes[target].peer)
                    self._add(GRPC, source, target, nodes[target].grpc)
        for number in NODES:
            dial = ",".join(
                f"{nodes[other].id}={self._at(PEER, number, other)}/{self._at(GRPC, number, other)}"
                for other in NODES
                if other != number
            )
            prefix = ["env", f"PYTHONPATH={COMPILED}"] if compiled else []
            command = [*prefix, *self.cluster.command(number), "--dial", dial]
            (nodes[number].directory / "cmdline").write_text(shlex.join(command) + "\n")

    def _add(self, kind: str, source: int, target: int, upstream: str) -> None:
        name = f"{kind}-{source}-{target}"
        self.proxies[kind, source, target] = self.server.api.create(upstream=upstream, name=name)

    def _at(self, kind: str, source: int, target: int) -> str:
        return str(self.proxies[kind, source, target].listen)

    def start_all(self) -> None:
        """Start all nodes and wait until they are ready."""
        print(f"links through {self.server.words}", flush=True)
        for number in NODES:
            self.cluster.start(number)
        self.wait_until_ready()

    def addresses(self) -> Sequence[str]:
        """Where clients reach each node."""
        return [self._at(CLIENT, number, number) for number in NODES]

    def heal(self) -> None:
        """Remove all toxics, and let all proxies listen."""
        self.server.api.reset()

    def wait_until_ready(self) -> None:
        """Wait until all nodes are ready."""
        for number in NODES:

            def ready(number: int = number) -> bool:
                process = self.cluster.process(number)
                assert process.status() is None, process.story()
                return self.cluster.is_ready(number)

            wait_until(ready, READY_TIMEOUT_S, f"n{number} is ready")

    def is_leader(self, number: int) -> bool:
        """Whether a node says of itself that it leads and is ready."""
        return self.cluster.is_leader(number)

    def ended(self) -> list[str]:
        """Return what nodes that ended by themselves said: no fault here ends one."""
        processes = [self.cluster.process(number) for number in NODES]
        return [one.story() for one in processes if one.status() is not None]

    def logs(self) -> list[Path]:
        return sorted(self._directory.glob("nodes/*/output*.log"))

    def close(self) -> None:
        """End nodes and proxies; the files stay."""
        self.cluster.close(remove=False)
        self.server.close()


class Faults:
    """Each method puts toxics on links, waits, and returns a few words."""

    def __init__(self, links: Links, seed: int) -> None:
        self._links = links
        self._chance = random.Random(seed)

    def _wait(self) -> str:
        seconds = rounds.spread(self._chance)
        wait_for_time(seconds)
        return f"for {seconds:.1f} s"

    def _of(self, *kinds: str) -> list[Any]:
        return [proxy for key, proxy in self._links.proxies.items() if key[0] in kinds]

    def _of_node(self, number: int, kind: str) -> list[Any]:
        found = self._links.proxies.items()
        return [proxy for key, proxy in found if key[0] == kind and number in key[1:]]

    def _both_ways(self, proxies: Sequence[Any], kind: str, attributes: dict[str, int]) -> None:
        for proxy in proxies:
            for stream in STREAMS:
                proxy.add_toxic(type=kind, stream=stream, attributes=attributes)

    def _node(self) -> int:
        if self._chance.random() < 0.4:
            return self._links.cluster.leader()
        return self._chance.choice(NODES)

    def late(self) -> str:
        latency = self._chance.choice(LATENCIES_MS)
        attributes = {"latency": latency, "jitter": latency // 2}
        self._both_ways(self._of(PEER, GRPC, CLIENT), "latency", attributes)
        return f"all links {latency} ms {self._wait()}"

    def slow(self) -> str:
        rate = self._chance.choice(RATES_KB_S)
        self._both_ways(self._of(PEER, GRPC, CLIENT), "bandwidth", {"rate": rate})
        return f"all links {rate} KB/s {self._wait()}"

    def sliced(self) -> str:
        self._both_ways(self._of(PEER, GRPC, CLIENT), "slicer", SLICES)
        return f"all links in pieces {self._wait()}"

    def silent(self) -> str:
        """One direction of one peer link, in which nothing arrives."""
        one, other = self._chance.choice(PAIRS)
        stream = self._chance.choice(STREAMS)
        for proxy in (self._links.proxies[PEER, one, other], self._links.proxies[PEER, other, one]):
            proxy.add_toxic(type="timeout", stream=stream, attributes={"timeout": 0})
        return f"n{one} and n{other}, {stream} {self._wait()}"

    def down(self) -> str:
        """All peer links of a node are refused."""
        number = self._node()
        for proxy in self._of_node(number, PEER):
            proxy.disable()
        return f"n{number} {self._wait()}"

    def stalled(self) -> str:
        """All peer links of a node take bytes and pass none on, until they heal."""
        number = self._node()
        self._both_ways(self._of_node(number, PEER), "bandwidth", {"rate": 0})
        return f"n{number} {self._wait()}"

    def cut_in_a_put(self) -> str:
        """Clients' connections end after some bytes, with an end or with a reset."""
        size = self._chance.choice(LIMITS_BYTES)
        for proxy in self._of(CLIENT):
            attributes = {"bytes": size}
            proxy.add_toxic(type="limit_data", stream="upstream", attributes=attributes)
        return f"clients after {size} bytes {self._wait()}"

    def clients_reset(self) -> str:
        number = self._node()
        for proxy in self._of_node(number, CLIENT):
            proxy.add_toxic(type="reset_peer", stream="downstream", attributes={"timeout": 0})
        return f"clients of n{number} {self._wait()}"

    def unheard_replies(self) -> str:
        """Replies to clients are lost, and their connections end after a second of silence."""
        for proxy in self._of(CLIENT):
            attributes = {"timeout": 1000}
            proxy.add_toxic(type="timeout", stream="downstream", attributes=attributes)
        return f"all clients {self._wait()}"

    def mixed(self) -> str:
        """Every link has a toxic of its own."""
        for proxy in self._of(PEER, GRPC, CLIENT):
            latency = self._chance.choice(LATENCIES_MS)
            kind, attributes = self._chance.choice(
                (
                    ("latency", {"latency": latency, "jitter": latency}),
                    ("bandwidth", {"rate": self._chance.choice(RATES_KB_S)}),
                    ("slicer", SLICES),
                    ("slow_close", {"delay": latency}),
                )
            )
            stream = self._chance.choice(STREAMS)
            proxy.add_toxic(type=kind, stream=stream, attributes=dict(attributes))
        return f"all links {self._wait()}"

    def named(self) -> dict[str, rounds.Fault]:
        """Return the faults by name."""
        return {name: partial(fault, self) for name, fault in self.ALL.items()}

    ALL: Final[dict[str, Callable[["Faults"], str]]] = {
        "late": late,
        "slow": slow,
        "sliced": sliced,
        "silent": silent,
        "down": down,
        "stalled": stalled,
        "cut in a put": cut_in_a_put,
        "clients reset": clients_reset,
        "unheard replies": unheard_replies,
        "mixed": mixed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one as the command line says; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = rounds.parse("toxics", __doc__, list(Faults.ALL), given)
    if options.compiled and (why := check_compiled()):
        print(why, file=sys.stderr)
        return 2
    os.chdir(rounds.ROOT)
    directory = rounds.begin("toxics", options)
    links = Links(directory, options.compiled)
    return rounds.run(links, Faults(links, options.seed).named(), options, directory)


if __name__ == "__main__":
    sys.exit(main())
