"""Images of version 3: the parts that version 2 lacks, and their invalid values."""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.constants import EXTERNAL_ID_MAX_BYTES, JOB_SIZE_MAX_BYTES, RESULT_MAX_BYTES
from beanpole.core.image.image import pack
from beanpole.core.image.restore import load
from beanpole.core.jobs.job import DONE, FAILED
from beanpole.errors import Damaged
from beanpole.storage.snapshots import CHUNK_BYTES_MAX
from tests.unit.core.cluster import Cluster, changed, copy_of, image_of
from tests.unit.core.foreign import LEASED, NOBODY, QUEUES, SECOND, Foreign, add_spaces


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


def busy() -> Foreign:
    """Make jobs of two spaces in every state; session 4 is of the other space, 3 has left all."""
    cluster = Foreign(LEASED)
    cluster.enter(4, NOBODY)
    cluster.do(c.IGNORE, 3, cluster.queue)
    jobs = [cluster.added(b"%d" % n, failures=2, ttl_us=99 * SECOND) for n in range(7)]
    for job in jobs[1:]:
        cluster.do(c.RESERVE_JOB, 2, job)
    cluster.batch(
        (c.PROGRESS, 2, jobs[1], b"1/2"),
        (c.RELEASE, 2, jobs[2], 0, 9),
        (c.BURY, 2, jobs[3], 0),
        (c.FINISH, 2, jobs[4], DONE, b"result"),
        (c.FINISH, 2, jobs[5], FAILED, b""),  # and moves to the end
        (c.FINISH, 2, jobs[6], FAILED, b""),
    )
    cluster.do(c.RESERVE_JOB, 2, jobs[6])
    cluster.do(c.FINISH, 2, jobs[6], FAILED, b"why")
    for ttr_us in (0, SECOND):
        job = cluster.added(session=4, queue=QUEUES[NOBODY], ttr_us=ttr_us)
        cluster.do(c.RESERVE_JOB, 4, job)
    cluster.put()
    return cluster


def test_it_holds_all_of_it() -> None:
    cluster = busy()
    copy = copy_of(cluster.machine)
    assert image_of(copy) == image_of(cluster.machine)
    for job in cluster.machine.queue.jobs.values():
        other = copy.queue.jobs[job.id]
        assert (other.state, other.due_us, other.ttr_us) == (job.state, job.due_us, job.ttr_us)
        for name in ("sequence", "external_id", "expires_us", "failures", "progress", "result"):
            assert getattr(other.ext, name, None) == getattr(job.ext, name, None)
    assert copy.next_due_us(cluster.time_us) == cluster.machine.next_due_us(cluster.time_us)


def test_version_2_knows_neither_spaces_nor_extensions() -> None:
    cluster = Cluster()
    cluster.open(1)
    cluster.put(delay_s=3, ttr_s=7)
    kinds = dict(map(unpack, image_of(cluster.machine)[1:]))
    assert "spaces" not in kinds
    assert (len(kinds["tubes"][0]), len(kinds["jobs"][0])) == (7, 18)
    assert kinds["jobs"][0][3:5] == [3, 7]
    cluster.lead((c.RAISE, 3))
    kinds = dict(map(unpack, image_of(cluster.machine)[1:]))
    assert (len(kinds["tubes"][0]), len(kinds["jobs"][0])) == (8, 19)
    assert kinds["jobs"][0][3:5] == [3 * SECOND, 7 * SECOND]


def unpack(chunk: bytes) -> Any:
    return msgpack.unpackb(chunk, strict_map_key=False)


def test_what_is_not_changed_is_read() -> None:
    chunks = changed(busy().machine, "jobs", len)
    assert image_of(load(chunks)) == chunks


# Indices of fields in a job's record.
STATE, HOLDER, EXT, BODY = 6, 9, 17, 18
READY_1, RESERVED_1, DONE_1, MOVED, OPEN, PLAIN = 0, 1, 4, 5, 7, 9
SEQUENCE, EXTERNAL_ID, EXPIRES, ATTEMPTS, PROGRESS, RESULT = 0, 1, 2, 3, 6, 7


def of_job(job: int, field: int, value: Any) -> Callable[[list[Any]], object]:
    return lambda jobs: jobs[job].__setitem__(field, value)


def of_ext(job: int, field: int, value: Any) -> Callable[[list[Any]], object]:
    return lambda jobs: jobs[job][EXT].__setitem__(field, value)


