"""Directories that a command must not write to, because something else is there."""

from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from beanpole.client.events import Events
from beanpole.errors import ConfigurationError
from beanpole.exporting.directory import read_manifest
from beanpole.places import resolved
from beanpoled.cli import main
from pyspark_beanpole.report.page import empty_page, is_page
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


def files_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_stream_leaves_an_export_alone(start: Start, tmp_path: Path) -> None:
    log = Log()
    log.grow(90)
    write_export(tmp_path, log.events)
    before = files_of(tmp_path)
    words = "has a _manifest.json, so it is an export of events; .* give another directory"
    with pytest.raises(ConfigurationError, match=words):
        open_stream(start(log), tmp_path)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("command", ["report", "audit"])
def test_an_export_is_no_place_for_a_report(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    log.grow(5)
    write_export(tmp_path, log.events)
    before = files_of(tmp_path)
    where = ["--from", str(tmp_path), "--to", str(tmp_path)]
    assert main(["pipeline", command, *where]) == 2
    words = "has a _manifest.json, so it is an export of events: give another directory\n"
    assert capsys.readouterr().err == f"beanpole: --to {tmp_path} {words}"
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("text", ["", "mine", "<!doctype html><title>Our beans</title>"])
def test_a_report_does_not_replace_another_page(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "index.html").write_text(text)
    where = ["--from", str(tmp_path / "no export"), "--to", str(tmp_path)]
    assert main(["pipeline", "report", *where]) == 2
    assert "has an index.html that is not the page of a report" in capsys.readouterr().err
    assert (tmp_path / "index.html").read_text() == text


@pytest.mark.parametrize("cluster", ["", "double"])
def test_a_report_replaces_its_own_page(cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(empty_page(cluster, None, None, ()))
    with path.open("rb") as file:
        assert is_page(file)
    # That of release 0.3.0 for a cluster without a name.
    old: BinaryIO = BytesIO(b"<!doctype html><html><head><title>Beanpole</title></head></html>")
    assert is_page(old)
