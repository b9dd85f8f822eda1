"""Invalid images of qless raise `Damaged` and no other error."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest

from beanpole import qless as q
from beanpole.core.image import qless, restore
from beanpole.core.image.image import pack
from beanpole.core.qless.job import SCHEDULED_AT, QlessJob
from beanpole.errors import Damaged
from tests.unit.core.cluster import Cluster, image_of
from tests.unit.core.qless.random_calls import Calls
from tests.unit.core.qless.test_images import check, opened, run
from tests.unit.seeds import seeds


@pytest.fixture(scope="module")
def chunks() -> list[Any]:
    cluster: Cluster = opened()
    run(cluster, Calls(21), 150)
    t = cluster.machine.qless
    t.set_pattern(0, b"x", b"[]")
    t.set_option(b"x", b"y")
    t.tracked.add(b"nobody", 1.0)
    assert b"t" in t.throttles
    made = [msgpack.unpackb(chunk) for chunk in image_of(cluster.machine)]
    words = {chunk[1][0] for chunk in made if chunk[0] == "qless" and chunk[1] is not None}
    assert words >= {*qless.WORDS} - {*qless.LONG_FIELDS}
    return made


def changed(chunks: list[Any], word: str, change: Callable[[list[Any]], Any]) -> list[bytes]:
    """Change the records of one kind in all chunks that have some."""
    made = []
    for chunk in [msgpack.unpackb(pack(chunk)) for chunk in chunks]:
        if chunk[0] == "qless" and chunk[1] is not None and chunk[1][0] == word:
            change(chunk[1][1])
        made.append(pack(chunk))
    return made


def test_what_is_not_changed_is_read(chunks: list[Any]) -> None:
    restore.load([pack(chunk) for chunk in chunks])


# Values that no other field of a new job has. Compiled code allows only values of the field's type.
MARKERS: dict[type, Any] = {
    int: 987_654,
    float: 987.5,
    bytes: b"a marker",
    bool: True,
    tuple: ((b"a marker", 987.5),),
}
DEPENDENTS = -2  # the index in a job's record
NONE_MARKERS = {"lease": 987.5, "due": 987.5, "failure": q.FailureView(b"g", b"m", 1.0, b"w")}


def place(name: str) -> int:
    """Return the index of a job's field in its record."""
    job = QlessJob(1, b"")
    before = getattr(job, name)
    marker = MARKERS[type(before)] if before is not None else NONE_MARKERS[name]
    setattr(job, name, marker)
    found = [type(value) is type(marker) and value == marker for value in qless.of_job(job)]
    assert found.count(True) == 1
    return found.index(True)


def of_first(name: str, value: Any) -> Callable[[list[Any]], None]:
    def change(rows: list[Any]) -> None:
        rows[0][place(name)] = value

    return change


def of_state(state: int, name: str, value: Any) -> Callable[[list[Any]], None]:
    """Change a field of the first job with a state."""

    def change(rows: list[Any]) -> None:
        row = next(row for row in rows if row[place("state")] == state)
        assert row[place(name)] != value
        row[place(name)] = value

    return change


def of_dependent(rows: list[Any]) -> None:
    """Replace a dependent of a job by another job, so that their number stays."""
    row = next(row for row in rows if row[DEPENDENTS])
    row[DEPENDENTS][0] = row[place("jid")]


def twice(rows: list[Any]) -> None:
    rows.append(rows[0])


