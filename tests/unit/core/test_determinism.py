"""The same entries make the same machine: on every node, and from every starting point."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.core.image import image as image_module
from beanpole.core.image.image import Image
from beanpole.core.image.restore import load
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.jobs.job import PAUSED, RATE_SPENT, RESERVED
from beanpole.core.machine import Machine
from tests.unit.core.cluster import DEFAULT, Cluster, Entry, copy_of, image_of
from tests.unit.core.foreign import add_spaces
from tests.unit.core.logs import BUDGETS, LOGS, log_of, replay, tighten

# The totals of a space.
TOTALS = (
    *("urgent", "ready", "reserved", "delayed", "buried", "done", "failed"),
    *("jobs_total", "timeouts", "evicted", "tubes", "external_ids"),
)
PROPERTY = settings(max_examples=120, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    """The logs name queues of spaces that only tests have."""
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


@PROPERTY
@given(LOGS, BUDGETS)
def test_the_own_origin_changes_nothing(entries: list[Entry], transitions: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        machines = [Machine() for _ in range(3)]
        for entry in entries:
            applied = [
                machine.apply(*entry, own=own)
                for own, machine in zip((0, 1, -1), machines, strict=True)
            ]
            assert len({machine.state_hash for machine in machines}) == 1
            said = [
                (a.gaps, a.downs, a.ups, a.epoch, a.digest, [g[:5] for g in a.grants])
                for a in applied
            ]
            assert said[0] == said[1] == said[2]
        assert image_of(machines[0]) == image_of(machines[1]) == image_of(machines[2])
        assert len({bytes(machine.queue.events) for machine in machines}) == 1


@PROPERTY
@given(LOGS, BUDGETS, st.integers(0, 12))
def test_a_machine_that_starts_from_an_image_goes_on_alike(
    entries: list[Entry], transitions: int, start: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        start = min(start, len(entries))
        old = replay(entries[:start], own=0)
        new = copy_of(old)
        assert image_of(new) == image_of(old)
        old.queue.events.clear()
        for entry in entries[start:]:
            before = old.apply(*entry, own=0)
            after = new.apply(*entry, own=0)
            assert before.results == after.results
            assert [grant[:5] for grant in before.grants] == [grant[:5] for grant in after.grants]
            assert (old.state_hash, old.has_work()) == (new.state_hash, new.has_work())
            assert old.queue.events == new.queue.events
            assert image_of(new) == image_of(old)


@settings(max_examples=60, deadline=None)
@given(LOGS, BUDGETS)
def test_an_image_at_every_point_of_a_run_leads_to_the_same_end(
    entries: list[Entry], transitions: int
) -> None:
    """Compare the machine, copies from an image after each entry, and a chain of images."""
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        machine = chained = Machine()
        copies: list[Machine] = []
        for entry in entries:
            chained = copy_of(chained)
            copies.append(copy_of(machine))
            for one in (machine, chained, *copies):
                one.apply(*entry)
        expected = machine.state_hash, image_of(machine)
        for one in (chained, *copies):
            assert (one.state_hash, image_of(one)) == expected


@PROPERTY
@given(LOGS, BUDGETS, st.integers(0, 12), st.lists(st.integers(0, 3), max_size=12))
def test_an_image_in_progress_is_the_machine_as_it_was(
    entries: list[Entry], transitions: int, start: int, pace: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        for name in ("CHUNK_JOBS", "CHUNK_TUBES", "CHUNK_SESSIONS", "CHUNK_IDS"):
            patch.setattr(image_module, name, 1)
        start = min(start, len(entries))
        machine = replay(entries[:start])
        expected = image_of(machine)
        image = Image(machine)
        chunks: list[bytes | None] = []
        for position, entry in enumerate(entries[start:]):
            machine.apply(*entry)
            chunks += [image.next_chunk() for _ in range(pace[position] if pace[position:] else 0)]
        while not chunks or chunks[-1] is not None:
            chunks.append(image.next_chunk())
        image.close()
        assert [chunk for chunk in chunks if chunk is not None] == expected
        assert machine.state_hash == replay(entries).state_hash
        assert not machine.queue.images


# A worker of Workq gets a job of beanstalk through an alias.
LEASED_BY_ALIAS = log_of(
    [
        (0, 0, [(0, "next", [(c.PUT, 3, b"\x01al", 0, 0, 1, b"")])]),
        (0, 0, [(c.LEADER, "next", [(c.GRANT, 0, 1, 3, 1, 0)])]),
    ],
    protocol=3,
    version=4,
)


@PROPERTY
@given(LOGS)
@example(LEASED_BY_ALIAS)
def test_counters_are_what_a_recount_gives(entries: list[Entry]) -> None:
    machine = Machine()
    for entry in entries:
        machine.apply(*entry)
        queue = machine.queue
        fresh = copy_of(machine).queue
        for name in ("body_bytes", "extension_bytes", "moved"):
            assert getattr(queue, name) == getattr(fresh, name), name
        for space, copied in zip(queue.every_space, fresh.every_space, strict=True):
            for name in TOTALS:
                assert getattr(space, name) == getattr(copied, name), name
        for tube, copy in zip(queue.tubes.values(), fresh.tubes.values(), strict=True):
            for name in ("ready_count", "urgent_count", "reserved_count", "delayed_count"):
                assert getattr(tube, name) == getattr(copy, name), (tube.name, name)
            for name in ("users", "watchers", "body_bytes", "closed"):
                assert getattr(tube, name) == getattr(copy, name), (tube.name, name)
            is_spent = queue.rates.is_spent(tube.name)
            assert tube.closed == PAUSED * bool(tube.paused_until_us) + RATE_SPENT * is_spent
        jobs = list(queue.jobs.values())
        assert len(queue.timers) == sum(job.due_us > 0 for job in jobs)
        assert len(queue.expiries) == sum(bool(job.ext and job.ext.expires_us) for job in jobs)
        held = sum(
            len(session.reserved)
            for sessions in [
                *(origin.sessions.values() for origin in machine.origins.values()),
                machine.ending,
                [kept for kept in machine.resumable.values() if kept.detached_until_us],
            ]
            for session in sessions
        )
        assert held == sum(job.holder is not None for job in jobs)
        if machine.version < ALIASES_SINCE:
            # Through an alias, jobs of other spaces go to workers without leases: no holder.
            assert held == sum(space.reserved for space in queue.every_space if space.leased)
        assert set(queue.ready_tubes) <= set(queue.tubes)
        attached = {
            (session.serial, job_id)
            for sessions in [
                *(origin.sessions.values() for origin in machine.origins.values()),
                *(lost.values() for lost in machine.lost),
                machine.ending,
                machine.resumable.values(),
            ]
            for session in sessions
            for job_id in session.attached
        }
        clients = {
            (serial, job.id) for job in jobs if job.ext is not None for serial in job.ext.clients
        }
        assert attached == clients
        abandoned = [job for job in jobs if job.ext is not None and job.ext.is_abandoned]
        assert all(job.state == RESERVED for job in abandoned), "nobody waits for them"


@PROPERTY
@given(LOGS)
def test_entries_survive_their_bytes(entries: list[Entry]) -> None:
    machine = Machine()
    for index, flags, time_us, wall_us, sections in entries:
        packed = [(o, i, n, c.pack_commands(commands)) for o, i, n, commands in sections]
        machine.apply(index, *c.decode_entry(c.encode_entry(flags, time_us, wall_us, packed)))
    assert machine.state_hash == replay(entries).state_hash


def test_the_chain_sees_what_the_transitions_of_jobs_do_not() -> None:
    def chain(*entries: Entry) -> int:
        return replay(list(entries)).state_hash

    opened: c.Section = (0, 1, 1, ((c.OPEN, 1),))
    epochs = [((c.LEADER, 0, 0, ((c.EPOCH, 1, floor_us, 9, 9, 9, 9),))) for floor_us in (5, 6)]
    chains = [
        chain((1, 0, 0, 0, [])),
        chain((2, 0, 0, 0, [])),
        chain((1, 1, 0, 0, [])),
        chain((1, 0, 1, 0, [])),
        chain((1, 0, 0, 0, [(0, 1, 1, ())])),
        chain((1, 0, 0, 0, [(1, 1, 1, ())])),
        chain((1, 0, 0, 0, [(0, 2, 1, ())])),
        chain((1, 0, 0, 0, [opened])),
        chain((1, 0, 0, 0, [opened, (0, 1, 2, ())])),
        chain((1, 0, 0, 0, [opened, (c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),))])),
        chain((1, 0, 0, 0, [epochs[0]])),
        chain((1, 0, 0, 0, [epochs[1]])),
    ]
    assert len(set(chains)) == len(chains)


def test_reads_touch_no_state() -> None:
    cluster = Cluster()
    cluster.open(1)
    for priority in range(50):
        cluster.put(priority=priority, delay_s=priority % 3)
    for job in range(1, 20):
        cluster.do(c.RESERVE_JOB, 1, job)
    cluster.do(c.BURY, 1, 3, 0)
    queries = [
        *((operation, 1, 5) for operation in (c.PEEK, c.STATS_JOB)),
        *((operation, 1, DEFAULT) for operation in (c.PEEK_READY, c.PEEK_DELAYED, c.PEEK_BURIED)),
        *((c.STATS_TUBE, 1, name) for name in (DEFAULT, b"nobody")),
        *((c.STATS, 1), (c.LIST_TUBES, 1)),
    ]
    other = copy_of(cluster.machine)
    answers = cluster.batch(*queries)
    assert len([answer for answer in answers if answer != c.NOT_FOUND]) == len(queries) - 1
    other.apply(*cluster.log[-1], own=-1)
    assert (other.state_hash, image_of(other)) == (
        cluster.machine.state_hash,
        image_of(cluster.machine),
    )


def test_an_image_of_two_at_once() -> None:
    cluster = Cluster()
    cluster.open(1)
    for _ in range(10):
        cluster.put()
    first, expected_first = Image(cluster.machine), image_of(cluster.machine)
    cluster.do(c.DELETE, 1, 4)
    second, expected_second = Image(cluster.machine), image_of(cluster.machine)
    cluster.reserve()
    for image, expected in [(first, expected_first), (second, expected_second)]:
        assert [image.next_chunk() for _ in range(6)] == [*expected, None]
        image.close()
        image.close()
    assert load(expected_first).queue.jobs[4].body == b"body"
