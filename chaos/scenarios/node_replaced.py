"""A node and its disk are gone for ever; another one takes its name, with an empty disk."""

import random

from chaos.nemesis import Replaces
from chaos.scenarios.common import victim


def act(nodes: Replaces, chance: random.Random) -> str:
    number = victim(nodes, chance)
    nodes.replace(number)
    nodes.wait_until_rejoined(number)
    return nodes.name(number)
