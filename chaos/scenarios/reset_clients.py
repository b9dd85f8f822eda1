"""The connections of a node's clients end with a reset, in the middle of what they send."""

import random

from chaos.nemesis import ResetsClients
from chaos.scenarios.common import sustain, victim


def act(nodes: ResetsClients, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.reset_clients(number)
    return f"clients of {nodes.name(number)} {sustain(chance)}"
