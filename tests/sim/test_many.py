"""The program that runs many seeds ends with an error when one of its processes is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.integration.support.waiting import wait_until

PROCESSES: Final = os.cpu_count() or 1
TIMEOUT_S: Final = 60.0


def test_a_killed_process_ends_the_run() -> None:
    """It waited for ever for the lives of that process."""
    line = [sys.executable, "-m", "tests.sim.many", "--seeds", "1000"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        try:
            # The first child only looks for semaphores that are left behind. All others have to be
            # there: a pool of Python 3.11 that breaks while it starts a process waits for that one.
            wait_until(lambda: len(children.read_text().split()) == 1 + PROCESSES, TIMEOUT_S)
            os.kill(int(children.read_text().split()[-1]), signal.SIGKILL)
            _, told = run.communicate(timeout=TIMEOUT_S)
        finally:
            run.kill()
    assert run.returncode == 1
    assert "BrokenProcessPool" in told
