"""A node is killed and comes back within seconds; sometimes it is killed again while it starts."""

import random

from chaos.nemesis import Ends
from chaos.scenarios.common import stay_away, victim
from tests.integration.support.waiting import wait_for_time

AGAIN_SHARE = 0.2
START_S_MAX = 1.0


def act(nodes: Ends, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.kill(number)
    stay_away(chance)
    nodes.start(number)
    again = chance.random() < AGAIN_SHARE
    if again:
        wait_for_time(chance.uniform(0, START_S_MAX))
        nodes.kill(number)
        nodes.start(number)
    return f"{nodes.name(number)}{' twice' if again else ''}"
