"""How `beanpole events export` ends: by a signal, or because the nodes refuse it.

Its files are tested beside the event log, in `tests/unit/eventlog/test_export.py`.
"""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from beanpole.client.rpc import Refused
from beanpole.pb import events_pb2
from beanpoled.cli import events, main
from beanpoled.eventlog.source import Source
from beanpoled.rpc.events import EventsServicer
from beanpoled.rpc.server import Context
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_service import history

ROWS = 10


def export(addresses: list[str], directory: Path, *more: str) -> int:
    places = ["--addresses", ",".join(addresses), "--to", str(directory)]
    return main(["events", "export", *places, *more])


def signalled(monkeypatch: pytest.MonkeyPatch, number: int, after: int) -> None:
    """Let the process get a signal while it writes the batch with the event `after`."""

    def read(self: Source, start: int, end: int) -> Iterator[Any]:
        for first in range(start, end, ROWS):
            for batch in whole(self, first, min(first + ROWS, end)):
                if first <= after < first + ROWS:
                    os.kill(os.getpid(), number)
                yield batch

    whole = Source.read
    monkeypatch.setattr(Source, "read", read)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_cuts_it_short_is_its_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    status: int,
) -> None:
    with serving(Server(life_of(history(5)))) as addresses:
        signalled(monkeypatch, number, after=15)
        assert export(addresses, tmp_path / "out") == status
        assert capsys.readouterr().err == f"20 events written; {tmp_path / 'out'} has 0 to 20\n"
        assert export(addresses, tmp_path / "out") == 0
        assert capsys.readouterr().err == f"130 events written; {tmp_path / 'out'} has 0 to 150\n"


@pytest.mark.parametrize(
    ("after", "more"), [(149, []), (15, ["--follow"])], ids=["at the end", "with --follow"]
)
def test_a_signal_that_leaves_nothing_undone_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, more: list[str]
) -> None:
    with serving(Server(life_of(history(5)))) as addresses:
        signalled(monkeypatch, signal.SIGTERM, after)
        assert export(addresses, tmp_path / "out", *more) == 0


class Refusing(Server):
    """A node that knows the caller's token no more."""

    def servicer(self) -> EventsServicer:
        class Servicer(EventsServicer):
            async def EventRange(
                self, request: events_pb2.EventRangeRequest, context: Context
            ) -> events_pb2.EventRangeReply:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no user has this token")

        return Servicer(self._config, self.life.host, self.life.log, lambda: self.birth)


def test_an_export_that_follows_ends_where_it_is_refused(tmp_path: Path) -> None:
    """It would have waited for ever, with a line for each of the nodes in turn."""
    life = life_of(history(5))
    with serving(Server(life), Refusing(life)) as (open_to_all, closed):
        with Source([open_to_all]) as source:
            run = events._Run(source, str(tmp_path / "out"), None, 1.0, threading.Event())
            assert run.catch_up()
        with Source([closed]) as source, pytest.raises(Refused, match="no user has this token"):
            run._source = source
            run.follow()
        run.close()