@pytest.mark.parametrize(
    ("word", "change"),
    [
        (qless.JOBS, of_first("id", 0)),
        (qless.JOBS, of_first("id", 10**6)),
        (qless.JOBS, of_first("jid", "text")),
        (qless.JOBS, of_first("jid", b"x" * 9000)),
        (qless.JOBS, of_first("state", 9)),
        (qless.JOBS, of_first("state", 0)),
        (qless.JOBS, of_first("place", 7)),
        (qless.JOBS, of_first("place", True)),
        (qless.JOBS, of_first("score", float("nan"))),
        (qless.JOBS, of_first("time", float("inf"))),
        (qless.JOBS, of_first("remaining", 1.0)),
        (qless.JOBS, of_first("grace", 1)),
        (qless.JOBS, of_first("failed_order", 10**9)),
        (qless.JOBS, of_first("locked", [b"nobody"])),
        (qless.JOBS, of_first("pending", [[b"nobody", 1.0]])),
        (qless.JOBS, of_first("locked", [b"t", b"t"])),
        (qless.JOBS, of_first("pending", [[b"t", 1.0], [b"t", 1.0]])),
        (qless.JOBS, of_first("failure", [b"g"])),
        (qless.JOBS, of_state(q.WAITING, "place", SCHEDULED_AT)),
        (qless.JOBS, of_state(q.WAITING, "queue", b"nobody")),
        (qless.JOBS, of_state(q.WAITING, "lease", 5.0)),
        (qless.JOBS, of_state(q.WAITING, "failed_order", 1)),
        (qless.JOBS, of_state(q.WAITING, "completed_in", b"q")),
        (qless.JOBS, of_state(q.FAILED, "failed_order", 0)),
        (qless.JOBS, of_state(q.FAILED, "failed_order", 10**9)),
        (qless.JOBS, of_state(q.FAILED, "failure", None)),
        (qless.JOBS, of_dependent),
        (qless.JOBS, lambda rows: rows[0].pop()),
        (qless.JOBS, lambda rows: rows[0].append(1)),
        (qless.JOBS, lambda rows: rows[0].__setitem__(-1, [[1.0, 99, b"", b""]])),
        (qless.JOBS, lambda rows: rows[0].__setitem__(-2, [b"nobody"])),
        (qless.JOBS, lambda rows: rows[0].__setitem__(-3, [b"nobody"])),
        (qless.JOBS, lambda rows: rows[0].__setitem__(-4, [[b"red", 1.0], [b"red", 1.0]])),
        (qless.JOBS, twice),
        (qless.JOBS, lambda rows: rows.clear()),
        (qless.QUEUES, twice),
        (qless.QUEUES, lambda rows: rows.clear()),
        (qless.QUEUES, lambda rows: rows[0].__setitem__(1, 10**9)),
        (qless.QUEUES, lambda rows: rows[0].__setitem__(3, None)),
        (qless.QUEUES, lambda rows: rows[0].__setitem__(4, [[1]])),
        (qless.WORKERS, twice),
        (qless.TRACKED, twice),
        (qless.THROTTLES, twice),
        (qless.THROTTLES, lambda rows: rows[0].__setitem__(2, 1.5)),
        (qless.RECURRING, twice),
        (qless.RECURRING, lambda rows: rows[0].__setitem__(3, b"nobody")),
        (qless.OPTIONS, lambda rows: rows.append([b"x", 1])),
        (qless.PATTERNS, lambda rows: rows.append([2, b"x", b"y"])),
        (qless.TOTALS, lambda rows: rows.__setitem__(0, -1)),
    ],
)
def test_what_cannot_be_is_damaged(
    chunks: list[Any], word: str, change: Callable[[list[Any]], Any]
) -> None:
    with pytest.raises(Damaged):
        restore.load(changed(chunks, word, change))


def test_words_that_are_none(chunks: list[Any]) -> None:
    wrong: list[Any] = [["nothing", []], [], None, 5, [[], []], [qless.HISTORY, []], ["jobs", 5]]
    for value in wrong:
        broken = [pack(chunk) for chunk in chunks]
        at = next(at for at, chunk in enumerate(chunks) if chunk[0] == "qless")
        broken.insert(at, pack(["qless", value]))
        with pytest.raises(Damaged):
            restore.load(broken)


def plain_values(value: Any) -> Iterator[Any]:
    """Yield all values in lists that are no lists."""
    if type(value) is list:
        for one in value:
            yield from plain_values(one)
    else:
        yield value


@pytest.mark.parametrize("seed", seeds(range(300), 60))
def test_any_change_is_read_or_damaged(chunks: list[Any], seed: int) -> None:
    """A change of one value of one record is read or is `Damaged`; no other error is raised."""
    dice = random.Random(seed)
    values: tuple[Any, ...] = (
        None,
        0,
        -1,
        2**63,
        1.5,
        float("nan"),
        float("inf"),
        b"",
        b"q",
        "s",
        [],
        [1],
        True,
    )
    copied = [msgpack.unpackb(pack(chunk)) for chunk in chunks]
    # Most changes are inside of records: a chunk that is none is refused before it is looked at.
    chunk = dice.choice([chunk for chunk in copied if chunk[0] == "qless" and chunk[1]])
    inner = chunk[1][1] if dice.random() < 0.9 else chunk
    known = list(plain_values(chunk[1][1]))
    while True:
        at = dice.randrange(len(inner))
        if type(inner[at]) is not list or not inner[at] or dice.random() < 0.05:
            inner[at] = dice.choice(values) if dice.random() < 0.3 else dice.choice(known)
            break
        inner = inner[at]
    try:
        machine = restore.load([pack(chunk) for chunk in copied])
    except Damaged:
        return
    image = image_of(machine)
    assert image_of(restore.load(image)) == image
    check(machine)
