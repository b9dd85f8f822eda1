"""Each node is stopped as an operator does and started again, one when the one before is ready."""

import random

from chaos.nemesis import NODES, Ends


def act(nodes: Ends, chance: random.Random) -> str:
    order = chance.sample(NODES, len(NODES))
    for number in order:
        nodes.stop(number)
        nodes.start(number)
        nodes.wait_until_ready([number])
    return " ".join(nodes.name(number) for number in order)
