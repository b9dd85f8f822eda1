"""Choices and waits that scenarios share; this module applies no fault."""

import random
from collections.abc import Iterable, Sequence
from typing import Final

from chaos.nemesis import NODES, Cuts, Nodes
from tests.integration.support.waiting import wait_for_time

# Both below and above the times of an election, of a fence and until a node is declared down.
DISTURBANCE_S: Final = (0.3, 12.0)
DOWN_S_MAX: Final = 3.0
# Faults of followers are often not noticeable.
LEADER_SHARE: Final = 0.4


def others(number: int) -> Sequence[int]:
    return [other for other in NODES if other != number]


def victim(nodes: Nodes, chance: random.Random) -> int:
    """Return a random node, the leader in at least 40 of 100 cases."""
    if chance.random() < LEADER_SHARE:
        return nodes.leader()
    return chance.choice(NODES)


def pair(nodes: Nodes, chance: random.Random) -> tuple[int, int]:
    one = victim(nodes, chance)
    return one, chance.choice(others(one))


def spread(chance: random.Random, limits_s: tuple[float, float] = DISTURBANCE_S) -> float:
    """Return a duration in seconds, evenly distributed on a logarithmic scale."""
    low, high = limits_s
    return float(low * (high / low) ** chance.random())


def sustain(chance: random.Random) -> str:
    """Wait while a fault lasts; return its duration in words."""
    seconds = spread(chance)
    wait_for_time(seconds)
    return f"for {seconds:.1f} s"


def stay_away(chance: random.Random) -> None:
    """Wait while a node is down."""
    wait_for_time(chance.uniform(0, DOWN_S_MAX))


def cut_each(nodes: Cuts, chance: random.Random, pairs: Iterable[tuple[int, int]]) -> str:
    """Cut the way from each first to each second node; return the way of cutting."""
    way = chance.choice(nodes.ways())
    for source, target in pairs:
        nodes.cut(source, target, way)
    return way
