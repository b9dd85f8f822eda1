"""The schedule of faults, determined by the seed alone.

There are two lanes, so that faults of one coincide with faults of the other. The first takes
processes and disks away and gives them back, one after the other, because only one node at a time
may lose its stored data. The second disturbs: pauses, cut links, wall clocks, a full disk. `faults`
applies the faults and chooses their victims.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

KILL: Final = "kill"
KILL_LEADER: Final = "kill leader"
KILL_ALL: Final = "kill all"
RESTART: Final = "restart"
FAIL_DISK: Final = "fail disk"
WIPE: Final = "wipe"
DAMAGE: Final = "damage"
STOP: Final = "stop"
CUT: Final = "cut"
CLOCK: Final = "clock"
POWER_CUT: Final = "power cut"
POWER_CUT_ALL: Final = "power cut of all"
FILL_DISK: Final = "fill disk"

Rates = Mapping[str, float]

# Faults per minute: for every seed, more than ASKED demands. Leaders are killed as often as other
# nodes, because the distribution of the gaps is taken from those kills.
BREAKING: Final[Rates] = {
    KILL: 3.2,
    KILL_LEADER: 3.2,
    KILL_ALL: 0.5,
    RESTART: 0.5,
    FAIL_DISK: 0.5,
    WIPE: 0.25,
    DAMAGE: 0.25,
}
# For disks that lose unsynced data.
POWER: Final[Rates] = {**BREAKING, POWER_CUT: 2.2, POWER_CUT_ALL: 1.1}
# All processes live as long as the run, which shows the growth of their memory.
CALM: Final[Rates] = {}
DISTURBING: Final[Rates] = {STOP: 4.0, CUT: 4.0, CLOCK: 1.0, FILL_DISK: 0.2}

# The faults that a run of 20 minutes must complete to count; other lengths in proportion.
ASKED_MINUTES: Final = 20.0
ASKED: Final = (
    ("kills of single nodes", 60, (KILL,)),
    ("kills of the leader", 60, (KILL_LEADER,)),
    ("kills of all nodes at once", 6, (KILL_ALL,)),
    ("full or failing disks", 6, (FAIL_DISK, FILL_DISK)),
    ("wiped disks brought back with --rejoin", 2, (WIPE,)),
    ("power cuts of single nodes", 40, (POWER_CUT,)),
    ("power cuts of all nodes at once", 20, (POWER_CUT_ALL,)),
)


class Fault(NamedTuple):
    """One fault: when it is due, in seconds from the start, and the seed of its details."""

    at_s: float
    kind: str
    seed: int


class Plan(NamedTuple):
    """The faults of both lanes, in order of time."""

    breaking: list[Fault]
    disturbing: list[Fault]

    def count(self, kind: str) -> int:
        return sum(fault.kind == kind for fault in (*self.breaking, *self.disturbing))


def make_plan(seed: int, minutes: float, breaking: Rates = BREAKING) -> Plan:
    """Return the plan for a seed; each kind occurs at least once, however short the run is.

    Args:
        seed: determines everything.
        minutes: the length of the run.
        breaking: the rates of the first lane.
    """
    chance = random.Random(seed)
    return Plan(*(_lane(chance, rates, minutes) for rates in (breaking, DISTURBING)))


def asked_for(minutes: float, breaking: Rates = BREAKING) -> dict[str, int]:
    """Return the required number of faults in a run of that length, by description."""
    return {words: int(count * minutes / ASKED_MINUTES) for words, count, _ in _asked(breaking)}


def shortfalls(done: Iterable[str], minutes: float, breaking: Rates = BREAKING) -> list[str]:
    """Return in words which faults were too rare; `done` are the kinds of the completed faults."""
    counts = Counter(done)
    asked = asked_for(minutes, breaking)
    found = {words: sum(counts[kind] for kind in kinds) for words, _, kinds in _asked(breaking)}
    return [
        f"only {found[words]} {words}, {asked[words]} are asked for in {minutes:g} minutes"
        for words in found
        if found[words] < asked[words]
    ]


def _asked(breaking: Rates) -> list[tuple[str, int, tuple[str, ...]]]:
    planned = breaking.keys() | DISTURBING.keys()
    return [one for one in ASKED if planned.issuperset(one[2])]


def _lane(chance: random.Random, rates: Rates, minutes: float) -> list[Fault]:
    kinds = [kind for kind, rate in rates.items() for _ in range(max(1, round(rate * minutes)))]
    chance.shuffle(kinds)
    step_s = minutes * 60 / max(1, len(kinds))
    return [
        Fault((number + chance.random()) * step_s, kind, chance.randrange(2**32))
        for number, kind in enumerate(kinds)
    ]
