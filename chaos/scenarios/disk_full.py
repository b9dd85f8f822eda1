"""Less than the reserve is left on the disk: puts are refused, all else goes on."""

import random

from chaos.nemesis import FillsDisks
from chaos.scenarios.common import sustain


def act(nodes: FillsDisks, chance: random.Random) -> str:
    return f"{nodes.fill_disk()} {sustain(chance)}"
