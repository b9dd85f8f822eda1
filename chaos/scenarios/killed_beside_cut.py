"""A node dies while the leader does not hear another; it comes back before the cut heals."""

import random
from typing import Protocol, runtime_checkable

from chaos.nemesis import Cuts, Ends
from chaos.scenarios.common import cut_each, others, sustain


@runtime_checkable
class EndsAndCuts(Ends, Cuts, Protocol):
    """Nodes can be ended, and links cut one way."""


def act(nodes: EndsAndCuts, chance: random.Random) -> str:
    leader = nodes.leader()
    number, other = chance.sample(others(leader), 2)
    way = cut_each(nodes, chance, [(other, leader)])
    nodes.kill(number)
    words = sustain(chance)
    nodes.start(number)
    cut = f"{nodes.name(leader)} did not hear {nodes.name(other)} ({way})"
    return f"{nodes.name(number)} died, {cut} {words}"
