"""The contents that a restore takes from an image; its digest does not change."""

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.image import qless as qless_image
from beanpole.core.image.contents import Contents, Restoring
from beanpole.core.image.image import pack
from beanpole.core.image.restore import load
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import DONE
from beanpole.core.jobs.policies import Policy
from beanpole.core.machine import Machine
from beanpole.core.operations import qless as calls
from beanpole.core.qless.job import WORK
from beanpole.core.qless.scores import INFINITY
from beanpole.errors import Damaged
from beanpole.events import QLESS
from tests.unit.core.cluster import DEFAULT, Cluster, Entry, image_of
from tests.unit.core.foreign import add_spaces
from tests.unit.core.guests import PING, TURN, TWIST, Guests
from tests.unit.core.logs import BUDGETS, LOGS, replay, tighten
from tests.unit.core.qless.random_calls import Calls
from tests.unit.core.qless.test_images import check, opened, run
from tests.unit.seeds import seeds

SECOND = 1_000_000


@pytest.fixture(scope="module")
def foreign_spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


def contents_of(chunks: Iterable[bytes]) -> Contents:
    contents = Contents()
    for chunk in chunks:
        contents.take(chunk)
    return contents


def restored(machine: Machine) -> Machine:
    """Restore a machine, and assert that the digest is equal."""
    image = image_of(machine)
    before = contents_of(image)
    restoring = Restoring(before.busy, before.dropped)
    made = [chunk for chunk in map(restoring.take, image) if chunk is not None]
    copy = load(made)
    assert image_of(copy) == made or before.dropped  # which shifts the boundaries of chunks
    after = contents_of(image_of(copy))
    assert after.digest() == before.digest()
    assert (after.jobs, after.dropped) == (before.jobs, 0)
    return copy


def order_of(machine: Machine) -> list[tuple[bytes, bytes]]:
    """Return all ready jobs in the order in which a client of each queue would get them."""
    cluster = Cluster()
    cluster.machine = machine
    cluster.log = [(machine.index, 0, 0, 0, [])] * machine.index
    cluster.time_us = machine.queue.now_us
    cluster.open(1)
    found = []
    for tube in [name for name in machine.queue.tubes if name[0] >= 0x20]:
        cluster.batch((c.WATCH, 1, tube), *((c.IGNORE, 1, DEFAULT),) * (tube != DEFAULT))
        while job := cluster.reserve():
            found.append((tube, machine.queue.jobs[job].body))
        cluster.batch((c.WATCH, 1, DEFAULT), (c.IGNORE, 1, tube))
    return found


def test_a_reserved_job_is_ready_in_its_old_place() -> None:
    cluster = Guests()
    first, second, third = (cluster.put(b"%d" % n) for n in range(3))
    assert cluster.reserve() == first
    cluster.do(c.BURY, 1, cluster.reserve(), 7)
    copy = restored(cluster.machine)
    assert [body for _, body in order_of(copy)] == [b"0", b"2"]
    assert copy.queue.jobs[first].reserves == 2  # without a limit the old count is kept
    assert list(copy.queue.default.buried) == [second]
    assert copy.queue.jobs[third].body == b"2"


def test_delays_ttrs_and_pauses_keep_what_is_left_of_them() -> None:
    cluster = Guests()
    cluster.put(delay_s=100)
    cluster.do(c.PUT, 1, b"other", 0, 0, 60, b"paused")
    cluster.do(c.PAUSE_TUBE, 1, b"other", 50)
    cluster.pass_s(30)
    copy = restored(cluster.machine)
    assert copy.queue.now_us == cluster.machine.queue.now_us
    assert copy.next_due_us(copy.queue.now_us) == copy.queue.now_us + 20 * SECOND
    assert copy.queue.tubes[b"other"].paused_until_us == copy.queue.now_us + 20 * SECOND
    (job,) = (job for job in copy.queue.jobs.values() if job.due_us)
    assert job.due_us == copy.queue.now_us + 70 * SECOND


def test_policies_and_what_they_remember_are_restored() -> None:
    cluster = Guests()
    rules = Policy(unique_window_us=99 * SECOND, retain_buried_us=99 * SECOND)
    rules = rules._replace(rate=2, rate_period_us=60 * SECOND)
    assert cluster.do(c.SET_POLICY, 1, DEFAULT, *rules) == c.OK
    jobs = [cluster.put(b"%d" % number) for number in range(4)]
    assert cluster.do(c.BURY, 1, cluster.reserve(), 0) == c.OK
    assert cluster.reserve() == jobs[1]
    cluster.pass_s(10)
    copy = restored(cluster.machine)
    after = Cluster()
    after.machine, after.time_us = copy, copy.queue.now_us
    after.log = [(copy.index, 0, 0, 0, [])] * copy.index
    after.open(1)
    # An equal put is detected, the rate is spent for 20 s more, the buried job expires in 89 s.
    assert after.do(c.PUT, 1, DEFAULT, 0, 0, 60, b"3") == (jobs[3], 1)
    assert not after.reserve()
    after.pass_s(20)
    assert after.reserve() == jobs[1]
    after.pass_s(68.9)
    assert after.state(jobs[0]) == b"buried"
    after.pass_s(0.1)
    assert after.state(jobs[0]) == b"gone"


