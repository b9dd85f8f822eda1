"""One node, or all, send no more than a modem or a full line lets through."""

import random

from chaos.nemesis import NODES, Slows
from chaos.scenarios.common import sustain, victim

RATES_KBIT_S = (128, 512, 2000, 8000)
ALL_SHARE = 0.4


def act(nodes: Slows, chance: random.Random) -> str:
    rate = chance.choice(RATES_KBIT_S)
    slowed = NODES if chance.random() < ALL_SHARE else [victim(nodes, chance)]
    for number in slowed:
        nodes.slow(number, rate)
    names = " ".join(nodes.name(number) for number in slowed)
    return f"{names} {rate} kbit/s {sustain(chance)}"
