"""Many jobs in one call: the results of a batch whose node fails in the middle."""

import pytest

from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.steps import Endpoint
from tests.unit.client.pretended import World

A, B = Endpoint("a", 1), Endpoint("b", 1)


class Counting:
    """A node that assigns ids to puts, and closes the connection after a number of replies."""

    def __init__(self, first: int, replies: int = 10**6, word: bytes = b"") -> None:
        self.next = first
        self.left = replies
        self.word = word
        self.lines: list[bytes] = []

    def __call__(self, data: bytes) -> bytes:
        if not data:
            return b""
        answers = []
        for line in data.split(b"\r\n")[:-1]:
            word = line.split(b" ")[0]
            if word not in (b"put", b"delete", b"reserve-with-timeout"):
                continue
            if self.left == 0:
                break
            self.left -= 1
            self.lines.append(line)
            if self.word:
                answers.append(self.word)
            elif word == b"put":
                answers.append(b"INSERTED %d" % self.next)
                self.next += 1
            elif word == b"delete":
                answers.append(b"DELETED")
            else:
                answers.append(b"RESERVED %d 1\r\nx" % self.next)
                self.next += 1
        return b"".join(one + b"\r\n" for one in answers)


def world(**nodes: Counting) -> World:
    found = World()
    found.nodes = {Endpoint(name, 1): node for name, node in nodes.items()}
    return found


def test_puts_are_sent_in_windows() -> None:
    here = world(a=Counting(1))
    client = here.client("a:1")
    bodies = ["x"] * (2 * batches.WINDOW_REQUESTS + 1)
    assert here.run(batches.put_many(client, bodies, 1, 0, 60)) == list(range(1, len(bodies) + 1))
    assert [data.count(b"put ") for _, data in here.said] == [100, 100, 1]
    large = ["x" * (batches.WINDOW_BYTES // 2)] * 3
    here.run(batches.put_many(client, large, 1, 0, 60))
    assert [data.count(b"put ") for _, data in here.said[3:]] == [1, 1, 1]


def test_a_batch_of_puts_that_is_cut_off_says_what_is_known_of_each() -> None:
    here = world(a=Counting(1, replies=2), b=Counting(100))
    bodies = ["x"] * (batches.WINDOW_REQUESTS + 5)
    with pytest.raises(faults.BatchError, match="103 of 105 are not done") as caught:
        here.run(batches.put_many(here.client("a:1,b:1"), bodies, 1, 0, 60))
    results = caught.value.results
    assert results[:2] == [1, 2]
    assert all(isinstance(one, faults.MayBeDoneError) for one in results[2:100])
    assert results[100:] == [None] * 5
    assert {place for place, _ in here.said} == {A}, "no put is repeated"


def test_refused_puts_go_to_another_node() -> None:
    here = world(a=Counting(1, word=b"DRAINING"), b=Counting(7))
    assert here.run(batches.put_many(here.client("a:1,b:1"), ["x", "y"], 1, 0, 60)) == [7, 8]


def test_one_job_that_is_refused() -> None:
    here = world(a=Counting(1, word=b"JOB_TOO_BIG"))
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.put_many(here.client("a:1"), ["x"], 1, 0, 60))
    assert [type(one) for one in caught.value.results] == [faults.JobTooBigError]


def test_deletes_are_repeated_elsewhere() -> None:
    here = world(a=Counting(1, replies=2), b=Counting(1))
    client = here.client("a:1,b:1")
    assert here.run(batches.delete_many(client, [1, 2, 3, 4])) == [True] * 4
    assert here.said[-1] == (B, b"delete 3\r\ndelete 4\r\n")


def test_deletes_that_find_nothing_the_second_time_are_open() -> None:
    here = world(a=Counting(1, replies=1), b=Counting(1, word=b"NOT_FOUND"))
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.delete_many(here.client("a:1,b:1"), [1, 2]))
    assert caught.value.results[0] is True
    assert isinstance(caught.value.results[1], faults.MayBeDoneError)
    missing = world(a=Counting(1, word=b"NOT_FOUND"))
    assert missing.run(batches.delete_many(missing.client("a:1"), [1, 2])) == [False, False]


def test_a_reserve_of_many_that_is_cut_off_begins_anew() -> None:
    here = world(a=Counting(1, replies=1), b=Counting(100))
    client = here.client("a:1,b:1")
    jobs = here.run(batches.reserve_many(client, 3, 5))
    assert [job.id for job in jobs] == [100, 101, 102]
    assert list(client.session.held) == [100, 101, 102]
    assert here.said[-1][1] == b"reserve-with-timeout 5\r\n" + 2 * b"reserve-with-timeout 0\r\n"
    with pytest.raises(ValueError, match="from 1 to 1000"):
        here.run(batches.reserve_many(client, 0, 5))


def test_nothing_to_reserve() -> None:
    here = world(a=Counting(1, word=b"TIMED_OUT"))
    with pytest.raises(faults.TimedOutError):
        here.run(batches.reserve_many(here.client("a:1"), 3, 0))


def test_nothing_to_put() -> None:
    here = world()
    assert here.run(batches.put_many(here.client("a:1"), [], 1, 0, 60)) == []
