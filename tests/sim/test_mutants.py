"""Every planted defect is caught by the verdict that belongs to it; `make mutants` is the full run.

Here each mutant meets the schedule or the seed that caught it, which must pass without it. If a
change of the code has given that seed another life, the next seeds are tried.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from tests.shares import one_in
from tests.sim import many, mutations, upgrades
from tests.sim.disk import Killed
from tests.sim.mutant import WITHIN, Check, Mutant
from tests.sim.mutant_table import MUTANTS, NAMES, SCHEDULES
from tests.sim.mutants import is_right, main, verdict
from tests.sim.storm import Storm
from tests.sim.upgrades import Upgrade

IN_LIVES: Final = [mutant for mutant in MUTANTS + SCHEDULES if mutant.seed]
IN_SCHEDULES: Final = [mutant for mutant in MUTANTS + SCHEDULES if not mutant.seed]
DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "testing" / "mutants.md"
# One in this many of those that need simulated lives is part of `make test`.
SHARE: Final = 12


@cache
def without(check: Check, seed: int) -> str:
    """Return the message of a check of the unchanged code."""
    return verdict(check, seed, ALL_REPAIRS)


@pytest.mark.parametrize(
    "mutant",
    one_in(SHARE, IN_LIVES) + IN_SCHEDULES,
    ids=lambda mutant: f"{mutant.name}: {mutant.way}",
)
def test_it_is_caught(mutant: Mutant) -> None:
    said = []
    for seed in range(mutant.seed, mutant.seed + WITHIN) if mutant.seed else (0,):
        said.append(verdict(mutant.check, seed, mutant.repairs, mutant.patches))
        if is_right(mutant, said[-1]):
            assert not without(mutant.check, seed)
            return
    pytest.fail(f"{mutant.name} is not noticed: {said}")


def test_a_wrong_name_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result would be that 0 of 0 mutants are caught, with status 0."""
    monkeypatch.setattr(sys, "argv", ["mutants", "no_such_mutant"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def ends_alone(_seed: int, _repairs: Repairs) -> None:
    raise Killed


def test_an_end_that_no_node_has_caught_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end its process of the pool, and the pool would wait for the result for ever."""
    assert verdict(ends_alone, 1, ALL_REPAIRS).startswith("a crash: Killed")
    for kind, live in ((Storm, many.live), (Upgrade, upgrades.live)):
        monkeypatch.setattr(kind, "run", lambda _: ends_alone(1, ALL_REPAIRS))
        assert "Killed" in live(1).failure


def test_every_repair_has_its_mutant() -> None:
    assert set(Repairs.__slots__) <= set(NAMES)


def test_the_docs_list_every_mutant() -> None:
    _, rows = DOCS.read_text().split("| mutant | defect | caught by |\n| --- | --- | --- |\n")
    assert rows.splitlines() == [mutant.row for mutant in MUTANTS + SCHEDULES]


def test_a_defect_goes_when_its_check_is_done() -> None:
    before = [getattr(owner, name) for owner, name, _ in mutations.early_ttr()]
    with mutations.planted(mutations.early_ttr):
        planted = [getattr(owner, name) for owner, name, _ in mutations.early_ttr()]
        assert planted != before
    assert [getattr(owner, name) for owner, name, _ in mutations.early_ttr()] == before


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("n1 applies 7, which 1 of 3 disks have", True),
        ("n1 stopped itself: TypeError in turn at acks.py:9: which 1 of 3 disks have", False),
        ("a crash: ZeroDivisionError('disks have')", False),
        ("nothing", False),
    ],
)
def test_only_the_right_verdict_counts(words: str, right: bool) -> None:
    assert is_right(NAMES["clip_leader_acks"], words) is right
