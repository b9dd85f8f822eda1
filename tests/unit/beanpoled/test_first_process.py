"""SIGTERM where a program is process 1. That number is the double here: it needs a namespace."""

import signal
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


@pytest.mark.slow
@pytest.mark.parametrize("first", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_second_signal_does_not_interrupt_the_removal(first: str) -> None:
    """A terminal that closes may send two, and so does a user without patience."""
    code = f"""
import signal
from beanpoled.cli.outputs import removing
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
with removing():
    try:
        signal.raise_signal(signal.{first})
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.raise_signal(number)
        print("removed", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "removed\n"
    assert done.returncode == -getattr(signal, first)


@pytest.mark.slow
def test_the_first_process_may_load_the_package_in_a_thread() -> None:
    code = """
import os, threading
os.getpid = lambda: 1
def load():
    import beanpoled
    print("loaded", flush=True)
thread = threading.Thread(target=load)
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded\n", "")
