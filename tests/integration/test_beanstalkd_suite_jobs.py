"""beanstalkd's own tests, restated: jobs, tubes and reservations.

The names come from its testserv.c. Tests of malformed commands are in
test_beanstalkd_suite_errors.
"""

import time

import pytest

from tests.integration.support.queues import QUOTE, Queue
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

NOT_FOUND = b"NOT_FOUND"
# Where a TTR or a delay is no subject of a test, it is longer than in testserv.c: a machine may
# pause for the second that it has there.


def put(client: Raw, queue: Queue, number: int, arguments: bytes, body: bytes) -> int:
    """Put the test's job with this number and return its id."""
    job = queue.id(number)
    client.ask(b"put %b %d\r\n%b" % (arguments, len(body), body), b"INSERTED %d" % job)
    return job


def state(client: Raw, job: int) -> str:
    return client.dictionary(b"stats-job %d" % job)["state"]


def reserve(client: Raw, job: int, body: bytes, command: bytes = b"reserve-with-timeout 1") -> None:
    client.ask(command, b"RESERVED %d %d" % (job, len(body)), body)


def test_peek_delayed(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"peek-delayed", NOT_FOUND)
    put(client, queue, 1, b"0 0 1", b"A")
    later = put(client, queue, 2, b"0 999 1", b"B")
    sooner = put(client, queue, 3, b"0 99 1", b"C")
    client.ask(b"peek-delayed", b"FOUND %d 1" % sooner, b"C")
    client.ask(b"delete %d" % sooner, b"DELETED")
    client.ask(b"peek-delayed", b"FOUND %d 1" % later, b"B")
    client.ask(b"delete %d" % later, b"DELETED")
    client.ask(b"peek-delayed", NOT_FOUND)


