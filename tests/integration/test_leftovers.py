"""Connections that have ended leave nothing that only a full garbage collection would find."""

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.support.ports import free_block

SCENES = 14
# Each scene takes its whole time-out if it leaves something.
TIMEOUT_S = 600.0


def test_connections_that_have_ended_leave_nothing(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.integration.support.leftovers"]
    line += [str(free_block()), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    scenes = dict(json.loads(row) for row in done.stdout.splitlines() if row.startswith("["))
    assert len(scenes) == SCENES
    assert not {name: left for name, left in scenes.items() if left}