def test_sessions_and_tubes_that_only_they_kept_are_gone() -> None:
    cluster = Guests()
    cluster.do(c.WATCH, 1, b"only watched")
    cluster.put(tube=b"with a job")
    copy = restored(cluster.machine)
    assert (copy.sessions, copy.origins, copy.lost, list(copy.detached)) == (
        0,
        {},
        type(copy.lost)(),
        [],
    )
    assert list(copy.queue.tubes) == [DEFAULT, TURN, PING, b"with a job"]


def test_a_gearman_job_goes_with_its_client_and_stays_in_background() -> None:
    cluster = Guests()
    waited_for = cluster.submitted(foreground=1, body=b"waited for")
    background = cluster.submitted(foreground=0, body=b"background")
    assert cluster.take(3) == waited_for
    assert cluster.take(4) == background
    cluster.do(c.PROGRESS, 4, background, b"1/2")
    contents = contents_of(image_of(cluster.machine))
    assert (contents.jobs, contents.dropped) == (1, 1)
    assert contents.counts() == {"gearman": {"reserved": 2}}
    assert contents.queues() == [("gearman", "gearman:turn", {"reserved": 2})]
    copy = restored(cluster.machine)
    assert [job.id for job in copy.queue.jobs.values()] == [background]
    ext = copy.queue.jobs[background].ext
    assert ext is not None
    assert (ext.progress, ext.sequence) == (b"", background)  # in its old order


def test_the_attempt_under_way_is_not_one_of_those_of_a_workq_job() -> None:
    cluster = Guests()
    job, known = cluster.do(c.ADD, 5, PING, 0, 0, SECOND, 0, b"x" * 16, 1, 0, b"body")
    assert known == 0
    assert cluster.take(5) == job
    copy = restored(cluster.machine)
    assert (copy.queue.jobs[job].reserves, copy.queue.ready, copy.queue.reserved) == (0, 1, 0)
    ext = copy.queue.jobs[job].ext
    assert isinstance(ext, Extension)
    assert ext.attempts_max == 1


def test_results_are_kept() -> None:
    cluster = Guests()
    job, _ = cluster.do(c.ADD, 5, PING, 0, 0, SECOND, 99 * SECOND, b"x" * 16, 0, 0, b"body")
    assert cluster.take(5) == job
    cluster.do(c.FINISH, 5, job, DONE, b"result")
    copy = restored(cluster.machine)
    ext = copy.queue.jobs[job].ext
    assert ext is not None
    assert (copy.queue.jobs[job].state, ext.result) == (DONE, b"result")


def qless(cluster: Cluster, code: int, *args: object) -> q.Result:
    result: q.Result = cluster.do(
        *calls.command(9, code, q.THROTTLES, float(cluster.time_us), args)
    )
    assert result[0] == q.OK, result
    return result


def test_a_running_job_of_qless_is_the_next_and_throttled_ones_wait_again() -> None:
    cluster = Guests()
    cluster.enter(9, QLESS)
    qless(cluster, q.THROTTLE_SET, b"one", 1, 0)
    for name in (b"a", b"b", b"c"):
        put = (b"q", name, b"K", b"{}", 0.0, b"", 0.0, (), 5, (), (b"one",), False)
        qless(cluster, q.PUT, *put)
        cluster.time_us += SECOND
    assert len(qless(cluster, q.POP, b"q", b"worker", 2)[1]) == 1  # the other one is throttled
    contents = contents_of(image_of(cluster.machine))
    assert contents.counts()["qless"] == {"running": 1, "throttled": 1, "waiting": 1}
    copy = restored(cluster.machine)
    check(copy)
    assert not copy.qless.leases
    job = copy.qless.jobs[b"a"]
    assert (job.state, job.place, job.score, job.remaining) == (q.STALLED, WORK, INFINITY, 5)
    assert not len(copy.qless.throttles[b"one"].locks)
    # As in the old cluster, where a throttled job goes behind the jobs that waited then.
    assert copy.qless.queues[b"q"].work.highest(0, 3) == [b"a", b"c", b"b"]


def test_throttles_of_qless_that_are_not_set_are_not_restored() -> None:
    cluster = Guests()
    cluster.enter(9, QLESS)
    qless(cluster, q.THROTTLE_SET, b"set", 1, 0)
    put = (b"q", b"a", b"K", b"{}", 0.0, b"", 0.0, (), 5, (), (b"set", b"not set"), False)
    qless(cluster, q.PUT, *put)
    qless(cluster, q.POP, b"q", b"worker", 1)
    assert set(cluster.machine.qless.throttles) == {b"set", b"not set", b"ql:q:q"}
    copy = restored(cluster.machine)
    check(copy)
    assert list(copy.qless.throttles) == [b"set"]


