"""Leases: a node has closed its clients before the cluster declares it down and returns their jobs.

Belongs here: fences and the ends of incarnations, as the log lines of nodes tell them. Whether the
machine itself gives a job out twice is judged by the witness.
"""

from typing import TYPE_CHECKING

from tests.sim.cluster import Violation

if TYPE_CHECKING:
    from tests.sim.world import World


class Leases:
    """The fences of all nodes.

    Attributes:
        fences: by node: when it closed its clients.
    """

    def __init__(self, world: "World") -> None:
        self.fences: dict[str, list[float]] = {name: [] for name in world.names}
        # By node: when it began, or began again, to accept clients.
        self._opened_s = dict.fromkeys(world.names, 0.0)
        self._world = world
        self._ended: set[tuple[str, int]] = set()  # incarnations that were looked at

    def said(self, name: str, words: str) -> None:
        """Note a log line of a node."""
        if words.endswith("closing all clients"):
            self.fences[name].append(self._world.clock.now_s)
        elif words.startswith("serving clients as incarnation"):
            self._opened_s[name] = self._world.clock.now_s
        elif words.endswith(" was declared down"):
            self._look(name, words.partition(" ")[0])

    def _look(self, teller: str, name: str) -> None:
        """Raise Violation if a node that another one knows to be declared down still has clients.

        It may have closed them before the leader decided so and accept others again: the leader has
        heard it meanwhile, and the entry was on its way (life 108485), or not even proposed because
        disks hung (life 115229). Commands of the others are behind it in the log. The clock of a
        process that is paused or slow stands still, and so does all that it does.
        """
        world, host = self._world, self._world.hosts.get(name)
        if host is None or not host.alive or world.slowness:
            return
        node = host.node
        timeout_s = node.context.config.node_timeout_ms / 1000
        life = (name, node.origin.incarnation)
        known = world.hosts[teller].node.context.machine.origins[node.context.index]
        is_over = known.incarnation == node.origin.incarnation and not known.alive
        if not is_over or life in self._ended:
            return
        self._ended.add(life)  # once: it may accept others before it learns that it is over
        if world.clock.now_s - host.paused_until_s < timeout_s:
            return
        if node.serving and self._opened_s[name] <= self._decided_after_s(teller):
            raise Violation(f"{name} is declared down and has not closed its clients")
        world.counts["nodes down that had no clients"] += 1

    def _decided_after_s(self, teller: str) -> float:
        """Return when the entry before the one that a node applies now was proposed.

        A leader puts what it has decided into its next entry, so it decided this later.
        """
        witness, context = self._world.witness, self._world.hosts[teller].node.context
        before = max(index for index in witness.log if index < context.machine.index)
        return witness.proposed_s[witness.log[before][1]]
