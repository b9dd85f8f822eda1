"""Quotas of users: counted jobs, refused puts, and their images."""

from collections import Counter
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.core import accounts
from beanpole.core.image.contents import Contents, Restoring
from beanpole.core.image.image import Image
from beanpole.core.image.restore import load
from beanpole.core.jobs.job import BURIED, DONE
from beanpole.core.jobs.policies import DROP_OLDEST
from beanpole.core.machine import Machine
from beanpole.core.users import ANONYMOUS, PUT, WORK
from beanpole.errors import Damaged
from beanpole.events import GEARMAN
from tests.unit.core.cluster import chunks_of, copy_of, image_of, with_chunk
from tests.unit.core.guests import PING, Guests
from tests.unit.core.having_users import LEE, LEES, ROOT, ROOTS, add_lee, lock, set_user
from tests.unit.core.logs import (
    JOB,
    LATEST_STEPS,
    LIMIT,
    ORIGIN,
    TOKENS,
    Step,
    command,
    log_of,
)

LEES_SESSION = 9


@pytest.fixture
def cluster(guests: Guests) -> Guests:
    """Lee, with session 9, may have three jobs."""
    lock(guests, (b"*", PUT | WORK))
    add_lee(guests)
    limit(guests, jobs_max=3)
    guests.open(LEES_SESSION)
    assert guests.do(c.AS_USER, LEES_SESSION, b"", LEES) == c.OK
    return guests


def limit(cluster: Guests, jobs_max: int = 0, bytes_max: int = 0) -> None:
    rights = (b"*", PUT | WORK), (b"\x01*", PUT | WORK), (b"\x02*", PUT | WORK)
    assert set_user(cluster, LEE, *rights, jobs_max=jobs_max, bytes_max=bytes_max) == c.OK


def lees(cluster: Guests, **fields: Any) -> int:
    """Put a job as lee; return its id, or the reason of a refusal."""
    return cluster.put(session=LEES_SESSION, **fields)


def has(cluster: Guests, name: bytes = LEE) -> tuple[int, int]:
    """Return the number of jobs, and bytes of bodies, that count for a user."""
    usage = cluster.machine.queue.quotas.usages.get(name)
    return (0, 0) if usage is None else (usage.jobs, usage.bytes)


# --- which jobs count -----------------------------------------------------------------------------


def test_a_put_beyond_the_jobs_of_its_user_is_refused_until_one_is_gone(cluster: Guests) -> None:
    jobs = [lees(cluster, body=b"12345", tube=tube) for tube in (b"a", b"b", b"default")]
    assert min(jobs) > 0
    assert lees(cluster) == c.FULL
    assert has(cluster) == (3, 15)
    assert cluster.put() > 0, "of another user"
    assert cluster.do(c.DELETE, LEES_SESSION, jobs[1]) == c.OK
    assert has(cluster) == (2, 10)
    assert lees(cluster) > 0
    assert lees(cluster) == c.FULL


def test_a_put_beyond_the_bytes_of_its_user_is_refused(cluster: Guests) -> None:
    limit(cluster, bytes_max=10)
    assert lees(cluster, body=b"x" * 11) == c.FULL
    assert lees(cluster, body=b"x" * 7) > 0
    assert lees(cluster, body=b"x" * 4) == c.FULL
    assert lees(cluster, body=b"x" * 3) > 0
    assert lees(cluster, body=b"x") == c.FULL
    assert lees(cluster, body=b"") > 0
    assert has(cluster) == (3, 10)


def test_a_job_counts_in_whatever_state_and_queue_until_it_is_gone(cluster: Guests) -> None:
    job = lees(cluster, body=b"123", ttr_s=1)
    assert cluster.reserve(1) == job
    cluster.do(c.RELEASE, 1, job, 0, 0)
    assert cluster.reserve(1) == job
    cluster.pass_s(2)  # its TTR ends
    assert cluster.reserve(1) == job
    cluster.do(c.BURY, 1, job, 0)
    assert cluster.do(c.CHANGE_JOB, 1, job, 6, 1 << BURIED, b"", b"other", BURIED) == c.OK
    cluster.do(c.KICK_JOB, 1, job)
    assert has(cluster) == (1, 3)
    cluster.do(c.DELETE, 1, job)
    assert has(cluster) == (0, 0)


