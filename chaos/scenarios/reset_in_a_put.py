"""Clients' connections end after some bytes: in a line, in a body, or in a pipeline of commands."""

import random

from chaos.nemesis import NODES, LimitsClients
from chaos.scenarios.common import sustain

LIMITS_BYTES = (1, 20, 70, 500, 5000)


def act(nodes: LimitsClients, chance: random.Random) -> str:
    count_bytes = chance.choice(LIMITS_BYTES)
    for number in NODES:
        nodes.limit_clients(number, count_bytes)
    return f"all clients after {count_bytes} bytes {sustain(chance)}"
