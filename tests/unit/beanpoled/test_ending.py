"""Commands that end between two steps after a signal, or in the middle of one that hangs."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from beanpoled.cli.ending import stopped_by_signals

TIMEOUT_S = 60.0
# A step that lasts for ever: Python runs the handler, but the step does not look at its event.
HANGING = """
import threading
from beanpoled.cli.ending import stopped_by_signals

with stopped_by_signals(threading.Event(), 0.2):
    print("begun", flush=True)
    threading.Lock().acquire() and threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_step_that_hangs_is_broken_off(number: int) -> None:
    command = [sys.executable, "-c", HANGING]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    assert said == "beanpole: broken off: it has not ended 0.2 s after a signal\n"


def test_a_step_that_ends_in_time_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    threads = threading.active_count()
    ended = threading.Event()
    with stopped_by_signals(ended, TIMEOUT_S) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(TIMEOUT_S)
    assert signals == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1