@pytest.mark.parametrize(
    "change",
    [
        of_job(READY_1, STATE, 7),
        of_job(READY_1, STATE, 0),
        pytest.param(of_job(READY_1, 3, 2**32 * SECOND), id="delay"),
        pytest.param(of_job(READY_1, 4, -1), id="ttr"),
        pytest.param(of_job(RESERVED_1, HOLDER, 0), id="a lease of nobody"),
        pytest.param(of_job(OPEN, HOLDER, 2), id="a lease of a session"),
        pytest.param(of_job(DONE_1, EXT, None), id="a result without a ttl"),
        pytest.param(of_ext(DONE_1, EXPIRES, 0), id="a result that stays"),
        pytest.param(of_ext(READY_1, RESULT, b"early"), id="a result of a ready job"),
        pytest.param(
            lambda jobs: jobs[PLAIN].__setitem__(EXT, jobs[READY_1][EXT]), id="beanstalk's"
        ),
        pytest.param(of_ext(READY_1, EXTERNAL_ID, b"1"), id="an id twice"),
        pytest.param(of_ext(READY_1, EXTERNAL_ID, "text"), id="text"),
        of_ext(READY_1, EXTERNAL_ID, bytes(EXTERNAL_ID_MAX_BYTES + 1)),
        of_ext(DONE_1, RESULT, bytes(RESULT_MAX_BYTES + 1)),
        of_ext(READY_1, PROGRESS, bytes(65)),
        of_ext(READY_1, ATTEMPTS, 2**32),
        of_ext(READY_1, ATTEMPTS, -1),
        of_ext(READY_1, EXPIRES, -1),
        pytest.param(of_ext(READY_1, SEQUENCE, 2), id="the id of another"),
        pytest.param(of_ext(MOVED, SEQUENCE, 3), id="an older sequence"),
        pytest.param(of_ext(MOVED, SEQUENCE, 99), id="a sequence to come"),
        pytest.param(
            lambda jobs: jobs[READY_1][EXT].__setitem__(SEQUENCE, jobs[MOVED][EXT][SEQUENCE]),
            id="a sequence twice",
        ),
        of_ext(READY_1, SEQUENCE, None),
        of_job(READY_1, EXT, [1, 2]),
        of_job(READY_1, EXT, 5),
        lambda jobs: jobs[READY_1].pop(),
    ],
)
def test_a_job_that_cannot_be_is_damage(change: Callable[[list[Any]], object]) -> None:
    with pytest.raises(Damaged):
        load(changed(busy().machine, "jobs", change))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda tubes: tubes[1].__setitem__(7, 1), id="a session's in another space"),
        pytest.param(lambda tubes: tubes[0].__setitem__(7, LEASED), id="default"),
        pytest.param(lambda tubes: tubes[0].__setitem__(7, 2), id="not the number"),
        pytest.param(lambda tubes: tubes[1].__setitem__(7, 99), id="unknown"),
        pytest.param(lambda tubes: tubes[1].pop(), id="of version 2"),
    ],
)
def test_a_tube_that_cannot_be_is_damage(change: Callable[[list[Any]], object]) -> None:
    with pytest.raises(Damaged):
        load(changed(busy().machine, "tubes", change))


def test_a_session_of_beanstalk_uses_a_tube() -> None:
    def change(sessions: list[Any]) -> None:
        sessions[0][6] = 0

    with pytest.raises(Damaged):
        load(changed(busy().machine, "sessions", change))


@pytest.mark.parametrize("value", [[1, 5, 0], [99, 5, 0], [LEASED, 5], [LEASED, b"", 0]])
def test_totals_that_cannot_be_are_damage(value: list[Any]) -> None:
    chunks = image_of(busy().machine)
    place = next(n for n, chunk in enumerate(chunks) if unpack(chunk)[0] == "spaces")
    with pytest.raises(Damaged):
        load([*chunks[:place], pack(["spaces", value]), *chunks[place + 1 :]])


def test_a_chunk_with_the_largest_jobs_is_not_too_large() -> None:
    cluster = Foreign()
    body, result = bytes(JOB_SIZE_MAX_BYTES), bytes(RESULT_MAX_BYTES)
    for size in (500_000, len(body), len(body)):
        job = cluster.added(b"x" * 600 + b"%d" % cluster.machine.queue.next_id, body=body[:size])
        cluster.do(c.DELETE, 2, job)
        job = cluster.added(body=body[:size], ttl_us=SECOND)
        cluster.do(c.RESERVE_JOB, 2, job)
        if size == len(body):
            assert cluster.do(c.FINISH, 2, job, DONE, result) == c.OK
    assert max(map(len, image_of(cluster.machine))) <= CHUNK_BYTES_MAX
