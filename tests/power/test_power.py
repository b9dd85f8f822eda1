"""Power cuts under real nodes: nothing is lost, and a node that does not sync is detected.

`make soak ARGS=--forgetful` is the long form.
"""

import random
import sys
from pathlib import Path

import pytest

from chaos import compiled_tree, plan
from chaos.ground import Kind
from chaos.soak import Soak

MINUTES = 0.5
CUTS = 3
CUT_EVERY_S = 4.0


def tell(soak: Soak, told: list[str]) -> str:
    story = "\n".join([*told, *soak.figures, *soak.findings])
    sys.stdout.write(story + "\n")
    return story


@pytest.mark.timeout(300)
def test_short_soak_with_power_cuts(tmp_path: Path) -> None:
    """The soak uses compiled nodes, which `make test-power` builds."""
    assert compiled_tree.missing() == ""
    seed = random.SystemRandom().randrange(2**32)
    told = [f"seed {seed}"]
    soak = Soak(tmp_path, seed, MINUTES, told.append, Kind(compiled=True, forgetful=True))
    good = soak.run()
    story = tell(soak, told)
    command = f"make soak MINUTES={MINUTES} ARGS='--forgetful --seed {seed}'"
    assert good, f"{command}\n{story}"
    assert "with O_DIRECT" in story


@pytest.mark.timeout(300)
def test_nodes_whose_log_is_not_synced_lose_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes lose power at once, so none has the jobs acknowledged since the last sync."""
    times_s = [CUT_EVERY_S * (1 + number) for number in range(CUTS)]
    cuts = [plan.Fault(at_s, plan.POWER_CUT_ALL, 1) for at_s in times_s]
    monkeypatch.setattr(plan, "make_plan", lambda *_: plan.Plan(cuts, []))
    told: list[str] = []
    kind = Kind(forgetful=True, lies=True)
    soak = Soak(tmp_path, 1, times_s[-1] / 60, told.append, kind)
    assert not soak.run()
    assert "was acknowledged and is lost" in tell(soak, told)
