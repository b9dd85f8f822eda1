"""The first offset of a read if not all nodes answer."""

import logging

import pytest

from beanpole.client.events import Events, EventsLost, Extent
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import for_batch
from pyspark_beanpole.planning import bounds, kept
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


def test_passing_over_them_names_nodes_that_may_have_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, log.name):
        assert kept(extent(SILENT), 39, 60, fail_on_data_loss=False) == 40
        assert kept(extent(SILENT), 40, 60, fail_on_data_loss=False) == 40
    assert [record.getMessage() for record in caplog.records] == [
        "events 39 to 40 are gone; reading from there",
        "nodes that did not answer may have earlier events: n1:1: UNAVAILABLE: down",
    ]


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
            cluster, begin, end = bounds(events, read)
    finally:
        node.stop()
    assert (cluster, end) == ("double", 60)
    assert begin == expected
    said = [record.getMessage() for record in caplog.records]
    assert [words.split(": ")[1] for words in said] == ["127.0.0.1:1"] * warns
