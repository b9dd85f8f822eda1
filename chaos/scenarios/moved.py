"""A node loses its network, and mostly comes back with another address."""

import random

from chaos.nemesis import Moves
from chaos.scenarios.common import sustain, victim

MOVED_SHARE = 0.7


def act(nodes: Moves, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.disconnect(number)
    words = sustain(chance)
    now = nodes.connect(number, chance.random() < MOVED_SHARE)
    return f"{nodes.name(number)} {words}, now {now}"
