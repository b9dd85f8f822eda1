"""Deduplication keys: the results of repeated puts, and the lifetime of a key."""

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import DEDUP_KEY_MAX_BYTES, DEDUP_WINDOW_US, SECOND_US
from beanpole.core import keys as keys_module
from beanpole.core.image.image import Image, pack
from beanpole.core.image.restore import load
from beanpole.core.keys import SHARDS, Generation, Keys, shard_of
from beanpole.errors import Damaged
from beanpole.storage.snapshots import CHUNK_BYTES_MAX
from tests.unit.core.cluster import DEFAULT, Cluster, chunks_of, copy_of, events_of, image_of

KEY = b"order 66"


def put(cluster: Cluster, key: bytes = KEY, body: bytes = b"body", flags: int = 0) -> object:
    command = (c.PUT_KEYED, 1, DEFAULT, 0, 0, 60, body, key)
    return cluster.batch(command, flags=flags)[0]


def test_a_key_puts_once(cluster: Cluster) -> None:
    assert put(cluster) == (1, 0)
    assert put(cluster, body=b"another body") == (1, 1)
    assert put(cluster, b"order 67") == (2, 0)
    assert cluster.stats_job(1)["tube"] == DEFAULT
    assert [job.body for job in cluster.machine.queue.jobs.values()] == [b"body"] * 2


def test_a_key_outlives_its_job(cluster: Cluster) -> None:
    put(cluster)
    cluster.do(c.DELETE, 1, 1)
    assert put(cluster) == (1, 1)
    assert not cluster.machine.queue.jobs


def test_a_repeated_put_is_no_event(cluster: Cluster) -> None:
    put(cluster)
    put(cluster)
    assert [event.kind for event in events_of(cluster.machine)] == [e.PUT]


def test_a_refused_put_does_not_remember_its_key(cluster: Cluster) -> None:
    assert put(cluster, flags=c.FLAG_PUTS_REFUSED) == c.OUT_OF_MEMORY
    assert put(cluster) == (1, 0)
    # A client that repeats a put receives the id of its job even while puts are refused.
    assert put(cluster, flags=c.FLAG_PUTS_REFUSED) == (1, 1)


@pytest.mark.parametrize("size", [0, DEDUP_KEY_MAX_BYTES + 1])
def test_a_key_of_a_wrong_size_is_a_bad_command(cluster: Cluster, size: int) -> None:
    assert put(cluster, b"x" * size) == c.BAD_COMMAND
    assert put(cluster, b"x" * DEDUP_KEY_MAX_BYTES) == (1, 0)


def test_a_put_that_makes_no_sense_does_not_remember_its_key(cluster: Cluster) -> None:
    assert cluster.do(c.PUT_KEYED, 1, DEFAULT, -1, 0, 60, b"", KEY) == c.BAD_COMMAND
    assert put(cluster) == (1, 0)


def test_keys_are_in_the_image(cluster: Cluster) -> None:
    before = image_of(cluster.machine)
    put(cluster)
    cluster.do(c.DELETE, 1, 1)
    cluster.machine = copy_of(cluster.machine)
    assert put(cluster) == (1, 1)
    assert len(image_of(cluster.machine)) > len(before)


def test_a_session_speaks_a_protocol(cluster: Cluster) -> None:
    assert cluster.do(c.SET_PROTOCOL, 1, e.GRPC) == c.OK
    cluster.machine = copy_of(cluster.machine)
    put(cluster)
    assert [event.protocol for event in events_of(cluster.machine)] == [e.GRPC]
    assert cluster.do(c.SET_PROTOCOL, 1, max(e.PROTOCOL_NAMES) + 1) == c.BAD_COMMAND


def test_a_day_later_two_keys_are_enough_to_forget_one(cluster: Cluster) -> None:
    put(cluster, b"old")
    cluster.time_us += DEDUP_WINDOW_US + SECOND_US
    assert put(cluster, b"old") == (1, 1)
    put(cluster, b"of the next day")
    assert put(cluster, b"old") == (1, 1)
    cluster.time_us += DEDUP_WINDOW_US + SECOND_US
    put(cluster, b"of the day after that")
    assert put(cluster, b"old") == (4, 0)


# With 40 keys, a few shards have several keys and many have one.
NAMES = [b"key %d" % number for number in range(40)]


