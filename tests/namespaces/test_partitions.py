"""One round of all scenarios between real network namespaces, with real nodes and clients.

Longer runs: `make partitions MINUTES=20`. The tests need root, as `make test-namespaces` reports.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from chaos import checks, record, scenarios
from chaos.backends.namespaces import NAMES, Namespaces
from tests.integration.support.processes import children
from tests.integration.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
# A round takes three minutes, and each recovery up to a minute.
TIMEOUT_S: Final = 900
END_TIMEOUT_S: Final = 20


@pytest.mark.timeout(TIMEOUT_S)
def test_a_round_of_every_partition_loses_nothing() -> None:
    command = [sys.executable, "-m", "chaos.rounds", "namespaces", "--minutes", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, duplicated 0, unexpected 0" in done.stdout
    names = set(scenarios.possible(Namespaces))
    assert set(re.findall(r"(?m)^ +[0-9.]+ s  ([a-z ]+):", done.stdout)) == names
    # The rules do cut: while no node hears another, nothing is acknowledged.
    (shattered,) = re.findall(r"command, shattered: p50 ([0-9.]+) s", done.stdout)
    assert float(shattered) > 0.2


def test_a_lost_job_would_be_found() -> None:
    ops = [record.Op(0, 0, record.PUT, 1.0, 1.1, 7, "INSERTED", record.make_head(0, 1, 5, 60))]
    assert checks.judge([ops]).verdict.lost == [7]


def networks(pids: Iterable[int]) -> set[str]:
    """Return the network namespaces of processes, without those that have ended."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
    return found


def family(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    found = {pid}
    with contextlib.suppress(OSError):
        for child in children(pid):
            found |= family(child)
    return found


def test_nothing_is_left_after_sigterm() -> None:
    program = [sys.executable, "-u", "-m", "chaos.rounds", "namespaces"]
    command = [*program, "--minutes", "1", "--seed", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        # After the first fault, nodes, clients and rules exist.
        lines = iter(run.stdout)
        assert next(lines).startswith("seed 1")
        assert ":" in next(lines)
        made = networks(family(run.pid)) - networks([os.getpid()])
        assert len(made) == len(NAMES) + 1
        run.terminate()
        assert run.wait(END_TIMEOUT_S) == 130

    def gone() -> bool:
        pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return not made & networks(pids)

    wait_until(gone, END_TIMEOUT_S, "all processes have ended")


def test_each_rule_is_for_one_direction(tmp_path: Path) -> None:
    probe = ["unshare", "--net", sys.executable, "-m", "tests.namespaces.probe", str(tmp_path)]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "open: there arrives, back arrives, connect taken",
        "data only: there lost, back arrives, connect taken",
        "all: there lost, back arrives",
        "refuse: connect refused",
        "open: there arrives, back arrives, connect taken",
    ]


@pytest.mark.parametrize("fault", ["deafen_leader", "trickle"])
def test_a_worker_is_told_before_its_job_goes_to_another(fault: str, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.namespaces.leases", fault, str(tmp_path)]
    command = ["unshare", "--net", *program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "worker b'', other b'RESERVED 1 3\\r\\njob\\r\\n'\n"
