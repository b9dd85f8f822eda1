"""Invalid images are rejected with a reason; test_determinism checks the contents."""

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.core.image import image as image_module
from beanpole.core.image.image import Image, pack
from beanpole.core.image.parts import PARTS, Part
from beanpole.core.image.records import SessionRecord
from beanpole.core.image.restore import OLDEST_VERSION, load
from beanpole.core.state import MachineState
from beanpole.errors import Damaged, UnknownVersion
from beanpole.storage.snapshots import CHUNK_BYTES_MAX
from tests.unit.core.cluster import DEFAULT, Cluster, changed, chunks_of, image_of


def busy() -> Cluster:
    """Return a machine that has some of everything."""
    cluster = Cluster()
    cluster.open(1)
    cluster.open(2)
    cluster.batch((c.WATCH, 2, b"a"), (c.USE, 1, b"b"), (c.PAUSE_TUBE, 1, b"a", 9))
    cluster.batch((c.KEEP, 2, b"s" * 16, 9_000_000))
    for delay_s in (0, 0, 0, 5, 0):
        cluster.put(delay_s=delay_s)
    for key in (b"some", b"keys", b"more"):
        cluster.do(c.PUT_KEYED, 1, DEFAULT, 9, 0, 60, b"", key)
    cluster.reserve(1)
    cluster.reserve(2)
    cluster.do(c.RESERVE_JOB, 1, 5)
    cluster.do(c.BURY, 1, 5, 0)
    cluster.do(c.CLOSE, 2, 1)
    return cluster


BUSY = image_of(busy().machine)
# The head, tubes, sessions, three shards of keys, the jobs, and the end.
TUBES, SESSIONS, KEYS, JOBS = 1, 2, 3, 6
assert len(BUSY) == 8


def test_an_empty_machine_has_an_image() -> None:
    chunks = image_of(Cluster().machine)
    assert image_of(load(chunks)) == chunks


