"""Replies to all clients are lost, and their connections end after a second of silence."""

import random

from chaos.nemesis import NODES, LosesReplies
from chaos.scenarios.common import sustain


def act(nodes: LosesReplies, chance: random.Random) -> str:
    for number in NODES:
        nodes.lose_replies(number)
    return f"all clients {sustain(chance)}"
