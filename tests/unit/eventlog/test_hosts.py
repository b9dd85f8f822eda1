"""Hosts in the event log: batches have the column from machine version 4 on."""

import json
from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.storage.format import FILE_HEADER_BYTES
from beanpoled.eventlog import columns
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.source import Source
from tests.unit.eventlog.made import WALL_US, Driver
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_store import Life

HOST = b"10.0.0.1"
BEFORE, AFTER = 60, 70


def history(version: int = HOSTS_SINCE) -> list[tuple[Any, ...]]:
    """Make jobs of a session opened before the raise, and of one opened after it."""
    driver = Driver()
    driver.put(BEFORE)
    raising = (c.LEADER, 0, 0, ((c.RAISE, version),))
    driver.apply((driver.machine.index + 1, 0, driver.machine.queue.now_us, WALL_US, [raising]))
    driver.do((c.OPEN, 2) if version < HOSTS_SINCE else (c.OPEN_FROM, 2, HOST))
    driver.do(*[(c.PUT, 2, b"work", 5, 0, 60, b"body")] * AFTER)
    return driver.entries


def versions_of(life: Life) -> list[tuple[int, bool]]:
    """Return for each segment's file: the version in its index, and whether it has the column."""
    found = []
    for name in life.host.files.list(life.log.directory):
        handle = life.host.files.open(f"{life.log.directory}/{name}")
        part = life.log.part(int(name.split("-")[0]))
        assert isinstance(part, segments.EventSegment)
        last = part.places[-1]
        index = handle.read(last.at + last.size, handle.size() - last.at - last.size - 8)
        batch = columns.from_stream(segments.read(handle, part, part.places[0]))
        found.append((json.loads(index)[0], "host" in batch.schema.names))
    return found


def rows(addresses: list[str]) -> list[dict[str, Any]]:
    with Source(addresses) as source:
        batches = list(source.read(0, BEFORE + AFTER))
    assert all(batch.schema == columns.schema() for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_segment_from_before_the_raise_is_as_the_last_release_wrote_it() -> None:
    life = life_of(history())
    assert versions_of(life) == [(1, False), (2, True)]
    old = life_of(history(HOSTS_SINCE - 1))
    assert versions_of(old) == [(1, False), (1, False)]
    first = life.host.files.list(life.log.directory)[0]
    assert first == old.host.files.list(old.log.directory)[0]
    assert whole(life, first) == whole(old, first)


def whole(life: Life, name: str) -> bytes:
    handle = life.host.files.open(f"{life.log.directory}/{name}")
    return handle.read(FILE_HEADER_BYTES, handle.size() - FILE_HEADER_BYTES)


def test_readers_see_one_schema_and_the_hosts_from_any_node() -> None:
    """The nodes sealed at different moments: in files, across the raise, and not at all."""
    sealed, late = life_of(history()), life_of(history(), event_segment_bytes=12_000)
    memory = life_of(history(), event_segment_bytes=10**6)
    assert versions_of(late) == [(2, True)]
    assert versions_of(memory) == []
    with serving(Server(sealed), Server(late), Server(memory)) as addresses:
        found = [rows([address]) for address in addresses]
    assert found[0] == found[1] == found[2]
    hosts = [row["host"] for row in found[0]]
    assert hosts == [None] * BEFORE + [HOST.decode()] * AFTER


def test_both_versions_are_found_after_a_restart() -> None:
    life = life_of(history())
    again = life.crash()
    for entry in history():
        again.driver.apply(entry)
    again.settle()
    assert versions_of(again) == [(1, False), (2, True)]
    assert again.log.spans() == [(0, BEFORE + AFTER)]


@pytest.mark.parametrize("version", [HOSTS_SINCE - 1, HOSTS_SINCE])
def test_what_is_in_memory_has_the_column_by_the_machines_version(version: int) -> None:
    """A reader of the last release rejects unknown columns, while a downgrade is still possible."""
    life = life_of(history(version), event_segment_bytes=10**6)
    with serving(Server(life)) as addresses, Source(addresses) as source:
        batches = [columns.from_stream(piece.arrow) for piece in source._events.read(0, 9)]
    wanted = columns.schema(with_newer=version >= HOSTS_SINCE)
    assert {batch.schema for batch in batches} == {wanted}
