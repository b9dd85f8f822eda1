"""Gearman clients that submit jobs and wait, and workers that do them, while nodes die.

They record what they see. The tests, with `check`, decide what must be true of it.
"""

import threading
from collections.abc import Sequence
from typing import Final

from tests.integration.support.gearmand import (
    CAN_DO,
    ECHO_REQ,
    ECHO_RES,
    GRAB_JOB,
    JOB_ASSIGN,
    JOB_CREATED,
    NO_JOB,
    NOOP,
    PRE_SLEEP,
    SUBMIT_JOB,
    WORK_COMPLETE,
    WORK_DATA,
    WORK_FAIL,
    WORK_STATUS,
    Packets,
)
from tests.integration.support.raw import Address
from tests.integration.support.waiting import wait_until

FUNCTION: Final = b"foreground"
JOIN_TIMEOUT_S: Final = 60.0

# For each payload, the packets about its job, in order, from JOB_CREATED to the end.
Seen = dict[bytes, list[tuple[int, list[bytes]]]]


class Submitter(threading.Thread):
    """Submits jobs one after the other, and waits for the end of each.

    Attributes:
        seen: the packets that it received.
        stray: packets that came while no job was open.
        error: the error that ended it, if any.
    """

    def __init__(self, address: Address, payloads: Sequence[bytes]) -> None:
        super().__init__(daemon=True)
        self.seen: Seen = {}
        self.stray: list[tuple[int, list[bytes]]] = []
        self.error: Exception | None = None
        self._payloads = payloads
        self._packets = Packets(address)

    def run(self) -> None:
        try:
            for payload in self._payloads:
                self.seen[payload] = []
                self._packets.send(SUBMIT_JOB, FUNCTION, b"", payload)
                while not self.seen[payload] or self.seen[payload][-1][0] not in (
                    WORK_COMPLETE,
                    WORK_FAIL,
                ):
                    self.seen[payload].append(self._packets.receive())
            self._packets.send(ECHO_REQ, b"the end")
            while (found := self._packets.receive())[0] != ECHO_RES:
                self.stray.append(found)
        except (OSError, AssertionError) as error:
            self.error = error
        finally:
            self._packets.close()


class Worker(threading.Thread):
    """Does jobs until it is stopped; its first job ends only after a gate opens.

    Attributes:
        taken: the payloads of the jobs that it got.
        error: the error that ended it, if not `stop`.
    """

    def __init__(self, address: Address, gate: threading.Event) -> None:
        super().__init__(daemon=True)
        self.taken: list[bytes] = []
        self.error: Exception | None = None
        self._gate = gate
        self._stopping = False
        self._packets = Packets(address)
        self._packets.send(CAN_DO, FUNCTION)

    def run(self) -> None:
        try:
            self._packets.send(GRAB_JOB)
            while True:
                kind, found = self._packets.receive()
                if kind == JOB_ASSIGN:
                    self._do(found[0], found[2])
                    self._packets.send(GRAB_JOB)
                elif kind == NO_JOB:
                    self._packets.send(PRE_SLEEP)
                else:
                    assert kind == NOOP, (kind, found)
                    self._packets.send(GRAB_JOB)
        except (OSError, AssertionError) as error:
            if not self._stopping:
                self.error = error
        finally:
            self._packets.close()

    def stop(self) -> None:
        """Break its connection; a job that it holds goes back."""
        self._stopping = True
        self._gate.set()
        try:
            self._packets.end()
        except OSError:
            return  # it has ended

    def _do(self, handle: bytes, payload: bytes) -> None:
        self.taken.append(payload)
        self._packets.send(WORK_STATUS, handle, b"1", b"2")
        self._gate.wait(JOIN_TIMEOUT_S)
        self._packets.send(WORK_DATA, handle, b"half of " + payload)
        self._packets.send(WORK_COMPLETE, handle, b"all of " + payload)


class Foreground:
    """Submitters, one for each worker, at some nodes.

    Args:
        addresses: the nodes' addresses; a worker is at the node after its submitter's.
        count: the number of workers, and of submitters.
        rounds: the number of jobs of each submitter.
    """

    def __init__(self, addresses: Sequence[Address], count: int, rounds: int) -> None:
        self.gates = [threading.Event(), threading.Event()]
        self.payloads = [
            [b"%d/%d" % (number, job) for job in range(rounds)] for number in range(count)
        ]
        places = [addresses[number % len(addresses)] for number in range(count + 1)]
        self.workers = [Worker(places[i + 1], self.gates[i % 2]) for i in range(count)]
        self.submitters = [Submitter(places[i], self.payloads[i]) for i in range(count)]
        self._count = count

    def start(self) -> None:
        """Start all, and wait until each worker has a job that cannot end before its gate opens."""
        for thread in [*self.workers, *self.submitters]:
            thread.start()
        wait_until(
            lambda: sum(len(worker.taken) for worker in self.workers) == self._count,
            JOIN_TIMEOUT_S,
            f"{self._count} jobs run",
        )

    def finish(self) -> None:
        """Wait for the end of all submitters, and end the workers."""
        for submitter in self.submitters:
            submitter.join(JOIN_TIMEOUT_S)
        for worker in self.workers:
            worker.stop()
            worker.join(JOIN_TIMEOUT_S)

    def check(self) -> None:
        """Check that each job was done once, and that its submitter heard everything in order."""
        errors = [worker.error for worker in self.workers if worker.error]
        errors += [submitter.error for submitter in self.submitters if submitter.error]
        assert not errors, errors
        alive = [thread for thread in [*self.workers, *self.submitters] if thread.is_alive()]
        assert not alive, f"{len(alive)} clients wait for ever"
        assert not any(submitter.stray for submitter in self.submitters)
        check(
            [payload for each in self.payloads for payload in each],
            [payload for worker in self.workers for payload in worker.taken],
            [submitter.seen for submitter in self.submitters],
        )


def check(wanted: list[bytes], taken: list[bytes], seen: Sequence[Seen]) -> None:
    """Check that each job was taken once, and that its submitter heard everything in order."""
    assert sorted(taken) == sorted(wanted)
    assert sorted(payload for each in seen for payload in each) == sorted(wanted)
    handles = set()
    for each in seen:
        for payload, packets in each.items():
            (created, [handle]), *rest = packets
            handles.add(handle)
            assert created == JOB_CREATED
            assert rest == [
                (WORK_STATUS, [handle, b"1", b"2"]),
                (WORK_DATA, [handle, b"half of " + payload]),
                (WORK_COMPLETE, [handle, b"all of " + payload]),
            ]
    assert len(handles) == len(wanted), "two jobs have one handle"
