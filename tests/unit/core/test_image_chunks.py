"""No chunk of an image is larger than a snapshot may have, whatever the tables hold.

The writers of snapshots assert the limit: a chunk above it ends every node. So the tables are
filled to the limits of their fields, by the product's own methods where these are fast enough.
"""

from collections.abc import Callable

import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.constants import (
    CLIENTS_OF_JOB_MAX,
    DEDUP_KEY_MAX_BYTES,
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    HOST_NAME_MAX_BYTES,
    JOB_ID_MAX,
    JOB_SIZE_MAX_BYTES,
    PROGRESS_MAX_BYTES,
    QUEUE_NAME_MAX_BYTES,
    RESULT_MAX_BYTES,
    WATCHED_TUBES_MAX,
)
from beanpole.core.equal_puts import EQUAL_KEY_BYTES, joined
from beanpole.core.image import policies as policy_records
from beanpole.core.image import records
from beanpole.core.image.image import Image
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.policies import Note, Policy
from beanpole.core.jobs.rates import RATE_MAX, RATE_PERIOD_MAX_US, Bucket
from beanpole.core.machine import Machine
from beanpole.core.qless import dependencies, sizes, tags
from beanpole.core.qless.job import QlessJob, Recurring
from beanpole.core.qless.tables import Day, Tables
from beanpole.core.users import RIGHTS_MAX, TOKENS_MAX, USER_NAME_MAX_BYTES, Limits, User
from beanpole.storage.snapshots import CHUNK_BYTES_MAX
from tests.unit.core.cluster import chunks_of, image_of
from tests.unit.core.guests import TURN, Guests
from tests.unit.core.qless.making import waiting_job
from tests.unit.core.qless.test_images import opened

MANY = 2**40  # a number that takes 9 bytes
NAME = q.NAME_MAX_BYTES
LONG = 2 * NAME  # of a name that is composed of two others


def name(number: int, size: int = NAME) -> bytes:
    return b"%d" % number + b"x" * (size - len(b"%d" % number))


def named(count: int, size: int = NAME) -> tuple[bytes, ...]:
    return tuple([name(number, size) for number in range(count)])


def largest(machine: Machine) -> int:
    return max(map(len, image_of(machine)))


# --- qless ----------------------------------------------------------------------------------------


def options(t: Tables) -> None:
    for one in named(2000):
        t.config[one] = bytes(NAME)


def patterns(t: Tables) -> None:
    for number, kind in enumerate(t.patterns):
        for one in named(300):
            kind[one] = bytes(q.DATA_MAX_BYTES if number else NAME)


def workers(t: Tables) -> None:
    for one in named(2000):
        t.workers.add(one, 1.0)
        t.tracked.add(one, 1.0)


def queues(t: Tables) -> None:
    for one in named(300):
        t.queue(one).known_at = 1.0
    for one in named(4, LONG):
        days = t.queue(one).days
        for begin in range(q.STATS_DAYS_MAX):
            day = days[begin * 86_400] = Day()
            for times in (day.wait, day.run):
                times.bins = dict.fromkeys(range(q.HISTOGRAM_BINS), MANY)


def throttles(t: Tables) -> None:
    for one in named(300, LONG):
        t.throttle(one).maximum = MANY


def templates(t: Tables) -> None:
    for jid in named(4):
        add_template(t, jid)
    for jid in named(200, NAME - 1):
        add_template(t, jid, small=True)


def add_template(t: Tables, jid: bytes, *, small: bool = False) -> Recurring:
    """Add a template as large as one can be, or one with short lists and long names."""
    template = t.recurring[jid] = Recurring(jid)
    t.keep_recurring(template)
    template.klass, template.queue = bytes(NAME), b"q"
    t.queue(b"q").recurring.add(jid, 0.0)
    if not small:
        count = q.RECURRING_TAGS_MAX_BYTES // q.TAGS_MAX
        template.data = bytes(q.DATA_MAX_BYTES)
        template.tags = named(q.TAGS_MAX, count)
        template.throttles = named(q.THROTTLES_MAX + 1, LONG)
    template.size = sizes.of_recurring(template)
    return template