@pytest.mark.parametrize(
    "kept",
    [(1, 5), (1, 60), (50, 60), (7,), (), (1, 200), (63, 64, 127, 128), (70, 150, 200), (199,)],
)
@pytest.mark.constants
def test_ids_that_are_gone_leave_no_trace(
    kept: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of ids and boundaries of chunks follow from the state alone."""
    monkeypatch.setattr(image_module, "CHUNK_IDS", 3)
    monkeypatch.setattr(image_module, "CHUNK_JOBS", 2)
    cluster = Cluster()
    cluster.open(1)
    for _ in range(200):
        cluster.put()
    cluster.batch(*((c.DELETE, 1, job) for job in range(1, 201) if job not in kept))
    begun = Image(cluster.machine)
    chunks = image_of(cluster.machine)
    cluster.batch(*((c.DELETE, 1, job) for job in kept))
    cluster.put()
    assert list(iter(begun.next_chunk, None)) == chunks
    begun.close()
    machine = load(chunks)
    assert tuple(job.id for job in machine.queue.jobs.values()) == kept
    assert image_of(machine) == chunks


def test_what_has_an_order_comes_back_in_it() -> None:
    cluster = Cluster()
    for session in (3, 1, 2):
        cluster.open(session)
        for tube in (b"z", b"a", b"m"):
            cluster.do(c.WATCH, session, tube)
        cluster.do(c.KEEP, session, b"%d" % session * 16, 9_000_000)
    for _ in range(6):
        cluster.put()
    for job in (2, 3, 1):
        cluster.do(c.RESERVE_JOB, 1, job)
    for job in (5, 6, 4):
        cluster.do(c.RESERVE_JOB, 1, job)
        cluster.do(c.BURY, 1, job, 0)
    machine = load(image_of(cluster.machine))
    held = machine.origins[0].sessions[1]
    assert list(machine.origins[0].sessions) == [3, 1, 2]
    assert list(held.reserved) == [2, 3, 1]
    assert list(held.watched) == [DEFAULT, b"z", b"a", b"m"]
    assert list(machine.queue.tubes) == [DEFAULT, b"z", b"a", b"m"]
    assert list(machine.queue.default.buried) == [5, 6, 4]
    assert list(machine.resumable) == list(cluster.machine.resumable)
    assert [job.id for job in machine.queue.jobs.values()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param([(c.DELETE, 1, 1)], id="delete"),
        pytest.param([(c.RELEASE, 1, 1, 9, 9)], id="release"),
        pytest.param([(c.RETURN, 1, 1)], id="return"),
        pytest.param([(c.BURY, 1, 1, 9)], id="bury"),
        pytest.param([(c.TOUCH, 1, 1)], id="touch"),
        pytest.param([(c.CLOSE, 1, 0)], id="close"),
        pytest.param([(c.RESERVE_JOB, 1, 3)], id="reserve-job"),
        pytest.param([(c.KICK_JOB, 1, 4)], id="kick-job"),
        pytest.param([(c.KICK, 1, DEFAULT, 9, 0)], id="kick"),
        pytest.param([(c.DELETE, 1, 1), (c.PUT, 1, b"c", 0, 0, 1, b"")], id="delete and put"),
    ],
)
def test_every_command_keeps_the_job_for_an_image_in_progress(change: list[c.Command]) -> None:
    cluster = busy()
    cluster.pass_s(1)
    expected = image_of(cluster.machine)
    image = Image(cluster.machine)
    assert c.BAD_COMMAND not in cluster.batch(*change)
    assert [image.next_chunk() for _ in expected] == expected
    image.close()
    assert image_of(cluster.machine)[1:] != expected[1:]


@pytest.mark.parametrize(("floor_s", "grant"), [(0, True), (0, False), (1000, False)])
def test_time_and_grants_keep_the_jobs_for_an_image_in_progress(floor_s: int, grant: bool) -> None:
    cluster = busy()
    if floor_s:
        cluster.lead((c.EPOCH, 1, floor_s * 1_000_000, 99, 99, 99, 9_999_999))
    expected = image_of(cluster.machine)
    image = Image(cluster.machine)
    if grant:
        assert cluster.reserve() == 3
    else:
        cluster.pass_s(100)
    assert [image.next_chunk() for _ in expected] == expected
    image.close()
    assert image_of(cluster.machine)[1:] != expected[1:]


@pytest.mark.constants
def test_large_bodies_end_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "CHUNK_BYTES", 100)
    cluster = Cluster()
    cluster.open(1)
    for _ in range(5):
        cluster.put(b"x" * 60)
    chunks = image_of(cluster.machine)
    assert [msgpack.unpackb(chunk)[0] for chunk in chunks[-4:]] == [*["jobs"] * 3, "end"]
    assert image_of(load(chunks)) == chunks


def test_a_closed_image_no_longer_follows_the_machine() -> None:
    cluster = busy()
    image = Image(cluster.machine)
    image.next_chunk()
    image.close()
    cluster.do(c.DELETE, 1, 3)
    assert image._kept == {}


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([], id="nothing"),
        pytest.param(BUSY[:TUBES], id="only the head"),
        pytest.param(BUSY[:SESSIONS], id="no sessions and nothing behind them"),
        pytest.param(BUSY[:KEYS], id="no keys and nothing behind them"),
        pytest.param([BUSY[0], *BUSY[SESSIONS:]], id="no tubes"),
        pytest.param([*BUSY[:SESSIONS], *BUSY[KEYS:]], id="no sessions"),
        pytest.param([*BUSY[:2], *BUSY[1:]], id="tubes twice"),
        pytest.param([*BUSY[:3], *BUSY[2:]], id="sessions twice"),
        pytest.param(BUSY[:-1], id="no end"),
        pytest.param(BUSY[1:], id="no head"),
        pytest.param([*BUSY[:JOBS], BUSY[-1]], id="no jobs"),
        pytest.param([*BUSY[:KEYS], *BUSY[JOBS:]], id="no keys"),
        pytest.param([*BUSY[:4], *BUSY[5:]], id="too few keys"),
        pytest.param([*BUSY[:4], *BUSY[3:4], *BUSY[5:]], id="keys twice"),
        pytest.param([*BUSY[:3], BUSY[4], BUSY[3], *BUSY[5:]], id="keys in another order"),
        pytest.param([*BUSY, BUSY[-1]], id="more after the end"),
        pytest.param([BUSY[0][:-1], *BUSY[1:]], id="a cut chunk"),
        pytest.param([b"\xc1", *BUSY], id="no msgpack"),
        pytest.param([pack([]), *BUSY], id="an empty list"),
        pytest.param([pack({"head": 1}), *BUSY], id="no list"),
    ],
)
def test_what_is_not_whole_is_damaged(chunks: list[bytes]) -> None:
    with pytest.raises(Damaged):
        load(chunks)


def versioned(version: object) -> list[bytes]:
    """Return the image with another version in its head."""
    head = msgpack.unpackb(BUSY[0])
    head[1] = version
    return [pack(head), *BUSY[1:]]


def test_an_image_is_of_the_active_version_and_read_by_programs_that_know_it() -> None:
    cluster = busy()
    version = c.MACHINE_VERSION + 1
    cluster.lead((c.RAISE, version))
    chunks = image_of(cluster.machine)
    assert msgpack.unpackb(chunks[0])[1] == version
    copy = load(chunks, knows=version)
    assert copy.version == version
    assert image_of(copy) == chunks
    assert load(BUSY, knows=version).version == c.BASE_VERSION


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    words = r"need machine version 4, this program knows up to 3: upgrade beanpoled on this node"
    with pytest.raises(UnknownVersion, match=words):
        load(versioned(4), knows=3)


def test_an_older_version_than_is_read_is_refused() -> None:
    with pytest.raises(UnknownVersion, match=f"this program reads {OLDEST_VERSION} to 9: start a"):
        load(versioned(OLDEST_VERSION - 1), knows=9)


@pytest.mark.parametrize("version", ["2", None, 2.0, [2]])
def test_a_version_that_is_no_number_is_damage(version: object) -> None:
    with pytest.raises(Damaged):
        load(versioned(version))


JOB_STATE, JOB_HOLDER = 6, 9


@pytest.mark.parametrize(
    ("job", "item", "value"),
    [
        pytest.param(0, JOB_HOLDER, 0, id="reserved by nobody"),
        pytest.param(0, JOB_HOLDER, 2, id="reserved by a session that does not know it"),
        pytest.param(2, JOB_HOLDER, 1, id="ready and held"),
        pytest.param(0, JOB_STATE, 1, id="held and ready"),
        pytest.param(2, JOB_STATE, 0, id="in no state"),
        pytest.param(2, JOB_STATE, 9, id="in an unknown state"),
        pytest.param(2, 0, 1, id="an id twice"),
        pytest.param(2, 0, 77, id="out of order"),
        pytest.param(2, 1, 99, id="in no tube"),
        pytest.param(2, 2, b"", id="a priority of bytes"),
        pytest.param(2, 2, 2**32, id="a priority of 33 bits"),
        pytest.param(2, 10, -1, id="a negative counter"),
        pytest.param(2, 17, 5, id="a body of numbers"),
    ],
)
def test_a_job_that_cannot_be_is_damage(job: int, item: int, value: Any) -> None:
    jobs = msgpack.unpackb(BUSY[JOBS])
    jobs[1][job][item] = value
    with pytest.raises(Damaged):
        load([*BUSY[:JOBS], pack(jobs), *BUSY[JOBS + 1 :]])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda keys: keys.__setitem__(0, 0), id="of another generation"),
        pytest.param(lambda keys: keys.__setitem__(0, 2), id="of no generation"),
        pytest.param(lambda keys: keys.__setitem__(0, -1), id="of a generation from the end"),
        pytest.param(lambda keys: keys.__setitem__(1, keys[1] + 1), id="of another shard"),
        pytest.param(lambda keys: keys[2].append(keys[2][0]), id="twice"),
        pytest.param(lambda keys: keys[2].clear(), id="none"),
        pytest.param(lambda keys: keys[2][0].__setitem__(0, b"other"), id="a key that is not its"),
        pytest.param(lambda keys: keys[2][0].__setitem__(0, b""), id="an empty key"),
        pytest.param(lambda keys: keys[2][0].__setitem__(0, b"x" * 65), id="a key too long"),
        pytest.param(lambda keys: keys[2][0].__setitem__(0, 7), id="a key that is a number"),
        pytest.param(lambda keys: keys[2][0].__setitem__(1, 0), id="of no job"),
        pytest.param(lambda keys: keys[2][0].__setitem__(1, 9), id="of a job to come"),
        pytest.param(lambda keys: keys[2][0].__setitem__(1, 1.5), id="of half a job"),
    ],
)
def test_keys_that_cannot_be_are_damage(change: Callable[[Any], None]) -> None:
    keys = msgpack.unpackb(BUSY[KEYS])
    change(keys[1])
    with pytest.raises(Damaged):
        load([*BUSY[:KEYS], pack(keys), *BUSY[KEYS + 1 :]])


def test_a_session_that_holds_no_such_job_is_damage() -> None:
    sessions = msgpack.unpackb(BUSY[SESSIONS])
    reserved = SessionRecord(*sessions[1][0]).held
    assert reserved == [1]
    reserved.append(4)
    with pytest.raises(Damaged, match="holds a job"):
        load([*BUSY[:SESSIONS], pack(sessions), *BUSY[KEYS:]])


@pytest.mark.parametrize("serial", [0, -1, 1, 99])
def test_a_session_whose_serial_number_cannot_be_is_damage(serial: int) -> None:
    cluster = Cluster()
    cluster.open(1)
    cluster.open(2)

    def change(sessions: list[Any]) -> None:
        assert [session[0] for session in sessions] == [1, 2]
        sessions[1][0] = serial

    with pytest.raises(Damaged, match=f"session {serial} of 2"):
        load(changed(cluster.machine, "sessions", change))


@pytest.mark.parametrize("place", [13, 14])
@pytest.mark.parametrize("value", [-1, 256])
def test_a_session_of_no_known_kind_is_damage(place: int, value: int) -> None:
    sessions = msgpack.unpackb(BUSY[SESSIONS])
    sessions[1][0][place] = value
    with pytest.raises(Damaged, match=str(value)):
        load([*BUSY[:SESSIONS], pack(sessions), *BUSY[KEYS:]])


@pytest.mark.slow
def test_a_head_of_many_long_names_is_cut() -> None:
    """A snapshot's chunk is at most 4 MiB: one client that watched long names stopped all nodes."""
    cluster = Cluster()
    cluster.open(1)
    for number in range(30_000):
        cluster.machine.queue.tube(b"%0200d" % number)
    chunks = image_of(cluster.machine)
    assert max(map(len, chunks)) <= CHUNK_BYTES_MAX
    assert image_of(load(chunks)) == chunks


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(BUSY) - 2), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_damage_or_another_machine(chunk: int, place: int, change: int) -> None:
    chunks = [bytearray(part) for part in BUSY]
    chunks[chunk][place % len(chunks[chunk])] ^= change
    try:
        machine = load([bytes(part) for part in chunks])
    except (Damaged, UnknownVersion):
        return
    assert DEFAULT in machine.queue.tubes


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 4, 5, 77, 2**32, 2**63, 2**64 - 1]),
    st.floats(),
    st.binary(max_size=20),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
    st.just({}),
)


