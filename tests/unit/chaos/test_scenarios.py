"""The scenarios that each backend supports, and the error for an unsupported one."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos import backends, nemesis, rounds, scenarios
from chaos.nemesis import AWAY, FOLLOWER, LEADER, NOT_READY
from chaos.scenarios import common

# The usual scenarios of Jepsen, and the weekly work of operators.
KNOWN = {
    *("majority ring", "bridge", "one way loss", "flapping leader link", "slow disk and link"),
    *("clock steps", "rolling restart", "rolling upgrade", "disk full", "node replaced"),
    "reset in a put",
}


def test_every_scenario_can_be_done_somewhere_and_says_what_it_is() -> None:
    somewhere = {name for place in backends.ALL.values() for name in scenarios.possible(place.kind)}
    assert somewhere == set(scenarios.ALL) and somewhere >= KNOWN
    for one in scenarios.ALL.values():
        assert one.story.endswith((".", ":")) and one.name not in ("", "common")


def test_the_manual_has_all_of_them() -> None:
    manual = (nemesis.ROOT / "chaos" / "README.md").read_text()
    columns = ("processes", "toxiproxy", "namespaces", "containers")
    for name, one in scenarios.ALL.items():
        able = [name in scenarios.possible(backends.ALL[column].kind) for column in columns]
        marks = ["x" if can else "" for can in able]
        if name == "rolling upgrade":
            marks[0] = "releases"
        assert f"| {name} | {one.story.rstrip('.:')} | {' | '.join(marks)} |" in manual


def test_a_scenario_needs_all_abilities_of_its_nodes() -> None:
    possible = {name: scenarios.possible(place.kind) for name, place in backends.ALL.items()}
    assert "one way" not in possible["processes"] and "one way" in possible["namespaces"]
    assert "rolling upgrade" in possible["releases"]
    assert "rolling upgrade" not in possible["processes"]
    assert "moved" in possible["containers"] and "bridge" not in possible["containers"]
    # It needs two abilities, of which plain processes have one.
    assert "slow disk" in possible["processes"]
    assert "slow disk and link" not in possible["processes"]


def test_what_a_backend_cannot_do_is_refused_with_what_it_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        rounds.parse(["processes", "--scenario", "moved"])
    assert ended.value.code == 2
    assert "processes cannot do moved; it can do: all killed, bridge" in capsys.readouterr().err


class Told(nemesis.Backend):
    """A double of a backend with scripted replies of its nodes."""

    def __init__(self, answers: Sequence[tuple[int, str] | None]) -> None:
        super().__init__(Path())
        self.answers = answers

    def get(self, number: int, page: str) -> tuple[int, str]:
        assert page == "/readyz?leader=1"
        found = self.answers[number]
        if found is None:
            raise ConnectionError("nobody answers")
        return found

    def unable(self) -> dict[type, str]:
        return {nemesis.SlowsDisks: "there is no strace"}

    def name(self, number: int) -> str:
        return f"n{number}"

    def slow_disk(self, number: int, latency_ms: int) -> None: ...
    def freeze(self, number: int) -> None: ...
    def start_all(self) -> None: ...
    def close(self) -> None: ...
    def heal(self) -> None: ...
    def check(self, number: int) -> None: ...
    def look(self) -> None: ...

    def addresses(self) -> list[str]:
        return []

    def logs(self) -> list[Path]:
        return []


def test_a_role_is_what_the_readiness_page_says() -> None:
    follows = "[+]disk: behind for 0.0 s\n[-]is-leader: role follower\n"
    starts = "[-]cluster: waiting for n1\n[-]is-leader: role follower\n"
    nodes = Told([(200, "[+]is-leader: role leader\n"), (503, follows), (503, starts), None])
    assert [nodes.role(number) for number in range(4)] == [LEADER, FOLLOWER, NOT_READY, AWAY]
    assert nodes.leader() == 0


def test_what_a_machine_lacks_is_left_out_and_named() -> None:
    told: list[str] = []
    assert list(rounds.choose(Told([]), None, told.append)) == ["paused"]
    assert told == ["left out: slow disk: there is no strace"]


def test_the_sources_may_be_asked_for_as_the_error_says() -> None:
    """`make rounds ARGS=--no-compiled`."""
    assert rounds.parse(["processes", "--compiled"]).compiled is True
    assert rounds.parse(["processes", "--compiled", "--no-compiled"]).compiled is False
    assert rounds.parse(["processes"]).compiled is False


def test_a_run_without_any_scenario_is_not_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = rounds.parse(["processes", "--scenario", "slow disk", "--minutes", "0"])
    assert rounds.run(Told([]), options, tmp_path, 1) == 2
    assert "no scenario is left" in capsys.readouterr().err


def test_faults_last_between_their_limits() -> None:
    chance = random.Random(1)
    low, high = common.DISTURBANCE_S
    times = [common.spread(chance) for _ in range(1000)]
    assert low <= min(times) < 0.5 and 10 < max(times) <= high
