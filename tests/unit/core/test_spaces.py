"""Spaces: sessions see the queues and jobs of their own protocol, and no others."""

from collections.abc import Iterator

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.image.image import Image
from beanpole.core.jobs.job import BURIED, DELAYED
from beanpole.errors import Damaged
from tests.unit.core.cluster import DEFAULT, Cluster, chunks_of, copy_of, image_of
from tests.unit.core.foreign import DEFAULTED, LEASED, NOBODY, QUEUES, SECOND, Foreign, add_spaces


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


def test_no_command_of_beanstalk_reaches_the_jobs_of_another_space() -> None:
    cluster = Foreign()
    ready, held, delayed, buried = (cluster.added(rank=rank) for rank in range(4))
    for job in (held, delayed, buried):
        cluster.do(c.RESERVE_JOB, 2, job)
    cluster.batch((c.RELEASE, 2, delayed, 0, 9), (c.BURY, 2, buried, 0))
    before = cluster.machine.state_hash, cluster.machine.queue.events_total
    queue = cluster.queue
    named = [
        *((c.DELETE, 1, job) for job in (ready, held, delayed, buried)),
        *((operation, 1, ready) for operation in (c.RESERVE_JOB, c.PEEK, c.STATS_JOB, c.RESULT)),
        *((operation, 1, held) for operation in (c.TOUCH, c.RETURN)),
        *((c.KICK_JOB, 1, job) for job in (delayed, buried)),
        *((c.RELEASE, 1, held, 0, 0), (c.BURY, 1, held, 0), (c.PAUSE_TUBE, 1, queue, 5)),
        *((peek, 1, queue) for peek in (c.PEEK_READY, c.PEEK_DELAYED, c.PEEK_BURIED)),
        (c.STATS_TUBE, 1, queue),
    ]
    assert cluster.batch(*named) == [c.NOT_FOUND] * len(named)
    assert cluster.do(c.KICK, 1, queue, 9, BURIED) == (0, BURIED, 0)
    assert cluster.do(c.KICK, 1, queue, 9, DELAYED) == (0, DELAYED, 0)
    assert cluster.machine.queue.events_total == before[1]
    states = [cluster.state(job) for job in (ready, held, delayed, buried)]
    assert states == [b"ready", b"reserved", b"delayed", b"buried"]


def test_nor_does_another_space_reach_those_of_beanstalk() -> None:
    cluster = Foreign()
    job = cluster.put()
    assert cluster.batch((c.PEEK, 2, job), (c.DELETE, 2, job), (c.RESERVE_JOB, 2, job)) == [0, 0, 0]
    assert cluster.reserve(2) == 0
    assert cluster.do(c.TAKE, 2) == c.NOT_FOUND
    assert cluster.reserve(1) == job
    assert cluster.do(c.FINISH, 2, job, 5, b"") == c.NOT_FOUND


@pytest.mark.parametrize("name", [QUEUES[NOBODY], DEFAULT, b"\x1funknown", b"", b"\x11" * 302])
def test_a_name_of_another_space_is_a_bad_command(name: bytes) -> None:
    cluster = Foreign()
    cluster.enter(4, NOBODY)  # so that one of the names exists
    put = (c.PUT, 2, name, 0, 0, 60, b"")
    assert cluster.batch((c.USE, 2, name), (c.WATCH, 2, name), put) == [c.BAD_COMMAND] * 3
    assert cluster.add(queue=name) == c.BAD_COMMAND
    assert cluster.machine.queue.jobs_total == 0


def test_names_are_as_long_as_their_space_allows() -> None:
    cluster = Foreign()
    assert cluster.do(c.WATCH, 2, b"\x11" + b"x" * 300) == c.OK
    assert cluster.do(c.WATCH, 2, b"\x11") == c.OK  # the queue with the empty name
    cluster.enter(4, NOBODY)
    assert cluster.do(c.WATCH, 4, b"\x12" + b"x" * 21) == c.BAD_COMMAND


@pytest.mark.parametrize("name", [b"\x11q", b"\x1f", b"\x00"])
def test_names_of_beanstalk_have_no_prefix_from_version_3_on(name: bytes) -> None:
    cluster = Cluster()
    cluster.open(1)
    assert cluster.do(c.WATCH, 1, name) == c.OK
    cluster.do(c.IGNORE, 1, name)
    cluster.lead((c.RAISE, 3))
    assert cluster.do(c.WATCH, 1, name) == c.BAD_COMMAND


def test_what_version_2_called_like_another_space_stays_beanstalks() -> None:
    cluster = Cluster()
    cluster.open(1)
    job = cluster.put(tube=QUEUES[LEASED])
    cluster.lead((c.RAISE, 3))
    cluster.machine = copy_of(cluster.machine)
    cluster.open(2)
    assert cluster.do(c.SET_PROTOCOL, 2, LEASED) == c.OK
    assert cluster.do(c.WATCH, 2, QUEUES[LEASED]) == c.BAD_COMMAND
    assert cluster.do(c.PEEK, 2, job) == c.NOT_FOUND
    assert cluster.do(c.PEEK, 1, job) == (job, b"body")
    assert image_of(copy_of(cluster.machine)) == image_of(cluster.machine)


