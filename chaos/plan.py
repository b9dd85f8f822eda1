"""What goes wrong when: a schedule that the seed alone decides.

There are two lanes, so that faults of one meet faults of the other. The first takes processes and
disks away and gives them back, one after the other, because only one node at a time may lose what
it has stored. The second disturbs: pauses, cut links, wall clocks, a full disk. How a fault is
done, and to whom, is in `faults`.
"""

import random
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
FILL_DISK: Final = "fill disk"

# How many a minute. At 20 minutes they give more than the 60 kills of single nodes, 15 of the
# leader, 6 of all, 6 faults of disks and 2 wiped disks that are asked for; leaders are killed more
# often, because the distribution of the gaps is taken from those.
BREAKING: Final = {
    KILL: 3.2,
    KILL_LEADER: 3.2,
    KILL_ALL: 0.5,
    RESTART: 0.5,
    FAIL_DISK: 0.5,
    WIPE: 0.25,
    DAMAGE: 0.25,
}
DISTURBING: Final = {STOP: 4.0, CUT: 4.0, CLOCK: 1.0, FILL_DISK: 0.2}


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


def make_plan(seed: int, minutes: float) -> Plan:
    """Return the plan for a seed; each kind comes at least once, however short the time is."""
    chance = random.Random(seed)
    return Plan(*(_lane(chance, rates, minutes) for rates in (BREAKING, DISTURBING)))


def _lane(chance: random.Random, rates: dict[str, float], minutes: float) -> list[Fault]:
    kinds = [kind for kind, rate in rates.items() for _ in range(max(1, round(rate * minutes)))]
    chance.shuffle(kinds)
    step_s = minutes * 60 / len(kinds)
    return [
        Fault((number + chance.random()) * step_s, kind, chance.randrange(2**32))
        for number, kind in enumerate(kinds)
    ]
