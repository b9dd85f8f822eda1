"""Each node gets this program in place of the last release, one by one, and then that one again.

The version of the machine is not raised, because that would prevent the downgrade.
"""

import random

from chaos.nemesis import NODES, Upgrades


def act(nodes: Upgrades, chance: random.Random) -> str:
    orders = []
    for new in (True, False):
        order = chance.sample(NODES, len(NODES))
        for number in order:
            nodes.stop(number)
            nodes.install(number, new)
            nodes.start(number)
            nodes.wait_until_ready([number])
        orders.append(" ".join(nodes.name(number) for number in order))
    return f"{orders[0]}, back {orders[1]}"
