"""A node is paused (SIGSTOP or the freezer), so that all its timers are late when it goes on."""

import random

from chaos.nemesis import Freezes
from chaos.scenarios.common import sustain, victim


def act(nodes: Freezes, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.freeze(number)
    return f"{nodes.name(number)} {sustain(chance)}"
