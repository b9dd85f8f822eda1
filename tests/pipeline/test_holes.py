"""New directories that begin at a hole in the events that all nodes have, or behind it."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beanpole.client.events import Events, EventsLost
from beanpole.exports import STATES
from beanpoled.cli import main
from pyspark_beanpole.streaming import batches
from pyspark_beanpole.streaming.stream import Settings, Stream
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log
from tests.pipeline.histories import History
from tests.pipeline.test_streaming import catch_up, offsets, run_here

HOLE = range(100, 150)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "run", run_here)


def jobs_after(events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the number of jobs in each state after some events from the first one on."""
    states = Counter({one["job_id"]: one["state"] for one in events}.values())
    return {state: states[state] for state in STATES}


@pytest.fixture
def node(start: Start) -> Double:
    """A node that lacks HOLE, as all do: another one only lacks more."""
    log = Log(events=History(10).run(300).events)
    log.jobs = jobs_after(log.events)
    found = start(log)
    found.missing = HOLE
    return found


def stream(node: Double, directory: Path, begin: int, *, skip_lost: bool = False) -> Stream:
    settings = Settings(
        str(directory), (node.address,), 1, str(begin), 1000, skip_lost, statistics=False
    )
    return Stream(settings, Events([node.address], 1))


def jobs_before(directory: Path) -> Any:
    return json.loads((directory / "_manifest.json").read_text())["jobs_before"]


@pytest.mark.parametrize("begin", [150, 220])
def test_an_export_and_a_stream_begin_behind_a_hole(
    node: Double, begin: int, tmp_path: Path
) -> None:
    wanted = jobs_after(node.log.events[:begin])
    where = ["--addresses", node.address, "--to", str(tmp_path / "export")]
    assert main(["events", "export", *where, "--start", str(begin)]) == 0
    assert jobs_before(tmp_path / "export") == wanted
    with closing(stream(node, tmp_path / "stream", begin)) as found:
        found.open()
        catch_up(found)
    assert jobs_before(tmp_path / "stream" / "events") == wanted
    assert offsets(tmp_path / "stream") == list(range(begin, 300))


def test_within_a_hole_only_a_stream_that_skips_it_begins(
    node: Double, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--addresses", node.address, "--to", str(tmp_path / "export")]
    assert main(["events", "export", *where, "--start", "120"]) == 3
    said = capsys.readouterr().err
    assert "from offset 120 on are gone: the earliest after it that is kept is 150" in said
    words = "from offset 120 on are gone"
    refused = stream(node, tmp_path / "stream", 120)
    with closing(refused), pytest.raises(EventsLost, match=words):
        refused.open()
    with closing(stream(node, tmp_path / "stream", 120, skip_lost=True)) as found:
        found.open()
        catch_up(found)
    assert jobs_before(tmp_path / "stream" / "events") == jobs_after(node.log.events[:150])
    assert offsets(tmp_path / "stream") == list(range(150, 300))


def test_counts_behind_a_hole_are_never_negative(node: Double, tmp_path: Path) -> None:
    """Further holes would make them so, and no manifest can have such a number."""
    node.log.jobs = {"ready": 1}
    with closing(stream(node, tmp_path / "stream", 150, skip_lost=True)) as found:
        found.open()
        catch_up(found)
    assert min(jobs_before(tmp_path / "stream" / "events").values()) == 0
