"""Commands whose nodes drop events between the plan and the read, as retention does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from beanpoled.cli import main
from pyspark_beanpole import inputs
from pyspark_beanpole.cli.common import BEGINNINGS_MAX
from pyspark_beanpole.inputs import Input
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log, event

# The events of a double have few columns, so an audit of them does not add up: exit status 1.
READ = {"report": 0, "audit": 1, "redrive": 0}
COMMANDS = {
    "report": ["report", "--to", "OUT"],
    "audit": ["audit"],
    "redrive": ["redrive", "--dry-run", "--state", "buried"],
}
pytestmark = pytest.mark.usefixtures("interpreted")
# Drops events of a node; its argument is the number of inputs that were made so far.
Drop = Callable[[Double, int], None]


def run(command: str, node: Double, tmp_path: Path) -> int:
    words = [str(tmp_path / "out") if word == "OUT" else word for word in COMMANDS[command]]
    return main(["pipeline", *words, "--addresses", node.address, "--patience", "1"])


def drop_after(monkeypatch: pytest.MonkeyPatch, node: Double, drop: Drop) -> list[Input]:
    """Drop events each time that an input was made of a cluster; return the inputs."""
    found: list[Input] = []
    real = inputs.from_cluster

    def made(*arguments: Any) -> Input:
        found.append(real(*arguments))
        drop(node, len(found))
        return found[-1]

    monkeypatch.setattr(inputs, "from_cluster", made)
    return found


def sixty() -> Log:
    """A log of 60 jobs that were put, the last one into the buried state."""
    log = Log(jobs={"ready": 39, "buried": 1})
    log.grow(59)
    log.events.append(event(59, state="buried"))
    return log


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_begins_again_where_the_oldest_events_went(
    command: str,
    spark: SparkSession,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def drop(node: Double, count: int) -> None:
        node.first = 20

    found = drop_after(monkeypatch, node := start(sixty()), drop)
    assert run(command, node, tmp_path) == READ[command]
    assert [one.first for one in found] == [0, 20]
    said = capsys.readouterr()
    words = "beanpole: the events 0 to 19 went while they were read; beginning again with 20"
    assert words in said.err
    assert command != "audit" or "events 20 to 60: 40\n" in said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hole_behind_the_oldest_events_is_an_error_at_once(
    command: str,
    spark: SparkSession,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def drop(node: Double, count: int) -> None:
        node.missing = range(20, 30)

    found = drop_after(monkeypatch, node := start(sixty()), drop)
    assert run(command, node, tmp_path) == 3
    assert "the events from offset 20 on are gone" in capsys.readouterr().err
    # The second one only shows that the first event is still there.
    assert len(found) == 2


def test_a_command_does_not_begin_for_ever(
    spark: SparkSession,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def drop(node: Double, count: int) -> None:
        node.first = count

    found = drop_after(monkeypatch, node := start(sixty()), drop)
    assert run("report", node, tmp_path) == 3
    assert len(found) == BEGINNINGS_MAX
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("beanpole: the events from offset 4 on are gone")
