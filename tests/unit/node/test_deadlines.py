"""The first deadline of a client's jobs, without a look at all of them."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from beanpole.core.jobs.job import Job
from beanpoled.frontends.deadlines import FEW
from tests.unit.node.settling import settle
from tests.unit.node.stage import SECOND, Stage
from tests.unit.node.test_takes import client, raised

HELD = 4 * FEW
FLOOR_S = 10  # more than the floor of an election is in the future


class Held(dict[int, Job]):
    """The held jobs; counts those that are looked at in a row."""

    looked = 0

    def values(self) -> Any:
        return Values(self)


class Values:
    """The values of `Held`."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def __iter__(self) -> Iterator[Job]:
        return self._counted(list(dict.values(self._held)))

    def __reversed__(self) -> Iterator[Job]:
        return self._counted(list(dict.values(self._held))[::-1])

    def _counted(self, found: list[Job]) -> Iterator[Job]:
        for job in found:
            self._held.looked += 1
            yield job


class Holding:
    """A client that holds many jobs at a leader that has led for some time."""

    def __init__(self) -> None:
        self.stage: Stage = raised()
        self.connection, self.port = client(self.stage)
        self.clients = self.stage.node.clients
        self.wait(FLOOR_S * SECOND)
        self.reserve(HELD)
        queue = self.clients.machine.queue
        assert queue.now_us > queue.expiry_floor_us

    def send(self, data: bytes, lines: int) -> bytes:
        """Send requests; return the replies once they have this many lines."""
        self.connection.received(data)
        got = b""
        while got.count(b"\r\n") < lines:
            settle(self.stage)
            got += self.port.take()
        return got

    def wait(self, us: int) -> None:
        """Let some time of the cluster pass: it does with entries."""
        self.stage.pass_us(us)
        self.send(b"put 0 86400 60 1\r\nx\r\n", 1)

    def about(self, word: bytes, jobs: Iterable[int]) -> None:
        """Touch, release or delete jobs."""
        lines = [word % job for job in jobs]
        self.send(b"\r\n".join([*lines, b""]), len(lines))

    def reserve(self, count: int) -> None:
        """Make some jobs more, and reserve as many."""
        self.send(b"put 0 0 60 1\r\nx\r\n" * count, count)
        got = self.send(b"reserve-with-timeout 0\r\n" * count, 2 * count)
        assert got.count(b"RESERVED") == count

    @property
    def held(self) -> dict[int, Job]:
        return self.clients.reserved_by(self.connection.number)

    def first_us(self) -> int:
        """Return the first deadline, which is the one of a look at all jobs."""
        found = self.connection._deadlines.first_us(self.clients, self.connection.number)
        assert found == self.clients.first_deadline_us(self.connection.number)
        return found


def test_it_is_the_one_of_all_jobs() -> None:
    scene = Holding()
    chance = random.Random(5)
    found = {scene.first_us()}
    for step in range(150):
        some = chance.sample(list(scene.held), chance.choice((1, 3, 80)))
        if step % 2:
            some = list(scene.held)[: len(some)]
        word = chance.choice((b"touch %d", b"release %d 0 0", b"delete %d"))
        if step % 3 == 0:
            scene.reserve(chance.choice((1, 40)))
        else:
            scene.about(word, some)
        if len(scene.held) < HELD // 2:
            scene.reserve(HELD)
        scene.wait(chance.choice((0, 20_000)))
        found.add(scene.first_us())
    assert len(found) > 4


def test_it_is_the_one_of_all_jobs_after_an_election_and_with_few_jobs() -> None:
    scene = Holding()
    before = scene.first_us()
    scene.wait(SECOND)
    queue = scene.clients.machine.queue
    queue.begin_epoch(queue.now_us, before + 5 * SECOND)
    assert scene.first_us() == before + 5 * SECOND
    first, *_, last = scene.held
    scene.about(b"touch %d", [first])
    scene.first_us()
    scene.about(b"delete %d", [job for job in scene.held if job != last])
    assert list(scene.held) == [last]
    scene.first_us()
    scene.about(b"delete %d", [last])
    assert scene.first_us() == -1


def test_a_reserve_looks_at_few_of_many_jobs() -> None:
    scene = Holding()
    scene.first_us()
    session = scene.clients.session(scene.connection.number)
    assert session is not None
    held = session.reserved = Held(session.reserved)
    scene.wait(20_000)
    assert scene.send(b"reserve-with-timeout 0\r\n", 1) == b"TIMED_OUT\r\n"
    assert held.looked <= 4
    scene.reserve(1)
    assert held.looked <= 12


def test_touched_jobs_are_no_longer_the_first() -> None:
    scene = Holding()
    before = scene.first_us()
    scene.wait(SECOND)
    jobs = list(scene.held.values())
    scene.about(b"touch %d", [job.id for job in jobs[: 3 * FEW]])
    untouched = jobs[3 * FEW]
    assert scene.first_us() == untouched.due_us >= before
