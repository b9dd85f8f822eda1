"""Two nodes are apart and the third has links to both."""

import random

from chaos.nemesis import Separates
from chaos.scenarios.common import pair, sustain


def act(nodes: Separates, chance: random.Random) -> str:
    one, other = pair(nodes, chance)
    nodes.separate(one, other)
    return f"{nodes.name(one)} and {nodes.name(other)} are apart {sustain(chance)}"
