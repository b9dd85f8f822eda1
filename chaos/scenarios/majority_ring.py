"""Each node hears one other, and another one than hears it: three majorities, no two the same."""

import random

from chaos.nemesis import NODES, Cuts
from chaos.scenarios.common import cut_each, sustain


def act(nodes: Cuts, chance: random.Random) -> str:
    way = cut_each(nodes, chance, ((number, (number + 1) % len(NODES)) for number in NODES))
    return f"each hears one other ({way}) {sustain(chance)}"
