"""Messages of all nodes arrive in pieces of some bytes, so that frames and lines are torn."""

import random

from chaos.nemesis import NODES, Slices
from chaos.scenarios.common import sustain


def act(nodes: Slices, chance: random.Random) -> str:
    for number in NODES:
        nodes.slice(number)
    return f"all links {sustain(chance)}"
