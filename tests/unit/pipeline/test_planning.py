"""Where reading begins when not all nodes answer."""

import logging

import pytest

from beanpole.client.events import EventsLost, Extent
from pyspark_beanpole.logs import log
from pyspark_beanpole.planning import kept

SILENT = {"n1:1": "UNAVAILABLE: down"}


def extent(failures: dict[str, str]) -> Extent:
    return Extent("c", 40, 60, 60, {}, {}, failures)


@pytest.mark.parametrize("failures", [{}, SILENT])
def test_events_are_lost_for_certain_only_if_all_nodes_say_so(failures: dict[str, str]) -> None:
    with pytest.raises(EventsLost) as raised:
        kept(extent(failures), 39, 60, fail_on_data_loss=True)
    assert raised.value.certain is (not failures)
    assert ("n1:1: UNAVAILABLE" in str(raised.value)) is bool(failures)


def test_passing_over_them_names_who_may_have_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, log.name):
        assert kept(extent(SILENT), 39, 60, fail_on_data_loss=False) == 40
        assert kept(extent(SILENT), 40, 60, fail_on_data_loss=False) == 40
    assert [record.getMessage() for record in caplog.records] == [
        "events 39 to 40 are gone; reading from there",
        "nodes that did not answer may have earlier events: n1:1: UNAVAILABLE: down",
    ]
