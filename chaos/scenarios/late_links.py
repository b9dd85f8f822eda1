"""Messages of all nodes are late, by as much as between continents."""

import random

from chaos.nemesis import NODES, Delays
from chaos.scenarios.common import sustain

LATENCIES_MS = (5, 30, 100, 250)


def act(nodes: Delays, chance: random.Random) -> str:
    latency_ms = chance.choice(LATENCIES_MS)
    for number in NODES:
        nodes.delay(number, latency_ms)
    return f"all links {latency_ms} ms {sustain(chance)}"
