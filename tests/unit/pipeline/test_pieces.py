"""Pieces of a stream's statistics where the days of batches alternate: no event gets lost."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beanpole.places import Place, resolved
from pyspark_beanpole.schema import EVENTS, arrow_schema
from pyspark_beanpole.statistics.answers import finished
from pyspark_beanpole.statistics.keys import Parts
from pyspark_beanpole.statistics.parts import merged, reduced
from pyspark_beanpole.streaming.pieces import Piece, Pieces, joinable, packed_parts

SCHEMA = arrow_schema(EVENTS)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
# The events of a batch.
ROWS = 3


def batch(first: int, hour: int) -> Parts:
    """Return the parts of three puts, the first of them this number of hours after noon."""
    rows: list[dict[str, Any]] = [
        {
            **dict.fromkeys(SCHEMA.names),
            "offset": offset,
            "log_index": offset + 1,
            "position": 0,
            "time_us": offset,
            "wall_time": NOON + timedelta(hours=hour, seconds=offset - first),
            "event": "put",
            "tube": "mail",
            "protocol": "beanstalk",
            "job_id": offset + 1,
            "state_before": "gone",
            "state": "ready",
        }
        for offset in range(first, first + ROWS)
    ]
    return reduced([pa.RecordBatch.from_pylist(rows, SCHEMA)], put_from=0)


def grown(place: Place, hours: Sequence[int]) -> Pieces:
    """Return the pieces of batches that begin at these hours."""
    pieces = Pieces(place)
    assert pieces.load([])
    for number, hour in enumerate(hours):
        first = number * ROWS
        pieces.accept(pieces.prepare(first, first + ROWS, batch(first, hour)))
    return pieces


def puts(parts: Parts) -> dict[str, int]:
    """Return the puts by day."""
    rows = finished(parts)["throughput"].to_pylist()
    return {str(row["day"]): row["puts"] for row in rows}


@pytest.mark.parametrize(
    ("hours", "days", "files"),
    [
        ((0, 24, 0, 24), 2, 4),
        # A day forth and back with every batch: two days, and what is not joined yet.
        ((0, 24) * 40, 2, 2 + 24),
        # The same hours in turn, as around the end of one: more than a day has.
        ((0, 1) * 40, 1, 24),
        # A clock that was set back by days, and goes on from there.
        ((0, 24, 48, 72, *range(96)), 5, 5 + 24),
        # A clock that is right.
        (range(24 * 6), 7, 7 + 24),
    ],
)
def test_a_restart_finds_every_event_in_few_files(
    tmp_path: Path, hours: Sequence[int], days: int, files: int
) -> None:
    place, end = resolved(str(tmp_path)), len(hours) * ROWS
    before = grown(place, hours)
    wanted = puts(before.together())
    assert sum(wanted.values()) == end
    assert len(wanted) == days
    edges = sorted(path.stem.split("-") for path in tmp_path.iterdir())
    assert len(edges) <= files
    assert all(low[1] == high[0] for low, high in pairwise(edges))
    again = Pieces(place)
    assert again.load([(0, end)])
    again.clean()
    assert puts(again.together()) == wanted
    # What the clean-up has left is complete, too, and can grow.
    assert again.load([(0, end)])
    again.accept(again.prepare(end, end + ROWS, batch(end, 1000)))
    assert sum(puts(again.together()).values()) == end + ROWS
    assert Pieces(place).load([(0, end + ROWS)])


def test_a_file_that_claims_events_that_it_lacks_is_not_used(tmp_path: Path) -> None:
    """Earlier versions joined the pieces of a day across those of another."""
    place = resolved(str(tmp_path))
    parts = {Piece(first, first + ROWS): batch(first, first * 8) for first in (0, 3, 6)}
    lacking = merged([parts[Piece(0, 3)], parts[Piece(6, 9)]])
    (tmp_path / Piece(0, 9).name).write_bytes(packed_parts(lacking))
    assert not Pieces(place).load([(0, 9)])
    (tmp_path / Piece(9, 12).name).write_bytes(packed_parts(batch(9, 0)))
    assert not Pieces(place).load([(0, 12)])
    # Made anew, they are complete.
    pieces = Pieces(place)
    assert not pieces.load([(0, 9)])
    pieces.begin(0, 9, merged(parts.values()))
    assert Pieces(place).load([(0, 9)])


def test_events_that_the_log_lacks_are_not_missed(tmp_path: Path) -> None:
    """A stream that skips lost events has a hole, which belongs to the piece behind it."""
    place = resolved(str(tmp_path))
    pieces = Pieces(place)
    pieces.accept(pieces.prepare(0, 3, batch(0, 0)))
    pieces.accept(pieces.prepare(3, 103, batch(100, 24)))
    again = Pieces(place)
    assert again.load([(0, 3), (100, 103)])
    assert sum(puts(again.together()).values()) == 2 * ROWS
    assert not Pieces(place).load([(0, 3), (99, 103)])


def test_only_neighbours_are_joined() -> None:
    chain = [Piece(number, number + 1) for number in range(6)]

    def groups(*days: int) -> list[list[int]]:
        found = joinable(list(zip(chain, days, strict=False)))
        return [[piece.first for piece in group] for group in found]

    assert groups(0, 0, 1, 1, 2) == [[0, 1], [2, 3], [4]]
    assert groups(0, 1, 0, 1) == [[0, 1, 2], [3]]
    assert groups(5, 6, 7, 1, 2, 2) == [[0, 1, 2, 3], [4, 5]]
    assert groups() == []
