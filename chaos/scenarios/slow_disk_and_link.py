"""A node's disk is slow and so is its link: the leader waits for it, or it falls behind."""

import random
from typing import Protocol, runtime_checkable

from chaos.nemesis import Slows, SlowsDisks
from chaos.scenarios.common import sustain, victim

LATENCIES_MS = (5, 20, 100)
RATES_KBIT_S = (512, 2000)


@runtime_checkable
class SlowsBoth(SlowsDisks, Slows, Protocol):
    """Disks and links can be slow."""


def act(nodes: SlowsBoth, chance: random.Random) -> str:
    number = victim(nodes, chance)
    latency_ms, rate = chance.choice(LATENCIES_MS), chance.choice(RATES_KBIT_S)
    nodes.slow_disk(number, latency_ms)
    nodes.slow(number, rate)
    return f"{nodes.name(number)} writes {latency_ms} ms, sends {rate} kbit/s {sustain(chance)}"
