"""Every call, command and client method at three real nodes: through a follower, and while the
leader is killed.

A new command needs an exercise in support/exercises_*.py, or there the name of the test that
covers it.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from beanpole.client import aio, blocking
from tests.integration.support import exercises_calls as calls
from tests.integration.support import exercises_commands as commands
from tests.integration.support import exercises_methods as methods
from tests.integration.support.exercises import DONE_S, Exercise, Scene, run_while_killed
from tests.integration.support.nodes import Cluster
from tests.integration.support.program import outputs
from tests.shares import one_in

TESTS: Final = Path(__file__).resolve().parents[1]
ALL: Final[Mapping[str, Exercise]] = {
    **{f"call {name}": one for name, one in calls.EXERCISES.items()},
    **{f"command {name}": one for name, one in commands.EXERCISES.items()},
    **{f"method {name}": one for name, one in methods.EXERCISES.items()},
}
# As documented, these may end without a known outcome when the leader is killed.
MAY_BE_OPEN: Final = {
    *(f"command {name}" for name in ("put", "delete", "release", "bury", "kick")),
    *(f"method {module}.{name}" for module in ("blocking", "aio") for name in methods.MAY_BE_OPEN),
}
# All exercises at once would compete with the election for the cores.
WAVES: Final = 4


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("everything")).running() as found:
        yield found


def test_none_is_without_an_exercise() -> None:
    assert calls.calls() == {*calls.EXERCISES, *calls.ELSEWHERE}
    named = {*commands.EXERCISES, *commands.WITH, *commands.ELSEWHERE}
    assert commands.commands() == named
    assert set(commands.WITH.values()) <= set(commands.EXERCISES)
    assert methods.public(aio) == set(methods.METHODS)
    assert methods.public(blocking) == set(methods.METHODS) - {"connect"}
    for words, test in commands.ELSEWHERE.items():
        assert words.split()[-1] in (TESTS / test).read_text(), (words, test)
    assert all((TESTS / test).exists() for test in calls.ELSEWHERE.values())


@pytest.mark.parametrize("name", ALL)
def test_through_a_follower(name: str, nodes: Cluster, tmp_path: Path) -> None:
    leader, (follower, other) = nodes.roles()
    order = [nodes.nodes[number] for number in (follower, leader, other)]
    queue = "".join(letter if letter.isalnum() else "-" for letter in name)
    with outputs():
        ALL[name](Scene(order, queue, tmp_path))


@pytest.mark.timeout(4 * DONE_S)
@pytest.mark.parametrize("wave", one_in(WAVES, range(WAVES)))
def test_while_the_leader_is_killed(wave: int, nodes: Cluster, tmp_path: Path) -> None:
    nodes.mend()
    leader, followers = nodes.roles()
    order = [nodes.nodes[number] for number in (leader, *followers)]
    some = {name: ALL[name] for name in islice(ALL, wave, None, WAVES)}
    with outputs():
        opened = run_while_killed(some, order, tmp_path, lambda: nodes.kill(leader))
    assert {name for name, count in opened.items() if count} <= MAY_BE_OPEN
    assert max(opened.values()) <= 1, opened
