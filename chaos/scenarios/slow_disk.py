"""Each write and sync of a node's log takes longer."""

import random

from chaos.nemesis import SlowsDisks
from chaos.scenarios.common import sustain, victim

LATENCIES_MS = (5, 20, 100, 500)


def act(nodes: SlowsDisks, chance: random.Random) -> str:
    number, latency_ms = victim(nodes, chance), chance.choice(LATENCIES_MS)
    nodes.slow_disk(number, latency_ms)
    return f"{nodes.name(number)} writes {latency_ms} ms {sustain(chance)}"
