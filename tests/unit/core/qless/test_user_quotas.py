"""Quotas of users and qless: counted jobs and templates, refused calls, images."""

import random
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core import accounts
from beanpole.core.image.image import Image
from beanpole.core.image.restore import load
from beanpole.core.machine import Machine
from beanpole.core.operations import qless as calls
from beanpole.core.qless.job import QlessJob, Recurring
from beanpole.core.users import ANY_RIGHT
from beanpole.errors import Damaged
from beanpole.events import QLESS
from tests.unit.core.cluster import chunks_of, copy_of, image_of
from tests.unit.core.guests import Guests
from tests.unit.core.having_users import LEE, LEES, add_lee, lock, set_user
from tests.unit.core.qless.random_calls import Calls

ROOTS_SESSION, LEES_SESSION = 1, 9
EVERYWHERE = ((b"*", ANY_RIGHT), (b"\x03*", ANY_RIGHT))
NO_QUOTA = (q.QUOTA, ())


class Cluster(Guests):
    """Lee may have three jobs, session 9 is lee's; session 1 is an administrator's."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        lock(self)
        add_lee(self, *EVERYWHERE)
        self.limit(jobs_max=3)
        self.open(LEES_SESSION)
        for session in (ROOTS_SESSION, LEES_SESSION):
            assert self.do(c.SET_PROTOCOL, session, QLESS) == c.OK
        assert self.do(c.AS_USER, LEES_SESSION, b"", LEES) == c.OK

    def limit(self, jobs_max: int = 0, bytes_max: int = 0) -> None:
        assert set_user(self, LEE, *EVERYWHERE, jobs_max=jobs_max, bytes_max=bytes_max) == c.OK

    def call(self, call: int, *args: Any, session: int = LEES_SESSION) -> Any:
        (result,) = self.batch(calls.command(session, call, q.UNIFIED, self.now, args))
        return result

    def make(self, jid: bytes, data: bytes = b"{}", session: int = LEES_SESSION) -> Any:
        args = (b"q", jid, b"k", data, 0.0, None, None, None, None, (), None, False)
        return self.call(q.PUT, *args, session=session)

    def recur(self, jid: bytes, data: bytes = b"{}", session: int = LEES_SESSION) -> Any:
        args = (b"q", jid, b"k", data, 10.0, 0.0, 0.0, (), 5, 0.0, None)
        return self.call(q.RECUR, *args, session=session)

    def pop(self, count: int) -> list[bytes]:
        code, jobs = self.call(q.POP, b"q", b"w", count, session=ROOTS_SESSION)
        assert code == q.OK
        return [job.jid for job in jobs]

    def complete(self, jid: bytes, data: bytes = b"{}") -> None:
        args = (jid, b"w", b"q", data, None, 0.0, ())
        assert self.call(q.COMPLETE, *args, session=ROOTS_SESSION)[0] == q.OK

    @property
    def has(self) -> tuple[int, int]:
        """Return the number of jobs, and bytes of data, that count for lee."""
        usage = self.machine.queue.quotas.usages.get(LEE)
        return (0, 0) if usage is None else (usage.jobs, usage.bytes)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Assert after the test that an image is equal to the machine, and counts to its jobs."""
    made = Cluster()
    yield made
    assert image_of(copy_of(made.machine)) == image_of(made.machine)
    assert counted(copy_of(made.machine)) == counted(made.machine)


def counted(machine: Machine) -> dict[bytes, tuple[int, int]]:
    """Count jobs and bytes by user, and assert that the machine's counts are the same."""
    quotas, t = machine.queue.quotas, machine.qless
    found: dict[bytes, tuple[int, int]] = {}
    things: list[QlessJob | Recurring] = [*t.jobs.values(), *t.recurring.values()]
    for thing in things:
        if thing.usage is not None:
            assert thing.usage is quotas.usages[thing.usage.name]
            jobs, size = found.get(thing.usage.name, (0, 0))
            found[thing.usage.name] = jobs + 1, size + len(thing.data)
    for job in machine.queue.jobs.values():
        if user := quotas.of_job(job.id):
            jobs, size = found.get(user, (0, 0))
            found[user] = jobs + 1, size + len(job.body)
    assert quotas.counted == sum(jobs for jobs, _ in found.values())
    for name, usage in quotas.usages.items():
        assert (usage.jobs, usage.bytes) == found.get(name, (0, 0))
        assert usage.jobs or usage.is_limited
    return found


