"""Nothing passes between a node and the others."""

import random

from chaos.nemesis import Isolates
from chaos.scenarios.common import sustain, victim


def act(nodes: Isolates, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.isolate(number)
    return f"{nodes.name(number)} is alone {sustain(chance)}"