def test_complete_jobs_of_qless_count_in_the_queue_where_they_ended() -> None:
    cluster = Guests()
    cluster.enter(9, QLESS)
    for jid in (b"a", b"b"):
        put = (b"q", jid, b"K", b"{}", 0.0, b"", 0.0, (), 5, (), (), False)
        qless(cluster, q.PUT, *put)
    qless(cluster, q.POP, b"q", b"worker", 1)
    qless(cluster, q.COMPLETE, b"b", b"worker", b"q", b"{}", None, 0.0, ())
    contents = contents_of(image_of(cluster.machine))
    assert contents.queues() == [("qless", "q", {"complete": 1, "waiting": 1})]
    assert contents.queue_count() == 1


CHANGES: dict[str, Callable[[Guests], object]] = {
    "a put": lambda one: one.put(),
    "a put that is deleted": lambda one: one.do(c.DELETE, 1, one.put()),
    "a priority": lambda one: one.batch((c.RESERVE_JOB, 1, 1), (c.RELEASE, 1, 1, 5, 0)),
    "a reservation": lambda one: one.do(c.RESERVE_JOB, 1, 1),
    "a burial": lambda one: one.batch((c.RESERVE_JOB, 1, 1), (c.BURY, 1, 1, 0)),
    "a pause": lambda one: one.do(c.PAUSE_TUBE, 1, DEFAULT, 5),
    "a limit": lambda one: one.do(c.LIMIT_QUEUE, 2, TURN, 1, 2, 3),
    "a queue": lambda one: one.do(c.CREATE_QUEUE, 5, b"\x01more"),
    "an alias": lambda one: one.do(c.SET_ALIAS, 1, TWIST, DEFAULT),
    "a key": lambda one: one.do(c.PUT_KEYED, 1, DEFAULT, 0, 0, 60, b"body", b"key"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_clients_can_see_is_in_the_digest(name: str) -> None:
    cluster = Guests()
    cluster.put()
    before = contents_of(image_of(cluster.machine)).digest()
    CHANGES[name](cluster)
    assert contents_of(image_of(cluster.machine)).digest() != before
    restored(cluster.machine)


def test_what_they_cannot_see_is_not() -> None:
    cluster = Guests()
    cluster.put()
    cluster.put(delay_s=1000)
    before = contents_of(image_of(cluster.machine)).digest()
    cluster.pass_s(3)
    cluster.lead((c.EPOCH, 2, 0, 10**5, 10**5, 10**5, 2**39))
    cluster.open(7)
    cluster.do(c.WATCH, 7, b"only watched")
    cluster.open(8, origin=1)
    assert contents_of(image_of(cluster.machine)).digest() == before


@pytest.mark.parametrize("version", [2, 3])
def test_a_raise_changes_no_digest(version: int) -> None:
    cluster = Cluster()
    cluster.lead(*((c.RAISE, number) for number in range(3, version + 1)))
    cluster.open(1)
    for number in range(3):
        cluster.put(b"%d" % number, delay_s=number)
    before = contents_of(image_of(cluster.machine))
    assert before.version == version
    restored(cluster.machine)
    cluster.lead((c.RAISE, version + 1))
    after = contents_of(image_of(cluster.machine))
    assert after.version == version + 1
    assert after.digest() == before.digest()


@pytest.mark.usefixtures("foreign_spaces")
@settings(max_examples=120, deadline=None)
@given(LOGS, BUDGETS)
def test_whatever_happened_can_be_restored(entries: list[Entry], transitions: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        restored(restored(replay(entries)))


@pytest.mark.parametrize("seed", seeds(range(6)))
def test_so_can_whatever_qless_did(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, cluster = Calls(seed), opened()
    for bound in (1, 300, qless_image.CHUNK_BYTES):
        run(cluster, source, 60)
        digest = contents_of(image_of(cluster.machine)).digest()
        with monkeypatch.context() as patch:
            patch.setattr(qless_image, "CHUNK_BYTES", bound)
            assert contents_of(image_of(cluster.machine)).digest() == digest  # however cut
            copy = restored(cluster.machine)
        check(copy)


def test_an_image_without_its_end_has_no_digest() -> None:
    cluster = Guests()
    chunks = image_of(cluster.machine)
    with pytest.raises(Damaged, match="ends before its end mark"):
        contents_of(chunks[:-1]).digest()


@pytest.mark.parametrize(
    "chunks",
    [
        [b"\xc1"],
        [pack(["tubes", []])],
        [pack(7)],
        [pack(["head", 4, [1]])],
    ],
)
def test_what_is_no_image_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(Damaged):
        contents_of(chunks)


def test_another_image_than_the_one_that_was_read_is_refused() -> None:
    cluster = Guests()
    cluster.submitted(foreground=1)
    image = image_of(cluster.machine)
    restoring = Restoring(contents_of(image).busy, 0)
    with pytest.raises(Damaged, match="not the one"):
        list(map(restoring.take, image))
