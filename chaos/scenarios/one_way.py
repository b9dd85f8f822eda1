"""One node does not hear another, which hears it."""

import random

from chaos.nemesis import Cuts
from chaos.scenarios.common import cut_each, pair, sustain


def act(nodes: Cuts, chance: random.Random) -> str:
    one, other = pair(nodes, chance)
    way = cut_each(nodes, chance, [(one, other)])
    return f"{nodes.name(other)} does not hear {nodes.name(one)} ({way}) {sustain(chance)}"