def put_in(value: Any, path: list[int], new: Any) -> Any:
    """Replace the value at a path of indices, which ends at the first value that is no list."""
    if not isinstance(value, list) or not value or not path:
        return new
    place = path[0] % len(value)
    value[place] = put_in(value[place], path[1:], new)
    return value


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, len(BUSY) - 1),
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    VALUES,
)
def test_any_value_in_any_place_is_damage_or_another_machine(
    chunk: int, path: list[int], value: Any
) -> None:
    """Only our own errors are raised, even if the checksum matches."""
    chunks = list(BUSY)
    chunks[chunk] = pack(put_in(msgpack.unpackb(chunks[chunk]), path, value))
    try:
        machine = load(chunks)
    except (Damaged, UnknownVersion) as error:
        assert str(error)
        return
    assert DEFAULT in machine.queue.tubes


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from(BUSY)), max_size=5))
def test_any_chunks_are_damage_or_the_whole_image(chunks: list[bytes]) -> None:
    try:
        machine = load(chunks)
    except (Damaged, UnknownVersion) as error:
        assert str(error)
        return
    assert image_of(machine) == chunks


# --- parts of later versions ----------------------------------------------------------------------

NEW = c.BASE_VERSION + 1


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a program whose next version's images have one part: the machine's term, twice."""

    def read(machine: MachineState, value: int) -> None:
        if value != machine.term:
            raise Damaged(f"the term {value} is noted")

    for kind in list(PARTS):
        monkeypatch.delitem(PARTS, kind)
    part = Part(NEW, lambda machine: [machine.term, machine.term], read)
    monkeypatch.setitem(PARTS, "noted", part)


@pytest.mark.usefixtures("noted")
def test_a_part_of_a_later_version_is_not_in_an_image_before() -> None:
    """A newer program writes what an older one can read, and reads what the older one writes."""
    assert image_of(busy().machine) == BUSY
    assert load(BUSY, NEW).version == c.BASE_VERSION


def noted_image() -> list[bytes]:
    """Return an image of the next version; the part has the place of the first chunk of jobs."""
    cluster = busy()
    cluster.lead((c.EPOCH, 7, 0, 9, 9, 9, 9), (c.RAISE, NEW))
    return image_of(cluster.machine)


@pytest.mark.usefixtures("noted")
def test_a_part_of_the_active_version_is_written_and_read() -> None:
    chunks = noted_image()
    assert [msgpack.unpackb(chunk)[:2] for chunk in chunks[JOBS : JOBS + 3]] == [
        ["noted", 7],
        ["noted", 7],
        ["noted", None],
    ]
    assert len(chunks) == len(BUSY) + 3
    assert image_of(load(chunks, NEW)) == chunks


@pytest.mark.usefixtures("noted")
def test_a_part_that_is_not_whole_is_damage() -> None:
    chunks = noted_image()
    before, part, behind = chunks[:JOBS], chunks[JOBS : JOBS + 3], chunks[JOBS + 3 :]
    for wrong in ([], part[:2], [pack(["noted", 8]), part[2]], [pack(["other", 7]), part[2]]):
        with pytest.raises(Damaged):
            load([*before, *wrong, *behind], NEW)


def test_a_part_that_the_program_does_not_expect_is_damage(
    noted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = noted_image()
    monkeypatch.delitem(PARTS, "noted")
    with pytest.raises(Damaged):
        load(chunks, NEW)


@pytest.mark.usefixtures("noted")
def test_a_part_is_as_it_was_when_the_image_began() -> None:
    cluster = busy()
    cluster.lead((c.RAISE, NEW))
    image = Image(cluster.machine)
    before = image_of(cluster.machine)
    cluster.lead((c.EPOCH, 7, 0, 9, 9, 9, 9))
    assert chunks_of(image) == before
    image.close()
