"""Signals before a program is loaded, and SIGTERM where it is process 1.

That number is the double here: it needs a namespace.
"""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from beanpoled import launch

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


# The first module that takes long to load finds the signals that came before it.
WHILE_LOADING = """
import runpy, signal, sys

class Sender:
    def find_spec(self, name, *_):
        if name == "beanpoled.main":
            for one in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                signal.raise_signal(one)
            print("sent", flush=True)

sys.meta_path.insert(0, Sender())
sys.argv[1:] = ["--version"]
runpy.run_module("beanpoled", run_name="__main__")
"""


@pytest.mark.slow
def test_signals_for_a_running_node_do_not_end_one_that_is_being_loaded() -> None:
    """A supervisor that sends SIGHUP right after the start ended it, without a line."""
    done = subprocess.run(
        [sys.executable, "-c", WHILE_LOADING],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sent\nbeanpoled ")
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
    script = tomllib.loads(project.read_text())["project"]["scripts"]["beanpoled"]
    assert script == f"{launch.__name__}:{launch.main.__name__}"


@pytest.mark.slow
@pytest.mark.parametrize("words", ["'--dump-wal', '.'", "'--check', '--config', 'node.toml'"])
@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_what_is_no_node_ends_by_them_unless_its_caller_ignores_them(
    words: str, before: str, tmp_path: Path
) -> None:
    """Such as `beanpoled --check` of a terminal that closes."""
    code = f"""
import signal, sys
signal.signal(signal.SIGHUP, signal.{before})
from beanpoled import launch, main
def send(_):
    signal.raise_signal(signal.SIGHUP)
    print("goes on", flush=True)
    return ()
main.describe = main.checking.findings = send
main.configuration.from_arguments = lambda *_: None
sys.argv[1:] = [{words}]
launch.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ends = before == "SIG_DFL"
    assert (done.returncode, done.stderr) == (-signal.SIGHUP if ends else 0, "")
    assert done.stdout == ("" if ends else "goes on\n")