def test_peek_buried_kick(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 100", b"A")
    client.ask(b"peek-buried", NOT_FOUND)
    client.ask(b"bury %d 0" % job, NOT_FOUND)
    reserve(client, job, b"A", b"reserve-with-timeout 0")
    client.ask(b"bury %d 0" % job, b"BURIED")
    client.ask(b"peek-buried", b"FOUND %d 1" % job, b"A")
    client.ask(b"kick 1", b"KICKED 1")
    client.ask(b"peek-buried", NOT_FOUND)
    client.ask(b"peek-ready", b"FOUND %d 1" % job, b"A")
    client.ask(b"kick 1", b"KICKED 0")


def test_kickjob_buried(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 100", b"A")
    reserve(client, job, b"A", b"reserve")
    client.ask(b"bury %d 0" % job, b"BURIED")
    client.ask(b"kick-job %d" % queue.id(100), NOT_FOUND)
    client.ask(b"kick-job %d" % job, b"KICKED")
    client.ask(b"kick-job %d" % job, NOT_FOUND)


def test_kickjob_delayed(queue: Queue) -> None:
    client = queue.connect()
    ready = put(client, queue, 1, b"0 0 1", b"A")
    delayed = put(client, queue, 2, b"0 100 1", b"B")
    client.ask(b"kick-job %d" % ready, NOT_FOUND)
    client.ask(b"kick-job %d" % delayed, b"KICKED")
    client.ask(b"kick-job %d" % delayed, NOT_FOUND)


def test_pause(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 0", b"x")
    start = time.monotonic()
    client.ask(b"pause-tube default 1", b"PAUSED")
    reserve(client, job, b"x", b"reserve")
    assert time.monotonic() - start >= 1


def test_delete_ready(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 0", b"")
    client.ask(b"delete %d" % job, b"DELETED")


def test_delete_reserved_by_other(queue: Queue) -> None:
    owner, other = queue.connect(), queue.connect()
    job = put(owner, queue, 1, b"0 0 100", b"a")
    reserve(owner, job, b"a", b"reserve")
    other.ask(b"delete %d" % job, NOT_FOUND)


def test_multi_tube(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"use abc", b"USING abc")
    put(client, queue, 1, b"999999 0 0", b"")
    client.ask(b"use def", b"USING def")
    urgent = put(client, queue, 2, b"99 0 0", b"")
    client.ask(b"watch abc", b"WATCHING 2")
    client.ask(b"watch def", b"WATCHING 3")
    reserve(client, urgent, b"", b"reserve")


def test_omit_time_left(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 5", b"a")
    assert client.dictionary(b"stats-job %d" % job)["time-left"] == "0"


def test_small_delay(queue: Queue) -> None:
    put(queue.connect(), queue, 1, b"0 1 0", b"")


def test_delayed_to_ready(queue: Queue) -> None:
    client = queue.connect()
    keys = ("current-jobs-ready", "current-jobs-delayed", "total-jobs")

    def counts() -> tuple[int, ...]:
        stats = client.dictionary(b"stats-tube default")
        return tuple(int(stats[key]) for key in keys)

    total = counts()[2]
    put(client, queue, 1, b"0 3 0", b"")
    assert counts() == (0, 1, total + 1)
    # Not after three seconds by our clock: cluster time leaves out pauses of the leader's process.
    wait_until(lambda: counts() == (1, 0, total + 1), 60, "the job is ready")


TUBE_STATS = {
    "current-jobs-urgent": 0,
    "current-jobs-ready": 0,
    "current-jobs-reserved": 0,
    "current-jobs-delayed": 0,
    "current-jobs-buried": 0,
    "total-jobs": 0,
    "current-using": 0,
    "current-watching": 0,
    "current-waiting": 0,
    "cmd-delete": 0,
    "cmd-pause-tube": 0,
    "pause": 0,
    "pause-time-left": 0,
}


def test_stats_tube(queue: Queue) -> None:
    client = queue.connect()
    before = client.dictionary(b"stats-tube default")
    client.ask(b"use tubea", b"USING tubea")
    job = put(client, queue, 1, b"0 0 0", b"x")
    client.ask(b"delete %d" % job, b"DELETED")
    expected = {
        "name": f"{QUOTE}tubea{QUOTE}",
        **{key: str(value) for key, value in TUBE_STATS.items()},
        "total-jobs": "1",
        "current-using": "1",
        "cmd-delete": "1",
    }
    stats = client.dictionary(b"stats-tube tubea")
    assert stats == expected
    assert list(stats) == list(expected)
    counted = {key: before[key] for key in ("total-jobs", "cmd-delete", "cmd-pause-tube")}
    assert client.dictionary(b"stats-tube default") == {
        "name": f"{QUOTE}default{QUOTE}",
        **{key: str(value) for key, value in TUBE_STATS.items()},
        "current-watching": "1",
        **counted,
    }


def test_ttrlarge(queue: Queue) -> None:
    client = queue.connect()
    for number, ttr_s in enumerate((120, 4294, 4295, 4296, 4297, 5000, 21600), 1):
        job = put(client, queue, number, b"0 0 %d" % ttr_s, b"a")
        assert client.dictionary(b"stats-job %d" % job)["ttr"] == str(ttr_s)


def test_ttr_small(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 0", b"a")
    assert client.dictionary(b"stats-job %d" % job)["ttr"] == "1"


def test_zero_delay(queue: Queue) -> None:
    put(queue.connect(), queue, 1, b"0 0 0", b"")


def test_reserve_with_timeout_2conns(queue: Queue) -> None:
    first, second = queue.connect(), queue.connect()
    first.ask(b"watch foo", b"WATCHING 2")
    start = time.monotonic()
    first.send(b"reserve-with-timeout 1\r\n")
    second.ask(b"watch foo", b"WATCHING 2")
    first.expect(b"TIMED_OUT")
    assert time.monotonic() - start >= 1


def test_reserve_ttr_deadline_soon(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 0 2", b"a")
    reserve(client, job, b"a")
    # At once, because the job has one second left when the warning comes.
    client.send(b"reserve-with-timeout 60\r\npeek-ready\r\nrelease %d 0 0\r\n" % job)
    client.expect(b"DEADLINE_SOON", NOT_FOUND, b"RELEASED")
    assert state(client, job) == "ready"


def test_reserve_job_ttr_deadline_soon(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 100 2", b"a")
    assert state(client, job) == "delayed"
    reserve(client, job, b"a", b"reserve-job %d" % job)
    # At once, because the job has one second left when the warning comes.
    client.send(b"reserve-with-timeout 60\r\npeek-ready\r\n")
    client.expect(b"DEADLINE_SOON", NOT_FOUND)
    put(client, queue, 2, b"0 0 1", b"B")
    wait_until(lambda: state(client, job) == "ready", 60, "its time is over")


def test_reserve_job_already_reserved(queue: Queue) -> None:
    owner, other = queue.connect(), queue.connect()
    job = put(owner, queue, 1, b"0 0 100", b"A")
    reserve(owner, job, b"A", b"reserve-job %d" % job)
    owner.ask(b"reserve-job %d" % job, NOT_FOUND)
    other.ask(b"reserve-job %d" % job, NOT_FOUND)


def test_reserve_job_ready(queue: Queue) -> None:
    client = queue.connect()
    first = put(client, queue, 1, b"0 0 100", b"A")
    second = put(client, queue, 2, b"0 0 100", b"B")
    reserve(client, second, b"B", b"reserve-job %d" % second)
    assert state(client, second) == "reserved"
    client.ask(b"reserve-job %d" % queue.id(3), NOT_FOUND)
    client.ask(b"release %d 1 0" % first, NOT_FOUND)
    client.ask(b"release %d 1 0" % second, b"RELEASED")


def test_reserve_job_delayed(queue: Queue) -> None:
    client = queue.connect()
    job = put(client, queue, 1, b"0 100 100", b"A")
    reserve(client, job, b"A", b"reserve-job %d" % job)
    assert state(client, job) == "reserved"
    client.ask(b"release %d 1 0" % job, b"RELEASED")
    assert state(client, job) == "ready"


def test_reserve_job_buried(queue: Queue) -> None:
    client = queue.connect()
    jobs = [put(client, queue, number, b"0 0 100", b"%d" % number) for number in (1, 2)]
    for number, job in enumerate(jobs, 1):
        reserve(client, job, b"%d" % number, b"reserve")
        client.ask(b"bury %d 0" % job, b"BURIED")
        assert state(client, job) == "buried"
    for number, job in reversed(list(enumerate(jobs, 1))):
        reserve(client, job, b"%d" % number, b"reserve-job %d" % job)
        assert state(client, job) == "reserved"
    for job in jobs:
        client.ask(b"release %d 1 0" % job, b"RELEASED")
        assert state(client, job) == "ready"


@pytest.mark.parametrize("end", ["close", "quit"])
def test_close_and_quit_release_job(queue: Queue, end: str) -> None:
    consumer, producer = queue.connect(), queue.connect()
    job = put(producer, queue, 1, b"0 0 100", b"a")
    reserve(consumer, job, b"a")
    if end == "quit":
        consumer.send(b"quit\r\n")
        consumer.expect_end()
    else:
        consumer.close()
    # The job must come back long before its TTR of 100 s.
    reserve(producer, job, b"a", b"reserve-with-timeout 50")


def test_unpause_tube(queue: Queue) -> None:
    client, waiter = queue.connect(), queue.connect()
    job = put(client, queue, 1, b"0 0 0", b"x")
    client.ask(b"pause-tube default 86400", b"PAUSED")
    waiter.send(b"reserve\r\n")
    waiter.expect_silence(0.1)
    client.ask(b"pause-tube default 0", b"PAUSED")
    waiter.expect(b"RESERVED %d 1" % job, b"x")


def test_list_tube(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"watch w", b"WATCHING 2")
    client.ask(b"use u", b"USING u")
    client.send(b"list-tubes\r\n")
    expected = b"OK 22\r\n---\n- default\n- w\n- u\n\r\n"
    assert client.take(len(expected)) == expected
    client.ask(b"list-tube-used", b"USING u")
    client.send(b"list-tubes-watched\r\n")
    expected = b"OK 18\r\n---\n- default\n- w\n\r\n"
    assert client.take(len(expected)) == expected
    client.ask(b"ignore default", b"WATCHING 1")
    client.send(b"list-tubes-watched\r\n")
    expected = b"OK 8\r\n---\n- w\n\r\n"
    assert client.take(len(expected)) == expected
    client.ask(b"ignore w", b"NOT_IGNORED")
