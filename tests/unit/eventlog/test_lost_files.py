"""Exports some of whose files were lost or damaged since they were written."""

import json
from pathlib import Path

import pytest

from beanpoled.cli import exits
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_export import command, manifest
from tests.unit.eventlog.test_service import history


def test_lost_events_are_counted_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers refuse such a directory: a job that only looks at the status must notice it, too."""
    out = tmp_path / "out"
    entries = history(5)
    for count in (3, 5):  # the events 0 to 60, and to 120
        with serving(Server(life_of(entries[:count]))) as addresses:
            assert command(addresses, out) == 0
    first, *others = sorted(out.rglob("*.parquet"), key=lambda path: path.name)
    first.write_bytes(first.read_bytes()[:-100])
    lost = int(first.stem[-20:])
    capsys.readouterr()
    with serving(Server(life_of(entries))) as addresses:
        for _ in range(2):
            assert command(addresses, out) == exits.EXIT_NO_ANSWER
            said, last = capsys.readouterr().err.splitlines()
            assert said.startswith(f"lost since it was written: {out}/date=")
            assert last.endswith(f" events written; {out} has 0 to 150; {lost} of them are lost")
        for path in others:
            path.unlink()
        assert command(addresses, out) == exits.EXIT_NO_ANSWER
        assert capsys.readouterr().err.endswith("has 0 to 150; 120 of them are lost\n")


def test_a_range_that_release_0_3_0_lost_becomes_a_hole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    entries = history(5)
    for count in (2, 4, 5):
        with serving(Server(life_of(entries[:count]))) as addresses:
            assert command(addresses, out) == 0
    said = manifest(out)
    kept = {name: said[name] for name in ("cluster", "jobs_before", "spans")}
    (out / "_manifest.json").write_text(json.dumps({"version": 1, **kept}))
    files = sorted(out.rglob("*.parquet"), key=lambda path: path.name)
    first, end = map(int, files[1].stem.split("-")[1:])
    files[1].unlink()
    capsys.readouterr()
    with serving(Server(life_of(entries))) as addresses:
        assert command(addresses, out) == exits.EXIT_NO_ANSWER
        assert capsys.readouterr().err.endswith(f"has 0 to {first}, {end} to 150\n")
        assert command(addresses, out) == 0, "the manifest has a hole, as for events that are gone"
