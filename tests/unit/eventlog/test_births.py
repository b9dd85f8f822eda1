"""Exports of clusters of the same name: one of them was restored, recovered or begun anew."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beanpole import exports
from beanpole.client.events import BegunAnew, Behind, OtherCluster
from beanpole.errors import ConfigurationError
from beanpole.exports import parsed, written
from beanpoled import cli
from beanpoled.cli import events, exits
from beanpoled.eventlog.export import compact, open_export
from beanpoled.eventlog.source import Source
from tests.unit.eventlog.made import SECOND_US, Driver
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_export import command, life_from, manifest, offsets
from tests.unit.eventlog.test_service import history

OLD, NEW = "0a" * 16, "0b" * 16


def server(batches: int, birth: str, tube: bytes = b"a", step_us: int = SECOND_US) -> Server:
    """Return a node with 30 events for each batch of puts."""
    driver = Driver()
    driver.step_us = step_us
    for _ in range(batches):
        driver.put(30, tube)
    return Server(life_of(driver.entries), birth=birth)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[str]:
    """The address of the old cluster, of which there is an export in `out`."""
    with serving(server(9, OLD)) as (address,):
        assert command([address], tmp_path / "out") == 0
        yield address


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def forget_birth(directory: Path) -> None:
    """Write the manifest as a program without birth ids would."""
    path = directory / "_manifest.json"
    path.write_text(written(parsed(path.read_bytes(), "")._replace(birth="")))


def test_another_cluster_of_the_name_is_refused_though_it_has_more_events(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert manifest(out)["birth"] == OLD
    before = files_of(out)
    for more in ([], ["--start", "earliest"], ["--start", "300"]):
        with serving(server(12, NEW)) as addresses:
            assert command(addresses, out, *more) == exits.EXIT_REFUSED
        error = capsys.readouterr().err
        assert f"{out} holds events of the cluster stage with the birth id {OLD}" in error
        assert f"of the one with the birth id {NEW}" in error
        assert "give a new directory" in error
        assert files_of(out) == before
    assert command([old], out) == 0, "its own cluster goes on"


def test_a_directory_without_events_is_refused_too(tmp_path: Path) -> None:
    with serving(server(0, OLD), server(3, NEW)) as (first, second):
        assert command([first], tmp_path / "out") == 0
        assert command([second], tmp_path / "out") == exits.EXIT_REFUSED
        assert command([first], tmp_path / "out") == 0
    assert manifest(tmp_path / "out")["birth"] == OLD


def test_an_older_export_gets_the_birth_id_when_its_events_are_those_of_the_cluster(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    forget_birth(out)
    with serving(server(8, NEW), server(9, "")) as (short, silent):
        # Another cluster that is refused for its length leaves no trace.
        assert command([short], out) == exits.EXIT_REFUSED
        assert "has events to 270, and the cluster has only 240" in capsys.readouterr().err
        assert "birth" not in manifest(out)
        assert command([silent], out) == 0
        assert "birth" not in manifest(out)
        assert command([old], out) == 0
        assert manifest(out)["birth"] == OLD
        assert command([silent], out) == 0
        assert manifest(out)["birth"] == OLD, "a node of an older release leaves it as it is"
    compact(str(out), "")
    assert manifest(out)["birth"] == OLD


def of_release_0_3(directory: Path) -> None:
    """Write the manifest of version 1, which has no list of files and no birth id."""
    said = manifest(directory)
    kept = {name: said[name] for name in ("cluster", "jobs_before", "spans")}
    (directory / "_manifest.json").write_text(json.dumps({"version": 1, **kept}))


@pytest.mark.parametrize("forget", [forget_birth, of_release_0_3])
def test_an_export_without_a_birth_id_is_not_given_to_another_cluster(
    forget: Callable[[Path], None],
    old: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The offsets of the other cluster fit, its events do not."""
    out = tmp_path / "out"
    forget(out)
    before = offsets(out)
    for birth, batches in (NEW, 12), (NEW, 9), ("", 12):
        with serving(server(batches, birth, step_us=2 * SECOND_US)) as addresses:
            assert command(addresses, out) == exits.EXIT_REFUSED
            assert command(addresses, out, "--follow") == exits.EXIT_REFUSED
        error = capsys.readouterr().err
        assert f"{out} holds events of another cluster of the name stage: its event 269 " in error
        assert "give a new directory" in error
        assert "birth" not in manifest(out)
        assert offsets(out) == before
    assert command([old], out) == 0
    assert manifest(out)["birth"] == OLD


