"""SIGTERM where a program is process 1. That number is the double here: it needs a namespace."""

import subprocess
import sys

import pytest

AS_FIRST = """
import os, signal, sys
os.getpid = lambda: 1
import beanpoled
from beanpoled.cli.outputs import removing
"""
LOADING = "signal.raise_signal(signal.SIGTERM); print('goes on')"
REMOVING = """
with removing():
    try:
        signal.raise_signal(signal.SIGTERM)
        print("goes on")
    finally:
        print("removed", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"), [(LOADING, ""), (REMOVING, "removed\n")], ids=["loading", "removing"]
)
def test_sigterm_ends_the_first_process_of_a_container(code: str, said: str) -> None:
    """The kernel would drop it there: a status, and no signal, shows that a handler took it."""
    done = subprocess.run(
        [sys.executable, "-c", AS_FIRST + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, said, "")
