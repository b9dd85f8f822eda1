"""Processes on the loopback, with our own proxy between each two; needs nothing but Python.

A link is cut in both directions, silently (bytes are held back until it heals) or with a reset.
`Releases` runs the same nodes, but starts them with the last release.
"""

import itertools
from pathlib import Path
from typing import Final

from chaos import compiled_tree
from chaos.backends.loopback import LoopbackNodes
from chaos.nemesis import NODES
from chaos.scenarios.common import others
from tests.integration.support.nodes import Cluster, Settings
from tests.integration.support.ports import free_block
from tests.integration.support.proxy import Links
from tests.integration.support.releases import (
    KNOWS,
    LAST,
    install,
    release,
    this_program,
    wait_until_raised,
)

PAIRS: Final = tuple(itertools.combinations(NODES, 2))


class Processes(LoopbackNodes):
    """The nodes, and the proxies between them."""

    def __init__(self, directory: Path, compiled: bool, settings: Settings | None = None) -> None:
        super().__init__(directory)
        self.prefix = compiled_tree.prefix(compiled)
        self.links = Links()
        base, proxies = free_block(), free_block()
        nodes = Cluster(directory / "plan", base=base).nodes
        dial = {
            one: {
                nodes[other].id: self.links.add(one, other, proxies + 3 * one + other, peer)
                for other in others(one)
                for peer in [nodes[other].peer]
            }
            for one in NODES
        }
        settings = {"disk_reserve_bytes": self.reserve_bytes, **(settings or {})}
        self.cluster = Cluster(directory / "nodes", settings=settings, dial=dial, base=base)

    def command(self, number: int) -> list[str]:
        """Return the command line of a node; its configuration is a file."""
        return [*self.clocks.prefix(number), *self.prefix, *self.cluster.command(number)]

    def addresses(self) -> list[str]:
        """Return the addresses at which this process reaches the nodes as a client."""
        return [node.beanstalk for node in self.cluster.nodes]

    def close(self) -> None:
        super().close()
        self.links.close()

    # --- faults -----------------------------------------------------------------------------------

    def heal_links(self) -> None:
        """Restore all links."""
        for pair in PAIRS:
            self.links.restore(*pair)

    def separate(self, one: int, other: int) -> None:
        """Hold back the traffic between two nodes."""
        self.links.cut(one, other, silent=True)

    def isolate(self, number: int) -> None:
        for other in others(number):
            self.separate(number, other)

    def refuse(self, one: int, other: int) -> None:
        """Reset the connections of two nodes, and refuse new ones."""
        self.links.cut(one, other, silent=False)


class Releases(Processes):
    """The same nodes start as the last release; the machine's version is never raised."""

    def __init__(self, directory: Path, compiled: bool) -> None:
        super().__init__(directory, compiled)
        self._old = release(LAST, directory)
        self._new = this_program({"upgrade_finalize": "manual"}, self.prefix)
        # From here on the program's own command line has the prefix.
        self.prefix = []
        for number in NODES:
            self.install(number, new=False)

    def words(self) -> str:
        return f"nodes begin as release {LAST}, and the machine stays at its version"

    def start_all(self) -> None:
        super().start_all()
        wait_until_raised(self.cluster, KNOWS[LAST])

    def install(self, number: int, new: bool) -> None:
        """Set the program of a node's next start: this one, or the last release."""
        install(self.cluster, number, self._new if new else self._old)
