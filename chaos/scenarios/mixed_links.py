"""Messages of each node are late, slow or in pieces, each node's in another way."""

import random
from typing import Protocol, runtime_checkable

from chaos.nemesis import NODES, Delays, Slices, Slows
from chaos.scenarios.common import sustain
from chaos.scenarios.late_links import LATENCIES_MS
from chaos.scenarios.slow_links import RATES_KBIT_S


@runtime_checkable
class Mixes(Delays, Slows, Slices, Protocol):
    """Links can be delayed, slow and in pieces."""


def act(nodes: Mixes, chance: random.Random) -> str:
    words = []
    for number in NODES:
        kind = chance.choice(("late", "slow", "in pieces"))
        if kind == "late":
            nodes.delay(number, chance.choice(LATENCIES_MS))
        elif kind == "slow":
            nodes.slow(number, chance.choice(RATES_KBIT_S))
        else:
            nodes.slice(number)
        words.append(f"{nodes.name(number)} {kind}")
    return f"{', '.join(words)} {sustain(chance)}"
