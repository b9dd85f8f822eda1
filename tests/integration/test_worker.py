"""Workers against three real nodes: the decorator and `beanpole work`, also while a node is killed.

The delays of failed jobs are tested in `tests/unit/client/test_backoff.py`.
"""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from beanpole.client.backoff import Backoff
from beanpole.client.blocking import Client, NotFoundError
from beanpole.client.worker import Bury, Retry, Task, Worker
from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.integration.support.waiting import wait_until

DONE_S = 60


@contextmanager
def working(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(DONE_S)
        assert not thread.is_alive()


def addresses(quick: Cluster) -> list[str]:
    return [node.beanstalk for node in quick.nodes]


def count(worker: Worker, what: str) -> Callable[[], int]:
    return lambda: worker.counts[what]


def test_what_becomes_of_a_job(shared: Cluster) -> None:
    worker = Worker(addresses(shared))
    seen: list[tuple[bytes, int]] = []

    @worker.handles("outcomes", concurrency=2, backoff=Backoff(tries=2, first_s=0))
    def handle(task: Task) -> None:
        seen.append((task.body, task.tried))
        if task.body == b"fails":
            raise RuntimeError("the reason")
        if task.body == b"wrong":
            raise Bury("never again")
        if task.body == b"later" and task.tried == 1:
            raise Retry

    with Client(addresses(shared), use="outcomes") as client:
        numbers = dict(
            zip(
                ("good", "fails", "wrong", "later"),
                client.put_many(["good", "fails", "wrong", "later"]),
                strict=True,
            )
        )
        with working(worker):
            wait_until(lambda: worker.counts["deleted"] + worker.counts["buried"] == 4, DONE_S)
        assert worker.counts == {"deleted": 2, "released": 2, "buried": 2, "lost": 0}
        assert sorted(seen) == [
            *((b"fails", 1), (b"fails", 2), (b"good", 1)),
            *((b"later", 1), (b"later", 2), (b"wrong", 1)),
        ]
        for name in ("fails", "wrong"):
            assert client.stats_job(numbers[name])["state"] == "buried"
        client.watch("outcomes.failures")
        client.ignore("default")
        notes = {job.body.splitlines()[0]: job.body for job in client.reserve_many(2, timeout=5)}
        assert "RuntimeError: the reason" in notes[f"job {numbers['fails']}"]
        assert "never again" in notes[f"job {numbers['wrong']}"]
        client.delete_many([*client.held, numbers["fails"], numbers["wrong"]])


def test_a_handler_that_exits_fails_its_job_and_no_more(shared: Cluster) -> None:
    worker = Worker(addresses(shared))

    @worker.handles("poison", concurrency=2, backoff=Backoff(tries=2, first_s=0))
    def handle(task: Task) -> None:
        if task.body == b"exits":
            raise SystemExit("configuration is missing")

    with Client(addresses(shared), use="poison") as client:
        poison = client.put("exits")
        with working(worker):
            wait_until(count(worker, "buried"), DONE_S)
            client.put("good")
            wait_until(count(worker, "deleted"), DONE_S)
        client.delete(poison)


def test_a_job_that_was_kicked_is_tried_as_often_again(shared: Cluster) -> None:
    worker = Worker(addresses(shared))
    tried: list[int] = []

    @worker.handles("kicked", backoff=Backoff(tries=2, first_s=0))
    def handle(task: Task) -> None:
        tried.append(task.tried)
        raise RuntimeError("still wrong")

    with Client(addresses(shared), use="kicked") as client, working(worker):
        job = client.put("x")
        wait_until(count(worker, "buried"), DONE_S)
        client.kick_job(job)
        wait_until(lambda: worker.counts["buried"] == 2, DONE_S)
        client.delete(job)
    assert tried == [1, 2, 3, 4]


def test_an_error_that_belongs_to_no_job_ends_the_worker(
    shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(addresses(shared))
    worker.handles("idle", concurrency=2)(lambda task: None)
    take = Worker._take

    def broken(self: Worker, line: Any, client: Any) -> None:
        if threading.current_thread().name == "idle-1":
            raise TypeError("a defect")
        take(self, line, client)

    monkeypatch.setattr(Worker, "_take", broken)
    with pytest.raises(TypeError, match="a defect"):
        worker.run(handle_signals=False)


def test_a_long_job_is_touched(shared: Cluster) -> None:
    worker = Worker(addresses(shared))
    with Client(addresses(shared), use="long") as client:

        @worker.handles("long")
        def handle(task: Task) -> None:
            wait_until(lambda: client.stats_job(task.id)["age"] >= 17, DONE_S)

        # It is touched after half of that, and by a slow machine a few seconds later.
        client.put("x", ttr=16)
        with working(worker):
            wait_until(count(worker, "deleted"), DONE_S)
    assert worker.counts == {"deleted": 1, "released": 0, "buried": 0, "lost": 0}


@pytest.mark.parametrize(("ttr_s", "keep_s", "work_s"), [(60, 60, 0), (600, 8, 20)])
def test_its_node_is_killed_while_it_works(
    quick: Cluster, ttr_s: int, keep_s: int, work_s: int
) -> None:
    """The worker keeps the job and deletes it; a rival worker never gets it.

    Where its session is kept for a shorter time than that between two touches for the TTR, too.
    """
    leader = quick.leader()
    others = [node.beanstalk for node in quick.nodes]
    home = others.pop(leader)
    worker, rival = Worker([home, *others], keep=keep_s, spread=False), Worker(others)
    began, go_on = threading.Event(), threading.Event()
    stolen: list[int] = []
    rival.handles("mine")(lambda task: stolen.append(task.id))
    with Client([home], use="mine") as client:
        job = client.put("x", ttr=ttr_s)

    @worker.handles("mine")
    def handle(task: Task) -> None:
        began.set()
        assert go_on.wait(DONE_S)
        assert not task.lost.is_set()

    with working(worker):
        assert began.wait(DONE_S)
        quick.kill(leader)
        with working(rival), Client(others, patience_s=30.0) as client:
            # Another job shows that the rival is served again, and that so much time has passed.
            client.use("mine")
            other = client.put("y", delay=work_s)
            wait_until(lambda: stolen == [other], DONE_S)
            assert client.stats_job(job)["reserves"] == 1
            go_on.set()
            wait_until(count(worker, "deleted"), DONE_S)
            with pytest.raises(NotFoundError):
                client.peek(job)
    assert stolen == [other]


def test_a_worker_is_told_that_its_job_is_lost(quick: Cluster) -> None:
    worker = Worker(addresses(quick), keep=0)
    began = threading.Event()
    told: list[bool] = []

    @worker.handles("lost")
    def handle(task: Task) -> None:
        if not told:
            began.set()
            told.append(task.lost.wait(DONE_S))

    with Client(addresses(quick), use="lost", patience_s=30.0) as client:
        client.put("x", ttr=2)
        with working(worker):
            assert began.wait(DONE_S)
            busy = next(
                number
                for number in range(3)
                if serves_a_worker(quick.nodes[number].beanstalk, client.node)
            )
            quick.kill(busy)
            wait_until(count(worker, "lost"), DONE_S)
            assert told == [True]
            wait_until(count(worker, "deleted"), DONE_S)


def serves_a_worker(address: str, mine: str) -> bool:
    with Client(address) as client:
        return client.stats()["current-workers"] > 0


def is_done(client: Client[str]) -> bool:
    stats = client.stats_tube("script")
    return stats["current-jobs-buried"] == 2 and stats["cmd-delete"] == 2


def test_the_command(shared: Cluster) -> None:
    """The command's exit statuses, the body on standard input, and SIGTERM."""
    given = ",".join(addresses(shared))
    script = (
        'read body; echo "$BEANPOLE_JOB $BEANPOLE_QUEUE $BEANPOLE_TRIED $body"; '
        'case $body in bad) exit 65;; again) [ "$BEANPOLE_TRIED" -gt 1 ] || exit 75;; '
        "fails) exit 1;; esac"
    )
    command = [
        *BEANPOLE,
        "work",
        "--addr",
        given,
        "--tries",
        "2",
        "script",
        "--",
        "sh",
        "-c",
        script,
    ]
    with Client(addresses(shared), use="script") as client:
        numbers = client.put_many(["fine", "bad", "again", "fails"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_until(lambda: is_done(client), DONE_S)
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=DONE_S)
        assert process.returncode == 0, errors
        lines = output.decode().splitlines()
        assert lines[-1] == "deleted=2 released=2 buried=2 lost=0"
        fine, bad, again, fails = numbers
        assert sorted(lines[:-1]) == sorted(
            [
                f"{fine} script 1 fine",
                f"{bad} script 1 bad",
                f"{again} script 1 again",
                f"{again} script 2 again",
                f"{fails} script 1 fails",
                f"{fails} script 2 fails",
            ]
        )
        assert b"SIGTERM" in errors
        client.delete_many([bad, fails])
        client.use("script.failures")
        client.delete_many([client.peek_ready().id])
        client.delete_many([client.peek_ready().id])


def test_a_command_that_vanishes_costs_no_job_its_tries(shared: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    given = ",".join(addresses(shared))
    command = [*BEANPOLE, "work", "--addr", given, "--tries", "1", "vanishing", "--", str(program)]
    with (
        Client(addresses(shared), use="vanishing", watch="vanishing") as client,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        first = client.put("x")
        wait_until(lambda: is_gone(client, first), DONE_S)
        program.unlink()
        job = client.put("y")
        output, errors = process.communicate(timeout=DONE_S)
        assert process.returncode == 3
        assert output == b"deleted=1 released=1 buried=0 lost=0\n"
        assert b"cannot be run any more: No such file or directory" in errors
        client.delete(client.reserve(timeout=5).id)
        assert is_gone(client, job)


def is_gone(client: Client[str], job: int) -> bool:
    try:
        client.peek(job)
    except NotFoundError:
        return True
    return False