def test_jobs_from_before_the_quota_do_not_count(cluster: Guests) -> None:
    limit(cluster)
    before = [lees(cluster) for _ in range(5)]
    limit(cluster, jobs_max=1)
    assert has(cluster) == (0, 0)
    job = lees(cluster)
    assert job > 0
    for one in before:
        cluster.do(c.DELETE, 1, one)
    assert has(cluster) == (1, 4)
    assert lees(cluster) == c.FULL


def test_without_a_quota_new_jobs_do_not_count_and_old_ones_go_on_to(cluster: Guests) -> None:
    job = lees(cluster)
    limit(cluster)
    lees(cluster)
    assert has(cluster) == (1, 4)
    limit(cluster, jobs_max=1)
    assert lees(cluster) == c.FULL
    limit(cluster)
    cluster.do(c.DELETE, 1, job)
    assert cluster.machine.queue.quotas.usages == {}, "nothing is left of it"


def test_a_lower_quota_takes_no_job_away(cluster: Guests) -> None:
    jobs = [lees(cluster) for _ in range(3)]
    limit(cluster, jobs_max=2)
    cluster.do(c.DELETE, 1, jobs[0])
    assert has(cluster) == (2, 8)
    assert lees(cluster) == c.FULL


def test_jobs_of_a_user_that_is_gone_count_for_the_next_of_its_name(cluster: Guests) -> None:
    job = lees(cluster)
    assert cluster.do(c.DROP_USER, 1, LEE) == c.OK
    assert lees(cluster) == c.DENIED
    assert has(cluster) == (1, 4)
    limit(cluster, jobs_max=1)
    cluster.do(c.SET_TOKEN, 1, LEE, LEES, 1)
    assert lees(cluster) == c.FULL
    cluster.do(c.DROP_USER, 1, LEE)
    cluster.do(c.DELETE, 1, job)
    assert cluster.machine.queue.quotas.usages == {}


def test_those_that_say_nothing_have_one_quota_together(cluster: Guests) -> None:
    set_user(cluster, ANONYMOUS, (b"*", PUT), jobs_max=2)
    cluster.open(10)
    cluster.open(11)
    assert cluster.put(session=10) > 0
    assert cluster.put(session=11) > 0
    assert cluster.put(session=10) == cluster.put(session=11) == c.FULL
    assert has(cluster, ANONYMOUS) == (2, 8)


def test_a_job_that_a_queue_drops_for_its_own_limit_does_not_count(cluster: Guests) -> None:
    policy = (b"a", 0, b"", 2, 0, DROP_OLDEST, *[0] * 7)
    assert cluster.do(c.SET_POLICY, 1, *policy) == c.OK
    first = lees(cluster, tube=b"a")
    assert [lees(cluster, tube=b"a") > 0 for _ in range(4)] == [True] * 4
    assert has(cluster) == (2, 8)
    assert cluster.state(first) == b"gone"
    limit(cluster, jobs_max=2)
    ready = cluster.machine.queue.ready
    assert lees(cluster, tube=b"a") == c.FULL
    assert cluster.machine.queue.ready == ready, "a put that is refused drops nothing"


# --- other protocols ------------------------------------------------------------------------------


def as_lee(cluster: Guests, session: int) -> int:
    assert cluster.do(c.AS_USER, session, b"", LEES) == c.OK
    return session


def add(cluster: Guests, session: int, name: bytes) -> Any:
    second = 1_000_000
    return cluster.do(c.ADD, session, PING, 5, 0, second, 9 * second, name, 0, 0, b"1234")


def test_jobs_of_workq_count_with_their_results_until_their_ttl_ends(cluster: Guests) -> None:
    limit(cluster, jobs_max=2)
    session = as_lee(cluster, 5)
    first, _ = add(cluster, session, b"one")
    add(cluster, session, b"two")
    assert add(cluster, session, b"three") == c.FULL
    assert add(cluster, session, b"two") == c.EXISTS, "no job is made of it"
    assert cluster.do(c.FINISH, session, first, DONE, b"a long result") == c.OK
    assert has(cluster) == (2, 8)
    assert add(cluster, session, b"three") == c.FULL
    cluster.pass_s(10)
    assert has(cluster) == (0, 0)


