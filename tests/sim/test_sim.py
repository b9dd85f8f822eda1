"""Whole nodes in simulation: lives that failed once, and the repeatability of a seed.

`make sim` runs many more lives, also as a part of `make test`. `test_mutants` checks that defects
are noticed.
"""

import pytest

from tests.sim.cluster import Violation
from tests.sim.regressions import NEWEST, SEEDS
from tests.sim.replays import outputs
from tests.sim.storm import CALM, Storm, Stuck, replay


def run(seed: int) -> Storm:
    storm = Storm(seed)
    try:
        storm.run()
    except (Violation, Stuck) as error:
        newest = "\n".join(storm.world.lines[-20:])
        raise type(error)(f"{error}\n{newest}\nreplay it: {replay(seed)}") from error
    return storm


@pytest.mark.parametrize(
    "seed",
    [seed if seed in NEWEST else pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS],
)
def test_what_was_broken_once_is_kept(seed: int) -> None:
    assert run(seed).history


def test_a_seed_is_the_same_life_each_time() -> None:
    """A seed is equal twice in this process, and in other processes with other string hashes."""
    found = {run(7).world.digest(), run(7).world.digest()}
    found |= {lines[-2] for lines in outputs("tests.sim.storm", 7)}
    assert len(found) == 1
    assert run(8).world.digest() not in found


def test_without_faults_nothing_is_refused_and_nobody_is_closed() -> None:
    storm = Storm(3, CALM)
    storm.run()
    assert storm.history
    assert not any(op.word in (b"DRAINING", b"INTERNAL_ERROR") for op in storm.history)
    assert not any("cut off" in line or "declared down" in line for line in storm.world.lines)
