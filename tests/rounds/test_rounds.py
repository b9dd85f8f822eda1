"""One round of all scenarios on plain processes, on the last release, and through toxiproxy.

Nodes and clients are real, and judged as in a soak. Longer runs: `make rounds`, `make toxics`.
"""

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from chaos import backends, scenarios
from chaos.upgrade import Upgrade

ROOT: Final = Path(__file__).resolve().parents[2]
# A round takes two to three minutes, and each recovery up to a minute.
TIMEOUT_S: Final = 900


def run(*arguments: str) -> str:
    """Run rounds until each scenario has happened once; return the output."""
    command = [sys.executable, "-m", "chaos.rounds", *arguments, "--minutes", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, duplicated 0, unexpected 0" in done.stdout
    return done.stdout


def happened(told: str) -> list[str]:
    return sorted(re.findall(r"(?m)^ +[0-9.]+ s  ([a-z ]+):", told))


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", ["processes", "toxiproxy"])
def test_a_round_of_all_scenarios_loses_nothing(name: str) -> None:
    told = run(name)
    assert happened(told) == sorted(scenarios.possible(backends.ALL[name].kind))
    # Nodes and links do fail: some commands were never answered.
    (unknown,) = re.findall(r"unknown ([0-9]+)", told)
    assert int(unknown) > 0
    if name == "toxiproxy":
        assert re.search(r"(?m)^links through (toxiproxy|our double of toxiproxy)", told)


@pytest.mark.timeout(TIMEOUT_S)
def test_programs_are_upgraded_and_back_under_load() -> None:
    told = run("releases", "--scenario", "rolling upgrade", "--scenario", "leader killed")
    assert happened(told) == ["leader killed", "rolling upgrade"]


@pytest.mark.timeout(TIMEOUT_S)
def test_an_operator_ends_an_upgrade_under_load(tmp_path: Path) -> None:
    """The automatic end of an upgrade, and the steps without load, are in `make test`."""
    seed = random.SystemRandom().randrange(2**32)
    told: list[str] = [f"seed {seed}"]
    upgrade = Upgrade(tmp_path, seed, 0, told.append, manual=True)
    good = upgrade.run()
    story = "\n".join([*told, *upgrade.figures, *upgrade.findings])
    assert good, f"python -m chaos.upgrade --seed {seed}\n{story}"
