"""The wall clock of one node, or of all, steps forward or back, and is not reset."""

import random

from chaos.nemesis import NODES, StepsClocks
from chaos.scenarios.common import sustain

STEPS_S = (0.0, 0.05, -0.05, 1.0, -1.0, 30.0, -30.0, 3600.0, -3600.0)
ALL_SHARE = 0.3


def act(nodes: StepsClocks, chance: random.Random) -> str:
    stepped = NODES if chance.random() < ALL_SHARE else [chance.choice(NODES)]
    seconds = chance.choice(STEPS_S)
    for number in stepped:
        nodes.step_clock(number, seconds)
    names = " ".join(nodes.name(number) for number in stepped)
    return f"{names} to {seconds:+g} s {sustain(chance)}"