def test_totals_and_lists_are_of_a_space() -> None:
    cluster = Foreign()
    cluster.put()
    for _ in range(3):
        cluster.added(ttr_us=SECOND)
    cluster.do(c.TAKE, 2)
    cluster.pass_s(1)
    # urgent, ready, reserved, delayed, buried, timeouts, jobs in all, tubes
    assert cluster.do(c.STATS, 1) == (1, 1, 0, 0, 0, 0, 1, 1)
    assert cluster.do(c.STATS, 2) == (3, 3, 0, 0, 0, 1, 3, 1)
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT,)
    assert cluster.do(c.LIST_TUBES, 2) == (cluster.queue,)
    cluster.machine = copy_of(cluster.machine)
    assert cluster.do(c.STATS, 2) == (3, 3, 0, 0, 0, 1, 3, 1)
    assert cluster.machine.queue.jobs_total == 4


def test_a_session_leaves_its_queues_when_it_enters_a_space() -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, 3))
    cluster.open(1)
    cluster.batch((c.USE, 1, b"a"), (c.WATCH, 1, b"b"))
    assert cluster.do(c.SET_PROTOCOL, 1, LEASED) == c.OK
    session = cluster.machine.origins[0].sessions[1]
    assert (session.used, session.watched, cluster.machine.watches) == (None, {}, 0)
    assert list(cluster.machine.queue.tubes) == [DEFAULT]
    assert image_of(copy_of(cluster.machine)) == image_of(cluster.machine)
    # It may watch one queue, and then none.
    queue = QUEUES[LEASED]
    assert cluster.batch((c.WATCH, 1, queue), (c.IGNORE, 1, queue)) == [c.OK, c.OK]
    assert list(cluster.machine.queue.tubes) == [DEFAULT]
    assert cluster.reserve(1) == 0
    assert cluster.do(c.CLOSE, 1, 0) == c.OK
    assert not cluster.machine.has_work()


def test_a_default_queue_is_used_and_watched_from_the_beginning() -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, 3))
    cluster.open(1)
    assert cluster.do(c.SET_PROTOCOL, 1, DEFAULTED) == c.OK
    session = cluster.machine.origins[0].sessions[1]
    assert session.used is not None
    assert (session.used.name, list(session.watched)) == (b"\x13main", [b"\x13main"])
    assert cluster.do(c.IGNORE, 1, b"\x13main") == c.NOT_FOUND
    cluster.do(c.CLOSE, 1, 0)
    assert list(cluster.machine.queue.tubes) == [DEFAULT]


def test_a_session_that_holds_a_job_stays_in_its_space() -> None:
    cluster = Foreign()
    cluster.put()
    cluster.reserve(1)
    assert cluster.do(c.SET_PROTOCOL, 1, LEASED) == c.BAD_COMMAND
    assert cluster.do(c.SET_PROTOCOL, 1, e.GRPC) == c.OK  # which shares beanstalk's space
    assert cluster.do(c.DELETE, 1, 1) == c.OK
    assert cluster.do(c.SET_PROTOCOL, 1, LEASED) == c.OK


def test_a_space_is_refused_before_version_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(e.PROTOCOL_SINCE, LEASED)
    cluster = Cluster()
    cluster.open(1)
    assert cluster.do(c.SET_PROTOCOL, 1, LEASED) == c.BAD_COMMAND


def test_no_session_of_another_space_is_resumed() -> None:
    cluster = Foreign()
    secret = b"s" * 16
    assert cluster.do(c.KEEP, 1, secret, SECOND) == c.OK
    assert cluster.do(c.RESUME, 2, secret) == c.NOT_FOUND
    cluster.open(4)
    assert cluster.do(c.RESUME, 4, secret) == c.OK


def test_a_key_of_beanstalk_leads_into_no_other_space() -> None:
    cluster = Foreign()
    put = (DEFAULT, 0, 0, 60, b"", b"key")
    assert cluster.do(c.PUT_KEYED, 1, *put) == (1, 0)
    assert cluster.do(c.PUT_KEYED, 2, cluster.queue, *put[1:]) == c.BAD_COMMAND


def test_an_image_in_progress_keeps_a_session_that_enters_a_space() -> None:
    cluster = Foreign()
    image, expected = Image(cluster.machine), image_of(cluster.machine)
    cluster.do(c.SET_PROTOCOL, 1, DEFAULTED)
    assert chunks_of(image) == expected
    image.close()


def test_a_program_without_the_space_does_not_read_the_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from beanpole.core.jobs.spaces import SPACES

    cluster = Foreign()
    cluster.added()
    chunks = image_of(cluster.machine)
    monkeypatch.delitem(SPACES, LEASED)
    from beanpole.core.image.restore import load

    with pytest.raises(Damaged):
        load(chunks)
