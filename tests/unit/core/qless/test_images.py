"""Images of qless: the same bytes on every node, and independent of when the image is made."""

from itertools import chain
from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole import qless as q
from beanpole.core import accounts
from beanpole.core.image import qless, restore
from beanpole.core.image.image import Image
from beanpole.core.machine import Machine
from beanpole.core.operations import qless as operations
from beanpole.core.qless import calls, queues, sizes, statistics
from beanpole.core.qless.job import history_bytes
from beanpole.core.qless.tables import Day
from tests.unit.core.cluster import Cluster, Entry, copy_of, events_of, image_of
from tests.unit.core.qless.checking import check_names, texts_of
from tests.unit.core.qless.random_calls import Calls
from tests.unit.seeds import seeds

SECOND = 1_000_000


def opened() -> Cluster:
    cluster = Cluster()
    cluster.lead((c.RAISE, c.MACHINE_VERSION))
    cluster.open(1)
    assert cluster.do(c.SET_PROTOCOL, 1, e.QLESS) == c.OK
    return cluster


def run(cluster: Cluster, source: Calls, entries: int) -> list[Any]:
    results = []
    source.tables = cluster.machine.qless
    for _ in range(entries):
        cluster.time_us += source.dice.choice((0, SECOND, 7 * SECOND))
        count = source.dice.randint(1, 3)
        results += cluster.batch(*[source.command() for _ in range(count)])
    return results


def check(machine: Machine) -> None:
    """Assert that all derived data is correct."""
    t = machine.qless
    size = sum(sizes.of_job(job) for job in t.jobs.values())
    size += sum(sizes.of_queue(queue) for queue in t.queues.values())
    size += sum(sizes.of_recurring(template) for template in t.recurring.values())
    assert t.bytes == size
    check_names(t)
    assert sorted(job.id for job in t.jobs.values()) == [job.id for job in t.by_id.values()]
    held = {(worker, jid) for worker, some in t.leases.items() for jid in some}
    assert held == {(job.worker, job.jid) for job in t.jobs.values() if job.lease is not None}
    assert not (t.touched or t.touched_queues or t.touched_recurring or t.touched_throttles)
    for job in t.jobs.values():
        assert bool(job.dependencies) == (job.state == 4), job.jid
        assert job.texts == texts_of(job), job.jid
        assert job.history_texts == history_bytes(job.history), job.jid


@pytest.mark.parametrize("seed", seeds(range(12), 3))
def test_two_nodes_and_one_made_of_an_image_agree(seed: int) -> None:
    source = Calls(seed)
    cluster, other = opened(), Machine()
    restored: list[Machine] = []
    applied = 0
    cluster.machine.qless.heard = True
    for _ in range(6):
        results = run(cluster, source, 40)
        assert all(type(result) is tuple for result in results)
        for entry in cluster.log[applied:]:
            for machine in [other, *restored]:
                machine.apply(*entry)
        applied = len(cluster.log)
        expected = image_of(cluster.machine)
        for machine in [other, *restored]:
            assert machine.state_hash == cluster.machine.state_hash
            assert image_of(machine) == expected
            assert accounts.memory_bytes(machine) == accounts.memory_bytes(cluster.machine)
            check(machine)
        check(cluster.machine)
        restored = [*restored[-1:], copy_of(cluster.machine)]
    assert events_of(cluster.machine) == events_of(other) != []


@pytest.mark.constants
@pytest.mark.parametrize("seed", seeds(range(100, 112), 3))
def test_an_image_shows_the_moment_at_which_it_began(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qless, "CHUNK_RECORDS", 1)
    monkeypatch.setattr(qless, "CHUNK_SHARDS", 1)
    source = Calls(seed)
    cluster = opened()
    for _ in range(5):
        run(cluster, source, 30)
        expected = image_of(cluster.machine)
        made = Image(cluster.machine)
        chunks = []
        while True:
            chunk = made.next_chunk()
            if chunk is None:
                break
            chunks.append(chunk)
            run(cluster, source, 1)
        made.close()
        made.close()
        assert not cluster.machine.qless.images
        assert chunks == expected
        restore.load(chunks)


