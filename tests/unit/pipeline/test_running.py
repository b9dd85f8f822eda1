"""A command that a user ends more than once, and names that no text can hold."""

import subprocess
import sys
from typing import Final

import pytest

from beanpole.errors import ConfigurationError
from pyspark_beanpole.cli.running import Running

TIMEOUT_S: Final = 60
# Java takes a while to end, and a user presses Ctrl-C again.
PROGRAM: Final = """
import os, signal, sys
from argparse import Namespace
from pyspark_beanpole.cli import running

class Java:
    def end(self):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

running.Java = Java
run = lambda arguments: os.kill(os.getpid(), signal.SIGINT)
sys.exit(running.run_command(run, Namespace(log=None, conf=[])))
"""


def test_a_second_signal_changes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_a_name_that_is_not_utf_8_is_a_wrong_request() -> None:
    running = Running(None, {})
    with pytest.raises(UnicodeEncodeError) as raised:
        "a\udcff".encode()
    found = running.failed(raised.value)
    assert isinstance(found, ConfigurationError)
    assert str(found) == "'\\udcff' cannot be written as utf-8"
