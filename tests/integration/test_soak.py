"""A short soak: about one fault of each kind, with a verdict on every reply to the clients.

The long one is `make soak`; chaos/README.md describes it.
"""

import random
import sys
from pathlib import Path

import pytest

from chaos.ending import shared_stats
from chaos.soak import Soak
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

MINUTES = 0.35


@pytest.mark.long
@pytest.mark.timeout(240)
def test_short_soak(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    told: list[str] = [f"seed {seed}"]
    soak = Soak(tmp_path, seed, MINUTES, told.append)
    good = soak.run()
    story = "\n".join([*told, *soak.figures, *soak.findings])
    sys.stdout.write(story + "\n")
    assert good, f"make soak MINUTES={MINUTES} ARGS='--seed {seed}'\n{story}"


class Slow(Raw):
    """A client that sees another client's tube disappear after it has listed the tubes."""

    def __init__(self, address: str, other: Raw) -> None:
        super().__init__(address)
        self._other = other

    def names(self, command: bytes) -> list[str]:
        found = super().names(command)
        self._other.close()
        wait_until(lambda: self.find(b"stats-tube brief") is None, 60)
        return found


def test_a_tube_that_ends_between_two_questions_is_no_difference(shared: Cluster) -> None:
    address = shared.nodes[0].beanstalk
    other = Raw(address)
    other.ask(b"use brief", b"USING brief")
    with Slow(address, other) as client:
        assert shared_stats(client) is None
    with Raw(address) as client:
        found = shared_stats(client)
    assert found is not None
    assert "default total-jobs" in found
