"""Many jobs in one call: the results of a batch whose node fails in the middle."""

import pytest

from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.steps import Endpoint
from tests.unit.client.pretended import World

A, B = Endpoint("a", 1), Endpoint("b", 1)


class Counting:
    """A node that assigns ids to puts, and closes the connection after a number of replies."""

    def __init__(
        self, first: int, replies: int = 10**6, word: bytes = b"", bodies: bytes = b"x"
    ) -> None:
        self.next = first
        self.left = replies
        self.word = word
        self.bodies = bodies  # of reserved jobs, in turn
        self.lines: list[bytes] = []

    def __call__(self, data: bytes) -> bytes:
        if not data:
            return b""
        answers = []
        for line in data.split(b"\r\n")[:-1]:
            word = line.split(b" ")[0]
            if word not in (b"put", b"put-unique", b"delete", b"reserve-with-timeout"):
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
                at = self.next % len(self.bodies)
                answers.append(b"RESERVED %d 1\r\n%b" % (self.next, self.bodies[at : at + 1]))
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


def test_a_connection_is_kept_when_all_nodes_refuse_a_put() -> None:
    here = world(a=Counting(1, word=b"DRAINING"), b=Counting(7, word=b"DRAINING"))
    client = here.client("a:1,b:1")
    with pytest.raises(faults.DrainingError):
        here.run(client.put("x", 1, 0, 60, None))
    assert client.session.at is not None


def test_the_ids_of_puts_are_told_when_no_node_takes_the_refused_ones() -> None:
    here = world()

    def stops(_: bytes) -> bytes:
        del here.nodes[A]
        return b"INSERTED 1\r\nDRAINING\r\n"

    here.nodes = {A: stops}
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.put_many(here.client("a:1,b:1"), ["x", "y"], 1, 0, 60))
    first, other = caught.value.results
    assert (first, type(other)) == (1, faults.DrainingError)


def test_one_job_that_is_refused() -> None:
    here = world(a=Counting(1, word=b"JOB_TOO_BIG"))
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.put_many(here.client("a:1"), ["x"], 1, 0, 60))
    assert [type(one) for one in caught.value.results] == [faults.JobTooBigError]


@pytest.mark.parametrize("word", [b"BAD_FORMAT", b"UNKNOWN_COMMAND"])
def test_what_follows_a_misread_put_answers_nothing(word: bytes) -> None:
    """Its body was read as commands, which were answered, too."""
    here = world(a=Counting(1, word=word))
    client = here.client("a:1")
    bodies = ["x"] * (batches.WINDOW_REQUESTS + 1)
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.put_many(client, bodies, 1, 0, 60))
    first, *others, last = caught.value.results
    assert type(first) is faults.ERROR_RESPONSES[word]
    assert {type(one) for one in others} == {faults.MayBeDoneError}
    assert type(last) is faults.ERROR_RESPONSES[word], "on a new connection"
    assert client.session.at is None


@pytest.mark.parametrize("key", [None, "key"])
def test_a_misread_put_ends_its_connection(key: str | None) -> None:
    here = world(a=Counting(1, word=b"BAD_FORMAT"))
    client = here.client("a:1")
    here.run(client.connect())
    client.session._words = frozenset({b"put-unique"})
    with pytest.raises(faults.BadFormatError):
        here.run(client.put("x", 1, 0, 60, key))
    assert client.session.at is None


def test_a_put_that_would_be_misread_is_not_sent() -> None:
    here = world(a=Counting(1))
    client = here.client("a:1")
    for numbers in ((-1, 0, 60), (2**32, 0, 60), (0, -1, 60), (0, 2**32, 60), (0, 0, 2**32)):
        for key in (None, "key"):
            with pytest.raises(ValueError, match="must be from 0 to 4294967295, and is"):
                here.run(client.put("delete 1", *numbers, key))
        with pytest.raises(ValueError, match="must be from 0 to 4294967295, and is"):
            here.run(batches.put_many(client, ["delete 1"], *numbers))
    assert not here.said


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


def test_a_body_of_another_encoding_hides_no_other_job() -> None:
    here = world(a=Counting(3, bodies=b"a\xffc"))
    client = here.client("a:1")
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.reserve_many(client, 3, 0))
    first, wrong, last = caught.value.results
    assert ((first.id, first.body), (last.id, last.body)) == ((3, "a"), (5, "c"))
    assert isinstance(wrong, UnicodeDecodeError)
    assert wrong.__notes__ == ["in the body of job 4"]
    assert str(caught.value) == f"1 of 3 are not done; the first: {wrong}", "without the body"
    assert list(client.session.held) == [3, 4, 5]


def test_a_single_body_of_another_encoding() -> None:
    here = world(a=Counting(1, bodies=b"\xff"))
    client = here.client("a:1")
    with pytest.raises(UnicodeDecodeError):
        here.run(client.reserve(0))
    assert list(client.session.held) == [1]


def test_nothing_to_reserve() -> None:
    here = world(a=Counting(1, word=b"TIMED_OUT"))
    with pytest.raises(faults.TimedOutError):
        here.run(batches.reserve_many(here.client("a:1"), 3, 0))


def test_nothing_to_put() -> None:
    here = world()
    assert here.run(batches.put_many(here.client("a:1"), [], 1, 0, 60)) == []


def test_a_first_body_of_another_encoding_hides_no_other_job() -> None:
    """A mistake here was the error of the one job alone: the caller never got the other jobs."""
    here = world(a=Counting(3, bodies=b"\xffbc"))
    with pytest.raises(faults.BatchError) as caught:
        here.run(batches.reserve_many(here.client("a:1"), 3, 0))
    wrong, *others = caught.value.results
    assert isinstance(wrong, UnicodeDecodeError)
    assert [(job.id, job.body) for job in others] == [(4, "b"), (5, "c")]
