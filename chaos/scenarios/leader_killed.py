"""The leader is killed, and comes back when another one leads."""

import random

from chaos.nemesis import Ends
from chaos.scenarios.common import stay_away
from tests.integration.support.waiting import wait_for_time

# After the election, so that a second interruption would be visible.
SETTLED_S = 1.0


def act(nodes: Ends, chance: random.Random) -> str:
    number = nodes.leader()
    nodes.kill(number)
    successor = nodes.leader(other_than=number)
    wait_for_time(SETTLED_S)
    stay_away(chance)
    nodes.start(number)
    return f"{nodes.name(number)}, then {nodes.name(successor)} led"
