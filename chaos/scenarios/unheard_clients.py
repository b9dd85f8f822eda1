"""A node hears none of its clients; the other nodes hear it."""

import random

from chaos.nemesis import IgnoresClients
from chaos.scenarios.common import sustain, victim


def act(nodes: IgnoresClients, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.ignore_clients(number)
    return f"{nodes.name(number)} hears no client {sustain(chance)}"
