"""Random pipelines of Workq requests against a small model; garbage ends no connection."""

import uuid
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.protocol.workq import replies
from tests.unit.node.settling import settle
from tests.unit.node.workq_scene import Client, Scene

JOBS = [uuid.UUID(int=number, version=4) for number in range(3)]
TTL_MS = 86_400_000


class Model:
    """The replies of a Workq server to one request after the other, while no time passes."""

    def __init__(self) -> None:
        # By id: [queue, -priority, place, max_fails, state, result], and the number of failures.
        self.jobs: dict[int, list[Any]] = {}
        self.fails: dict[int, int] = {}
        self.queues: set[bytes] = set()
        self.place = 0

    def put_last(self, job: int) -> None:
        self.place += 1
        self.jobs[job][2] = self.place

    def add(self, job: int, queue: bytes, priority: int, max_fails: int) -> bytes:
        if job in self.jobs:
            return replies.DUPLICATE_JOB
        self.queues.add(queue)
        self.jobs[job] = [queue, -priority, 0, max_fails, "ready", b""]
        self.fails[job] = 0
        self.put_last(job)
        return replies.OK

    def run(self, job: int, queue: bytes) -> bytes:
        if job in self.jobs:
            return replies.DUPLICATE_JOB
        self.queues.add(queue)
        self.place += 1
        return replies.TIMEOUT

    def lease(self, names: list[bytes]) -> bytes:
        self.queues |= set(names)
        ready = [
            (record[1], record[2], job)
            for job, record in self.jobs.items()
            if record[0] in names and record[4] == "ready"
        ]
        if not ready:
            return replies.TIMEOUT
        job = min(ready)[2]
        self.jobs[job][4] = "leased"
        return replies.leased(JOBS[job].bytes, self.jobs[job][0], 60_000, b"x")

    def finish(self, job: int, state: str, result: bytes) -> bytes:
        if job not in self.jobs:
            return replies.NOT_FOUND
        record = self.jobs[job]
        if record[4] in ("done", "failed"):
            return replies.DUPLICATE_RESULT
        if state == "failed" and record[3]:
            self.fails[job] += 1
            if self.fails[job] < record[3]:
                record[4] = "ready"
                self.put_last(job)
                return replies.OK
        record[4:] = [state, result]
        return replies.OK

    def result(self, job: int) -> bytes:
        if job not in self.jobs:
            return replies.NOT_FOUND
        state, result = self.jobs[job][4:]
        if state not in ("done", "failed"):
            return replies.TIMEOUT
        return replies.finished(JOBS[job].bytes, state == "done", result)

    def delete(self, job: int) -> bytes:
        return replies.OK if self.jobs.pop(job, None) else replies.NOT_FOUND

    def queue(self, name: bytes) -> bytes:
        if name not in self.queues:
            return replies.NOT_FOUND
        ready = sum(record[0] == name and record[4] == "ready" for record in self.jobs.values())
        keys = ((b"ready-len", b"%d" % ready), (b"scheduled-len", b"0"))
        return replies.inspected([replies.block(name, keys)])


IDS = st.integers(0, len(JOBS) - 1)
NAMES = st.sampled_from([b"a", b"b"])
RESULTS = st.sampled_from([b"", b"\r\n", b"r" * 9])
REQUESTS = st.one_of(
    st.tuples(st.just("add"), IDS, NAMES, st.integers(-1, 1), st.integers(0, 2)),
    st.tuples(st.just("run"), IDS, NAMES),
    st.tuples(st.just("lease"), st.lists(NAMES, min_size=1, max_size=3)),
    st.tuples(st.just("finish"), IDS, st.sampled_from(["done", "failed"]), RESULTS),
    st.tuples(st.just("result"), IDS),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("queue"), NAMES),
)


def text(request: tuple[Any, ...]) -> bytes:
    """Encode a request as a client does."""
    word, *values = request
    if word == "lease":
        return b"lease %b 0\r\n" % b" ".join(values[0])
    if word == "queue":
        return b"inspect queue %b\r\n" % values[0]
    job = str(JOBS[values[0]]).encode()
    if word == "add":
        _, name, priority, max_fails = values
        flags = b"-priority=%d -max-fails=%d" % (priority, max_fails)
        return b"add %b %b 60000 %d 1 %b\r\nx\r\n" % (job, name, TTL_MS, flags)
    if word == "run":
        return b"run %b %b 60000 0 1\r\nx\r\n" % (job, values[1])
    if word == "finish":
        command = b"complete" if values[1] == "done" else b"fail"
        return b"%b %b %d\r\n%b\r\n" % (command, job, len(values[2]), values[2])
    return b"result %b 0\r\n" % job if word == "result" else b"delete %b\r\n" % job


@settings(deadline=None, max_examples=60)
@given(st.lists(REQUESTS, min_size=20, max_size=40), st.lists(st.integers(0, 200), max_size=6))
def test_a_pipeline_is_answered_as_the_model_answers(
    requests: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    model = Model()
    expected = b"".join(getattr(model, word)(*values) for word, *values in requests)
    stream = b"".join(map(text, requests))
    client = Client(Scene())
    answered = b""
    for size in cuts:
        answered += client.ask(stream[:size])
        stream = stream[size:]
    answered += client.ask(stream)
    for _ in range(len(requests) // 8):
        settle(client.scene)
        answered += client.port.take()
    assert answered == expected


GARBAGE = st.one_of(
    st.binary(max_size=200),
    REQUESTS.map(text),
    st.sampled_from([b"run", b"lease a 5000\r\n", b"result ", b"\r\n", b"inspect jobs a 0 9\r\n"]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), GARBAGE), max_size=30), st.lists(st.integers(0, 2)))
def test_whatever_clients_send_the_node_goes_on(
    sent: list[tuple[int, bytes]], leaving: list[int]
) -> None:
    scene = Scene()
    clients = [Client(scene) for _ in range(3)]
    for number, data in sent:
        clients[number].ask(data)
    for number in leaving:
        clients[number].connection.half_closed()
        settle(scene)
        clients[number].connection.lost()
    scene.after(6_000_000)
    other = Client(scene)
    assert other.ask(b"inspect server\r\n").startswith(b"+OK 1\r\nserver 3\r\n")
    for number in leaving:
        assert clients[number].connection.closed