def test_a_submission_of_a_job_that_is_there_needs_no_room(cluster: Guests) -> None:
    limit(cluster, jobs_max=1)
    session = as_lee(cluster, 2)
    job = cluster.submitted(session, b"u")
    assert cluster.submit(session, b"u") == (job, 1)
    assert cluster.submit(session, b"v") == c.FULL
    set_user(cluster, ANONYMOUS, (b"\x02*", PUT))
    assert cluster.submitted(3, b"v") > 0, "of another user"
    cluster.do(c.CLOSE, session, 1)  # the only client of the job
    assert has(cluster) == (0, 0)


def test_equal_keys_make_no_job_and_need_no_room(cluster: Guests) -> None:
    limit(cluster, jobs_max=1)
    put = (c.PUT_KEYED, LEES_SESSION, b"a", 0, 0, 60, b"x", b"key")
    job, _ = cluster.do(*put)
    assert cluster.do(*put) == (job, 1)
    assert cluster.do(*put[:-1], b"other") == c.FULL


# --- users ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (2**32, 0, 0), (0, 2**62 + 1, 0), (0, 0, 2**32)]
)
def test_what_is_no_limit_is_refused(cluster: Guests, limits: tuple[int, int, int]) -> None:
    assert cluster.do(c.SET_USER, 1, LEE, b"\x90", *limits) == c.BAD_COMMAND
    assert cluster.machine.users.rows[LEE].limits == (3, 0, 0)


def test_a_token_that_changes_leaves_the_limits(cluster: Guests) -> None:
    cluster.do(c.SET_TOKEN, 1, LEE, b"n" * 32, 1)
    assert cluster.machine.users.rows[LEE].limits == (3, 0, 0)


def test_a_change_that_is_refused_changes_no_quota() -> None:
    cluster = Guests()
    lock(cluster)
    assert set_user(cluster, ROOT, jobs_max=1) == c.LOCKED_OUT
    assert cluster.machine.queue.quotas.usages == {}


def test_two_machines_that_differ_in_a_limit_have_different_hashes() -> None:
    hashes = set()
    for limits in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0)):
        cluster = Guests()
        cluster.do(c.SET_USER, 1, LEE, b"\x90", *limits)
        hashes.add(cluster.machine.state_hash)
    assert len(hashes) == 5


# --- images, memory -------------------------------------------------------------------------------


def test_an_image_has_whose_jobs_count_and_a_backup_too(cluster: Guests) -> None:
    jobs = [lees(cluster, body=b"x" * size) for size in (1, 2, 3)]
    cluster.put(body=b"of nobody's quota")
    copy = copy_of(cluster.machine)
    usage = copy.queue.quotas.usages[LEE]
    assert (usage.jobs, usage.bytes, usage.jobs_max) == (3, 6, 3)
    assert accounts.beside_jobs_bytes(copy) == accounts.beside_jobs_bytes(cluster.machine)
    contents, restored = Contents(), Contents()
    for chunk in image_of(cluster.machine):
        contents.take(chunk)
    restoring = Restoring(contents.busy, contents.dropped)
    kept = [chunk for chunk in map(restoring.take, image_of(cluster.machine)) if chunk is not None]
    machine = load(kept)
    for chunk in image_of(machine):
        restored.take(chunk)
    assert restored.digest() == contents.digest()
    assert machine.queue.quotas.usages[LEE].jobs == 3
    cluster.machine = copy
    assert lees(cluster) == c.FULL
    cluster.do(c.DELETE, 1, jobs[0])
    assert has(cluster) == (2, 5)


def test_an_image_in_progress_has_the_jobs_that_counted_when_it_began(cluster: Guests) -> None:
    jobs = [lees(cluster), lees(cluster)]
    before = image_of(cluster.machine)
    image = Image(cluster.machine)
    cluster.do(c.DELETE, 1, jobs[0])
    limit(cluster, jobs_max=9)
    lees(cluster)
    assert chunks_of(image) == before
    image.close()


def test_an_image_without_quotas_has_no_byte_of_them() -> None:
    cluster = Guests()
    cluster.put()
    assert [len(record) for record in records_of(cluster.machine)] == [19]


