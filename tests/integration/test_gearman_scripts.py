"""Beanpole and Debian's gearmand return the same packets for the same Gearman scripts.

A single node and a follower of a cluster play the scripts. The reference is the installed gearmand
or, without one, the transcripts recorded from it (`pytest
tests/integration/test_gearman_scripts.py --record` rewrites them). The scripts mark every deviation
with the reply of Beanpole; docs/protocols/gearman.md has the reasons.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.gearman_scripts import FOLDER, GearmanPlayer, deviations
from tests.integration.support.gearmand import Gearmand, gearmand_path
from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.raw import Address
from tests.integration.support.scripts import (
    Step,
    format_transcript,
    read_script,
    read_transcript,
)
from tests.integration.support.waiting import wait_until

SCRIPTS = sorted(FOLDER.glob("*.txt"))
INSTALLED = gearmand_path() is not None
PORT_TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=["single", "follower"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Address]:
    """The address of a single node, and of a follower of a cluster of three."""
    count = 1 if request.param == "single" else 3
    with Cluster(tmp_path_factory.mktemp("gearman"), count).running() as cluster:
        number = cluster.followers()[0] if count > 1 else 0
        found = cluster.nodes[number].speaks("gearman")
        wait_until(lambda: answers(found), PORT_TIMEOUT_S, "the port of Gearman")
        yield found


def play(address: Address, steps: list[Step]) -> list[list[bytes]]:
    """Play a script and return the packets received in each step."""
    with contextlib.closing(GearmanPlayer(address)) as player:
        return [player.play(step) for step in steps]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_transcript_is_what_gearmand_says(
    script: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recording = request.config.getoption("--record", default=False)
    steps = read_script(script)
    transcript = script.with_suffix(".expected")
    if not INSTALLED:
        assert not recording, "recording needs an installed gearmand"
        return
    server = Gearmand(tmp_path)
    try:
        replies = play(server.address, steps)
    finally:
        server.close()
    if recording:
        transcript.write_text(format_transcript(steps, replies))
    assert read_transcript(transcript, steps) == replies


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_beanpole_says_the_same(script: Path, address: Address) -> None:
    steps = read_script(script)
    expected = read_transcript(script.with_suffix(".expected"), steps)
    replies = play(address, steps)
    wrong: list[str] = []
    for number, (step, theirs, ours) in enumerate(zip(steps, expected, replies, strict=True)):
        wanted = [reply for _, reply in step.deviations] or theirs
        if ours != wanted:
            wrong.append(f"{number}: {step.line!r}\n  wanted {wanted}\n  got    {ours}")
        if step.deviations and wanted == theirs:
            wrong.append(f"{number}: {step.line!r} is called a deviation, but is none")
    assert not wrong, "\n".join(wrong)


def test_every_deviation_has_a_reason() -> None:
    used = {
        name for script in SCRIPTS for step in read_script(script) for name, _ in step.deviations
    }
    assert used == deviations()
