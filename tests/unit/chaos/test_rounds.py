"""Rounds of scenarios on a backend that does nothing."""

import time
from collections.abc import Iterable
from pathlib import Path

from chaos.backends.processes import Processes
from chaos.rounds import Rounds
from chaos.scenarios import Scenario


class Idle(Processes):
    """Nodes that were never started."""

    def heal(self) -> None:
        """There is nothing to heal."""

    def wait_until_ready(self, numbers: Iterable[int] = ()) -> None:
        """There is no node to wait for."""


def test_there_is_a_round_although_the_time_is_over(tmp_path: Path) -> None:
    """A run in which nothing was broken would look good."""
    backend = Idle(tmp_path, compiled=False)
    told: list[str] = []
    chosen = {"one": Scenario("one", "", object, lambda *_: "done")}
    try:
        rounds = Rounds(backend, chosen, tmp_path, 1, told.append)
        rounds._break(time.monotonic() - 60, 0.02)
    finally:
        backend.close()
    assert [line.split("s  ")[1] for line in told] == ["one: done"]
