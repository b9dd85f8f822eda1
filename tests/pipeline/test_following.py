"""The schedule of a stream's batches, its retries and its messages, without Spark and nodes."""

import argparse
import io
from collections.abc import Callable
from typing import Any

import pytest

from beanpole.client.events import EventsLost, OtherCluster
from beanpole.errors import ClientError, StorageError
from pyspark_beanpole.cli import failures, stream
from pyspark_beanpole.progress import Progress, StreamLine, words

ROWS = 100
EVERY_S = 60
DOWN = ClientError("no node answers: a:1: UNAVAILABLE")


class Stop(Exception):
    """Ends the stream under test."""


class Fake:
    """A stream with a script: successive ends of the cluster's events, or errors."""

    def __init__(self, position: int, *script: int | Exception) -> None:
        self.position = position
        self.script = list(script)
        self.end = 0
        self.error: Exception | None = None
        self.batches: list[tuple[int, int]] = []
        self.refreshed = self.compacted = 0
        self.written = position

    def end_now(self) -> int:
        if not self.script:
            raise Stop
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        self.end = found
        return found

    def step(self, spark: object, end: int) -> int:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        first, self.position = self.position, min(end, self.position + ROWS)
        self.batches.append((first, self.position))
        return self.position - first

    def compact(self) -> None:
        self.compacted += 1

    def touch(self) -> None:
        """There is no claim to renew."""

    def is_fresh(self) -> bool:
        return self.written == self.position

    def refresh(self) -> None:
        self.refreshed += 1
        self.written = self.position


class Clock:
    """A clock that sleeps advance."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        self.now_s += 1e-6
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(stream, "time", Clock())

    def run(fake: Any, once: bool = False) -> str:
        output = io.StringIO()
        arguments = argparse.Namespace(once=once, every=EVERY_S, rows=ROWS)
        run: Any = stream._Run
        try:
            line = StreamLine(output)
            run(fake, None, line, stream.Outage(line), arguments).run()
        except Stop:
            assert not once
        return output.getvalue()

    return run


def test_it_says_first_how_far_behind_it_is(follow: Callable[..., str]) -> None:
    said = follow(Fake(1000, 1250, 1250, 1250, 1250)).splitlines()
    assert [line.partition("] ")[2].partition(" behind")[0] for line in said] == [
        "1,000 of 1,250 events, 250",
        "1,100 of 1,250 events, 150",
        "1,200 of 1,250 events, 50",
    ]


def test_a_batch_waits_for_its_time_unless_it_is_full(follow: Callable[..., str]) -> None:
    # Two full batches, and then one event every three seconds.
    fake = Fake(0, 250, 250, *[250 + second // 3 for second in range(100)])
    follow(fake)
    assert fake.batches[:2] == [(0, 100), (100, 200)]
    assert fake.batches[2][0] == 200
    assert 265 < fake.batches[2][1] < 275
    assert fake.compacted == len(fake.batches)
    # The tables are not refreshed after every batch.
    assert fake.refreshed == 1


def test_tables_are_refreshed_when_nothing_comes_any_more(follow: Callable[..., str]) -> None:
    fake = Fake(0, *[250] * (EVERY_S + int(stream.REFRESH_S) + 5))
    follow(fake)
    assert fake.position == 250
    assert (fake.refreshed, fake.is_fresh()) == (2, True)


def test_once_ends_at_the_end_that_there_was(follow: Callable[..., str]) -> None:
    fake = Fake(0, 250)
    follow(fake, once=True)
    assert fake.batches == [(0, 100), (100, 200), (200, 250)]


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        EventsLost(5, 9, {"a:1": "down"}),
        RuntimeError(f"Job aborted\nbeanpole.errors.ClientError: {DOWN}\n"),
    ],
)
def test_an_outage_is_waited_out_and_said_once(
    error: Exception, follow: Callable[..., str]
) -> None:
    fake = Fake(0, 50, DOWN, DOWN, DOWN, 80, 80, 80)
    fake.error = error
    said = follow(fake).splitlines()
    assert fake.batches == [(0, 80)]
    waiting = {line for line in said if line.startswith("waiting: ")}
    assert waiting == {f"waiting: {failures.gist(str(error))}", f"waiting: {DOWN}"}
    assert sum(line == f"waiting: {DOWN}" for line in said) == 1


def test_a_long_outage_is_said_now_and_then(follow: Callable[..., str]) -> None:
    said = follow(Fake(0, 50, *[DOWN] * 200)).splitlines()
    assert 3 <= sum(line == f"waiting: {DOWN}" for line in said) <= 4


def test_the_first_end_is_waited_for_too(follow: Callable[..., str]) -> None:
    fake = Fake(0, DOWN, DOWN, 50, 50)
    assert follow(fake).splitlines()[0] == f"waiting: {DOWN}"
    assert fake.batches == [(0, 50)]
    with pytest.raises(ClientError, match="no node answers"):
        follow(Fake(0, DOWN), once=True)


def test_it_waits_for_nodes_before_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "time", Clock())
    script: list[Exception | None] = [DOWN, DOWN, EventsLost(5, 9, {"a:1": "down"}), None]

    def begin() -> None:
        if (error := script.pop(0)) is not None:
            raise error

    output = io.StringIO()
    stream.Outage(StreamLine(output)).waited(begin)
    lost = "waiting: the events from offset 5 on are gone"
    first, second = output.getvalue().splitlines()
    assert first == f"waiting: {DOWN}" and second.startswith(lost)
    assert not script
    for error in (EventsLost(5, 9, {}), OtherCluster("a:1 is of another"), StorageError("damaged")):
        script[:] = [error]
        with pytest.raises(type(error)):
            stream.Outage(StreamLine(output)).waited(begin)


@pytest.mark.parametrize(
    "error",
    [
        EventsLost(5, 9, {}),
        StorageError("damaged"),
        RuntimeError("Python worker exited unexpectedly"),
        RuntimeError("beanpole.client.events.EventsLost: the events from offset 5 on are gone"),
    ],
)
def test_other_errors_end_it(error: Exception, follow: Callable[..., str]) -> None:
    fake = Fake(0, 50, 50)
    fake.error = error
    with pytest.raises(type(error)):
        follow(fake)


def test_once_waits_for_nothing(follow: Callable[..., str]) -> None:
    fake = Fake(0, 50)
    fake.error = DOWN
    with pytest.raises(ClientError, match="no node answers"):
        follow(fake, once=True)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_in_a_terminal_the_line_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    line = StreamLine(output := Terminal())
    line.show(Progress(0, 0, 0))
    line.show(Progress(0, 0, 7))
    line.say("a word")
    line.end()
    first, second, word = output.getvalue().split("\r\x1b[2K")[1:]
    assert first.endswith("0 of 0 events, 0 behind, 0 a second")
    assert second == words(Progress(0, 0, 7))
    assert word == "a word\n\n"
