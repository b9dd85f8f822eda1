"""Choices and waits that scenarios have in common; no fault is done here."""

import random
from collections.abc import Iterable, Sequence
from typing import Final

from chaos.nemesis import NODES, Cuts, Nodes
from tests.integration.support.waiting import wait_for_time

# Shorter and longer than an election, a fence and the time after which a node is declared down.
DISTURBANCE_S: Final = (0.3, 12.0)
DOWN_S_MAX: Final = 3.0
# Faults of followers are seldom noticed.
LEADER_SHARE: Final = 0.4


def others(number: int) -> Sequence[int]:
    return [other for other in NODES if other != number]


def victim(nodes: Nodes, chance: random.Random) -> int:
    """Return a node; the leader in 40 of 100 cases or more."""
    if chance.random() < LEADER_SHARE:
        return nodes.leader()
    return chance.choice(NODES)


def pair(nodes: Nodes, chance: random.Random) -> tuple[int, int]:
    one = victim(nodes, chance)
    return one, chance.choice(others(one))


def spread(chance: random.Random, limits_s: tuple[float, float] = DISTURBANCE_S) -> float:
    """Return for how long a fault lasts, in seconds; its order of magnitude is even."""
    low, high = limits_s
    return float(low * (high / low) ** chance.random())


def last(chance: random.Random) -> str:
    """Let a fault last; return for how long it did."""
    seconds = spread(chance)
    wait_for_time(seconds)
    return f"for {seconds:.1f} s"


def stay_away(chance: random.Random) -> None:
    """Wait while a node is down."""
    wait_for_time(chance.uniform(0, DOWN_S_MAX))


def cut_each(nodes: Cuts, chance: random.Random, pairs: Iterable[tuple[int, int]]) -> str:
    """Cut the way from each first to each second node; return in which way."""
    way = chance.choice(nodes.ways())
    for source, target in pairs:
        nodes.cut(source, target, way)
    return way