# --- jobs -----------------------------------------------------------------------------------------


def test_a_put_beyond_the_jobs_of_its_user_is_refused_until_one_is_gone(cluster: Cluster) -> None:
    assert [cluster.make(jid)[0] for jid in (b"a", b"b", b"c")] == [q.OK] * 3
    before = image_of(cluster.machine)
    assert cluster.make(b"d") == NO_QUOTA
    assert b"d" not in cluster.machine.qless.jobs
    assert len(image_of(cluster.machine)) == len(before)
    assert cluster.has == (3, 6)
    assert cluster.make(b"d", session=ROOTS_SESSION)[0] == q.OK, "of another user"
    assert cluster.make(b"a")[0] == q.OK, "one that is there"
    assert cluster.call(q.CANCEL, (b"b",))[0] == q.OK
    assert cluster.has == (2, 4)
    assert cluster.make(b"e")[0] == q.OK
    assert cluster.make(b"f") == NO_QUOTA


def test_jobs_of_all_protocols_count_together(cluster: Cluster) -> None:
    assert cluster.make(b"a")[0] == q.OK
    cluster.open(10)
    assert cluster.do(c.AS_USER, 10, b"", LEES) == c.OK
    assert cluster.put(session=10, body=b"123") > 0
    assert cluster.put(session=10, body=b"123") > 0
    usage = cluster.machine.queue.quotas.usages[LEE]
    assert (usage.jobs, usage.bytes) == (3, 8)
    assert cluster.put(session=10) == c.FULL
    assert cluster.make(b"b") == NO_QUOTA
    assert cluster.call(q.CANCEL, (b"a",))[0] == q.OK
    assert cluster.put(session=10) > 0


def test_data_that_grows_asks_for_room_where_it_is_put(cluster: Cluster) -> None:
    cluster.limit(bytes_max=10)
    assert cluster.make(b"a", b"x" * 6)[0] == q.OK
    assert cluster.make(b"b", b"x" * 5) == NO_QUOTA
    assert cluster.make(b"a", b"x" * 11) == NO_QUOTA
    assert cluster.make(b"a", b"x" * 11, session=ROOTS_SESSION) == NO_QUOTA, "it is lee's job"
    assert cluster.has == (1, 6)
    assert cluster.make(b"a", b"x" * 10)[0] == q.OK
    cluster.limit(bytes_max=4)
    assert cluster.make(b"a", b"x" * 9)[0] == q.OK, "less than before"
    assert cluster.has == (1, 9)


def test_a_worker_may_let_data_grow(cluster: Cluster) -> None:
    cluster.limit(bytes_max=2)
    assert cluster.make(b"a", b"{}")[0] == q.OK
    assert cluster.pop(1) == [b"a"]
    assert cluster.call(q.HEARTBEAT, b"a", b"w", b"x" * 5, session=ROOTS_SESSION)[0] == q.OK
    assert cluster.has == (1, 5)
    cluster.complete(b"a", b"x" * 7)
    assert cluster.has == (1, 7), "a job that is complete is kept"
    assert cluster.make(b"b", b"") == NO_QUOTA


def test_jobs_from_before_the_quota_do_not_count_and_those_of_it_go_on_to(cluster: Cluster) -> None:
    cluster.limit()
    assert cluster.make(b"before")[0] == q.OK
    assert cluster.machine.queue.quotas.usages == {}
    cluster.limit(jobs_max=1)
    assert cluster.make(b"a")[0] == q.OK
    assert cluster.make(b"b") == NO_QUOTA
    cluster.limit()
    assert cluster.make(b"c")[0] == q.OK
    assert cluster.has == (1, 2)
    assert cluster.call(q.CANCEL, (b"a", b"before", b"c"))[0] == q.OK
    assert cluster.machine.queue.quotas.usages == {}


def test_a_flush_leaves_nothing_that_counts(cluster: Cluster) -> None:
    assert cluster.make(b"a")[0] == q.OK
    assert cluster.recur(b"t")[0] == q.OK
    assert cluster.has == (2, 4)
    assert cluster.call(q.FLUSH, session=ROOTS_SESSION)[0] == q.OK
    assert cluster.has == (0, 0)