def records_of(machine: Machine) -> list[Any]:
    unpacked = map(msgpack.unpackb, image_of(machine))
    return [record for kind, *rest in unpacked if kind == "jobs" for record in rest[0]]


@pytest.mark.parametrize("user", [b"", b"a b", b"x" * 65, "lee", 5, None])
def test_a_job_that_counts_for_what_is_no_user_is_damage(cluster: Guests, user: Any) -> None:
    lees(cluster)
    chunks = image_of(cluster.machine)
    place = next(n for n, chunk in enumerate(chunks) if msgpack.unpackb(chunk)[0] == "jobs")
    kind, records = msgpack.unpackb(chunks[place])
    assert records[0][-3] == LEE
    records[0][-3] = user
    chunks[place] = msgpack.packb([kind, records])
    with pytest.raises(Damaged):
        load(chunks)


@pytest.mark.parametrize(
    "more",
    [*([[one]] for one in (-1, b"1", True, 1.0)), [[1, 2, 3, 4]], [[0, 0, 0]], [[1], [1]], [5]],
)
def test_a_user_with_what_is_no_limit_is_damage(more: list[Any]) -> None:
    guests = Guests()
    guests.machine.users.births = 1
    row = [LEE, b"%b\1" % bytes(7), [ROOTS], []]
    assert LEE in load(with_chunk(guests.machine, "users", ["users", [row]])).users.rows
    with pytest.raises(Damaged):
        load(with_chunk(guests.machine, "users", ["users", [[*row, *more]]]))


def test_what_counts_takes_memory(cluster: Guests) -> None:
    before = accounts.beside_jobs_bytes(cluster.machine)
    image = accounts.image_bytes(cluster.machine)
    job = lees(cluster, body=b"")
    assert accounts.beside_jobs_bytes(cluster.machine) - before == accounts.COUNTED_BYTES
    grown = accounts.image_bytes(cluster.machine) - image
    assert grown == accounts.JOB_IMAGE_BYTES + accounts.COUNTED_IMAGE_BYTES
    cluster.do(c.DELETE, 1, job)
    assert accounts.beside_jobs_bytes(cluster.machine) == before


# Lee's session at each node, in the logs, and what changes the number of lee's jobs.
OPENED = ((c.OPEN, LEES_SESSION), (c.AS_USER, LEES_SESSION, b"", TOKENS[1]))
LEES_PUT = (c.PUT, LEES_SESSION, b"default", 0, 0, 60, b"lee's")
BEGUN: Step = (0, 0, [(origin, "next", [*OPENED, LEES_PUT]) for origin in (0, 1)])
RIGHTS = msgpack.packb(((b"*", PUT | WORK),))
LEES_COMMANDS = st.one_of(
    st.just(LEES_PUT),
    command(c.DELETE, st.just(LEES_SESSION), JOB),
    command(c.SET_USER, *map(st.just, (1, LEE, RIGHTS)), LIMIT, LIMIT, st.just(0)),
)
LEES_STEPS = st.builds(
    lambda origin, commands: (0, 0, [(origin, "next", commands)]),
    ORIGIN,
    st.lists(LEES_COMMANDS, min_size=1, max_size=4),
)


@given(st.lists(st.one_of(LATEST_STEPS, LEES_STEPS), min_size=1, max_size=12))
def test_the_counts_are_those_of_the_jobs_that_are_there(steps: list[Step]) -> None:
    machine = Machine()
    for entry in log_of([BEGUN, *steps], GEARMAN, 4, users=True):
        machine.apply(*entry)
        quotas = machine.queue.quotas
        jobs, sizes = Counter[bytes](), Counter[bytes]()
        for job in machine.queue.jobs.values():
            user = quotas.of_job(job.id)
            if user:
                jobs[user] += 1
                sizes[user] += len(job.body)
        found = {usage.name: (usage.jobs, usage.bytes) for usage in quotas.usages.values()}
        # A user with a limit is there without a job.
        assert found == {name: (jobs[name], sizes[name]) for name in {*found, *jobs}}
        assert quotas.counted == sum(jobs.values())
        assert entry[0] != 2 or jobs == {LEE: 2}, "none of lee's jobs counts"
        assert all(usage.jobs or usage.is_limited for usage in quotas.usages.values())
        assert len(quotas._shards) <= quotas.counted
