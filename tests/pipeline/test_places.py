"""Directories that a stream must not write to, because something else is there."""

from contextlib import closing
from pathlib import Path

import pytest

from beanpole.client.events import Events
from beanpole.errors import ConfigurationError
from beanpole.exporting.directory import read_manifest
from beanpole.places import resolved
from pyspark_beanpole.streaming.stream import Settings, Stream
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log, event
from tests.pipeline.exported import write_export


def open_stream(node: Double, directory: Path) -> None:
    """Open a stream into a directory, and close it."""
    settings = Settings(str(directory), (node.address,), 1, "earliest", 100, False, True)
    with closing(Stream(settings, Events([node.address], 1))) as stream:
        stream.open()


def test_a_directory_without_a_birth_id_is_not_given_to_another_cluster(
    start: Start, tmp_path: Path
) -> None:
    """The offsets of the other cluster fit, its events do not."""
    own, other = Log(birth="0a"), Log(birth="0b")
    own.grow(90)
    other.events = [event(offset, log_index=offset + 7) for offset in range(120)]
    write_export(tmp_path / "events", own.events[:60])
    with pytest.raises(ConfigurationError, match="its event 59 has log_index = 30, that of the"):
        open_stream(start(other), tmp_path)
    open_stream(start(own), tmp_path)
    manifest = read_manifest(resolved(str(tmp_path / "events")))
    assert manifest is not None
    assert manifest.birth == "0a"
