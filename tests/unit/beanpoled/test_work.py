"""The command of `beanpole work` and its job: real processes, and no cluster."""

import os
import select
import sys
import threading
from pathlib import Path

import pytest

from beanpole.client.blocking import DeniedError
from beanpole.client.sansio.nodes import endpoints_of
from beanpole.client.sansio.steps import Endpoint
from beanpole.client.worker import Task, Worker
from beanpoled.cli import main, work
from tests.unit.unread import unread_output

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


@pytest.mark.parametrize("status", [0, 65, 75])
def test_a_command_that_was_ended_has_not_done_its_job(tmp_path: Path, status: int) -> None:
    """Whatever its status is, by which the job was deleted, or buried."""
    assert is_over(lose(tmp_path, f"trap 'exit {status}' TERM; echo begun > $P; sleep 1000 & wait"))


@pytest.mark.constants
@pytest.mark.parametrize("waits", ["wait", "trap '' TERM; wait"], ids=["leader ends", "stays"])
def test_what_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    monkeypatch.setattr(work, "END_S", 0.1)
    assert is_over(lose(tmp_path, f"(trap '' TERM; echo begun; exec sleep 1000) > $P & {waits}"))


@pytest.mark.constants
@pytest.mark.parametrize(
    ("script", "output"), [("sleep 0.2; wc -c", b"200000"), ("echo done", b"done")]
)
def test_a_command_has_all_of_a_large_body_and_may_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, output: bytes
) -> None:
    """A body that no pipe holds; the command reads after the worker has looked many times."""
    monkeypatch.setattr(work, "LOOK_S", 0.001)
    task = Task(7, bytes(200_000), "mail", 1)
    limit = threading.Timer(DONE_S, task.lost.set)
    limit.start()
    work._run_command(["sh", "-c", f"({script}) > {tmp_path}/output"], task)
    limit.cancel()
    assert (tmp_path / "output").read_bytes().strip() == output


def test_addresses_of_both_kinds_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Endpoint] = []

    def run(worker: Worker) -> None:
        found.extend(endpoints_of(worker._addresses))

    monkeypatch.setattr(Worker, "run", run)
    assert main(["work", "--addr", "unix:/a,127.0.0.1:2,unix:/b", "mail", "--", "true"]) == 0
    assert found == [Endpoint("/a", 0), Endpoint("127.0.0.1", 2), Endpoint("/b", 0)]


def test_a_job_that_is_given_up_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ended with 0 although a finished job may run again."""

    def run(worker: Worker) -> None:
        worker.given_up = 2

    monkeypatch.setattr(Worker, "run", run)
    assert main(["work", "mail", "--", "true"]) == 3
    output, errors = capsys.readouterr()
    assert output == "deleted=0 released=0 buried=0 lost=0\n"
    assert errors == "beanpole: work: jobs that were given up, and may run again: 2\n"


@pytest.mark.parametrize("is_denied", [False, True])
def test_the_end_of_a_worker_is_told_although_nobody_reads_its_counts(
    is_denied: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broken pipe replaced the reason, and a supervisor took the status for a success."""

    def run(worker: Worker) -> None:
        if is_denied:
            raise DeniedError([b"DENIED"])
        worker.given_up = 2

    monkeypatch.setattr(Worker, "run", run)
    with unread_output() as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["work", "mail", "--", "true"]) == 3
    reason = "work: DENIED: no user" if is_denied else "work: jobs that were given up"
    assert reason in capsys.readouterr().err
