"""The command of `beanpole work` whose job is lost: real processes, and no cluster."""

import os
import select
import threading
from pathlib import Path

import pytest

from beanpole.client.worker import Task
from beanpoled.cli import work

pytestmark = pytest.mark.slow
DONE_S = 60


def lose(folder: Path, script: str) -> int:
    """Lose the job once the script has written to the pipe $P; return the pipe's other end.

    That is readable, without bytes, once no process that the script has started has it open.
    """
    path = folder / "pipe"
    os.mkfifo(path)
    reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    task = Task(7, b"", "mail", 1)

    def watch() -> None:
        assert select.select([reads], [], [], DONE_S)[0]
        assert os.read(reads, 64)
        task.lost.set()

    thread = threading.Thread(target=watch)
    thread.start()
    with pytest.raises(work.CommandFailed):
        work._run_command(["sh", "-c", f"P={path}; {script}"], task)
    thread.join(DONE_S)
    return reads


def is_over(reads: int) -> bool:
    readable = select.select([reads], [], [], DONE_S)[0]
    over = bool(readable) and not os.read(reads, 64)
    os.close(reads)
    return over


def test_what_a_command_has_started_ends_with_it(tmp_path: Path) -> None:
    assert is_over(lose(tmp_path, "(echo begun; exec sleep 1000) > $P & wait"))


@pytest.mark.constants
@pytest.mark.parametrize("waits", ["wait", "trap '' TERM; wait"], ids=["leader ends", "stays"])
def test_what_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    monkeypatch.setattr(work, "END_S", 0.1)
    assert is_over(lose(tmp_path, f"(trap '' TERM; echo begun; exec sleep 1000) > $P & {waits}"))
