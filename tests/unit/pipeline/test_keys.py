"""The keys of rows: equal across attempts and writes where intended, unique between rows."""

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.errors import ConfigurationError
from beanpole.pb.queue_pb2 import PutJob
from pyspark_beanpole import keys, window

Row = tuple[str, str, int]
ROWS = st.lists(
    st.tuples(st.text(max_size=2), st.sampled_from(["a", "ab", "b"]), st.integers(0, 1)),
    max_size=20,
)
# A given namespace, or a write without one.
SPACES = st.sampled_from([("monday", ""), (None, "write")])


def made(space: tuple[str | None, str], partition: int, rows: Sequence[Row]) -> list[bytes]:
    """Return the keys of a task's rows."""
    one = keys.Keys(*space, partition)
    return [
        one.of(PutJob(body=body.encode(), tube=tube, priority=priority))
        for body, tube, priority in rows
    ]


@given(rows=ROWS, seed=st.integers(0, 9), space=SPACES)
def test_an_attempt_in_another_order_makes_the_same_keys(
    rows: list[Row], seed: int, space: tuple[str | None, str]
) -> None:
    shuffled = Random(seed).sample(rows, len(rows))
    # Equal rows may exchange their keys.
    first = set(zip(rows, made(space, 3, rows), strict=True))
    assert first == set(zip(shuffled, made(space, 3, shuffled), strict=True))
    assert len({key for _, key in first}) == len(rows), "every row is a job of its own"


@given(rows=ROWS.filter(bool))
def test_tasks_and_writes_share_keys_only_in_a_namespace(rows: list[Row]) -> None:
    own = set(made((None, "write"), 0, rows))
    assert own.isdisjoint(made((None, "write"), 1, rows))
    assert own.isdisjoint(made((None, "other"), 0, rows))
    assert own.isdisjoint(made(("write", ""), 0, rows))
    named = made(("monday", ""), 0, rows)
    assert named == made(("monday", "other"), 1, rows)
    assert set(named).isdisjoint(made(("tuesday", ""), 0, rows))


def test_writes_have_names_of_their_own() -> None:
    assert keys.of_write() != keys.of_write()


def test_a_stream_whose_batches_have_no_names_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give the option dedupNamespace"):
        keys.of_batch(None)


def batches(rows: Sequence[int], width: int = 1) -> "list[pa.RecordBatch]":
    return [pa.record_batch({"body": ["x" * width] * count}) for count in rows]


def test_rows_come_through_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "HELD_BYTES_MAX", 1000)
    for sizes in ([], [0], [100_000] * 5, [3, 0, 200]):
        assert list(window.checked(iter(batches(sizes)), 0)) == batches(sizes)


def test_small_rows_are_counted_before_the_first_is_given() -> None:
    found = window.checked(iter(batches([250_000, 250_000, 1])), 7)
    with pytest.raises(ConfigurationError, match=r"^partition 7 has more than 500,000 rows, and"):
        next(found)


def test_large_rows_are_given_before_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "HELD_BYTES_MAX", 1000)
    found = window.checked(iter(batches([400_000, 100_000, 1])), 7)
    assert [next(found).num_rows, next(found).num_rows] == [400_000, 100_000]
    with pytest.raises(ConfigurationError, match="more than 500,000 rows"):
        next(found)