def weigh(t: Tables) -> None:
    for job in t.jobs.values():
        job.size = sizes.of_job(job)


def names_of_jobs(t: Tables) -> None:
    """All names but those of lists."""
    for jid in named(300):
        job = waiting_job(t, jid)
        job.worker = job.completed_in = job.spawned_from = job.klass = bytes(NAME)
        job.failure = q.FailureView(bytes(LONG), b"", 1.0, bytes(NAME))
    weigh(t)


def locks_of_jobs(t: Tables) -> None:
    for jid in named(300, 30):
        job = waiting_job(t, jid)
        job.locked = named(4, LONG)
        job.pending = tuple([(one, 1.0) for one in named(3, LONG)])
    weigh(t)


def dependents(t: Tables) -> None:
    """Jobs that are just too small to be cut, and some that are cut."""
    below = [waiting_job(t, jid) for jid in named(60)]
    for parent in [waiting_job(t, b"p%d" % number) for number in range(128)]:
        for child in below:
            dependencies.link(t, child, (parent.jid,))
    first, second = waiting_job(t, b"first"), waiting_job(t, b"second")
    for jid in named(q.DEPENDENCIES_MAX, NAME - 2):
        dependencies.link(t, waiting_job(t, jid), (first.jid, second.jid))
    weigh(t)


def whole_jobs(t: Tables) -> None:
    """Jobs whose fields are all at their limits."""
    queue = waiting_job(t, b"waiting").queue
    for jid in named(3):
        job = waiting_job(t, jid, queue)
        fill(t, job)
    weigh(t)


def fill(t: Tables, job: QlessJob) -> None:
    job.data = bytes(q.DATA_MAX_BYTES)
    job.worker = job.completed_in = job.spawned_from = job.klass = bytes(NAME)
    job.failure = q.FailureView(bytes(LONG), bytes(q.DATA_MAX_BYTES), 1.0, bytes(NAME))
    job.throttles = job.locked = named(q.THROTTLES_MAX)
    job.pending = ((bytes(LONG), 1.0),)
    tags.replace(t, job, 1.0, named(q.TAGS_MAX))
    job.history = [(1.0, q.HAS_LOGGED, b"x" * 1024, b"") for _ in range(1000)]
    job.history.append((1.0, q.HAS_LOGGED, bytes(q.HISTORY_MAX_BYTES), b""))


@pytest.mark.parametrize(
    "fill_tables",
    [
        *(options, patterns, workers, queues, throttles, templates),
        *(names_of_jobs, locks_of_jobs, dependents, whole_jobs),
    ],
)
def test_chunks_of_qless(fill_tables: Callable[[Tables], None]) -> None:
    machine = opened().machine
    fill_tables(machine.qless)
    assert largest(machine) <= CHUNK_BYTES_MAX


@pytest.mark.parametrize("is_removed", [False, True])
def test_templates_that_shrink_after_the_image_began(is_removed: bool) -> None:
    """Their records are as large as they were, and the chunks are the same as at that time."""
    machine = opened().machine
    t = machine.qless
    found = [add_template(t, b"%d" % number) for number in range(4)]
    expected = image_of(machine)
    image = Image(machine)
    for template in found:
        t.keep_recurring(template)
        template.data, template.tags, template.throttles = b"", (), ()
        template.size = 0 if is_removed else sizes.of_recurring(template)
        if is_removed:
            del t.recurring[template.jid]
    chunks = chunks_of(image)
    image.close()
    assert chunks == expected
    assert max(map(len, chunks)) <= CHUNK_BYTES_MAX


# --- the other tables -----------------------------------------------------------------------------


def tubes(machine: Machine) -> None:
    for one in named(2000, QUEUE_NAME_MAX_BYTES - 1):
        machine.queue.tube(TURN[:1] + one)


