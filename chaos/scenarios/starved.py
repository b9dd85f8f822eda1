"""A node has little of a core and of memory."""

import random

from chaos.nemesis import Starves
from chaos.scenarios.common import sustain, victim

SHARES = (0.03, 0.1, 0.3)


def act(nodes: Starves, chance: random.Random) -> str:
    number, share = victim(nodes, chance), chance.choice(SHARES)
    nodes.starve(number, share)
    return f"{nodes.name(number)} with {share} of a core {sustain(chance)}"
