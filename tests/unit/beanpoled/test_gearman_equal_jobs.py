"""Replies to Gearman's clients for equal submissions, and how many of them are queued."""

import random

import pytest

from beanpole.constants import SUBMITS_OF_JOB_MAX
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply, request
from tests.unit.beanpoled.gearman_scene import Client, Scene, created, grab, handle, submit, worker

TOO_MANY: list[Reply] = [
    (p.ERROR, (b"QUEUE_ERROR", b"A connection waits 64 times for one job at most"))
]


def test_a_connection_waits_for_one_job_so_often_and_no_more() -> None:
    scene = Scene()
    client, other, one = scene.connect(), scene.connect(), worker(scene, b"f")
    client.connection.received(
        request(p.SUBMIT_JOB, b"f", b"u", b"data") * (SUBMITS_OF_JOB_MAX + 2)
    )
    scene.commit_own()
    assert client.replies() == created(1) * SUBMITS_OF_JOB_MAX + TOO_MANY * 2
    assert submit(client, p.SUBMIT_JOB_BG, b"u") == created(1), "it hears of nothing"
    assert submit(client, p.SUBMIT_JOB, b"v") == created(2), "another job"
    assert submit(other, p.SUBMIT_JOB, b"u") == created(1), "another connection"
    grab(one)
    one.ask(p.WORK_DATA, handle(1), b"d")
    one.ask(p.WORK_COMPLETE, handle(1), b"r")
    data, end = (p.WORK_DATA, (handle(1), b"d")), (p.WORK_COMPLETE, (handle(1), b"r"))
    assert client.replies() == [data] * SUBMITS_OF_JOB_MAX + [end] * SUBMITS_OF_JOB_MAX
    assert other.replies() == [data, end]
    assert submit(client, p.SUBMIT_JOB, b"u") == created(3), "the job has ended"


def test_a_hyphen_and_an_empty_body_always_make_a_new_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compare: gearmand has two jobs, too, and workers get the unique."""
    scene = Scene()
    monkeypatch.setattr(scene.host, "random", random.Random(1).random)
    client, one = scene.connect(), worker(scene, b"f")
    client.connection.received(request(p.SUBMIT_JOB_BG, b"f", b"-", b"") * 2)
    scene.commit_own()
    assert client.replies() == created(1) + created(2)
    for unique, body in ((b"-", b"x"), (b"-", b"x"), (b"u", b""), (b"u", b"")):
        client.ask(p.SUBMIT_JOB_BG, b"f", unique, body)
    assert client.text(b"show unique jobs\n") == b"-\n-\n-\nu\n.\n", "others are as they were"
    for job in (1, 2):
        assigned = (p.JOB_ASSIGN_UNIQ, (handle(job), b"f", b"-", b""))
        assert one.ask(p.GRAB_JOB_UNIQ) == [assigned]
    client.text(b"create function g\nmaxqueue g 1\n")
    assert client.ask(p.SUBMIT_JOB, b"g", b"-", b"") == created(5)
    full: list[Reply] = [(p.ERROR, (b"QUEUE_ERROR", b"Job queue is full"))]
    assert client.ask(p.SUBMIT_JOB, b"g", b"-", b"") == full


def _writes(client: Client, monkeypatch: pytest.MonkeyPatch, room: int) -> list[int]:
    """Note the sizes of what is written; the client stalls above a total, as on a socket."""
    sizes: list[int] = []

    def write(data: bytes) -> None:
        sizes.append(len(data))
        if sum(sizes) > room:
            client.connection.stall()

    monkeypatch.setattr(client.port, "write", write)
    return sizes


LIMIT = 100_000
SIZE = 8000
MANY = b"".join(request(p.WORK_DATA, handle(1), bytes(SIZE)) for _ in range(100))


def test_a_client_that_does_not_read_is_closed_within_an_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(client_output_bytes_max=LIMIT)
    client, one = scene.connect(), worker(scene, b"f")
    for _ in range(2):
        submit(client, unique=b"u")
    grab(one)
    sizes = _writes(client, monkeypatch, LIMIT)
    one.connection.received(MANY)
    scene.commit_own()
    assert client.port.closed
    assert sum(sizes) < 3 * LIMIT, "not 1.6 MB"
    assert scene.node.clients.slow_total == {"gearman": 1}


def test_a_client_that_reads_gets_all_of_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(client_output_bytes_max=LIMIT)
    client, one = scene.connect(), worker(scene, b"f")
    submit(client)
    grab(one)
    sizes = _writes(client, monkeypatch, 10**9)
    one.connection.received(MANY)
    scene.commit_own()
    assert not client.port.closed
    assert 100 * SIZE < sum(sizes) < 101 * SIZE
    assert max(sizes) < LIMIT + 2 * SIZE
