"""A share of the packets to a node is lost; its own packets arrive."""

import random

from chaos.nemesis import Loses
from chaos.scenarios.common import sustain, victim

PERCENT = (5, 20, 40)


def act(nodes: Loses, chance: random.Random) -> str:
    number, percent = victim(nodes, chance), chance.choice(PERCENT)
    nodes.lose(number, percent)
    return f"{nodes.name(number)} loses {percent} of 100 packets {sustain(chance)}"