def test_an_export_that_cannot_be_compared_gets_no_birth_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last event is in no file that can be read, or no node keeps it any more."""
    out = tmp_path / "out"
    entries = history()
    with serving(Server(life_of(entries[:4]))) as addresses:
        assert command(addresses, out) == 0
    with serving(Server(life_from(entries, 7), birth=OLD)) as addresses:
        assert command(addresses, out, "--start", "earliest") == exits.EXIT_REFUSED
        assert "no birth id, and no node keeps its last event 89" in capsys.readouterr().err
    for path in out.rglob("*.parquet"):
        path.write_bytes(bytes(path.stat().st_size))
    with serving(Server(life_of(entries), birth=OLD)) as addresses:
        assert command(addresses, out) == exits.EXIT_REFUSED
        assert "no birth id, and none of its files can be read" in capsys.readouterr().err
    assert manifest(out)["spans"] == [[0, 90]]
    assert "birth" not in manifest(out)


def test_an_export_that_follows_does_not_go_on_with_another_cluster(tmp_path: Path) -> None:
    """The nodes tell their birth id late, and the events that were read are not in a file yet."""
    node, other = server(3, ""), server(4, NEW, step_us=2 * SECOND_US)
    out = tmp_path / "out"
    with serving(node, other) as (first, second), Source([first]) as source:
        run = events._Run(source, str(out), None, 1.0, threading.Event())
        run.catch_up()
        with Source([second]) as run._source, pytest.raises(ConfigurationError, match="its event"):
            run.follow()
        run.close()
    assert offsets(out) == list(range(90))
    assert "birth" not in manifest(out)


def test_an_export_that_follows_writes_the_birth_id_down_once_it_is_told(tmp_path: Path) -> None:
    """Else a run of months that began with nodes of 0.3.0 would end without it."""
    node = server(3, "")
    out = tmp_path / "out"
    with serving(node) as addresses, Source(addresses) as source:
        run = events._Run(source, str(out), None, 1.0, threading.Event())
        run.catch_up()
        assert "birth" not in manifest(out)
        node.birth = OLD
        run.follow()
        assert manifest(out)["birth"] == OLD
        node.birth = NEW
        with pytest.raises(ConfigurationError, match=f"{NEW}, not of the one with {OLD}"):
            run.follow()
        run.close()
    assert offsets(out) == list(range(90))


def test_a_reader_does_not_go_on_with_another_cluster_of_the_name() -> None:
    node = server(3, OLD)
    with serving(node) as addresses, Source(addresses) as source:
        source.ranges()
        node.birth = NEW
        with pytest.raises(BegunAnew, match="restored, recovered or begun anew"):
            next(iter(source.read(0, 90)))


def test_nodes_of_both_clusters_are_not_read_together(tmp_path: Path) -> None:
    with serving(server(3, OLD), server(3, NEW), server(3, "")) as (first, second, silent):
        with (
            Source([first, second]) as source,
            pytest.raises(OtherCluster, match=f"{first} has {OLD}, {second} has {NEW}"),
        ):
            source.ranges()
        with Source([silent, first]) as source:
            assert source.extent(source.ranges()).birth == source.birth == OLD


def test_a_directory_is_claimed_by_one_cluster_of_the_name(old: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="give a new directory"):
        open_export(str(tmp_path / "out"), "stage", NEW)
    found = open_export(str(tmp_path / "out"), "stage", OLD)
    assert found is not None
    with pytest.raises(ConfigurationError, match="give a new directory"):
        found.claim(NEW, lambda _: None)
    found.close()


def test_keys_of_later_programs_are_no_error(old: str, tmp_path: Path) -> None:
    path = tmp_path / "out" / "_manifest.json"
    body: dict[str, Any] = {**json.loads(path.read_text()), "later": [1]}
    del body["checksum"]
    path.write_text(json.dumps({**body, "checksum": exports._checksum(body)}))
    assert parsed(path.read_bytes(), "").birth == OLD
    assert cli.main(["events", "compact", str(tmp_path / "out")]) == 0


def test_a_node_tells_its_birth_id() -> None:
    with serving(Server(life_of(history()), birth=OLD)) as addresses, Source(addresses) as source:
        assert [reply.birth for reply in source.ranges().values()] == [OLD]


def test_an_export_that_follows_waits_for_nodes_that_read_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a start a node has only the events of its files for a while."""
    with serving(server(3, OLD)) as addresses, Source(addresses) as source:
        run = events._Run(source, str(tmp_path / "out"), None, 1.0, threading.Event())
        run.catch_up()
        here, run._position = run._position, 120
        with pytest.raises(Behind, match=r"offset 120 lies beyond the events .* which end at 90"):
            run.catch_up()
        for _ in range(3):
            run.follow()
        assert capsys.readouterr().err.count("waiting: the nodes do not have the events") == 1
        run._position = here
        run.follow()
        run._position = 120
        run.follow()
        monkeypatch.setattr(events, "BEHIND_PATIENCE_S", 0.0)
        with pytest.raises(ConfigurationError, match="offset 120 lies beyond the events"):
            run.follow()
        run.close()


def test_an_export_that_follows_ends_where_nodes_are_of_two_clusters(tmp_path: Path) -> None:
    first, second = server(3, OLD), server(3, OLD)
    with serving(first, second) as addresses, Source(addresses) as source:
        run = events._Run(source, str(tmp_path / "out"), None, 1.0, threading.Event())
        run.catch_up()
        second.birth = NEW
        with pytest.raises(OtherCluster, match="are of several clusters"):
            for _ in range(100):  # a node that answers late is not asked for its birth id
                run.follow()
        run.close()
