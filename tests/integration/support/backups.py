"""Producers of all four protocols that number their jobs, and workers that take them in order.

The required contents of a backup are in test_backup.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import redis

from beanpole.client import workq
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import ReplyParser, request
from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.raw import Address, Raw, connect
from tests.integration.support.waiting import wait_until

TIMEOUT_S: Final = 60.0
QUEUE: Final = b"numbered"
# The declarations by which a dialect is recognized; the code behind them is never run.
SCRIPT: Final = """
QlessAPI.put = function(now, me, queue, jid, klass, data, delay, ...)
QlessAPI.pop = function(now, queue, worker, count)
QlessAPI.peek = function(now, queue, count)
QlessAPI.get = function(now, jid)
QlessAPI.complete = function(now, jid, worker, queue, data, ...)
QlessAPI.cancel = function(now, ...)
QlessAPI.recur = function(now, queue, jid, klass, data, spec, ...)
QlessAPI.unrecur = function(now, jid)
"""
# Later than any put; and the number of jobs that one pop takes.
POPPED_AT: Final = 10**6
POPPED: Final = 500

Put = Callable[[int], None]
Take = Callable[[], int | None]


class Packets:
    """A connection that speaks Gearman."""

    def __init__(self, address: Address) -> None:
        self._stream = connect(address, TIMEOUT_S)
        self._parser = ReplyParser()

    def ask(self, kind: int, *arguments: bytes) -> tuple[int, tuple[bytes, ...]]:
        """Send a packet, and receive one."""
        self._stream.sendall(request(kind, *arguments))
        while (reply := self._parser.next()) is None:
            data = self._stream.recv(1 << 20)
            if not data:
                raise ConnectionError("the node closed the connection")
            self._parser.feed(data)
        return reply

    def work(self, function: bytes) -> None:
        """Become a worker of a function."""
        self._stream.sendall(request(p.CAN_DO, function))

    def finish(self, handle: bytes) -> None:
        """Complete a job."""
        self._stream.sendall(request(p.WORK_COMPLETE, handle, b""))

    def close(self) -> None:
        """Break the connection."""
        self._stream.close()


def beanstalk_put(address: Address, stack: ExitStack) -> Put:
    """Return a function that puts a numbered job; the stack closes its connection."""
    client = stack.enter_context(Raw(address, TIMEOUT_S))
    client.ask(b"use %b" % QUEUE, b"USING %b" % QUEUE)
    return lambda number: _ignored(client.put(b"%d" % number, ttr_s=3600))


def beanstalk_take(address: Address, stack: ExitStack) -> Take:
    """Return a function that takes the next job without ending it."""
    client = stack.enter_context(Raw(address, TIMEOUT_S))
    client.ask(b"watch %b" % QUEUE, b"WATCHING 2")

    def take() -> int | None:
        body = client.command(b"reserve-with-timeout 0")[1]
        return None if body is None else int(body)

    return take


def workq_put(address: Address, stack: ExitStack) -> Put:
    """See `beanstalk_put`."""
    client = stack.enter_context(closing(workq.Client([address])))
    return lambda number: _ignored(
        client.add(QUEUE, b"%d" % number, ttr_ms=3_600_000, ttl_ms=86_400_000, max_attempts=1)
    )


def workq_take(address: Address, stack: ExitStack) -> Take:
    """See `beanstalk_take`."""
    client = stack.enter_context(closing(workq.Client([address])))

    def take() -> int | None:
        job = client.lease([QUEUE], wait_ms=1)
        return None if job is None else int(job.payload)

    return take


def gearman_put(address: Address, stack: ExitStack) -> Put:
    """See `beanstalk_put`; the jobs are in background."""
    client = stack.enter_context(closing(Packets(address)))

    def put(number: int) -> None:
        reply = client.ask(p.SUBMIT_JOB_BG, QUEUE, b"", b"%d" % number)
        assert reply[0] == p.JOB_CREATED, reply

    return put


def gearman_take(address: Address, stack: ExitStack) -> Take:
    """Return a function that takes the next job, and completes all but the first."""
    client = stack.enter_context(closing(Packets(address)))
    client.work(QUEUE)
    taken: list[bytes] = []

    def take() -> int | None:
        kind, arguments = client.ask(p.GRAB_JOB)
        if kind == p.NO_JOB:
            return None
        if taken:
            client.finish(arguments[0])
        taken.append(arguments[0])
        return int(arguments[2])

    return take


def _qless(address: Address, stack: ExitStack) -> Callable[..., Any]:
    host, _, port = address.rpartition(":")
    client = redis.Redis(host=host, port=int(port), socket_timeout=TIMEOUT_S)
    stack.callback(client.close)
    script = client.register_script(SCRIPT)
    return lambda *arguments: script(args=arguments)


def qless_put(address: Address, stack: ExitStack) -> Put:
    """See `beanstalk_put`."""
    call = _qless(address, stack)

    def put(number: int) -> None:
        data = json.dumps({"number": number})
        call("put", 1000 + number, "", QUEUE, f"job-{number}", "K", data, 0)

    return put


def qless_take(address: Address, stack: ExitStack) -> Take:
    """See `beanstalk_take`; the worker pops many jobs at once after its first."""
    call = _qless(address, stack)
    found: list[int] = []
    counts = itertools.chain([1], itertools.repeat(POPPED))

    def take() -> int | None:
        if not found:
            popped = json.loads(call("pop", POPPED_AT, QUEUE, "worker", next(counts)))
            found.extend(json.loads(job["data"])["number"] for job in popped or ())
        return found.pop(0) if found else None

    return take


def _ignored(_: object) -> None:
    """Drop the result of a put."""


PUTS: Final = {
    "beanstalk": beanstalk_put,
    "workq": workq_put,
    "gearman": gearman_put,
    "qless": qless_put,
}
TAKES: Final = {
    "beanstalk": beanstalk_take,
    "workq": workq_take,
    "gearman": gearman_take,
    "qless": qless_take,
}


class Producer(threading.Thread):
    """Puts the numbers from 0 on until it is stopped.

    Attributes:
        acknowledged: the number of acknowledged puts.
        failure: the error that ended it, if any.
    """

    def __init__(self, put: Put) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.failure: Exception | None = None
        self._put = put
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._put(self.acknowledged)
                self.acknowledged += 1
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Stop it, and check that nothing went wrong."""
        self._ending.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        assert self.failure is None, self.failure


@contextmanager
def producing(cluster: Cluster) -> Iterator[dict[str, Producer]]:
    """Run one producer of each protocol, at different nodes."""
    with ExitStack() as stack:
        made = {
            name: Producer(put(ports_of(cluster, number % len(cluster.nodes))[name], stack))
            for number, (name, put) in enumerate(PUTS.items())
        }
        for producer in made.values():
            producer.start()
            stack.callback(producer.stop)
        yield made


def ports_of(cluster: Cluster, number: int) -> dict[str, Address]:
    """Return a node's address for each protocol, once all are open."""
    node = cluster.nodes[number]
    ports = {name: node.beanstalk if name == "beanstalk" else node.speaks(name) for name in PUTS}
    wait_until(lambda: all(map(answers, ports.values())), TIMEOUT_S, "the ports of a node")
    return ports


def all_of(take: Take) -> Iterator[int]:
    """Yield the numbers of jobs until there is none."""
    while (number := take()) is not None:
        yield number
