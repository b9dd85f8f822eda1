"""A node hears the others, and none of them hears it."""

import random

from chaos.nemesis import Cuts
from chaos.scenarios.common import cut_each, others, sustain, victim


def act(nodes: Cuts, chance: random.Random) -> str:
    number = victim(nodes, chance)
    way = cut_each(nodes, chance, ((number, other) for other in others(number)))
    return f"no node hears {nodes.name(number)} ({way}) {sustain(chance)}"
