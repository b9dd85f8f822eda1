"""All nodes are killed at once and come back in any order."""

import random

from chaos.nemesis import NODES, Ends
from chaos.scenarios.common import stay_away


def act(nodes: Ends, chance: random.Random) -> str:
    nodes.kill(*NODES)
    stay_away(chance)
    order = chance.sample(NODES, len(NODES))
    for number in order:
        nodes.start(number)
    return " ".join(nodes.name(number) for number in order)
