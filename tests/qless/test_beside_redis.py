"""Random walks get the same replies and messages from a node and from Redis.

Redis runs the programs of the source packages. The walks avoid the differences that
docs/protocols/qless.md lists (tests/qless/walking.py), or Redis is fixed (tests/qless/beside.py).
To run more walks:

    pytest tests/qless/test_beside_redis.py --walks=500 --first-walk=1000
"""

from typing import Final

import pytest

from tests.qless.beside import Sides
from tests.qless.suites import Place
from tests.qless.theirs import Redis, builds
from tests.qless.walking import SEED, THROTTLES, UNIFIED

STEPS: Final = 250
WALKS: Final = 30


@pytest.mark.parametrize("dialect", [SEED, UNIFIED, THROTTLES])
def test_a_node_says_what_redis_says(
    dialect: str, place: Place, redis: Redis, request: pytest.FixtureRequest
) -> None:
    first = int(request.config.getoption("--first-walk", default=1))
    walks = int(request.config.getoption("--walks", default=WALKS))
    sides = Sides(redis.address, place, dialect, builds()[dialect])
    wrong: list[str] = []
    for seed in range(first, first + walks):
        lines, difference = sides.walk(seed, STEPS)
        if difference is not None:
            line, wanted, found = difference
            short = "\n".join(sides.shortened(lines, line))
            wrong.append(f"seed {seed}: {line}\n  Redis {wanted}\n  node  {found}\n{short}")
    assert not wrong, "\n\n".join(wrong)
