"""Two protocols share a queue: each works off the other's jobs, while nodes are killed."""

from typing import Any

import pytest

from beanpole.client import workq
from beanpole.client.worker import Task, Worker
from beanpoled.eventlog.source import Source
from tests.integration.support.gearmand import (
    CAN_DO,
    GRAB_JOB,
    JOB_ASSIGN,
    JOB_CREATED,
    NO_JOB,
    NOOP,
    PRE_SLEEP,
    SUBMIT_JOB,
    WORK_COMPLETE,
    WORK_FAIL,
    Packets,
)
from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.program import ran
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

PORT_TIMEOUT_S = 60.0
# Longer than an election on a busy machine.
TIMEOUT_S = 60.0

Row = dict[str, Any]


@pytest.fixture
def bridged(cluster: Cluster) -> Cluster:
    """A cluster where the tube `resize` is also Gearman's function and Workq's queue `resize`."""
    protocols = ("gearman", "workq")
    addresses = [node.speaks(protocol) for node in cluster.nodes for protocol in protocols]
    wait_until(lambda: all(map(answers, addresses)), PORT_TIMEOUT_S, "the ports of all protocols")
    for protocol in protocols:
        alias(cluster, "set", f"{protocol}:resize", "resize")
    return cluster


def alias(cluster: Cluster, *words: str, number: int = 0) -> str:
    done = ran("alias", *words, "--addr", cluster.nodes[number].grpc)
    assert done.status == 0, done
    return done.said


def grab(worker: Packets) -> list[bytes]:
    """Poll until there is a job: a node's state may be older than the reply to a put elsewhere."""

    def job() -> list[bytes]:
        kind, arguments = worker.ask(GRAB_JOB)
        assert kind in (JOB_ASSIGN, NO_JOB), kind
        return arguments if kind == JOB_ASSIGN else []

    return wait_until(job, TIMEOUT_S, "a job for the worker")


def put(beanstalk: Raw, body: bytes) -> int:
    beanstalk.ask(b"use resize", b"USING resize")
    return beanstalk.put(body)


def reserve(beanstalk: Raw) -> tuple[int, bytes]:
    beanstalk.send(b"reserve-with-timeout 50\r\n")
    return reserved(beanstalk)


def reserved(beanstalk: Raw) -> tuple[int, bytes]:
    word, job, size = beanstalk.line().split()
    assert word == b"RESERVED"
    return int(job), beanstalk.body(int(size))


def gone(beanstalk: Raw, job: int) -> None:
    """Wait until this node has applied the end of a job."""
    wait_until(
        lambda: beanstalk.find(b"stats-job %d" % job) is None, TIMEOUT_S, f"the end of {job}"
    )


def life(cluster: Cluster, number: int, job: int) -> list[Row]:
    """Return the events of a finished job as one node reports them."""

    def events() -> list[Row]:
        with Source([cluster.nodes[number].grpc]) as source:
            (reply,) = source.ranges().values()
            rows = [row for batch in source.read(0, reply.end) for row in batch.to_pylist()]
        own = [row for row in rows if row["job_id"] == job]
        return own if own and own[-1]["state"] == "gone" else []

    return wait_until(events, TIMEOUT_S, f"n{number} tells the end of job {job}")


def told(cluster: Cluster, job: int) -> list[tuple[str, str, str | None]]:
    """Return (event, protocol, external id) of a job's events, after comparing all nodes."""
    lives = [life(cluster, number, job) for number in range(len(cluster.nodes))]
    assert lives[0] == lives[1] == lives[2]
    assert {row["tube"] for row in lives[0]} == {"resize"}
    return [(row["event"], row["protocol"], row["external_id"]) for row in lives[0]]


