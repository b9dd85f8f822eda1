"""The first offset of a read if not all nodes answer."""

import logging
from collections.abc import Iterator

import pytest

from beanpole.client.events import Events, EventsLost, Extent
from beanpole.errors import ClientError
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import for_batch
from pyspark_beanpole.planning import Range, bounds, kept
from pyspark_beanpole.readers import batches
from pyspark_beanpole.schema import EVENTS
from tests.pipeline.double import Double, Log

SILENT = {"n1:1": "UNAVAILABLE: down"}


def extent(failures: dict[str, str]) -> Extent:
    return Extent("c", 40, 60, 60, {}, {}, failures)


@pytest.mark.parametrize("failures", [{}, SILENT])
def test_events_are_lost_for_certain_only_if_all_nodes_say_so(failures: dict[str, str]) -> None:
    with pytest.raises(EventsLost) as raised:
        kept(extent(failures), 39, 60, fail_on_data_loss=True)
    assert raised.value.certain is (not failures)
    assert ("n1:1: UNAVAILABLE" in str(raised.value)) is bool(failures)


def test_they_are_passed_over_only_if_all_nodes_say_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, log.name):
        assert kept(extent({}), 39, 60, fail_on_data_loss=False) == 40
        assert kept(extent(SILENT), 40, 60, fail_on_data_loss=False) == 40
    assert [record.getMessage() for record in caplog.records] == [
        "events 39 to 40 are gone; reading from there"
    ]
    with pytest.raises(EventsLost, match="n1:1: UNAVAILABLE: down") as raised:
        kept(extent(SILENT), 39, 60, fail_on_data_loss=False)
    assert not raised.value.certain


def test_a_time_and_a_task_pass_over_events_only_if_all_nodes_say_so(pruned: Double) -> None:
    both = {"addresses": f"{pruned.address},127.0.0.1:1", "failOnDataLoss": "false"}
    with pytest.raises(EventsLost, match="may be gone") as raised:
        bounds_of(pruned, **both, startingTimestamp="2026-01-31T12:00:10")
    assert not raised.value.certain
    read = for_batch({**both, "patienceSeconds": "0"})
    with pytest.raises(ClientError, match=r"from offset 0 on are gone.*; 127\.0\.0\.1:1") as unsure:
        list(batches(Range(0, 60, read.addresses), read, EVENTS))
    assert type(unsure.value) is ClientError, "a stream waits after this error of a task"
    read = for_batch({**both, "addresses": pruned.address})
    rows = list(batches(Range(0, 60, read.addresses), read, EVENTS))
    assert sum(piece.num_rows for piece in rows) == 20


@pytest.fixture
def pruned() -> Iterator[Double]:
    """A node whose earliest event is that of 12:00:40."""
    whole = Log()
    whole.grow(60)
    node = Double(whole)
    node.first = 40
    yield node
    node.stop()


def bounds_of(node: Double, **options: str) -> tuple[int, int]:
    read = for_batch({"addresses": node.address, **options})
    with Events(read.addresses, patience_s=0) as events:
        return bounds(events, read)[1:]


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "2026-01-31T12:00:39.999999"},
        {"startingTimestamp": "0"},
        {
            "startingTimestamp": "2026-01-31T12:00:10",
            "endingTimestamp": "2026-01-31T12:00:20",
        },
    ],
)
def test_a_time_whose_events_are_gone_is_no_silent_hole(
    pruned: Double, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    words = r"may be gone: the earliest offset that is kept is 40, at 2026-01-31T12:00:40\+00:00$"
    with pytest.raises(EventsLost, match=words) as raised:
        bounds_of(pruned, **options)
    assert (raised.value.first, raised.value.kept) == (39, 40)
    first, end = bounds_of(pruned, **options, failOnDataLoss="false")
    assert (first, end) == (40, 40 if "endingTimestamp" in options else 60)
    assert "may be gone; reading from 40" in caplog.text


@pytest.mark.parametrize("time", ["2026-01-31T12:00:20", "2026-01-31T12:00:29.999999"])
def test_a_time_within_lost_events_is_no_silent_hole(
    pruned: Double, time: str, caplog: pytest.LogCaptureFixture
) -> None:
    pruned.first, pruned.missing = 0, range(20, 30)
    words = r"gone: the first offset since then that is kept is 30, at 2026-01-31T12:00:30\+00:00$"
    for ending in ({}, {"endingTimestamp": "2026-01-31T12:00:25"}):
        with pytest.raises(EventsLost, match=words) as raised:
            bounds_of(pruned, startingTimestamp=time, **ending)
        assert (raised.value.first, raised.value.kept) == (29, 30)
    assert bounds_of(pruned, startingTimestamp=time, failOnDataLoss="false") == (30, 60)
    assert "may be gone; reading from 30" in caplog.text
    # No event from before these times is needed.
    assert bounds_of(pruned, startingTimestamp="2026-01-31T12:00:30") == (30, 60)
    assert bounds_of(pruned, startingTimestamp="2026-01-31T12:00:19") == (19, 60)
    pruned.missing = range(50, 60)
    with pytest.raises(EventsLost, match=r"kept is 60$"):
        bounds_of(pruned, startingTimestamp="2026-01-31T12:00:50")


def test_a_time_within_a_gap_of_one_node_is_read_from_another(pruned: Double) -> None:
    pruned.first, pruned.missing = 0, range(20, 30)
    other = Double(pruned.log)
    other.missing = range(40, 50)
    addresses = f"{pruned.address},{other.address}"
    try:
        for second in (20, 25, 29, 30, 40, 45, 50):
            time = f"2026-01-31T12:00:{second}"
            assert bounds_of(pruned, addresses=addresses, startingTimestamp=time) == (second, 60)
    finally:
        other.stop()


def test_a_time_at_which_all_events_are_kept_needs_no_earlier_ones(pruned: Double) -> None:
    assert bounds_of(pruned, startingTimestamp="2026-01-31T12:00:40") == (40, 60)
    assert bounds_of(pruned, startingTimestamp="2026-01-31T12:00:40.000001") == (41, 60)
    pruned.first = 0
    assert bounds_of(pruned, startingTimestamp="0") == (0, 60)
    assert bounds_of(pruned, endingTimestamp="0") == (0, 0)


@pytest.mark.parametrize(
    ("first", "options", "expected", "warns"),
    [
        (40, {}, 40, True),
        (0, {}, 0, False),
        (40, {"startingTimestamp": "2026-01-31T12:00:50"}, 50, True),
        (40, {"startingOffsets": "50"}, 50, False),
        (40, {"startingOffsets": "latest"}, 60, False),
    ],
)
def test_the_earliest_of_some_nodes_is_doubted(
    first: int,
    options: dict[str, str],
    expected: int,
    warns: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_of_events = Log()
    log_of_events.grow(60)
    node = Double(log_of_events)
    node.first = first
    addresses = f"{node.address},127.0.0.1:1"
    read = for_batch({"addresses": addresses, **options})
    try:
        with Events(read.addresses, patience_s=0) as events:
            extent, begin, end = bounds(events, read)
    finally:
        node.stop()
    assert (extent.cluster, end) == ("double", 60)
    assert begin == expected
    said = [record.getMessage() for record in caplog.records]
    assert [words.split(": ")[1] for words in said] == ["127.0.0.1:1"] * warns