def sessions(machine: Machine) -> None:
    names = named(WATCHED_TUBES_MAX, QUEUE_NAME_MAX_BYTES)
    for session in machine.origins[0].sessions.values():
        assert session.used is not None or session.watched
        tube = machine.queue.tube(TURN)
        session.watched = dict.fromkeys(names, tube)
        session.user, session.token = bytes(USER_NAME_MAX_BYTES), bytes(32)
        session.secret = bytes(32)


def keys(machine: Machine) -> None:
    for number, key in enumerate(named(100_000, DEDUP_KEY_MAX_BYTES)):
        machine.keys.remember(key, MANY + number, 0)


def hosts(machine: Machine) -> None:
    for one in named(3000, HOST_NAME_MAX_BYTES):
        machine.hosts.number(one)


def aliases(machine: Machine) -> None:
    for one in named(1000, QUEUE_NAME_MAX_BYTES - 1):
        machine.queue.aliases.add(b"\x01" + one, 1, b"\x02" + one)


def policies(machine: Machine) -> None:
    queue = machine.queue
    for number, one in enumerate(named(3000, QUEUE_NAME_MAX_BYTES)):
        queue.policies.notes[MANY + number] = Note(1, one, 2**31)
        queue.rates.buckets[one] = Bucket(RATE_MAX, RATE_PERIOD_MAX_US, MANY, MANY)
        if number < 256:
            queue.policies.put(one, Policy(2**31, one, MANY, MANY))
    for number, one in enumerate(named(3 * policy_records.CHUNK_EQUALS, EQUAL_KEY_BYTES)):
        machine.equal_puts.younger.add(one, joined(1, JOB_ID_MAX - number))


def users(machine: Machine) -> None:
    rights = tuple([(one, 15) for one in named(RIGHTS_MAX, QUEUE_NAME_MAX_BYTES)])
    rows = {
        one: User(one, (bytes(32),) * TOKENS_MAX, rights, Limits(MANY, MANY, 2**31), bytes(8))
        for one in named(64, USER_NAME_MAX_BYTES)
    }
    machine.users.change(rows)


def clients(machine: Machine) -> None:
    """Jobs of Gearman with the most clients, whose serial numbers take 9 bytes."""
    cluster = Guests()
    cluster.machine = machine
    serials = dict.fromkeys(range(MANY, MANY + CLIENTS_OF_JOB_MAX), Order())
    for job in range(100, 200):
        machine.queue.next_id = job
        assert cluster.do(*submit(b"%d" % job, b"body"))[0] == job
        ext = machine.queue.jobs[job].ext
        assert ext is not None
        ext.clients = serials


def submit(unique: bytes, body: bytes) -> c.Command:
    return c.SUBMIT, 2, TURN, 1, 0, unique, 0, 1, bytes(EXTRA_MAX_BYTES), body


def extensions(machine: Machine) -> None:
    """The largest jobs of Gearman behind a chunk that is almost full."""
    cluster = Guests()
    cluster.machine = machine
    for size in (records.CLIENT_BYTES, 500_000, JOB_SIZE_MAX_BYTES, JOB_SIZE_MAX_BYTES):
        job, _ = cluster.do(*submit(b"%d" % machine.queue.next_id, bytes(size)))
        ext = machine.queue.jobs[job].ext
        assert ext is not None
        ext.external_id = bytes(EXTERNAL_ID_MAX_BYTES)
        ext.progress = bytes(PROGRESS_MAX_BYTES)
        ext.clients = dict.fromkeys(range(MANY, MANY + CLIENTS_OF_JOB_MAX), Order())
        if size == JOB_SIZE_MAX_BYTES:
            ext.result = bytes(RESULT_MAX_BYTES)


@pytest.mark.parametrize(
    "fill_machine",
    [tubes, sessions, keys, hosts, aliases, policies, users, clients, extensions],
)
def test_chunks_of_other_tables(fill_machine: Callable[[Machine], None]) -> None:
    machine = Guests().machine
    fill_machine(machine)
    assert largest(machine) <= CHUNK_BYTES_MAX
