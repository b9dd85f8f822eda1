"""The link of the leader to a follower goes down and up, one way or both."""

import random

from chaos.nemesis import Cuts
from chaos.scenarios.common import cut_each, others
from tests.integration.support.waiting import wait_for_time

FLAPS = range(3, 12)
FLAP_S = (0.05, 0.8)


def act(nodes: Cuts, chance: random.Random) -> str:
    leader = nodes.leader()
    other = chance.choice(others(leader))
    both = chance.random() < 0.5
    flaps = chance.choice(FLAPS)
    for _ in range(flaps):
        if both:
            nodes.separate(leader, other)
        else:
            cut_each(nodes, chance, [(leader, other)])
        wait_for_time(chance.uniform(*FLAP_S))
        nodes.heal()
        wait_for_time(chance.uniform(*FLAP_S))
    words = "and back" if both else "one way"
    return f"{nodes.name(leader)} to {nodes.name(other)} {words} {flaps} times"