class Clients:
    """Clients at the two nodes that survive; a method for each outcome of a job."""

    def __init__(self, cluster: Cluster, first: int, second: int) -> None:
        self.beanstalk = Raw(cluster.nodes[first].beanstalk, TIMEOUT_S)
        gearman = cluster.nodes[second].speaks("gearman")
        self.worker, self.submitter = Packets(gearman, TIMEOUT_S), Packets(gearman, TIMEOUT_S)
        self.worker.send(CAN_DO, b"resize")
        self.workq = cluster.nodes[second].speaks("workq")

    def close(self) -> None:
        for stream in (self.beanstalk, self.worker, self.submitter):
            stream.close()

    def stats(self, job: int) -> dict[str, str]:
        return self.beanstalk.dictionary(b"stats-job %d" % job)

    def submit(self, unique: bytes, body: bytes) -> bytes:
        """Submit by Gearman; return the handle."""
        kind, (handle,) = self.submitter.ask(SUBMIT_JOB, b"resize", unique, body)
        assert kind == JOB_CREATED
        return handle

    def done_by_gearman(self, cluster: Cluster, leader: int) -> int:
        """Put by beanstalk; the leader is killed while the worker has the job."""
        job = put(self.beanstalk, b"a picture")
        handle, function, body = grab(self.worker)
        assert (function, body) == (b"resize", b"a picture")
        stats = self.stats(job)
        assert (stats["tube"], stats["state"], stats["reserves"]) == ('"resize"', "reserved", "1")
        cluster.kill(leader)
        self.worker.send(WORK_COMPLETE, handle, b"smaller")
        gone(self.beanstalk, job)
        return job

    def done_by_beanstalk(self) -> int:
        self.beanstalk.ask(b"watch resize", b"WATCHING 2")
        self.beanstalk.send(b"reserve-with-timeout 50\r\n")
        handle = self.submit(b"u-1", b"another")
        job, body = reserved(self.beanstalk)
        assert body == b"another"
        assert self.stats(job)["tube"] == '"resize"'
        self.beanstalk.ask(b"delete %d" % job, b"DELETED")
        assert self.submitter.receive() == (WORK_COMPLETE, [handle, b""])
        return job

    def failed_by_beanstalk(self) -> int:
        handle = self.submit(b"u-2", b"broken")
        job, _ = reserve(self.beanstalk)
        self.beanstalk.ask(b"bury %d 0" % job, b"BURIED")
        assert self.submitter.receive() == (WORK_FAIL, [handle])
        return job

    def failed_by_gearman_and_done_by_workq(self) -> int:
        """A failed job of beanstalk is buried; Workq's id for it is derived from its number."""
        self.worker.send(PRE_SLEEP)
        job = put(self.beanstalk, b"no picture")
        assert self.worker.receive() == (NOOP, [b""])
        handle = grab(self.worker)[0]
        self.worker.send(WORK_FAIL, handle)
        wait_until(lambda: self.stats(job)["state"] == "buried", TIMEOUT_S, "the job is buried")
        self.beanstalk.ask(b"kick-job %d" % job, b"KICKED")
        with workq.Client([self.workq]) as third:
            leased = third.lease([b"resize"], 50_000)
            assert leased is not None
            assert (leased.name, leased.payload) == (b"resize", b"no picture")
            third.complete(leased.id, b"done all the same")
        gone(self.beanstalk, job)
        return job


def test_jobs_of_each_are_worked_by_the_other_while_the_leader_dies(bridged: Cluster) -> None:
    leader = bridged.leader()
    first, second = [number for number in range(3) if number != leader]
    listed = ["gearman:resize  resize", "workq:resize    resize"]
    wait_until(
        lambda: alias(bridged, "list", number=second).splitlines() == listed,
        TIMEOUT_S,
        "every node knows the aliases",
    )
    clients = Clients(bridged, first, second)
    one = clients.done_by_gearman(bridged, leader)
    two, three = clients.done_by_beanstalk(), clients.failed_by_beanstalk()
    four = clients.failed_by_gearman_and_done_by_workq()
    clients.close()
    bridged.start(leader)
    bridged.wait_until_serving(leader)

    by_beanstalk, by_gearman = ("put", "beanstalk", None), ("reserved", "gearman", None)
    assert told(bridged, one) == [by_beanstalk, by_gearman, ("done", "gearman", None)]
    for job, unique, end in ((two, "u-1", "done"), (three, "u-2", "failed")):
        assert told(bridged, job) == [
            ("put", "gearman", unique),
            ("reserved", "beanstalk", unique),
            (end, "beanstalk", unique),
        ]
    assert told(bridged, four) == [
        by_beanstalk,
        by_gearman,
        ("buried", "gearman", None),
        ("kicked", "beanstalk", None),
        ("reserved", "workq", None),
        ("done", "workq", None),
    ]
    alias(bridged, "remove", "gearman:resize", number=leader)
    assert "gearman:resize" not in alias(bridged, "list", number=leader)


def test_a_worker_of_beanstalk_does_a_job_that_has_no_ttr(bridged: Cluster) -> None:
    addresses = [node.beanstalk for node in bridged.nodes]
    worker = Worker(addresses)
    was_lost: list[bool] = []

    @worker.handles("resize")
    def handle(task: Task) -> None:
        was_lost.append(task.lost.wait(2))
        worker.stop()

    submitter = Packets(bridged.nodes[0].speaks("gearman"), TIMEOUT_S)
    kind, (number,) = submitter.ask(SUBMIT_JOB, b"resize", b"u-1", b"a picture")
    assert kind == JOB_CREATED
    worker.run(handle_signals=False)
    assert was_lost == [False]
    assert worker.counts == {"deleted": 1, "released": 0, "buried": 0, "lost": 0}
    assert submitter.receive() == (WORK_COMPLETE, [number, b""])
    submitter.close()
