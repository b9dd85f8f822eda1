"""The proof by the last event of an export, where a file or the nodes lack a part of it."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from beanpole.errors import ConfigurationError
from beanpole.exporting import last_event
from beanpole.exports import BadExport
from beanpoled.eventlog.source import Source

EVENT = pa.RecordBatch.from_pylist([dict.fromkeys(last_event.COLUMNS, 0)])
PART = EVENT.select([name for name in last_event.COLUMNS if name != "wall_time"])


def check(
    monkeypatch: pytest.MonkeyPatch, mine: pa.RecordBatch, theirs: pa.RecordBatch | None
) -> None:
    manifest: Any = SimpleNamespace(files=[SimpleNamespace(end=1)], cluster="stage")
    place: Any = SimpleNamespace(name="out")
    monkeypatch.setattr(last_event, "read_file", lambda *of: iter([mine]))
    last_event.check_last_event(place, manifest, lambda offset: theirs, "0a" * 16)


def test_a_file_without_a_column_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch, EVENT, EVENT)
    with pytest.raises(ConfigurationError, match="none of its files can be read"):
        check(monkeypatch, PART, EVENT)


def test_an_event_of_a_node_without_a_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadExport, match="an event has no column wall_time"):
        check(monkeypatch, EVENT, PART)


def test_a_node_that_sends_no_event_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with Source(["127.0.0.1:1"]) as source:
        monkeypatch.setattr(source, "read", lambda first, end: iter(()))
        assert source.event_at(7) is None
