"""A program tied to its parent: it ends with the parent, and does not start without it."""

import signal
import subprocess
import sys

import pytest

from beanpoled.cli import tied
from tests.integration.support.processes import is_running
from tests.integration.support.waiting import wait_until

PARENT = """
import subprocess, sys
from beanpoled.cli.tied import tied
child = subprocess.Popen(tied(["sleep", "60"], int(sys.argv[1])))
print(child.pid, flush=True)
child.wait()
"""
TIMEOUT_S = 60.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_when_its_parent_is_killed(number: int) -> None:
    command = [sys.executable, "-c", PARENT, str(int(number))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())

        def has_begun() -> bool:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                return file.read() == b"sleep\x0060\x00"

        wait_until(has_begun, TIMEOUT_S, "the program begins")
        parent.kill()
    wait_until(lambda: not is_running(child), TIMEOUT_S, "the program ends")


def test_it_does_not_begin_without_its_parent() -> None:
    python, flags, script, _, *rest = tied.tied(["echo", "begun"], signal.SIGTERM)
    found = subprocess.run([python, flags, script, "1", *rest], capture_output=True, text=True)
    assert found.returncode == 1
    assert (found.stdout, found.stderr) == ("", "the parent has ended already\n")