# --- templates ------------------------------------------------------------------------------------


def test_a_template_and_its_jobs_count_for_its_user(cluster: Cluster) -> None:
    assert cluster.recur(b"t", b"123")[0] == q.OK
    assert cluster.has == (1, 3)
    cluster.now += 10
    assert cluster.pop(9) == [b"t-1", b"t-2"]
    assert cluster.has == (3, 9)
    assert cluster.recur(b"u") == NO_QUOTA
    assert cluster.recur(b"u", session=ROOTS_SESSION)[0] == q.OK
    cluster.complete(b"t-1")
    assert cluster.call(q.UNRECUR, b"t")[0] == q.OK
    assert cluster.has == (2, 5)


def test_what_is_due_without_room_is_left_out_and_keeps_no_other_waiting(cluster: Cluster) -> None:
    assert cluster.recur(b"t")[0] == q.OK
    cluster.now += 10
    assert cluster.pop(9) == [b"t-1", b"t-2"]
    cluster.now = 125
    assert cluster.recur(b"u", session=ROOTS_SESSION)[0] == q.OK
    cluster.now = 145  # three of each are due, and none of lee's has room
    assert cluster.pop(1) == [b"u-1"]
    assert cluster.machine.qless.recurring[b"t"].next_at == 150.0
    assert cluster.pop(9) == [b"u-2", b"u-3"]
    assert cluster.call(q.CANCEL, (b"t-1",), session=ROOTS_SESSION)[0] == q.OK
    assert cluster.pop(9) == []
    cluster.now = 150.0
    assert b"t-3" in cluster.pop(9)
    cluster.limit(jobs_max=1)
    cluster.machine.qless.recurring[b"t"].next_at = -1e300
    cluster.now += 10
    cluster.pop(9)
    assert cluster.machine.qless.recurring[b"t"].next_at == 170.0, "more than can be counted"


@pytest.mark.parametrize("interval", [5e-324, 1e-300, 1e-9])
def test_a_tiny_interval_without_room_ends_no_node(cluster: Cluster, interval: float) -> None:
    cluster.limit(jobs_max=1)
    assert cluster.recur(b"t")[0] == q.OK
    assert cluster.call(q.RECUR_UPDATE, b"t", ((b"interval", interval),))[0] == q.OK
    cluster.now += 1.5
    assert cluster.pop(3) == []
    cluster.limit(jobs_max=2)
    cluster.now += 1.5
    assert cluster.pop(3) == [b"t-1"]


def test_a_template_of_an_image_without_an_interval_ends_no_node(cluster: Cluster) -> None:
    cluster.limit(jobs_max=1)
    assert cluster.recur(b"t")[0] == q.OK
    cluster.machine.qless.recurring[b"t"].interval = 0.0
    cluster.now += 1.5
    assert cluster.pop(3) == []


def test_what_did_not_count_begins_to_when_it_is_put_again(cluster: Cluster) -> None:
    cluster.limit()
    assert cluster.make(b"a")[0] == q.OK
    assert cluster.recur(b"t")[0] == q.OK
    cluster.limit(jobs_max=2, bytes_max=6)
    assert cluster.make(b"a", b"x" * 7) == NO_QUOTA
    assert cluster.make(b"a", session=ROOTS_SESSION)[0] == q.OK
    assert cluster.has == (0, 0)
    assert cluster.make(b"a", b"x" * 3)[0] == q.OK
    assert cluster.recur(b"t", b"x" * 4) == NO_QUOTA
    assert cluster.recur(b"t", b"x" * 3)[0] == q.OK
    assert cluster.has == (2, 6)
    cluster.now += 10
    assert cluster.pop(3) == [b"a"]


def test_the_data_of_a_template_may_not_grow_beyond_the_quota(cluster: Cluster) -> None:
    cluster.limit(bytes_max=5)
    assert cluster.recur(b"t", b"1234")[0] == q.OK
    assert cluster.recur(b"t", b"123456") == NO_QUOTA
    assert cluster.call(q.RECUR_UPDATE, b"t", ((b"data", b"123456"),)) == NO_QUOTA
    assert cluster.call(q.RECUR_UPDATE, b"t", ((b"data", b"12345"),))[0] == q.OK
    assert cluster.has == (1, 5)
    assert cluster.recur(b"t", b"1")[0] == q.OK
    assert cluster.has == (1, 1)


