"""qless at real nodes: replay its transcripts at a single node and through followers."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.qless_scripts import PAGE, SCRIPTS, Player, read_script, stand_in
from tests.integration.support.raw import Address
from tests.integration.support.waiting import wait_until

PORT_TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=["single", "follower"])
def places(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Address, Address]]:
    """A single node; or a follower for the calls and another one for the subscribers."""
    count = 1 if request.param == "single" else 3
    settings = {"qless_flush": "on"}
    with Cluster(tmp_path_factory.mktemp("qless"), count, settings).running() as cluster:
        numbers = cluster.followers() if count > 1 else [0, 0]
        first, second = (cluster.nodes[number].speaks("qless") for number in numbers)
        wait_until(lambda: answers(first) and answers(second), PORT_TIMEOUT_S, "the ports of qless")
        yield first, second


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_replies_and_messages_are_those_of_the_script(
    path: Path, places: tuple[Address, Address]
) -> None:
    script = read_script(path)
    build = stand_in(script.dialect)
    with contextlib.closing(Player(*places, script.dialect, build)) as player:
        wrong: list[str] = []
        for number, step in enumerate(script.steps):
            wanted = step.ours or step.reply
            found = player.play(step)
            if found != wanted:
                wrong.append(f"{number}: {step.line}\n  wanted {wanted}\n  got    {found}")
        assert not wrong, "\n".join(wrong)
        assert player.messages(len(script.messages)) == list(script.messages)


def test_every_deviation_is_explained() -> None:
    used = {step.deviation for path in SCRIPTS for step in read_script(path).steps} - {""}
    explained = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(SCRIPTS) > 3
    assert used <= set(explained), "docs/protocols/qless.md has the reasons"
