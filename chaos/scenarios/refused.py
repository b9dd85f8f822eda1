"""Connections between two nodes, or between one and both others, are reset and refused."""

import random

from chaos.nemesis import Refuses
from chaos.scenarios.common import others, sustain, victim


def act(nodes: Refuses, chance: random.Random) -> str:
    one = victim(nodes, chance)
    far = others(one) if chance.random() < 0.5 else [chance.choice(others(one))]
    for other in far:
        nodes.refuse(one, other)
    names = " and ".join(nodes.name(other) for other in far)
    return f"{nodes.name(one)} and {names} {sustain(chance)}"
