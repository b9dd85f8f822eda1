"""A node receives nothing from the others, which receive its messages; its clients reach it."""

import random

from chaos.nemesis import Cuts
from chaos.scenarios.common import cut_each, others, sustain, victim


def act(nodes: Cuts, chance: random.Random) -> str:
    number = victim(nodes, chance)
    way = cut_each(nodes, chance, ((other, number) for other in others(number)))
    return f"{nodes.name(number)} hears no node ({way}) {sustain(chance)}"
