"""One round of all partitions between real network namespaces, with real nodes and clients.

Longer runs: `make partitions MINUTES=20`. Needs root, which `make test-namespaces` says.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from chaos import checks, record
from chaos.partitions import Faults

ROOT: Final = Path(__file__).resolve().parents[2]
# A round takes a minute and a half, and healing may take a minute each time.
TIMEOUT_S: Final = 600


@pytest.mark.timeout(TIMEOUT_S)
def test_a_round_of_every_partition_loses_nothing() -> None:
    command = [sys.executable, "-m", "chaos.partitions", "--minutes", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, invented 0, double reservations 0" in done.stdout
    names = set(Faults.names())
    assert set(re.findall(r"(?m)^ +[0-9.]+ s  ([a-z ]+):", done.stdout)) == names
    # The rules do cut: while nobody hears anybody, nothing is acknowledged.
    (shattered,) = re.findall(r"command, shattered: p50 ([0-9.]+) s", done.stdout)
    assert float(shattered) > 0.2


def test_a_lost_job_would_be_found() -> None:
    ops = [record.Op(0, 0, record.PUT, 1.0, 1.1, 7, "INSERTED", record.make_head(0, 1, 5, 60))]
    assert checks.judge([ops]).verdict.lost == [7]
