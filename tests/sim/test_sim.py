"""Whole nodes in simulation: every seed is another life, and the same one each time.

SIM_SEEDS says how many, SIM_FIRST where to begin. A failure names the command that replays it.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beanpoled.clock import ClusterClock
from beanpoled.origin import Origin, Wait
from tests.sim.cluster import Violation
from tests.sim.regressions import SEEDS
from tests.sim.storm import CALM, Storm, Stuck, replay
from tests.sim.world import WatchedNode

ROOT = Path(__file__).resolve().parents[2]
FIRST = int(os.environ.get("SIM_FIRST", "1"))
COUNT = int(os.environ.get("SIM_SEEDS", "40"))


def run(seed: int) -> Storm:
    storm = Storm(seed)
    try:
        storm.run()
    except (Violation, Stuck) as error:
        newest = "\n".join(storm.world.lines[-20:])
        raise type(error)(f"{error}\n{newest}\nreplay it: {replay(seed)}") from error
    return storm


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_every_promise_is_kept(seed: int) -> None:
    assert run(seed).history


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if not FIRST <= seed < FIRST + COUNT])
def test_what_was_broken_once_is_kept(seed: int) -> None:
    assert run(seed).history


def test_a_seed_is_the_same_life_each_time() -> None:
    """In this process, again in this process, and with other hashes of strings in others."""
    found = {run(7).world.digest(), run(7).world.digest()}
    for hash_seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-m", "tests.sim.storm", "7"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found.add(output.splitlines()[-2])
    assert len(found) == 1
    assert run(8).world.digest() not in found


def test_without_faults_nothing_is_refused_and_nobody_is_closed() -> None:
    storm = Storm(3, CALM)
    storm.run()
    assert storm.history
    assert not any(op.word in (b"DRAINING", b"INTERNAL_ERROR") for op in storm.history)
    assert not any("cut off" in line or "declared down" in line for line in storm.world.lines)


# --- is anything noticed? -------------------------------------------------------------------------


def noticed(seeds: range) -> list[str]:
    """What is found in some runs."""
    found = []
    for seed in seeds:
        try:
            Storm(seed).run()
        except (Violation, Stuck) as error:
            found.append(str(error))
    return found


def test_a_clock_that_only_grows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hear(clock: ClusterClock, cluster_us: int, now_us: int) -> None:
        if not clock.leading and cluster_us >= clock.estimate_us(now_us):
            clock._base_us, clock._heard_at_us = cluster_us, now_us

    monkeypatch.setattr(ClusterClock, "hear", hear)
    assert any("ready after" in words or "TTR" in words for words in noticed(range(1, 9)))


def test_a_wait_that_its_origin_ends_by_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_wait(origin: Origin, wait: Wait) -> None:
        if origin._waits.pop(wait.session, None) is wait:
            wait.client.wait_ended(None)

    monkeypatch.setattr(Origin, "end_wait", end_wait)
    assert any("was ready all the time" in words for words in noticed(range(1, 5)))


def test_a_machine_that_counts_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = WatchedNode.apply

    def wrong(node: WatchedNode, index: int, term: int, entry: bytes) -> None:
        node.machine.queue.next_id += node.name == "n1" and 60 <= index < 65
        apply(node, index, term, entry)

    monkeypatch.setattr(WatchedNode, "apply", wrong)
    assert any("the machine of n1 differs" in words for words in noticed(range(1, 4)))


def test_an_answer_before_its_commit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that answers DELETED when it hands the command over."""
    submit = Origin.submit

    def hasty(origin: Origin, client: Any, kind: int, command: tuple[Any, ...]) -> None:
        submit(origin, client, kind, command)
        if command[0] == 7 and client is not None:
            batch = origin._open if origin._open.owners else origin._full[-1]
            batch.owners[-1] = (None, kind, batch.owners[-1][2])
            origin._node.host.call_soon(lambda: client.answered(kind, 1))

    monkeypatch.setattr(Origin, "submit", hasty)
    assert len(noticed(range(1, 4))) > 1
