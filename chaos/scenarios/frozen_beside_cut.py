"""A node is paused (SIGSTOP) while none of the others hears it."""

import random
from typing import Protocol, runtime_checkable

from chaos.nemesis import Cuts, Freezes
from chaos.scenarios.common import cut_each, others, sustain, victim


@runtime_checkable
class FreezesAndCuts(Freezes, Cuts, Protocol):
    """Nodes can be paused, and links be cut one way."""


def act(nodes: FreezesAndCuts, chance: random.Random) -> str:
    number = victim(nodes, chance)
    way = cut_each(nodes, chance, ((number, other) for other in others(number)))
    nodes.freeze(number)
    return f"{nodes.name(number)} stood, unheard ({way}) {sustain(chance)}"
