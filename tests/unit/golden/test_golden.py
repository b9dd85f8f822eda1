"""Runs the golden scripts; `script.py` explains how to rewrite them."""

from pathlib import Path
from typing import Final

import pytest

from tests.unit.golden import script
from tests.unit.golden.leader_world import LeaderWorld
from tests.unit.golden.replication_world import ReplicationWorld

HERE: Final = Path(__file__).parent
REPLICATION: Final = sorted(HERE.glob("replication/*.txt"))
LEADER: Final = sorted(HERE.glob("leader/*.txt"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", REPLICATION, ids=name)
def test_replication(path: Path) -> None:
    script.check(path, ReplicationWorld)


@pytest.mark.parametrize("path", LEADER, ids=name)
def test_leader(path: Path) -> None:
    script.check(path, LeaderWorld)


def test_there_are_scripts() -> None:
    assert len(REPLICATION) >= 6 and len(LEADER) >= 6


class Echo:
    """A world that prints its commands."""

    def perform(self, command: str, lines: list[str]) -> list[str]:
        return [command.upper(), *lines]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "echo.txt"
    path.write_text("# Prose alone.\n\n# Prose above.\na\nb\n----\nA\nwrong\n")
    return path


def test_another_output_fails_as_a_diff(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(script.SETTING, raising=False)
    before = path.read_text()
    with pytest.raises(AssertionError, match="make golden") as raised:
        script.check(path, Echo)
    assert str(raised.value).splitlines()[-3:] == [" A", "-wrong", "+b"]
    assert path.read_text() == before


def test_a_script_is_written_again_when_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(script.SETTING, "rewrite")
    script.check(path, Echo)
    assert path.read_text() == "# Prose alone.\n\n# Prose above.\na\nb\n----\nA\nb\n"
    monkeypatch.delenv(script.SETTING)
    script.check(path, Echo)
