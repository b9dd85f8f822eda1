"""Records become columns: every field, in bounded batches, equal to a naive decoding."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import UnknownVersion
from beanpole.events import RECORD
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import NOTE, Events
from tests.unit.eventlog.made import MEMBERS, WALL_US, chance, naive, record

PAGE = Path(__file__).resolve().parents[3] / "docs/pipeline.md"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(0, 2**50), st.booleans())
def test_columns_are_what_a_naive_decoder_finds(
    seed: int, rows: int, first: int, with_hosts: bool
) -> None:
    events = chance(seed, rows, first, with_hosts)
    assert columns.to_arrow(events).to_pylist() == list(naive(events))


def test_a_place_of_no_member_is_a_node_that_is_not_known() -> None:
    events = chance(3, 50, 0)
    rows = columns.to_arrow(events._replace(members=MEMBERS[:1])).to_pylist()
    whole = columns.to_arrow(events).to_pylist()
    assert {row["node"] for row in whole} >= set(MEMBERS)
    for row, one in zip(rows, whole, strict=True):
        if one["node"] in MEMBERS[1:]:
            if (one["worker"] or "").startswith(f"{one['node']}:"):
                one["worker"] = None
            one["node"] = None
        assert row == one


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 200), st.data())
def test_a_slice_is_a_part_of_the_whole(seed: int, rows: int, data: st.DataObject) -> None:
    events = chance(seed, rows, 1000)
    start = data.draw(st.integers(1000, 999 + rows))
    end = data.draw(st.integers(start + 1, 1000 + rows))
    part = events.slice(start, end)
    assert (part.first, part.end) == (start, end)
    assert columns.to_arrow(part).to_pylist() == list(naive(events))[start - 1000 : end - 1000]
    assert part.note(0).first <= start < end <= events.end


@pytest.mark.slow
def test_batches_are_complete_streams_of_at_most_so_many_rows() -> None:
    rows = columns.BATCH_ROWS + 10
    events = chance(1, rows, 5)
    batches = columns.encode(events)
    assert [(batch.first, batch.rows) for batch in batches] == [
        (5, columns.BATCH_ROWS),
        (5 + columns.BATCH_ROWS, 10),
    ]
    read = [columns.from_stream(batch.payload) for batch in batches]
    assert pa.Table.from_batches(read).to_pylist() == columns.to_arrow(events).to_pylist()
    walls = [note[2] for note in NOTE.iter_unpack(events.notes)]
    assert max(batch.wall_us_max for batch in batches) == max(walls)


def test_a_batch_of_long_names_is_split_until_it_fits() -> None:
    dice = random.Random(1)
    rows = columns.BATCH_ROWS
    records = bytearray(b"".join(record(dice) for _ in range(rows)))
    for place in range(rows):
        number = (place + 1).to_bytes(4, "little")
        records[place * RECORD.size + 8 : place * RECORD.size + 12] = number
    names = {place + 1: dice.randbytes(100).hex().encode() for place in range(rows)}
    notes = NOTE.pack(1, 1, WALL_US, 0, 0)
    batches = columns.encode(Events(0, records, notes, names, MEMBERS, {}))
    assert len(batches) > 1
    assert all(len(batch.payload) <= columns.BATCH_BYTES_MAX for batch in batches)
    read = [columns.from_stream(batch.payload) for batch in batches]
    found = pa.Table.from_batches(read)
    assert found["offset"].to_pylist() == list(range(rows))
    assert found["tube"].to_pylist() == [name.decode() for name in names.values()]


def test_the_schema_is_what_readers_rely_on() -> None:
    schema = columns.schema()
    assert [(field.name, str(field.type)) for field in schema] == [
        (name, "timestamp[us, tz=UTC]" if kind == columns.STAMP else kind)
        for name, kind in columns.COLUMNS
    ]
    assert all(field.nullable for field in schema)


# Columns that machine version 4 added.
NEW = ("host", "client_time_us")


def test_batches_from_before_machine_version_4_are_as_release_0_3_0_made_them() -> None:
    """Its readers reject an extra column, and its nodes read these files after a downgrade."""
    events = chance(5, 20, with_hosts=False)
    found = columns.to_arrow(events)
    assert found.schema == columns.schema(with_newer=False)
    assert found.schema.names == [name for name, _ in columns.COLUMNS if name not in NEW]
    rows = [{**row, **dict.fromkeys(NEW)} for row in naive(events)]
    assert columns.conformed(found).to_pylist() == rows
    assert columns.conformed(found).schema == columns.schema()


def test_a_column_that_is_not_known_is_left_out_and_one_of_another_type_is_refused() -> None:
    found = columns.to_arrow(chance(6, 20))
    assert columns.conformed(found) is found
    later = found.append_column("colour", pa.nulls(20, pa.string()))
    assert columns.conformed(later).equals(found)
    place = found.schema.get_field_index("job_id")
    other = found.set_column(place, "job_id", found["job_id"].cast(pa.uint64()))
    with pytest.raises(UnknownVersion, match=r"column 'job_id' as uint64, which .* int64"):
        columns.conformed(other)


def test_the_page_has_a_row_for_each_column_in_order() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (int\d\d|string|timestamp) \|", PAGE.read_text(), re.M)
    assert tuple(rows) == columns.COLUMNS


@pytest.mark.parametrize("late_us", [-1_000, 0, 1, 40_000_000, 10**12])
def test_the_first_event_at_a_wall_time(late_us: int) -> None:
    events = chance(3, 50)
    rows = list(naive(events))
    wall_us = WALL_US + late_us
    walls = [round(row["wall_time"].timestamp() * 1e6) for row in rows]
    expected = next((place for place, wall in enumerate(walls) if wall >= wall_us), None)
    assert events.first_at_wall(wall_us) == expected
    assert columns.first_at_wall(columns.encode(events)[0].payload, wall_us) == expected