@pytest.mark.constants
@pytest.mark.parametrize("bound", [1, 64, 700])
def test_jobs_that_are_too_large_for_a_chunk_are_cut(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = opened()
    run(cluster, Calls(7), 120)
    whole = image_of(cluster.machine)
    monkeypatch.setattr(qless, "CHUNK_BYTES", bound)
    pieces = image_of(cluster.machine)
    assert len(pieces) > len(whole)
    machine = restore.load(pieces)
    assert image_of(machine) == pieces
    monkeypatch.undo()
    assert image_of(machine) == whole


@pytest.mark.constants
def test_templates_that_shrink_meanwhile_fill_no_larger_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A template counts with the size of its record, which is that of the image's beginning."""
    monkeypatch.setattr(qless, "CHUNK_BYTES", 10_000)
    cluster = opened()

    def call(code: int, *args: Any) -> None:
        assert cluster.do(*operations.command(1, code, q.DOTTED, 1.0, args))[0] == q.OK

    names = [b"%d" % number for number in range(9)]
    for name in names:
        call(q.RECUR, b"q", name, b"k", bytes(4000), 9.0, 0.0, 0.0, (), 5, 0.0, ())
    expected = image_of(cluster.machine)
    made = Image(cluster.machine)
    for name in names[:6]:
        call(q.RECUR_UPDATE, name, ((b"data", b"{}"),))
    for name in names[4:]:
        call(q.UNRECUR, name)
    assert list(iter(made.next_chunk, None)) == expected
    made.close()


@pytest.mark.constants
def test_statistics_are_copied_where_they_change_while_an_image_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls that only pause queues copied 30 days of each: 3.6 s for 10,000 queues."""
    cluster = opened()
    t = cluster.machine.qless
    names = (b"a", b"b", b"c")
    for name in names:
        for day in range(30):
            statistics.bump(t, t.queue(name), day * 86_400.0, retries=1)
        t.queue(name).known_at = 1.0
    expected = image_of(cluster.machine)
    copied: list[int] = []
    original = Day.copied

    def counting(day: Day, images: int) -> Day:
        copied.append(day.retries)
        return original(day, images)

    def unexpected(*_: Any) -> Any:
        raise AssertionError("a call converts statistics")

    monkeypatch.setattr(Day, "copied", counting)
    made = Image(cluster.machine)
    with monkeypatch.context() as during:
        during.setattr(qless, "_of_day", unexpected)
        for call in (queues.pause, queues.unpause, queues.pause):
            assert call(t, q.DOTTED, 1.0, (names,))[0] == q.OK
        assert copied == []
        for _ in range(3):
            statistics.bump(t, t.queue(b"b"), 7 * 86_400.0, retries=10)
        assert copied == [1], "once, before the first change"
        statistics.bump(t, t.queue(b"b"), 40 * 86_400.0, retries=1)
        assert queues.forget_queues(t, q.DOTTED, 1.0, ((b"c",),))[0] == q.OK
    assert list(iter(made.next_chunk, None)) == expected
    made.close()
    assert t.queue(b"b").days[7 * 86_400].retries == 31
    statistics.bump(t, t.queue(b"b"), 8 * 86_400.0, retries=10)
    assert copied == [1], "no image is in progress"


def test_each_of_two_images_has_the_statistics_of_its_moment() -> None:
    cluster = opened()
    t = cluster.machine.qless
    made, expected = [], []
    for _ in range(3):
        statistics.bump(t, t.queue(b"q"), 5.0, retries=1)
        expected.append(image_of(cluster.machine))
        made.append(Image(cluster.machine))
        statistics.bump(t, t.queue(b"q"), 5.0, failed=1)
    for image, chunks in zip(made, expected, strict=True):
        assert list(iter(image.next_chunk, None)) == chunks
        image.close()


def test_names_beside_jobs_count_in_memory_until_they_are_gone() -> None:
    cluster = opened()
    machine, t = cluster.machine, cluster.machine.qless
    name = bytes(q.NAME_MAX_BYTES)
    empty = accounts.memory_bytes(machine)

    def grown(code: int, *args: Any) -> int:
        before = accounts.memory_bytes(machine)
        assert cluster.do(*operations.command(1, code, q.DOTTED, 1.0, args))[0] == q.OK
        return accounts.memory_bytes(machine) - before

    kind, text = q.PATTERNS_OF_QUEUES, bytes(q.DATA_MAX_BYTES // 2)
    rows: tuple[tuple[Any, Any, int], ...] = (
        ((q.CONFIG_SET, name, name), (q.CONFIG_UNSET, name), 2 * len(name)),
        ((q.SET_PATTERNS, kind, ((b"x", text),)), (q.SET_PATTERNS, kind, ()), len(text)),
        ((q.EDIT_PATTERNS, kind, False, ((name, b""),)), (q.SET_PATTERNS, kind, ()), len(name)),
        ((q.THROTTLE_SET, name, 1, 9), (q.THROTTLE_DELETE, name), len(name)),
        ((q.POP, b"q", name, 1), (q.FORGET_WORKERS, (name,)), len(name)),
    )
    for make, unmake, least in rows:
        first = grown(*make)
        assert first > least
        assert grown(*make) == 0
        assert grown(*unmake) == -first
    for make, _, least in rows:
        assert grown(*make) > least
    assert accounts.memory_bytes(copy_of(machine)) == accounts.memory_bytes(machine)
    cluster.pass_s(20)
    # It removes the throttle that has ended; its own name is much shorter.
    assert grown(q.THROTTLE_SET, b"other", 1, 0) < 10 - len(name)
    check(machine)
    put = (b"q", b"j", b"k", b"{}", 0.0, None, None, (b"tag",), None, (), None, False)
    assert grown(q.PUT, *put) > sizes.JOB_BYTES + sizes.NAME_BYTES + sizes.TAG_BYTES
    assert grown(q.TRACK, b"j") == sizes.WORKER_BYTES + 1
    grown(q.FLUSH)
    assert accounts.memory_bytes(machine) == empty
    check(machine)
    assert t.names_bytes == t.workers.bytes == t.tracked.bytes == 0


def test_memory_is_an_upper_bound_of_an_image() -> None:
    cluster = opened()
    machine = cluster.machine
    written, counted = sum(map(len, image_of(machine))), accounts.image_bytes(machine)
    long = [b"%d" % number + bytes(4000) for number in range(9)]
    steps: tuple[Any, ...] = (
        *[(q.CONFIG_SET, one, one) for one in long],
        (q.SET_PATTERNS, 0, tuple([(one, bytes(9000)) for one in long])),
        *[(q.THROTTLE_SET, one, 1, 0) for one in long],
        *[(q.POP, b"nowhere", one, 1) for one in long],
        (q.RECUR, long[0], b"t", b"k", b"{}", 9.0, 0.0, 0.0, tuple(long), 5, 0.0, tuple(long)),
        *[
            (*(q.PUT, long[0], one, b"k", b"{}", 0.0, None, None), (b"t",), 1, before, (), False)
            for one, before in [(one, tuple(long[:place])) for place, one in enumerate(long)]
        ],
        *[(q.POP, long[0], one, 1) for one in long],
    )
    for code, *args in steps:
        assert cluster.do(*operations.command(1, code, q.DOTTED, 1.0, tuple(args)))[0] == q.OK
    grown = sum(map(len, image_of(machine))) - written
    assert 300_000 < grown <= accounts.image_bytes(machine) - counted


def test_reads_change_nothing() -> None:
    source, cluster = Calls(3), opened()
    run(cluster, source, 150)
    before = image_of(cluster.machine)
    for _ in range(300):
        code, args = source.read()
        for flavour in (1, 2, 3, 4, 5):
            result = calls.read(cluster.machine.qless, code, flavour, source.now, args)
            assert result[0] in (0, 8), (code, result)
    assert image_of(cluster.machine) == before
    check(cluster.machine)


def test_every_call_is_made_by_the_random_ones() -> None:
    source = Calls(1)
    codes = {source.command()[2] for _ in range(4000)}
    assert codes == set(calls.CALLS)


def test_the_log_of_calls_is_the_same_entry_by_entry() -> None:
    cluster = opened()
    run(cluster, Calls(11), 60)
    replayed = Machine()
    entries: list[Entry] = cluster.log
    for index, flags, time_us, wall_us, sections in entries:
        packed = [(o, i, n, c.pack_commands(commands)) for o, i, n, commands in sections]
        replayed.apply(index, *c.decode_entry(c.encode_entry(flags, time_us, wall_us, packed)))
    assert replayed.state_hash == cluster.machine.state_hash


def test_a_worker_may_have_the_empty_name() -> None:
    """Its job is in images, and leaves its leases when it is put again."""
    cluster = opened()

    def call(code: int, *args: Any, now: float = 1.0) -> Any:
        return cluster.do(*operations.command(1, code, q.CORE, now, args))

    put = (b"q", b"j", b"k", b"{}", 0.0, None, None, None, None, (), None, False)
    assert call(q.PUT, *put)[0] == q.OK
    assert call(q.POP, b"q", b"", 1)[0] == q.OK
    assert image_of(copy_of(cluster.machine)) == image_of(cluster.machine)
    assert call(q.PUT, *put)[0] == q.OK
    assert not cluster.machine.qless.leases
    assert call(q.POP, b"q", b"w", 1)[0] == q.OK
    assert call(q.CANCEL, (b"j",))[0] == q.OK
    assert call(q.WORKER_COUNTS, now=200_000.0) == (q.OK, ())
    check(cluster.machine)


def test_an_image_does_not_depend_on_the_past_of_an_order() -> None:
    """With 257 workers or tracked jobs a node that had loaded an image differed, and stopped.

    Adds and removes split the lists of an order at other places than a load does.
    """
    cluster = opened()

    def do(code: int, *args: Any) -> None:
        now = cluster.time_us / SECOND
        assert cluster.do(*operations.command(1, code, q.CORE, now, args))[0] == q.OK

    count = 600
    for number in range(2 * count):
        cluster.time_us += SECOND
        name = b"%d" % (7 * number % count)
        if number < count:
            do(q.PUT, b"queue", name, b"Klass", b"{}", 0.0, *[None] * 4, (), None, False)
        else:
            do(q.UNTRACK, name)
        do(q.TRACK, name)
        do(q.POP, b"other", name, 1)
    copy = copy_of(cluster.machine)
    for before, after in zip(_orders(cluster.machine), _orders(copy), strict=True):
        assert before != after and list(chain(*before)) == list(chain(*after))
    assert image_of(cluster.machine) == image_of(copy)


def _orders(machine: Machine) -> list[list[list[tuple[float, bytes]]]]:
    return [machine.qless.workers.copied(), machine.qless.tracked.copied()]
