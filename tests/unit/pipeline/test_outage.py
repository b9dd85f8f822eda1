"""`beanpole pipeline stream` waits while nodes do not answer, and ends when they refuse."""

import argparse
from typing import Any

import grpc
import pytest

from beanpole.client.rpc import Refused
from beanpole.errors import ClientError
from beanpole.exports import BadExport
from pyspark_beanpole.cli import failures, stream


class Line:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, words: str) -> None:
        self.said.append(words)

    def show(self, progress: object) -> None:
        """Show nothing."""


class Error(grpc.RpcError):
    """The answer of a node to a token that no user has."""

    def details(self) -> str:
        return "no user has this token"

    def trailing_metadata(self) -> tuple[()]:
        return ()


REFUSED = Refused("a:1", Error())


class Nodes:
    """A stream whose nodes fail with one error after the other."""

    position = 0

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.touched = 0

    def end_now(self) -> int:
        raise self._errors.pop(0)

    def touch(self) -> None:
        self.touched += 1


class Damaged:
    """A stream whose files cannot be merged, and which ends after some looks for events."""

    position = 0

    def __init__(self, looks: int, batches: int) -> None:
        self._looks, self._batches = looks, batches
        self.touched = 0

    def end_now(self) -> int:
        self._looks -= 1
        if self._looks < 0:
            raise REFUSED
        return self.position + (1 if self._batches else 0)

    def step(self, spark: object, end: int) -> int:
        self._batches -= 1
        self.position = end
        return 1

    def compact(self) -> None:
        raise BadExport("x.parquet is damaged")

    def is_fresh(self) -> bool:
        return True

    def touch(self) -> None:
        self.touched += 1


def test_an_outage_is_said_once() -> None:
    line, error = Line(), ClientError("no node answers")
    its: Any = line
    outage = stream.Outage(its)
    for _ in range(3):
        outage.say(error)
    assert line.said == ["waiting: no node answers"]
    outage.is_over()
    outage.say(error)
    assert len(line.said) == 2


def test_a_running_stream_ends_when_its_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "POLL_S", 0.0)
    line = Line()
    its: Any = line
    nodes: Any = Nodes(ClientError("no node answers"), REFUSED)
    arguments = argparse.Namespace(once=False, every=60, rows=1000)
    spark: Any = None
    run = stream._Run(nodes, spark, its, stream.Outage(its), arguments)
    with pytest.raises(Refused, match="a:1: no user has this token"):
        run.run()
    assert line.said == ["waiting: no node answers"]
    assert nodes.touched, "its claim to the directory is renewed meanwhile"


def test_a_file_that_cannot_be_merged_does_not_end_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "POLL_S", 0.0)
    line = Line()
    its: Any = line
    damaged: Any = Damaged(looks=9, batches=3)
    arguments = argparse.Namespace(once=False, every=0, rows=1000)
    spark: Any = None
    with pytest.raises(Refused):
        stream._Run(damaged, spark, its, stream.Outage(its), arguments).run()
    assert damaged.position == 3
    assert line.said == ["not compacted: x.parquet is damaged"]
    # Also while there are no events.
    assert damaged.touched == 8


def test_a_stream_does_not_wait_for_a_task_that_was_refused() -> None:
    assert failures.is_of_nodes("beanpole.errors.ClientError: no node answers")
    assert not failures.is_of_nodes(f"beanpole.client.rpc.Refused: {REFUSED}")
