"""The verdict of a soak on histories that were made up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import checks, record
from chaos.record import Op, Writer
from chaos.soak import Soak

HEAD = record.make_head(0, 1, 600, 60)
PUT = Op(0, 0, record.PUT, 0.0, 1.0, 1, "INSERTED", HEAD, "put 0 0 600 60", "red")


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    """Return a soak in which one job was acknowledged, and never seen again."""
    made = Soak(tmp_path, 1, 0.0, lambda _: None)
    writer = Writer(tmp_path / "history", 0)
    writer.write(PUT)
    writer.close()
    yield made
    made._ground.close()


def test_nodes_that_have_forgotten_all_jobs_have_lost_them(soak: Soak) -> None:
    """They agree, on no job at all: that is not the same as a queue without a count."""
    soak._total_jobs = 0
    soak._judge(1.0, [])
    assert "job 1 was acknowledged and is lost" in soak.findings
    assert "total-jobs is 0, with 1 acknowledged and 0 unknown puts" in soak.findings


def test_jobs_of_a_queue_that_was_not_emptied_are_not_lost(soak: Soak) -> None:
    soak._ground.findings.append("it ended early")
    soak._judge(1.0, [])
    assert soak.findings == []


def test_a_history_that_cannot_be_judged_is_not_good(
    soak: Soak, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checks.judge([[PUT]])
    found.verdict.lost.clear()
    found.undecided.append("the history of job 1 is too long to judge")
    monkeypatch.setattr(checks, "judge", lambda _: found)
    soak._total_jobs = 1
    soak._judge(1.0, [])
    assert [line.split(",")[0] for line in soak.findings] == ["1 of 1 jobs were not judged"]
