"""Nothing passes between any two nodes, so that there is no majority."""

import itertools
import random

from chaos.nemesis import NODES, Separates
from chaos.scenarios.common import sustain


def act(nodes: Separates, chance: random.Random) -> str:
    for one, other in itertools.combinations(NODES, 2):
        nodes.separate(one, other)
    return f"all are alone {sustain(chance)}"