@pytest.mark.constants
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=120),
    st.integers(1, 9),
)
def test_what_is_promised_is_remembered_and_not_much_more(
    puts: list[tuple[bytes, int]], generation_max: int
) -> None:
    window = 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys_module, "GENERATION_KEYS_MAX", generation_max)
        patch.setattr(keys_module, "DEDUP_WINDOW_US", window)
        keys, now, seen = Keys(), 0, list[tuple[bytes, int, int]]()  # key, job, time
        for job, (key, passed) in enumerate(puts, 1):
            now += passed
            found = keys.find(key)
            known = [place for place, (name, _, _) in enumerate(seen) if name == key]
            if found:
                assert (key, found) in [(name, of) for name, of, _ in seen[-2 * generation_max :]]
                continue
            if known:
                later, at = len(seen) - known[-1] - 1, seen[known[-1]][2]
                assert later >= generation_max or now - at >= window
            keys.remember(key, job, now)
            seen.append((key, job, now))
            assert keys.find(key) == job
            assert keys.older.count + keys.younger.count <= 2 * generation_max
        for generation in (keys.older, keys.younger):
            assert generation.count == sum(map(len, generation.shards))


@pytest.mark.constants
def test_forgotten_keys_are_freed_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "GENERATION_KEYS_MAX", 300)
    keys = Keys()
    for job in range(1, 601):
        keys.remember(b"%d" % job, job, 0)
    assert not keys._forgotten
    keys.remember(b"601", 601, 0)
    assert len(keys._forgotten) == SHARDS - 1
    for job in range(602, 602 + SHARDS - 1):
        keys.remember(b"%d" % job, job, 0)
    assert not keys._forgotten


@pytest.mark.constants
def test_an_image_in_progress_holds_the_keys_that_are_forgotten_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys_module, "GENERATION_KEYS_MAX", 5)
    cluster = Cluster()
    cluster.open(1)
    for number in range(8):
        put(cluster, b"%d" % number)
    expected = image_of(cluster.machine)
    image = Image(cluster.machine)
    for number in range(8, 40):
        put(cluster, b"%d" % number)
    assert chunks_of(image) == expected
    image.close()


def crafted(count: int) -> list[bytes]:
    """Craft the longest keys, all of shard 0: the last byte's checksum decides the shard's bits."""
    zero = bytes(DEDUP_KEY_MAX_BYTES - 1)
    last = {(crc32c(zero + bytes([b])) ^ crc32c(zero + b"\0")) % SHARDS: b for b in range(256)}
    found = []
    for number in range(count):
        key = number.to_bytes(DEDUP_KEY_MAX_BYTES - 1, "big")
        found.append(key + bytes([last[shard_of(key + b"\0")]]))
    return found


@pytest.mark.slow
def test_keys_that_all_fall_into_one_shard_fit_into_a_snapshot() -> None:
    """Clients choose their keys; an image of any keys must not stop the nodes."""
    cluster = Cluster()
    machine = cluster.machine
    keys = crafted(70_001)
    more = keys.pop()
    for job, key in enumerate(keys, 1):
        machine.keys.remember(key, job, 0)
    machine.queue.next_id = 100_000
    assert len(machine.keys.younger.shards[0]) == 70_000
    image = Image(machine)
    chunks = [image.next_chunk() or b"" for _ in range(5)]
    machine.keys.remember(more, 70_001, 0)
    chunks += chunks_of(image)
    image.close()
    assert sum(map(len, chunks)) > CHUNK_BYTES_MAX > 4 * max(map(len, chunks))
    copy = load(chunks)
    assert list(copy.keys.younger.shards[0]) == keys
    assert image_of(copy) == chunks

    def of(place: int, items: list[object]) -> bytes:
        return pack(["keys", [1, place, items]])

    head, first, later = chunks[:2], msgpack.unpackb(chunks[2])[1][2], chunks[3:]
    with pytest.raises(Damaged, match="8193 keys"):
        load([*head, of(0, [*first, [more, 1]]), *later])
    with pytest.raises(Damaged, match="keys 1, 0 come after"):
        load([*head, of(0, first[:-1]), *later])
    with pytest.raises(Damaged, match="stands in shard"):
        load([*chunks[:3], chunks[2], *later[1:]])


def test_keys_spread_over_the_shards() -> None:
    generation = Generation(0)
    for number in range(64 * SHARDS):
        generation.add(b"customer/2026-11-21/%d" % number, number)
    assert max(map(len, generation.shards)) < 3 * 64
    assert all(
        shard_of(key) == place for place, shard in enumerate(generation.shards) for key in shard
    )