def test_a_template_of_nobody_counts_for_the_user_that_changes_its_data(cluster: Cluster) -> None:
    cluster.limit(jobs_max=3, bytes_max=9)
    assert cluster.recur(b"t", session=ROOTS_SESSION)[0] == q.OK
    assert cluster.call(q.RECUR_UPDATE, b"t", ((b"data", b"x" * 10),)) == NO_QUOTA
    assert cluster.call(q.RECUR_UPDATE, b"t", ((b"priority", 5.0),))[0] == q.OK
    assert cluster.has == (0, 0)
    twice = ((b"data", b"x" * 9), (b"data", b"x" * 4))
    assert cluster.call(q.RECUR_UPDATE, b"t", twice)[0] == q.OK
    assert cluster.has == (1, 4)
    cluster.now += 50
    assert len(cluster.pop(9)) == 1
    assert cluster.has == (2, 8)


def test_jobs_of_a_template_count_while_its_user_has_a_quota(cluster: Cluster) -> None:
    assert cluster.recur(b"t")[0] == q.OK
    cluster.limit()
    cluster.now += 10
    assert len(cluster.pop(9)) == 2
    assert cluster.has == (1, 2)


def test_what_an_import_brings_counts_for_nobody(cluster: Cluster) -> None:
    template = (b"q", b"t", b"k", b"{}", 10.0, 0.0, 0.0, (), 5, 0.0, None, 3)
    assert cluster.call(q.IMPORT_RECURRING, *template) == (q.OK, True)
    assert cluster.has == (0, 0)


# --- images, memory -------------------------------------------------------------------------------


def test_an_image_in_progress_has_what_counted_when_it_began(cluster: Cluster) -> None:
    cluster.make(b"a")
    cluster.recur(b"t")
    before = image_of(cluster.machine)
    image = Image(cluster.machine)
    cluster.call(q.CANCEL, (b"a",))
    cluster.call(q.UNRECUR, b"t")
    cluster.make(b"b")
    assert chunks_of(image) == before
    image.close()


def test_what_counts_takes_memory(cluster: Cluster) -> None:
    before = accounts.beside_jobs_bytes(cluster.machine)
    cluster.make(b"a")
    assert accounts.beside_jobs_bytes(cluster.machine) - before == accounts.COUNTED_BYTES
    cluster.call(q.CANCEL, (b"a",))
    assert accounts.beside_jobs_bytes(cluster.machine) == before


@pytest.mark.parametrize("word", ["jobs", "recurring"])
@pytest.mark.parametrize("user", [b"", b"a b", b"x" * 65, "lee", 5, None])
def test_what_counts_for_what_is_no_user_is_damage(cluster: Cluster, word: str, user: Any) -> None:
    cluster.make(b"a")
    cluster.recur(b"t")
    chunks = [msgpack.unpackb(chunk) for chunk in image_of(cluster.machine)]
    load([msgpack.packb(chunk) for chunk in chunks])
    found = [chunk[1] for chunk in chunks if chunk[0] == "qless" and chunk[1] is not None]
    (rows,) = [rows for kind, rows in found if kind == word]
    rows[0][rows[0].index(LEE)] = user
    with pytest.raises(Damaged):
        load([msgpack.packb(chunk) for chunk in chunks])


@pytest.mark.parametrize("seed", range(8))
def test_the_counts_are_those_of_the_jobs_that_are_there(seed: int) -> None:
    cluster, dice = Cluster(), random.Random(seed)
    source = Calls(seed)
    source.tables = cluster.machine.qless
    cluster.limit(jobs_max=3)
    refused = 0
    for _ in range(300):
        session = dice.choice((ROOTS_SESSION, LEES_SESSION, LEES_SESSION))
        (result,) = cluster.batch(source.command(session))
        refused += result[0] == q.QUOTA
        counted(cluster.machine)
        if dice.random() < 0.02:
            jobs_max, bytes_max = dice.choice(((0, 0), (2, 0), (0, 20), (4, 30)))
            cluster.limit(jobs_max=jobs_max, bytes_max=bytes_max)
    copy = copy_of(cluster.machine)
    assert counted(copy) == counted(cluster.machine)
    assert image_of(copy) == image_of(cluster.machine)
    assert refused
